"""Predictions are differentiable in the rows, for every scheme."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import Vecchia
from skdgp.predictive.mixture import Mixture

SHALLOW = {"exact", "vecchia", "vfe", "pep"}
SCHEMES = [
    *("auto", "dsvi", "structured", "aep", "rff", "sghmc", "ess", "nngp", "diwp", "global"),
    *("collapsed", "exact", "vecchia", "vfe", "pep"),
]


def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    y = np.sin(6.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(60)
    return X, y, torch.tensor(rng.uniform(-1.0, 1.0, (4, 2)))


def check(function, Z):
    """Gradients of all columns of a function of rows, against central differences."""
    Z = Z.clone().requires_grad_(True)
    values, step = function(Z), 1e-5
    for j in range(values.shape[1]):
        (found,) = torch.autograd.grad(values[:, j].sum(), Z, retain_graph=True)
        with torch.no_grad():
            for d in range(Z.shape[1]):
                e = step * torch.eye(Z.shape[1])[d].double()
                difference = (function(Z + e) - function(Z - e))[:, j] / (2.0 * step)
                assert_allclose(found[:, d], difference, atol=1e-6 * (1.0 + difference.abs().max()))


def moments(members):
    def function(Z):
        return torch.cat(Mixture(members, Z, "cpu").moments(), 1)

    return function


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_moments(scheme):
    X, y, Z = rows()
    n_layers = 1 if scheme in SHALLOW else 2
    model = DeepGPRegressor(n_layers, inference=scheme, max_iter=15, random_state=0).fit(X, y)
    check(moments(model.members_), Z)


def test_moments_of_the_full_scale_approximation():
    X, y, Z = rows()
    scheme = Vecchia(n_neighbors=8, start="subset", full_scale=10)
    model = DeepGPRegressor(1, inference=scheme, max_iter=15, random_state=0).fit(X, y)
    check(moments(model.members_), Z)


def test_means_alone():
    X, y, Z = rows()
    model = DeepGPRegressor(1, inference="exact", max_iter=15, random_state=0).fit(X, y)
    check(lambda Z: Mixture(model.members_, Z, "cpu").mean(), Z)


@pytest.mark.parametrize("scheme", ["auto", "vecchia", "dsvi"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_class_probabilities(scheme, n_classes):
    X, y, Z = rows()
    n_layers = 1 if scheme in SHALLOW else 2
    model = DeepGPClassifier(n_layers, inference=scheme, max_iter=15, random_state=0)
    model.fit(X, (y > 1.0).astype(int) + (y > 0.2) * (n_classes == 3))

    def log_probabilities(Z):
        return Mixture(model.members_, Z, "cpu").log_probabilities()

    check(log_probabilities, Z)
    values = log_probabilities(Z.clone().requires_grad_(True)).detach()
    assert_allclose(values, log_probabilities(Z), atol=1e-7)
