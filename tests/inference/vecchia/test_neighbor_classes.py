"""Nearest-neighbor Gaussian processes for classes, against brute force."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from oracles import condition
from scipy.special import log_softmax
from scipy.stats import cauchy, norm
from sklearn.datasets import make_moons
from toys import (
    architecture,
    draw_functions,
    everything,
    latents,
    objective,
    posterior,
    seeded,
    without_priors,
)

from skdgp import DeepGPClassifier
from skdgp.gp import kernels
from skdgp.gp.likelihoods import Bernoulli, RobustMax, Softmax
from skdgp.inference import Vecchia
from skdgp.inference.rows.near_rows import FrozenRows, NearRows
from skdgp.inference.vecchia import posterior as module
from skdgp.inference.vecchia.neighbor_classes import NeighborClasses
from skdgp.training import Checkpoint

LENGTHSCALES = np.array([0.3, 1.1])
ALPHA, SLOPE, FACTOR = 0.07, 1.7, 0.6


def rows(n=40, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    f = np.sin(2.0 * X[:, 0]) + 0.4 * rng.normal(size=n)
    edges = np.quantile(f, np.arange(1, n_classes) / n_classes)
    return X, np.digitize(f, edges)


def make(X, y, likelihood, n_neighbors=8, weight=None):
    """A model that holds these rows, with numbers that are not those of the start."""
    kernel = kernels.RationalQuadratic(alpha=0.7, lengthscale=LENGTHSCALES, variance=1.4)
    shape = architecture((), likelihood.n_latents(y.max() + 1), 1, kernel)
    model = Vecchia(n_neighbors).build(shape, likelihood)
    model.hold(everything(X, y, weight))
    with torch.no_grad():
        model.log_concentration.fill_(np.log(ALPHA))
        model.log_slope.fill_(np.log(SLOPE))
        model.log_factor.fill_(np.log(FACTOR))
        model.log_prior += 0.1 * torch.arange(len(model.log_prior))
    model._look_in(LENGTHSCALES)
    return model


def covariance(A, B):
    r2 = np.square((A[:, None] - B) / LENGTHSCALES).sum(-1)
    return 1.4 * (1.0 + r2 / (2.0 * 0.7)) ** -0.7


def conditioned(model, X, counts, x):
    """Moments of all classes at one row, given the counts of some places."""
    prior, moments = model.log_prior.detach().numpy(), []
    for c, n in enumerate(counts.T):
        s2 = np.log(1.0 + 1.0 / (n + ALPHA))
        target = np.log(n + ALPHA) - 0.5 * s2 - prior[c]
        mean, var = condition(covariance, X, target, x[None], s2)
        moments.append((prior[c] + SLOPE * mean[0], FACTOR * var[0, 0]))
    return np.array(moments).T


def nearest(X, x, k):
    return np.argsort(np.square((X - x) / LENGTHSCALES).sum(1))[:k]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_prediction_conditions_on_the_nearest_rows(n_classes):
    X, y = rows(n_classes=n_classes)
    weight = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    model = make(X, y, Softmax(), weight=weight)
    counts = np.eye(n_classes)[y] * weight[:, None]
    x = np.array([[0.3, -0.4], [5.0, 5.0]])
    mean, var = latents(model, torch.tensor(x))
    for i in range(2):
        near = nearest(X, x[i], 8)
        expected = conditioned(model, X[near], counts[near], x[i])
        assert_allclose(mean[0, i], expected[0], rtol=1e-8)
        assert_allclose(var[0, i], expected[1], rtol=1e-7)


def test_one_latent_function_is_the_difference_of_two():
    X, y = rows(n_classes=2)
    x = torch.tensor(X[:5] + 0.1)
    both, one = (make(X, y, likelihood) for likelihood in (Softmax(), Bernoulli()))
    (mean, var), (m, v) = (latents(model, x) for model in (both, one))
    assert_allclose(m[..., 0], mean[..., 1] - mean[..., 0], rtol=1e-12)
    assert_allclose(v[..., 0], var.sum(-1), rtol=1e-12)


def test_objective_is_the_log_probability_of_rows_that_are_left_out():
    X, y = rows(n_classes=2)
    model = make(X, y, Bernoulli(), n_neighbors=39)
    expected = []
    for i in range(len(X)):
        rest = np.arange(len(X)) != i
        mean, var = conditioned(model, X[rest], np.eye(2)[y[rest]], X[i])
        z = (mean[1] - mean[0]) / np.sqrt(1.0 + var.sum())
        expected.append(norm.logcdf(z if y[i] else -z))
    assert_allclose(posterior(model).loo_log_density(np.arange(len(X))), expected, rtol=1e-8)
    actual = objective(without_priors(model), everything(X, y))
    assert_allclose(actual, np.sum(expected), rtol=1e-8)


def test_numbers_have_a_prior():
    """Log-normal, with a standard deviation of one, around the starts; the constants have a normal one.

    Of the columns' lengthscales the level has it; deviations from it have Cauchy distributions.
    """
    X, y = rows()
    model = make(X, y, Softmax(n_nodes=2048))  # an integral nearly as good as that of left-out rows
    batch, everyone = everything(X, y), np.arange(len(X))
    with torch.no_grad():
        model.layers[0].kernel.assign(
            variance=1.4 * np.exp(0.3), lengthscale=LENGTHSCALES * np.exp([0.5, -1.0])
        )
    actual = objective(model, batch)
    own = np.log([ALPHA / 0.1, SLOPE, FACTOR])
    constants = 0.1 * np.arange(3)  # beside the logarithms of the shares
    prior = 0.5 * (0.3**2 + 0.25**2 + np.sum(own**2) + np.sum(constants**2))
    prior += (cauchy.logpdf(0.0, scale=0.3) - cauchy.logpdf([0.75, -0.75], scale=0.3)).sum()
    without = objective(without_priors(model), batch)
    assert_allclose(actual, without - prior, rtol=1e-9)
    assert_allclose(without, posterior(model).loo_log_density(everyone).sum(), rtol=1e-5)


def test_many_columns_do_not_overfit_few_rows():
    """Of labels that are noise nothing is learned; two columns among fifty are found."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1100, 30)), rng.integers(0, 2, 1100)
    model = near(max_iter=None).fit(X[:100], y[:100])
    assert -model.log_predictive_density(X[100:], y[100:]).mean() < np.log(2.0) + 0.05
    X = rng.normal(size=(1200, 50))
    p = 1.0 / (1.0 + np.exp(2.0 * X[:, 1] - 3.0 * X[:, 0]))
    y = (rng.uniform(size=1200) < p).astype(int)
    model = near(max_iter=None).fit(X[:200], y[:200])
    found = np.argsort(model.kernels_[0].lengthscale)[:2]
    assert set(found) == {0, 1}
    truth = -np.log(np.where(y == 1, p, 1.0 - p))[200:].mean()
    assert -model.log_predictive_density(X[200:], y[200:]).mean() < truth + 0.15


