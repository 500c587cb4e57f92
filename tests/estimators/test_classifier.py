"""DeepGPClassifier: labels, probabilities, likelihoods."""

import functools

import numpy as np
import pytest
import torch
from latents import latent_mixture
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.special import expit, softmax
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from skdgp import DeepGPClassifier, SparseGPClassifier
from skdgp.gp.likelihoods import Bernoulli, Gaussian, RobustMax, Softmax
from skdgp.inference import DSVI

#: one model, for test_class_members.py is about mixtures
FEW = {"inference": "dsvi", "max_iter": 30, "learning_rate": 0.02}
FEW |= {"n_inducing": 10, "n_predict_draws": 8}


def make(**changes):
    return DeepGPClassifier(**{**FEW, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def moons():
    return make_moons(80, noise=0.2, random_state=0)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def fitted(moons, iris):
    """Models of two or three classes, by likelihood; they are fitted once, and only read."""

    @functools.cache
    def fit(n_classes, likelihood):
        return make(likelihood=likelihood).fit(*(moons if n_classes == 2 else iris))

    return fit


# Labels


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a", "c"],
        [5, -3, 7],
        [2.0, 0.0, 1.0],
        np.array(["long name", "b", "c"], dtype=object),
    ],
)
def test_labels_of_any_kind(iris, labels):
    X, y = iris
    index = np.unique(y, return_inverse=True)[1]
    y = np.asarray(labels)[index]
    model = make().fit(X, y)
    assert_array_equal(model.classes_, np.unique(y))
    assert model.predict(X).dtype == model.classes_.dtype
    assert model.score(X, y) > 0.9
    assert model.sample_y(X[:3], 2).dtype == model.classes_.dtype
    as_list = make().fit(X.tolist(), y.tolist())
    assert_array_equal(as_list.predict_proba(X), model.predict_proba(X))
    density = model.log_predictive_density(X, y)
    assert_array_equal(model.log_predictive_density(X, y.tolist()), density)


def test_booleans_and_tensors(moons, fitted):
    X, y = moons
    expected, tensors = fitted(2, "auto").predict_proba(X), map(torch.tensor, moons)
    model = make().fit(X, y == 1)
    assert model.classes_.tolist() == [False, True] and model.predict(X).dtype == bool
    assert_array_equal(model.predict_proba(X), expected)
    assert_array_equal(make().fit(*tensors).predict_proba(torch.tensor(X)), expected)


def test_series_of_labels(iris, fitted):
    pd = pytest.importorskip("pandas")
    X, y = iris
    expected = fitted(3, "auto").predict_proba(X)
    frame = pd.DataFrame(X, columns=list("abcd"))
    for labels in (pd.Series(y), pd.Series(y).astype("category"), pd.Series(y, dtype=object)):
        model = make().fit(frame, labels)
        assert_array_equal(model.predict_proba(frame), expected)
        assert model.log_predictive_density(frame, labels).shape == (150,)


@pytest.mark.parametrize("likelihood", ["probit", "logit", "robustmax", Softmax(n_nodes=5**3)])
def test_names_of_the_classes_do_not_matter(moons, iris, likelihood):
    """Their order changes that of sums, or a sign; a grid for the softmax treats all classes alike."""
    X, y = moons if likelihood in ("probit", "logit") else (iris[0][::3], iris[1][::3])
    classes, index = np.unique(y, return_inverse=True)
    proba = make(likelihood=likelihood).fit(X, index).predict_proba(X)
    reversed_proba = make(likelihood=likelihood).fit(X, -index).predict_proba(X)
    assert len(classes) == proba.shape[1]
    assert_allclose(reversed_proba[:, ::-1], proba, atol=1e-6)


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
def test_steps_that_are_far_too_large_are_taken_back(moons, likelihood):
    """Also where moments of latent functions are no numbers."""
    model = make(likelihood=likelihood, inference="rff", n_inducing=None, learning_rate=300.0)
    with pytest.warns(ConvergenceWarning, match="stepped back"):
        model.fit(*moons)
    assert np.isfinite(model.predict_proba(moons[0])).all()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"likelihood": "softmax"},
        {"likelihood": "robustmax"},
        {"inference": "aep"},
        {"inference": "diwp"},
        {"inference": "vecchia", "n_layers": 1, "n_inducing": None},
    ],
    ids=str,
)
def test_classes_of_rows_without_weight_are_kept(iris, settings):
    """As in scikit-learn; where other classes have been seen, nothing speaks for them."""
    X, y = iris
    weights = (y != "virginica").astype(float)
    model = make(max_iter=60, **settings) if settings else SparseGPClassifier(max_iter=20)
    proba = model.fit(X, y, sample_weight=weights).predict_proba(X)
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert proba.shape == (150, 3) and np.isfinite(proba).all()
    assert proba[weights > 0, 2].max() < 0.15
    assert model.score(X[weights > 0], y[weights > 0]) > 0.95


