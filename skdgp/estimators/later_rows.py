"""Dates: rows of training in their order, and rows to predict that are later than all of these."""

import numpy as np

from .._warnings import warn
from .times import length_of

_ORDERED_ROWS = 50  #: and more, of which an order of dates is no chance
_ALIKE = 0.5  #: correlation of targets that follow each other
#: share of rows to predict beyond the times of training, above which there is a warning
_MOSTLY = 0.5
_EVEN = 0.5  #: of a step between dates by which others differ at most: months do, and gaps differ by more
_ROUNDING = 1e-9  #: rounding: of a time, relative to the span


def latest(estimator, kinds, X):
    """For each column of dates, and that of time, the largest number that predictions are meant for.

    It is the last training row's, and of the column of time later by the horizon.
    """
    found, time = {}, estimator._row_positions.get("time")
    for j in {*_dates(kinds), time} - {None}:
        values = X[:, j][~np.isnan(X[:, j])]
        if not len(values):
            continue
        found[j], span = float(values.max()), float(np.ptp(values))
        if j == time:
            has_unit = kinds is not None and kinds[j] != "number"
            found[j] += length_of(estimator.horizon, has_unit, span) + _ROUNDING * span
    return found


def in_order(estimator, kinds, X, y):
    """Position of the dates in whose order rows are, if targets are like those before them; else None."""
    dates = _dates(kinds) if "time" in estimator.get_params(deep=False) else []
    if not dates or len(X) < _ORDERED_ROWS:
        return None
    steps = np.diff(y[:, 0] - y[:, 0].mean())
    variance = np.var(y[:, 0])
    likeness = 1.0 - 0.5 * np.mean(steps**2) / variance if variance > 0.0 else 0.0
    ordered = [j for j in dates if likeness >= _ALIKE and (np.diff(X[:, j]) > 0.0).all()]
    return ordered[0] if ordered else None


def is_time(estimator, kinds, X, j):
    """Whether ``time="auto"`` stands for the column `j` of :func:`in_order`.

    It is the only one with dates, and these have no gaps, as they would if rows between them had been left out
    to be predicted. Members are those of the default, which have kernels for the future.
    """
    names = "time", "inference", "kernel", "likelihood"
    given = [getattr(estimator, name) for name in names]
    if not all(isinstance(value, str) and value == "auto" for value in given):
        return False
    steps = np.diff(X[:, j])
    even = np.abs(steps / np.median(steps) - 1.0).max() <= _EVEN
    return bool(even) and len(_dates(kinds)) == 1 and estimator.noise == "auto"


def warn_of_order(estimator, j):
    """Warn of rows in the order of dates that are not taken for the time."""
    name = _name(estimator, j)
    warn(
        f"Rows are in the order of the dates in {name}, and targets are like those before them. If "
        f"predictions are for later dates, error bars are too short: set time={name}. If they are not, "
        "shuffle the rows.",
        UserWarning,
    )


def warn_if_later(estimator, X):
    """Warn if most rows are later than predictions are meant for, see :func:`latest`."""
    for j, most in estimator._latest.items():
        share = np.mean(X[:, j] > most) if len(X) else 0.0
        if share > _MOSTLY:
            name = _name(estimator, j)
            if j == estimator._row_positions.get("time"):
                far, cure = "lie farther ahead than the horizon", "fit with a longer horizon"
            else:
                far, cure = "are later than all training rows", f"fit with time={name}"
            warn(
                f"{share:.0%} of the rows {far} by {name}, and error bars are not made for that; {cure}.",
                UserWarning,
            )


def _dates(kinds):
    """Positions of the columns of dates."""
    return [] if kinds is None else [j for j, kind in enumerate(kinds) if kind == "date"]


def _name(estimator, j):
    names = vars(estimator).get("feature_names_in_")
    return repr(j if names is None else str(names[j]))
