"""Columns of X that parameters of an estimator name; all but that of time are no inputs of the models."""

import narwhals as nw
import numpy as np

from ..preprocessing.frame_columns import Column, Table, as_frame


def positions(estimator, X):
    """Position of the column that each parameter in `_row_columns` names, for those that are set.

    Raises
    ------
    ValueError
        If a parameter names no column of `X`.
    """
    given = {name: getattr(estimator, name) for name in estimator._row_columns}
    given = {name: column for name, column in given.items() if column is not None}
    return {name: position_of(name, column, X) for name, column in given.items()}


def position_of(name, column, X):
    """Position of a column by its name or position; ValueError if it is none, which mentions the parameter."""
    names, shape = _names(X), np.shape(X)
    if isinstance(column, str):
        if names is None:
            raise ValueError(
                f"{name}={column!r} names a column, and the columns of X have no names; give its position."
            )
        if column not in names:
            raise ValueError(f"{name}={column!r} names a column that X does not have.")
        return names.index(column)
    n = len(names) if names is not None else shape[1] if len(shape) == 2 else 0
    if not 0 <= column < n:
        raise ValueError(f"{name}={column} is the position of a column, and X has {n} columns.")
    return int(column)


def _names(X):
    """Names of the columns; None if they have none."""
    if isinstance(X, Table):
        return X.names
    frame = as_frame(X)
    return frame.columns if isinstance(frame, nw.DataFrame) else None


def values(X, position):
    """The values of a column, as an array."""
    if isinstance(X, Table):
        return X.columns[position].cells
    frame = as_frame(X)
    if isinstance(frame, nw.DataFrame):
        return frame[frame.columns[position]].to_numpy()
    return _as_array(X)[:, position]


def column(X, position):
    """A column of a frame or an array, as :class:`~skdgp.preprocessing.frame_columns.Column`."""
    if isinstance(X, Table):
        return X.columns[position]
    frame = as_frame(X)
    if isinstance(frame, nw.DataFrame):
        name = frame.columns[position]
        return Column.of_series(name, frame[name])
    return Column.of_array(position, _as_array(X)[:, position])


def no_inputs(estimator):
    """Positions of the columns that are no inputs of the models: all but that of time."""
    return [j for name, j in estimator._row_positions.items() if name != "time"]


def blanked(X, which):
    """`X` with zeros in some columns; without any, `X` itself."""
    which = list(which)
    if not which:
        return X
    if isinstance(X, Table):
        columns = list(X.columns)
        for j in which:
            columns[j] = Column(columns[j].name, np.zeros(len(X)), "number")
        return Table(columns, X.header)
    frame = as_frame(X)
    if isinstance(frame, nw.DataFrame):
        zeros = (nw.lit(0.0).alias(frame.columns[j]) for j in which)
        return frame.with_columns(*zeros).to_native()
    X = _as_array(X).copy()
    X[:, which] = 0
    return X


def _as_array(X):
    """Lists of rows as objects, which keep their types."""
    return np.array(X, dtype=object) if isinstance(X, list | tuple) else np.asarray(X)
