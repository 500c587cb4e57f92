"""Codes of groups: of a column of X, or one more column behind X where ``fit`` was given an array."""

import numpy as np

from .._arrays import one_dimensional
from ..fitting.table import with_column
from ..preprocessing.frame_columns import is_missing
from ..preprocessing.levels import UNIT, UNSEEN, level_of, positions


def as_levels(groups, n_rows):
    """The group of each row, None where it is missing; ValueError if they are not one for each row."""
    groups = one_dimensional(groups, "groups")
    if len(groups) != n_rows:
        raise ValueError(
            f"groups must have one group for each of the {n_rows} rows; got {len(groups)}."
        )
    return [None if is_missing(group) else level_of(group) for group in groups.tolist()]


def codes_of(estimator, groups, learns):
    """Codes (n,) of groups: those missing are of one new group, and unknown ones each of another.

    If the estimator `learns`, unknown ones are known then, in the order of the rows.
    """
    if learns:
        found = dict.fromkeys([*estimator._groups, *groups])
        estimator._groups = [group for group in found if group is not None]
    find = positions(estimator._groups)
    codes = {None: UNSEEN}
    for group in dict.fromkeys(groups):
        code = UNSEEN if group is None else find(group)
        new = group is not None and code == UNSEEN
        codes[group] = UNSEEN - len(codes) if new else code
    return UNIT * np.array([codes[group] for group in groups], dtype=np.float64)


def are_behind(estimator):
    """Whether codes of groups are one more column behind those of X."""
    return bool(estimator._groups) and "groups" not in estimator._row_positions


def check_groups(estimator, groups):
    """Raise ValueError if only one of the rows to learn from and those before have groups."""
    if are_behind(estimator) and groups is None:
        raise ValueError("The first rows had groups, and these have none; give groups here, too.")
    if groups is not None and not are_behind(estimator):
        raise ValueError(_NO_GROUPS)


def with_groups(estimator, X, groups, learns=False):
    """Rows X (n, n_features) with the codes of their groups behind them, where ``fit`` was given groups.

    Raises
    ------
    ValueError
        If rows have groups, and those of ``fit`` had none.
    """
    if groups is not None and not (learns or are_behind(estimator)):
        raise ValueError(_NO_GROUPS)
    if groups is None and not are_behind(estimator):
        return X
    groups = [None] * len(X) if groups is None else groups
    return with_column(X, codes_of(estimator, groups, learns))


_NO_GROUPS = (
    "fit was given no array of groups, so that models know none; leave groups out, or give them to fit, too. "
    "With the parameter groups, they are in X."
)
