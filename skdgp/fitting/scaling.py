"""The scaling of a fit: learned from its rows, or taken from an earlier fit."""

import numpy as np

from .._warnings import warn
from ..gp.kernels import Kernel, as_kernel
from ..preprocessing.scaling import Scaling
from ..preprocessing.target_scaling import moments
from .target_maps import learn

_FAR = 100.0  #: standard deviations of the last fit that a warm start may not reach
_MOST_WARPED = 300  #: columns that are warped by default: of more, 400 rows cannot say which


def extrapolates(kernel):
    """Whether the kernel that a user gives goes on beyond all rows; of several, that of any layer."""
    if isinstance(kernel, str) and kernel == "auto":
        return False
    kernels = [kernel] if isinstance(kernel, (str, Kernel)) else kernel
    return any(as_kernel(one).extrapolates for one in kernels)


def learn_scaling(
    table, likelihood, settings, given, rng, others=None, names=(), has_effects=False
):
    """Learn the scaling of inputs and targets in place, or take that of a fitted mixture `given`.

    Targets of `others`, a list of tables, need the map, too; it is None if they are not known yet. Warnings
    mention columns by `names`, and `has_effects` is whether some models have effects of levels.
    """
    known = table.y_scaler  # of the whole of which these rows are a part

    def target_maps():
        if known:
            return known.maps
        return _target_maps(table, likelihood, settings, given, others)

    scaling = settings.standardize if isinstance(settings.standardize, Scaling) else None
    if given is not None:
        scaling = Scaling(given.x_scaler, given.y_scaler)
    standardize = settings.standardize if scaling is None else scaling.x_scaler.standardize
    straight = table.time is not None or extrapolates(settings.kernel)
    of_inputs = straight, has_effects and not likelihood.is_class
    table.scale(standardize, likelihood.scales_target, rng, target_maps, likelihood, *of_inputs)
    if known is None and scaling is None and names:
        _warn_of_bends(table.x_scaler, names)
    if scaling is not None:
        scaling.check(table.X.shape[1], table.group)
        y_scaler, name = table.y_scaler, settings.target_transform
        alike = scaling.y_scaler.standardize == y_scaler.standardize
        alike = alike and len(scaling.y_scaler.scale) == len(y_scaler.scale)
        if alike and (name == "auto" or {name} == set(scaling.y_scaler.names)):
            y_scaler = scaling.y_scaler  # or the own one, where targets are treated in another way
        table.scale_as(scaling.x_scaler, y_scaler.widened(table.y))
    elif settings.standardize == "warp" or (
        settings.standardize == "auto"
        and settings.warps
        and table.time is None
        and len(table.x_scaler.columns) <= _MOST_WARPED
    ):
        table.warp(likelihood)


def _target_maps(table, likelihood, settings, given, others):
    """The maps that ``target_transform`` stands for.

    "auto" has none with numbers in the target's units, or with chunks that are still to come.
    """
    name = settings.target_transform
    if name is None or given is not None:
        if given is not None and name != "auto" and {name} != set(given.y_scaler.names):
            raise ValueError(
                "A fitted estimator as init hands its scaling on, and the map of its targets: leave "
                f"target_transform at 'auto'; got {name!r}."
            )
        return None
    maps_apply = likelihood.scales_target and likelihood.has_components
    if name == "auto":
        units = [getattr(likelihood, number) for number in likelihood._units]
        free = all(number is None for number in units) and maps_apply
        if not free or not settings.standardize or others is None:
            return None
    elif not maps_apply:
        raise ValueError(
            f"target_transform={name!r} is for likelihoods of real numbers that are mixtures of Gaussians, and "
            f"{type(likelihood).__name__} is not one; leave it at 'auto'."
        )
    tables = (table, *(others or ()))
    if name == "logit":
        outside = np.concatenate([t.y[(t.y <= 0.0) | (t.y >= 1.0)] for t in tables])
        if len(outside):
            raise ValueError(
                "target_transform='logit' needs targets above 0 and below 1, but y has the value "
                f"{outside[0]:g}; move 0 and 1 inside, as by (y * (n - 1) + 0.5) / n, or set another transform."
            )
    positive = np.all([~(t.y <= 0.0).any(0) for t in tables], axis=0)
    return learn(
        name,
        lambda rows: table.x_scaler.scaled(table.inputs[rows]),
        table.y,
        table.weights,
        positive,
        table.x_scaler.codes,
    )


def _warn_of_bends(scaler, names):
    """Warn of columns in which linear kernels are not linear because of outliers."""
    bent, ends = scaler.bends()
    if len(bent):
        names = scaler.names(names)
        listed = [f"{names[j]!r} beyond {a:g} and {b:g}" for j, (a, b) in zip(bent[:5], ends.T)]
        warn(
            "Some values of X are far from all others, and inputs grow only logarithmically there, so that no "
            f"kernel is linear: {', '.join(listed)}{', ...' * (len(bent) > 5)}. Drop these rows if the "
            "values are codes, or set standardize=False.",
            UserWarning,
        )


def of_size(likelihood, size):
    """A likelihood with noise as large as the target: one row does not determine it."""
    units = likelihood._units
    if not units or any(getattr(likelihood, name) is not None for name in units):
        return likelihood
    return likelihood.with_values(trainable=False, **{k: size**power for k, power in units.items()})


def warn_if_far(table):
    """Warn if the targets are far from those of the last fit, whose scaling a warm start keeps."""
    scaler = table.y_scaler
    if not scaler.standardize:
        return
    mean, _ = moments(scaler.transform(table.y), table.weights)
    if (np.abs(mean) > _FAR).any():
        warn(
            "The targets lie far from those of the last fit, in whose units a warm start goes on, and may "
            "never be reached; set warm_start=False to start anew.",
            UserWarning,
        )
