"""Exact Gaussian processes with a local scale."""

import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit
from scipy.stats import cauchy, multivariate_normal, norm, t
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from sklearn.gaussian_process.kernels import Matern as SkMatern
from torch.nn.utils import parameters_to_vector
from toys import draw_functions, everything, latents, posterior, rows, seeded

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import Anova, Linear, Matern
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.inference import CollapsedVI, Exact, conditioned, exact, marginal_likelihood
from skdgp.inference.base import Architecture
from skdgp.inference.exact import ExactGP
from skdgp.inference.unique_inputs import gather
from skdgp.optim.lbfgs import LBFGS
from skdgp.training import Checkpoint

pytestmark = pytest.mark.usefixtures("no_global_randomness")

KERNEL = Anova(1.5, [0.6, 1.1], [0.8, 3.0], 1.4)


def repeated(n=30, k=1):
    """Two unique inputs of ten and eleven rows, a pair of copies, and rows that are alone."""
    X, y = rows(n, k)
    X[3:12], X[20:] = X[2], X[19]
    X[13], y[13] = X[12], y[12]
    return X, y


def make(k=1, likelihood=None, n_neighbors=5, kernel=KERNEL):
    """A model with noises .1, .2, ... for the outputs."""
    likelihood = Gaussian() if likelihood is None else likelihood
    likelihood.variance = 0.1 * np.arange(1, k + 1)
    bound = likelihood.bind(np.zeros((2, k)), np.ones(2), np.ones(k))
    shape = Architecture(2, (), likelihood.n_latents(k), 1, [kernel.bind(2)], True, False)
    return Exact(n_neighbors).build(shape, bound)


def solved(X, y, weight=None, **settings):
    """A model with given numbers of kernel and noise, that knows these rows."""
    model, batch = make(y.shape[1], **settings), everything(X, y, weight)
    model.hold(batch)
    model.unsolved = batch
    model._solve()
    return model


def covariance(A, B):
    return KERNEL.bind(2)(torch.as_tensor(A), torch.as_tensor(B)).numpy()


def given(X, y, weight, x, noise):
    """Mean and variance of a function at rows `x`, by conditioning on rows that count."""
    near = weight > 0.0
    X, y, weight = X[near], y[near], weight[near]
    cross = covariance(X, x)
    solution = np.linalg.solve(covariance(X, X) + np.diag(noise / weight), cross)
    var = np.diag(covariance(x, x)) - (solution * cross).sum(0)
    return solution.T @ y, var


def in_place(X, y, weight):
    """Places, their mean targets and weights; of each row its place, and if it holds no other target."""
    Z, place = np.unique(X, axis=0, return_inverse=True)
    total = np.bincount(place, weight)
    mean = np.column_stack([np.bincount(place, weight * c) / total for c in y.T])
    alone = np.array([(y[place == place[i]] == y[i]).all() for i in range(len(X))])
    return Z, mean, total, place, alone


def weights_of(kind, n):
    if kind == "ones":
        return np.ones(n)
    return np.random.default_rng(3).integers(1, 4, n).astype(float)


# Evidence


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("data", [rows, repeated])
@pytest.mark.parametrize("counts", ["ones", "counts"])
def test_evidence_is_the_density_of_all_rows(k, data, counts):
    """Rows that are repeated, and rows that count several times, are so many rows."""
    X, y = data(30, k=k)
    weight = weights_of(counts, 30)
    once = np.repeat(np.arange(30), weight.astype(int))
    K, expected = covariance(X[once], X[once]), 0.0
    for j in range(k):
        normal = multivariate_normal(cov=K + 0.1 * (j + 1) * np.eye(len(once)))
        expected += normal.logpdf(y[once, j])
    model = make(k)
    assert_allclose(model.lower_bound(everything(X, y, weight)), expected, rtol=1e-8)
    assert_allclose(model.log_marginal_likelihood().item(), expected, rtol=1e-8)


def test_numbers_of_kernel_and_noise_have_priors_around_their_start():
    """Of the logarithms, and whatever the weights: normal ones, of columns' numbers for their level.

    Deviations from it have Cauchy distributions.
    """
    X, y = rows()
    moves = {"kernel.log_lengthscale": [0.3, -0.5], "kernel.log_strength": [1.0, -0.2]}
    moves = {**moves, "kernel.log_variance": 0.7, "likelihood.log_variance": 0.4}
    for weight in (np.ones(40), np.full(40, 2.0)):
        model, batch = make(), everything(X, y, weight)
        for name, parameter in model.named_parameters():
            parameter.data += torch.as_tensor(np.array(moves[name.removeprefix("layers.0.")]))
        squares = 0.1**2 + 0.4**2 + 0.7**2 + 0.4**2
        deviations = [0.4, -0.4, 0.6, -0.6]
        of_columns = (cauchy.logpdf(deviations, scale=0.5) - cauchy.logpdf(0.0, scale=0.5)).sum()
        difference = model.lower_bound(batch) - model.log_marginal_likelihood().item()
        assert_allclose(difference, of_columns - 0.5 * squares / 2.0**2, rtol=1e-9)


@pytest.mark.parametrize("data", [rows, repeated])
@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_gradients_of_the_evidence(data, likelihood):
    X, y = data(30, k=2)
    batch = everything(X, y, weights_of("counts", 30))
    model = make(2, likelihood())
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert len(parameters) == 4  # three of the kernel, and the noise; none of the local scale
    for parameter in parameters.values():
        parameter.grad = torch.zeros_like(parameter)
    model.lower_bound(batch)
    gradients = {name: p.grad.clone() for name, p in parameters.items()}
    for name, parameter in parameters.items():
        flat = parameter.data.view(-1)
        for i in range(len(flat)):
            values, start = [], float(flat[i])
            for step in (1e-5, -1e-5):
                flat[i] = start + step
                values.append(model.lower_bound(batch))
            flat[i] = start
            slope = (values[0] - values[1]) / 2e-5
            assert_allclose(gradients[name].view(-1)[i], slope, rtol=1e-5, atol=1e-5)


def test_evidence_of_a_part_of_the_places(monkeypatch):
    monkeypatch.setattr(ExactGP, "_marginal_rows", 8)
    X, y = repeated(k=2)
    weight = weights_of("counts", 30)
    model = make(2)
    bound = model.lower_bound(everything(X, y, weight))
    places = model.layers[0].Z.numpy()
    chosen = model._marginal_subset.numpy()
    assert len(places) == 10 and len(np.unique(chosen)) == 8
    part = (X[:, None] == places[chosen]).all(-1).any(1)
    assert 8 <= part.sum() < 30
    expected = make(2).lower_bound(everything(X[part], y[part], weight[part]))
    assert_allclose(bound, 10 / 8 * expected, rtol=1e-9)  # at the start there is no other term


