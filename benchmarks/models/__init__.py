"""The models that are compared: ours, and our peers with the settings that do them justice.

Each is a function ``fit(X, y, seed, max_iter)``, on raw data, that returns a function
``score(X, y)``; `max_iter` is None for the model's own number of steps or trees. Peers are imported
when they are needed.
"""

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from .. import data


class Model(NamedTuple):
    """Where a model is, and what it needs."""

    module: str  #: of this package
    settings: dict  #: further arguments of its ``fit``
    package: str = None  #: beside those that skdgp needs
    distribution: bool = True  #: whether it predicts more than a mean
    most_rows: int = None


RANDOM_FEATURES = {
    "inference": "rff",
    "inference__frequencies": "variational",
    "dtype": "float32",
}

MODELS = {
    "skdgp": Model("ours", {}),
    "single": Model("ours", {"inference": "dsvi"}),
    "rff": Model("ours", {**RANDOM_FEATURES, "n_steps": 6000}),
    "gpytorch": Model("gpytorch_deep", {}, "gpytorch"),
    "gpytorch-documented": Model("gpytorch_deep", {"documented": True}, "gpytorch"),
    "svgp-100": Model("gpytorch_sparse", {"n_inducing": 100}, "gpytorch"),
    "svgp-500": Model("gpytorch_sparse", {"n_inducing": 500}, "gpytorch"),
    "exact": Model("exact", {}, most_rows=1500),
    "ngboost": Model("trees", {"kind": "ngboost"}, "ngboost"),
    "catboost": Model("trees", {"kind": "catboost"}, "catboost"),
    "hgb": Model("trees", {"kind": "hgb"}, distribution=False),
}


def require(names):
    """Exit with one sentence if a package is missing."""
    packages = {MODELS[name].package for name in names} - {None}
    missing = sorted(package for package in packages if find_spec(package) is None)
    if missing:
        raise SystemExit(
            f"Not installed: {', '.join(missing)}; pip install -e '.[bench]' installs all peers, and --models "
            "leaves some out."
        )


def packages(names):
    """The peers' packages behind some models."""
    return sorted({MODELS[name].package for name in names} - {None})


def suits(name, set_name, n_rows):
    """Whether a model can be asked for this set.

    The exact GP is left out where there are many rows, and where repeated rows let its noise
    collapse.
    """
    most = MODELS[name].most_rows
    return most is None or (n_rows <= most and set_name not in data.REPEATED)


def fit_function(name):
    """The function that fits a model."""
    module = import_module(f"{__name__}.{MODELS[name].module}")
    return partial(module.fit, **MODELS[name].settings)
