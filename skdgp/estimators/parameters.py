"""Parameters of estimators: values, names that stand for objects, and those that a scheme does not use."""

import os
from datetime import timedelta
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator

from ..fitting.settings import DTYPES
from ..gp.kernels import Kernel, as_kernel
from ..gp.likelihoods import Likelihood, as_likelihood
from ..inference import Scheme, as_scheme
from ..preprocessing.scaling import Scaling
from ..training import init as initialization
from ..training.checkpoint import Checkpoint
from ._sklearn import Interval, StrOptions

#: of scikit-learn's validation, for all estimators
CONSTRAINTS = {
    "n_layers": [Interval(Integral, 1, None, closed="left")],
    "width": [Interval(Integral, 1, None, closed="left"), "array-like", None],
    "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
    "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
    "groups": [str, Interval(Integral, 0, None, closed="left"), None],
    "time": [str, Interval(Integral, 0, None, closed="left"), None],
    "horizon": [
        timedelta,
        np.timedelta64,  # before the interval, with whose ends it cannot be compared
        Interval(Real, 0, None, closed="neither"),
        None,
    ],
    "kernel": [str, Kernel, list, tuple],
    "mean": [StrOptions({"linear", "zero"})],
    "input_connected": ["boolean"],
    "likelihood": [str, Likelihood],
    "inference": [str, Scheme],
    "init": [StrOptions(set(initialization.STARTS)), BaseEstimator],
    "budget": [
        StrOptions({"small", "default", "large"}),
        Interval(Real, 0, None, closed="neither"),
    ],
    "max_iter": [Interval(Integral, 1, None, closed="left"), None],
    "max_time": [Interval(Real, 0, None, closed="neither"), None],
    "batch_size": [Interval(Integral, 1, None, closed="left"), None],
    "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
    "n_predict_draws": [Interval(Integral, 1, None, closed="left")],
    "early_stopping": ["boolean"],
    "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
    "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "warm_start": ["boolean"],
    "standardize": ["boolean", StrOptions({"auto", "warp"}), Scaling],
    "checkpoint": [str, os.PathLike, Checkpoint, None],
    "device": [str],
    "dtype": [StrOptions(set(DTYPES))],
    "n_jobs": [Integral, None],
    "n_threads": [Interval(Integral, 1, None, closed="left"), None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}

#: arguments that not every scheme understands, and that are left at their defaults then
_MAY_MEAN_NOTHING = (
    "width n_inducing init mean input_connected learning_rate batch_size dtype".split()
)


def with_objects(estimator, params):
    """Parameters with objects in the place of names whose own parameters are among them."""
    found = dict(params)
    makers = {
        "inference": as_scheme,
        "kernel": as_kernel,
        "likelihood": lambda name: as_likelihood(name, estimator._likelihoods),
    }
    for name, make in makers.items():
        if any(isinstance(key, str) and key.startswith(f"{name}__") for key in params):
            given = value = params.get(name, getattr(estimator, name))
            if not isinstance(value, (str, list, tuple)):
                continue
            inference = params.get("inference", estimator.inference)
            if value == "auto" and name == "kernel" and inference != "auto":
                value = as_scheme(inference).auto_kernel
            if not isinstance(value, str) or value == "auto":
                raise ValueError(
                    f"Parameters of the {name} cannot be set while it is {given!r}; name it first."
                )
            found[name] = make(value)
    return found


def settable(estimator, scheme):
    """Names of the parameters that mean something to a scheme."""
    names = estimator.get_params(deep=False)
    return {name for name in names if name in scheme.uses or name not in _MAY_MEAN_NOTHING}


def check_all_used(estimator, scheme, defaults):
    """Raise ValueError if a parameter is set that means nothing to the scheme; `defaults` are attributes."""
    single = estimator.inference != "auto" or estimator.init not in initialization.METHODS
    if single and estimator.budget != defaults.budget:
        raise ValueError(
            "budget chooses among the members of inference='auto', and means nothing to a single model; leave "
            f"it at {defaults.budget!r}, and set max_iter."
        )
    for name in _MAY_MEAN_NOTHING:
        default = getattr(defaults, name)
        if name not in scheme.uses and getattr(estimator, name) != default:
            raise ValueError(
                f"{name} means nothing to {type(scheme).__name__}; leave it at {default!r}."
            )
