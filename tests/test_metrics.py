import math
import pickle
from functools import partial

import numpy as np
import pytest
import sklearn
import torch
from scipy import stats
from scipy.integrate import quad
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.metrics import check_scoring, mean_absolute_error, mean_pinball_loss
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skdgp import DeepGPClassifier, DeepGPRegressor, metrics
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian, Poisson, StudentT
from skdgp.predictive.components import Part
from skdgp.predictive.crps import integrate
from skdgp.predictive.mixture import Mixture

FEW = {"max_iter": 5, "n_inducing": 5, "n_predict_draws": 4, "random_state": 0}
SCORERS = [
    metrics.log_predictive_density_scorer,
    metrics.crps_scorer,
    metrics.pinball_scorer,
    metrics.interval_score_scorer,
    metrics.coverage_scorer,
    metrics.calibration_scorer,
]


def crps_by_quadrature(cdf, y, low, high, points=()):
    """The integral that defines the score, by scipy."""
    total = 0.0
    for a, b, square in (
        (low, y, lambda x: cdf(x) ** 2),
        (y, high, lambda x: (1 - cdf(x)) ** 2),
    ):
        inside = [p for p in points if a < p < b] or None
        total += quad(square, a, b, points=inside, limit=500, epsabs=1e-11, epsrel=1e-11)[0]
    return total


def mixture(rng, c, n, k=1):
    weights = rng.dirichlet(np.ones(c), (n, k)).transpose(2, 0, 1)
    means = rng.normal(0.0, 2.0, (c, n, k))
    variances = np.exp(rng.normal(-1.0, 1.5, (c, n, k)))
    return weights, means, variances


# CRPS in closed form


@pytest.mark.parametrize(
    ("y", "mean", "std"), [(0.3, 0.0, 1.0), (-4.0, 1.0, 0.5), (2.0, 2.0, 3.0), (30.0, 1.0, 0.1)]
)
def test_crps_gaussian_is_the_integral(y, mean, std):
    low, high = min(y, mean) - 40 * std, max(y, mean) + 40 * std
    expected = crps_by_quadrature(stats.norm(mean, std).cdf, y, low, high, [mean])
    assert metrics.crps_gaussian([y], [mean], [std]) == pytest.approx(expected, rel=1e-8)


def test_crps_gaussian_at_the_mean():
    # sigma (2 phi(0) - 1 / sqrt(pi))
    expected = 2.0 * (math.sqrt(2.0) - 1.0) / math.sqrt(math.pi)
    assert metrics.crps_gaussian([5.0], [5.0], [2.0]) == pytest.approx(expected, rel=1e-14)


def test_crps_of_mixture_is_the_integral():
    weights, means, variances = mixture(np.random.default_rng(0), 5, 6)
    y = np.array([-3.0, -1.0, 0.0, 0.5, 2.0, 15.0])
    expected = []
    for i in range(6):
        w, m, s = weights[:, i, 0], means[:, i, 0], np.sqrt(variances[:, i, 0])
        low, high = (m - 40 * s).min(), max((m + 40 * s).max(), y[i] + 1.0)
        cdf = partial(lambda w, m, s, x: w @ stats.norm.cdf(x, m, s), w, m, s)
        expected.append(crps_by_quadrature(cdf, y[i], low, high, np.sort(m)))
    got = metrics.crps_gaussian_mixture(y[:, None], means, variances, weights)
    assert got == pytest.approx(np.mean(expected), rel=1e-8)
    # element by element too
    got = metrics.crps.mixture_crps(y[:, None], weights, means, variances)
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-8)


def test_crps_of_mixture_is_the_energy_form():
    # E|Y - y| - E|Y - Y'| / 2 from draws; within 4 standard errors
    rng = np.random.default_rng(1)
    w, m, v = np.array([0.2, 0.5, 0.3]), np.array([-1.0, 0.0, 3.0]), np.array([0.1, 2.0, 0.5])
    chosen = rng.choice(3, (2, 200_000), p=w)
    one, two = rng.normal(m[chosen], np.sqrt(v[chosen]))
    draws = np.abs(one - 0.7) - 0.5 * np.abs(one - two)
    got = metrics.crps_gaussian_mixture([0.7], m[:, None], v[:, None], w)
    assert abs(got - draws.mean()) < 4.0 * draws.std() / math.sqrt(len(draws))


