"""Covariances of the ANOVA kernel between many rows, where no gradient is asked for."""

import numpy as np
import pytest
import torch

from skdgp.gp import factor_products
from skdgp.gp.kernels import Anova
from skdgp.gp.kernels.anova import _MANY_ROWS
from skdgp.gp.kernels.base import stacked


def rows(n, d, seed):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=(n, d)))


def frozen(kernel):
    """A kernel whose hyperparameters are tensors."""
    values = {name: torch.as_tensor(getattr(kernel, name)).double() for name in kernel._positive}
    return kernel.with_values(**values)


def by_definition(X, Z, lengthscale, strength, variance):
    K = np.full((len(X), len(Z)), variance)
    for x, z, l, a in zip(X.T, Z.T, lengthscale, strength):
        s = np.sqrt(3.0) * np.abs(x[:, None] - z) / l
        K *= (1.0 + a * (1.0 + s) * np.exp(-s)) / (1.0 + a)
    return K


@pytest.mark.parametrize("n", [_MANY_ROWS - 1, _MANY_ROWS, 70])
@pytest.mark.parametrize("at_once", [100, 65_536])
@pytest.mark.parametrize("far", [0.0, 1e3])
def test_values_are_those_of_the_definition(n, at_once, far, monkeypatch):
    """The lengthscales lead to exponentials near one, large ones, and such as overflow; so do far rows."""
    monkeypatch.setattr(factor_products, "_AT_ONCE", at_once)
    lengthscale, strength = np.array([300.0, 0.9, 0.2, 1e-3]), np.array([21.0, 1e-3, 1.0, 0.5])
    X, Z = rows(n, 4, 0), rows(40, 4, 1)
    Z[0], X[1] = X[0], X[1] + far
    kernel = frozen(Anova(lengthscale=lengthscale, strength=strength, variance=700.0))
    expected = by_definition(X.numpy(), Z.numpy(), lengthscale, strength, 700.0)
    with torch.no_grad():
        for A, B, K in ((X, Z, expected), (Z, X, expected.T)):
            np.testing.assert_allclose(kernel.between(A, B), K, rtol=1e-13)


def test_states_have_their_own_hyperparameters():
    X, Z = rows(30, 3, 0), rows(20, 3, 1)
    kernels = [frozen(Anova(lengthscale=np.full(3, l), strength=np.ones(3))) for l in (0.5, 2.0)]
    with torch.no_grad():
        K = stacked(kernels).between(torch.stack([X, X]), Z[None])
    for K_j, l in zip(K, (0.5, 2.0)):
        expected = by_definition(X.numpy(), Z.numpy(), [l] * 3, [1.0] * 3, 1.0)
        np.testing.assert_allclose(K_j, expected, rtol=1e-13)


def test_gradients_are_there_where_they_are_asked_for():
    X = rows(20, 2, 0).requires_grad_()
    K = frozen(Anova(lengthscale=np.ones(2), strength=np.ones(2))).between(X, rows(30, 2, 1))
    (gradient,) = torch.autograd.grad(K.sum(), X)
    step = 1e-6 * torch.ones_like(X)
    with torch.no_grad():
        kernel = frozen(Anova(lengthscale=np.ones(2), strength=np.ones(2)))
        ends = [kernel.between(X + sign * step, rows(30, 2, 1)).sum() for sign in (1.0, -1.0)]
    np.testing.assert_allclose(gradient.sum() * 2e-6, ends[0] - ends[1], rtol=1e-6)
