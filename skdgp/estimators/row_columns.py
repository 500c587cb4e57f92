"""Columns of X that parameters of an estimator name: models see codes of groups, the time, and no others."""

import narwhals as nw
import numpy as np
import torch

from ..preprocessing.frame_columns import Column, Table, as_frame
from ..preprocessing.levels import UNIT, UNSEEN
from ..preprocessing.notations import number
from .group_codes import as_levels, codes_of


def positions(estimator, X):
    """Position of the column that each parameter in `_row_columns` names, for those that are set.

    Raises
    ------
    ValueError
        If a parameter names no column of `X`.
    """
    given = {name: getattr(estimator, name) for name in estimator._row_columns}
    if given["time"] == "auto":  # which is known when rows have been read
        given["time"] = None
    given = {name: column for name, column in given.items() if column is not None}
    return {name: position_of(name, column, X) for name, column in given.items()}


def position_of(name, column, X):
    """Position of a column by its name or position; ValueError if it is none, which mentions the parameter."""
    if isinstance(column, str):
        names = _names(X)
        if names is None:
            raise ValueError(
                f"{name}={column!r} names a column, and the columns of X have no names; give its position."
            )
        if column not in names:
            raise ValueError(f"{name}={column!r} names a column that X does not have.")
        return names.index(column)
    n = _n_columns(X)
    if isinstance(column, bool) or not 0 <= column < n:
        raise ValueError(f"{name}={column} is the position of a column, and X has {n} columns.")
    return int(column)


def _n_columns(X):
    names, shape = _names(X), np.shape(X)
    return len(names) if names is not None else shape[1] if len(shape) == 2 else 0


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


def replaced(estimator):
    """Numbers in the place of columns that are no inputs, by position; of groups, the code of a new one."""
    positions = estimator._row_positions.items()
    return {j: UNIT * UNSEEN * (name == "groups") for name, j in positions if name != "time"}


def reader_of_tensors(estimator):
    """A function of rows (..., n_features) of a tensor that does what :func:`with_codes` does to others."""
    others, position = replaced(estimator), estimator._row_positions.get("groups")
    known = [number(level) if isinstance(level, str) else level for level in estimator._groups]

    def read(X):
        for j, value in others.items():
            cells = torch.full_like(X[..., :1], value)
            if j == position and known:
                same = X[..., [j]] == X.new_tensor(known)
                from_one = torch.arange(1.0, len(known) + 1.0).to(X)
                cells = UNIT * ((same.to(X) * from_one).sum(-1, keepdim=True) + UNSEEN)
            X = torch.where(torch.arange(X.shape[-1], device=X.device) == j, cells, X)
        return X

    return read


def with_codes(estimator, X, reset=False, extend=False):
    """`X` with codes in the column of groups, and zeros in others that are no inputs; without any, `X` itself.

    On `reset` groups get their codes, and more of them with `extend`.
    """
    others = replaced(estimator)
    if not others or max(others) >= _n_columns(X):  # which validation will refuse
        return X
    position = estimator._row_positions.get("groups")
    if position is not None:
        given = as_levels(values(X, position), len(X))
        others[position] = codes_of(estimator, given, reset or extend)
    columns = {j: np.broadcast_to(cells, len(X)) for j, cells in others.items()}
    if isinstance(X, Table):
        cells = list(X.columns)
        for j, numbers in columns.items():
            cells[j] = Column(cells[j].name, np.array(numbers), "number")
        return Table(cells, X.header)
    frame = as_frame(X)
    if isinstance(frame, nw.DataFrame):
        made = (
            nw.new_series(frame.columns[j], np.array(numbers), backend=frame.implementation)
            for j, numbers in columns.items()
        )
        return frame.with_columns(*made).to_native()
    X = _as_array(X)
    X = X.astype(object if X.dtype.kind in "OUSmM" else np.result_type(X.dtype, np.float32))
    for j, numbers in columns.items():
        X[:, j] = numbers
    return X


def _as_array(X):
    """Lists of rows as objects, which keep their types."""
    return np.array(X, dtype=object) if isinstance(X, list | tuple) else np.asarray(X)
