"""Comparisons of predictive distributions that are known, and free energies in closed form."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression

from skdgp import DeepGPRegressor
from skdgp._scoring import LatentMixture
from skdgp.gp.kernels import Matern, SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import SGHMC, EllipticalSlice
from skdgp.model_selection import (
    compare_posteriors,
    freeze_hyperparameters,
    log_marginal_likelihood,
)
from skdgp.model_selection.posteriors import compared, free_energy

ALL = {"all": np.ones(3, dtype=bool)}


def mixture(mean, sd, n_chains=4):
    """Components (C,) that are the same at three rows."""
    mean, sd = np.broadcast_arrays(np.asarray(mean, dtype=float), sd)
    mean, sd = (np.broadcast_to(a[:, None, None], (len(a), 3, 1)) for a in (mean, sd))
    return LatentMixture(np.full(len(mean), 1.0 / len(mean)), mean, sd, n_chains)


def test_gaussians():
    # W2 of N(0, 1) and N(a, b^2) is the root of a^2 + (b - 1)^2
    reference, other = mixture(np.zeros(8), 1.0), mixture([0.3], 0.8)
    inside = np.array([True, False, False])
    groups = {**ALL, "inside": inside, "outside": ~inside}
    table = compared(reference, {"other": other}, groups).table
    assert list(table) == ["reference", "other"]
    assert list(table["other"]) == ["all", "inside", "outside"]
    for figures in table["other"].values():
        values = {name: value for name, (value, _) in figures.items()}
        assert values["mean"] == pytest.approx(0.3, abs=1e-6)
        assert values["sd"] == pytest.approx(0.2, abs=2e-3)
        assert values["wasserstein"] == pytest.approx(math.hypot(0.3, 0.2), abs=2e-3)
        upper, lower = ((s * 1.644854 - 0.3) / 0.8 for s in (1, -1))
        mass = 0.5 * (math.erf(upper / 2**0.5) - math.erf(lower / 2**0.5))
        assert values["coverage"] == pytest.approx(mass, abs=2e-3)
        assert max(error for _, error in figures.values()) < 1e-6  # all chains are alike
    assert table["reference"]["all"]["wasserstein"][0] == pytest.approx(0.0, abs=1e-9)
    assert table["reference"]["all"]["coverage"][0] == pytest.approx(0.9, abs=2e-3)


@pytest.mark.parametrize("n_components", [60, 800])
def test_many_equal_components_are_one(n_components):
    reference, one = mixture(np.zeros(n_components), 1.0), mixture(np.zeros(4), 1.0)
    for a, b in ((reference, one), (one, reference)):
        figures = compared(a, {"other": b}, ALL).table["other"]["all"]
        assert figures["mean"][0] == pytest.approx(0.0, abs=1e-9)
        assert figures["sd"][0] == pytest.approx(0.0, abs=1e-9)
        assert figures["wasserstein"][0] < 0.02
        assert figures["coverage"][0] == pytest.approx(0.9, abs=5e-3)


def test_errors_are_those_of_chains():
    # the mean of four chains is 0 +- .1 sqrt(4/3) / 2; the model's deviation is that of the mean
    reference = mixture([-0.1, -0.1, 0.1, 0.1], 1.0)
    comparison = compared(reference, {"m": mixture([5.0], 1.0)}, ALL)
    value, error = comparison.table["m"]["all"]["mean"]
    assert value == pytest.approx(5.0 / math.sqrt(1.01), abs=1e-3)
    assert error == pytest.approx(0.1 / math.sqrt(3.0), rel=0.02)
    assert f"{value:.3f}({1000 * error:.0f})" in repr(comparison)


def test_free_energy_of_a_gaussian():
    # f ~ N(0, 1), y | f ~ N(f, s^2): at power b, f has precision 1 + b / s^2
    rng, y, s = np.random.default_rng(0), 1.3, 0.2
    powers = np.r_[0.01 ** np.linspace(0.0, 1.0, 6), 0.0]
    levels = []
    for b in powers:
        precision = 1.0 + b / s**2
        f = b * y / s**2 / precision + rng.standard_normal((8, 400)) / precision**0.5
        levels.append(-0.5 * (np.log(2.0 * np.pi * s**2) + (y - f) ** 2 / s**2))
    exact = -0.5 * (np.log(2.0 * np.pi * (1.0 + s**2)) + y**2 / (1.0 + s**2))
    value, error = free_energy(np.stack(levels, -1), powers)
    assert error < 0.05
    assert abs(value - exact) < 3.5 * error
    # thermodynamic integration by the trapezoidal rule over as many powers is far off
    means = np.mean(levels, (1, 2))
    assert abs(-np.trapezoid(means, powers) - exact) > 5.0 * error


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (25, 2))
    return X, 5.0 * np.sin(2.0 * X[:, 0]) + rng.standard_normal(25) + 40.0


def test_shallow_samplers_are_the_exact_process(rows):
    """In units of the target, whatever the scaling inside: moments, and the log marginal likelihood."""
    X, y = rows
    exact = DeepGPRegressor(1, inference="exact", likelihood="gaussian", max_iter=20).fit(X, y)
    settings = freeze_hyperparameters(exact)
    ess, sghmc = (
        DeepGPRegressor(inference=scheme, random_state=0, **more, **settings).fit(X, y)
        for scheme, more in (
            (EllipticalSlice(n_chains=2, n_samples=80), {"max_iter": 60}),
            (SGHMC(n_chains=2, n_samples=400, n_learn=0), {"n_inducing": 25, "max_iter": 400}),
        )
    )
    Xs = np.random.default_rng(1).uniform(-4.0, 4.0, (30, 2))
    inside = (np.abs(Xs) < 2.0).all(1)
    table = compare_posteriors(exact, {"ess": ess, "sghmc": sghmc}, Xs, inside).table
    assert "reference" not in table  # which has no chains
    for group in ("inside", "outside"):
        for figure in ("mean", "sd"):
            assert table["ess"][group][figure][0] < 1e-4
            # 400 independent draws: errors of .05 of the mean, of .035 of the standard deviation
            assert table["sghmc"][group][figure][0] < 0.15
    value, error = log_marginal_likelihood(ess)
    K = settings["kernel"][0]
    Z = torch.as_tensor(ess._x_scaler.transform(X))
    C = K(Z, Z).numpy() + ess.members_[0].likelihood_.variance * np.eye(25)
    target = (y - y.mean()) / y.std()
    expected = -0.5 * target @ np.linalg.solve(C, target)
    expected -= 0.5 * np.linalg.slogdet(2.0 * np.pi * C)[1] + 25 * np.log(y.std())
    assert value == pytest.approx(expected, abs=1e-6) and error < 1e-6


def test_evidence_agrees_with_importance_sampling():
    """Of two layers, in plain numpy: the first layer is drawn from its prior, the last one integrated out."""
    X, y = np.array([-1.9, -1.2, -0.5, 0.1, 0.7, 1.3]), np.array([-1.2, -0.9, 0.2, 0.4, 0.1, 1.6])

    def covariance(H, lengthscale, noise):
        squares = ((H[..., :, None] - H[..., None, :]) / lengthscale) ** 2
        return np.exp(-0.5 * squares) + noise * np.eye(6)

    rng, n = np.random.default_rng(0), 100_000
    H = rng.standard_normal((n, 6)) @ np.linalg.cholesky(covariance(X, 1.5, 1e-6)).T
    K = covariance(H, 0.7, 0.09)
    solved = np.linalg.solve(K, np.tile(y[:, None], (n, 1, 1)))[..., 0]
    logs = -0.5 * (solved @ y + np.linalg.slogdet(K)[1] + 6.0 * math.log(2.0 * math.pi))
    weights = np.exp(logs - logs.max())
    expected = math.log(weights.mean()) + logs.max()
    own_error = weights.std() / weights.mean() / n**0.5
    kernels = [SquaredExponential(lengthscale=a, trainable=False) for a in (1.5, 0.7)]
    model = DeepGPRegressor(
        inference=EllipticalSlice(hyperparameters="fixed"), kernel=kernels, mean="zero", width=1,
        likelihood=Gaussian(variance=0.09, trainable=False), standardize=False, max_iter=300,
        random_state=0,
    )  # fmt: skip
    evidence, error = log_marginal_likelihood(model.fit(X[:, None], y))
    assert error < 0.3
    assert abs(evidence - expected) < 4.0 * math.hypot(error, own_error)


def numbers_of(model):
    """Hyperparameters by name."""
    given = [part.get_params().items() for part in (*model.kernels_, model.likelihood_)]
    return [{k: v for k, v in part if np.ndim(v) or isinstance(v, float)} for part in given]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kernel", ["auto", Matern() + SquaredExponential(0.5)])
def test_frozen_hyperparameters_stay(rows, kernel):
    X, y = rows
    X = np.column_stack([X, np.ones(25)])  # a constant column that no kernel sees
    few = {"max_iter": 3, "random_state": 0}
    first = DeepGPRegressor(
        inference="dsvi", likelihood="gaussian", kernel=kernel, standardize="warp", **few
    ).fit(X, y)
    settings = freeze_hyperparameters(first)
    expected = numbers_of(first)
    for inference in ("dsvi", "structured", "collapsed", "aep", "sghmc", "ess"):
        model = DeepGPRegressor(inference=inference, **few, **settings).fit(X, y)
        np.testing.assert_equal(numbers_of(model), expected)
        np.testing.assert_array_equal(model._x_scaler.transform(X), first._x_scaler.transform(X))


def test_what_cannot_be_compared(rows):
    X, y = rows
    single = DeepGPRegressor(1, inference="exact", max_iter=1).fit(X, y)
    with pytest.raises(ValueError, match="compare_posteriors is for estimators of skdgp"):
        compare_posteriors(single, {"other": LinearRegression().fit(X, y)}, X)
    with pytest.raises(ValueError, match="inference='ess'"):
        log_marginal_likelihood(single)
    with pytest.raises(ValueError, match="needs a single model"):
        freeze_hyperparameters(DeepGPRegressor(max_iter=1, random_state=0).fit(X, y))