def test_crps_of_point_masses():
    rng = np.random.default_rng(2)
    y, points = rng.normal(size=20), rng.normal(size=(7, 20))
    expected = np.abs(points - y).mean() - 0.5 * np.abs(points[:, None] - points[None]).mean()
    got = metrics.crps_gaussian_mixture(y, points, np.zeros_like(points))
    assert got == pytest.approx(expected, rel=1e-12)
    # certain predictions: the absolute error
    got = metrics.crps_gaussian(y, points[0], np.zeros(20))
    assert got == pytest.approx(mean_absolute_error(y, points[0]), rel=1e-12)
    assert metrics.crps_gaussian(y, y, np.zeros(20)) == 0.0


def test_crps_of_mixture_of_equal_components_is_that_of_one():
    rng = np.random.default_rng(3)
    y, mean, std = rng.normal(size=(2, 10, 2)).tolist() + [np.exp(rng.normal(size=(10, 2)))]
    means, variances = np.tile(mean, (4, 1, 1)), np.tile(std**2, (4, 1, 1))
    got = metrics.crps_gaussian_mixture(y, means, variances, [0.1, 0.2, 0.3, 0.4])
    assert got == pytest.approx(metrics.crps_gaussian(y, mean, std), rel=1e-12)


def test_crps_of_mixture_in_pieces(monkeypatch):
    rng = np.random.default_rng(4)
    weights, means, variances = mixture(rng, 6, 25, 2)
    y = rng.normal(size=(25, 2))
    whole = metrics.crps_gaussian_mixture(y, means, variances, weights)
    monkeypatch.setattr(metrics.crps, "_PAIRS_AT_ONCE", 50)
    assert metrics.crps_gaussian_mixture(y, means, variances, weights) == pytest.approx(whole)


# Other functions


def test_pinball_loss_is_that_of_sklearn():
    rng = np.random.default_rng(5)
    alpha = [0.05, 0.5, 0.8]
    y, q, w = rng.normal(size=(30, 2)), rng.normal(size=(30, 2, 3)), rng.uniform(size=30)
    expected = np.mean([mean_pinball_loss(y, q[..., i], alpha=a) for i, a in enumerate(alpha)])
    assert metrics.pinball_loss(y, q, alpha) == pytest.approx(expected, rel=1e-12)
    expected = mean_pinball_loss(y[:, 0], q[:, 0, 1], alpha=0.5, sample_weight=w)
    got = metrics.pinball_loss(y[:, 0], q[:, 0, 1:2], 0.5, sample_weight=w)
    assert got == pytest.approx(expected, rel=1e-12)


def test_pinball_loss_of_all_quantiles_is_half_the_crps():
    y, mean, std = np.array([0.3, -2.0, 4.0]), np.array([0.0, 0.0, 1.0]), np.array([1.0, 2.0, 0.5])
    alpha = (np.arange(1000) + 0.5) / 1000  # the error is that of the tails
    q = stats.norm.ppf(alpha, mean[:, None], std[:, None])
    got = metrics.pinball_loss(y, q, alpha)
    assert got == pytest.approx(0.5 * metrics.crps_gaussian(y, mean, std), rel=1e-3)


def test_interval_score_by_hand():
    y, lower, upper = [0.0, -2.0, 5.0], [-1.0, -1.0, 0.0], [1.0, 1.0, 3.0]
    # widths 2, 2, 3 and misses 0, 1, 2, at 2 / 0.2 each
    assert metrics.interval_score(y, lower, upper, 0.8) == pytest.approx((2 + 12 + 23) / 3)
    got = metrics.interval_score(y, lower, upper, 0.8, sample_weight=[1, 0, 3])
    assert got == pytest.approx((2 + 3 * 23) / 4)


def test_interval_score_is_the_pinball_loss_of_its_ends():
    rng = np.random.default_rng(6)
    y, ends, coverage = rng.normal(size=40), np.sort(rng.normal(size=(40, 2))), 0.7
    expected = 4.0 / (1 - coverage) * metrics.pinball_loss(y, ends, [0.15, 0.85])
    assert metrics.interval_score(y, *ends.T, coverage) == pytest.approx(expected, rel=1e-12)


