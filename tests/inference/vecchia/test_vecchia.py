"""Nearest-neighbor Gaussian processes."""

import copy

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from oracles import condition, leave_one_out
from scipy.integrate import quad
from scipy.stats import cauchy, gamma, multivariate_t, norm, spearmanr, t
from toys import (
    architecture,
    check_resumed,
    draw_functions,
    everything,
    latents,
    mixed,
    noisy,
    objective,
    posterior,
    rows,
    seeded,
    without_priors,
)

from skdgp import DeepGPRegressor
from skdgp.gp import kernels
from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.inference import Vecchia
from skdgp.inference.rows import near_rows
from skdgp.inference.rows.near_rows import FrozenRows, GaussianTargets, NearRows
from skdgp.inference.vecchia import neighbors

LENGTHSCALES = np.array([0.3, 1.1])


def make(X, y, n_neighbors=8, likelihood=None, weight=None):
    """A model that holds these rows, with noises .1, .2, ... for the outputs."""
    bound, weight = noisy(y.shape[1], likelihood), np.ones(len(X)) if weight is None else weight
    kernel = kernels.RationalQuadratic(alpha=0.7, lengthscale=LENGTHSCALES, variance=1.4)
    shape = architecture(n_latents=bound.n_latents(y.shape[1]), kernel=kernel)
    model = Vecchia(n_neighbors).build(shape, bound)
    model.layers[0].hold(Z=torch.tensor(X), y=torch.tensor(y), weight=torch.tensor(weight))
    model._look_in(LENGTHSCALES)
    model._count_near()
    return model


def covariance_of(model):
    """Its kernel, of arrays."""

    @torch.no_grad()
    def covariance(A, B):
        return model.layers[0].kernel()(torch.tensor(A), torch.tensor(B)).numpy()

    return covariance


@torch.no_grad()
def set_scale(model, count, log_odds=None):
    model.local_scale.log_count.fill_(np.log(count))
    if log_odds is not None:
        model.local_scale.log_odds.fill_(log_odds)
    return model


def near(**settings):
    return DeepGPRegressor(1, **{"inference": "vecchia", "random_state": 0, **settings})


def left_out(model, batch, rows, dispersions=None):
    """Log densities of rows that the model gives to each from all others."""
    model.hold(batch)
    return posterior(model).loo_log_density(rows, dispersions)


def without(model, rows):
    return model.near().without(model._training_rows, rows, model._search)


def nearest(X, x, k, excluded=None):
    distance = np.square((X - x) / LENGTHSCALES).sum(1)
    if excluded is not None:
        distance[excluded] = np.inf
    return np.argsort(distance)[:k]


