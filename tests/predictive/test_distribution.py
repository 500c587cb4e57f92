"""Predictive distributions as users hold them."""

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq
from scipy.stats import norm, t

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.gp.likelihoods import (
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    StudentT,
)
from skdgp.predictive.noise import mean_given_function, variance_by_function
from skdgp.preprocessing.maps import ExponentialNormal, Log, Logit, YeoJohnson
from skdgp.preprocessing.target_scaling import TargetScaler

FEW = {"max_iter": 15, "n_inducing": 10, "random_state": 0}
NEW = np.random.default_rng(1).uniform(-0.2, 1.2, (7, 2))


def rows(n=60):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    f = np.sin(6.0 * X[:, 0]) + X[:, 1]
    return X, f + 0.2 * rng.standard_normal(n)


@pytest.fixture(scope="module", params=["default", "log", "two outputs", "zeros", "counts"])
def case(request):
    X, y = rows()
    targets = {
        "default": y,
        "log": np.exp(y),
        "two outputs": np.column_stack([y, 3.0 - y]),
        "zeros": np.where(y > 0.8, np.exp(y), 0.0),
        "counts": np.floor(np.exp(y)),
    }[request.param]
    settings = {"counts": {"likelihood": "poisson"}, "log": {"target_transform": "log"}}
    return DeepGPRegressor(**FEW, **settings.get(request.param, {})).fit(X, targets), targets


def test_methods_of_the_estimator_are_those_of_the_distribution(case):
    model, y = case
    dist, y = model.predict_dist(NEW), y[:7]
    mean, std = model.predict(NEW, return_std=True)
    assert_allclose(dist.mean, mean, rtol=1e-12)
    assert_array_equal(dist.std, std)
    assert_array_equal(dist.var, model.predict_var(NEW))
    assert_array_equal(dist.quantile(), model.predict_quantiles(NEW))
    assert_array_equal(dist.interval(0.5), model.predict_interval(NEW, 0.5))
    assert_array_equal(dist.cdf(y), model.predict_cdf(NEW, y))
    assert_array_equal(dist.sf(0.5), model.predict_cdf(NEW, 0.5, complement=True))
    assert_array_equal(dist.log_prob(y), model.log_predictive_density(NEW, y))
    assert_array_equal(dist.sample(3, 5), model.sample_y(NEW, 3, 5))
    assert_array_equal(dist.latent.sample(3, 5), model.sample_y(NEW, 3, 5, latent=True))
    assert_array_equal(dist.covariance(), model.predict(NEW, return_cov=True)[1])
    assert_array_equal(dist.latent.std, model.predict(NEW, return_std=True, latent=True)[1])
    decomposed = model.predict(NEW, return_std=True, decompose=True)
    assert_array_equal(dist.decompose(), decomposed[1:])
    assert dist.crps(y).shape == mean.shape


def test_slices_are_distributions_of_their_rows(case):
    model, y = case
    dist = model.predict_dist(NEW)
    assert len(dist) == 7 and len(dist[2:4]) == 2 and len(dist[3]) == 1
    assert "7 rows" in repr(dist) and "latent" in repr(dist.latent)
    for part in (slice(2, 4), [5, 0], np.arange(7) > 3):
        assert_allclose(dist[part].mean, dist.mean[part], rtol=1e-7)
        assert_allclose(dist[part].log_prob(y[:7][part]), dist.log_prob(y[:7])[part], rtol=1e-7)
        assert_allclose(dist.latent[part].std, dist.latent.std[part], rtol=1e-7)


