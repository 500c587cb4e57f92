"""What a fitted estimator says of itself."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.estimators.importances import total_effects
from skdgp.estimators.summary import in_words, kernel_name
from skdgp.fitting.member import Member
from skdgp.fitting.sample import TrainingSample
from skdgp.gp.kernels import Linear, Matern, SquaredExponential

FEW = {"max_iter": 10, "n_inducing": 10, "n_predict_draws": 8, "random_state": 0}
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.uniform(-1.0, 1.0, (80, 3)), columns=["age", "constant", "sex"])
X["constant"] = 1.0
y = np.sin(4.0 * X["age"]) + 0.1 * rng.standard_normal(80)


def test_kernels_and_effects_in_words():
    kernel = (SquaredExponential() + Linear()).bind(4)
    assert kernel_name(kernel) == "SquaredExponential + Linear"
    assert kernel_name(Matern() * kernel) == "Matern * SquaredExponential + Linear"
    assert in_words(np.array([0.2, 1.0, 0.3, 0.01]), list("abcd")) == (["b", "c", "a"], ["d"])
    assert in_words(np.array([1.0, 1.0]), ["a", "b"]) == ([], [])
    assert in_words(np.array([1.0, 0.06, 0.04]), list("abc")) == (["a"], ["c"])
    assert in_words(np.zeros(2), ["a", "b"]) == ([], [])


@pytest.mark.parametrize("kernel", ["squared_exponential", "matern52", "anova", "auto"])
@pytest.mark.parametrize("inference", ["exact", "vecchia", "dsvi"])
def test_a_long_lengthscale_is_not_flat(kernel, inference):
    """Shares of sin(a) + .3 b + 0 c in the variance are known; b has most of it, and a longer lengthscale."""
    rng = np.random.default_rng(0)
    rows = rng.uniform(0.0, 10.0, (120, 3))
    terms = np.column_stack([np.sin(rows[:, 0]), 0.3 * rows[:, 1], 0.0 * rows[:, 2]])
    settings = {"inference": inference, "kernel": kernel, "random_state": 0}
    model = DeepGPRegressor(1, max_iter=40 if inference == "exact" else 150, **settings)
    model.fit(rows, terms.sum(1) + 0.05 * rng.standard_normal(120))
    assert terms.var(0)[1] > terms.var(0)[0]
    (line,) = model.summary().split("\n")[1:]
    assert line.endswith("x1, x0; flat in x2")


def test_a_line_for_each_model():
    model = DeepGPRegressor(**FEW).fit(X, y)
    head, *lines = model.summary().split("\n")
    words = "model layers kernel weight log density CPU seconds varies most with"
    assert head.split() == words.split()
    assert len(lines) == len(model.members_) > 1
    for line, member in zip(lines, model.members_):
        assert line.startswith(type(member.scheme).__name__)
        assert f"{member.mixture_weight:.2f}" in line and f"{member.record.log_density:.3f}" in line
    assert (
        any(line.endswith("age; flat in sex") for line in lines)
        and "constant" not in model.summary()
    )


def test_single_models():
    (line,) = SparseGPRegressor(5, max_iter=5).fit(X, y).summary().split("\n")[1:]
    assert line.startswith("VFE") and "1.00" in line and "nan" not in line
    settings = {"kernel": "squared_exponential", "inference": "exact"}
    assert DeepGPRegressor(1, **settings).fit(X, y).summary().endswith("  age; flat in sex")
    with pytest.raises(NotFittedError):
        DeepGPRegressor().summary()


def test_a_notebook_shows_the_table_below_the_diagram():
    model = SparseGPRegressor(5, max_iter=5)
    diagram = model._repr_html_()
    assert "varies most with" not in diagram
    renamed = X.rename(columns={"age": "<b>age & 1"})
    html = model.fit(renamed, y)._repr_html_()
    assert "sk-top-container" in html
    assert "varies most with" in model._repr_mimebundle_()["text/html"]
    table = html[html.rindex("<table>") :]
    cells = re.findall("<t[hd]>(.*?)</t[hd]>", table)
    assert cells[:7] == re.split("  +", model.summary().split("\n")[0])
    assert cells[-1].startswith("&lt;b&gt;age &amp; 1") and "<b>" not in table
    pipeline = make_pipeline(StandardScaler(), model).fit(renamed, y)
    assert "SparseGPRegressor" in pipeline._repr_html_()
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert set(model._repr_mimebundle_()) == {"text/plain"}


@pytest.mark.parametrize("Estimator", [DeepGPRegressor, DeepGPClassifier])
def test_a_line_for_each_member_that_is_trained(Estimator, capsys):
    target = y if Estimator is DeepGPRegressor else y > 0.0
    model = Estimator(verbose=1, **FEW).fit(X, target)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(f"member {i + 1} of {len(lines)}: ") for i, line in enumerate(lines))
    assert len(lines) >= len(model.members_)
    for member in model.members_:
        assert any(f"{member.record.log_density:.3f}, " in line for line in lines)


def test_quantiles_and_parts_come_through_pipelines():
    model = make_pipeline(StandardScaler(), DeepGPRegressor(inference="dsvi", **FEW)).fit(X, y)
    expected = model[-1].predict_quantiles(model[0].transform(X), [0.05, 0.95])
    assert_array_equal(model.predict(X, quantiles=[0.05, 0.95]), expected)
    parts = model.predict(X, return_std=True, decompose=True)[1:]
    assert_allclose(np.hypot(*parts), model.predict(X, return_std=True)[1])
    with pytest.raises(ValueError, match="cannot be combined with return_std"):
        model.predict(X, quantiles=[0.5], return_std=True)


def test_importances_of_a_function_that_is_known():
    """Total effects of x0 + 2 x1 x2 on [-1, 1]^3, independent columns: 1/3, 4/9 and 4/9 of variances."""
    rows = TrainingSample(np.random.default_rng(0).uniform(-1.0, 1.0, (4000, 4)), None, 4000, 4000)
    effects = total_effects(lambda X: X[:, :1] + 2.0 * X[:, 1:2] * X[:, 2:3], rows)
    assert_allclose(effects, [1.0 / 3.0, 4.0 / 9.0, 4.0 / 9.0, 0.0], atol=0.03)  # 3 standard errors
    both = total_effects(lambda X: np.c_[X[:, 0], 3.0 * X[:, 0]], rows)  # outputs add up
    assert_allclose(both, [10.0 / 3.0, 0.0, 0.0, 0.0], rtol=0.1)


def test_importances_of_fitted_models():
    model = DeepGPRegressor(1, inference="exact", random_state=0)
    with pytest.raises(NotFittedError):
        model.feature_importances_  # noqa: B018
    shares = model.fit(X, y).feature_importances_
    assert_allclose(shares.sum(), 1.0)
    assert shares[0] > 0.9 and shares[1] == 0.0
    assert_array_equal(SelectFromModel(model, threshold=0.5).fit(X, y).get_support(), [1, 0, 0])
    assert_array_equal(RFE(model, n_features_to_select=1).fit(X, y).get_support(), [1, 0, 0])
    classes = DeepGPClassifier(1, inference="vecchia", max_iter=20).fit(X, X["sex"] > 0.0)
    assert np.argmax(classes.feature_importances_) == 2
    chunks = DeepGPRegressor(inference="dsvi", **FEW).partial_fit(X, y)
    assert chunks.feature_importances_.shape == (3,)
    nothing = DeepGPRegressor(1, inference="exact").fit(X, np.ones(80))
    assert not nothing.feature_importances_.any()


def over_all_pairs(predict, X, weights):
    """Shares of the columns by brute force, over all pairs of rows."""
    before, effects, p = predict(X), [], weights / weights.sum()
    for j in range(X.shape[1]):
        changed = np.repeat(X[None], len(X), 0)
        changed[:, :, j] = X[:, None, j]
        after = predict(changed.reshape(-1, X.shape[1])).reshape(len(X), *before.shape)
        squares = np.square(after - before).reshape(len(X), len(X), -1).sum(2)
        effects.append(p @ squares @ p)
    return np.array(effects) / np.sum(effects)


@pytest.mark.parametrize("shape", ["design", "rare flag", "weights", "integers and zeros"])
@pytest.mark.parametrize("Estimator", [DeepGPRegressor, DeepGPClassifier, SparseGPRegressor])
def test_importances_count_rows_as_they_were_given(shape, Estimator):
    rng, weights = np.random.default_rng(1), None
    rows = np.repeat(np.stack(np.meshgrid([0.0, 1.0], [0.0, 1.0, 5.0]), -1).reshape(-1, 2), 8, 0)
    if shape == "rare flag":
        rows = np.column_stack([np.arange(300) < 6, rng.random(300) < 0.5]).astype(float)
    elif shape == "weights":
        rows = np.column_stack([rng.random(60) < 0.5, rng.random(60)])
        weights = np.where(rows[:, 0] > 0, 19.0, 1.0)
    elif shape == "integers and zeros":
        rows = np.column_stack([rng.poisson(0.3, 80), rng.random(80)])
        weights = (np.arange(80) % 3 > 0) * 2.0
    y = rows @ [2.0, 1.0] + rows[:, 0] * rows[:, 1] + 0.05 * rng.standard_normal(len(rows))
    if Estimator is SparseGPRegressor:
        model = SparseGPRegressor(10, max_iter=30)
    else:
        y = y if Estimator is DeepGPRegressor else y > np.quantile(y, 0.6)
        model = Estimator(1, inference="vecchia", max_iter=20)
    model.fit(rows, y, sample_weight=weights)
    predict = model.predict_proba if Estimator is DeepGPClassifier else model.predict
    expected = over_all_pairs(predict, rows, np.ones(len(rows)) if weights is None else weights)
    assert_allclose(model.feature_importances_, expected, atol=0.05)
    twice = model.fit(
        np.repeat(rows, 2, 0), np.repeat(y, 2), None if weights is None else np.repeat(weights, 2)
    )
    assert_allclose(twice.feature_importances_, expected, atol=0.1)


def test_importances_of_many_rows():
    """A flag in one row of a thousand, of 30,000: brute force over the distinct rows."""
    flags = np.random.default_rng(2).random((30_000, 2)) < [1e-3, 0.5]
    pairs = TrainingSample(flags)
    assert len(pairs) < 600
    effects = total_effects(lambda X: X * [30.0, 2.0], pairs)
    p = flags.mean(0)
    assert_allclose(effects, np.square([30.0, 2.0]) * p * (1.0 - p), rtol=1e-9)


def test_importances_of_mapped_targets_are_those_of_predictions():
    rows = np.random.default_rng(3).uniform(0.0, 1.0, (60, 2))
    target = np.exp(3.0 * rows[:, 0] * rows[:, 1] + rows[:, 1])
    model = DeepGPRegressor(1, inference="exact", target_transform="log").fit(rows, target)
    expected = over_all_pairs(model.predict, rows, np.ones(60))
    assert_allclose(model.feature_importances_, expected, atol=0.05)


def test_nothing_is_predicted_for_a_notebook(watch):
    model = DeepGPRegressor(1, inference="exact").fit(X, y)
    model._importances, calls = None, watch(model, "_predictor")
    html = model._repr_html_()
    assert not calls and "computed at first access" in html
    first = model.feature_importances_
    n_calls = len(calls)
    assert n_calls and model.feature_importances_ is first
    assert "computed at" not in model._repr_html_()
    assert hasattr(model, "feature_importances_") and len(calls) == n_calls
    assert model.fit(X, -y).feature_importances_ is not first


def test_importances_and_the_table_survive_pickling(monkeypatch):
    model = DeepGPRegressor(1, inference="exact").fit(X, y)
    first, _ = model.feature_importances_, model.summary()
    loaded = pickle.loads(pickle.dumps(model))
    for name in ("model", "posterior"):
        monkeypatch.setattr(Member, name, None)
    assert_array_equal(loaded.feature_importances_, first)
    assert "varies most with" in loaded._repr_html_()
