"""Elliptical slices with neighbors: limits in which they are exact, brute force, and their bounds."""

import numpy as np
import pytest
import torch
from test_slice_posteriors import make
from toys import latents, run

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import Matern, SquaredExponential
from skdgp.inference.elliptical_slice import EllipticalSlice
from skdgp.inference.elliptical_slice.factors import ConditioningSets, maximin_order
from skdgp.random import normal


def factor(kernel, points, n_neighbors, noise=0.0):
    X = torch.as_tensor(points)
    noise = torch.as_tensor(noise).double() * torch.ones(1, 1, len(X)).double()
    return ConditioningSets(points, n_neighbors, X).of(kernel, X[None], noise)[:, 0]


def test_conditionals_by_brute_force():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((30, 2))
    points = points[maximin_order(points)]
    noise = rng.uniform(0.05, 0.2, 30)
    K = SquaredExponential(torch.ones(2).double())(
        *[torch.as_tensor(points)] * 2
    ).numpy() + np.diag(noise)
    inverse = np.zeros((30, 30))
    for i in range(30):
        near = np.argsort(np.linalg.norm(points[:i] - points[i], axis=1))[:4]
        b = np.linalg.solve(K[np.ix_(near, near)], K[near, i])
        sd = np.sqrt(K[i, i] - b @ K[near, i])
        inverse[i, near], inverse[i, i] = -b / sd, 1.0 / sd
    root = factor(SquaredExponential(torch.ones(2).double()), points, 4, noise)
    eye = torch.eye(30).double()[None]
    np.testing.assert_allclose(root.whiten(eye)[0], inverse, atol=1e-10)
    np.testing.assert_allclose(root.product(eye)[0], np.linalg.inv(inverse), atol=1e-10)
    assert float(root.log_det()) == pytest.approx(-np.linalg.slogdet(inverse)[1], abs=1e-10)
    n_levels = len(root.sets.levels)
    assert n_levels < 20  # in the order of a line it would be 29


@pytest.mark.parametrize("kind", ["all rows before", "a Markov process"])
def test_covariances_of_draws_are_exact(kind):
    if kind == "all rows before":
        kernel, n_inputs, n_neighbors = SquaredExponential(torch.ones(3).double()), 3, 39
    else:  # given the next rows on both sides, all others tell nothing
        kernel, n_inputs, n_neighbors = Matern(0.5, torch.ones(1).double()), 1, 10
    points = np.random.default_rng(2).uniform(0.0, 5.0, (40, n_inputs))
    points = points[maximin_order(points)]
    root, X = factor(kernel, points, n_neighbors, 1e-12), torch.as_tensor(points)
    L = root.product(torch.eye(40).double()[None])[0]
    np.testing.assert_allclose(L @ L.T, kernel(X, X), atol=1e-10)


@pytest.mark.parametrize("shape", ["two layers", "connected", "one layer"])
def test_model_with_all_neighbors_is_exact(shape):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((9, 2)), rng.standard_normal((9, 2))
    X = X[maximin_order(X)]  # an order that stays
    widths = {"two layers": (2,), "connected": (1, 2), "one layer": ()}[shape]
    settings = {"widths": widths, "connected": shape == "connected", "n_chains": 3, "n_samples": 3}
    settings["hyperparameters"] = "sample"
    near, batch = make(X, y, n_neighbors=9, **settings)
    exact, _ = make(X, y, **settings)
    batch = batch._replace(weight=torch.as_tensor(rng.integers(1, 3, 9)).double())
    near.hold(batch)
    exact.hold(batch)
    np.testing.assert_array_equal(near.rows[0], X)
    v, phi = exact._prior(3, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(near.evaluate(v, phi), exact.evaluate(v, phi), atol=1e-8)
    if shape == "connected":
        kernels = exact.logarithms.components(phi)[0]
        F = exact.propagate(v, kernels)
        values = [model._log_density(F[0], F[1], kernels, 1) for model in (near, exact)]
        np.testing.assert_allclose(*values, atol=1e-8)
    Xs = torch.as_tensor(rng.standard_normal((4, 2)))
    found = []
    for model in (near, exact):
        model.chains = {"v": v[:, None], "phi": phi[:, None]}
        posterior = model.posterior(model.draws(1, 0))
        posterior.n_features = 50
        found.append([*posterior.latent(Xs)[1:], *posterior.functions(4, torch.Generator())(Xs)])
    for a, b in zip(*found):  # but for a nugget of 1e-10, beside 1e-6
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_more_neighbors_are_nearer():
    # log-likelihoods of what the exact model draws
    X = np.random.default_rng(4).uniform(-2.0, 2.0, (120, 2))
    X = X[maximin_order(X)]
    settings = {"widths": (2,), "n_chains": 6}
    exact, batch = make(X, np.zeros((120, 1)), **settings)
    exact.hold(batch)
    generator = torch.Generator().manual_seed(0)
    v, phi = exact._prior(6, generator)
    kernels, likelihood = exact.logarithms.components(phi)
    (F,) = exact.propagate(v, kernels)
    root, errors = exact.observed_root(F, kernels[-1], likelihood)[:, 0], []
    y = root.product(normal((6, 120, 1), generator, v))

    def log_density(root):
        return -0.5 * root.whiten(y).square().sum((1, 2)) - root.log_det()

    for n_neighbors in (5, 20, 60, 100):
        model, _ = make(X, np.zeros((120, 1)), n_neighbors=n_neighbors, **settings)
        model.hold(batch)
        near = model.observed_root(F, kernels[-1], likelihood)[:, 0]
        errors.append(float((log_density(near) - log_density(root)).abs().mean()))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.5 < 5.0 < errors[0]


def test_rows_in_the_fit():
    rng = np.random.default_rng(5)
    X = rng.uniform(-2.0, 2.0, (600, 1))
    y = np.sin(3.0 * X[:, 0])
    scheme = EllipticalSlice(1, "fixed", 1, 4, n_neighbors=6)
    model = DeepGPRegressor(inference=scheme, likelihood="gaussian", max_iter=8, random_state=0)
    model.fit(X, y)
    assert model.score(X, y) > 0.9


def test_bounds():
    for n_rows, n_neighbors, what in (
        (501, None, "or n_neighbors=25"),
        (5001, 2, "at most 5000"),
    ):
        model, batch = make(np.zeros((n_rows, 1)), np.zeros((n_rows, 1)), n_neighbors=n_neighbors)
        with pytest.raises(ValueError, match=what):
            model.hold(batch)
    # one row, and rows that are the same
    for n in (1, 5):
        model, batch = make(np.zeros((n, 1)), np.ones((n, 1)), n_neighbors=3, n_samples=4)
        run(model, batch, 3)
        assert latents(model, batch.X)[0].isfinite().all()
