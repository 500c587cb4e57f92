"""Sources of a warm start: the last fit, or another estimator."""

import contextlib

import numpy as np
from sklearn.exceptions import NotFittedError

from ..training.checkpoint import fingerprint

SHAPE = ("n_layers", "width", "mean", "input_connected", "inference")
PRESET = ("kernel", "n_inducing", "standardize", "likelihood", "target_transform", "noise")


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


def lasting(estimator):
    """Digests of the parameters that cannot change while the same model learns on."""
    return {name: fingerprint(getattr(estimator, name, None)) for name in (*SHAPE, *PRESET)}


def changed_since_fit(estimator, names):
    """Names of parameters that are not as in the last fit, in one phrase."""
    before, now = getattr(estimator, "_lasting", {}), lasting(estimator)
    return " and ".join(name for name in names if before.get(name, now[name]) != now[name])


def check_lasting(estimator):
    """Raise ValueError if what a warm start cannot change is not as in the last fit."""
    changed = changed_since_fit(estimator, PRESET)  # shapes are compared member by member
    if changed:
        raise ValueError(
            f"warm_start=True goes on with the model of the last fit, so {changed} must stay "
            "as before; set warm_start=False to start anew."
        )