@pytest.mark.parametrize(
    ("kernel", "other", "combine"),
    [
        ("matern32", "rational_quadratic", kernels.Sum),
        ("matern52", "arc_cosine", kernels.Product),
        ("squared_exponential", "rational_quadratic", kernels.Product),
        ("linear", "arc_cosine", kernels.Sum),
        ("anova", "rational_quadratic", kernels.Product),
    ],
)
def test_covariances_within_groups(kernel, other, combine):
    kernel = combine(as_kernel(kernel), as_kernel(other)).bind(3)
    X = torch.randn(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X[:, 1] = X[:, 3]  # where slopes of a root do not exist
    X.requires_grad_()
    K = kernel.within(X)
    for group, K_group in zip(X, K):
        assert_allclose(K_group.detach(), kernel(group, group).detach(), rtol=1e-9, atol=1e-9)
    assert torch.isfinite(torch.autograd.grad(K.sum(), X)[0]).all()


@pytest.mark.parametrize(
    "name", ["squared_exponential", "matern32", "matern52", "rational_quadratic"]
)
@pytest.mark.parametrize("distance", [1e2, 1e5, 1e8, 1e12, 1e100])
def test_covariances_of_neighbors_do_not_suffer_from_a_row_that_is_far(name, distance):
    kernel = as_kernel(name).bind(3)
    X = torch.rand(4, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X[:, -1] += distance
    expected = kernel.within(X[:, :-1])
    differences = (X[:, :-1, None] - X[:, None, :-1]) / kernel.lengthscale[0]
    profile = kernel.profile(differences.square().sum(-1).clamp_min(1e-20))
    assert_allclose(expected, profile, rtol=1e-10)
    K = kernel.within(X)
    assert_allclose(K[:, :-1, :-1], expected, rtol=1e-12)
    assert_allclose(K[:, -1, -1], 1.0)
    squares = ((X[:, -1:] - X[:, :-1]) / kernel.lengthscale[0]).square().sum(-1)
    assert_allclose(K[:, -1, :-1], kernel.profile(squares), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("distance", [1e3, 1e5, 1e10])
def test_predictions_far_from_the_data_without_scaling(distance):
    X = np.random.default_rng(0).uniform(0.0, 1.0, (60, 1))
    model = near(kernel="squared_exponential", standardize=False, max_iter=20)
    model.fit(X, np.sin(12.0 * X[:, 0]))
    alone = model.predict([[0.5]], return_std=True)
    far = model.predict([[0.5], [distance]], return_std=True)
    assert_allclose([far[0][0], far[1][0]], np.ravel(alone), rtol=1e-9)
    assert_allclose(far[0][1], 0.0, atol=1e-9)
    assert far[1][1] > 0.3


@pytest.mark.parametrize("n_neighbors", [1, 8])
def test_prediction_conditions_on_the_nearest_rows(n_neighbors):
    X, y = rows(k=2)
    weight = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    model = make(X, y, n_neighbors, weight=weight)
    x = np.array([[0.3, -0.4], [5.0, 5.0]])
    mean, var = latents(model, torch.tensor(x))
    for i in range(2):
        near = nearest(X, x[i], n_neighbors)
        for j in range(2):
            noise = 0.1 * (j + 1) / weight[near]
            expected = condition(covariance_of(model), X[near], y[near, j], x[[i]], noise)
            assert_allclose(mean[0, i, j], expected[0][0], rtol=1e-9)
            assert_allclose(var[0, i, j], expected[1][0, 0], rtol=1e-7)


def test_objective_is_the_leave_one_out_density():
    """For neighbors that are all others."""
    X, y = rows(k=2)
    model, expected = make(X, y, n_neighbors=39), 0.0
    for j in range(2):
        K = covariance_of(model)(X, X) + 0.1 * (j + 1) * np.eye(len(X))
        mean, var = leave_one_out(K, y[:, j])
        expected += norm.logpdf(y[:, j], mean, np.sqrt(var)).sum()
    assert_allclose(objective(model, everything(X, y)), expected, rtol=1e-9)


@pytest.mark.parametrize("n_neighbors", [1, 8])
def test_local_scale_is_a_student_t_process(n_neighbors):
    """The density of a row given its neighbors is a ratio of multivariate t densities."""
    X, y = rows()
    model = make(X, y, n_neighbors, HeteroscedasticGaussian())
    # the marginal likelihood of neighbors counts in full
    model = without_priors(set_scale(model, 3.7, 50.0))
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(X))
    covariance, expected = covariance_of(model), 0.0
    for i in range(len(X)):
        near = [*nearest(X, X[i], n_neighbors, excluded=i), i]
        noise = 0.1 / np.append(weight[near[:-1]], 1.0)
        K, target = covariance(X[near], X[near]) + np.diag(noise), y[near, 0]
        joint = multivariate_t(shape=K, df=3.7).logpdf(target)
        given = multivariate_t(shape=K[:-1, :-1], df=3.7).logpdf(target[:-1])
        expected += weight[i] * (joint - given)
    assert_allclose(objective(model, everything(X, y, weight)), expected, rtol=1e-8)


@pytest.mark.parametrize("n", [2, 3, 12])
def test_degrees_of_freedom_are_those_of_the_neighbors_that_there_are(n):
    """A row that is left out of no more unique inputs than neighbors has one neighbor less than predictions."""
    X, y = rows(n)
    model = set_scale(make(X, y, 12, HeteroscedasticGaussian()), 3.7, 50.0)
    K = covariance_of(model)(X, X) + 0.1 * np.eye(n)
    found = left_out(model, everything(X, y), np.arange(n))
    errors = posterior(model).left_out(np.flip(np.arange(n)).copy())[1][::-1, 0]
    for i, density in enumerate(found):
        rest = np.arange(n) != i
        solved = np.linalg.solve(K[np.ix_(rest, rest)], np.c_[K[rest, i], y[rest]])
        dof = 3.7 + n - 1
        scale = (3.7 + y[rest, 0] @ solved[:, 1]) / dof * (K[i, i] - K[i, rest] @ solved[:, 0])
        expected = t(dof, K[i, rest] @ solved[:, 1], np.sqrt(scale)).logpdf(y[i, 0])
        assert_allclose(density, expected, rtol=1e-7)
        assert_allclose(errors[i], y[i, 0] - K[i, rest] @ solved[:, 1], rtol=1e-7)


def test_objective_of_some_rows_is_an_estimate_for_all():
    """100 of 600 rows at a time; what numbers have as a prior counts once."""
    X, y = rows(600)
    model = make(X, y)
    model._priors = [
        one._replace(prior=one.prior.around(one.parameter.detach() - 5.0)) for one in model._priors
    ]
    weight = np.random.default_rng(5).uniform(0.5, 2.0, 600)
    batch = everything(X, y, weight)
    looks = [objective(model, batch, seed) for seed in range(100)]
    negative_log_prior = 12.5 * len(model._priors)  # lengthscales have one level
    expected = weight @ left_out(model, batch, np.arange(600)) - negative_log_prior
    error = np.std(looks, ddof=1) / np.sqrt(100)
    assert error < 0.1 * negative_log_prior
    assert abs(np.mean(looks) - expected) < 4.0 * error


@pytest.mark.parametrize("likelihood", [Gaussian(), HeteroscedasticGaussian()])
def test_rows_left_out_with_another_spread(likelihood):
    """A density of twice the width is half as high, of an error half as large."""
    X, y = rows()
    spreads = np.array([0.5, 1.0, 2.0])
    batch = everything(X, y)
    model = make(X, y, likelihood=likelihood)
    actual = left_out(model, batch, np.arange(40), spreads)
    assert_allclose(actual[1], left_out(model, batch, np.arange(40)), rtol=1e-12)
    with torch.no_grad():
        _, mean, *_ = without(model, np.arange(40))
    for i, spread in enumerate(spreads):
        for row in range(0, 40, 7):
            other = y.copy()
            other[row] = mean[row].numpy() + (y[row] - mean[row].numpy()) / spread
            moved = left_out(
                make(X, other, likelihood=likelihood), everything(X, other), np.array([row])
            )
            assert_allclose(actual[i, row], moved[0] - np.log(spread), rtol=1e-9)


@pytest.mark.parametrize("k", [1, 2])
def test_rows_with_the_same_inputs_are_one_neighbor(k):
    """With as many neighbors as unique inputs, densities are those of the exact process, row by row."""
    X, y = rows(30, k=k)
    X[3:12], X[20:] = X[2], X[19]  # two unique inputs of ten and eleven rows; others are alone
    weight = np.random.default_rng(3).uniform(0.5, 2.0, len(X))
    model = make(X, y, n_neighbors=30)
    batch, covariance = everything(X, y, weight), covariance_of(model)
    alone = np.isin(np.arange(30), [0, 1, *range(12, 19)])  # which have a neighbor less
    found, expected = np.zeros((2, 30))
    for part in (alone, ~alone):
        found[part] = left_out(model, batch, np.flatnonzero(part))
    x = X[[2, 19, 15]] + np.array([[0.0], [0.0], [0.3]])
    mean, var = (part[0].numpy() for part in latents(model, torch.tensor(x)))
    for j in range(k):
        noise = 0.1 * (j + 1)
        for i in range(30):
            left = weight[i] if alone[i] else min(weight[i], 1.0)  # one count where others are
            rest = weight - left * (np.arange(30) == i)
            others = rest > 0.0
            m, v = condition(covariance, X[others], y[others, j], X[[i]], noise / rest[others])
            expected[i] += norm(m[0], np.sqrt(v[0, 0] + noise)).logpdf(y[i, j])
        m, v = condition(covariance, X, y[:, j], x, noise / weight)
        assert_allclose(mean[:, j], m, rtol=1e-7)
        assert_allclose(var[:, j], np.diag(v), rtol=1e-6)
    assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_inputs_and_targets_with_two_values(likelihood):
    """A row used to be predicted from those with the other target alone."""
    rng = np.random.default_rng(0)
    k = rng.integers(0, 2, 600)
    y = (rng.random(600) < np.where(k == 1, 0.8, 0.3)).astype(float)
    model = near(likelihood=likelihood).fit(k[:, None], y)
    mean, std = model.predict([[0], [1]], return_std=True)
    cells = [y[k == value] for value in (0, 1)]
    assert_allclose(mean, [cell.mean() for cell in cells], atol=0.03)
    assert_allclose(std, [cell.std() for cell in cells], rtol=0.15)


@pytest.mark.parametrize("likelihood", [Gaussian(), HeteroscedasticGaussian()])
@pytest.mark.parametrize(("n", "k", "n_neighbors"), [(12, 1, 20), (40, 2, 8)])
def test_rows_that_are_left_out_do_not_depend_on_others(likelihood, n, k, n_neighbors):
    """Even if others leave a place out, and there are no more unique inputs than neighbors."""
    X, y = rows(n, k=k)
    X[[3, 7]] = X[[2, 6]]  # two unique inputs with two targets each
    model, batch = make(X, y, n_neighbors, likelihood), everything(X, y)
    order = np.array([3, 0, 7, 1, 2, 11, 6, 5])
    alone = [left_out(model, batch, order[i : i + 1]) for i in range(8)]
    assert_allclose(left_out(model, batch, order), np.concatenate(alone), rtol=1e-12)
    spreads = np.array([0.5, 2.0])
    both = left_out(model, batch, order, spreads)
    alone = [left_out(model, batch, order, spreads[i : i + 1])[0] for i in range(2)]
    assert_allclose(both, alone, rtol=1e-12)
    total = left_out(model, batch, np.arange(n)).sum()
    assert_allclose(objective(model, batch), total, rtol=1e-12)


def test_neighbors_do_not_depend_on_targets():
    """Of many rows in the same place, those with the lowest targets came first."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [1.0]], 100, 0)
    y = 5.0 * X[:, 0] + rng.standard_normal(200)
    mean, std = near().fit(X, y).predict([[0.0], [1.0]], return_std=True)
    assert_allclose(mean, [y[:100].mean(), y[100:].mean()], atol=0.1)  # a standard error
    assert_allclose(std, [1.0, 1.0], rtol=0.15)


def test_outputs_have_one_mixing_variable():
    """Rows left out: Gaussian outputs of one unknown factor, over which is integrated."""
    X, y = rows(k=3)
    model = set_scale(make(X, y, likelihood=HeteroscedasticGaussian()), 1.7)
    with torch.no_grad():
        actual = left_out(model, everything(X, y), np.arange(40))
        target, mean, sd, z = without(model, np.arange(40))
        scale = sd * model.local_scale.squared(z).sqrt()
        dof = float(model.local_scale.dof())
    for i in range(0, 40, 5):
        at, center, width = (part[i].numpy() for part in (target, mean, scale))

        def joint(log_l, at=at, center=center, width=width):
            density = norm.pdf(at, center, width * np.exp(-0.5 * log_l)).prod()
            return density * gamma.pdf(np.exp(log_l), 0.5 * dof, scale=2.0 / dof) * np.exp(log_l)

        expected = np.log(quad(joint, -15.0, 5.0, epsabs=0.0, limit=200)[0])
        assert_allclose(actual[i], expected, rtol=1e-7)


def test_rows_left_out_have_the_predictive_density_of_the_others():
    X, y = rows(k=2)
    y[::7] += 2.0  # errors of several standard deviations
    model = make(X, y, likelihood=HeteroscedasticGaussian())
    actual = left_out(model, everything(X, y), np.arange(40))
    for i in range(0, 40, 3):
        others = make(np.delete(X, i, 0), np.delete(y, i, 0), likelihood=HeteroscedasticGaussian())
        log_weights, *moments = posterior(others, 200).latent(torch.tensor(X[[i]]))
        with torch.no_grad():
            density = others.likelihood().log_partition(torch.tensor(y[[i]]), *moments)
        expected = torch.logsumexp(log_weights[:, None] + density, 0)
        assert_allclose(actual[i], expected[0], rtol=1e-8)


def test_errors_of_outputs_are_large_together():
    X, y = rows(k=2)
    model = set_scale(make(X, y, likelihood=HeteroscedasticGaussian()), 1.7, -50.0)
    draws = draw_functions(model, 10_000, seeded(0), 20)(torch.tensor(X[:3] + 3.0))
    errors = abs(draws[..., :2] - draws[..., :2].median(0).values)
    dof = float(model.local_scale.dof().detach())
    independent = multivariate_t(shape=np.eye(2), df=dof, seed=0).rvs(200_000)
    expected = spearmanr(*abs(independent.T))[0]
    assert expected > 0.1
    for i in range(3):
        assert_allclose(spearmanr(*errors[:, i].T.numpy())[0], expected, atol=0.04)
    mixing = draws[..., 2:] - draws[:1, :, 2:]  # in logarithms, relative to the first draw
    assert_allclose(mixing, mixing[:, :1, :1].expand_as(mixing), atol=1e-9)


def test_numbers_have_a_prior():
    """Log-normal, with a standard deviation of one, around the starts; it counts once, not per batch.

    Of the columns' lengthscales the level has it; deviations from it have Cauchy distributions.
    """
    X, y = rows(400)  # of which 300 are looked at
    model, batch = make(X, y, likelihood=HeteroscedasticGaussian()), everything(X, y)
    with torch.no_grad():
        model.layers[0].kernel.assign(lengthscale=LENGTHSCALES * np.exp([0.5, -1.0]))
        model.local_scale.log_count += 0.3
        model.local_scale.log_odds -= 0.7
    with_prior = objective(model, batch)
    prior = 0.5 * (0.25**2 + 0.3**2 + 0.7**2)
    prior += (cauchy.logpdf(0.0, scale=0.3) - cauchy.logpdf([0.75, -0.75], scale=0.3)).sum()
    assert_allclose(objective(without_priors(model), batch) - with_prior, prior, rtol=1e-8)


def test_few_rows_are_not_overfitted():
    """Nowhere near worse than one normal distribution for all rows."""
    rng = np.random.default_rng(5)
    X, x = rng.uniform(size=(8, 3)), rng.uniform(size=(300, 3))
    f = lambda X: np.sin(5.0 * X[:, 0]) + X[:, 1]  # noqa: E731
    y, y_new = f(X) + 0.3 * rng.normal(size=8), f(x) + 0.3 * rng.normal(size=300)
    constant = norm(y.mean(), y.std(ddof=1)).logpdf(y_new).mean()
    assert near().fit(X, y).log_predictive_density(x, y_new).mean() > constant - 0.5


def test_large_counts_forget_the_local_scale():
    X, y = rows()
    local = set_scale(make(X, y, likelihood=HeteroscedasticGaussian()), 1e6)
    models, batch = (make(X, y), without_priors(local)), everything(X, y)
    assert_allclose(*(objective(model, batch) for model in models), rtol=1e-4)


def test_predictive_density_is_student_t():
    X, y = rows(200)
    model = near(inference=Vecchia(10), max_iter=20).fit(X, y[:, 0])
    net, scale = model.members_[0].model("cpu"), model._y_scaler.scale
    x = torch.tensor(model._x_scaler.transform(X[:9] + 0.05))
    with torch.no_grad():
        mean, sd, _, z = net.near().say(x, net._search(x))
        dof, squared = net.local_scale.dof(), net.local_scale.squared(z)
    sd = (sd * squared.sqrt()).numpy()
    expected = t(float(dof), model._y_scaler.center + scale * mean.numpy(), scale * sd)
    # standard deviations
    for level, atol in ((-100.0, 0.2), (-8.0, 1e-5), (0.0, 1e-8), (1.0, 1e-8)):
        targets = expected.mean() + level * expected.std()
        actual = model.log_predictive_density(X[:9] + 0.05, targets[:, 0])
        assert_allclose(actual, expected.logpdf(targets)[:, 0], atol=atol)
    actual = model.predict(X[:9] + 0.05, return_std=True)
    assert_allclose(actual[0], expected.mean()[:, 0], rtol=1e-9)
    assert_allclose(actual[1], expected.std()[:, 0], rtol=1e-8)


class NearlySingular:
    """Covariances whose least eigenvalue, beside all nuggets, is what the row has for its first input."""

    def within(self, points):
        eigenvalues = torch.arange(points.shape[1]).double().expand(points.shape[:2]).clone()
        eigenvalues[:, 0] = points[:, -1, 0]
        Q = torch.linalg.qr(random(points.shape[1], points.shape[1]))[0]
        K = (Q * eigenvalues[:, None]) @ Q.T
        return K - torch.diag_embed(near_rows._NUGGET * torch.diagonal(K, dim1=-2, dim2=-1))


def random(*shape):
    return torch.tensor(np.random.default_rng(0).standard_normal(shape))


def test_rows_have_jitter_of_their_own():
    least = [0.3, -5e-12, -5e-10, 1.0, -5e-11]
    X, nearest = torch.tensor(least).double()[:, None], np.tile(np.arange(6), (5, 1))
    targets = GaussianTargets(torch.zeros(1).double())
    near = NearRows(NearlySingular(), random(6, 1), random(6, 1), torch.ones(6).double(), targets)
    for moments in (near.say, FrozenRows(near).moments):
        together = moments(X, nearest)
        for i in range(len(X)):
            for all_rows, alone in zip(together, moments(X[[i]], nearest[[i]])):
                assert torch.equal(all_rows[i], alone[0])


def test_row_is_never_its_own_neighbor():
    X, y = rows()
    X[10:] = X[0]  # more copies than neighbors
    model = make(X, y)
    found = model._search(torch.tensor(X), np.arange(len(X)), np.arange(len(X)))
    assert found.shape == (40, 8)
    assert not (found == np.arange(40)[:, None]).any()
    for i in range(10):  # the nearest last
        distance = np.square((X[found[i]] - X[i]) / LENGTHSCALES).sum(1)
        assert (np.diff(distance) <= 1e-12).all()


def test_places_as_far_as_each_other_are_taken_in_order():
    """On a lattice, rounding tells places apart that are equally far."""
    grid = np.linspace(0.0, 1.0, 8)
    X = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    y = np.sin(5.0 * X[:, :1])
    x = np.concatenate([X[:20], X[:20] + 1.0 / 14.0])
    excluded = np.where(np.arange(40) < 20, np.arange(40), -1)
    found = []
    for scale, shift in ((1.0, 0.0), (3.0, 1.0), (0.7, -1e3)):
        model = make(scale * X + shift, y, 10)
        model._look_in(np.full(2, 0.3 * scale))
        found.append(
            np.sort(model._search(torch.tensor(scale * x + shift), excluded, np.arange(64)))
        )
        assert_array_equal(found[-1], found[0])
    for i in range(40):  # by brute force
        distance = np.square(x[i] - X).sum(1).round(9)
        distance[excluded[i] if excluded[i] >= 0 else []] = np.inf
        assert_array_equal(found[0][i], np.sort(np.argsort(distance, kind="stable")[:10]))


def test_transformed_lattices_give_the_same_predictions():
    rng = np.random.default_rng(0)
    grid = np.linspace(0.0, 1.0, 6)
    X = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    y, x = np.sin(5.0 * X[:, 0]) + 0.1 * rng.normal(size=36), rng.uniform(size=(20, 2))
    one, other = (
        near(max_iter=10).fit(scale * X + shift, y).predict(scale * x + shift, return_std=True)
        for scale, shift in ((1.0, 0.0), (3.0, 1.0))
    )
    assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_weights_are_counts(repeated, likelihood):
    """For rows that are left out, and for predictions from all rows."""
    X, y = rows(30, k=2)
    if repeated:
        X[10:20] = X[0]
    weight = np.random.default_rng(4).integers(1, 4, 30)
    once = np.repeat(np.arange(30), weight)
    merged, copies = (make(X[i], y[i], likelihood=likelihood()) for i in (slice(None), once))
    found = left_out(merged, everything(X, y, weight.astype(float)), np.arange(30))
    expected = left_out(copies, everything(X[once], y[once]), np.arange(len(once)))
    assert_allclose(found[once], expected, rtol=1e-9)
    if likelihood is Gaussian and not repeated:
        weighted = make(X[:12], y[:12], n_neighbors=12, weight=weight[:12].astype(float))
        once = once[once < 12]
        copies = make(X[once], y[once], n_neighbors=60)
        for a, b in zip(*(latents(m, torch.tensor(X + 0.1)) for m in (weighted, copies))):
            assert_allclose(a, b, rtol=1e-7)


@pytest.mark.parametrize("likelihood", [Gaussian(), HeteroscedasticGaussian()])
def test_function_draws_have_the_moments_of_the_prediction(likelihood):
    X, y = rows(k=2)
    model = make(X, y, likelihood=likelihood)
    x = torch.tensor(np.array([[0.3, -0.4], [1.0, 1.0], [4.0, 4.0]]))
    f = draw_functions(model, 3000, seeded(0), 300)
    draws, (center, total) = f(x), mixed(model, x, 100)
    assert ((draws.mean(0) - center).abs() < 4.5 * (total / 3000).sqrt()).all()
    # features of the prior leave an error of a few hundredths of its variance
    assert_allclose(draws.var(0), total, rtol=0.15)
    assert_allclose(f(x[1:]), draws[:, 1:], rtol=1e-9)  # the same functions in every call


def test_draws_of_targets_follow_the_predictive_distribution():
    X, y = rows(100)
    model = near(max_iter=20).fit(X, y[:, 0])
    draws = model.sample_y(X[:3], 4000, random_state=0)
    mean, std = model.predict(X[:3], return_std=True)
    assert (abs(draws.mean(1) - mean) < 4.5 * std / np.sqrt(4000)).all()
    assert_allclose(draws.std(1), std, rtol=0.08)


def test_training_goes_on_where_it_stopped():
    """Past the searches of steps 10 and 25."""
    X, y = rows()

    def prepared():
        model = make(X, y, likelihood=HeteroscedasticGaussian())
        model.prepare(0.01, torch.float64)
        return model

    check_resumed(prepared, everything(X, y), 60, [30])


def test_objective_grows(monkeypatch):
    """That of all rows, though steps see a third of them."""
    X, y = rows(300)
    model = near(warm_start=True)

    def loss():
        """Before a step that sees all rows."""
        with monkeypatch.context() as patch:
            patch.setattr(neighbors, "_ROWS", 300)
            return copy.deepcopy(model).set_params(max_iter=1).fit(X, y[:, 0]).loss_curve_[0]

    before = loss()
    model.fit(X, y[:, 0])
    assert loss() < before - 0.13


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_with_all_rows_for_neighbors_covariances_are_those_of_the_exact_process(likelihood):
    """By hand, from the kernel; with a local scale, the mean of its factor and the roots of both rows'."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (25, 2))
    y = np.sin(X[:, 0]) + 0.2 * rng.standard_normal(25)
    model = near(inference=Vecchia(25), likelihood=likelihood, max_iter=5).fit(X, y)
    frozen = model.members_[0].posterior()
    x, held = (
        torch.as_tensor(model._x_scaler.transform(rng.uniform(-2.0, 2.0, (4, 2)))),
        frozen._near,
    )
    with torch.no_grad():
        noise = held.observed.targets(held.y[None], held.weight[None])[1][0, 0]
        kernel = lambda *A: held.kernel(*A).numpy()  # noqa: E731
        expected = condition(kernel, held.Z, held.y.numpy(), x, noise)[1]
        if likelihood == "heteroscedastic":
            z, scale = held.say(x, frozen._search(x))[3], frozen._local_scale
            dof = scale.dof()
            root = (scale.squared(z)[:, 0] * dof / (dof - 2.0)).sqrt().numpy()
            expected = root[:, None] * expected * root
    actual = frozen.covariance(x)
    assert actual.shape == (1, 4, 4)
    assert_allclose(actual[0], expected, rtol=1e-6, atol=1e-9)