def test_all_rows_are_conditioned_on_if_the_evidence_is_of_a_part(monkeypatch):
    X, y = rows()
    expected = latents(solved(X, y), torch.tensor(X))
    monkeypatch.setattr(ExactGP, "_marginal_rows", 8)
    for a, b in zip(latents(solved(X, y), torch.tensor(X)), expected):
        assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("kernel", "least", "expected"),
    [(KERNEL, 5, 7), (KERNEL + Linear(), 5, 7), (KERNEL, 9, 9), (Matern(1.5, 1.0), 5, 40)],
)
def test_evidence_of_fewer_places_where_the_kernel_is_dear(kernel, least, expected, monkeypatch):
    monkeypatch.setattr(marginal_likelihood, "MARGINAL_FACTORS", 2 * 7**2)  # two columns
    monkeypatch.setattr(marginal_likelihood, "_LEAST_MARGINAL_ROWS", least)
    model = make(kernel=kernel)
    model.lower_bound(everything(*rows()))
    assert len(model._marginal_subset) == expected


def test_training_maximizes_the_evidence():
    X, y = rows(60)
    model, batch = make(), everything(X, y)
    losses = [model.step(batch, None) for _ in range(40)]
    assert model.finished
    assert (np.diff(losses) <= 0.0).all() and losses[-1] < losses[0] - 0.1
    assert_allclose(losses[-1], -model.lower_bound(batch) / 60.0, rtol=1e-12)
    for parameter in model.parameters():
        for step in (0.1, -0.1):
            for i in range(parameter.numel()):
                moved = torch.zeros(parameter.numel()).double()
                moved[i] = step
                parameter.data += moved.view_as(parameter)
                assert -model.lower_bound(batch) / 60.0 > losses[-1] - 1e-4
                parameter.data -= moved.view_as(parameter)


@pytest.mark.parametrize("most", [6, 1000])
@pytest.mark.parametrize("kernel", [KERNEL, Matern(1.5, 1.0) + Anova() + Linear()])
def test_first_steps_on_a_part_of_the_rows(kernel, most, monkeypatch):
    """They see that part alone, and end where they converge; others find the best numbers for all rows."""
    X, y = rows(80)
    batch, seen, evidence = everything(X, y), [], ExactGP.log_marginal_likelihood

    def counted(self):
        seen.append(len(self._marginal_subset))
        return evidence(self)

    def trained():
        model, counts = make(kernel=kernel), []
        while not model.finished:
            assert len(counts) < 200
            seen.clear()
            model.step(batch, None)
            counts.append(sorted(set(seen)))
        return model, counts

    monkeypatch.setattr(ExactGP, "log_marginal_likelihood", counted)
    monkeypatch.setattr(ExactGP, "choose_start", lambda self, batch: None)
    monkeypatch.setattr(marginal_likelihood, "TOL", 1e-6)
    all_rows, counts = trained()
    assert counts == [[80]] * len(counts)
    monkeypatch.setattr(exact, "_MANY_ROWS", 80)
    monkeypatch.setattr(exact, "_FIRST_STEPS", most)
    model, counts = trained()
    n = counts.count([40])
    assert counts == [[40]] * n + [[80]] * (len(counts) - n)
    assert n == 6 if most == 6 else 6 < n < len(counts)
    assert_allclose(
        model.lower_bound(batch), all_rows.lower_bound(batch), atol=80 * 1e-5
    )  # 10 tolerances


# Predictions


@pytest.mark.parametrize("data", [rows, repeated])
@pytest.mark.parametrize("counts", ["ones", "counts"])
def test_prediction_conditions_on_all_rows(data, counts, monkeypatch):
    monkeypatch.setattr(conditioned, "_AT_ONCE", 50)  # a row or a few at a time
    X, y = data(30, k=2)
    weight = weights_of(counts, 30)
    x = np.vstack([X[[2, 12, 19]], X[:4] + 0.3, [[9.0, 9.0]]])
    mean, var = latents(solved(X, y, weight), torch.tensor(x))
    for j in range(2):
        expected = given(X, y[:, j], weight, x, 0.1 * (j + 1))
        assert_allclose(mean[0, :, j], expected[0], rtol=1e-6, atol=1e-8)
        assert_allclose(var[0, :, j], expected[1], rtol=1e-6)


def test_estimator_with_fixed_numbers_is_that_of_scikit_learn():
    X, y = rows()
    kernel = Matern(1.5, 0.8, 1.4, ard=False, trainable=False)
    theirs = ConstantKernel(1.4, "fixed") * SkMatern(0.8, "fixed", nu=1.5)
    theirs = GaussianProcessRegressor(theirs + WhiteKernel(0.1, "fixed"), optimizer=None)
    theirs.fit(X, y[:, 0])
    model = DeepGPRegressor(
        n_layers=1,
        inference="exact",
        kernel=kernel,
        likelihood=Gaussian(variance=0.1, trainable=False),
        standardize=False,
        random_state=0,
    ).fit(X, y[:, 0])
    x = np.vstack([X, X + 0.1, X + 3.0])
    mean, std = model.predict(x, return_std=True)
    expected = theirs.predict(x, return_std=True)
    assert_allclose(mean, expected[0], atol=1e-6)
    assert_allclose(std, expected[1], atol=1e-6)
    evidence = theirs.log_marginal_likelihood_value_ / len(X)
    assert_allclose(model.loss_curve_[-1], -evidence, rtol=1e-6)
    cov = model.predict(x[:5], return_cov=True)[1]
    assert_allclose(np.diag(cov), std[:5] ** 2, rtol=1e-9)