def test_neither_a_refit_nor_pickle_changes_it():
    X, y = rows()
    model = SparseGPRegressor(10, random_state=0).fit(X, y)
    dist = model.predict_dist(NEW)
    before = dist.quantile([0.1, 0.9])
    model.fit(X, 100.0 * y)
    assert_array_equal(dist.quantile([0.1, 0.9]), before)
    assert_array_equal(pickle.loads(pickle.dumps(dist)).quantile([0.1, 0.9]), before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda dist: dist.log_prob(np.ones((7, 2))), "y has 2 outputs"),
        (lambda dist: dist.cdf(np.ones(6)), "inconsistent numbers of samples"),
        (lambda dist: dist.cdf(np.full(7, np.nan)), "contains NaN"),
        (lambda dist: dist.quantile([0.5, 1.0]), "numbers between 0 and 1"),
        (lambda dist: dist.interval(95), "coverage must lie between 0 and 1"),
        (lambda dist: dist.sample(0), "n_samples"),
    ],
)
def test_bad_arguments(call, message):
    X, y = rows()
    dist = SparseGPRegressor(10, random_state=0).fit(X, y).predict_dist(NEW)
    with pytest.raises(ValueError, match=message):
        call(dist)


@pytest.mark.parametrize("name", ["log", "exponential-normal", "yeo-johnson", "logit", None])
@pytest.mark.parametrize("scheme", ["exact", "dsvi"])
def test_distribution_functions_invert_quantiles_far_out(name, scheme):
    """At rows among the data and far beyond, and in both tails to a part in a thousand."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, (60, 1))
    y = 0.3 * X[:, 0] + 0.2 * rng.standard_normal(60)
    y = 1.0 / (1.0 + np.exp(2.0 - y)) if name == "logit" else np.exp(y)
    n_layers = 1 if scheme == "exact" else 2
    model = DeepGPRegressor(
        n_layers, inference=scheme, target_transform=name, max_iter=10, random_state=0
    )
    dist = model.fit(X, y).predict_dist([[5.0], [20.0], [-15.0], [40.0]])
    for alpha in (1e-6, 1e-3, 0.05, 0.5):
        low, high = dist.quantile([alpha, 1.0 - alpha]).T
        assert_allclose(dist.cdf(low), alpha, rtol=1e-3)
        inside = high < (
            1.0 - 1e-12 if name == "logit" else 1e300
        )  # where numbers are dense enough
        assert_allclose(dist[inside].sf(high[inside]), alpha, rtol=1e-3)


@pytest.mark.parametrize("scheme", ["dsvi", "aep", "rff", "structured", "ess"])
def test_latent_functions_of_counts_are_logarithms_of_rates(scheme):
    """Counts have the mean exp(m + v / 2) under a Gaussian function, and that of draws under any."""
    rng = np.random.default_rng(0)
    X, people = rng.uniform(size=(80, 1)), rng.integers(1000, 20_000, 80)
    y = rng.poisson(people * 0.002 * np.exp(X[:, 0]))
    model = DeepGPRegressor(
        1, likelihood="poisson", inference=scheme, max_iter=30, random_state=0
    ).fit(X, y, exposure=people)
    dist = model.predict_dist(X[:5])
    if scheme != "ess":  # its chain has several states
        m, s = dist.latent.mean, dist.latent.std
        assert_allclose(np.exp(m + 0.5 * s**2), dist.mean, rtol=1e-6)
    rates = np.exp(dist.latent.sample(2000))
    error = rates.std(1) / np.sqrt(2000)
    assert (np.abs(rates.mean(1) - dist.mean) < 4.5 * error + 1e-3 * dist.mean).all()


def test_quantiles_of_functions_are_those_of_their_mixture():
    X, y = rows()
    model = DeepGPRegressor(inference="dsvi", **FEW).fit(X, y)
    (member,) = model.members_
    scaled = torch.tensor(model._x_scaler.transform(NEW))
    log_w, mean, var = (part.numpy() for part in member.posterior().latent(scaled))
    mean, sd = mean[..., 0], np.sqrt(var[..., 0])
    center, scale = model._y_scaler.center[0], model._y_scaler.scale[0]
    for i, q in enumerate((model.predict_dist(NEW).latent.quantile(0.9)[:, 0] - center) / scale):
        w = np.exp(log_w)
        right = brentq(lambda x, i=i: w @ norm.cdf(x, mean[:, i], sd[:, i]) - 0.9, -50.0, 50.0)  # noqa: B023
        assert q == pytest.approx(right, abs=1e-6)


# Parts of deviations under maps


def scaler_of(g):
    inside = g.inverse(torch.tensor([[-1.5], [1.5]]).double()).numpy()
    return TargetScaler(maps=[g]).fit(inside, np.ones(2))


MAPS = [Log(), Logit(), ExponentialNormal(1.0), YeoJohnson(0.0, 1.0, 0.4)]


def noise_of(likelihood, g, n):
    """Quantiles of the noise at the middles of n equal steps of probability."""
    u, g = (np.arange(n) + 0.5) / n, np.exp(0.5 * g)
    if isinstance(likelihood, (Gaussian, HeteroscedasticGaussian)):
        return np.sqrt(likelihood.variance) * g * norm.ppf(u)
    return likelihood.scale * g * t(likelihood.df).ppf(u)


@pytest.mark.parametrize("g", MAPS, ids=lambda g: g.name)
@pytest.mark.parametrize(
    "likelihood",
    [
        Gaussian(0.1),
        HeteroscedasticGaussian(0.1),
        StudentT(5.0, 0.3),
        HeteroscedasticStudentT(5.0, 0.3),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_means_given_functions_are_integrals_over_the_noise(likelihood, g):
    scaler = scaler_of(g)
    f = torch.tensor([[-0.7], [0.2], [0.9]]).double()
    k = likelihood.n_latents(1)
    latents = torch.cat([f, torch.full_like(f, -0.4)], 1)[:, :k]
    found = mean_given_function(likelihood, latents, scaler)[:, 0]
    noise = noise_of(likelihood, -0.4 if k == 2 else 0.0, 200_000)
    sd = likelihood.moments(latents, torch.zeros_like(latents))[1].sqrt().numpy()
    z = f.numpy() + noise
    low = np.clip(f.numpy() - 3.0 * sd, scaler.farthest[0], scaler.low)
    high = np.clip(f.numpy() + 3.0 * sd, scaler.high, scaler.farthest[1])
    expected = scaler.inverse(np.clip(z, low, high)[..., None])[..., 0].mean(1)
    size = np.diff(scaler.inverse(np.array([[-0.5], [0.5]])), axis=0)
    assert_allclose(found, expected, atol=2e-3 * size.item())


@pytest.mark.parametrize("g", MAPS, ids=lambda g: g.name)
def test_variances_by_functions_are_those_of_many_draws(g):
    """Of a mixture of two components with a function for the size of heavy-tailed noise."""
    scaler, likelihood = scaler_of(g), HeteroscedasticStudentT(6.0, 0.3)
    rng = np.random.default_rng(0)
    m = torch.tensor(rng.normal(0.0, 0.4, (2, 3, 2)))
    v = torch.tensor(rng.uniform(0.05, 0.2, (2, 3, 2)))
    w = np.array([0.3, 0.7])
    limits = tuple(torch.full((3, 1), end).double() for end in (-4.0, 4.0))
    size = 4000
    means = []
    for s in (0, 1):
        z = torch.tensor(rng.standard_normal((size, 3, 2)))
        means.append(
            mean_given_function(likelihood, m[s] + v[s].sqrt() * z, scaler, limits)[..., 0].numpy()
        )
    first = sum(share * part.mean(0) for share, part in zip(w, means))
    squares = [np.square(part - first) for part in means]
    expected = sum(share * part.mean(0) for share, part in zip(w, squares))
    error = np.sqrt(sum((share * part.std(0)) ** 2 / size for share, part in zip(w, squares)))
    parts = [(torch.tensor(w)[:, None, None], likelihood, m, v)]
    found = variance_by_function(parts, torch.tensor(first)[:, None], scaler, limits)[:, 0].numpy()
    assert (np.abs(found - expected) < 4.5 * error).all()