def test_softmax_of_left_out_rows_by_sampling():
    X, y = rows()
    model = make(X, y, Softmax(n_nodes=4096), n_neighbors=5)
    actual = posterior(model).loo_log_density(np.arange(6))
    rng = np.random.default_rng(0)
    for i in range(6):
        rest = np.flatnonzero(np.arange(len(X)) != i)
        near = rest[nearest(X[rest], X[i], 5)]
        mean, var = conditioned(model, X[near], np.eye(3)[y[near]], X[i])
        f = mean + np.sqrt(var) * rng.normal(size=(200_000, 3))
        p = np.exp(log_softmax(f, -1)[:, y[i]])
        assert abs(np.exp(actual[i]) - p.mean()) < 4.0 * p.std() / np.sqrt(len(p)) + 1e-3


@pytest.mark.parametrize(("i", "gone"), [(0, [0]), (2, [2, 3])])
def test_rows_of_one_place_are_counted(i, gone):
    """A place keeps its other rows when one of different labels is left out; copies go with it."""
    X, y = rows(12)
    X[1], X[3] = X[0], X[2]
    y[:4] = 0, 1, 2, 2
    model = make(X, y, Softmax(), n_neighbors=30)
    density = posterior(model).loo_log_density(np.array([i]))
    rest = np.delete(np.arange(12), gone)
    places, place = np.unique(X[rest], axis=0, return_inverse=True)
    counts = np.zeros((len(places), 3))
    np.add.at(counts, (place, y[rest]), 1.0)
    moments = (torch.tensor(a)[None] for a in conditioned(model, places, counts, X[i]))
    label = torch.tensor([[float(y[i])]])
    likelihood = model.likelihood().for_prediction(1)
    assert_allclose(density, likelihood.log_partition(label, *moments), rtol=1e-7)


