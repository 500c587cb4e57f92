"""Nearest neighbors whose kernel comes from an exact process on some rows, and the full-scale approximation."""

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from oracles import condition, leave_one_out
from scipy.stats import multivariate_normal, norm
from toys import architecture, check_resumed, everything, latents, posterior

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import RationalQuadratic
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import Vecchia
from skdgp.inference.exact import ExactGP
from skdgp.inference.rows import full_scale

N, M = 40, 12


def rows(n, n_columns=2, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, n_columns))
    return X, np.sin(X.sum(1)) + noise * rng.standard_normal(n)


def build(n_neighbors):
    likelihood = Gaussian(0.3).bind(np.zeros((2, 1)), np.ones(2), np.ones(1))
    shape = architecture(kernel="rational_quadratic")
    return Vecchia(n_neighbors, "subset", M).build(shape, likelihood)


def trained(n_neighbors, weight=None):
    """A model that holds all rows, its kernel, and its noise."""
    model, batch = build(n_neighbors), everything(*rows(N), weight)
    model.hold(batch)
    model._begin(batch)
    kernel = model.rows.kernel.fitted()
    noise = float(np.squeeze(model.likelihood.fitted().variance))
    return model, lambda A, B: kernel(torch.as_tensor(A), torch.as_tensor(B)).numpy(), noise


@pytest.mark.parametrize("weighted", [False, True])
def test_all_neighbors_are_exact(weighted):
    weight = np.linspace(0.5, 3.0, N) if weighted else np.ones(N)
    (model, k, noise), x = trained(N, weight), rows(15, seed=1)[0]
    mean, var = latents(model, torch.as_tensor(x))
    expected, covariance = condition(k, *rows(N), x, noise / weight)
    assert_allclose(mean[0, :, 0], expected, atol=1e-7)
    assert_allclose(var[0, :, 0], np.diag(covariance), atol=1e-7)
    assert_allclose(posterior(model).covariance(torch.as_tensor(x))[0], covariance, atol=1e-7)


def test_leave_one_out_is_exact():
    model, k, noise = trained(N)
    X, y = rows(N)
    mean, var = leave_one_out(k(X, X) + noise * np.eye(N), y)
    found = posterior(model).loo_log_density(np.arange(N))
    assert_allclose(found, norm.logpdf(y, mean, np.sqrt(var)), atol=1e-6)


def test_functions_have_the_moments_of_the_posterior():
    """Within five standard errors of 1,000 draws, and 20 % for variances by random features."""
    (model, k, noise), x = trained(N), rows(4, seed=1)[0]
    functions = posterior(model).functions(1000, torch.Generator().manual_seed(0))
    mean, deviation = functions.evaluate(torch.as_tensor(x))
    draws = (mean + deviation)[..., 0].numpy()
    expected, covariance = condition(k, *rows(N), x, noise)
    assert_allclose(mean[0, :, 0], expected, atol=1e-7)
    error = 5.0 * np.sqrt(np.diag(covariance) / 1000)
    assert (np.abs(draws.mean(0) - expected) < error).all()
    assert_allclose(draws.var(0), np.diag(covariance), rtol=0.2)


def test_inducing_variables_are_conditioned_on_the_approximate_likelihood():
    """By dense matrices, for six neighbors among those before each row."""
    model, k, noise = trained(6)
    Z, metric = model.inducing.numpy(), model.metric.numpy()
    order = np.random.default_rng(0).permutation(N)
    X, y = model.rows.Z.numpy()[order], model.rows.y.numpy()[order, 0]
    K_zz = k(Z, Z)
    K_zz += 1e-6 * np.diag(K_zz).mean() * np.eye(M)
    F = np.linalg.solve(np.linalg.cholesky(K_zz), k(Z, X)).T
    residual = k(X, X) - F @ F.T + noise * np.eye(N)
    before = full_scale._predecessors(torch.as_tensor(X), metric, 6)
    B, D = np.eye(N), np.empty(N)
    for i in range(N):
        near_rows = before[i][before[i] >= 0]
        assert (near_rows < i).all() and len(near_rows) == min(i, 6)
        A = np.linalg.solve(residual[np.ix_(near_rows, near_rows)], residual[near_rows, i])
        B[i, near_rows], D[i] = -A, residual[i, i] - A @ residual[near_rows, i]
    S = B.T @ np.diag(1.0 / D) @ B
    covariance = np.linalg.inv(np.eye(M) + F.T @ S @ F)
    assert_allclose(model.mean, covariance @ F.T @ S @ y, atol=1e-7)
    assert_allclose(model.root @ model.root.T, covariance, atol=1e-7)


def test_rows_beyond_the_first_look_among_those_before(monkeypatch):
    monkeypatch.setattr(full_scale, "_FIRST", 10)
    X = torch.as_tensor(rows(N)[0])
    before = full_scale._predecessors(X, np.ones(2), 4)
    assert (before < np.arange(N)[:, None]).all()
    assert (np.sort(before[10:], 1) >= 0).all()
    assert all(len(set(found)) == 4 for found in before[10:].tolist())


def test_inducing_points_close_the_gap_to_the_exact_process():
    (model, k, noise), x = trained(3), rows(15, seed=1)[0]
    expected, errors = condition(k, *rows(N), x, noise)[0], []
    for n in (M, 0):
        model.induce(n)
        mean, _ = latents(model, torch.as_tensor(x))
        errors.append(np.square(mean[0, :, 0].numpy() - expected).mean())
    assert errors[0] < 0.1 * errors[1]


def test_training_goes_on_where_it_stopped():
    check_resumed(lambda: build(6), everything(*rows(N)), 6, [3])


