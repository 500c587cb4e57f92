"""Copies of fitted models with the same hyperparameters, maps and scaling."""

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.gp.kernels import ArcCosine, Linear, Matern, OnColumns, Periodic, SquaredExponential
from skdgp.inference import NNGP, RandomFeatures
from skdgp.model_selection import freeze_hyperparameters

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

MAPS = ("auto", "log", "yeo-johnson", None)
FEW = {"max_iter": 5, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    """Skewed inputs, a constant column, and targets that are positive and skewed."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.exp(rng.uniform(-1.0, 1.5, (35, 2))), np.ones(35)])
    latent = np.sin(2.0 * X[:, 0]) + X[:, 1] / 3.0
    return X[:30], np.exp(latent + 0.3 * rng.standard_normal(35))[:30], X[30:]


def copied(model, X, y, *weights, **settings):
    """A copy by the same scheme, which was cloned and pickled on its way."""
    names = ("inference", "max_iter", "random_state", "n_inducing", "early_stopping")
    own = {name: getattr(model, name) for name in names}
    frozen = {**own, **freeze_hyperparameters(model), **settings}
    copy = clone(type(model)(**frozen)).fit(X, y, *weights)
    return pickle.loads(pickle.dumps(copy))


def check_same(first, other, Xs):
    """Means, deviations and log densities agree to 1e-8."""
    moments = [model.predict(Xs, return_std=True) for model in (first, other)]
    for one, two in zip(*moments):
        assert_allclose(one, two, rtol=1e-8, atol=1e-8 * np.abs(one).max())
    ys = np.abs(moments[0][0]) + 0.1
    assert_allclose(*(m.log_predictive_density(Xs, ys) for m in (first, other)), rtol=1e-8)


@pytest.mark.parametrize("target_transform", MAPS)
@pytest.mark.parametrize(
    ("scheme", "likelihood"),
    [
        ("exact", "heteroscedastic"),
        *((name, "gaussian") for name in ("exact", "nngp", "vfe", "pep")),
    ],
)
def test_a_copy_by_the_same_scheme_predicts_the_same(data, scheme, likelihood, target_transform):
    X, y, Xs = data
    settings = {"likelihood": likelihood, "target_transform": target_transform}
    first = DeepGPRegressor(1, inference=scheme, **settings, **FEW).fit(X, y)
    other = copied(first, X, y)
    assert other.target_transform_ == first.target_transform_
    check_same(first, other, Xs)


@pytest.mark.parametrize(
    "case", ["outputs", "weights", "warp", "unscaled", "held out", "no noise", "n_inducing"]
)
def test_a_copy_has_the_same_scaling(data, case):
    X, y, Xs = data
    settings = {
        "warp": {"standardize": "warp"},
        "unscaled": {"standardize": False},
        "held out": {"early_stopping": True},
        "n_inducing": {"n_inducing": 9, "inference": "vfe"},
    }.get(case, {})
    if case == "outputs":
        y = np.column_stack([y, np.log(y)])
    if case == "no noise":
        y = X[:, 0] * X[:, 1]
    weights = [np.arange(30) % 3 + 1.0] if case == "weights" else []
    given = {"inference": "exact", "likelihood": "gaussian", "max_iter": 15, "random_state": 0}
    first = DeepGPRegressor(1, **{**given, **settings}).fit(X, y, *weights)
    if case == "outputs":
        assert first.target_transform_ == ["log", None]
    check_same(first, copied(first, X, y, *weights), Xs)


@pytest.mark.parametrize("n_layers", [2, 3])
@pytest.mark.parametrize(
    "kernel", ["squared_exponential", "arc_cosine", Matern(0.5) + Linear(), ArcCosine(order=0)]
)
def test_deep_kernels_keep_their_lengthscales(data, kernel, n_layers):
    X, y, Xs = data
    settings = {"kernel": kernel, "likelihood": "gaussian"}
    first = DeepGPRegressor(n_layers, inference="nngp", **settings, **FEW).fit(X, y)
    check_same(first, copied(first, X, y), Xs)


def test_the_copy_is_the_exact_process_of_its_settings(data):
    """A map, a scaling, a kernel and noise, from a scheme that only approximates, in closed form."""
    X, y, Xs = data
    settings = {"likelihood": "gaussian", "target_transform": "log", "max_iter": 30}
    first = DeepGPRegressor(1, inference="dsvi", random_state=0, **settings).fit(X, y)
    settings = freeze_hyperparameters(first)
    exact = DeepGPRegressor(inference="exact", random_state=0, **settings).fit(X, y)
    (kernel,), noise = settings["kernel"], float(settings["likelihood"].variance[0])
    u, scale = np.log(y), np.log(y).std()
    noise = noise / scale**2
    A, B = (torch.as_tensor(first._x_scaler.transform(part)) for part in (X, Xs))
    K_inv = np.linalg.inv(kernel(A, A).numpy() + noise * np.eye(30))
    cross = kernel(B, A).numpy()
    mean = cross @ K_inv @ ((u - u.mean()) / scale)
    var = kernel.diag(B).numpy() + noise - np.einsum("ij,jk,ik->i", cross, K_inv, cross)
    ys = np.linspace(0.5, 5.0, len(Xs))
    z = (np.log(ys) - u.mean()) / scale
    expected = norm.logpdf(z, mean, np.sqrt(var)) - np.log(ys * scale)
    assert_allclose(exact.log_predictive_density(Xs, ys), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "likelihood",
    ["gaussian", "student_t", "heteroscedastic", "heteroscedastic_student_t", "poisson",
     "negative_binomial"],
)  # fmt: skip
@pytest.mark.parametrize("n_layers", [1, 2])
def test_other_schemes_get_map_scaling_and_noise(data, likelihood, n_layers):
    X, y, _ = data
    y = np.round(y) if "oi" in likelihood or "bin" in likelihood else y
    few = {"max_iter": 2, "random_state": 0, "n_inducing": 5}
    first = DeepGPRegressor(n_layers, inference="dsvi", likelihood=likelihood, **few).fit(X, y)
    settings = freeze_hyperparameters(first)
    other = DeepGPRegressor(inference="structured", **few, **settings).fit(X, y)
    assert other.target_transform_ == first.target_transform_
    assert_array_equal(other._x_scaler.transform(X), first._x_scaler.transform(X))
    for one, two in zip((*first.kernels_, first.likelihood_), (*other.kernels_, other.likelihood_)):
        for name in one._positive:
            assert_allclose(getattr(two, name), getattr(one, name), rtol=1e-12)
    if first.target_transform_ is not None:
        settings["target_transform"] = None
        plain = DeepGPRegressor(inference="dsvi", **few, **settings).fit(X, y)
        assert plain.target_transform_ is None
        assert plain._y_scaler.center == pytest.approx(y.mean())


def test_other_rows_get_the_same_map_and_scaling(data):
    X, y, _ = data
    first = DeepGPRegressor(1, inference="exact", target_transform="yeo-johnson", **FEW).fit(X, y)
    other = copied(first, X[:20] + 0.1, y[:20] + 0.5)
    assert other._y_scaler.maps[0].curve == first._y_scaler.maps[0].curve
    assert_array_equal(other._x_scaler.transform(X), first._x_scaler.transform(X))
    assert_allclose(other.likelihood_.variance, first.likelihood_.variance, rtol=1e-12)
    with pytest.raises(ValueError, match="scaling of 3 features, X has 2"):
        copied(first, X[:, :2], y)


@pytest.mark.parametrize("likelihood", ["probit", "logit", "softmax", "robustmax"])
def test_classes(data, likelihood):
    X, y, _ = data
    labels = np.digitize(y, [1.0, 3.0]) if "max" in likelihood else (y > 1.5).astype(int)
    few = {"max_iter": 3, "random_state": 0}
    first = DeepGPClassifier(1, inference="dsvi", likelihood=likelihood, **few).fit(X, labels)
    settings = freeze_hyperparameters(first)
    assert "target_transform" not in settings
    for scheme in ("structured", "ess" if likelihood == "robustmax" else "sghmc"):
        other = DeepGPClassifier(inference=scheme, **few, **settings).fit(X, labels)
        for name in ("lengthscale", "variance"):
            assert_array_equal(*(getattr(m.kernels_[0], name) for m in (first, other)))
    assert other.likelihood_.get_params() == first.likelihood_.get_params()


@pytest.mark.parametrize("likelihood", ["probit", "logit", "softmax"])
def test_a_copy_predicts_the_same_classes(data, likelihood):
    X, y, Xs = data
    labels = np.digitize(y, [1.0, 3.0]) if likelihood == "softmax" else (y > 1.5).astype(int)
    first = DeepGPClassifier(1, inference="vfe", likelihood=likelihood, **FEW).fit(X, labels)
    log_proba = [model.predict_log_proba(Xs) for model in (first, copied(first, X, labels))]
    assert_allclose(*log_proba, rtol=1e-8, atol=1e-8)


def test_sparse_estimators(data):
    X, y, Xs = data
    first = SparseGPRegressor(max_iter=8, random_state=0, target_transform="log").fit(X, y)
    settings = freeze_hyperparameters(first)
    check_same(first, DeepGPRegressor(inference="vfe", random_state=0, **settings).fit(X, y), Xs)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"inference": "collapsed"}, "CollapsedVI has learned a posterior of its hyperparameters"),
        ({"inference": "ess"}, "EllipticalSlice has learned samples"),
        ({"inference": "diwp"}, "DeepInverseWishart has learned how random"),
        ({"inference": RandomFeatures(8, "variational")}, "RandomFeatures has learned frequencies"),
    ],
)
def test_what_cannot_be_carried_over(data, settings, match):
    X, y, _ = data
    first = DeepGPRegressor(likelihood="gaussian", max_iter=2, random_state=0, **settings)
    with pytest.raises(ValueError, match=match):
        freeze_hyperparameters(first.fit(X, y))


def test_other_models_and_kernels_are_refused(data):
    X, y, _ = data
    with pytest.raises(ValueError, match="for estimators of skdgp; got LinearRegression"):
        freeze_hyperparameters(LinearRegression().fit(X, y))
    wide = DeepGPRegressor(inference="dsvi", width=3, max_iter=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="width means nothing to NNGP"):
        DeepGPRegressor(inference="nngp", **freeze_hyperparameters(wide)).fit(X, y)
    several = SquaredExponential(lengthscale=[1.0, 2.0], trainable=False)
    with pytest.raises(ValueError, match="one lengthscale for all inputs of a later layer"):
        DeepGPRegressor(inference=NNGP(), kernel=[several, several]).fit(X, y)
    differ = Matern(lengthscale=[1.0, 2.0]) + Matern(lengthscale=[2.0, 1.0])
    with pytest.raises(ValueError, match="different ratios of lengthscales"):
        DeepGPRegressor(1, inference=NNGP(), kernel=differ).fit(X, y)


def test_columns_units_and_effects_of_groups_are_those_of_the_model(data):
    """Positions of columns beside a constant one, periods in units of X, and groups, known and new."""
    X, y, Xs = data
    X, Xs = np.roll(X, 1, axis=1), np.roll(Xs, 1, axis=1)  # the constant column first
    kernel = Matern(on=[2]) + Periodic(period=3.0, on=[1]) + OnColumns(SquaredExponential(), [1])
    settings = {"inference": "exact", "likelihood": "gaussian", **FEW}
    first = DeepGPRegressor(1, kernel=kernel, **settings).fit(X, y)
    check_same(first, copied(first, X, y), Xs)
    groups, both = np.arange(30) % 6, np.concatenate([np.arange(30) % 6, [3, 4, 5, 6, 6]])
    first = DeepGPRegressor(1, target_transform=None, **settings).fit(X, y, groups=groups)
    frozen = {**settings, **freeze_hyperparameters(first)}
    again = clone(DeepGPRegressor(**frozen)).fit(X, y, groups=groups)
    assert_allclose(again.predict(X, groups=groups), first.predict(X, groups=groups), rtol=1e-8)
    more = first.condition_on(Xs[:2], y[:2], groups=[3, 4])
    more = more.condition_on(Xs[2:], y[2:5], groups=[5, 6, 6])
    again.fit(np.concatenate([X, Xs]), np.append(y, y[:5]), groups=both)
    assert_allclose(more.predict(X, groups=groups), again.predict(X, groups=groups), rtol=1e-7)
    assert_allclose(more.loo_predict(), again.loo_predict(), rtol=1e-7)  # of whole groups
