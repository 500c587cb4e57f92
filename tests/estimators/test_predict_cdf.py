"""Probabilities of thresholds, near and far."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy import integrate, stats

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.gp.likelihoods import (
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    NegativeBinomial,
    Poisson,
    StudentT,
)

FEW = {"max_iter": 20, "n_inducing": 8, "random_state": 0}
X = np.linspace(0.0, 1.0, 40)[:, None]
Y = np.exp(np.sin(6.0 * X[:, 0]) + 0.3 * np.random.default_rng(0).standard_normal(40))


def _tail(likelihood, y, m, v, above, dispersion=1.0):
    y, m, v = (torch.tensor(np.reshape(part, (1, -1)), dtype=torch.float64) for part in (y, m, v))
    likelihood, m, v = likelihood.dispersed(dispersion, m, v)
    return likelihood.tail(y, m, v, above).item()


@pytest.mark.parametrize("z", [-30.0, -8.0, 0.5, 9.0, 35.0])
@pytest.mark.parametrize("above", [False, True])
def test_gaussian_tails_are_those_of_scipy(z, above):
    exact = (stats.norm.sf if above else stats.norm.cdf)(z)
    value = _tail(Gaussian(0.3), 2.0 + 1.7 * np.sqrt(0.5) * z, 2.0, 0.2, above, dispersion=1.7)
    assert_allclose(value, exact, rtol=1e-11)


@pytest.mark.parametrize("z", [0.3, 5.0, 40.0, 300.0])
def test_student_tails_are_those_of_scipy(z):
    for df in (3.0, 6.0):
        value = _tail(StudentT(df, 1.0), z, 0.0, 1e-12, True)
        assert_allclose(value, stats.t(df).sf(z), rtol=1e-6)


@pytest.mark.parametrize(
    ("likelihood", "noise"),
    [(HeteroscedasticGaussian(1.0), stats.norm), (HeteroscedasticStudentT(5.0, 1.0), stats.t(5.0))],
)
@pytest.mark.parametrize("z", [0.5, 3.0, 12.0])
def test_noise_of_uncertain_size(likelihood, noise, z):
    def integrand(u):
        return stats.norm.pdf(u) * noise.sf(z * np.exp(-0.5 * np.sqrt(0.4) * u))

    exact = integrate.quad(integrand, -9.0, 9.0, epsabs=0.0, limit=200)[0]
    value = _tail(likelihood, z, [0.0, 0.0], [1e-12, 0.4], True)
    assert_allclose(value, exact, rtol=0.01)


COUNTS = [(Poisson(2.0), None), (NegativeBinomial(2.0, 0.5), 2.0)]


@pytest.mark.parametrize(("likelihood", "size"), COUNTS)
@pytest.mark.parametrize("v", [0.0, 0.01, 0.5, 3.0])
@pytest.mark.parametrize(
    ("m", "y"), [(0.3, 2), (0.3, 40), (0.0, 300), (4.0, 0), (6.0, 9.5), (15.0, 20)]
)
def test_tails_of_counts_are_quadratures(likelihood, size, v, m, y):
    sd, log_rate = np.sqrt(v), m + np.log(2.0)
    above = m < 1.0  # else the tail below

    def log_tail(f):
        rate = np.exp(f)
        given = stats.poisson(rate) if size is None else stats.nbinom(size, size / (size + rate))
        return given.logsf(y) if above else given.logcdf(y)

    if v == 0.0:
        exact = np.exp(log_tail(log_rate))
    else:
        f = log_rate + sd * np.linspace(-40.0, 40.0, 8_001)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            log_p = np.nan_to_num(log_tail(f), nan=-np.inf) + stats.norm.logpdf(f, log_rate, sd)
        exact = np.exp(log_p).sum() * (f[1] - f[0])
    assert_allclose(_tail(likelihood, y, m, v, above), exact, rtol=1e-6, atol=1e-290)


@pytest.mark.parametrize("transform", [None, "log", "exponential-normal", "yeo-johnson"])
@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic_student_t"])
def test_quantiles_are_inverse(transform, likelihood):
    settings = {"likelihood": likelihood, "target_transform": transform, **FEW}
    model = DeepGPRegressor(inference="dsvi", **settings).fit(X, Y)
    for p in (0.01, 0.4, 0.97):
        q = model.predict_quantiles(X[:5], [p])[:, 0]
        assert_allclose(model.predict_cdf(X[:5], q), p, atol=1e-7)
        assert_allclose(model.predict_cdf(X[:5], q, complement=True), 1.0 - p, atol=1e-7)
    if transform in ("log", "exponential-normal"):
        assert (model.predict_cdf(X, -1.0) == 0.0).all()
        assert (model.predict_cdf(X, 0.0, complement=True) == 1.0).all()


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "poisson", "negative_binomial"])
def test_shares_of_draws(likelihood):
    y = np.floor(3.0 * Y)
    model = DeepGPRegressor(inference="dsvi", likelihood=likelihood, **FEW).fit(X, y)
    draws = model.sample_y(X[::8], 500, random_state=1)
    for c in (1.0, 4.0):
        p = model.predict_cdf(X[::8], c)
        error = np.sqrt(p * (1.0 - p) / 500) + 1e-3
        assert (np.abs((draws <= c).mean(1) - p) < 4.0 * error).all()
        assert_allclose(p + model.predict_cdf(X[::8], c, complement=True), 1.0, atol=1e-8)


def test_the_default_and_outputs_and_sparse_models_have_it():
    several = SparseGPRegressor(max_iter=5, n_inducing=8).fit(X, np.c_[Y, -Y])
    far = several.predict_cdf(X[:3], np.tile([50.0, 50.0], (3, 1)), complement=True)
    assert far.shape == (3, 2)
    assert (0.0 <= far).all() and (far < 1e-6).all()
    assert several.predict_cdf(X[:3], 0.0).shape == (3, 2)
    model = DeepGPRegressor(inference="exact", n_layers=1, random_state=0).fit(X, Y)
    q = model.predict_quantiles(X[:4], [0.2, 0.9])
    assert_allclose(model.predict_cdf(X[:4], q[:, 1]), 0.9, atol=1e-6)


@pytest.mark.parametrize("y", [np.ones(3), np.nan, np.ones((5, 2))])
def test_thresholds_that_do_not_fit(y):
    model = SparseGPRegressor(max_iter=2, n_inducing=5).fit(X, Y)
    with pytest.raises(ValueError, match=r"inconsistent|NaN|outputs"):
        model.predict_cdf(X[:5], y)