def test_coverage_score_counts():
    y = [0.0, 1.0, 2.0, -1.0]
    assert metrics.coverage_score(y, [0.0] * 4, [1.0] * 4) == 0.5  # ends are inside
    assert metrics.coverage_score(y, [0.0] * 4, [1.0] * 4, sample_weight=[3, 0, 0, 1]) == 0.75


@pytest.mark.parametrize("factor", [0.3, 1.0, 2.0])
def test_calibration_error_of_wrong_scales(factor):
    # y at the exact quantiles of the truth, so that only rounding to 1 / n is left
    y = stats.norm.ppf((np.arange(2000) + 0.5) / 2000)
    alpha = np.array([0.9, 0.05, 0.3, 0.7, 0.1, 0.95, 0.5])  # any order, and the median
    q = np.tile(factor * stats.norm.ppf(alpha), (2000, 1))
    coverage = np.array([0.4, 0.8, 0.9])
    true = 2.0 * stats.norm.cdf(factor * stats.norm.ppf(0.5 + 0.5 * coverage)) - 1.0
    expected = np.abs(true - coverage).mean()
    assert metrics.calibration_error(y, q, alpha) == pytest.approx(expected, abs=1e-3)


def test_calibration_error_of_chance():
    # the docstring promises sqrt(2 / pi) pi / 8 / sqrt(n) = 0.313 / sqrt(n); mean of 200 data sets
    rng = np.random.default_rng(7)
    alpha = np.delete(np.arange(1, 40), 19) / 40
    q = np.tile(stats.norm.ppf(alpha), (100, 1))
    errors = [metrics.calibration_error(rng.normal(size=100), q, alpha) for _ in range(200)]
    assert abs(np.mean(errors) - 0.0313) < 4.0 * np.std(errors) / math.sqrt(200) + 0.001


def test_calibration_error_does_not_cancel_over_outputs():
    y = np.zeros((10, 2))
    q = np.tile([[[-1.0, 1.0], [1.0, 2.0]]], (10, 1, 1))  # always, and never, inside
    assert metrics.calibration_error(y, q, [0.25, 0.75]) == pytest.approx(0.5)


def test_negative_log_predictive_density():
    log_density = [-1.0, -3.0]
    assert metrics.negative_log_predictive_density(log_density) == 2.0
    got = metrics.negative_log_predictive_density(log_density, sample_weight=[3, 1])
    assert got == pytest.approx(1.5)


@pytest.mark.parametrize("wrong", [(0.5, 1.0), (0.0, 0.6), (0.0, 1.6)])
def test_the_true_distribution_wins(wrong):
    # paired differences over 100 data sets of 40 draws from N(0, 1), beyond 4 standard errors
    samples = np.random.default_rng(8).normal(size=(100, 40))
    alpha = np.array([0.05, 0.25, 0.75, 0.95])

    def scores(y, mean, std):
        q = np.tile(mean + std * stats.norm.ppf(alpha), (40, 1))
        return [
            metrics.crps_gaussian(y, np.full(40, mean), np.full(40, std)),
            metrics.pinball_loss(y, q, alpha),
            metrics.interval_score(y, q[:, 0], q[:, -1], 0.9),
            metrics.negative_log_predictive_density(stats.norm.logpdf(y, mean, std)),
        ]

    difference = np.array([np.subtract(scores(y, *wrong), scores(y, 0.0, 1.0)) for y in samples])
    error = difference.std(0) / math.sqrt(len(difference))
    assert (difference.mean(0) > 4.0 * error).all()


def by_function():
    rng = np.random.default_rng(9)
    y, mean = rng.normal(size=(2, 12, 2))
    std = np.exp(rng.normal(size=(12, 2)))
    alpha = [0.1, 0.4, 0.6, 0.9]
    q = mean[..., None] + std[..., None] * stats.norm.ppf(alpha)
    means = rng.normal(size=(3, 12, 2))
    ends = {"lower": q[..., 0], "upper": q[..., -1]}
    return y, {
        "crps_gaussian": (metrics.crps_gaussian, {"mean": mean, "std": std}),
        "crps_gaussian_mixture": (
            metrics.crps_gaussian_mixture,
            {"means": means, "variances": np.exp(means)},
        ),
        "pinball_loss": (metrics.pinball_loss, {"y_quantiles": q, "alpha": alpha}),
        "interval_score": (metrics.interval_score, {**ends, "coverage": 0.8}),
        "coverage_score": (metrics.coverage_score, ends),
        "calibration_error": (metrics.calibration_error, {"y_quantiles": q, "alpha": alpha}),
    }


