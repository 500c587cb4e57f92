"""Devices and dtypes that the user has made torch's defaults change nothing."""

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier
from skdgp.inspection import diagnose
from skdgp.model_selection import freeze_hyperparameters

FEW = {"max_iter": 2, "random_state": 0}
DEEP = "dsvi", "structured", "aep", "rff", "diwp", "nngp", "global", "collapsed", "sghmc", "ess"
CASES = {
    **{name: DeepGPRegressor(inference=name, **FEW) for name in DEEP},
    **{
        name: DeepGPRegressor(1, inference=name, **FEW)
        for name in ("exact", "vecchia", "vfe", "pep")
    },
    "greedy": DeepGPRegressor(inference="dsvi", init="greedy", **FEW),
    "classes": DeepGPClassifier(1, inference="vecchia", **FEW),
    "sparse classes": SparseGPClassifier(**FEW),
}


class Defaults:
    """A context of defaults: of the meta device, in one of two ways, or of a dtype."""

    def __init__(self, kind):
        self.kind = kind

    def __enter__(self):
        if self.kind == "device":
            torch.set_default_device("meta")
        else:
            torch.set_default_dtype(getattr(torch, self.kind))

    def __exit__(self, *args):
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


FEW_CASES = "dsvi", "exact", "classes"
WAYS = [
    *((name, torch.device("meta")) for name in CASES),
    *((name, Defaults(kind)) for name in FEW_CASES for kind in ("device", "float64", "bfloat16")),
]


def use(model, X, y):
    """Numbers of all kinds that a model gives."""
    found = [
        np.ravel(kernel.variance)
        for kernel in model.members_[0].kernels_
        if hasattr(kernel, "variance")
    ]
    if hasattr(model, "predict_proba"):
        return [*found, model.predict_proba(X), model.predict_proba(X, return_std=True)[1]]
    dist = model.predict_dist(X)
    return [
        *found,
        *model.predict(X, return_std=True),
        model.predict(X[:5], return_cov=True)[1],
        model.predict_quantiles(X),
        model.sample_y(X, 2, latent=True),
        model.log_predictive_density(X, y),
        dist.crps(y),
        np.array(str(diagnose(model, X, y))),
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "defaults"), WAYS)
def test_defaults_change_nothing(name, defaults):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(30, 2))
    X[::5, 0] = np.nan
    y = np.sin(6.0 * X[:, 1])
    model = CASES[name]
    y = y > 0.0 if hasattr(model, "predict_proba") else y
    expected = use(pickle.loads(pickle.dumps(model)).fit(X, y), X, y)
    with defaults:
        before = torch.empty(0).device, torch.get_default_dtype()
        fitted = pickle.loads(pickle.dumps(model)).fit(X, y)
        for one in (fitted, pickle.loads(pickle.dumps(fitted))):
            for part, same in zip(use(one, X, y), expected, strict=True):
                assert_array_equal(part, same)
        if name in ("dsvi", "exact"):
            DeepGPRegressor(**freeze_hyperparameters(fitted), **FEW).fit(X, y)
        assert (torch.empty(0).device, torch.get_default_dtype()) == before
