"""Rows along which one feature varies."""

from collections import Counter
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from sklearn.utils import check_array, check_scalar

from ..preprocessing.frame_columns import Column, as_frame, columns_of
from ..preprocessing.frames import FrameReader
from ..preprocessing.levels import in_order, level_of
from ..preprocessing.notations import DAY

_FEW = 10  #: values, of which each is shown
_ORDERED = {"number", "boolean", "date", "time", "duration"}  #: kinds whose values lie on a line
_UNITS = {"time": " (hours)", "duration": " (days)"}


class Slice(NamedTuple):
    """Rows in which one feature varies, and the others have typical values."""

    rows: Any  #: ndarray or data frame of shape (n_points, n_features)
    grid: np.ndarray  #: (n_points,), the column that varies, as it is shown
    values: np.ndarray  #: (n_samples,), the same column of the data
    position: int
    name: str
    discrete: bool  #: whether the data have few values there, and the grid has all of them


def slice_along(X, feature, n_points, feature_range=None, names=None, by_value=False):
    """Let one feature vary; columns of numbers and dates stay at their medians, others at their modes.

    The feature is a position or a name; `names` are those of the columns if `X` is no data frame.
    Its range in `X` is the default; if it has few values and `by_value` is set, it takes these
    alone. Columns are read as the estimators read them.
    """
    check_scalar(n_points, "n_points", Integral, min_val=2)
    frame = as_frame(X)
    if isinstance(frame, nw.DataFrame):
        names = frame.columns
    else:
        is_date = getattr(getattr(X, "dtype", None), "kind", "") in "mM"
        frame = check_array(X, dtype=None if is_date else np.float64, ensure_all_finite="allow-nan")
    names = None if names is None else [str(name) for name in names]
    index = position(feature, names, frame.shape[1])
    columns, readings = columns_of(frame), FrameReader().fit(frame).readings
    reading, name = readings[index], f"x{index}" if names is None else names[index]
    if reading.kind not in _ORDERED:
        raise ValueError(f"feature={name!r} is not numeric; choose one that is.")
    reading = replace(reading, zone=reading.zone and "UTC")
    values = columns[index].numbers(reading)
    discrete = by_value and feature_range is None and few_values(values)
    if discrete and np.ptp(values[~np.isnan(values)]) > 0.0:
        grid = np.unique(values[~np.isnan(values)])
    else:
        grid = _grid(values, name, n_points, feature_range, reading)
    typical = [_typical(*each) for each in zip(columns, readings)]
    rows = (_rows_of_frame if isinstance(frame, nw.DataFrame) else _rows_of_array)(
        frame, index, grid, reading, typical
    )
    shown = (in_units(one, reading.kind) for one in (grid, values))
    return Slice(rows, *shown, index, name + unit(reading.kind), discrete)


def in_units(values, kind):
    """Values of a column as pictures show them: dates as dates, and times in hours."""
    if kind == "date":
        return np.rint(values * DAY).astype("M8[us]")
    return 24.0 * values if kind == "time" else values


def unit(kind):
    """The unit behind the name of a column."""
    return _UNITS.get(kind, "")


def few_values(column):
    """Whether a column takes so few values that nothing is known between them."""
    values = column[np.isfinite(column)]
    n_values = len(np.unique(values))
    return n_values <= _FEW and 2 * n_values <= len(values)


def position(feature, names, n_features):
    """The position of a column that is given by its position or name."""
    if isinstance(feature, str):
        if names is None:
            raise ValueError(
                f"feature={feature!r} is a name, but the columns of X have none, or lose it before the last "
                "step of a pipeline; give a position, or a data frame."
            )
        if feature not in names:
            raise ValueError(f"feature={feature!r} is no column of X; the columns are {names}.")
        return names.index(feature)
    if not isinstance(feature, Integral) or not 0 <= feature < n_features:
        raise ValueError(
            f"feature must be a name, or an int from 0 to {n_features - 1}, the last column of X; got "
            f"{feature!r}."
        )
    return int(feature)


def _grid(values, name, n_points, feature_range, reading):
    """Points (n_points,) in the unit of the values."""
    if feature_range is None:
        ends = np.array([np.nanmin(values, initial=np.inf), np.nanmax(values, initial=-np.inf)])
        if not ends[0] < ends[1]:
            raise ValueError(
                f"feature={name!r} is constant in X; choose another one, or give feature_range."
            )
    elif reading.kind in ("number", "boolean"):
        ends = np.asarray(feature_range)
    else:
        ends = Column.of_array("feature_range", np.array(feature_range, dtype=object))
        ends = ends.numbers(reading)
    if ends.shape != (2,) or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise ValueError(
            f"feature_range must be a pair (low, high) of increasing, finite numbers; got {feature_range!r}."
        )
    return np.linspace(*ends, n_points)


def _typical(column, reading):
    """The median of numbers; of other columns the row that has the median or the most frequent value."""
    there = np.flatnonzero(~column.is_missing)
    if len(there) == 0:
        return 0
    if reading.kind in _ORDERED - {"boolean"}:
        values = column.numbers(reading)
        if column.is_float and reading.kind == "number":
            return float(np.nanmedian(values))
        return int(np.nanargmin(np.abs(values - np.nanmedian(values))))
    levels = list(map(level_of, column.present()))
    counts = Counter(levels)
    most = max(counts.values())
    mode, *_ = in_order(level for level, n in counts.items() if n == most)
    return int(there[levels.index(mode)])


def _rows_of_frame(frame, index, grid, reading, typical):
    """Rows like those of a frame, with a column that varies and typical values in the others."""
    n, columns = len(grid), []
    for j, (series, value) in enumerate(zip(frame.iter_columns(), typical)):
        if j == index:
            columns.append(_series(series, grid, reading))
        elif isinstance(value, float):
            columns.append(_new(series, np.full(n, value)))
        else:
            columns.append(nw.maybe_reset_index(series[[value] * n]))
    rows = nw.maybe_reset_index(frame[[0] * n])
    return rows.with_columns(*columns).to_native()


def _new(series, values, dtype=None):
    return nw.new_series(series.name, values, dtype, backend=series.implementation)


def _series(series, grid, reading):
    """A column like another one, with the values of a grid."""
    if reading.kind in ("number", "boolean"):
        return _new(series, grid)
    instants = in_units(grid, "date")
    if reading.kind == "date":
        new = _new(series, instants)
        return new if reading.zone is None else new.dt.replace_time_zone("UTC")
    if reading.kind == "time":
        return _new(series, [one.time() for one in instants.tolist()])
    return _new(series, instants - np.datetime64(0, "us"))


def _rows_of_array(X, index, grid, reading, typical):
    """Return typical rows of an array, whose columns share a dtype."""
    is_date = X.dtype.kind in "mM"
    columns = [X[value, j] if is_date else value for j, value in enumerate(typical)]
    rows = np.tile(np.array(columns, dtype=X.dtype), (len(grid), 1))
    instants = in_units(grid, "date")
    rows[:, index] = (
        grid
        if not is_date
        else instants
        if reading.kind == "date"
        else instants - np.datetime64(0, "us")
    )
    return rows
