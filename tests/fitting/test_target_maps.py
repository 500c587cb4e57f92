"""Monotone maps of targets, and their choice by the marginal likelihood."""

import time
import types

import numpy as np
import pytest
import torch
from amounts import drizzle
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import expon, multivariate_normal, norm, yeojohnson
from sklearn.metrics import mean_poisson_deviance, mean_squared_error
from torch.nn.utils import parameters_to_vector

from skdgp.fitting import target_maps as module
from skdgp.fitting.target_maps import ExponentialNormal, Log, YeoJohnson, choose, learn
from skdgp.gp.priors import SPREAD
from skdgp.preprocessing.target_scaling import POSITIVE, TargetScaler

MAPS = [
    Log(),
    ExponentialNormal(2.0),
    *(YeoJohnson(0.5, 2.0, curve) for curve in (0.0, 0.4, 1.0, 1.7, 2.0)),
]


def targets(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(3.0 * X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("g", MAPS)
def test_inverse_and_slope(g):
    y = np.geomspace(1e-3, 1e3, 50)
    y = y if g.name in POSITIVE else np.concatenate([-y, y])
    assert_allclose(g.inverse(torch.tensor(g.forward(y))), y, rtol=1e-9)
    h = 1e-6 * np.abs(y)
    slope = (g.forward(y + h) - g.forward(y - h)) / (2.0 * h)
    assert_allclose(g.log_slope(y), np.log(slope), atol=1e-5)


@pytest.mark.parametrize("curve", [0.3, 1.0, 1.9])
def test_yeo_johnson_is_that_of_scipy(curve):
    y = np.linspace(-20.0, 30.0, 100)
    assert_allclose(YeoJohnson(2.0, 3.0, curve).forward(y), yeojohnson((y - 2.0) / 3.0, curve))


@pytest.mark.parametrize("g", MAPS)
def test_extreme_targets_give_numbers(g):
    y = np.array([5e-324, 1e-300, 1.0, 1e300, np.finfo(float).max])
    y = y if g.name in POSITIVE else np.concatenate([-y, [0.0], y])
    x = g.forward(y)
    outside = [g.inverse(torch.tensor(factor * x)).numpy() for factor in (1.0, 1e6, -1e6)]
    for values in (x, g.log_slope(y), *outside):
        assert np.isfinite(values).all()
    if g.name in POSITIVE:
        assert (g.inverse(torch.tensor(-1e6 * np.abs(x))) > 0.0).all()
        assert_array_equal(g.log_slope(np.array([0.0, -1.0])), -np.inf)


def test_yeo_johnson_does_not_depend_on_units():
    y, weights = np.exp(targets(60)[1]), np.ones(60)
    x = YeoJohnson.of(y, weights, 0.3).forward(y)
    assert_allclose(YeoJohnson.of(1e8 * y - 3e8, weights, 0.3).forward(1e8 * y - 3e8), x, rtol=1e-6)


def test_scaler_without_maps_is_affine_to_the_last_bit():
    y = np.random.default_rng(0).normal(3.0, 7.0, (40, 2))
    scaler = TargetScaler().fit(y, np.ones(40))
    z = scaler.transform(y)
    assert_array_equal(z, (y - scaler.center) / scaler.scale)
    assert_array_equal(scaler.inverse(z), z * scaler.scale + scaler.center)
    assert scaler.log_jacobian(y) == -np.log(scaler.scale).sum()
    assert scaler.names == [None, None]


def test_scaler_with_maps():
    y = np.exp(np.random.default_rng(0).normal(size=(40, 3)))
    scaler = TargetScaler(maps=[Log(), None, YeoJohnson.of(y[:, 2], np.ones(40), 0.2)])
    z = scaler.fit(y, np.ones(40)).transform(y)
    assert_allclose(z.mean(0), 0.0, atol=1e-12)
    assert_allclose(z.std(0), 1.0)
    assert_allclose(scaler.inverse(z), y)
    h = 1e-6 * y
    slopes = (scaler.transform(y + h) - scaler.transform(y - h)) / (2.0 * h)
    assert_allclose(scaler.log_jacobian(y), np.log(slopes).sum(1), atol=1e-6)
    for j in range(3):
        assert_allclose(scaler.output(j).slope(z[:, j]), 1.0 / slopes[:, j], rtol=1e-6)


# The marginal likelihood


def test_exponential_targets_become_gaussian():
    y = expon(scale=3.0).ppf([1e-12, 0.1, 0.5, 0.999])
    assert_allclose(ExponentialNormal(3.0).forward(y), norm.ppf([1e-12, 0.1, 0.5, 0.999]))
    far = expon.isf(1e-200)
    assert_allclose(ExponentialNormal(1.0).forward(np.array([far])), norm.isf(1e-200))


@pytest.mark.parametrize("free", [None, YeoJohnson, ExponentialNormal])
def test_marginal_likelihood_against_scipy_and_differences(free):
    X, y = targets(25)
    y = np.exp(y) if free is ExponentialNormal else y
    weights = np.random.default_rng(1).integers(1, 4, 25).astype(float)
    parts = (torch.tensor(part) for part in (X, y, np.zeros(25), weights))
    marginal = module._MarginalLikelihood(*parts, free and free.bent)
    x = parameters_to_vector(marginal.parameters()).detach() + 0.1
    value, gradient = marginal.evaluate(x)
    for i in range(len(x)):
        step = 1e-5 * torch.eye(len(x), dtype=x.dtype)[i]
        slope = (marginal.evaluate(x + step)[0] - marginal.evaluate(x - step)[0]) / 2e-5
        assert slope == pytest.approx(float(gradient[i]), rel=1e-4, abs=1e-5)
    value, _ = marginal.evaluate(x)
    prior = 0.5 * 0.01 * len(x) / SPREAD**2
    rows = np.repeat(np.arange(25), weights.astype(int))  # weights are counts
    g = ExponentialNormal(1.0) if free is ExponentialNormal else YeoJohnson(0.0, 1.0, 1.0)
    g = g.learned(0.1 if free else 0.0)
    x_, t = torch.tensor(X[rows]), g.forward(y[rows])
    scale = t.std()
    noise = marginal.log_noise.exp().item()
    K = marginal.kernel()(x_, x_).detach().numpy() + noise * np.eye(len(rows))
    log_p = multivariate_normal(np.zeros(len(rows)), K).logpdf((t - t.mean()) / scale)
    log_p += g.log_slope(y[rows]).sum() - len(rows) * np.log(scale)
    # of the mean of repeated rows; what is within them has a density of its own
    constant = 0.5 * 25 * np.log(2.0 * np.pi) + 0.5 * np.log(weights).sum()
    assert prior - value == pytest.approx(log_p + constant, rel=1e-8)


@pytest.mark.parametrize(
    ("bend", "expected"),
    [
        (np.exp, {"log"}),
        (lambda f: np.exp(2.0 * f), {"log"}),
        (lambda f: -np.exp(f), {"yeo-johnson"}),
        (lambda f: np.exp(f) - 0.5, {"yeo-johnson"}),
        (lambda f: f, {None}),
        (lambda f: f + 10.0, {None}),
        (np.cbrt, {None, "yeo-johnson"}),
    ],
)
def test_choice(bend, expected):
    X, f = targets(200)
    y = bend(f)
    found = choose(X, y, np.ones(200), bool((y > 0.0).all()))
    assert (None if found is None else found.name) in expected


@pytest.mark.parametrize("unit", [1.0, 1e-6])
@pytest.mark.parametrize("shape", [0.3, 0.5, 1.0])
def test_means_of_amounts_are_right_under_the_chosen_map(shape, unit):
    """A logarithm, which the density alone would take, has 1.3 to 20 times the total."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (200, 2))
    y = unit * rng.gamma(shape, np.exp(X[:, 0]) / shape)
    weights = np.ones(200)
    assert choose(X, y, weights, True).name == "exponential-normal"
    one, log = (module._Candidate(name, X, y, weights) for name in ("exponential-normal", "log"))
    error = 1.0 / np.sqrt(shape * 200)
    assert abs(one.mean.sum() / y.sum() - 1.0) < 2.0 * error
    assert one.value > log.value + (5.0 if shape < 1.0 else 2.0)


@pytest.mark.parametrize("unit", [1.0, 1e6])
@pytest.mark.parametrize("seed", range(5))
def test_means_of_drizzle_are_right_under_the_chosen_map(seed, unit):
    """A logarithm has the best densities by hundreds of nats, and some three times the total."""
    X, y, _ = drizzle(seed, 250)
    weights = np.ones(250)
    assert choose(X, unit * y, weights, True).name == "exponential-normal"
    one, log = (module._Candidate(name, X, y, weights) for name in ("exponential-normal", "log"))
    assert log.value > one.value + 10.0
    assert 0.6 < one.mean.sum() / y.sum() < 1.2
    assert log.mean.sum() > 1.2 * y.sum()


@pytest.mark.parametrize("power", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_log_normal_targets_keep_their_logarithm(seed, power):
    # noise may grow along a column
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (250, 2))
    y = np.exp(1.5 * X[:, 0] + np.exp(power * X[:, 1]) * rng.normal(size=250))
    assert choose(X, y, np.ones(250), True).name == "log"


def test_a_map_that_ruins_means_is_refused():
    # of targets of any sign, too, where only one map is to be had
    X, y, _ = drizzle(1, 250)
    assert choose(X, y - 0.5, np.ones(250), False) is None


@pytest.mark.parametrize("positive", [True, False])
def test_means_are_compared_by_deviances_that_scikit_learn_has(positive):
    rng = np.random.default_rng(0)
    y, weights = rng.gamma(2.0, size=40), rng.integers(1, 4, 40).astype(float)
    means = [rng.gamma(3.0, size=40) for _ in range(2)]
    one, other = (types.SimpleNamespace(mean=mean) for mean in means)
    found = module._errors_worse(one, other, y, weights, positive)
    deviance = mean_poisson_deviance if positive else mean_squared_error
    parts = [[deviance([a], [b]) for a, b in zip(y, mean)] for mean in means]
    loss = weights * np.subtract(*parts)
    assert found == pytest.approx(loss.sum() / np.sqrt(40 * loss.var()), rel=1e-9)
    assert module._errors_worse(one, one, y, weights, positive) == 0.0
    assert module._errors_worse(other, one, y, weights, positive) == pytest.approx(-found)


def test_local_scale_is_that_of_near_rows():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(70, 3)), rng.integers(1, 4, 70).astype(float)
    squares = rng.chisquare(1, 70)
    found = module._local_scale(X, squares, weights)
    assert_allclose(module._local_scale(X, np.ones(70), weights), 1.0)
    share = weights / weights.mean()
    for i in (0, 35):
        near = np.argsort(np.linalg.norm(X - X[i], axis=1))[1 : 1 + module._NEAR]
        prior = module.START_COUNT
        expected = (prior + share[near] @ squares[near]) / (prior + share[near].sum())
        assert found[i] == pytest.approx(expected)


def test_whitened_errors_are_those_of_leave_one_out_densities():
    X, y = targets(60)
    parts = (torch.tensor(part) for part in (X, y, np.zeros(60), np.ones(60)))
    _, log_density, mean, variance, squares = module._MarginalLikelihood(*parts).maximize()
    z = (y - y.mean()) / y.std()
    assert_allclose(squares, np.square(z - mean) / variance, rtol=1e-9)
    expected = norm(mean, np.sqrt(variance)).logpdf(z) - np.log(y.std())
    assert_allclose(log_density, expected, rtol=1e-9)


def test_what_a_jacobian_would_be_cheated_by_is_refused():
    X, f = targets(200)
    y = np.exp(2.0 * f)
    weights = np.ones(200)
    assert choose(X, y, weights, True).name == "log"
    assert choose(X[:19], y[:19], weights[:19], True) is None  # few rows
    assert choose(X, np.where(f < -0.8, 1e-3, y), weights, True) is None  # a pile at an end
    assert choose(X, np.where(np.abs(f) < 0.2, 1.0, y), weights, True) is None  # in the middle
    assert choose(X, np.ceil(y).clip(max=9.0), weights, True) is None  # few values
    assert choose(X, np.ones(200), weights, True) is None


def test_the_choice_takes_tenths_of_a_second():
    X, f = targets(500)
    y = np.exp(f)[:, None]
    began = time.process_time()
    learn("auto", lambda rows: X[rows], y, np.ones(500), np.array([True]))
    assert time.process_time() - began < 2.0  # half a second on a quiet machine


def test_each_output_has_its_own_map():
    X, f = targets(200)
    y = np.column_stack([np.exp(f), f, -np.exp(f)])
    maps = learn("auto", lambda rows: X[rows], y, np.ones(200), (y > 0.0).all(0))
    assert [None if g is None else g.name for g in maps] == ["log", None, "yeo-johnson"]
    assert learn("auto", lambda rows: X[rows], y[:, 1:2], np.ones(200), np.array([False])) is None
    with pytest.raises(ValueError, match="needs positive targets"):
        learn("log", lambda rows: X[rows], y, np.ones(200), (y > 0.0).all(0))
