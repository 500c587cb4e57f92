"""Starts and scaling from another fit: the last one, chunks before, or another estimator."""

import contextlib

import numpy as np
from sklearn.exceptions import NotFittedError

from .._warnings import warn
from ..estimators.summary import feature_names
from ..gp.kernels import Kernel, as_kernel
from ..gp.kernels.base import Pair
from ..inference import SCHEMES
from ..preprocessing.scaling import Scaling
from ..training.checkpoint import fingerprint

_FAR = 100.0  #: standard deviations of the last fit that a warm start may not reach
_MOST_WARPED = 300  #: columns that are warped by default: of more, 400 rows cannot say which
_SHAPE = ("n_layers", "width", "mean", "input_connected", "inference")
_PRESET = ("kernel", "n_inducing", "standardize", "likelihood", "target_transform")


@contextlib.contextmanager
def all_or_nothing(estimator):
    """Yield a copy of an estimator whose attributes it takes, all at once, if the block does not fail.

    A random state of the user's, which both share, goes back to where it was if the block fails.
    """
    new, rng = object.__new__(type(estimator)), estimator.random_state
    vars(new).update(vars(estimator))
    before = rng.get_state() if isinstance(rng, np.random.RandomState) else None
    try:
        yield new
    except BaseException:
        if before is not None:
            rng.set_state(before)
        raise
    # scikit-learn has put these, and takes them away
    callbacks = {name: value for name, value in vars(estimator).items() if "callback" in name}
    estimator.__dict__ = {**vars(new), **callbacks}


def takes_chunks(estimator):
    """Whether the estimator has ``partial_fit``; raises AttributeError, with the reason, if not."""
    scheme = estimator.inference
    scheme = SCHEMES[scheme]() if isinstance(scheme, str) and scheme in SCHEMES else scheme
    if not getattr(scheme, "takes_chunks", True):
        name = type(scheme).__name__
        raise AttributeError(
            f"{name} needs all rows at once; partial_fit is for schemes that learn from minibatches, as "
            "inference='dsvi'."
        )
    return True


def init_source(estimator):
    """The fitted estimator whose state is the start; None without one. An error if it is not suitable."""
    if isinstance(estimator.init, str):
        return None
    source = getattr(estimator.init, "estimator", estimator.init)  # of a FrozenEstimator
    if not getattr(source, "_gives_state", False):
        raise ValueError(f"init must be an estimator of skdgp; got {type(source).__name__}.")
    if not source._is_fitted():
        raise NotFittedError(
            "The estimator given as init is not fitted. Copies made by clone, as in a search, forget "
            "the fit unless it is wrapped in sklearn.frozen.FrozenEstimator."
        )
    if source.n_features_in_ != estimator.n_features_in_:
        raise ValueError(
            f"The estimator given as init was fitted with {source.n_features_in_} features, X has "
            f"{estimator.n_features_in_}."
        )
    return source


def warn_if_far(data):
    """Warn if the targets are far from those of the last fit, whose scaling a warm start keeps."""
    scaler = data.y_scaler
    if not scaler.standardize:
        return
    mean = np.average(scaler.transform(data.y), axis=0, weights=data.weights)
    if (np.abs(mean) > _FAR).any():
        warn(
            "The targets lie far from those of the last fit, in whose units a warm start goes on, and may "
            "never be reached; set warm_start=False to start anew.",
            UserWarning,
        )


def _parts(kernel):
    """The class of a kernel, with those of the parts of sums and products."""
    if isinstance(kernel, Pair):
        return type(kernel), *(_parts(as_kernel(part)) for part in (kernel.left, kernel.right))
    return type(kernel)


