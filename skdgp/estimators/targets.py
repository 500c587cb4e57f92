"""Targets of regressors, as users give them."""

import numpy as np

from .._warnings import warn
from ..preprocessing.target_maps import learn

_FAR = 100.0  #: times the distance of all other targets: one in 100 samples of Cauchy noise has such a gap
_LOOKED_AT = 1_000_000  #: rows up to which they are looked for, for the sake of memory
_MOST_FAR = 20  #: one of so many rows, or three of few: more are no exceptions


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
    most = min(max(3, len(y) // _MOST_FAR), (len(y) - 1) // 2)
    for column in y.T if len(y) <= _LOOKED_AT else ():
        column = column.astype(np.float64)
        with np.errstate(over="ignore"):
            distance = np.abs(column - np.median(column))
        order = np.argsort(distance)
        sizes = distance[order[-most - 1 :]]
        far = np.flatnonzero((sizes[1:] > _FAR * sizes[:-1]) & (sizes[:-1] > 0.0))
        if len(far):
            found = np.sort(rows[order[len(y) - most + far[0] :]])
            listed = ", ".join(map(str, found[:5])) + ", ..." * (len(found) > 5)
            warn(
                f"The targets of rows {listed} are more than {_FAR:.0f} times as far from the median as all "
                "others. They decide the scale of the error bars: drop these rows if the targets are codes for "
                "something missing, or have another unit.",
                UserWarning,
            )


def target_maps(estimator, data, likelihood, source, others):
    """The maps that ``target_transform`` stands for.

    "auto" has none with numbers in the target's units, or with chunks that are still to come.
    """
    name = estimator.target_transform
    if name is None or source is not None:
        if source is not None and name != "auto" and {name} != set(source._y_scaler.names):
            raise ValueError(
                "A fitted estimator as init hands its scaling on, and the map of its targets: leave "
                f"target_transform at 'auto'; got {name!r}."
            )
        return None
    if name == "auto":
        given = [getattr(likelihood, number) for number in likelihood._units]
        free = all(number is None for number in given) and likelihood.scales_target
        if not free or not estimator.standardize or others is None:
            return None
    elif not likelihood.scales_target:
        raise ValueError(
            f"target_transform={name!r} is for likelihoods of real numbers, and "
            f"{type(likelihood).__name__} is not one; leave it at 'auto'."
        )
    if name == "logit":
        parts = [part.y[(part.y <= 0.0) | (part.y >= 1.0)] for part in (data, *(others or ()))]
        outside = np.concatenate(parts)
        if len(outside):
            raise ValueError(
                "target_transform='logit' needs targets above 0 and below 1, but y has the value "
                f"{outside[0]:g}; move 0 and 1 inside, as by (y * (n - 1) + 0.5) / n, or set another transform."
            )
    positive = np.all([(part.y > 0.0).all(0) for part in (data, *(others or ()))], axis=0)
    return learn(
        name,
        lambda rows: data.x_scaler.scaled(data.inputs[rows]),
        data.y,
        data.weights,
        positive,
    )


def of_size(likelihood, size):
    """A likelihood with noise as large as the target: one row does not determine it."""
    units = likelihood._units
    if not units or any(getattr(likelihood, name) is not None for name in units):
        return likelihood
    return likelihood.with_values(trainable=False, **{k: size**power for k, power in units.items()})
