"""Criteria for the next run against integrals, brute force and closed forms."""

import mpmath
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import entr
from scipy.stats import norm
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.acquisition import _log_h, alc, alm, contour_entropy, log_expected_improvement

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def table(n_outputs=None):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(25, 2)) * [1.0, 100.0]
    y = 10.0 * np.sin(6.0 * X[:, 0]) + X[:, 1] / 10.0 + 0.5 * rng.standard_normal(25)
    return X, (y if n_outputs is None else np.column_stack([y, -y * X[:, 0]]))


def candidates(n=9):
    return np.random.default_rng(1).uniform(-0.2, 1.2, size=(n, 2)) * [1.0, 100.0]


@pytest.fixture(scope="module")
def fitted():
    known = {}

    def fit(scheme="exact", likelihood="gaussian", n_outputs=None, **settings):
        key = scheme, likelihood, n_outputs, *settings.items()
        if key not in known:
            settings = {"target_transform": None, "max_iter": 10, "random_state": 0, **settings}
            n_layers = 1 if scheme in ("exact", "vecchia") else 2
            model = DeepGPRegressor(n_layers, inference=scheme, likelihood=likelihood, **settings)
            known[key] = model.fit(*table(n_outputs))
        return known[key]

    return fit


def test_logarithms_far_below_zero():
    z = np.concatenate([np.linspace(-130.0, 12.0, 143), [-1e3, -1e5, -1e8, -1.0 + 1e-9, -100.001]])
    with mpmath.workdps(60):
        expected = [
            float(
                mpmath.log(
                    mpmath.npdf(mpmath.mpf(x))
                    + mpmath.mpf(x) * mpmath.erfc(-mpmath.mpf(x) / mpmath.sqrt(2)) / 2
                )
            )
            for x in z[z > -1e4]
        ]
    assert_allclose(_log_h(torch.tensor(z))[z > -1e4], expected, rtol=1e-11, atol=1e-13)
    far = z[z <= -1e4]
    assert_allclose(
        _log_h(torch.tensor(far))[-len(far) :],
        -0.5 * far**2 - np.log(2 * np.pi) / 2 - 2 * np.log(-far),
        rtol=1e-14,
    )


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("scheme", ["exact", "vecchia", "dsvi"])
def test_improvements_are_integrals_of_tails(fitted, scheme, maximize):
    model, X = fitted(scheme, "heteroscedastic"), candidates(4)
    best = np.quantile(table()[1], 0.8 if maximize else 0.2)
    found = log_expected_improvement(model, X, best, maximize=maximize)
    for i in range(len(X)):
        one = model.predict_dist(X[[i]]).latent
        reach = np.abs(one.mean - best)[0] + 40.0 * one.std[0]
        tail = one.sf if maximize else one.cdf
        sign = 1.0 if maximize else -1.0
        ei = quad(lambda t: tail(best + sign * t)[0], 0.0, reach, limit=200, epsabs=1e-12)[0]  # noqa: B023
        assert_allclose(np.exp(found[i]), ei, rtol=1e-5, atol=1e-9)


def test_improvements_beyond_all_numbers(fitted):
    model, X = fitted(), candidates()
    found = log_expected_improvement(model, X, 1e6)
    mean, std = model.predict(X, return_std=True, latent=True)
    z = (mean - 1e6) / std
    expected = norm.logpdf(z) + np.log(std) - 2.0 * np.log(-z)
    assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_variances(fitted, n_outputs):
    model, X = fitted(n_outputs=n_outputs), candidates()
    std = model.predict(X, return_std=True, latent=True)[1]
    assert_allclose(alm(model, X), std**2)


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_fall_of_variances_by_conditioning(fitted, n_outputs):
    """A run at each candidate, whatever it finds, with the noise of the fit."""
    model, X, R = fitted(n_outputs=n_outputs), candidates(), candidates(7) * 0.9
    before = alm(model, R)
    shape = 1 if n_outputs is None else (1, n_outputs)
    after = [alm(model.condition_on(X[[i]], np.zeros(shape)), R) for i in range(len(X))]
    assert_allclose(alc(model, X, R), np.mean(before - np.array(after), axis=1), rtol=1e-6)


@pytest.mark.parametrize("scheme", ["exact", "vecchia", "collapsed"])
def test_fall_of_variances_by_covariances(fitted, scheme, monkeypatch):
    monkeypatch.setattr("skdgp.acquisition._AT_ONCE", 4)
    model, X, R = fitted(scheme, "heteroscedastic"), candidates(), candidates(7) * 0.9
    _, cov = model.predict(np.concatenate([R, X]), return_cov=True, latent=True)
    _, _, noise = model.predict(X, return_std=True, decompose=True)
    expected = np.square(cov[:7, 7:]).mean(0) / (np.diag(cov)[7:] + noise**2)
    assert_allclose(alc(model, X, R), expected, rtol=1e-6)


def test_references_are_candidates(fitted, monkeypatch):
    monkeypatch.setattr("skdgp.acquisition._N_REFERENCES", 4)
    model, X = fitted(), candidates()
    some = alc(model, X, random_state=1)
    assert np.array_equal(some, alc(model, X, random_state=1))
    assert not np.allclose(some, alc(model, X, random_state=2))
    monkeypatch.undo()
    assert_allclose(alc(model, X), alc(model, X, X), rtol=1e-9)


def test_entropy_of_a_contour(fitted):
    model, X = fitted(), candidates()
    mean, std = model.predict(X, return_std=True, latent=True)
    p = norm.sf((3.0 - mean) / std)
    assert_allclose(contour_entropy(model, X, 3.0), entr(p) + entr(1.0 - p), rtol=1e-7, atol=1e-15)
    assert contour_entropy(fitted(n_outputs=2), X, 3.0).shape == (len(X), 2)


def test_pipelines(fitted):
    X, y = table()
    settings = {"inference": "exact", "target_transform": None, "max_iter": 5, "random_state": 0}
    pipeline = make_pipeline(StandardScaler(), DeepGPRegressor(1, **settings)).fit(X, y)
    rows = pipeline[0].transform(candidates())
    for criterion in (alm, alc, lambda m, X: log_expected_improvement(m, X, 5.0)):
        assert_allclose(criterion(pipeline, candidates()), criterion(pipeline[1], rows))


def test_bad_input(fitted):
    X, y = table()
    model = fitted()
    with pytest.raises(ValueError, match="features"):
        alm(model, X[:, :1])
    with pytest.raises(TypeError, match="best_f"):
        log_expected_improvement(model, X, "best")
    with pytest.raises(ValueError, match="one output"):
        log_expected_improvement(fitted(n_outputs=2), X, 1.0)
    mapped = fitted(target_transform="yeo-johnson")
    for criterion in (alc, lambda m, X: log_expected_improvement(m, X, 1.0)):
        with pytest.raises(ValueError, match="target_transform=None"):
            criterion(mapped, X)
    classifier = DeepGPClassifier(1, inference="vecchia", max_iter=2).fit(X, y > 5.0)
    with pytest.raises(ValueError, match="regressors of skdgp"):
        alm(classifier, X)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_to_compare_with_are_finite(fitted, value):
    for criterion in (log_expected_improvement, contour_entropy):
        with pytest.raises(ValueError, match="must be finite"):
            criterion(fitted(), candidates(), value)