def rows(values, take):
    """The same rows of every array among the arguments."""
    per_row = {"mean", "std", "lower", "upper", "y_quantiles"}
    per_column = {"means", "variances"}
    return {
        k: v[take] if k in per_row else v[:, take] if k in per_column else v
        for k, v in values.items()
    }


@pytest.mark.parametrize("name", list(by_function()[1]))
def test_weights_are_counts_and_outputs_are_averaged(name):
    y, functions = by_function()
    function, arguments = functions[name]
    score = function(y, **arguments)
    assert type(score) is float
    counts = np.array([0, 1, 2, 1, 0, 3, 1, 1, 2, 1, 0, 1])
    repeated = np.repeat(np.arange(12), counts)
    assert function(y, **arguments, sample_weight=counts) == pytest.approx(
        function(y[repeated], **rows(arguments, repeated)), rel=1e-12
    )
    with pytest.raises(ValueError, match="Negative values in data passed to sample_weight"):
        function(y, **arguments, sample_weight=1 - counts)
    single = []
    for k in range(2):
        one = {
            key: value[..., k] if key in {"mean", "std", "lower", "upper", "means", "variances"}
            else value[:, k] if key == "y_quantiles" else value
            for key, value in arguments.items()
        }  # fmt: skip
        single.append(function(y[:, k], **one))
    assert score == pytest.approx(np.mean(single), rel=1e-12)


ONES, TWO = [1.0, 1.0], np.ones((2, 2))


@pytest.mark.parametrize(
    ("function", "arguments", "match"),
    [
        ("crps_gaussian", ([0.0], [1.0]), "inconsistent numbers of samples"),
        ("crps_gaussian", (TWO, ONES), "y_true and mean have different number of output"),
        ("crps_gaussian", (ONES, [1.0, -1.0]), "Negative values in data passed to std"),
        (
            "crps_gaussian_mixture",
            ([[0.0, 1.0, 2.0]], [ONES + [1.0]]),
            r"means has shape \(1, 3, 1\)",
        ),
        ("crps_gaussian_mixture", (TWO, [ONES]), r"variances has shape \(1, 2, 1\)"),
        ("crps_gaussian_mixture", (TWO, TWO, [0.5, 0.6]), "sum to one"),
        ("crps_gaussian_mixture", (TWO, TWO, [1.5, -0.5]), "sum to one"),
        ("crps_gaussian_mixture", (TWO, TWO, [0.5, 0.25, 0.25]), "3 weights, but 2 components"),
        ("pinball_loss", (TWO, [0.5, 1.0]), "alpha must hold numbers between 0 and 1"),
        ("pinball_loss", (TWO, [0.5]), r"y_quantiles has shape \(2, 1, 2\)"),
        ("interval_score", ([0.0, 1.0], [0.0, 1.0], 1.0), "coverage must lie between 0 and 1"),
        ("interval_score", (ONES, [1.0, 0.0], 0.9), "lower is larger than upper"),
        ("calibration_error", (TWO, [0.1, 0.8]), "pairs of the form a and 1 - a"),
        ("calibration_error", (np.ones((2, 1)), [0.5]), "pairs of the form a and 1 - a"),
        ("crps_gaussian", (ONES, ONES, [0, 0]), "at least one non-zero"),
        ("crps_gaussian", (ONES, ONES, [-1, 2]), "Negative values in data passed to sample_weight"),
    ],
)
def test_errors(function, arguments, match):
    weights = {}
    if function == "crps_gaussian" and len(arguments) == 3:
        *arguments, weights["sample_weight"] = arguments
    with pytest.raises(ValueError, match=match):
        getattr(metrics, function)([0.0, 1.0], *arguments, **weights)


def test_errors_of_other_targets():
    with pytest.raises(ValueError, match="y_true contains NaN"):
        metrics.crps_gaussian([np.nan, 0.0], ONES, ONES)
    with pytest.raises(ValueError, match=r"weights has shape \(2, 2, 1\)"):
        metrics.crps_gaussian_mixture([0.0, 1.0, 2.0], *np.ones((2, 2, 3)), 0.5 * TWO)
    with pytest.raises(ValueError, match="one number for each row"):
        metrics.negative_log_predictive_density(TWO)


