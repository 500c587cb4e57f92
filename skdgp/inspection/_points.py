"""Points along a column at which effects are computed, and how they are shown."""

from typing import NamedTuple

import numpy as np

from ..fitting.sample import at_even_steps
from ..preprocessing.columns import Date
from ._slices import few_values, in_units, unit

_OTHERS = 100  #: values beside the shown ones, at most, over which effects are centered
_A_CYCLE = 4  #: points in a cycle that is shown
_MOST = 400  #: points along dates up to which a cycle is shown: two years of weeks
_SAME = {"day": "time of day", "week": "weekday", "year": "day of the year"}


class Points(NamedTuple):
    """Values of a column, those that are shown first and in order."""

    values: np.ndarray  #: (n,)
    center: np.ndarray  #: (n,), their shares in the mean effect
    near: np.ndarray  #: (n_shown,), shares of the data near to those shown
    shown: np.ndarray  #: (n_shown,), in the units of a picture
    levels: list | None  #: names of those shown, of a category
    discrete: bool
    note: str  #: what is not shown, and the unit


def points_along(column, weights, n_points, kind, levels):
    """Points along a column (n_rows,) of rows with weights; a category has `levels`."""
    there = np.isfinite(column) & ((column >= 0.0) | (levels is None))  # others are unseen
    column, weights = column[there], weights[there] / max(weights[there].sum(), 1e-300)
    if len(column) == 0:
        column, weights = np.zeros(1), np.ones(1)
    if levels is not None or few_values(column):
        return _discrete(column, weights, n_points, kind, levels)
    grid, note = np.unique(column), unit(kind).strip()
    if kind == "date":
        grid, note = _dates(column, n_points)
    elif len(grid) > n_points:
        grid = np.linspace(grid[0], grid[-1], n_points)
    basis = np.column_stack([np.interp(column, grid, e) for e in np.eye(len(grid))])
    near, values = weights @ basis, grid
    center = near
    if kind == "date":  # cycles between the points
        some, times = at_even_steps(weights[np.argsort(column)], _OTHERS, counts=True)
        values = np.append(grid, np.sort(column)[some])
        center = np.append(np.zeros(len(grid)), times / times.sum())
    return Points(values, center, near, in_units(grid, kind), None, False, note)


def _discrete(column, weights, n_points, kind, levels):
    """The most frequent values, and of the others some that stand for all of them."""
    values, which = np.unique(column, return_inverse=True)
    share = np.bincount(which, weights)
    order = np.argsort(-share, kind="stable")
    shown, rest = np.sort(order[:n_points]), order[n_points:]
    of_rest = share[rest]
    if len(rest) > _OTHERS:
        some, times = at_even_steps(of_rest, _OTHERS, counts=True)
        rest, of_rest = rest[some], of_rest.sum() * times / times.sum()
    names, n, note = None, len(values), unit(kind).strip()
    if levels is not None:
        names, n = [str(levels[int(code)]) for code in values[shown]], len(levels)
    if len(shown) < n:
        note = f"{len(shown)} of {n} {'values' if levels is None else 'levels'}"
    points = values[np.append(shown, rest)]
    center = np.append(share[shown], of_rest)
    near, in_picture = share[shown], in_units(values[shown], kind)
    return Points(points, center, near, in_picture, names, True, note)


def _dates(days, n_points):
    """Days in whose steps cycles are seen, or are always at the same place, and which these are."""
    low, high = days.min(), days.max()
    kept = Date().fit(days, None, None, None).kept
    seen = [length for _, length in kept if _A_CYCLE * (high - low) / length <= _MOST]
    unseen = [(length, name) for name, length in kept if length not in seen]
    step = min([(high - low) / (n_points - 1), *(length / _A_CYCLE for length in seen)])
    note = ""
    if unseen:  # steps that do not fit their cycles would show waves that are not there
        length, name = max(unseen)
        step, note = max(1.0, step // length) * length, f"always the same {_SAME[name]}"
    return low + step * np.arange(int((high - low) / step * (1.0 + 1e-9)) + 1), note
