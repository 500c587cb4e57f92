"""Known variances of rows: by their name, and by weights beside a fixed variance."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian


@pytest.mark.parametrize("v0", [0.05, 0.5])
@pytest.mark.parametrize(
    ("model", "atol"),
    # inducing inputs at all rows need a jitter
    [(DeepGPRegressor(1, inference="exact"), 1e-8), (SparseGPRegressor(40), 1e-4)],
)
def test_weights_are_alpha_of_scikit_learn(model, atol, v0):
    rng = np.random.default_rng(0)
    X, v = rng.uniform(-2.0, 2.0, (40, 1)), rng.uniform(0.01, 0.3, 40)
    y = np.sin(2.0 * X[:, 0]) + np.sqrt(v) * rng.standard_normal(40)
    kernel = SquaredExponential(lengthscale=0.7, variance=1.0, trainable=False)
    model.set_params(kernel=kernel, likelihood=Gaussian(v0, trainable=False), standardize=False)
    model.set_params(max_iter=1, random_state=0).fit(X, y, sample_weight=v0 / v)
    exact = GaussianProcessRegressor(RBF(0.7), alpha=v, optimizer=None).fit(X, y)
    new = np.linspace(-3.0, 3.0, 30)[:, None]
    found, right = model.predict(new, return_std=True, latent=True), exact.predict(new, True)
    assert_allclose(found, right, atol=atol)


def table(n=40):
    rng = np.random.default_rng(0)
    X, v = rng.uniform(-2.0, 2.0, (n, 1)), rng.uniform(0.01, 0.3, n)
    return X, np.sin(2.0 * X[:, 0]) + np.sqrt(v) * rng.standard_normal(n), v


KERNEL = SquaredExponential(lengthscale=0.7, variance=1.0, trainable=False)
NEW = np.linspace(-3.0, 3.0, 30)[:, None]


def moments(model, latent=True):
    return np.stack(model.predict(NEW, return_std=True, latent=latent))


@pytest.mark.parametrize("factor", [1.0, 1e-7])
@pytest.mark.parametrize("likelihood", ["auto", "gaussian"])
def test_variances_are_alpha_of_scikit_learn(likelihood, factor):
    """Also where one row is known far better than all others: targets are standardized all the same."""
    X, y, v = table()
    v[3] *= factor
    settings = {"kernel": KERNEL, "likelihood": likelihood, "standardize": False, "max_iter": 1}
    model = DeepGPRegressor(1, inference="exact", **settings).fit(X, y, noise_variance=v)
    exact = GaussianProcessRegressor(RBF(0.7), alpha=v, optimizer=None).fit(X, y)
    assert_allclose(moments(model), exact.predict(NEW, True), atol=1e-8)
    noisy = np.hypot(exact.predict(NEW, True)[1], np.sqrt(v.mean()))
    assert_allclose(moments(model, latent=False)[1], noisy, atol=1e-8)
    assert_allclose(model.likelihood_.variance, v.mean())
    more = model.condition_on(X[:5] + 0.1, y[:5], noise_variance=v[5:10])
    X, y = np.concatenate([X, X[:5] + 0.1]), np.concatenate([y, y[:5]])
    exact.set_params(alpha=np.concatenate([v, v[5:10]])).fit(X, y)
    assert_allclose(moments(more), exact.predict(NEW, True), atol=1e-8)


def test_standardized_targets_are_those_without_variances():
    X, y, v = table()
    v[3] = 1e-6  # a weighted standard deviation would vanish
    model = DeepGPRegressor(1, inference="exact", kernel=KERNEL, max_iter=1)
    model.fit(X, 1e3 * y, noise_variance=1e6 * v)
    assert_allclose(model._y_scaler.scale, 1e3 * y.std())
    scale = y.std()
    exact = GaussianProcessRegressor(RBF(0.7 * X.std()), alpha=v / scale**2, optimizer=None)
    exact.fit(X, (y - y.mean()) / scale)
    mean, std = exact.predict(NEW, True)
    found = moments(model)
    assert_allclose(found[0], 1e3 * (mean * scale + y.mean()), rtol=1e-6, atol=1e-4)
    assert_allclose(found[1], 1e3 * std * scale, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        DeepGPRegressor(1, inference="exact"),
        SparseGPRegressor(15),
        DeepGPRegressor(1, inference="dsvi", n_inducing=15, max_iter=300, learning_rate=0.05),
        DeepGPRegressor(max_iter=30),
    ],
    ids=["exact", "sparse", "dsvi", "default"],
)
def test_rows_of_much_noise_count_little(model):
    X, y, v = table()
    y, v = np.where(np.arange(40) % 2, y, 30.0), np.where(np.arange(40) % 2, 0.05, 1e6)
    found = model.set_params(random_state=0).fit(X, y, noise_variance=v).predict(X)
    assert np.abs(found - np.sin(2.0 * X[:, 0])).mean() < 1.0


def test_repeated_rows():
    """Two measurements of one value are one of half the variance."""
    X, y, v = table(12)
    settings = {"kernel": KERNEL, "standardize": False, "max_iter": 1}
    model = DeepGPRegressor(1, inference="exact", **settings)
    twice = model.fit(np.repeat(X, 2, 0), np.repeat(y, 2), noise_variance=np.repeat(v, 2))
    expected = GaussianProcessRegressor(RBF(0.7), alpha=v / 2.0, optimizer=None).fit(X, y)
    assert_allclose(moments(twice), expected.predict(NEW, True), atol=1e-8)
    weighed = model.fit(X, y, sample_weight=np.full(12, 2.0), noise_variance=v)
    assert_allclose(moments(weighed), expected.predict(NEW, True), atol=1e-8)


def test_a_later_fit_knows_nothing():
    X, y, v = table()
    model = DeepGPRegressor(1, inference="exact", max_iter=5, random_state=0)
    plain = moments(model.fit(X, y))
    known = moments(model.fit(X, y, noise_variance=v))
    assert np.abs(plain - known).max() > 1e-3
    assert_allclose(moments(model.fit(X, y)), plain)


def test_bad_variances():
    X, y, v = table()
    model = DeepGPRegressor(1, inference="exact", max_iter=2)
    for bad, message in (
        (np.append(v[1:], 0.0), "must be positive, but is 0 in row 39"),
        (np.arange(1, 41, dtype="m8[s]"), "noise_variance must be numbers, and holds dates or dur"),
        (v[1:], "inconsistent numbers"),
        (np.append(v[1:], np.nan), "noise_variance contains NaN"),
        (v[:, None], "one number for each row"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(X, y, noise_variance=bad)
    for settings in (
        {"likelihood": "student_t", "inference": "dsvi"},
        {"noise": "none"},
        {"target_transform": "yeo-johnson"},
    ):
        with pytest.raises(ValueError, match="noise"):
            DeepGPRegressor(1, **{"inference": "exact", **settings}).fit(X, y, noise_variance=v)
    with pytest.raises(ValueError, match="classes have none"):
        DeepGPClassifier(1, inference="vecchia").fit(X, y > 0.0, noise_variance=v)
    with pytest.raises(ValueError, match="had no noise_variance"):
        model.fit(X, y).condition_on(X, y, noise_variance=v)
