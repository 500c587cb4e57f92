"""Rows that are left out together: by an array, or by a column of X that a parameter names."""

from typing import Any, NamedTuple

import numpy as np

from .group_codes import as_levels
from .row_columns import column, values
from .times import blocks, column_of, read


class LeftOut(NamedTuple):
    """Arguments of ``fit`` about rows that are left out together."""

    groups: Any = None  #: the group of each row
    time: Any = None  #: the time of each row

    def is_given(self, estimator):
        """Whether groups or times are known."""
        known = self._asdict().items()
        return any(a is not None or name in estimator._row_positions for name, a in known)

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
        return {} if groups is None else {"groups": group_numbers(as_levels(groups, len(X)), rows)}


def group_numbers(groups, rows):
    """Numbers of the groups of the `rows` that count, as int, in the order of their first rows.

    Raises
    ------
    ValueError
        If one is missing, or all are the same.
    """
    if None in groups:
        raise ValueError(
            f"groups is missing in row {groups.index(None)}; give each row without a group one of its own."
        )
    groups = [groups[i] for i in np.arange(len(groups))[rows]]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    if len(numbers) < 2:
        raise ValueError("groups has a single group; two at least are needed to leave one out.")
    return np.array([numbers[group] for group in groups])