@pytest.mark.parametrize(
    ("likelihood", "joint"),
    [(Gaussian, True), (Gaussian, False), (HeteroscedasticGaussian, False)],
)
def test_function_draws_have_the_moments_of_the_prediction(likelihood, joint):
    """Also their covariances, by those of the exact process; for given rows, and for all."""
    X, y = repeated(k=2)
    model = solved(X, y, likelihood=likelihood())
    x = np.array([[0.3, -0.4], [0.4, -0.4], [1.0, 1.0], [4.0, 4.0]])
    f = draw_functions(model, 4000, seeded(0), 300)
    if joint:
        given_rows = posterior(model).functions(4000, seeded(0), torch.tensor(x))
        f = lambda X: sum(given_rows(X))  # noqa: E731
    draws = f(torch.tensor(x))
    log_weights, mean, var = posterior(model, 200).latent(torch.tensor(x))
    share = log_weights.exp()[:, None, None]
    center = (share * mean).sum(0)
    total = (share * (var + (mean - center).square())).sum(0)
    assert draws.shape == (4000, *center.shape)
    assert ((draws.mean(0) - center).abs() < 4.5 * (total / 4000).sqrt()).all()
    error = (draws - draws.mean(0)).square().std(0) / 4000**0.5
    # features of the prior leave an error of a few hundredths
    assert ((draws.var(0) - total).abs() < 4.5 * error + 0.03 * total).all()
    assert_allclose(f(torch.tensor(x[1:])), draws[:, 1:], rtol=1e-9)  # the same functions
    if likelihood is Gaussian:
        for j in range(2):
            noise = 0.1 * (j + 1)
            cross = covariance(X, x)
            inside = covariance(X, X) + noise * np.eye(len(X))
            expected = covariance(x, x) - cross.T @ np.linalg.solve(inside, cross)
            scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
            found = np.cov(draws[:, :, j].T)
            assert_allclose(found / scale, expected / scale, atol=0.1)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_covariance_of_the_function(likelihood, k):
    """The correlations of the exact process, and the variances of the predictions."""
    X, y = repeated(k=k)
    model = solved(X, y, likelihood=likelihood())
    x = np.vstack([X[[2, 12, 19]], X[:4] + 0.3, [[9.0, 9.0]]])
    frozen = posterior(model, 200)
    cov = frozen.covariance(torch.tensor(x)).numpy()
    log_weights, _, var = frozen.latent(torch.tensor(x))
    var = (log_weights.exp()[:, None, None] * var).sum(0)[:, :k].T
    assert_allclose(np.diagonal(cov, axis1=1, axis2=2), var, rtol=1e-6)
    for j in range(k):
        cross = covariance(X, x)
        inside = covariance(X, X) + 0.1 * (j + 1) * np.eye(len(X))
        expected = covariance(x, x) - cross.T @ np.linalg.solve(inside, cross)
        root, found = np.sqrt(np.diag(expected)), np.sqrt(np.diag(cov[j]))
        expected = expected / np.outer(root, root)
        assert_allclose(cov[j] / np.outer(found, found), expected, atol=1e-8)


@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_draws_between_rows_have_the_quantiles_of_the_prediction(likelihood):
    """Where lengthscales are long, all that is unknown between rows is in the tail of the spectrum."""
    X = rows(60)[0]
    model = DeepGPRegressor(
        n_layers=1,
        inference="exact",
        kernel=Anova(1.5, [10.0, 20.0], [1.0, 3.0], trainable=False),
        likelihood=likelihood(variance=1e-5, trainable=False),
        standardize=False,
        random_state=0,
    ).fit(X, np.sin(X).sum(1))
    x = rows(30, seed=1)[0]
    mean, std = model.predict(x, return_std=True, latent=True)
    draws = (model.sample_y(x, 400, latent=True) - mean[:, None]) / std[:, None]
    if likelihood is Gaussian:
        inside = (np.abs(draws) < 1.0).mean(1)
        assert abs(inside.mean() - 0.683) < 0.03
        assert np.abs(inside - 0.683).max() < 4.0 * np.sqrt(0.683 * 0.317 / 400)
    else:  # Student's t with the variance 1
        dof = float(model.members_[0].model("cpu").local_scale.dof())
        share = t(dof).cdf(np.sqrt(dof / (dof - 2.0)) * np.array([-1.0, 1.0]))
        assert abs((np.abs(draws) < 1.0).mean() - np.ptp(share)) < 0.03


def test_outputs_of_a_draw_have_one_mixing_variable():
    X, y = repeated(k=2)
    model = solved(X, y, likelihood=HeteroscedasticGaussian())
    draws = draw_functions(model, 20, seeded(0), 20)(torch.tensor(X[:3] + 0.3))
    mixing = draws[..., 2:] - draws[:1, :, 2:]  # in logarithms, relative to the first draw
    assert_allclose(mixing, mixing[:, :1, :1].expand_as(mixing), atol=1e-9)
    assert mixing[1:].abs().min() > 1e-6


# Rows that are left out


@pytest.mark.parametrize(
    ("k", "data", "counts"),
    [
        (1, rows, "ones"),
        (2, rows, "counts"),
        (1, repeated, "ones"),
        (2, repeated, "counts"),
        (1, repeated, "parts"),
    ],
)
def test_density_of_rows_that_are_left_out(k, data, counts):
    """One count where rows with the same inputs have other targets; copies leave together."""
    X, y = data(30, k=k)
    weight = weights_of(counts, 30)
    if counts == "parts":
        weight = np.random.default_rng(3).uniform(0.3, 2.0, 30)
    model = solved(X, y, weight)
    actual = posterior(model).loo_log_density(np.arange(30))
    place, alone = in_place(X, y, weight)[3:]
    for i in range(30):
        rest = weight.copy()
        if alone[i]:
            rest[place == place[i]] = 0.0
        else:
            rest[i] -= min(weight[i], 1.0)
        expected = 0.0
        for j in range(k):
            mean, var = given(X, y[:, j], rest, X[[i]], 0.1 * (j + 1))
            expected += norm(mean, np.sqrt(var + 0.1 * (j + 1))).logpdf(y[i, j])
        assert_allclose(actual[i], expected, rtol=1e-6)
    some = posterior(model).loo_log_density(np.array([7, 3]))
    assert_allclose(some, actual[[7, 3]])


@pytest.mark.parametrize("data", [rows, repeated])
@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_weights_are_counts_for_rows_that_are_left_out(data, likelihood):
    X, y = data(30, k=2)
    weight = weights_of("counts", 30)
    once = np.repeat(np.arange(30), weight.astype(int))
    merged, copies = (
        solved(X[i], y[i], w, likelihood=likelihood())
        for i, w in ((slice(None), weight), (once, None))
    )
    if likelihood is HeteroscedasticGaussian:  # learned from other sums of the same numbers
        for a, b in zip(merged.local_scale.parameters(), copies.local_scale.parameters()):
            assert_allclose(a.detach(), b.detach(), atol=1e-3)
            b.data.copy_(a.data)
    merged = posterior(merged).loo_log_density(np.arange(30))
    copies = posterior(copies).loo_log_density(np.arange(len(once)))
    assert_allclose(merged[once], copies, rtol=1e-7)


