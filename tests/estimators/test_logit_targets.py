"""Targets between 0 and 1: ``target_transform="logit"``."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logit
from scipy.stats import norm

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.preprocessing.maps import Logit

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (60, 2))
Z = 3.0 * X[:, 0] + 0.7 * RNG.standard_normal(60)
Y = expit(Z)
NEW = X[:6] + 0.05
GRID = np.linspace(-14.0, 14.0, 20_001)  # of log odds


def exact(**settings):
    settings = {"likelihood": "gaussian", "standardize": True, **settings}
    return DeepGPRegressor(1, inference="exact", random_state=0, **settings)


@pytest.fixture(scope="module")
def inside():
    return exact(target_transform="logit").fit(X, Y)


@pytest.fixture(scope="module")
def outside():
    return exact(target_transform=None).fit(X, Z)


def weights(outside):
    """Probabilities of the log odds of a grid at new rows, by the model without a map."""
    mean, std = outside.predict(NEW, return_std=True)
    density = norm.pdf(GRID, mean[:, None], std[:, None])
    return density / density.sum(1, keepdims=True)


def test_map_has_its_inverse_and_slope():
    y = np.concatenate([np.geomspace(1e-12, 0.5, 50), 1.0 - np.geomspace(1e-12, 0.4, 50)])
    g = Logit()
    assert_allclose(g.forward(y), logit(y))
    assert_allclose(g.inverse(torch.tensor(g.forward(y))), y, rtol=1e-12)
    assert_allclose(g.log_slope(y), -np.log(y * (1.0 - y)))
    assert_array_equal(g.log_slope(np.array([-0.1, 0.0, 1.0, 1.5])), -np.inf)
    ends = g.inverse(torch.tensor([-1e300, -800.0, 40.0, 1e300]).double()).numpy()
    assert ((ends > 0.0) & (ends < 1.0)).all() and np.isfinite(g.forward(ends)).all()


def test_quantiles_and_densities_are_those_of_log_odds(inside, outside):
    alpha = [0.001, 0.05, 0.5, 0.95, 0.999]
    quantiles = outside.predict_quantiles(NEW, alpha)
    assert_allclose(inside.predict_quantiles(NEW, alpha), expit(quantiles), rtol=1e-7)
    density = outside.log_predictive_density(X, Z) - np.log(Y * (1.0 - Y))
    assert_allclose(inside.log_predictive_density(X, Y), density, rtol=1e-7)
    assert_allclose(inside.predict_cdf(X, Y), outside.predict_cdf(X, Z), rtol=1e-7)
    assert inside.target_transform_ == "logit"


def test_moments_and_scores_are_integrals(inside, outside):
    p, y = weights(outside), expit(GRID)
    mean, std = inside.predict(NEW, return_std=True)
    assert_allclose(mean, p @ y, rtol=1e-7)
    assert_allclose(std, np.sqrt(p @ y**2 - mean**2), rtol=1e-6)
    assert_allclose(inside.predict_var(NEW), std**2)
    parts = inside.predict(NEW, return_std=True, decompose=True)[1:]
    assert_allclose(np.square(parts).sum(0), std**2)
    cdf = p.cumsum(1) - 0.5 * p
    scores = (p * np.abs(y - Y[:6, None])).sum(1) - np.trapezoid(cdf * (1.0 - cdf), y, axis=1)
    assert_allclose(inside._crps(NEW, Y[:6]), scores, rtol=1e-5)


@pytest.mark.parametrize("size", [0.01, 1.0, 8.0])
def test_means_are_integrals_whatever_the_scale(size):
    z = size * Z
    inside = exact(target_transform="logit").fit(X, np.clip(expit(z), 1e-15, 1.0 - 1e-15))
    outside = exact(target_transform=None).fit(X, np.clip(z, -34.5, 34.5))
    mean, std = outside.predict(NEW, return_std=True)
    nodes = np.linspace(-9.0, 9.0, 40_001)
    p = norm.pdf(nodes) / norm.pdf(nodes).sum()
    right = expit(mean[:, None] + std[:, None] * nodes) @ p
    assert_allclose(inside.predict(NEW), right, rtol=1e-6, atol=1e-8)


def test_densities_add_up_to_one(inside):
    grid = expit(np.linspace(-12.0, 12.0, 4001))
    rows = np.repeat(NEW[:1], len(grid), 0)
    density = np.exp(inside.log_predictive_density(rows, grid))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)
    mean = np.trapezoid(grid * density, grid)
    assert inside.predict(NEW[:1])[0] == pytest.approx(mean, abs=1e-4)


def test_the_ends_and_beyond(inside):
    for y, expected in ((-0.5, 0.0), (0.0, 0.0), (1.0, 1.0), (2.0, 1.0)):
        assert_array_equal(inside.predict_cdf(NEW, y), expected)
        assert_array_equal(inside.predict_cdf(NEW, y, complement=True), 1.0 - expected)
        assert_array_equal(inside.log_predictive_density(NEW, np.full(6, y)), -np.inf)
    draws = inside.sample_y(NEW, 200)
    assert ((draws > 0.0) & (draws < 1.0)).all()
    mean, std = inside.predict(NEW, return_std=True)
    assert (np.abs(draws.mean(1) - mean) < 4.0 * std / np.sqrt(200)).all()


@pytest.mark.parametrize("model", [DeepGPRegressor(max_iter=20), SparseGPRegressor()])
def test_mixtures_and_sparse_models_take_the_map(model):
    model = model.set_params(target_transform="logit", random_state=0).fit(X, Y)
    inside = model.predict_interval(10.0 * NEW, 0.999)
    assert ((inside > 0.0) & (inside < 1.0)).all()
    assert np.corrcoef(model.predict(X), Y)[0, 1] > 0.8
    two = model.set_params(max_iter=5).fit(X, np.column_stack([Y, 1.0 - Y]))
    assert two.predict(NEW).shape == (6, 2) and two.target_transform_ == ["logit", "logit"]


@pytest.mark.parametrize("value", [0.0, 1.0, -0.2, 1.7])
def test_other_targets_meet_one_sentence(value):
    wrong, match = np.append(Y[1:], value), f"above 0 and below 1, but y has the value {value:g}; "
    for model in (exact(target_transform="logit"), SparseGPRegressor(target_transform="logit")):
        with pytest.raises(ValueError, match=match):
            model.fit(X, wrong)
    model = DeepGPRegressor(target_transform="logit", inference="dsvi", max_iter=5)
    with pytest.raises(ValueError, match=match):
        model.fit(X, Y, X_val=X, y_val=wrong)
    model.partial_fit(X, Y)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        model.partial_fit(X, wrong)