# CRPS of predictive distributions


def predictive(*parts):
    """A predictive distribution from weights, likelihoods and latent moments."""
    result = Mixture([], np.zeros((0, 1)), "cpu")
    result.__dict__["parts"] = []
    for weight, likelihood, m, v in parts:
        weights = torch.full((len(m), 1, 1), weight / len(m), dtype=torch.float64)
        result.parts.append(Part(weights, likelihood, *map(torch.tensor, (m, v))))
    return result


def test_integrate():
    # exp(-t) over [0, c], a narrow step, and zero
    rates, at = np.array([1.0, 50.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.234, 0.0])

    def f(which, t):
        exponential = np.exp(-rates[which, None] * t) * (rates[which, None] > 0)
        step = stats.norm.sf(t, at[which, None], 1e-3) * (at[which, None] > 0)
        return exponential + step

    got = integrate(f, np.array([2.0, 3.0, 10.0, 5.0]), tol=1e-8)
    expected = [1.0 - math.exp(-2.0), (1.0 - math.exp(-150.0)) / 50.0, 1.234, 0.0]
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=0)


LATENTS = {  # spread of the means, of the log-noise, and the noise
    "smooth": (0.1, 0.1, 0.3),
    "many narrow modes": (1.0, 0.1, 0.01),
    "modes of all widths": (1.0, 2.0, 0.01),
    "tiny": (1e-5, 0.1, 1e-4),
}


@pytest.mark.parametrize("latents", LATENTS)
@pytest.mark.parametrize("name", ["heteroscedastic", "student_t"])
def test_quadrature_of_many_components(name, latents):
    # against the sum over all pairs: relative error below 1e-4
    rng = np.random.default_rng(10)
    spread, log_spread, noise = LATENTS[latents]
    n, k = 5, 2
    m = rng.normal(0.0, spread, (24, n, k))
    v = noise**2 * np.exp(rng.normal(0.0, log_spread, (24, n, k)))
    m[0] = 3.0 * spread  # far from the others
    if name == "student_t":
        likelihood = StudentT(df=np.array([2.2, 6.0]), scale=np.array([noise, 0.3 * noise]))
    else:
        likelihood = HeteroscedasticGaussian(variance=np.array([noise**2, 4.0 * noise**2]))
        m = np.concatenate([m, rng.normal(0.0, log_spread, m.shape)], -1)
        v = np.concatenate([v, np.full(v.shape, log_spread)], -1)
    rare = m[:1] - 30.0 * (spread + noise) * (np.arange(m.shape[-1]) < k)  # ten deviations away
    p = predictive(
        (0.3, likelihood, m[:8], v[:8]),
        (0.69, likelihood, m[8:], v[8:]),
        (0.01, likelihood, rare, v[:1]),
    )
    mean, std = (part.numpy() for part in p.moments())
    y = mean + np.array([[0.0], [0.1], [-1.0], [8.0], [-100.0]]) * std
    y[1] = m[3, 1, :k]  # inside a mode
    components = p.gaussians().arrays()
    assert len(components[1]) > 128
    np.testing.assert_allclose(p.crps(y), metrics.crps.mixture_crps(y, *components), rtol=1e-4)


