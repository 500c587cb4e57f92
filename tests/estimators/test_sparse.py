"""The shallow estimators."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import make_friedman1, make_moons
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.gp.kernels import Matern as OurMatern
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import DSVI, VFE
from skdgp.inference.sparse import full_batch

pytestmark = pytest.mark.usefixtures("no_global_randomness")

METHODS = ["vfe", "fitc", "pep"]


def rows(n=80, n_features=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, n_features))
    return X, np.sin(3.0 * X).sum(1) + 0.2 * rng.standard_normal(n)


@pytest.mark.parametrize(
    ("method", "n_features", "kernel", "noise"),
    [
        ("vfe", 1, "squared_exponential", 1e-2),
        ("vfe", 4, "matern32", 0.3),
        ("fitc", 4, "squared_exponential", 1e-2),
        ("fitc", 1, "matern32", 0.3),
        ("pep", 1, "matern32", 1e-2),
        ("pep", 4, "squared_exponential", 0.3),
    ],
)
def test_all_rows_as_inducing_inputs_are_the_exact_gp(method, n_features, kernel, noise):
    """At equal fixed numbers, predictions are those of scikit-learn to a millionth."""
    X, y = rows(200, n_features)
    ours = SquaredExponential if kernel == "squared_exponential" else OurMatern
    model = SparseGPRegressor(
        kernel=ours(lengthscale=0.7, variance=1.5, trainable=False),
        likelihood=Gaussian(variance=noise, trainable=False),
        method=method,
        standardize=False,
        random_state=0,
    ).fit(X, y)
    theirs = RBF(0.7) if kernel == "squared_exponential" else Matern(0.7, nu=1.5)
    exact = GaussianProcessRegressor(ConstantKernel(1.5) * theirs, alpha=noise, optimizer=None)
    exact.fit(X, y)
    new = np.vstack([rows(100, n_features, seed=1)[0] * 1.2, X[:20]])
    mean, std = model.predict(new, return_std=True)
    expected, expected_std = exact.predict(new, return_std=True)
    assert_allclose(mean, expected, atol=1e-6)
    assert_allclose(std, np.sqrt(expected_std**2 + noise), atol=1e-6)
    evidence = exact.log_marginal_likelihood_value_
    assert_allclose(-model.loss_curve_[-1] * len(y), evidence, rtol=1e-6)
    assert_allclose(model.lower_bound_, evidence, rtol=1e-6)


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_draws_between_rows_are_as_wide_as_those_of_scikit_learn(nu):
    """Where lengthscales are long, all that is unknown between rows is in the tail of the spectrum."""
    X = rows(60, 2)[0]
    y = np.sin(X).sum(1)
    model = SparseGPRegressor(
        kernel=OurMatern(nu, lengthscale=10.0, trainable=False),
        likelihood=Gaussian(variance=1e-5, trainable=False),
        standardize=False,
        random_state=0,
    ).fit(X, y)
    exact = GaussianProcessRegressor(Matern(10.0, nu=nu), alpha=1e-5, optimizer=None).fit(X, y)
    new = rows(40, 2, seed=1)[0]
    expected, expected_cov = exact.predict(new, return_cov=True)
    mean, cov = model.predict(new, return_cov=True, latent=True)
    scale = np.sqrt(np.outer(np.diag(expected_cov), np.diag(expected_cov)))
    assert_allclose(mean, expected, atol=1e-6)
    assert_allclose(cov / scale, expected_cov / scale, atol=1e-3)
    draws = model.sample_y(new, 400, latent=True)
    z = (draws - expected[:, None]) / np.sqrt(np.diag(expected_cov))[:, None]
    inside = (np.abs(z) < 1.0).mean(1)  # a normal variable is there with probability 0.683
    assert abs(inside.mean() - 0.683) < 0.03
    assert np.abs(inside - 0.683).max() < 4.0 * np.sqrt(0.683 * 0.317 / 400)
    root = np.linalg.cholesky(expected_cov + 1e-9 * np.eye(40))
    white = np.linalg.solve(root, draws - expected[:, None])
    assert abs(white.var() - 1.0) < 0.1


def test_methods_are_members_of_one_family():
    X, y = rows()

    def mean(method, alpha):
        model = SparseGPRegressor(8, method=method, alpha=alpha, max_iter=30, random_state=0)
        return model.fit(X, y).predict(X)

    vfe, fitc, between = mean("vfe", 0.5), mean("fitc", 0.5), mean("pep", 0.5)
    assert_array_equal(vfe, mean("vfe", 1.0))
    assert_allclose(vfe, mean("pep", 1e-8), atol=1e-4)
    assert_array_equal(fitc, mean("pep", 1.0))
    for other in (vfe, fitc):
        assert np.abs(between - other).max() > 1e-3


def test_vfe_is_a_bound_and_its_own_lower_bound():
    X, y = rows()
    model = SparseGPRegressor(n_inducing=10, random_state=0).fit(X, y)
    bound = -len(y) * (model.loss_curve_[-1] + np.log(y.std()))
    assert_allclose(model.lower_bound_, bound, atol=1e-3)
    other = SparseGPRegressor(n_inducing=10, method="fitc", random_state=0).fit(X, y)
    assert other.lower_bound_ < model.lower_bound_


@pytest.mark.parametrize(
    ("kernel", "rounding"),
    [("squared_exponential", 1e-3), ("matern52", 0.2)],  # of processors, the worst
)
def test_smooth_targets_with_little_noise(kernel, rounding):
    """Kernels of huge variance, 1e5 and 1e8, whose matrices are singular up to rounding."""
    X, y = make_friedman1(450, noise=0.01, random_state=1)
    model = SparseGPRegressor(kernel=kernel, random_state=0).fit(X[:250], y[:250])
    assert np.max(model.kernels_[0].variance) > 1e3
    mean, std = model.predict(X, return_std=True)
    error = (y - mean) / std
    assert np.sqrt(np.mean(error[:250] ** 2)) < 1.0 and np.sqrt(np.mean(error[250:] ** 2)) < 3.0
    alone = [model.predict(row[None])[0] for row in X[250:260]]
    assert_allclose(alone, mean[250:260], rtol=0.0, atol=rounding * std.min())


def test_vfe_is_its_own_lower_bound_with_little_noise():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (6_000, 2))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 1e-3 * rng.standard_normal(6_000)
    for rows in (slice(2000), slice(None)):
        model = SparseGPRegressor(n_inducing=100, max_iter=20, random_state=0).fit(X[rows], y[rows])
        assert model.likelihood_.variance < 1e-5
        bound = -len(y[rows]) * (model.loss_curve_[-1] + np.log(y[rows].std()))
        assert_allclose(model.lower_bound_, bound, atol=1e-2)


def test_noise_stays_above_its_floor():
    """FITC explains these rows without noise if it may (Bauer et al., 2016)."""
    X = np.linspace(0.0, 1.0, 40)[:, None]
    y = np.sin(5.0 * X[:, 0])
    settings = {"method": "fitc", "train_inducing": True, "max_iter": 60, "random_state": 0}
    model = SparseGPRegressor(40, **settings).fit(X, y)
    assert model.likelihood_.variance >= 1e-6 * y.var()
    assert np.isfinite(model.predict(X, return_std=True)).all()
    assert np.isfinite(model.log_predictive_density(X, y)).all()


def test_search_ends_by_itself():
    X, y = rows()
    model = SparseGPRegressor(n_inducing=15, random_state=0).fit(X, y)
    assert model.n_iter_ == len(model.loss_curve_) < 100
    assert (np.diff(model.loss_curve_) <= 0.0).all()
    every = SparseGPRegressor(n_inducing=15, random_state=0, tol=0.0, max_iter=40).fit(X, y)
    assert every.n_iter_ == 40
    assert every.lower_bound_ >= model.lower_bound_ - 1e-6
    X, y = make_moons(80, noise=0.2, random_state=0)
    classifier = SparseGPClassifier(n_inducing=15, random_state=0).fit(X, y)
    assert classifier.n_iter_ < 100


@pytest.mark.parametrize("method", METHODS)
def test_chunks_of_rows_do_not_matter(method, monkeypatch):
    X, y = rows(300, 2)
    y = np.column_stack([y, np.cos(y)])
    model = SparseGPRegressor(n_inducing=12, method=method, max_iter=10, random_state=0)
    whole = model.fit(X, y).predict(X, return_std=True)
    monkeypatch.setattr(full_batch, "AT_ONCE", 12 * 70)
    monkeypatch.setattr(full_batch, "_KEPT", 0)
    chunks = clone(model).fit(X, y).predict(X, return_std=True)
    assert_allclose(chunks, whole, rtol=1e-6)


def test_many_rows_as_fast_as_memory_allows(monkeypatch, watch):
    """Matrices with all rows and all inducing inputs are never there at once."""
    monkeypatch.setattr(full_batch, "AT_ONCE", 20_000)
    monkeypatch.setattr(full_batch, "_KEPT", 0)
    sizes = []
    watch(torch.linalg, "solve_triangular", lambda n, A, B, **_: sizes.append(B.shape[-2:].numel()))
    X, y = rows(5_000, 2)
    SparseGPRegressor(n_inducing=20, max_iter=3, random_state=0).fit(X, y)
    SparseGPClassifier(n_inducing=20, max_iter=1, random_state=0).fit(X, y > 0.0)
    assert 0 < max(sizes) <= 20_000


def test_the_same_as_the_deep_estimator_with_its_scheme():
    X, y = rows()
    settings = {"n_inducing": 10, "max_iter": 20, "random_state": 0}
    ours = SparseGPRegressor(tol=0.0, **settings).fit(X, y)
    deep = DeepGPRegressor(1, inference=VFE(tol=0.0), **settings).fit(X, y)
    assert_array_equal(ours.predict(X), deep.predict(X))


def test_classes_nearly_as_by_minibatches():
    X, y = make_moons(120, noise=0.25, random_state=0)
    settings = {"n_inducing": 25, "random_state": 0}
    ours = SparseGPClassifier(**settings).fit(X, y)
    scheme = DSVI(natural_step=0.5)
    steps = DeepGPClassifier(1, inference=scheme, max_iter=500, **settings).fit(X, y)
    assert -1.0 < ours.lower_bound_ - steps.lower_bound_ < 3.0
    assert_allclose(ours.predict_proba(X), steps.predict_proba(X), atol=0.1)


def test_everything_that_estimators_offer():
    X, y = rows(60, 2)
    model = SparseGPRegressor(n_inducing=20, max_iter=30, random_state=0).fit(X, y)
    mean, cov = model.predict(X[:5], return_cov=True)
    std = model.predict(X[:5], return_std=True)[1]
    assert_allclose(np.diag(cov), std**2)
    low, high = model.predict_interval(X[:5], coverage=0.9).T
    assert_allclose(high - low, 2 * 1.6448536 * std, rtol=1e-6)
    assert_allclose(model.predict_quantiles(X[:5], [0.5])[:, 0], mean, atol=1e-8)
    expected = -0.5 * (np.log(2 * np.pi * std**2) + ((y[:5] - mean) / std) ** 2)
    assert_allclose(model.log_predictive_density(X[:5], y[:5]), expected, rtol=1e-9)
    draws = model.sample_y(X[:5], 3000)
    assert (np.abs(draws.mean(1) - mean) < 5.0 * std / np.sqrt(3000) + 1e-3).all()


@pytest.mark.parametrize("Estimator", [SparseGPRegressor, SparseGPClassifier])
def test_warm_start_goes_on(Estimator):
    X, y = rows()
    y = y if Estimator is SparseGPRegressor else y > 0.0
    settings = {"n_inducing": 10, "random_state": 0, "tol": 0.0}
    model = Estimator(max_iter=5, warm_start=True, **settings).fit(X, y)
    first = model.lower_bound_
    assert model.fit(X, y).lower_bound_ > first
    assert Estimator(max_iter=5, **settings).fit(X, y).lower_bound_ == first


@pytest.mark.parametrize(
    ("Estimator", "settings", "message"),
    [
        (SparseGPRegressor, {"method": "ep"}, "The 'method' parameter"),
        (SparseGPRegressor, {"alpha": 0.0}, "The 'alpha' parameter"),
        (SparseGPRegressor, {"likelihood": "student_t"}, "The 'likelihood' parameter"),
        (SparseGPClassifier, {"likelihood": "robustmax"}, "Unknown likelihood 'robustmax'"),
        (SparseGPClassifier, {"kernel": "rbff"}, "Unknown kernel"),
    ],
)
def test_what_cannot_be_asked_for(Estimator, settings, message):
    X, y = rows(20)
    with pytest.raises(ValueError, match=message):
        Estimator(random_state=0, **settings).fit(X, y > 0.0)