@pytest.mark.parametrize("likelihood", [Softmax(), Bernoulli("logit")])
def test_functions_have_the_moments_of_predictions(likelihood):
    X, y = rows(n_classes=2)
    model = make(X, y, likelihood)
    x = torch.tensor([[0.2, 0.1], [0.25, 0.1], [4.0, 4.0]], dtype=torch.float64)
    n = 2000
    f = draw_functions(model, n, seeded(0), 512)(x)
    mean, var = (moment[0] for moment in latents(model, x))
    assert ((f.mean(0) - mean).abs() < 4.0 * (var / n).sqrt()).all()
    assert_allclose(f.var(0), var, rtol=4.0 * np.sqrt(2.0 / n) + 0.05)
    assert (torch.corrcoef(f[:, :2, 0].T)[0, 1] > 0.8).all()  # near rows share a function


def test_many_classes_take_fewer_rows_at_once(monkeypatch, watch):
    X, y = rows(200, 60)
    model, batch = make(X, y, Softmax(), n_neighbors=24), everything(X, y)
    calls = watch(NearRows, "without")
    assert np.isfinite(objective(model, batch))
    densities = posterior(model).loo_log_density(np.arange(200))
    # of which 2,000,000 / (25^2 60) are the most
    assert [len(chosen) for _, _, chosen, _ in calls] == [30, 50, 50, 50, 50]
    monkeypatch.setattr(module, "_AT_ONCE", 10**9)
    assert_allclose(densities, posterior(model).loo_log_density(np.arange(200)), rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 12])
def test_predictions_factorize_what_classes_share_once(n_classes):
    X, y = rows(200, n_classes)
    model = make(X, y, Softmax(), n_neighbors=7)
    x = torch.as_tensor(np.concatenate([X[:30] + 0.1, [[40.0, -3.0]]]))
    with torch.no_grad():
        near, nearest = model.near(), model._search(x)
        mean, sd, _, z = near.say(x, nearest)
        assert (near.y[nearest].amax(1) == 0.0).any()  # classes that no neighbor is of
        frozen = FrozenRows(near)
        for actual, expected in zip(frozen.moments(x, nearest), (mean, sd, z)):
            assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)
        each = [frozen.moments(x[[i]], nearest[[i]])[0] for i in range(len(x))]
    assert_allclose(torch.cat(each), mean, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, 12])
def test_rows_do_not_depend_on_one_that_cannot_be_factorized(n_classes, monkeypatch):
    X, y = rows(200, n_classes)
    model = make(X, y, Softmax(), n_neighbors=7)
    x, factorize = torch.as_tensor(X[:20] + 0.1), torch.linalg.cholesky_ex

    def failing(K):
        (L, info), fourth = factorize(K), torch.tensor([4])
        return L.index_fill(0, fourth, torch.nan), info.index_fill(0, fourth, 3)

    with torch.no_grad():
        near, nearest = model.near(), model._search(x)
        mean, sd, _, z = near.say(x, nearest)
        frozen = FrozenRows(near)
        intact, say = frozen.moments(x, nearest), NearRows.say
        again = []

        def said(self, X, nearest):
            again.append(len(X))
            monkeypatch.undo()
            return say(self, X, nearest)

        monkeypatch.setattr(NearRows, "say", said)
        monkeypatch.setattr(torch.linalg, "cholesky_ex", failing)
        found = frozen.moments(x, nearest)
    assert again == [1]
    for actual, before, expected in zip(found, intact, (mean, sd, z)):
        assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)
        differs = (actual != before).flatten(1).any(1)
        assert int(differs.sum()) <= 1


# ---- the estimator --------------------------------------------------------------------------------


def near(likelihood="auto", **settings):
    settings = {"inference": "vecchia", "max_iter": 40, "random_state": 0, **settings}
    return DeepGPClassifier(1, likelihood=likelihood, **settings)


@pytest.mark.parametrize("likelihood", ["auto", "logit", "softmax", RobustMax(0.05)])
def test_it_learns(likelihood):
    X, y = make_moons(600, noise=0.15, random_state=0)
    model = near(likelihood).fit(X[:300], np.where(y[:300], "up", "down"))
    assert (model.predict(X[300:]) == np.where(y[300:], "up", "down")).mean() > 0.96
    assert_allclose(model.predict_proba(X[300:]).sum(1), 1.0)


