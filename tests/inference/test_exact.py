"""Exact Gaussian processes with a local scale."""

import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from oracles import check_gradients, condition
from scipy.special import expit
from scipy.stats import cauchy, multivariate_normal, norm, t
from torch.nn.utils import parameters_to_vector
from toys import (
    architecture,
    check_resumed,
    draw_functions,
    everything,
    latents,
    mixed,
    noisy,
    posterior,
    rows,
    same,
    seeded,
)

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import Anova, Linear, Matern
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.inference import CollapsedVI, Exact, exact
from skdgp.inference.exact import ExactGP
from skdgp.inference.rows import conditioned, marginal_likelihood
from skdgp.inference.rows.unique_inputs import gather
from skdgp.optim.lbfgs import LBFGS
from skdgp.training import Checkpoint

KERNEL = Anova(1.5, [0.6, 1.1], [0.8, 3.0], 1.4)


def repeated(n=30, k=1):
    """Two unique inputs of ten and eleven rows, a pair of copies, and rows that are alone."""
    X, y = rows(n, k)
    X[3:12], X[20:] = X[2], X[19]
    X[13], y[13] = X[12], y[12]
    return X, y


def make(k=1, likelihood=None, n_neighbors=5, kernel=KERNEL):
    """A model with noises .1, .2, ... for the outputs."""
    bound = noisy(k, likelihood)
    return Exact(n_neighbors).build(
        architecture(n_latents=bound.n_latents(k), kernel=kernel), bound
    )


def solved(X, y, weight=None, **settings):
    """A model with given numbers of kernel and noise, that knows these rows."""
    model, batch = make(y.shape[1], **settings), everything(X, y, weight)
    model.hold(batch)
    model.unsolved = batch
    model._solve()
    return model


def make_wide(X, y):
    """A model for any number of columns, and a batch of all rows."""
    shape = architecture(n_features=X.shape[1], kernel="anova")
    return Exact().build(shape, noisy()), everything(X, y)


def regressor(**settings):
    return DeepGPRegressor(1, inference="exact", random_state=0, **settings)


def covariance(A, B):
    return KERNEL.bind(2)(torch.as_tensor(A), torch.as_tensor(B)).numpy()


def given(X, y, weight, x, noise):
    """Mean and variance of a function at rows `x`, by conditioning on rows that count."""
    near = weight > 0.0
    mean, cov = condition(covariance, X[near], y[near], x, noise / weight[near])
    return mean, np.diag(cov)


def rest_of(i, weight, place, alone):
    """Weights without a row: one count of it where others of its place differ, or else all."""
    rest = weight.copy()
    if alone[i]:
        rest[place == place[i]] = 0.0
    else:
        rest[i] -= min(weight[i], 1.0)
    return rest


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
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert len(named) == 4  # three of the kernel, and the noise; none of the local scale
    for _, parameter in named:
        parameter.grad = torch.zeros_like(parameter)
    model.lower_bound(batch)
    check_gradients(lambda: model.lower_bound(batch), named)


def test_evidence_of_a_part_of_the_places(monkeypatch):
    monkeypatch.setattr(ExactGP, "marginal_rows", 8)
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
    monkeypatch.setattr(ExactGP, "marginal_rows", 8)
    for a, b in zip(latents(solved(X, y), torch.tensor(X)), expected):
        assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("kernel", "least", "expected"),
    [(KERNEL, 5, 7), (KERNEL + Linear(), 5, 7), (KERNEL, 9, 9), (Matern(1.5, 1.0), 5, 40)],
)
def test_evidence_of_fewer_places_where_the_kernel_is_dear(kernel, least, expected, monkeypatch):
    monkeypatch.setattr(marginal_likelihood, "MARGINAL_FACTORS", 2 * 7**2)  # two columns
    monkeypatch.setattr(marginal_likelihood, "MARGINAL_ROWS", (least, 1000))
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
def test_first_steps_on_a_part_of_the_rows(kernel, most, monkeypatch, watch):
    """They see that part alone, and end where they converge; others find the best numbers for all rows."""
    X, y = rows(80)
    batch, seen = everything(X, y), set()

    def trained():
        model, counts = make(kernel=kernel), []
        while not model.finished:
            assert len(counts) < 200
            seen.clear()
            model.step(batch, None)
            counts.append(sorted(seen))
        return model, counts

    evidence = "log_marginal_likelihood"
    watch(ExactGP, evidence, lambda n, model: seen.add(len(model._marginal_subset)))
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
    # 10 tolerances
    assert_allclose(model.lower_bound(batch), all_rows.lower_bound(batch), atol=80 * 1e-5)


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
    center, total = mixed(model, torch.tensor(x))
    assert draws.shape == (4000, *center.shape)
    assert ((draws.mean(0) - center).abs() < 4.5 * (total / 4000).sqrt()).all()
    error = (draws - draws.mean(0)).square().std(0) / 4000**0.5
    # features of the prior leave an error of a few hundredths
    assert ((draws.var(0) - total).abs() < 4.5 * error + 0.03 * total).all()
    assert_allclose(f(torch.tensor(x[1:])), draws[:, 1:], rtol=1e-9)  # the same functions
    if likelihood is Gaussian:
        for j in range(2):
            expected = condition(covariance, X, y[:, j], x, 0.1 * (j + 1))[1]
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
        expected = condition(covariance, X, y[:, j], x, 0.1 * (j + 1))[1]
        root, found = np.sqrt(np.diag(expected)), np.sqrt(np.diag(cov[j]))
        expected = expected / np.outer(root, root)
        assert_allclose(cov[j] / np.outer(found, found), expected, atol=1e-8)


