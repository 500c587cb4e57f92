"""Rows along which one feature varies."""

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing, check_array, check_scalar

_FEW = 10  #: values, of which each is shown


class Slice(NamedTuple):
    """Rows in which one feature varies, and the others have typical values."""

    rows: Any  #: ndarray or DataFrame of shape (n_points, n_features)
    grid: np.ndarray  #: (n_points,), the column that varies
    values: np.ndarray  #: (n_samples,), the same column of the data
    index: int  #: its position
    name: str


def slice_along(X, feature, n_points, feature_range=None, names=None, by_value=False):
    """Let one feature vary; numeric columns stay at their medians, others at their modes.

    The feature is a position or a name; `names` are those of the columns if `X` is no data frame.
    Its range in `X` is the default; if it has few values and `by_value` is set, it takes these
    alone.
    """
    check_scalar(n_points, "n_points", Integral, min_val=2)
    if hasattr(X, "iloc") or hasattr(X, "iter_columns"):  # pandas, polars
        names = X.columns
    else:
        X = check_array(X, dtype=np.float64, ensure_all_finite="allow-nan")
    names = None if names is None else [str(name) for name in names]
    index = position(feature, names, X.shape[1])
    name = f"x{index}" if names is None else names[index]
    values = _numbers(X, index, name)
    if by_value and feature_range is None and few_values(values) and np.ptp(values) > 0.0:
        grid = np.unique(values[np.isfinite(values)])
    else:
        grid = _grid(values, name, n_points, feature_range)
    return Slice(_rows(X, index, grid), grid, values, index, name)


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


def _numbers(X, index, name):
    """The values (n,) of a column as floats."""
    column = _safe_indexing(X, index, axis=1)
    try:
        if hasattr(column, "iloc"):
            column = column.to_numpy(na_value=np.nan)
        elif not isinstance(column, np.ndarray) and not column.dtype.is_numeric():
            raise TypeError(f"{column.dtype} is no type of numbers.")  # strings of digits convert
        return np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"feature={name!r} is not numeric; choose one that is.") from error


def _grid(values, name, n_points, feature_range):
    if feature_range is None:
        feature_range = np.nanmin(values), np.nanmax(values)
        if feature_range[0] == feature_range[1]:
            raise ValueError(
                f"feature={name!r} is constant in X; choose another one, or give feature_range."
            )
    ends = np.asarray(feature_range)
    if ends.shape != (2,) or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise ValueError(
            f"feature_range must be a pair (low, high) of increasing, finite numbers; got {feature_range!r}."
        )
    return np.linspace(*ends, n_points)


def _rows(X, index, grid):
    """Rows like those of `X`, with a column that varies and typical values in the others."""
    n = len(grid)
    if isinstance(X, np.ndarray):
        rows = np.tile(np.nanmedian(X, axis=0), (n, 1))
        rows[:, index] = grid
        return rows
    if hasattr(X, "iloc"):
        rows = X.iloc[np.zeros(n, dtype=int)].reset_index(drop=True)
        for i in range(X.shape[1]):
            rows.isetitem(i, grid if i == index else _typical_of_pandas(X.iloc[:, i], n))
        return rows
    columns = [_typical_of_polars(column, n) for column in X.iter_columns()]
    columns[index] = type(columns[index])(X.columns[index], grid)
    return type(X)(columns)


def _typical_of_pandas(column, n):
    """`n` times the median or the most frequent value of a column, in a type that fits."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_numeric_dtype(column) and not is_bool_dtype(column):
        return np.full(n, column.median())
    mode = column.mode()
    return (column if mode.empty else mode).array[np.zeros(n, dtype=int)]


def _typical_of_polars(column, n):
    if column.dtype.is_numeric():
        return type(column)(column.name, np.full(n, column.median()))
    mode = column.drop_nulls().mode().sort()
    return (column if mode.is_empty() else mode).new_from_index(0, n)