def test_few_components_are_exact():
    rng = np.random.default_rng(11)
    m, v = rng.normal(size=(6, 3, 2)), np.exp(rng.normal(size=(6, 3, 2)))
    noise = np.array([0.5, 0.1])
    y = rng.normal(size=(3, 2))
    got = predictive((1.0, Gaussian(variance=noise), m, v)).crps(y)
    for i in range(3):
        for j in range(2):
            moments = m[:, i, j, None], v[:, i, j, None] + noise[j]
            expected = metrics.crps_gaussian_mixture([y[i, j]], *moments)
            assert got[i, j] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("rate", "n_counts", "tolerance"), [(0.01, 300, 1e-7), (2.0, 500, 1e-7), (90.0, 10_000, 1e-4)]
)
def test_crps_of_counts(rate, n_counts, tolerance):
    # against the sum over all counts, with scipy's distribution and a trapezoidal rule
    rng = np.random.default_rng(12)
    m, v = rng.normal(0.0, 0.5, (4, 6, 2)), np.full((4, 6, 2), 0.1)
    likelihood = Poisson(rate=np.array([rate, 2.0 * rate]))
    p = predictive((0.2, likelihood, m[:3], v[:3]), (0.8, likelihood, m[3:], v[3:]))
    mean = p.moments()[0].numpy()
    y = np.round(mean * np.array([0.0, 0.5, 1.0, 2.0, 3.0, 1.0])[:, None])
    y[4] += 150.0  # far away
    y[5] += [0.25, 0.5]  # a target need not be an integer
    nodes = np.linspace(-8.0, 8.0, 101)
    shares = np.exp(-0.5 * nodes**2)
    rates = likelihood.rate * np.exp(m[..., None] + np.sqrt(v[..., None]) * nodes).swapaxes(-1, -2)
    expected = np.zeros((6, 2))
    counts = np.arange(n_counts)
    for i in range(6):
        for j in range(2):
            pieces = [
                weight * share / shares.sum() * stats.poisson.cdf(counts, r)
                for weight, row in zip([0.2 / 3, 0.2 / 3, 0.2 / 3, 0.8], rates[:, i, :, j])
                for share, r in zip(shares, row)
            ]
            F, below = np.sum(pieces, 0), np.clip(y[i, j] - counts, 0.0, 1.0)
            assert F[-1] > 1.0 - 1e-9
            expected[i, j] = below @ F**2 + (1.0 - below) @ (1.0 - F) ** 2
    got, near = p.crps(y), [0, 1, 2, 3, 5]
    np.testing.assert_allclose(got[near], expected[near], rtol=tolerance)
    np.testing.assert_allclose(got[4], expected[4], rtol=1e-4)


def test_rows_do_not_depend_on_each_other():
    rng = np.random.default_rng(13)
    m, v = rng.normal(size=(20, 5, 2)), np.exp(rng.normal(size=(20, 5, 2)))
    for likelihood, k in ((HeteroscedasticGaussian(np.ones(1)), 1), (Poisson(rate=2.0), 2)):
        y = rng.poisson(3.0, (5, k)).astype(float)
        whole = predictive((1.0, likelihood, m, v)).crps(y)
        single = predictive((1.0, likelihood, m[:, 2:3], v[:, 2:3])).crps(y[2:3])
        np.testing.assert_allclose(whole[2:3], single, rtol=1e-12)


# Scorers


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(14)
    X = rng.uniform(-3.0, 3.0, (60, 2))
    return X, 1000.0 + 50.0 * np.sin(X[:, 0]) + 5.0 * rng.normal(size=60)


@pytest.fixture(scope="module")
def model(data):
    settings = {"n_inducing": 10, "n_predict_draws": 16, "learning_rate": 0.05}
    return DeepGPRegressor(max_iter=40, random_state=0, **settings).fit(*data)


def test_crps_of_regressor_is_in_the_units_of_the_target(model, data):
    X, y = data
    for i in (0, 5, 9):
        mean, std = (moment[0] for moment in model.predict(X[i : i + 1], return_std=True))
        # distribution function by the trapezoidal rule from the public density; y is a node
        x = np.sort(np.append(mean + std * np.sinh(np.linspace(-5.0, 5.0, 2_001)), y[i]))
        density = np.exp(model.log_predictive_density(np.repeat(X[i : i + 1], len(x), 0), x))
        F = np.append(0.0, np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(x)))
        assert F[-1] == pytest.approx(1.0, abs=1e-5)
        below = x[1:] <= y[i]
        squares = np.where(below, F[1:] * F[:-1], (1.0 - F[1:]) * (1.0 - F[:-1]))
        expected = squares @ np.diff(x)
        assert model._crps(X[i : i + 1], y[i : i + 1])[0] == pytest.approx(expected, rel=1e-4)


def test_scores_of_our_regressor(model, data):
    X, y = data
    weights, deciles = np.arange(60) % 3, np.linspace(0.1, 0.9, 9)
    quantiles, ends = model.predict_quantiles(X, deciles), model.predict_interval(X, 0.9).T

    def error(coverage):
        low, high = model.predict_interval(X, coverage=coverage).T
        return abs(np.average((low <= y) & (y <= high), weights=weights) - coverage)

    expected = [
        np.average(model.log_predictive_density(X, y), weights=weights),
        -np.average(model._crps(X, y), weights=weights),
        -metrics.pinball_loss(y, quantiles, deciles, sample_weight=weights),
        -metrics.interval_score(y, *ends, 0.9, sample_weight=weights),
        -error(0.9),
        -np.mean([error(coverage) for coverage in deciles]),
    ]
    for scorer, right in zip(SCORERS, expected, strict=True):
        assert scorer(model, X, y, weights) == pytest.approx(right, rel=1e-12, abs=1e-12)