@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_draws_between_rows_have_the_quantiles_of_the_prediction(likelihood):
    """Where lengthscales are long, all that is unknown between rows is in the tail of the spectrum."""
    X = rows(60)[0]
    model = regressor(
        kernel=Anova(1.5, [10.0, 20.0], [1.0, 3.0], trainable=False),
        likelihood=likelihood(variance=1e-5, trainable=False),
        standardize=False,
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
    actual, errors = posterior(model).left_out(np.arange(30))
    of_places = in_place(X, y, weight)[3:]
    for i in range(30):
        rest, expected = rest_of(i, weight, *of_places), 0.0
        for j in range(k):
            mean, var = given(X, y[:, j], rest, X[[i]], 0.1 * (j + 1))
            expected += norm(mean, np.sqrt(var + 0.1 * (j + 1))).logpdf(y[i, j])
            assert_allclose(errors[i, j], y[i, j] - mean[0], rtol=1e-6, atol=1e-9)
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
        rest = rest_of(i, weight, place, alone)
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
    frozen, dispersions = posterior(model), np.array([1.0, 0.6, 1.3])
    actual = frozen.loo_log_density(np.arange(30), dispersions)
    assert_allclose(frozen.loo_log_density(np.arange(30)), actual[0], rtol=1e-12)
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
    log_weights, m, v = (part.numpy() for part in posterior(model, 200).latent(torch.tensor(x)))
    for i in range(len(x)):
        errors = z[nearest(Z, x[i], k)]
        for noise in (0.0, 0.1):  # of the function, and of a target
            expected = student_t(numbers_of(model), k, errors, mean[i], var[i] + noise)
            found = norm(m[:, i, 0], np.sqrt(v[:, i, 0] + noise * np.exp(m[:, i, 1])))
            for level in (-3.0, 0.0, 1.0):
                at = mean[i] + level * np.sqrt(var[i] + noise)
                density = np.exp(log_weights) @ found.pdf(at)
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
    same(*states)


# States


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
    batch = everything(*rows(60))
    (one,) = check_resumed(lambda: make(likelihood=HeteroscedasticGaussian()), batch, 8, [4])
    assert one._n_first == (n_first - 4 if n_first > 3 else -1)
    assert len(one.steps.search.pairs) <= 4 and not one.steps.search.converged


@pytest.mark.parametrize("where", ["_condition", "_leave_one_out", "_learn_scale"])
def test_interrupt_while_it_conditions(where, monkeypatch):
    X, y = rows()
    batch, found = everything(X, y), []

    def interrupt(*_):
        raise KeyboardInterrupt

    for interrupted in (False, True):
        model = make(likelihood=HeteroscedasticGaussian())
        model.step(batch, None)
        if interrupted:
            with monkeypatch.context() as patch:
                patch.setattr(model, where, interrupt)
                with pytest.raises(KeyboardInterrupt):
                    model.state()
        found.append(latents(model, torch.tensor(X))[0])
    assert_array_equal(*found)


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
    model = regressor(warm_start=True)
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
    model = regressor(warm_start=True)
    model.fit(X, y[:, 0])
    last, before = model.loss_curve_[-1], model.predict(X)
    model.set_params(max_iter=1).fit(X, y[:, 0])
    assert model.loss_curve_[0] <= last + 1e-9
    assert_allclose(model.predict(X), before, atol=1e-2)


def test_given_numbers_are_looked_at_once(watch):
    calls = watch(ExactGP, "log_marginal_likelihood")
    X, y = rows()
    kernel, noise = Anova(trainable=False), Gaussian(variance=0.1, trainable=False)
    model = regressor(kernel=kernel, likelihood=noise, max_iter=7).fit(X, y[:, 0])
    assert len(calls) == 1
    assert len(model.loss_curve_) == 7 and len(set(model.loss_curve_)) == 1


def test_resume_after_it_has_converged(tmp_path, watch):
    """Rows are left out for stacking at the end, by a model that makes no more steps."""
    X, y = rows(60)
    settings = {"max_iter": 60, "n_inducing": 5, "n_predict_draws": 8, "random_state": 0}
    expected = DeepGPRegressor(**settings).fit(X, y[:, 0])
    model = DeepGPRegressor(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=5), **settings)

    def killed(n, model, *_):
        if n == 117 and model.finished:  # the second of two
            raise RuntimeError("killed")

    watch(ExactGP, "step", killed)
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
    model, x = make(2, likelihood()), torch.tensor(X[:7] + 0.1)
    batch = everything(X, y, weights_of("counts", 30))
    model.step(batch, None)
    frozen = posterior(model)
    expected = everything_of(frozen, x)
    for _ in range(3):
        model.step(batch, None)
    # a state predicts what the model does, but has not seen the rows
    state, other = model.state(), make(2, likelihood())
    other.load_state(state)
    same(other.state(), state)
    assert posterior(other).loo_log_density(np.arange(20)) is None
    other.hold(batch)
    for a, b in zip(*(everything_of(posterior(m), x) for m in (model, other))):
        assert_array_equal(a, b)
    model.load_state({name: array + 0.3 * ("log" in name) for name, array in state.items()})
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda _: everything_of(frozen, x), range(24)):
            for a, b in zip(found, expected):
                assert_array_equal(a, b)
    assert (posterior(model).latent(x).mean - frozen.latent(x).mean).abs().max() > 0.01


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