def errors_of_places(X, y, weight, noise):
    """Places, and the standardized errors of their mean targets given all other unique inputs."""
    Z, mean, total = in_place(X, y, weight)[:3]
    z = np.zeros(len(Z))
    for i in range(len(Z)):
        others = total * (np.arange(len(Z)) != i)
        m, v = given(Z, mean[:, 0], others, Z[[i]], noise)
        z[i] = (mean[i, 0] - m[0]) / np.sqrt(v[0] + noise / total[i])
    return Z, z


@pytest.mark.parametrize("data", [rows, repeated])
def test_standardized_errors(data):
    X, y = data(30, k=2)
    weight = weights_of("counts", 30)
    model = solved(X, y, weight)
    Z = model.layers[0].Z.numpy()
    for j in range(2):
        places, z = errors_of_places(X, y[:, [j]], weight, 0.1 * (j + 1))
        order = np.lexsort(Z.T[::-1])
        assert_array_equal(Z[order], places)
        assert_allclose(model.z[0, j].numpy()[order], z, rtol=1e-6, atol=1e-9)


# Local scale


def nearest(Z, x, k, excluded=None):
    metric = KERNEL.bind(2).lengthscale * np.sqrt(1.0 + 1.0 / np.array(KERNEL.strength))
    distance = np.square((Z - x) / metric).sum(1)
    if excluded is not None:
        distance[excluded] = np.inf
    return np.argsort(distance)[: min(k, np.isfinite(distance).sum())]


def student_t(numbers, n_neighbors, z, mean, var):
    """The formula in the docstring of the scheme; `var` is that of the target for unit scale."""
    log_count, log_odds, log_factor = numbers
    a, least = np.exp(log_count), min(1.0, 2.1 / n_neighbors)
    rho = least + (1.0 - least) * expit(log_odds)
    squared = np.exp(log_factor) * (a + rho * np.square(z).sum()) / (a + rho * len(z))
    return t(a + rho * n_neighbors, mean, np.sqrt(squared * var))


def loo_densities(X, y, weight, numbers, k, dispersion=1.0):
    """Of each row given all others, one by one."""
    Z, *_, place, alone = in_place(X, y, weight)
    z, noise, density = errors_of_places(X, y, weight, 0.1)[1], 0.1, np.zeros(len(X))
    for i in range(len(X)):
        rest = weight.copy()
        if alone[i]:
            rest[place == place[i]] = 0.0
        else:
            rest[i] -= min(weight[i], 1.0)
        m, v = given(X, y[:, 0], rest, X[[i]], noise)
        near = nearest(Z, X[i], k, place[i] if alone[i] else None)
        errors = z.copy()
        if not alone[i]:  # of what stays in the place of the row
            here = place == place[i]
            left = np.where(here, rest, 0.0)
            m_here, v_here = given(X, y[:, 0], np.where(here, 0.0, weight), X[[i]], noise)
            error = left @ y[:, 0] / left.sum() - m_here[0]
            errors[place[i]] = error / np.sqrt(v_here[0] + noise / left.sum())
        student = student_t(numbers, k, errors[near], m[0], dispersion**2 * (v[0] + noise))
        density[i] = student.logpdf(y[i, 0])
    return density