def test_probabilities_are_calibrated():
    """Labels are drawn with known probabilities; no constant comes near their entropy."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (3000, 2))
    p = 1.0 / (1.0 + np.exp(-3.0 * np.sin(2.0 * X[:, 0])))
    y = (rng.random(3000) < p).astype(int)
    model = near(max_iter=150).fit(X[:2000], y[:2000])
    p, y = p[2000:], y[2000:]
    best = np.log(np.where(y, p, 1.0 - p)).mean()
    found = model.log_predictive_density(X[2000:], y)
    assert found.mean() > best - 0.05
    q = model.predict_proba(X[2000:])[:, 1]
    spread = np.sqrt((q * (1.0 - q)).sum())
    assert abs((y - q).sum()) < 3.0 * spread
    sure = np.abs(q - 0.5) > 0.4
    assert abs((y - q)[sure].sum()) < 3.0 * np.sqrt((q * (1.0 - q))[sure].sum())


def test_state_goes_on_and_comes_back(tmp_path, kill):
    X, y = rows(80)
    whole = near().fit(X, y)
    model = near(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=4))
    kill(NeighborClasses, 21)
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(X, y)
    assert_array_equal(model.fit(X, y).predict_proba(X), whole.predict_proba(X))


def test_warm_start_keeps_what_was_learned():
    X, y = rows(80)
    scheme = Vecchia(80)  # whatever the metric
    model = near(warm_start=True, inference=scheme).fit(X, y)
    before = model.predict_proba(X)
    model.set_params(max_iter=1, learning_rate=1e-6).fit(X, y)
    assert_allclose(model.predict_proba(X), before, atol=1e-3)


def test_repeated_rows_are_weights():
    X, y = rows()
    counts = np.random.default_rng(0).integers(1, 4, len(X))
    weighted = near().fit(X, y, sample_weight=counts)
    repeated = near().fit(np.repeat(X, counts, 0), np.repeat(y, counts))
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-6)


def test_draws_of_functions_are_labels_and_latent_values():
    X, y = rows(60)
    model = near().fit(X, y)
    labels = model.sample_y(X, n_samples=200, random_state=0)
    share = (labels == 0).mean(1)
    p = model.predict_proba(X)[:, 0]
    assert np.abs(share - p).max() < 5.0 * 0.5 / np.sqrt(200)


def test_few_rows_and_far_ones():
    X, y = np.array([[0.0], [1.0], [2.0]]), [0, 1, 1]
    model = near().fit(X, y)
    p = model.predict_proba([[0.0], [1.5], [1e6], [-1e6]])
    assert np.isfinite(p).all()
    assert p[0, 0] > p[1, 0]
    assert 0.05 < p[2, 0] < 0.95  # far away nothing is sure


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0)])
def test_far_away_are_the_shares_of_the_classes(weights):
    """However one-sided the classes are at the borders of the data."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(60, 3))
    f = np.sin(5.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=60)
    y = (f > np.median(f)).astype(int)
    weight = np.array(weights)[y]
    model = near("softmax", max_iter=None).fit(X, y, sample_weight=weight)
    p = model.predict_proba([[50.0, 0.0, 0.0], [-9.0, -9.0, -9.0]])
    share = np.array(weights) / np.sum(weights)
    assert_allclose(p, np.tile(share, (2, 1)), atol=0.25)
    constants = model.members_[0].arrays["log_prior"]
    assert_allclose(constants, np.log(share), atol=0.8)


def test_constants_keep_their_median_in_a_state_that_is_loaded():
    X, y = rows()
    model, other = make(X, y, Softmax()), make(X, 2 - y, Softmax())
    other.load_state(model.state())
    assert_array_equal(other.log_prior.detach(), model.log_prior.detach())
    assert_allclose(*(objective(m, everything(X, y)) for m in (model, other)), rtol=1e-12)


def test_constants_are_expected_at_the_shares_of_the_classes():
    """Of rows that count by their weights, and one of each class."""
    X, y = rows()
    weight = 1.0 + np.arange(len(X)) % 3 + 2.0 * y
    counts = np.bincount(y, weight) + 1.0
    median = make(X, y, Softmax(), weight=weight)._priors[-1].prior.center()
    assert_allclose(median, np.log(counts / counts.sum()), rtol=1e-12)