def warm_start_sources(plans, members):
    """For each plan the first member left with its scheme and kernel, to go on with, or None.

    A single plan may have other settings of the scheme than the member, and needs one.
    """

    def alike(plan, member, of_scheme=repr):
        kernels = plan.last_kernel(), member.architecture.kernels[-1]
        schemes = plan.scheme, member.scheme
        return len({*map(of_scheme, schemes)}) == 1 and len({*map(_parts, kernels)}) == 1

    left, sources = list(members), []
    for plan in plans:
        same = [member for member in left if alike(plan, member)]
        sources.append(same[0] if same else None)
        left = [member for member in left if member is not sources[-1]]
    if members and len(plans) == 1 and sources[0] is None:
        sources = [member for member in members if alike(plans[0], member, of_scheme=type)][:1]
        if not sources:
            raise ValueError(
                f"warm_start=True goes on with the model of the last fit, and none was trained by "
                f"{type(plans[0].scheme).__name__}; set warm_start=False to start anew."
            )
    return sources


def lasting(estimator):
    """Digests of the parameters that cannot change while the same model learns on."""
    return {name: fingerprint(getattr(estimator, name)) for name in (*_SHAPE, *_PRESET)}


def _changed(estimator, names):
    before, now = getattr(estimator, "_lasting", {}), lasting(estimator)
    return " and ".join(name for name in names if before.get(name, now[name]) != now[name])


def check_lasting(estimator):
    """Raise ValueError if what a warm start cannot change is not as in the last fit."""
    changed = _changed(estimator, _PRESET)  # shapes are compared member by member
    if changed:
        raise ValueError(
            f"warm_start=True goes on with the model of the last fit, so {changed} must stay "
            "as before; set warm_start=False to start anew."
        )


def check_chunk(estimator):
    """Refuse what ``partial_fit`` would ignore, and warn of members that it drops."""
    if estimator.early_stopping:
        raise ValueError("partial_fit does not support early_stopping=True")
    if not estimator._is_fitted():
        return
    changed = _changed(estimator, (*_SHAPE, *_PRESET))
    if changed:
        raise ValueError(
            f"partial_fit goes on with the model of the calls before, so {changed} must stay as before; use "
            "sklearn.base.clone to start anew."
        )
    if estimator._atoms is not None:
        raise ValueError(
            "partial_fit learns with one model, and many targets of fit were equal and have a probability of "
            "their own; set likelihood='heteroscedastic' before fit."
        )
    if len(estimator.members_) > 1:
        warn(
            "partial_fit goes on with one model of the mixture alone, and the others are dropped; set "
            "inference='dsvi' before fit to train one model from the start.",
            UserWarning,
        )


def extrapolates(kernel):
    """Whether the kernel that a user gives goes on beyond all rows; of several, that of any layer."""
    if isinstance(kernel, str) and kernel == "auto":
        return False
    kernels = [kernel] if isinstance(kernel, (str, Kernel)) else kernel
    return any(as_kernel(one).extrapolates for one in kernels)


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


def scale(estimator, data, likelihood, source, rng, others=None):
    """Learn the scaling of inputs and targets in place, or take that of `source`, a fitted estimator.

    Targets of `others`, a list of Data, need the map, too; it is None if they are not known yet.
    """
    known = data.y_scaler  # of the whole of which these rows are a part

    def target_maps():
        return known.maps if known else estimator._target_maps(data, likelihood, source, others)

    given = estimator.standardize if isinstance(estimator.standardize, Scaling) else None
    if source is not None:
        given = Scaling(source._x_scaler, source._y_scaler)
    standardize = estimator.standardize if given is None else given.x_scaler.standardize
    straight = extrapolates(estimator.kernel)
    data.scale(standardize, likelihood.scales_target, rng, target_maps, likelihood, straight)
    if known is None and given is None:
        _warn_of_bends(data.x_scaler, feature_names(estimator))
    if given is not None:
        given.check(data.X.shape[1])
        y_scaler, name = data.y_scaler, estimator.target_transform
        alike = given.y_scaler.standardize == y_scaler.standardize
        alike = alike and len(given.y_scaler.scale) == len(y_scaler.scale)
        if alike and (name == "auto" or {name} == set(given.y_scaler.names)):
            y_scaler = given.y_scaler  # or the own one, where targets are treated in another way
        data.scale_as(given.x_scaler, y_scaler.widened(data.y))
    elif estimator.standardize == "warp" or (
        estimator.standardize == "auto"
        and estimator._warps()
        and len(data.x_scaler.columns) <= _MOST_WARPED
    ):
        data.warp(likelihood)
