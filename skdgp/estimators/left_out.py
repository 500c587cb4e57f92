"""Rows that are left out together: by an array, or by a column of X that a parameter names."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import column_or_1d

from .._arrays import as_numpy
from ..preprocessing.frame_columns import is_missing
from .row_columns import values


class LeftOut(NamedTuple):
    """What ``fit`` was given about rows that are left out together."""

    groups: Any = None  #: the group of each row

    def numbers(self, estimator, X, rows):
        """Numbers of the groups of the `rows` of `X` that count; None without groups.

        Raises
        ------
        ValueError
            If groups are given twice, or are none, see :func:`group_numbers`.
        """
        groups, position = self.groups, estimator._row_positions.get("groups")
        if position is not None:
            if groups is not None:
                raise ValueError(
                    "groups is given twice, as an array and as a column of X; give one."
                )
            groups = values(X, position)
        return None if groups is None else group_numbers(groups, len(X), rows)


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
