"""Targets of which many equal one value, against sums, draws and integrals."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from skdgp import DeepGPRegressor
from skdgp.inspection import diagnose
from skdgp.inspection._responses import pit
from skdgp.metrics import crps_scorer
from skdgp.predictive.point_masses import PointMasses

N_DRAWS = 4000


def amounts(n, seed=0):
    """Amounts that are zero where the first column is large, and else log-normal."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    y = np.exp(X[:, 1] + 0.3 * rng.standard_normal(n))
    return X, np.where(rng.random(n) < expit(4.0 * X[:, 0]), 0.0, y)


@pytest.fixture(scope="module")
def model():
    return DeepGPRegressor(max_iter=20, random_state=0).fit(*amounts(120))


@pytest.fixture(scope="module")
def both_ends():
    """Shares that were cut off at 0 and 1."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (200, 1))
    y = np.clip(0.5 + 0.6 * X[:, 0] + 0.2 * rng.standard_normal(200), 0.0, 1.0)
    return DeepGPRegressor(max_iter=20, random_state=0).fit(X, y)


@pytest.fixture(params=["model", "both_ends"])
def any_model(request):
    return request.getfixturevalue(request.param)


def rows(model):
    return np.random.default_rng(2).uniform(-1.0, 1.0, (5, model.n_features_in_))


def test_probabilities_are_those_of_a_classifier(model):
    """Over the logistic function that made the data, to what 120 labels say."""
    X = np.column_stack([np.linspace(-0.9, 0.9, 19), np.zeros(19)])
    p = model.predict_cdf(X, 0.0)
    assert np.abs(p - expit(4.0 * X[:, 0])).mean() < 0.1
    assert_allclose(p + model.predict_cdf(X, 0.0, complement=True), 1.0, rtol=1e-10)


def test_predictions_are_those_of_draws(any_model):
    X, alpha = rows(any_model), [0.05, 0.3, 0.5, 0.8, 0.99]
    draws = any_model.sample_y(X, N_DRAWS)
    mean, std = any_model.predict(X, return_std=True)
    error = draws.std(1) / np.sqrt(N_DRAWS)
    assert_allclose((draws.mean(1) - mean) / error, 0.0, atol=4.0)
    off = np.square(draws - mean[:, None])
    assert_allclose((off.mean(1) - std**2) / (off.std(1) / np.sqrt(N_DRAWS)), 0.0, atol=4.0)
    for threshold in (0.0, 0.4, 1.0, 1.3):
        p = any_model.predict_cdf(X, threshold)
        error = np.sqrt(np.maximum(p * (1.0 - p), 1.0 / N_DRAWS) / N_DRAWS)
        assert_allclose(((draws <= threshold).mean(1) - p) / error, 0.0, atol=4.0)
    for order, q in zip(alpha, any_model.predict_quantiles(X, alpha).T):
        assert (any_model.predict_cdf(X, q + 1e-7) >= order - 1e-6).all()
        assert (any_model.predict_cdf(X, q - 1e-7) <= order + 1e-6).all()


def test_scores_are_integrals(any_model):
    """The CRPS of the distribution function, and densities that add up to one, by the trapezoidal rule."""
    atoms = any_model._atoms
    edges = (atoms.values[:, None] + atoms.widths[:, None] * [-0.5, 0.5]).ravel()
    for x, y in zip(rows(any_model), (0.0, 0.7)):
        t = any_model.predict_quantiles(x[None], expit(np.linspace(-14.0, 14.0, 2000)))[0]
        kinks = np.concatenate([atoms.values, edges, [y]])
        t = np.sort(np.concatenate([t, kinks, kinks - 1e-9, kinks + 1e-9]))
        X = np.broadcast_to(x, (len(t), len(x)))
        squares = np.square(any_model.predict_cdf(X, t) - (t >= y))
        known = -crps_scorer(any_model, x[None], np.array([y]))
        # scores, as means, are of distributions that end under a map
        assert_allclose(known, np.trapezoid(squares, t), rtol=3e-3)
        # next to zero the density of a heavy-tailed logarithm is large, where hardly any probability is
        t = t[~((t != 0.0) & (np.abs(t) < 1e-8))]
        density = np.exp(any_model.log_predictive_density(X[: len(t)], t))
        assert_allclose(np.trapezoid(density, t), 1.0, atol=1e-3)


def test_parts_of_the_variance_and_covariances(any_model):
    X = rows(any_model)
    mean, std = any_model.predict(X, return_std=True)
    decomposed = any_model.predict(X, return_std=True, decompose=True)
    assert_allclose(decomposed[0], mean)
    assert_allclose(np.hypot(*decomposed[1:]), std, rtol=1e-10)
    assert all((part > 0.0).all() for part in decomposed[1:])
    cov = any_model.predict(X, return_cov=True)[1]
    assert_allclose(np.diag(cov), std**2)
    assert np.linalg.eigvalsh(cov).min() > 0.0
    draws = any_model._draw_centers(X, 400, 0)[..., 0]
    error = draws.std(0) / np.sqrt(400)
    assert_allclose((draws.mean(0) - mean) / error, 0.0, atol=5.0)


def test_what_is_not_an_atom():
    """Targets without any, of two values, or with a likelihood that the user chose."""
    X, y = amounts(60)
    rng = np.random.default_rng(0)
    given = {"max_iter": 1, "random_state": 0}
    ratings = rng.choice(5, 60, p=[0.3, 0.2, 0.2, 0.2, 0.1])
    for targets in (rng.normal(size=60), (y > 0.0).astype(float), ratings):
        assert DeepGPRegressor(**given).fit(X, targets)._atoms is None
    for settings in ({"likelihood": "gaussian"}, {"inference": "dsvi"}):
        assert DeepGPRegressor(**settings, **given).fit(X, y)._atoms is None
    assert DeepGPRegressor(**given).fit(X, np.column_stack([y, y]))._atoms is None


def test_totals_are_right():
    """A map may have the amounts, now that it need not have the zeros."""
    X, y = amounts(250)
    model = DeepGPRegressor(max_iter=20, random_state=0).fit(X, y)
    assert model.target_transform_ == "log"
    new, targets = amounts(2000, seed=1)
    error = targets.std() / np.sqrt(250)
    assert abs(model.predict(new).mean() - targets.mean()) < 3.0 * error
    low, high = model.predict_interval(new).T
    assert 0.88 < ((low <= targets) & (targets <= high)).mean() < 0.97


def test_weights_and_order_of_rows_do_not_matter():
    X, y = amounts(60)
    weights = np.random.default_rng(3).integers(1, 4, 60)
    given = {"max_iter": 3, "random_state": 0}
    one = DeepGPRegressor(**given).fit(X, y, sample_weight=weights)
    many = DeepGPRegressor(**given).fit(np.repeat(X, weights, 0)[::-1], np.repeat(y, weights)[::-1])
    assert_allclose(one.predict(X), many.predict(X), rtol=1e-6)
    assert_allclose(one.feature_importances_, many.feature_importances_, rtol=1e-6)


def test_what_goes_with_a_model(model):
    X, y = amounts(120)
    copy = pickle.loads(pickle.dumps(model))
    assert_allclose(copy.predict(X), model.predict(X), rtol=1e-12)
    assert "targets: 0 by a classifier" in model.summary()
    assert (model.feature_importances_ > 0.1).all()
    diagnose(model, X, y)
    below, up_to = pit(model, X, y, None, {})
    assert_allclose((up_to - below) > 0.0, y == 0.0)
    assert_allclose(model.predict(X[:1]), model.predict(X)[:1], rtol=1e-7)
    with pytest.raises(ValueError, match="likelihood='heteroscedastic'"):
        copy.partial_fit(X, y)


def test_frames_with_gaps():
    """Rows are read once, and the classifier sees what the mixture sees."""
    pd = pytest.importorskip("pandas")
    X, y = amounts(80)
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": rng.choice(["u", "v", "w"], 80)})
    frame.loc[::9, "b"] = np.nan
    model = DeepGPRegressor(max_iter=3, random_state=0).fit(frame, y)
    mean, own, noise = model.predict(frame, return_std=True, decompose=True)
    assert_allclose(np.hypot(own, noise), model.predict(frame, return_std=True)[1], rtol=1e-9)
    assert_allclose(model.predict(frame[::-1])[::-1], mean, rtol=1e-7)
    assert ((model.sample_y(frame, 50) == 0.0).mean(1) > 0.5)[X[:, 0] > 0.6].all()


def test_held_out_rows():
    X, y = amounts(120)
    model, zeros = DeepGPRegressor(max_iter=5, random_state=0, early_stopping=True), y == 0.0
    assert isinstance(model.fit(X, y)._atoms, PointMasses)
    model.set_params(early_stopping=False).fit(X, y, X_val=X[zeros], y_val=y[zeros])
    assert model._atoms is None