def test_scores_of_gaussian_regressors(data):
    X, y = data
    kernel = RBF() + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(X[:40], y[:40])
    X, y = X[40:], y[40:]
    mean, std = model.predict(X, return_std=True)
    ends = stats.norm.interval(0.9, mean, std)
    expected = {
        "log_predictive_density_scorer": stats.norm.logpdf(y, mean, std).mean(),
        "crps_scorer": -metrics.crps_gaussian(y, mean, std),
        "interval_score_scorer": -metrics.interval_score(y, *ends, 0.9),
        "coverage_scorer": -abs((stats.norm.cdf(np.abs(y - mean) / std) < 0.95).mean() - 0.9),
    }
    for scorer in SCORERS:
        got = scorer(model, X, y)
        assert got == pytest.approx(expected.get(scorer.__name__, got), rel=1e-9, abs=1e-12)
        assert got < 0.0


def test_several_outputs(data):
    X, y = data
    Y = np.stack([y, -0.01 * y**2], 1)
    gp = GaussianProcessRegressor(RBF() + WhiteKernel(0.1), normalize_y=True).fit(X, Y)
    mean, std = gp.predict(X, return_std=True)
    expected = stats.norm.logpdf(Y, mean, std).sum(1).mean()  # the joint density
    assert metrics.log_predictive_density_scorer(gp, X, Y) == pytest.approx(expected, rel=1e-12)
    model = DeepGPRegressor(**FEW).fit(X, Y)
    assert model._crps(X, Y).shape == (60, 2)
    for scorer in SCORERS:
        assert np.isfinite(scorer(model, X, Y))


@pytest.fixture(scope="module")
def pipeline(data):
    inner = make_pipeline(StandardScaler(), DeepGPRegressor(inference="dsvi", **FEW))
    return make_pipeline(PolynomialFeatures(include_bias=False), inner).fit(*data)


@pytest.mark.parametrize("scorer", SCORERS)
def test_pipelines_and_searches_are_taken_apart(scorer, data, pipeline):
    X, y = data
    inner = pipeline[-1]
    expected = scorer(inner[-1], inner[:-1].transform(pipeline[:-1].transform(X)), y)
    assert scorer(pipeline, X, y) == expected
    alone = make_pipeline(inner[-1])
    assert scorer(alone, inner[:-1].transform(pipeline[:-1].transform(X)), y) == expected
    ridge = make_pipeline(StandardScaler(), BayesianRidge())
    search = GridSearchCV(ridge, {"bayesianridge__lambda_1": [1e-6, 1.0]}, scoring=scorer).fit(X, y)
    expected = scorer(search.best_estimator_[-1], search.best_estimator_[0].transform(X), y)
    assert scorer(search, X, y) == expected
    assert scorer(FrozenEstimator(search), X, y) == expected
    assert scorer(FrozenEstimator(search.best_estimator_), X, y) == expected


@pytest.mark.parametrize("scorer", SCORERS)
def test_searches_without_a_best_estimator(scorer, data):
    search = GridSearchCV(BayesianRidge(), {"lambda_1": [1e-6]}, cv=2, scoring=scorer, refit=False)
    for estimator in (search, make_pipeline(StandardScaler(), search)):
        with pytest.raises(NotFittedError):
            scorer(estimator, *data)
    search.fit(*data)
    with pytest.raises(ValueError, match="GridSearchCV has no best estimator because of refit=Fal"):
        scorer(search, *data)


def test_cross_validate_takes_scorers():
    X, y = load_diabetes(return_X_y=True)
    scoring = {scorer.__name__: scorer for scorer in SCORERS}
    scores = cross_validate(BayesianRidge(), X, y, scoring=scoring, cv=3)
    # noise of 54 around a line: log-density -log(54 sqrt(2 pi)) - 1/2, CRPS 54 / sqrt(pi)
    log_density = scores["test_log_predictive_density_scorer"].mean()
    assert log_density == pytest.approx(-math.log(54.0 * math.sqrt(2.0 * math.pi)) - 0.5, abs=0.05)
    assert scores["test_crps_scorer"].mean() == pytest.approx(-54.0 / math.sqrt(math.pi), rel=0.05)
    assert -0.06 < scores["test_calibration_scorer"].mean() < 0.0


