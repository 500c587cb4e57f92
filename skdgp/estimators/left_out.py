"""Rows that are left out together: by an array, or by a column of X that a parameter names."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import column_or_1d

from .._arrays import as_numpy
from ..preprocessing.frame_columns import is_missing
from .row_columns import column, values
from .times import blocks, column_of, read


class LeftOut(NamedTuple):
    """Arguments of ``fit`` about rows that are left out together."""

    groups: Any = None  #: the group of each row
    time: Any = None  #: the time of each row

    def numbers(self, estimator, X, rows):
        """Arguments of a table for the `rows` of `X` that count: `groups`, and whether these go `forward`.

        Raises
        ------
        ValueError
            If groups or times are given twice, are none, or are both there.
        """
        positions = estimator._row_positions
        for name, given in self._asdict().items():
            if given is not None and name in positions:
                raise ValueError(
                    f"{name} is given twice, as an array and as a column of X; give one."
                )
        groups, time = self
        if "groups" in positions:
            groups = values(X, positions["groups"])
        if "time" in positions:
            time = column(X, positions["time"])
        elif time is not None:
            time = column_of(time, len(X))
        if time is None and estimator.horizon is not None:
            raise ValueError("horizon is how far predictions lie ahead in time; give time, too.")
        if groups is not None and time is not None:
            raise ValueError(
                "groups and time are both given; give groups alone if predictions are for new groups, and time "
                "alone if they are for later times."
            )
        if time is not None:
            numbers = blocks(*read(time), rows, estimator.horizon)
            return {"groups": numbers, "forward": True, "time": positions.get("time")}
        return {} if groups is None else {"groups": group_numbers(groups, len(X), rows)}


def group_numbers(groups, n_rows, rows):
    """Numbers of the groups of the `rows` that count, as int, in the order of their first rows.

    Raises
    ------
    ValueError
        If they are not one for each of all rows, one is missing, or all are the same.
    """
    groups = column_or_1d(np.asarray(as_numpy(groups)), input_name="groups")
    if len(groups) != n_rows:
        raise ValueError(
            f"groups must have one group for each of the {n_rows} rows; got {len(groups)}."
        )
    missing = [i for i, group in enumerate(groups.tolist()) if is_missing(group)]
    if missing:
        raise ValueError(
            f"groups is missing in row {missing[0]}; give each row without a group one of its own."
        )
    groups = groups[rows]
    try:
        _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    except TypeError:  # of several types
        _, first, number = np.unique(groups.astype(str), return_index=True, return_inverse=True)
    if len(first) < 2:
        raise ValueError("groups has a single group; two at least are needed to leave one out.")
    return np.argsort(np.argsort(first))[number.ravel()]