def test_classes_of_the_mixture_of_rows_without_weight(iris):
    X, y = iris
    model = make(inference="auto", max_iter=60).fit(X, y, sample_weight=y != "setosa")
    assert len(model.classes_) == 3 and len(model.members_) > 1
    assert model.predict_proba(X)[y != "setosa", 0].max() < 0.15
    first = make(inference="auto").partial_fit(X, y, sample_weight=y != "setosa")
    proba = first.predict_proba(X)
    assert proba.shape == (150, 3)


def test_held_out_rows_without_weight_may_be_of_any_class(moons):
    X, y = moons
    other = np.append(np.zeros(79), 2)
    model = make(max_iter=3).fit(X, y, X_val=X, y_val=other, sample_weight_val=other == 0)
    assert model.classes_.tolist() == [0, 1]


def test_labels_that_make_no_sense(moons):
    X, y = moons
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        make().fit(X, y + 0.1 * X[:, 0])
    with pytest.raises(ValueError, match="contains only one class"):
        make().fit(X, np.zeros(80))
    with pytest.raises(ValueError, match=r"only one class: \S+, apart from rows of weight zero"):
        make().fit(X, y, sample_weight=y)
    with pytest.raises(ValueError, match="y should be a 1d array"):
        make().fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        make().fit(X, y[:-1])


def test_labels_that_were_not_there(moons, fitted):
    X, y = moons
    with pytest.raises(ValueError, match=r"y contains classes that were not there at first: \[7\]"):
        fitted(2, "auto").log_predictive_density(X[:2], [1, 7])
    model = make()
    with pytest.raises(ValueError, match="classes that were not there at first"):
        model.fit(X, y, X_val=X, y_val=y + 1)
    one = model.fit(X, y, X_val=X[:1], y_val=y[:1])  # some of the classes are enough
    assert one.classes_.tolist() == [0, 1]


# Probabilities


@pytest.mark.parametrize("likelihood", ["auto", "softmax", "robustmax"])
def test_probabilities(iris, fitted, likelihood):
    X, y = iris
    model = fitted(3, likelihood)
    proba, logs = model.predict_proba(X), model.predict_log_proba(X)
    assert proba.shape == (150, 3) and proba.dtype == np.float64
    assert_allclose(proba.sum(1), 1.0, rtol=1e-12)
    assert_allclose(np.exp(logs), proba, rtol=1e-12)
    assert_array_equal(model.predict(X), model.classes_[proba.argmax(1)])
    index = np.searchsorted(model.classes_, y)
    assert_array_equal(model.log_predictive_density(X, y), logs[np.arange(150), index])
    assert model.score(X, y) > 0.9


def test_logarithms_do_not_underflow(moons):
    X, y = moons
    model = make(likelihood="probit", max_iter=100).fit(X, y)
    far = model.predict_log_proba(X * [[1.0, 50.0]])
    assert np.isfinite(far).all()


def normal_nodes(n):
    z, weights = np.polynomial.hermite_e.hermegauss(n)
    return z, weights / weights.sum()


