"""Targets of regressors, as users give them."""

import numpy as np

from .._warnings import warn
from ..preprocessing.frame_columns import is_missing

_LARGEST = 1e150  #: rounding: variances are in squares of its unit
_FAR = 100.0  #: times the distance of all other targets: one in 100 samples of Cauchy noise has such a gap
_LOOKED_AT = 1_000_000  #: memory: rows up to which they are looked for
_MOST_FAR = 20  #: one of so many rows, or three of few: more are no exceptions


def without_missing(y, fewest):
    """Targets with zeros in the place of those that are missing, and where these are; None if there are none.

    Raises
    ------
    ValueError
        If a row has no target, or an output is known at fewer than `fewest` rows.
    """
    y = np.asarray(y)
    if y.ndim != 2 or not np.size(y):
        return y, None
    if y.dtype.kind != "f":  # of objects; those that are no numbers are refused later
        missing = np.vectorize(is_missing, otypes=[bool])(y)
    else:
        missing = np.isnan(y)
    if not missing.any():
        return y, None
    for axis, least, sentence in (
        (1, 1, "Rows {} of y have no target; leave them out."),
        (0, fewest, f"Outputs {{}} of y are known at fewer than {fewest} rows; leave them out."),
    ):
        few = np.flatnonzero((~missing).sum(axis) < least)
        if len(few):
            listed = ", ".join(map(str, few[:5])) + ", ..." * (len(few) > 5)
            raise ValueError(sentence.format(listed))
    return np.where(missing, 0.0, y), missing


def check_size(y):
    """Raise ValueError for targets whose predictions would overflow."""
    if y.dtype.kind == "f" and len(y) and max(np.nanmax(y), -np.nanmin(y)).item() > _LARGEST:
        raise ValueError(
            f"y has values above {_LARGEST:.0e}, and variances of its predictions would overflow; choose a "
            "larger unit for it."
        )


def warn_if_some_are_constant(y, names):
    """Warn of outputs that are constant while others are not."""
    constant = (y == y[0]).all(0)
    if constant.any() and not constant.all():
        found = np.flatnonzero(constant).tolist()
        warn(
            f"Outputs {found if names is None else [names[j] for j in found]} of y are constant. Outputs "
            "share kernels, and a constant one can spoil them for the others: leave it out.",
            UserWarning,
        )


def warn_if_some_are_far(y, rows):
    """Warn of the few targets that are far from all others, as a code for "missing" or another unit is."""
    for column in y.T if len(y) <= _LOOKED_AT else ():
        column = column.astype(np.float64)
        own, column = rows[~np.isnan(column)], column[~np.isnan(column)]
        most = min(max(3, len(own) // _MOST_FAR), (len(own) - 1) // 2)
        with np.errstate(over="ignore"):
            distance = np.abs(column - np.median(column))
        order = np.argsort(distance)
        sizes = distance[order[-most - 1 :]]
        far = np.flatnonzero((sizes[1:] > _FAR * sizes[:-1]) & (sizes[:-1] > 0.0))
        if len(far):
            found = np.sort(own[order[len(own) - most + far[0] :]])
            listed = ", ".join(map(str, found[:5])) + ", ..." * (len(found) > 5)
            warn(
                f"The targets of rows {listed} are more than {_FAR:.0f} times as far from the median as all "
                "others. They decide the scale of the error bars: drop these rows if the targets are codes for "
                "something missing, or have another unit.",
                UserWarning,
            )
