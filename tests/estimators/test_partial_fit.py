"""partial_fit: what the first call fixes, and what the others do."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import DSVI
from skdgp.inference.dsvi import DeepSparseGP

FEW = {
    "inference": "dsvi",
    "learning_rate": 0.02,
    "n_inducing": 10,
    "batch_size": 1000,  # one step for each chunk
    "n_predict_draws": 8,
    "random_state": 0,
}


def make(**changes):
    return DeepGPRegressor(**{**FEW, **changes})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(120, 2))
    return X, 50.0 + 10.0 * np.sin(2.0 * X[:, 0]) + rng.standard_normal(120)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["a", "b", "c"])[y]


@pytest.fixture
def batches(watch):
    """Everything that training is given, step by step."""
    seen = []
    watch(DeepSparseGP, "step", lambda n, model, batch, *_: seen.append(batch))
    return seen


def test_one_pass_over_each_chunk(data, batches):
    X, y = data
    model = make(batch_size=20)
    for first in range(0, 120, 60):
        rows = slice(first, first + 60)
        before = len(batches)
        assert model.partial_fit(X[rows], y[rows]) is model
        steps = batches[before:]
        assert len(steps) == 3
        targets = np.concatenate([batch.y.numpy()[:, 0] for batch in steps])
        expected = (y[rows] - y[:60].mean()) / y[:60].std()  # the scaling of the first chunk
        assert_allclose(np.sort(targets), np.sort(expected), rtol=1e-9)
    assert model.n_iter_ == len(model.loss_curve_) == 6


def test_rows_that_fill_no_batch_are_seen_too(data, batches):
    """They will not come again; no more may be left out than there are batches."""
    X, y = data
    make(batch_size=50).partial_fit(X[:95], y[:95])
    assert len(np.unique(np.concatenate([batch.y.numpy() for batch in batches]))) >= 93


def test_bound_counts_the_rows_seen_so_far(data, batches):
    X, y = data
    model = make(batch_size=20)
    for n in (40, 60, 20):
        model.partial_fit(X[:n], y[:n], sample_weight=np.full(n, 2.0))
    assert [batch.total for batch in batches] == [80.0] * 2 + [200.0] * 3 + [240.0]
    for batch in batches:  # the batch stands for all of them
        assert_allclose(batch.scale * batch.weight.sum(), batch.total)
    assert np.isfinite(model.lower_bound_)


def test_chunks_teach(data):
    X, y = data
    model = make(batch_size=20)
    scores = []
    for _ in range(15):
        model.partial_fit(X, y)
        scores.append(model.score(X, y))
    assert scores[0] < 0.5 < 0.7 < scores[-1]


def test_first_call_needs_two_rows(data):
    X, y = data
    with pytest.raises(ValueError, match=r"needs at least 2 rows.*got 1 sample"):
        make().partial_fit(X[:1], y[:1])
    model = make().partial_fit(X[:2], y[:2])
    model.partial_fit(X[2:3], y[2:3])  # later ones may have one
    assert model.n_iter_ == 2 and np.isfinite(model.predict(X)).all()


STUCK = {"learning_rate": 1e-15, "inference": DSVI(natural_step=1e-15)}


def test_scaling_and_start_come_from_the_first_call(data):
    """Later chunks of the same range move nothing."""
    X, y = data
    model = make(likelihood="gaussian", **STUCK).partial_fit(X[:60], y[:60])
    Z, noise = model.inducing_inputs_[0], model.likelihood_.variance
    for unit in (1e3, 1.0, 1.0):
        model.partial_fit(X[60:], unit * y[60:])
        assert_allclose(model.inducing_inputs_[0], Z)
        assert_allclose(model.likelihood_.variance, noise)


def test_later_chunks_have_the_shape_of_the_first(data):
    X, y = data
    model = make().partial_fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features, but DeepGPRegressor is expecting 2"):
        model.partial_fit(np.column_stack([X, y]), y)
    with pytest.raises(ValueError, match="y has 2 outputs, but the model was fitted with 1"):
        model.partial_fit(X, np.column_stack([y, y]))
    assert model.n_iter_ == 1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_layers": 0}, "'n_layers' parameter"),
        ({"learning_rate": -1.0}, "'learning_rate' parameter"),
        ({"inference": DSVI(n_draws=0)}, "n_draws of DSVI"),
        ({"early_stopping": True}, "partial_fit does not support early_stopping=True"),
    ],
)
def test_parameters_are_validated(data, params, message):
    model = make(**params)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*data)
    assert not hasattr(model, "members_")


@pytest.mark.parametrize(
    ("begin", "change"),
    [
        ("fit", {"n_layers": 3}),
        ("partial_fit", {"width": 1}),
        ("fit", {"mean": "zero"}),
        ("partial_fit", {"input_connected": True}),
        ("fit", {"inference": "rff"}),
        ("partial_fit", {"inference": DSVI(n_draws=3)}),
        ("partial_fit", {"kernel": "matern32"}),
        ("fit", {"n_inducing": 5}),
        ("partial_fit", {"standardize": False}),
        ("partial_fit", {"likelihood": "gaussian"}),
        ("fit", {"likelihood": "student_t", "n_layers": 1}),
    ],
)
def test_parameters_that_later_chunks_cannot_change(data, begin, change):
    """They would be ignored."""
    model = make(max_iter=1)
    getattr(model, begin)(*data)
    before, names = model.get_params(), " and ".join(sorted(change, key="n_layers".__ne__))
    with pytest.raises(ValueError, match=f"partial_fit goes on with .*, so {names} must stay as"):
        model.set_params(**change).partial_fit(*data)
    model.set_params(**{name: before[name] for name in change}).partial_fit(*data)
    assert model.n_iter_ == 2
    if "inference" not in change:  # which may need other settings
        model.set_params(**change)
        clone(model).partial_fit(*data)
        model.fit(*data).partial_fit(*data)


def test_parameters_that_later_chunks_can_change(data):
    model = make().partial_fit(*data)
    model.set_params(learning_rate=0.01, batch_size=60, n_predict_draws=4).partial_fit(*data)
    assert model.n_iter_ == 3


def test_reproducible(data, no_global_randomness):
    X, y = data
    results = []
    for _ in range(2):
        model = make(batch_size=20)
        for _ in range(3):
            model.partial_fit(X, y)
        results.append(model.predict(X))
    assert_array_equal(*results)
    assert not np.array_equal(results[0], make(batch_size=20).partial_fit(X, y).predict(X))


def test_passes_over_the_same_rows_differ(data, batches):
    make(batch_size=60).partial_fit(*data).partial_fit(*data)
    first, second = (np.sort(batches[i].y.numpy()[:, 0]) for i in (0, 2))
    assert not np.array_equal(first, second)


def test_optimizer_goes_on_between_chunks(data):
    """Four passes of one batch are four steps of fit with the same rows, without its schedule."""
    X, y = data
    model = make(n_layers=1)  # without draws in hidden layers
    for _ in range(4):
        model.partial_fit(X, y)
    whole = make(n_layers=1, max_iter=9).fit(X, y)  # whose rate is constant for four steps
    # the bound counts the rows of all calls, so only the first loss can be the same
    assert_allclose(model.loss_curve_[0], whole.loss_curve_[0])
    assert np.diff(model.loss_curve_).max() < 0.0


def test_failed_chunk_leaves_no_trace(data, kill):
    X, y = data
    model = make(batch_size=20).partial_fit(X, y)
    before = model.predict(X)
    kill(DeepSparseGP, 3, error=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        model.partial_fit(X, y)
    assert_array_equal(model.predict(X), before)
    assert model.n_iter_ == 6


def test_after_fit(data, batches):
    X, y = data
    model = make(max_iter=80).fit(X[:60], y[:60])
    score, n = model.score(X, y), len(batches)
    model.partial_fit(X[60:], y[60:])
    assert len(batches) == n + 1 and batches[-1].total == 120.0
    assert model.n_iter_ == len(model.loss_curve_) == 81
    assert model.score(X, y) > score - 0.1  # nothing is forgotten at once


def test_after_fit_after_partial_fit(data, batches):
    """fit starts anew, so rows and steps from before it do not count."""
    X, y = data
    model = make(max_iter=30).partial_fit(10.0 * X, -y).partial_fit(X, y)
    model.fit(X[:60], y[:60])
    assert model.n_iter_ == 30
    model.partial_fit(X[60:], y[60:])
    assert batches[-1].total == 120.0
    assert model.n_iter_ == len(model.loss_curve_) == 31
    fresh = make(max_iter=30).fit(X[:60], y[:60]).partial_fit(X[60:], y[60:])
    assert_array_equal(fresh.predict(X), model.predict(X))


@pytest.mark.parametrize("chunks", [1, 2])
def test_lower_bound_in_units_of_the_target(data, chunks):
    X, y = data
    ours, other = make(), make()
    for _ in range(chunks):
        ours.partial_fit(X, y)
        other.partial_fit(X, 1000.0 * y)
    expected = ours.lower_bound_ - 120.0 * chunks * np.log(1000.0)
    assert_allclose(other.lower_bound_, expected, rtol=1e-9)


def test_zero_weights_are_dropped(data):
    X, y = data
    weights = (np.arange(120) % 2).astype(float)
    weighted = make().partial_fit(X, y, sample_weight=weights)
    assert_array_equal(weighted.predict(X), make().partial_fit(X[1::2], y[1::2]).predict(X))


# Classification


def test_classes_may_come_later(iris):
    X, y = iris
    model = DeepGPClassifier(**FEW)
    model.partial_fit(X[:100], y[:100], classes=["c", "a", "b"])  # only a and b
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.predict_proba(X).shape == (150, 3)
    before = model.predict_proba(X[100:])[:, 2].mean()
    for _ in range(5):
        model.partial_fit(X[100:], y[100:])
    assert model.predict_proba(X[100:])[:, 2].mean() > before + 0.1


def test_first_chunk_without_some_classes(iris):
    X, y = iris
    model = DeepGPClassifier(**FEW).partial_fit(X[:50], y[:50], classes=["a", "b"])
    assert model.predict(X[:50]).tolist() == ["a"] * 50
    model = DeepGPClassifier(likelihood="probit", **FEW)  # which is for two
    with pytest.raises(ValueError, match=r"two classes|binary"):
        model.partial_fit(X[:100], y[:100], classes=["a", "b", "c"])


def test_classes_of_the_first_chunk(iris):
    """They need not be given if the chunk has them all."""
    X, y = iris
    model = DeepGPClassifier(**FEW).partial_fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    model.partial_fit(X[:10], y[:10])
    model.partial_fit(X[:10], y[:10], classes=["a", "b", "c"])
    assert model.classes_.tolist() == ["a", "b", "c"] and model.n_iter_ == 3


def test_classes_that_do_not_fit(iris):
    X, y = iris
    with pytest.raises(ValueError, match="class"):
        DeepGPClassifier(**FEW).partial_fit(X, y, classes=["a", "b"])
    cure = "pass all of them as classes= in the first call of partial_fit"
    with pytest.raises(ValueError, match=f"only one class.*; if others come in later.*, {cure}"):
        DeepGPClassifier(**FEW).partial_fit(X[:50], y[:50])
    model = DeepGPClassifier(**FEW).partial_fit(X[:100], y[:100])
    with pytest.raises(ValueError, match=rf"classes that were not there at first: \['c'\]; {cure}"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="is not the same as on last call to partial_fit"):
        model.partial_fit(X, y, classes=["a", "b", "c"])
    assert model.n_iter_ == 1 and model.classes_.tolist() == ["a", "b"]


def test_failed_first_call_leaves_nothing(iris):
    """Another first call with other classes is possible."""
    X, y = iris
    model = DeepGPClassifier(**FEW)
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.full_like(X, np.inf), y, classes=["a", "b", "c", "d"])
    model.partial_fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c"]


def test_classifier_after_fit(iris):
    X, y = iris
    model = DeepGPClassifier(max_iter=30, **FEW).fit(X[:100], y[:100])
    model.partial_fit(X[:100], y[:100], classes=["a", "b"])
    assert model.n_iter_ == 31
    refitted = model.fit(X, y)
    assert refitted.classes_.tolist() == ["a", "b", "c"]


def test_the_model_that_is_left_of_a_mixture_is_as_wide_as_it_says(data):
    X, y = data
    model = make(inference="auto", batch_size=None, max_iter=5).fit(X, y)
    for member in model.members_:
        member.dispersion = 0.5
    with pytest.warns(UserWarning, match="one model of the mixture alone") as caught:
        model.partial_fit(X, y).partial_fit(X, y)
    assert [warning.filename for warning in caught] == [__file__]  # once, and there
    assert [member.dispersion for member in model.members_] == [1.0]


# Streams in the order of a column


def stream(n, seed=0):
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(size=n))[:, None]
    return X, np.sin(12.0 * X[:, 0]) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize(
    ("inference", "n_layers"), [("dsvi", 1), ("dsvi", 2), ("structured", 1), ("structured", 2)]
)
def test_rows_in_order_are_learned(inference, n_layers):
    """The last quarter lies nine deviations of the first one away from it."""
    X, y = stream(1200)
    model = DeepGPRegressor(n_layers, inference=inference, n_inducing=30, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(0, 1200, 300):
            model.partial_fit(X[i : i + 300], y[i : i + 300])
            own, center, std = y[i : i + 300], *model.predict(X[i : i + 300], return_std=True)
            assert np.sqrt(np.mean((center - own) ** 2)) < 0.2  # twice the noise
            assert np.mean(np.abs(center - own) < 1.645 * std) > 0.7
    assert model.score(X, y) > 0.8  # and what came first is not forgotten


@pytest.mark.parametrize("inference", ["dsvi", "aep"])
def test_classes_in_order_are_learned_or_there_is_a_word(inference):
    X, y = stream(1200)
    model = DeepGPClassifier(1, inference=inference, n_inducing=30, random_state=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(0, 1200, 300):
            model.partial_fit(X[i : i + 300], y[i : i + 300] > 0.0, classes=[False, True])
    assert model.score(X[900:], y[900:] > 0.0) > 0.85 or told


def test_models_without_inducing_inputs_learn_rows_in_order_too():
    """Rows where none were before get more steps than the share of their chunk."""
    X, y = stream(3000)
    model = DeepGPRegressor(1, inference="rff", random_state=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for i in range(0, 3000, 1000):
            model.partial_fit(X[i : i + 1000], y[i : i + 1000])
            assert model.score(X[i : i + 1000], y[i : i + 1000]) > 0.8 or told


def test_rows_far_away_that_are_not_learned_are_warned_of(data):
    X, y = stream(600)
    model = make(n_layers=1, **STUCK).partial_fit(X[:300], y[:300])
    with pytest.warns(UserWarning, match="far from those before, and .* not learned") as told:
        model.partial_fit(X[300:], y[300:])
    assert [warning.filename for warning in told] == [__file__]


def test_few_rows_at_first_do_not_limit_inducing_points(data):
    X, y = data
    model = make(n_layers=1)
    for i in range(0, 16, 4):
        model.partial_fit(X[i : i + 4], y[i : i + 4])
    assert len(model.inducing_inputs_[0]) == 10  # as n_inducing has it


def test_small_chunks_are_learned(data):
    """Steps are as many as give a chunk its share of all rows in the posterior."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 1))
    y = np.sin(6.0 * X[:, 0]) + 0.1 * rng.standard_normal(400)
    model, made = DeepGPRegressor(inference="dsvi", n_inducing=20, random_state=0), []
    for i in range(0, 400, 100):
        made.append(model.partial_fit(X[i : i + 100], y[i : i + 100]).n_iter_)
    # (1 - .1)^n is what is left of the rows before: 1/2, 2/3, 3/4
    assert np.diff(made, prepend=0).tolist() == [100, 7, 4, 3]
    assert model.score(X, y) > 0.9