def smooth(n=700, noise=0.05):
    X, y = rows(n, 5, noise)
    return X, y


def test_the_choice_takes_inducing_points_where_functions_are_smooth(monkeypatch):
    from skdgp.inference.vecchia import choice, neighbors

    for module in (choice, neighbors):
        monkeypatch.setattr(module, "NEIGHBORS", (4, 8))
    scheme = Vecchia(None, start="subset", full_scale=None)
    made = {"n_layers": 1, "inference": scheme, "max_iter": 2, "random_state": 0}
    X, y = smooth()
    model = DeepGPRegressor(**made).fit(X, y)
    arrays = model.members_[0].arrays
    assert int(arrays["k"]) == 4 and len(arrays["inducing"]) == 70
    x, t = rows(300, 5, 0.05, seed=1)
    density = model.log_predictive_density(x, t).mean()
    plain = DeepGPRegressor(**made).set_params(inference=Vecchia(8, start="subset")).fit(X, y)
    assert density > plain.log_predictive_density(x, t).mean()
    copy = pickle.loads(pickle.dumps(model))
    assert_allclose(copy.predict(x), model.predict(x), rtol=1e-12)
    noisy = DeepGPRegressor(**made).fit(*smooth(noise=3.0))
    assert len(noisy.members_[0].arrays["inducing"]) == 0


def test_new_rows_have_inducing_variables_of_their_own():
    X, y = rows(60)
    made = DeepGPRegressor(
        1, inference=Vecchia(6, "subset", M), max_iter=2, warm_start=True, random_state=0
    )
    made.fit(X, y)
    before = made.members_[0].arrays["mean"]
    made.fit(X, y + X[:, 0])
    assert np.abs(made.members_[0].arrays["mean"] - before).max() > 0.1
    assert made.score(X, y + X[:, 0]) > 0.9


def test_rows_do_not_depend_on_others():
    X, y = smooth(300)
    model = DeepGPRegressor(1, inference=Vecchia(8, "subset", 20), max_iter=3, random_state=0)
    model.fit(X, y)
    x = rows(50, 5, seed=2)[0]
    assert_allclose(model.predict(x)[7:9], model.predict(x[7:9]), rtol=1e-10)


def test_inducing_variables_given_all_rows():
    """With all rows before each one as neighbors, they have the moments of an exact process."""
    model, k, noise = trained(N)
    mean, covariance = condition(k, *rows(N), model.inducing.numpy(), noise)
    L = model._smooth.L.numpy()
    assert_allclose(L @ model.mean.numpy(), mean, atol=1e-4)
    root = L @ model.root.numpy()
    assert_allclose(root @ root.T, covariance, atol=1e-4)


# The kernel of some rows


def near(n_neighbors=8, **settings):
    scheme = Vecchia(n_neighbors, start="subset")
    return DeepGPRegressor(n_layers=1, inference=scheme, random_state=0, **settings)


def test_kernel_and_noise_maximize_the_marginal_likelihood():
    X, y = rows(80)
    likelihood = Gaussian(0.3).bind(np.zeros((2, 1)), np.ones(2), np.ones(1))
    model = Vecchia(8, start="subset")
    model = model.build(architecture(kernel="rational_quadratic"), likelihood)
    model.expected_log_likelihood(everything(X, y), torch.Generator().manual_seed(0))

    @torch.no_grad()
    def evidence(factors):
        kernel, noise = model.rows.kernel.fitted(), model.likelihood.fitted().variance
        lengthscale = np.broadcast_to(kernel.lengthscale, 2) * factors[:2]
        other = RationalQuadratic(kernel.alpha, lengthscale, kernel.variance * factors[2]).bind(2)
        K = other(torch.tensor(X), torch.tensor(X)).numpy()
        noise = float(np.squeeze(noise)) * factors[3]
        return multivariate_normal.logpdf(y, np.zeros(80), K + noise * np.eye(80))

    best = evidence(np.ones(4))
    for i in range(4):  # weak priors move the best by less than these
        for factor in (0.5, 2.0):
            assert evidence(np.where(np.arange(4) == i, factor, 1.0)) < best


def test_steps_leave_lengthscales_alone():
    X, y = rows(150)
    few, more = (near(max_iter=n).fit(X, y) for n in (1, 8))
    (a,), (b,) = few.kernels_, more.kernels_
    assert_array_equal(a.lengthscale, b.lengthscale)
    assert a.variance != b.variance


def test_it_begins_at_the_exact_process():
    """Where that is right, a step does; from the kernel that is given it does not."""
    X, y = rows(600, 5)
    x, t = rows(300, 5, seed=1)
    start = near(32, max_iter=1).fit(X, y)
    given = DeepGPRegressor(n_layers=1, inference=Vecchia(32), max_iter=1, random_state=0)
    errors = [np.square(model.predict(x) - t).mean() for model in (start, given.fit(X, y))]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize(("noise", "expected"), [(0.01, {32, 64}), (3.0, {16})])
def test_number_of_neighbors(noise, expected):
    X, y = rows(400, 4, noise)
    model = near(None, max_iter=2).fit(X, y)
    assert int(model.members_[0].arrays["k"]) in expected
    copy = pickle.loads(pickle.dumps(model))
    assert_allclose(copy.predict(X), model.predict(X), rtol=1e-12)
    assert_allclose(copy.log_predictive_density(X, y), model.log_predictive_density(X, y))


def test_more_rows_than_the_subset(monkeypatch):
    monkeypatch.setattr(ExactGP, "marginal_rows", 100)
    X, y = rows(300)
    assert near(max_iter=3).fit(X[:250], y[:250]).score(X[250:], y[250:]) > 0.95