def test_classifiers_have_log_densities(data):
    X, y = data
    labels = np.where(y > 1000.0, "high", "low")
    model = DeepGPClassifier(**FEW).fit(X, labels)
    columns = np.searchsorted(model.classes_, labels)
    expected = model.predict_log_proba(X)[np.arange(60), columns].mean()
    assert metrics.log_predictive_density_scorer(model, X, labels) == pytest.approx(expected)
    with pytest.raises(TypeError, match="DeepGPClassifier predicts no distribution of the target"):
        metrics.crps_scorer(model, X, labels)


@pytest.mark.parametrize("scorer", SCORERS)
def test_scorers_pickle_and_refuse_point_forecasts(scorer, data):
    assert pickle.loads(pickle.dumps(scorer)) is scorer
    forest = RandomForestRegressor(n_estimators=2, max_depth=1).fit(*data)
    with pytest.raises(TypeError, match="RandomForestRegressor predicts no distribution"):
        scorer(forest, *data)


@pytest.mark.parametrize("scorer", SCORERS)
def test_weights_that_are_routed(scorer, data):
    X, y = data
    cv, weights = KFold(2), np.arange(60.0)
    with sklearn.config_context(enable_metadata_routing=True):
        ridge = BayesianRidge().set_fit_request(sample_weight=True)
        run = partial(cross_validate, ridge, X, y, cv=cv)
        routed = {"params": {"sample_weight": weights}}
        with pytest.raises(UnsetMetadataPassedError, match=f"{scorer.__name__}.score"):
            run(scoring=scorer, **routed)
        requests = (True, False, "other", None)
        weighted, ignoring, other, unset = (
            scorer.set_score_request(sample_weight=request) for request in requests
        )
        assert "sample_weight=True" in repr(weighted)
        got = {
            "weighted": run(scoring=pickle.loads(pickle.dumps(weighted)), **routed),
            "other": run(scoring=other, params={"sample_weight": weights, "other": weights}),
            "ignoring": run(scoring=clone(ignoring, safe=False), **routed),
        }
        both = run(scoring={"weighted": weighted, "ignoring": ignoring}, **routed)
        with pytest.raises(UnsetMetadataPassedError, match=f"{scorer.__name__}.score"):
            run(scoring=unset, **routed)
    expected = {"weighted": [], "ignoring": []}
    for train, test in cv.split(X):
        fitted = BayesianRidge().fit(X[train], y[train], weights[train])
        expected["weighted"].append(scorer(fitted, X[test], y[test], sample_weight=weights[test]))
        expected["ignoring"].append(scorer(fitted, X[test], y[test]))
    for name, like in (("weighted",) * 2, ("other", "weighted"), ("ignoring",) * 2):
        np.testing.assert_array_equal(got[name]["test_score"], expected[like])
    for name, scores in expected.items():
        np.testing.assert_array_equal(both[f"test_{name}"], scores)


def test_weights_of_several_scorers_without_routing(data):
    X, y = data
    ridge, weights = BayesianRidge().fit(X, y), np.arange(60.0)
    scoring = {scorer.__name__: scorer for scorer in SCORERS}
    scores = check_scoring(ridge, scoring)(ridge, X, y, sample_weight=weights)
    assert scores == {name: scorer(ridge, X, y, weights) for name, scorer in scoring.items()}


def test_scorers_of_other_intervals(model, data):
    X, y = data
    half = partial(metrics.coverage_scorer, coverage=0.5)
    low, high = model.predict_interval(X, coverage=0.5).T
    expected = -abs(((low <= y) & (y <= high)).mean() - 0.5)
    assert pickle.loads(pickle.dumps(half))(model, X, y) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1"):
        metrics.interval_score_scorer(model, X, y, coverage=90)


@pytest.mark.filterwarnings("ignore:Predicted variances smaller than 0")
def test_no_density_without_noise(data):
    X, y = data
    model = GaussianProcessRegressor(RBF(0.1), alpha=1e-300, optimizer=None).fit(X, y)
    with pytest.raises(ValueError, match="standard deviation of zero"):
        metrics.log_predictive_density_scorer(model, X, y)
