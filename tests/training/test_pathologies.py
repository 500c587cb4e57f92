"""The reference against brute force; every figure against a layer that was made so."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.gaussian_process.kernels import Matern

from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import DSVI
from skdgp.inference.base import Architecture
from skdgp.inference.posterior import Posterior
from skdgp.training import init
from skdgp.training.pathologies import findings, noise_finding, too_few_finding
from skdgp.training.reference import Reference


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.7, 1.7, (60, 2))
    y = np.column_stack([np.sin(3 * X[:, 0]) + 0.3 * rng.standard_normal(60), 5 + X[:, 1] ** 2])
    return X, y


# The reference


def test_leave_one_out_by_brute_force(rows):
    X, y = rows
    reference = Reference(X, y)
    K = Matern(reference.lengthscale * np.sqrt(2.0), nu=1.5)(X)
    A = K + reference.noise * np.eye(60)
    t = (y - y.mean(0)) / y.std(0)
    means, variances = np.empty_like(y), np.empty(60)
    for i in range(60):
        others = np.delete(np.arange(60), i)
        weights = np.linalg.solve(A[np.ix_(others, others)], K[others, i])
        means[i] = weights @ t[others]
        variances[i] = 1.0 + reference.noise - weights @ K[others, i]
    assert_allclose(reference.mean, means * y.std(0) + y.mean(0), rtol=1e-8)
    assert_allclose(reference.mse, np.mean((t - means) ** 2), rtol=1e-8)
    scale = np.mean((t - means) ** 2 / variances[:, None], 0)
    var = np.maximum(scale * variances[:, None], 0.05)
    logs = -0.5 * ((t - means) ** 2 / var + np.log(2 * np.pi * var)) - np.log(y.std(0))
    assert_allclose(reference.log_density, logs.sum(1), rtol=1e-8)
    smoother = np.linalg.solve(K + max(reference.noise, 0.01) * np.eye(60), K)
    assert_allclose(reference.n_effective, np.trace(smoother), rtol=1e-8)


def test_reference_chooses_lengthscale_and_noise():
    x = np.linspace(-1.7, 1.7, 200)[:, None]
    rng = np.random.default_rng(0)
    y = np.sin(30 * x)
    fast, slow = Reference(x, y), Reference(x, np.sin(x))
    assert fast.lengthscale < slow.lengthscale
    assert fast.n_effective > 25 > slow.n_effective
    noise = Reference(x, rng.standard_normal((200, 1)))
    assert noise.noise >= 1.0
    assert 0.9 < noise.mse < 1.2
    assert_allclose(fast.constant, norm.logpdf(y[:, 0], y.mean(), y.std()))


# Figures


def build(widths=(2,), linear=True, connected=False, n_inducing=15):
    inputs = [2] + [w + 2 * connected for w in widths]
    kernels = [as_kernel("squared_exponential").bind(n) for n in inputs]
    shape = Architecture(2, widths, 1, n_inducing, kernels, linear, connected)
    likelihood = Gaussian(variance=0.05).bind(np.ones((3, 1)), np.ones(3), np.ones(1))
    return DSVI(inner_noise=0.0).build(shape, likelihood)


def started(rows, **shape):
    model = build(**shape)
    init.start(model, rows[0], np.ones(60), "kmeans", np.random.RandomState(0))
    return model


@pytest.fixture
def healthy(rows):
    return started(rows)


def figures(model, X):
    """Values and whether they are suspicious, by pathology and layer."""
    found = findings(model.posterior(model.draws(8, 0)), torch.tensor(X))
    return {(one.name, one.layer): (one.value, one.flagged) for one in found}


def flagged(model, X):
    return {name for name, (_, suspicious) in figures(model, X).items() if suspicious}


def test_nothing_is_wrong_at_the_start(healthy, rows):
    assert flagged(healthy, rows[0]) == set()
    assert figures(healthy, rows[0])[("collapsed layer", 1)][0] < 1e-9  # it is the identity
    assert len({name for name, _ in figures(healthy, rows[0])}) == 5  # those below


@torch.no_grad()
def test_clumped(healthy, rows):
    layer = healthy.layers[0]
    layer.kernel.assign(lengthscale=0.3)
    layer.Z[:5] = layer.Z[0] + 1e-3 * torch.arange(5)[:, None]
    value, suspicious = figures(healthy, rows[0])[("clumped inducing inputs", 1)]
    assert_allclose(value, 5 / 15)
    assert suspicious
    layer.kernel.assign(lengthscale=100.0)  # all are near duplicates, and nothing is lost
    value, suspicious = figures(healthy, rows[0])[("clumped inducing inputs", 1)]
    assert not suspicious and value < 1e-3


@torch.no_grad()
def test_away(healthy, rows):
    healthy.layers[1].Z[3:8] += 100.0
    value, suspicious = figures(healthy, rows[0])[("inducing inputs away from the data", 2)]
    assert_allclose(value, 5 / 15)
    assert suspicious
    assert figures(healthy, rows[0])[("inducing inputs away from the data", 1)] == (0.0, False)


@torch.no_grad()
def test_inflated(healthy, rows):
    """With the prior's covariance, a unit's share of noise is 1 / (1 + signal)."""
    layer, X = healthy.layers[0], torch.tensor(rows[0])
    layer.q.root.copy_(torch.eye(15))
    K = layer.kernel()(layer.Z, layer.Z) + layer.jitter * torch.eye(15)
    k = layer.kernel()(layer.Z, X)
    noise = torch.einsum("mn,mn->n", k, torch.linalg.solve(K, k)).mean()
    signal = X.var(0)
    shares = noise / (noise + signal)
    value, _ = figures(healthy, rows[0])[("inflated posterior variance", 1)]
    assert float(shares.min()) <= value <= float(shares.max())
    assert ("inflated posterior variance", 1) not in flagged(healthy, rows[0])
    layer.q.root.mul_(3.0)
    assert ("inflated posterior variance", 1) in flagged(healthy, rows[0])


@torch.no_grad()
def test_dead(healthy, rows):
    first, last = healthy.layers
    last.kernel.assign(lengthscale=[1.0, 1000.0])
    assert_allclose(figures(healthy, rows[0])[("dead hidden units", 1)][0], 0.5)
    last.kernel.assign(lengthscale=1000.0)
    assert ("dead hidden units", 1) in flagged(healthy, rows[0])
    last.kernel.assign(lengthscale=1.0)
    first.W.zero_()  # nothing but noise is handed on
    first.q.root.copy_(torch.eye(15))
    assert ("dead hidden units", 1) in flagged(healthy, rows[0])


@torch.no_grad()
def test_collapsed(healthy, rows):
    healthy.layers[0].W.copy_(torch.tensor([[1.0, 1.0], [1.0, 1.001]]))
    value, suspicious = figures(healthy, rows[0])[("collapsed layer", 1)]
    assert suspicious and value > 0.99
    for connected, expected in ((False, (1.0, True)), (True, (0.0, False))):
        narrow = started(rows, widths=(1,), connected=connected)
        assert figures(narrow, rows[0])[("collapsed layer", 1)] == expected
    line = figures(build(widths=(1,)), np.repeat(rows[0][:, :1], 2, axis=1))
    assert all(name != "collapsed layer" or layer for name, layer in line)


def test_noise_and_inducing_points_against_the_reference(rows):
    reference = Reference(*rows)
    assert not noise_finding(1.2 * reference.mse, reference).flagged
    assert noise_finding(0.05 + 2.0 * reference.mse, reference).flagged
    assert noise_finding(0.04, reference).value == 0.0
    few = too_few_finding(3, reference)
    assert_allclose(few.value, reference.n_effective / 3)
    assert few.flagged == (reference.n_effective > 3)
    assert str(int(2 * np.ceil(reference.n_effective))) in few.advice


def test_models_without_inducing_inputs_are_left_alone():
    assert findings(Posterior(Gaussian()), torch.zeros(3, 1)) == []