def test_composite_kernels():
    X, y = rows()
    kernel = Anova() + Linear() * Matern(2.5)
    model = regressor(kernel=kernel).fit(X, y[:, 0])
    assert model.score(X, y[:, 0]) > 0.5


def test_wiggles_are_not_taken_for_noise(monkeypatch):
    """From long lengthscales alone, the marginal likelihood leads to an optimum where all is noise."""
    rng, evidence = np.random.default_rng(0), []
    X = rng.uniform(0.0, 10.0, (80, 1))
    y = np.sin(10.0 * X[:, 0]) + 0.05 * rng.standard_normal(80)
    for starts in (marginal_likelihood._STARTS, marginal_likelihood._STARTS[:1]):
        monkeypatch.setattr(marginal_likelihood, "_STARTS", starts)
        model = regressor(likelihood="gaussian").fit(X, y)
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
    model, batch = make_wide(X, X[:, 0])
    model.limit(2.0, 1e12)
    assert np.isfinite(model.step(batch, None))
    assert clock[0] < 3.0  # one step of a start, and one of the training, end after their share
    assert model._by_columns
    model, _ = make_wide(X, X[:, 0])
    model.limit(0.25, 1e12)
    model.hold(batch)
    assert len(model._marginal_subset) == 144  # 30 times its square: a quarter of 2,500,000 factors


@pytest.mark.parametrize("better", ["start", "loose"])
def test_the_better_of_two_searches(better, monkeypatch):
    """The one from the best start, or the one from where normal priors have led to."""
    X = np.random.default_rng(0).normal(size=(20, 8))
    model, batch = make_wide(X, X[:, 0])
    model.hold(batch)
    given, searches = parameters_to_vector(model.free()).detach().clone(), []

    def searched(x, n_steps, batch):
        search, is_loose = LBFGS(), bool((x > given).all())
        search.x = x + (0.1 if model._by_columns else 1.0)
        search.f = 0.0 if (x < given).any() else -0.5  # of the noisy start, and of others
        if search.f and model._by_columns and is_loose == (better == "loose"):
            search.f = -1.0
        searches.append(search)
        return search

    monkeypatch.setattr(model, "_searched", searched)
    model.choose_start(batch)
    expected = given + (1.1 if better == "loose" else 0.1)
    assert_allclose(parameters_to_vector(model.free()).detach(), expected)
    assert model._by_columns
    assert model.steps.search.x is None and len(model._marginal_subset) == 20


def test_columns_of_which_only_the_product_matters_are_found():
    """Each alone tells nothing, so that a prior holds it at the level of thirty columns."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 30))
    f = np.tanh(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    y = f + 0.3 * rng.standard_normal(400)
    model = regressor().fit(X[:150], y[:150])
    assert model.score(X[150:], f[150:]) > 0.8


def test_interactions_are_found():
    """A ridge has no parts that add up; from small strengths, it is taken for noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (100, 5))
    f = np.sin(3.0 * X[:, :3].sum(1))
    model = regressor()
    assert model.fit(X, f + 0.05 * rng.standard_normal(100)).score(X, f) > 0.95


@pytest.mark.parametrize("kernel", ["anova", "rational_quadratic"])
def test_a_tenth_of_signal_is_no_noise(kernel):
    """Lengthscales of a hundredth explain such targets almost as well, and predict their mean."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 2))
    y = rng.gamma(0.5, 2.0 * np.exp(1.5 * X[:, 0]))
    new = rng.uniform(size=(1000, 2))
    model = regressor(kernel=kernel, likelihood="gaussian", target_transform=None).fit(X, y)
    assert np.corrcoef(model.predict(new), np.exp(1.5 * new[:, 0]))[0, 1] > 0.95


def test_steps_on_few_rows_do_not_mislead():
    """Of the start, and of where few rows lead, the better one on all rows goes on."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (300, 8))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(300)
    model, batch = make_wide(X, y)
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