def direct(likelihood, m, v):
    """Probabilities of the classes given moments (n, n_latents), by other quadratures."""
    if likelihood == "probit":
        p = stats.norm.cdf(m / np.sqrt(1.0 + v))
        return np.hstack([1.0 - p, p])
    z, weights = normal_nodes(80)
    if likelihood == "logit":
        p = expit(m + np.sqrt(v) * z) @ weights
        return np.column_stack([1.0 - p, p])
    if likelihood == "softmax":
        z, weights = normal_nodes(24)
        grid = np.stack(np.meshgrid(z, z, z, indexing="ij"), -1).reshape(-1, 3)
        weight = np.einsum("i,j,k->ijk", weights, weights, weights).ravel()
        return np.array([weight @ softmax(a + np.sqrt(b) * grid, 1) for a, b in zip(m, v)])
    wins = np.empty_like(m)
    for c in range(3):  # the chance that latent c is the largest
        others = [d for d in range(3) if d != c]
        x = m[:, [c]] + np.sqrt(v[:, [c]]) * np.linspace(-8.0, 8.0, 2001)
        inside = np.prod([stats.norm.cdf(x, m[:, [d]], np.sqrt(v[:, [d]])) for d in others], axis=0)
        weight = stats.norm.pdf(np.linspace(-8.0, 8.0, 2001))
        wins[:, c] = inside @ weight / weight.sum()
    return 1e-3 / 2 + wins * (1.0 - 1e-3 - 1e-3 / 2)


@pytest.mark.parametrize(
    ("likelihood", "tolerance"),
    [
        ("probit", 1e-9),
        ("logit", 1e-6),
        ("robustmax", 1e-3),
        (Softmax(n_nodes=12**3), 1e-4),
        ("softmax", 1e-2),  # integrated with 32 points
    ],
)
def test_mixture_by_brute_force(moons, iris, likelihood, tolerance):
    X, y = moons if likelihood in ("probit", "logit") else iris
    model = make(likelihood=likelihood, inference=DSVI(inner_scale=0.5)).fit(X, y)
    X, name = X[::10], likelihood if isinstance(likelihood, str) else "softmax"
    parts = [direct(name, m, v) for m, v in zip(*latent_mixture(model, X))]
    assert_allclose(model.predict_proba(X), np.mean(parts, 0), atol=tolerance)


@pytest.mark.parametrize("likelihood", ["logit", "robustmax", Softmax(n_nodes=5**3)])
def test_frequencies_of_draws(moons, iris, likelihood):
    X, y = moons if likelihood in ("probit", "logit") else iris
    model = make(likelihood=likelihood, inference=DSVI(inner_scale=0.3), n_predict_draws=512)
    X = X[:: len(X) // 16] if len(model.fit(X, y).classes_) == 2 else X[50::7]
    X = X[np.argsort(model.predict_proba(X).max(1))[:4]]  # rows that are not certain
    proba, n = model.predict_proba(X), 1000
    draws = model.sample_y(X, n, random_state=0)
    assert draws.shape == (4, n)
    frequencies = np.stack([(draws == label).mean(1) for label in model.classes_], 1)
    errors = (frequencies - proba) / np.sqrt(proba * (1.0 - proba) / n)
    normal = (proba > 0.02) & (proba < 0.98)  # where a normal approximation is good enough
    assert np.abs(errors[normal]).max() < 4.0  # standard errors
    assert np.abs(frequencies - proba).max() < 0.06 and normal.sum() >= 4
    assert_array_equal(draws, model.sample_y(X, n, random_state=0))


# Likelihoods


def test_auto(moons, iris, fitted):
    X = moons[0]
    assert isinstance(fitted(2, "auto").members_[0].likelihood_, Bernoulli)
    assert isinstance(fitted(3, "auto").members_[0].likelihood_, Softmax)
    assert fitted(2, "auto").sample_y(X[:5], 3, latent=True).shape == (5, 1, 3)
    assert fitted(3, "auto").sample_y(iris[0][:5], 3, latent=True).shape == (5, 3, 3)
    assert_array_equal(fitted(2, "auto").predict_proba(X), fitted(2, "probit").predict_proba(X))


def test_likelihoods_differ(moons, iris, fitted):
    for (X, _), n_classes, names in (
        (moons, 2, ["probit", "logit", "softmax", "robustmax"]),
        (iris, 3, ["softmax", "robustmax"]),
    ):
        results = [fitted(n_classes, name).predict_proba(X) for name in names]
        for i, first in enumerate(results):
            for second in results[:i]:
                assert np.abs(first - second).max() > 1e-3


def test_names_and_objects(moons, fitted):
    X, y = moons
    for name, likelihood in (
        ("probit", Bernoulli("probit")),
        ("logit", Bernoulli("logit")),
        ("softmax", Softmax()),
        ("robustmax", RobustMax()),
    ):
        second = make(likelihood=likelihood).fit(X, y)
        assert_array_equal(fitted(2, name).predict_proba(X), second.predict_proba(X))


def test_epsilon_is_the_least_probability(iris):
    X, y = iris
    proba = make(likelihood=RobustMax(epsilon=0.1)).fit(X, y).predict_proba(X)
    assert proba.min() >= 0.05 - 1e-12 and proba.max() <= 0.9 + 1e-12


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        ("gaussian", "Unknown likelihood 'gaussian' for this estimator; the names are"),
        (Gaussian(), "is not a likelihood for this estimator"),
        (Bernoulli("cauchit"), "link of Bernoulli must be 'probit' or 'logit'"),
        (RobustMax(epsilon=0.0), "epsilon of RobustMax must lie between 0 and 1"),
        (3, "'likelihood' parameter"),
    ],
)
def test_likelihoods_that_make_no_sense(moons, likelihood, message):
    with pytest.raises(ValueError, match=message):
        make(likelihood=likelihood).fit(*moons)