def numbers_of(model):
    return [float(number) for number in model.local_scale.parameters()]


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("data", [rows, repeated])
def test_local_scale_of_rows_that_are_left_out(k, data):
    X, y = data(30)
    weight = weights_of("counts", 30)
    model = solved(X, y, weight, likelihood=HeteroscedasticGaussian(), n_neighbors=k)
    actual = posterior(model).loo_log_density(np.arange(30))
    expected = loo_densities(X, y, weight, numbers_of(model), k)
    assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)
    dispersions = np.array([0.6, 1.3])
    actual = posterior(model).loo_log_density(np.arange(30), dispersions)
    for density, dispersion in zip(actual, dispersions):
        expected = loo_densities(X, y, weight, numbers_of(model), k, dispersion)
        assert_allclose(density, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("data", [rows, repeated])
def test_predictions_are_student_t(k, data):
    X, y = data(30)
    weight = weights_of("counts", 30)
    model = solved(X, y, weight, likelihood=HeteroscedasticGaussian(), n_neighbors=k)
    x = np.vstack([X[[2, 12, 19]], X[:4] + 0.3, [[9.0, 9.0]]])
    mean, var = given(X, y[:, 0], weight, x, 0.1)
    Z, z = errors_of_places(X, y, weight, 0.1)
    log_weights, m, v = posterior(model, 200).latent(torch.tensor(x))
    share = log_weights.exp().numpy()
    scale = m[..., 1].exp().numpy()
    for i in range(len(x)):
        near = nearest(Z, x[i], k)
        for extra, found in (
            (0.0, v[:, i, 0].numpy()),
            (0.1, v[:, i, 0].numpy() + 0.1 * scale[:, i]),
        ):
            expected = student_t(numbers_of(model), k, z[near], mean[i], var[i] + extra)
            for level in (-3.0, 0.0, 1.0):
                at = mean[i] + level * np.sqrt(var[i] + extra)
                density = share @ norm(m[:, i, 0].numpy(), np.sqrt(found)).pdf(at)
                assert_allclose(density, expected.pdf(at), rtol=1e-5)


@pytest.mark.parametrize(("data", "most"), [(rows, 3000), (repeated, 3000), (rows, 12)])
def test_numbers_of_the_scale_are_the_best(data, most, monkeypatch):
    """For all rows, or for a part of them."""
    monkeypatch.setattr(marginal_likelihood, "_SCALE_ROWS", most)
    X, y = data(30)
    weight = weights_of("counts", 30)
    model = solved(X, y, weight, likelihood=HeteroscedasticGaussian())
    chosen = np.random.default_rng(0).permutation(30)[:most]
    best, prior = np.array(numbers_of(model)), np.array([np.log(10.0), 0.0, 0.0])
    assert np.abs(best - prior).max() > 0.01

    def objective(numbers):
        density = loo_densities(X, y, weight, numbers, 5)
        return weight[chosen] @ density[chosen] - 0.5 * np.square((numbers - prior) / 3.0).sum()

    top = objective(best)
    for i in range(3):
        for step in (-0.3, 0.3):
            assert objective(best + step * (np.arange(3) == i)) < top


def test_numbers_of_the_scale_do_not_depend_on_how_often_they_were_asked_for():
    """As checkpoints and validation do."""
    X, y = rows()
    batch, states = everything(X, y), []
    for often in (False, True):
        model = make(likelihood=HeteroscedasticGaussian())
        for _ in range(10):
            model.step(batch, None)
            if often:
                model.state()
        states.append(model.state())
    for name, array in states[0].items():
        assert_array_equal(states[1][name], array, err_msg=name)


def test_local_scale_follows_noise_that_changes():
    """Noise of one and of a tenth, side by side."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (600, 1))
    y = np.where(X[:, 0] > 0.0, 1.0, 0.1) * rng.standard_normal(600)
    model, plain = (
        DeepGPRegressor(n_layers=1, inference=Exact(25), likelihood=name, random_state=0).fit(X, y)
        for name in ("heteroscedastic", "gaussian")
    )
    std = model.predict(np.array([[-0.5], [0.5]]), return_std=True)[1]
    assert_allclose(std, [0.1, 1.0], rtol=0.4)
    x = rng.uniform(-1.0, 1.0, (600, 1))
    target = np.where(x[:, 0] > 0.0, 1.0, 0.1) * rng.standard_normal(600)
    gain = model.log_predictive_density(x, target) - plain.log_predictive_density(x, target)
    assert gain.mean() > 0.4  # 1/2 log(.505) + log(10)/2 = .81 for known sizes


# States


@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_state_round_trip(likelihood):
    X, y = repeated(k=2)
    batch = everything(X, y, weights_of("counts", 30))
    model, other = make(2, likelihood()), make(2, likelihood())
    for _ in range(3):
        model.step(batch, None)
    x = torch.tensor(X + 0.1)
    other.load_state(model.state())
    assert posterior(other).loo_log_density(np.arange(30)) is None  # it has not seen the rows
    for a, b in zip(posterior(other).latent(x), posterior(model).latent(x)):
        assert_array_equal(a, b)
    assert_array_equal(*(draw_functions(m, 3, seeded(0), 50)(x) for m in (model, other)))
    other.hold(batch)
    assert_array_equal(*(posterior(m).loo_log_density(np.arange(30)) for m in (model, other)))
    for name, array in model.state().items():
        assert_array_equal(other.state()[name], array)


@pytest.mark.parametrize("inference", [Exact(), CollapsedVI(n_draws=2)])
@pytest.mark.parametrize("most", [30 * 30 * 16, 10])
def test_files_hold_the_factor_unless_it_is_too_large(inference, most, monkeypatch, tmp_path):
    monkeypatch.setattr(conditioned, "_DEAR_ROWS", 30)
    monkeypatch.setattr(conditioned, "_MOST_STORED", most)
    (X, y), new, sizes = rows(30), rows(5)[0], []
    model = DeepGPRegressor(2, inference=inference, max_iter=2, n_inducing=4, random_state=0)
    if isinstance(inference, Exact):
        model.set_params(n_layers=1, n_inducing=None)
    expected = model.fit(X, y[:, 0]).predict(new, return_std=True)
    joblib.dump(model, tmp_path / "model.joblib")
    factorize = torch.linalg.cholesky_ex
    monkeypatch.setattr(
        torch.linalg, "cholesky_ex", lambda K: sizes.append(K.shape[-1]) or factorize(K)
    )
    loaded = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    for one in (loaded, pickle.loads(pickle.dumps(loaded))):  # also before its first prediction
        assert_allclose(one.predict(new, return_std=True), expected, rtol=1e-12)
    assert (30 in sizes) == (most == 10)


@pytest.mark.parametrize("n_first", [0, 3, 4, 6])
def test_training_goes_on_where_it_stopped(n_first, monkeypatch):
    """Before, with, and after the last of the first steps."""
    if n_first:
        monkeypatch.setattr(exact, "_MANY_ROWS", 60)
        monkeypatch.setattr(exact, "_FIRST_STEPS", n_first)
    X, y = rows(60)
    batch = everything(X, y)
    one, two = (make(likelihood=HeteroscedasticGaussian()) for _ in range(2))
    for _ in range(4):
        one.step(batch, None)
    assert one._n_first == (n_first - 4 if n_first > 3 else -1)
    assert len(one.steps.search.pairs) <= 4 and not one.steps.search.converged
    two.load_state(one.state())
    two.load_training_state(one.training_state())
    for _ in range(4):
        assert one.step(batch, None) == two.step(batch, None)
    for name, array in one.state().items():
        assert_array_equal(array, two.state()[name], err_msg=name)


@pytest.mark.parametrize("where", ["_condition", "_leave_one_out", "_learn_scale"])
def test_interrupt_while_it_conditions(where, monkeypatch):
    X, y = rows()
    batch, found = everything(X, y), []
    for interrupted in (False, True):
        model = make(likelihood=HeteroscedasticGaussian())
        model.step(batch, None)
        if interrupted:
            with monkeypatch.context() as patch:
                patch.setattr(model, where, _interrupt)
                with pytest.raises(KeyboardInterrupt):
                    model.state()
        found.append(latents(model, torch.tensor(X))[0])
    assert_array_equal(*found)


def _interrupt(*_):
    raise KeyboardInterrupt


def test_the_best_numbers_are_those_that_predict():
    """Not those of an earlier step, nor those that were only tried."""
    X, y = rows()
    model, batch, x = make(), everything(X, y), torch.tensor(X)
    before = None
    for _ in range(4):
        model.step(batch, None)
        mean = latents(model, x)[0][0, :, 0].numpy()
        kernel = model.layers[0].kernel.fitted()
        noise = float(model.likelihood.fitted().variance[0])
        K = kernel(x, x).numpy()
        expected = K @ np.linalg.solve(K + noise * np.eye(40), y[:, 0])
        assert_allclose(mean, expected, rtol=1e-5, atol=1e-7)
        assert before is None or np.abs(mean - before).max() > 1e-4
        before = mean


def test_warm_start_goes_on_with_the_numbers_and_takes_new_rows():
    X, y = rows(80)
    model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0, warm_start=True)
    model.fit(X[:60], y[:60, 0])
    first, *_, last = model.loss_curve_
    model.fit(X[:60], y[:60, 0])
    assert_allclose(model.loss_curve_[0], last, atol=1e-4)
    assert first > last + 0.05
    model.fit(X, y[:, 0])
    assert len(model.inducing_inputs_[0]) == 80
    assert model.score(X[60:], y[60:, 0]) > 0.5


def test_warm_start_of_many_rows_has_no_first_steps(monkeypatch):
    """Neither a part of the rows nor another start takes away what has been learned."""
    monkeypatch.setattr(exact, "_MANY_ROWS", 60)
    X, y = rows(80)
    model = DeepGPRegressor(n_layers=1, inference="exact", random_state=0, warm_start=True)
    model.fit(X, y[:, 0])
    last, before = model.loss_curve_[-1], model.predict(X)
    model.set_params(max_iter=1).fit(X, y[:, 0])
    assert model.loss_curve_[0] <= last + 1e-9
    assert_allclose(model.predict(X), before, atol=1e-2)


def test_given_numbers_are_looked_at_once(monkeypatch):
    calls, evidence = [], ExactGP.log_marginal_likelihood

    def counted(self):
        calls.append(1)
        return evidence(self)

    monkeypatch.setattr(ExactGP, "log_marginal_likelihood", counted)
    X, y = rows()
    kernel, noise = Anova(trainable=False), Gaussian(variance=0.1, trainable=False)
    settings = {"kernel": kernel, "likelihood": noise, "max_iter": 7, "random_state": 0}
    model = DeepGPRegressor(1, inference="exact", **settings).fit(X, y[:, 0])
    assert len(calls) == 1
    assert len(model.loss_curve_) == 7 and len(set(model.loss_curve_)) == 1


def test_resume_after_it_has_converged(tmp_path, monkeypatch):
    """Rows are left out for stacking at the end, by a model that makes no more steps."""
    X, y = rows(60)
    settings = {"max_iter": 60, "n_inducing": 5, "n_predict_draws": 8, "random_state": 0}
    expected = DeepGPRegressor(**settings).fit(X, y[:, 0])
    model = DeepGPRegressor(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=5), **settings)
    step, calls = ExactGP.step, iter(range(10_000))

    def killed(self, *args):
        if next(calls) == 117 and self.finished:  # the second of two
            raise RuntimeError("killed")
        return step(self, *args)

    monkeypatch.setattr(ExactGP, "step", killed)
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(X, y[:, 0])
    model.fit(X, y[:, 0])
    assert_array_equal(model.predict(X), expected.predict(X))


# Frozen posteriors


def everything_of(posterior, x):
    """Predictions of all kinds."""
    joint, paths = (posterior.functions(3, seeded(1), rows) for rows in (x, None))
    parts = *posterior.latent(x), posterior.covariance(x), *joint(x), *paths(x)
    return [*parts, posterior.loo_log_density(np.arange(20))]


@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_posteriors_are_frozen(likelihood):
    """Whatever the model learns afterwards, and in as many threads as there are."""
    X, y = repeated(k=2)
    model, batch, x = make(2, likelihood()), everything(X, y), torch.tensor(X[:7] + 0.1)
    model.step(batch, None)
    frozen = posterior(model)
    expected = everything_of(frozen, x)
    for _ in range(3):
        model.step(batch, None)
    model.load_state(make_state(model))
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: everything_of(frozen, x), range(24)):
            for a, b in zip(found, expected):
                assert_array_equal(a, b)
    assert (posterior(model).latent(x).mean - frozen.latent(x).mean).abs().max() > 0.01


def make_state(model):
    return {name: array + 0.3 * ("log" in name) for name, array in model.state().items()}


def test_few_given_rows_are_drawn_at_once():
    """500 draws at five rows of 80 used to take seconds; equal rows get equal values."""
    X, y = rows(80)
    model = solved(X, y)
    x, frozen = torch.tensor(X[[0, 1, 2, 0, 1]] + 0.1), posterior(model)
    start = time.process_time()
    f = frozen.functions(500, seeded(0), x)
    draws = sum(f(x))
    assert time.process_time() - start < 0.05
    assert_array_equal(draws[:, :2], draws[:, 3:])
    assert_array_equal(sum(f(x[1:3])), draws[:, 1:3])
    with pytest.raises(ValueError, match="drawn for given rows"):
        f(x + 1.0)


# Copies of rows


@pytest.mark.parametrize(
    ("what", "inference"), [("targets", "exact"), ("inputs", "exact"), ("inputs", "vecchia")]
)
def test_near_copies_are_copies(what, inference):
    """Records that are there up to three times, with differences of rounding and more."""
    rng = np.random.default_rng(0)
    X, x = rng.uniform(-2.5, 2.5, (40, 2)), rng.uniform(-2.5, 2.5, (200, 2))
    y, target = (
        10.0 + 5.0 * (np.sin(2.0 * A[:, 0]) + 0.5 * A[:, 1] + 0.3 * rng.standard_t(4, len(A)))
        for A in (X, x)
    )
    copies, scores, widths = np.repeat(np.arange(40), rng.integers(1, 4, 40)), [], []
    for eps in (0.0, 1e-12, 1e-6, 1e-3):
        A, b = X[copies], y[copies]
        if what == "inputs":
            A = A + eps * rng.standard_normal(A.shape)
        else:
            b = b + eps * rng.standard_normal(b.shape)
        few = {"max_iter": 40} if inference == "vecchia" else {}
        model = DeepGPRegressor(1, inference=inference, random_state=0, **few).fit(A, b)
        scores.append(model.log_predictive_density(x, target).mean())
        widths.append(np.median(model.predict(x, return_std=True)[1]))
    assert_allclose(scores[1], scores[0], atol=1e-3)
    assert_allclose(
        scores, scores[0], atol=0.15
    )  # near errors are counted as often as they are there
    assert_allclose(widths[1], widths[0], rtol=1e-3)
    assert scores[0] > -3.0


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1e-6, 1e-3])
def test_leave_one_out_leaves_copies_out(eps):
    """By conditioning on all rows that are no copies of it."""
    X, y = rows(20)
    record = np.repeat(np.arange(20), [1, 2, 3, 1] * 5)
    rng = np.random.default_rng(1)
    A = X[record] + eps * rng.standard_normal((len(record), 2))
    b = y[record] + eps * rng.standard_normal((len(record), 1))
    found = posterior(solved(A, b)).loo_log_density(np.arange(len(A)))
    for i in range(len(A)):
        mean, var = given(A, b[:, 0], (record != record[i]).astype(float), A[[i]], 0.1)
        assert_allclose(found[i], norm(mean, np.sqrt(var + 0.1)).logpdf(b[i, 0]), rtol=1e-5)


def test_rows_that_are_close_but_no_copies():
    """Neighbors on a line that is densely covered, and twins whose targets differ."""
    line = np.linspace(0.0, 1.0, 3000)[:, None]
    unique, training_rows = gather(*everything(line, np.sin(line))[:3])
    assert len(unique["Z"]) == len(np.unique(training_rows.records)) == 3000
    X, y = rows(20)
    A, b = np.repeat(X, 2, 0), np.repeat(y, 2, 0)
    A[::2] += 1e-3
    b[::2] += 0.1
    training_rows = gather(*everything(A, b)[:3])[1]
    assert len(np.unique(training_rows.records)) == 40
    training_rows = gather(*everything(np.repeat(X, 2, 0), b)[:3])[1]
    assert not training_rows.alone.any()


# Few rows, special targets, and what is refused


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("likelihood", "n", "k"),
    [
        ("gaussian", 1, 2),
        ("heteroscedastic", 1, 1),
        ("heteroscedastic", 2, 2),
        ("gaussian", 2, 1),
        ("heteroscedastic", 5, 1),
    ],
)
def test_few_rows(likelihood, n, k):
    X, y = rows(n, k=k)
    model = DeepGPRegressor(1, inference="exact", likelihood=likelihood, random_state=0).fit(X, y)
    check_finite(model, X, y)


def check_finite(model, X, y):
    far = np.vstack([X, 1e3 * X + 1.0])
    mean, std = model.predict(far, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0.0).all()
    assert np.isfinite(model.sample_y(far, 3)).all()
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert np.isfinite(model.loss_curve_).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("likelihood", "target"),
    [
        ("gaussian", "constant"),
        ("heteroscedastic", "constant"),
        ("gaussian", "linear"),
        ("heteroscedastic", "smooth"),
        ("gaussian", "step"),
        ("heteroscedastic", "outlier"),
    ],
)
def test_special_targets(likelihood, target):
    X = rows(60)[0]
    y = {
        "constant": np.full(60, 3.0),
        "linear": 2.0 * X[:, 0] - X[:, 1],
        "smooth": np.sin(X[:, 0]) * X[:, 1],
        "step": np.sign(X[:, 0]),
        "outlier": np.where(np.arange(60) == 7, 1e6, X[:, 0]),
    }[target]
    model = DeepGPRegressor(1, inference="exact", likelihood=likelihood, random_state=0).fit(X, y)
    check_finite(model, X, y)
    if target in ("linear", "smooth"):  # free of noise
        assert model.score(X, y) > 0.999
        assert (model.predict(X, return_std=True)[1] < 0.05 * y.std()).all()
    if target == "constant":
        assert_allclose(model.predict(X), 3.0)


def test_rows_that_are_all_in_one_place():
    X, y = np.ones((20, 2)), np.random.default_rng(0).standard_normal(20)
    model = DeepGPRegressor(1, inference="exact", random_state=0).fit(X, y)
    check_finite(model, X, y)
    mean, std = model.predict(X[:1], return_std=True)
    assert_allclose(mean, y.mean(), atol=0.1)
    assert_allclose(std, y.std(), rtol=0.15)


def test_rows_are_the_inducing_inputs():
    X, y = repeated()
    model = DeepGPRegressor(1, inference="exact", random_state=0).fit(X, y[:, 0])
    assert_allclose(
        np.unique(model.inducing_inputs_[0].round(9), axis=0), np.unique(X.round(9), axis=0)
    )
    assert isinstance(model.kernels_[0], Anova)
    assert isinstance(model.likelihood_, HeteroscedasticGaussian)
    assert not hasattr(model, "lower_bound_")


def test_composite_kernels():
    X, y = rows()
    kernel = Anova() + Linear() * Matern(2.5)
    model = DeepGPRegressor(1, inference="exact", kernel=kernel, random_state=0).fit(X, y[:, 0])
    assert model.score(X, y[:, 0]) > 0.5


def test_too_many_rows_are_refused(monkeypatch):
    monkeypatch.setattr(ExactGP, "_most_rows", 20)
    X, y = rows(42)
    X[:20] = X[20:40]
    model = DeepGPRegressor(1, inference="exact", random_state=0)
    with pytest.raises(ValueError, match="of all distinct rows, of at most 20; got 22"):
        model.fit(X, y[:, 0])
    model.fit(X[:40], y[:40, 0])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"n_layers": 2}, "Exact is for shallow models; set n_layers=1"),
        ({"likelihood": "student_t"}, "for StudentT use inference='dsvi'"),
        ({"likelihood": "poisson"}, "for Poisson use inference='dsvi'"),
        (
            {"inference": Exact(True)},
            "n_neighbors of Exact must be an int in the range .*; got True",
        ),
        ({"n_inducing": 7}, "n_inducing means nothing to Exact"),
        ({"init": "random"}, "init means nothing to Exact"),
        ({"learning_rate": 0.1}, "learning_rate means nothing to Exact"),
    ],
)
def test_settings_that_make_no_sense(settings, match):
    X, y = rows()
    y = np.round(np.abs(y))
    settings = {"n_layers": 1, "inference": "exact", "random_state": 0, **settings}
    with pytest.raises(ValueError, match=match):
        DeepGPRegressor(**settings).fit(X, np.abs(y[:, 0]))


def test_wiggles_are_not_taken_for_noise(monkeypatch):
    """From long lengthscales alone, the marginal likelihood leads to an optimum where all is noise."""
    rng, evidence = np.random.default_rng(0), []
    X = rng.uniform(0.0, 10.0, (80, 1))
    y = np.sin(10.0 * X[:, 0]) + 0.05 * rng.standard_normal(80)
    for starts in (marginal_likelihood._STARTS, marginal_likelihood._STARTS[:1]):
        monkeypatch.setattr(marginal_likelihood, "_STARTS", starts)
        model = DeepGPRegressor(1, inference="exact", likelihood="gaussian", random_state=0).fit(
            X, y
        )
        evidence.append(-model.loss_curve_[-1])
    assert evidence[0] > evidence[1] + 0.5


def test_the_best_start_is_chosen(monkeypatch):
    X, _ = rows()
    batch, losses = everything(X, np.sin(20.0 * X[:, :1])), []
    for start in marginal_likelihood._STARTS:
        model = make()
        with monkeypatch.context() as patch:
            patch.setattr(marginal_likelihood, "_STARTS", (start,))
            for _ in range(marginal_likelihood._TRIAL_STEPS):
                loss = model.step(batch, None)
        losses.append(loss)
    best = marginal_likelihood._STARTS[int(np.argmin(losses))][0]
    assert best < 1.0 and min(losses) < losses[0] - 0.01
    model = make()
    given = model.layers[0].kernel.log_lengthscale.detach().clone()
    model.hold(batch)
    model.choose_start(batch)
    expected = given + np.log(best)
    assert_allclose(model.layers[0].kernel.log_lengthscale.detach(), expected, rtol=1e-12)
    assert model.steps.search.x is None and len(model._marginal_subset) == len(X)


def test_starts_take_no_more_than_their_share_of_the_time(monkeypatch):
    """Of many columns, an evaluation takes long: half of the time is for starts, and for few rows."""
    clock, evaluate = [0.0], ExactGP.lower_bound
    monkeypatch.setattr("skdgp.inference.base.time.monotonic", lambda: clock[0])

    def slow(self, batch):
        clock[0] += 0.2
        return evaluate(self, batch)

    monkeypatch.setattr(ExactGP, "lower_bound", slow)
    X = np.random.default_rng(0).normal(size=(200, 30))
    bound = Gaussian().bind(np.zeros((2, 1)), np.ones(2), np.ones(1))
    shape = Architecture(30, (), 1, 1, [Anova().bind(30)], True, False)
    model, batch = Exact().build(shape, bound), everything(X, X[:, :1])
    model.limit(2.0, 1e12)
    assert np.isfinite(model.step(batch, None))
    assert clock[0] < 3.0  # one step of a start, and one of the training, end after their share
    assert model._deviation == marginal_likelihood._DEVIATION
    model = Exact().build(shape, bound)
    model.limit(0.25, 1e12)
    model.hold(batch)
    assert len(model._marginal_subset) == 144  # 30 times its square: a quarter of 2,500,000 factors


@pytest.mark.parametrize("better", ["start", "loose"])
def test_the_better_of_two_searches(better, monkeypatch):
    """The one from the best start, or the one from where normal priors have led to."""
    X = np.random.default_rng(0).normal(size=(20, 8))
    bound = Gaussian().bind(np.zeros((2, 1)), np.ones(2), np.ones(1))
    shape = Architecture(8, (), 1, 1, [Anova().bind(8)], True, False)
    model, batch = Exact().build(shape, bound), everything(X, X[:, :1])
    model.hold(batch)
    given, searches = parameters_to_vector(model.free()).detach().clone(), []

    def searched(x, n_steps, batch):
        search, is_loose = LBFGS(), bool((x > given).all())
        search.x = x + (1.0 if model._deviation is None else 0.1)
        search.f = 0.0 if (x < given).any() else -0.5  # of the noisy start, and of others
        if search.f and model._deviation is not None and is_loose == (better == "loose"):
            search.f = -1.0
        searches.append(search)
        return search

    monkeypatch.setattr(model, "_searched", searched)
    model.choose_start(batch)
    expected = given + (1.1 if better == "loose" else 0.1)
    assert_allclose(parameters_to_vector(model.free()).detach(), expected)
    assert model._deviation == marginal_likelihood._DEVIATION
    assert model.steps.search.x is None and len(model._marginal_subset) == 20


def test_columns_of_which_only_the_product_matters_are_found():
    """Each alone tells nothing, so that a prior holds it at the level of thirty columns."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 30))
    f = np.tanh(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    y = f + 0.3 * rng.standard_normal(400)
    model = DeepGPRegressor(1, inference="exact", random_state=0).fit(X[:150], y[:150])
    assert model.score(X[150:], f[150:]) > 0.8


@pytest.mark.parametrize("kernel", ["anova", "rational_quadratic"])
def test_many_columns_do_not_overfit_few_rows(kernel):
    """Of targets that are noise, nothing is learned."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1080, 40)), rng.standard_normal(1080)
    model = DeepGPRegressor(1, kernel=kernel, inference="exact", random_state=0).fit(X[:80], y[:80])
    truth = norm.logpdf(y[80:]).mean()
    assert model.log_predictive_density(X[80:], y[80:]).mean() > truth - 0.05


def test_interactions_are_found():
    """A ridge has no parts that add up; from small strengths, it is taken for noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (100, 5))
    f = np.sin(3.0 * X[:, :3].sum(1))
    model = DeepGPRegressor(1, inference="exact", random_state=0)
    assert model.fit(X, f + 0.05 * rng.standard_normal(100)).score(X, f) > 0.95


@pytest.mark.parametrize("inference", ["exact", "vecchia"])
def test_weights_of_very_different_size_at_a_place(inference):
    X, y = rows()
    X, y = np.repeat(X, 2, 0), np.repeat(y[:, 0], 2)
    y[1::2] += 0.1
    few = {"max_iter": 20} if inference == "vecchia" else {}
    model = DeepGPRegressor(1, inference=inference, random_state=0, **few)
    model.fit(X, y, sample_weight=np.tile([1.0, 1e-17], 40))
    assert np.isfinite(model.loss_curve_).all()
    assert model.score(X[::2], y[::2]) > 0.5
    assert model.members_[0].arrays["local_scale.log_count"] != np.log(
        10.0
    )  # the local scale was learned


@pytest.mark.parametrize("kernel", ["anova", "rational_quadratic"])
def test_a_tenth_of_signal_is_no_noise(kernel):
    """Lengthscales of a hundredth explain such targets almost as well, and predict their mean."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 2))
    y = rng.gamma(0.5, 2.0 * np.exp(1.5 * X[:, 0]))
    new = rng.uniform(size=(1000, 2))
    settings = {"inference": "exact", "kernel": kernel, "target_transform": None}
    model = DeepGPRegressor(1, likelihood="gaussian", random_state=0, **settings).fit(X, y)
    assert np.corrcoef(model.predict(new), np.exp(1.5 * new[:, 0]))[0, 1] > 0.95


def test_steps_on_few_rows_do_not_mislead():
    """Of the start, and of where few rows lead, the better one on all rows goes on."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 8))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(300)
    likelihood = Gaussian(0.1).bind(np.zeros((2, 1)), np.ones(2), np.ones(1))
    shape = Architecture(8, (), 1, 1, [Anova().bind(8)], True, False)
    model, batch = Exact().build(shape, likelihood), everything(X, y[:, None])
    model.hold(batch)
    searched, ends = model._searched, []

    def watched(x, n_steps, batch):
        found = searched(x, n_steps, batch)
        if len(model._marginal_subset) == 300:
            ends.append((found.f, found.x.clone()))
        return found

    model._searched = watched
    model.choose_start(batch)
    chosen = parameters_to_vector(model.free()).detach()
    torch.testing.assert_close(chosen, min(ends[-2:], key=lambda end: end[0])[1])