# Training


def test_validation_scores_are_log_probabilities(iris):
    X, y = iris
    model = make(max_iter=100).fit(X, y, X_val=X[::5], y_val=y[::5])
    best = model.log_predictive_density(X[::5], y[::5]).mean()
    assert_allclose(max(model.validation_scores_), best, rtol=1e-9)


def test_lower_bound(moons):
    """Jensen's inequality: the bound is below the log-density that the training rows get."""
    X, y = moons
    for likelihood in ("probit", "logit", "softmax", "robustmax"):
        start = make(max_iter=1, likelihood=likelihood).fit(X, y).lower_bound_
        model = make(max_iter=100, likelihood=likelihood).fit(X, y)
        assert start < model.lower_bound_
        assert model.lower_bound_ < model.log_predictive_density(X, y).sum()


def test_warm_start(moons):
    X, y = moons
    model = make(warm_start=True, max_iter=100).fit(X, y)
    loss = np.mean(model.loss_curve_[-10:])
    model.set_params(max_iter=10, learning_rate=1e-3).fit(X, y)
    assert abs(np.mean(model.loss_curve_) - loss) < 0.05


@pytest.mark.parametrize("labels", [[0, 1, 2], ["a", "b"], [0, 2]])
def test_warm_start_with_other_classes(moons, labels):
    """Probabilities of old classes must not become those of new ones."""
    X, y = moons
    model = make(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match=r"warm_start=True|classes"):
        model.fit(X, np.asarray(labels)[np.arange(80) % len(labels)])


def noisy_labels(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    p = 1.0 / (1.0 + np.exp(-(2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1])))
    return X, (rng.random(n) < p).astype(int), np.stack([1.0 - p, p], 1)


def test_noisy_labels_are_not_overfitted():
    """Two layers are hardly worse than one, and far better than no model."""
    X, y, p = noisy_labels(1300)
    fits = [DeepGPClassifier(n_layers=n, random_state=0).fit(X[:300], y[:300]) for n in (2, 1)]
    two, one = (log_loss(y[300:], fit.predict_proba(X[300:])) for fit in fits)
    assert log_loss(y[300:], p[300:]) < two < one + 0.02 < 0.56  # a constant has .69
    deep = DeepGPClassifier(inference="dsvi", random_state=0).fit(X[:150], y[:150])
    assert log_loss(y[300:], deep.predict_proba(X[300:])) < np.log(2.0)  # that of a coin


def test_rows_that_agree_in_everything_are_not_all_held_out():
    rng = np.random.default_rng(0)
    k = rng.integers(0, 2, 1000)
    y = (rng.random(1000) < np.where(k == 1, 0.8, 0.3)).astype(int)
    cells = [y[k == value].mean() for value in (0, 1)]
    for seed in range(3):
        model = DeepGPClassifier(early_stopping=True, n_inducing=5, random_state=seed)
        proba = model.fit(k[:, None], y).predict_proba([[0], [1]])[:, 1]
        np.testing.assert_allclose(proba, cells, atol=0.03)
