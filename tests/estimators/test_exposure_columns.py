"""Exposures in a column of X that a parameter names, and counts that are never compared with rates."""

import pickle
import warnings

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context, metrics
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPRegressor
from skdgp.inspection import CoverageDisplay
from skdgp.metrics import scorers
from skdgp.model_selection import cross_val_distribution
from skdgp.preprocessing.frame_columns import Table

RNG = np.random.default_rng(0)
N = 60
X = RNG.uniform(-1.0, 1.0, (N, 2))
E = np.round(np.exp(1.5 * RNG.standard_normal(N))) + 1.0
Y = RNG.poisson(2.0 * np.exp(X[:, 0]) * E).astype(float)
FRAME = pd.DataFrame({"a": X[:, 0], "months": E, "b": X[:, 1]})
CV = KFold(3, shuffle=True, random_state=0)
SCORERS = {name: getattr(scorers, name) for name in dir(scorers) if name.endswith("_scorer")}
TABLES = {
    "pandas": (FRAME, "months"),
    "polars": (pl.DataFrame(dict(FRAME)), "months"),
    "integers": (FRAME.astype({"months": int}), "months"),
    "position": (FRAME, 1),
    "array": (FRAME.to_numpy(), 1),
    "lists": (FRAME.to_numpy().tolist(), 1),
    "text": (FRAME.assign(b=np.where(X[:, 1] > 0.0, "high", "low")), "months"),
}


def quick(**settings):
    settings = {"inference": "dsvi", "likelihood": "poisson", "max_iter": 40, **settings}
    return DeepGPRegressor(1, random_state=0, **settings)


@pytest.fixture(scope="module")
def by_array():
    return quick().fit(X, Y, exposure=E)


@pytest.fixture(scope="module")
def by_column():
    return quick(exposure="months").fit(FRAME, Y)


PREDICTIONS = {
    "predict": lambda m, X, **e: m.predict(X, **e),
    "std": lambda m, X, **e: np.stack(m.predict(X, return_std=True, **e)),
    "cov": lambda m, X, **e: m.predict(X, return_cov=True, **e)[1],
    "parts": lambda m, X, **e: np.stack(m.predict(X, return_std=True, decompose=True, **e)),
    "var": lambda m, X, **e: m.predict_var(X, **e),
    "quantiles": lambda m, X, **e: m.predict_quantiles(X, **e),
    "interval": lambda m, X, **e: m.predict_interval(X, **e),
    "cdf": lambda m, X, **e: m.predict_cdf(X, Y, **e),
    "draws": lambda m, X, **e: m.sample_y(X, 3, **e),
}
SCORES = {
    "score": lambda m, X, **e: m.score(X, Y, **e),
    "density": lambda m, X, **e: m.log_predictive_density(X, Y, **e),
    **{name: lambda m, X, s=scorer, **e: s(m, X, Y, **e) for name, scorer in SCORERS.items()},
    "coverage": lambda m, X, **e: CoverageDisplay.from_estimator(m, X, Y, **e).empirical,
    "pit": lambda m, X, **e: CoverageDisplay.from_estimator(m, X, Y, kind="pit", **e).empirical,
}
mpl.use("Agg")


@pytest.mark.parametrize("kind", TABLES)
def test_predictions_are_those_of_the_array(kind):
    table, column = TABLES[kind]
    rest = FRAME.drop(columns="months") if kind != "text" else table.drop(columns="months")
    found = quick(exposure=column).fit(table, Y)
    expected = quick().fit(rest, Y, exposure=E)
    assert_allclose(found.predict(table), expected.predict(rest, exposure=E))
    assert list(found.column_kinds_.values())[1] == "exposure"
    assert found.n_features_in_ == 3 and found.feature_importances_[1] == 0.0
    copy = pickle.loads(pickle.dumps(found))
    assert_allclose(copy.score(table, Y), expected.score(rest, Y, exposure=E))


@pytest.mark.parametrize("name", [*PREDICTIONS, *SCORES])
def test_all_methods_read_the_column(name, by_column, by_array):
    ask = {**PREDICTIONS, **SCORES}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, expected = ask(by_column, FRAME), ask(by_array, X, exposure=E)
        other = ask(by_column, FRAME.assign(months=3.0), exposure=E)
    assert_allclose(found, expected, rtol=1e-6)
    assert_allclose(other, expected, rtol=1e-6)


def test_the_column_is_no_input(by_column):
    one, ten = (by_column.predict(FRAME.assign(months=e)) for e in (1.0, 10.0))
    assert_allclose(ten, 10.0 * one)
    assert_allclose(by_column.predict(FRAME, exposure=10), ten)
    latent = [by_column.predict(FRAME.assign(months=e), latent=True) for e in (1.0, 10.0)]
    assert_allclose(*latent)


@pytest.mark.parametrize("name", SCORES)
def test_counts_are_not_compared_with_rates(name, by_array):
    with pytest.raises(ValueError, match="was fitted with an exposure, and scores of counts need"):
        SCORES[name](by_array, X)


@pytest.mark.parametrize("name", PREDICTIONS)
def test_predictions_without_an_exposure_say_so(name, by_array):
    with pytest.warns(UserWarning, match="predictions without one are for an exposure of 1"):
        found = PREDICTIONS[name](by_array, X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_allclose(PREDICTIONS[name](by_array, X, exposure=1), found)
        assert_allclose(PREDICTIONS[name](by_array, X, exposure=np.ones(N)), found)
        by_array.predict(X, latent=True), by_array.sample_y(X, latent=True)


def test_what_is_missing_later_is_noticed():
    model = quick().partial_fit(X[:30], Y[:30], exposure=E[:30])
    with pytest.raises(ValueError, match="these have none; give exposure here, too"):
        model.partial_fit(X[30:], Y[30:])
    with pytest.raises(ValueError, match=r"exposure_val.*give exposure here, too"):
        quick().fit(X[:40], Y[:40], exposure=E[:40], X_val=X[40:], y_val=Y[40:])
    model = quick(warm_start=True).fit(X, Y, exposure=E)
    with pytest.raises(ValueError, match="give exposure here, too"):
        model.fit(X, Y)
    assert_allclose(model.set_params(warm_start=False).fit(X, Y).score(X, Y), model.score(X, Y))


def test_chunks_and_held_out_rows_have_the_column():
    first, rest = FRAME[:40], FRAME[40:]
    found = quick(exposure="months").fit(first, Y[:40], X_val=rest, y_val=Y[40:])
    given = {"exposure": E[:40], "exposure_val": E[40:], "X_val": X[40:], "y_val": Y[40:]}
    expected = quick().fit(X[:40], Y[:40], **given)
    assert_allclose(found.validation_scores_, expected.validation_scores_)
    found = quick(exposure="months").partial_fit(first, Y[:40]).partial_fit(rest, Y[40:])
    expected = quick().partial_fit(X[:40], Y[:40], exposure=E[:40])
    expected.partial_fit(X[40:], Y[40:], exposure=E[40:])
    assert_allclose(found.predict(FRAME), expected.predict(X, exposure=E))


@pytest.mark.parametrize(
    ("table", "column", "message"),
    [
        (FRAME, "days", "exposure='days' names a column that X does not have"),
        (X, "months", "the columns of X have no names; give its position"),
        (X, 2, "exposure=2 is the position of a column, and X has 2 columns"),
        (FRAME, 1.5, "The 'exposure' parameter of DeepGPRegressor must be"),
        (FRAME, -1, "The 'exposure' parameter of DeepGPRegressor must be"),
        (FRAME, "a", "exposure must be positive and finite, but is -"),
        (FRAME.assign(months=np.where(E > 3.0, E, np.nan)), "months", "but is nan in row"),
        (FRAME.assign(months="long"), "months", "could not convert string to float"),
    ],
)
def test_wrong_columns(table, column, message):
    with pytest.raises(ValueError, match=message):
        quick(exposure=column).fit(table, Y)


def test_an_exposure_is_given_once(by_column):
    with pytest.raises(ValueError, match="exposure is given twice"):
        quick(exposure="months").fit(FRAME, Y, exposure=E)
    with pytest.raises(ValueError, match="has no rate"):
        quick(exposure="months", likelihood="gaussian").fit(FRAME, Y)
    with pytest.raises(ValueError, match="feature names"):
        by_column.predict(FRAME[["a", "b"]])


# Pipelines, searches, cross-validation


def by_hand(predict):
    """Scores of the folds."""
    return [
        predict(quick().fit(X[a], Y[a], exposure=E[a]), X[b], Y[b], E[b]) for a, b in CV.split(X)
    ]


def scaled(model):
    """A pipeline that scales the inputs and leaves the exposure."""
    scale = make_column_transformer((StandardScaler(), ["a", "b"]), remainder="passthrough")
    scale.set_output(transform="pandas").set_params(verbose_feature_names_out=False)
    return make_pipeline(scale, model)


@pytest.mark.parametrize("wrap", [clone, scaled])
@pytest.mark.parametrize("scoring", [None, "neg_mean_poisson_deviance", "density"])
def test_scores_of_folds_read_the_column(wrap, scoring):
    model = wrap(quick(exposure="months"))
    right = {
        None: lambda m, x, y, e: m.score(x, y, exposure=e),
        "neg_mean_poisson_deviance": lambda m, x, y, e: (
            -metrics.mean_poisson_deviance(y, m.predict(x, exposure=e))
        ),
        "density": lambda m, x, y, e: m.log_predictive_density(x, y, exposure=e).mean(),
    }[scoring]
    chosen = scorers.log_predictive_density_scorer if scoring == "density" else scoring
    found = cross_val_score(model, FRAME, Y, cv=CV, scoring=chosen, error_score="raise")
    assert_allclose(found, by_hand(right), rtol=1e-4)
    search = GridSearchCV(quick(exposure="months"), {"max_iter": [3, 40]}, cv=CV).fit(FRAME, Y)
    assert search.best_params_["max_iter"] == 40


@pytest.mark.parametrize("scoring", [None, "neg_mean_poisson_deviance", *SCORERS])
@pytest.mark.parametrize("piped", [False, True])
def test_scores_without_the_exposure_do_not_pass_in_silence(piped, scoring):
    model = make_pipeline(StandardScaler(), quick(max_iter=3)) if piped else quick(max_iter=3)
    params = {"deepgpregressor__exposure" if piped else "exposure": E}
    with pytest.warns(UserWarning, match="exposure"):
        found = cross_val_score(
            model, X, Y, cv=CV, params=params, scoring=SCORERS.get(scoring, scoring)
        )
    assert scoring == "neg_mean_poisson_deviance" or np.isnan(found).all()
    with pytest.warns(UserWarning, match="exposure"):
        cross_val_predict(model, X, Y, cv=CV, params=params)
    with pytest.raises(ValueError, match="exposure"):
        cross_val_score(model, X, Y, cv=CV, params=params, error_score="raise")


WRAPPED = {
    "pipeline": (lambda m: make_pipeline(StandardScaler(), m), "deepgpregressor__exposure"),
    "two pipelines": (
        lambda m: make_pipeline(make_pipeline(StandardScaler(), m)),
        "pipeline__deepgpregressor__exposure",
    ),
    "search": (lambda m: GridSearchCV(m, {"max_iter": [40]}, cv=2, error_score=0.0), "exposure"),
    "search of pipelines": (
        lambda m: GridSearchCV(
            make_pipeline(StandardScaler(), m),
            {"deepgpregressor__max_iter": [40]},
            cv=2,
            error_score=0.0,
        ),
        "deepgpregressor__exposure",
    ),
}


def distribution_by_hand(piped):
    mean, std, density = np.empty((3, N))
    for a, b in CV.split(X):
        scaler = StandardScaler(with_mean=piped, with_std=piped).fit(X[a])
        model = quick().fit(scaler.transform(X[a]), Y[a], exposure=E[a])
        rows = scaler.transform(X[b])
        mean[b], std[b] = model.predict(rows, return_std=True, exposure=E[b])
        density[b] = model.log_predictive_density(rows, Y[b], exposure=E[b])
    return mean, std, density


def check_by_hand(found, piped):
    for part, expected in zip(
        (found.mean, found.std, found.log_density), distribution_by_hand(piped)
    ):
        assert_allclose(part, expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Scoring failed")
@pytest.mark.filterwarnings("ignore:One or more of the test scores")
@pytest.mark.parametrize("wrapped", WRAPPED)
def test_distributions_of_folds(wrapped):
    wrap, name = WRAPPED[wrapped]
    found = cross_val_distribution(wrap(quick()), X, Y, cv=CV, params={name: E})
    check_by_hand(found, "pipeline" in wrapped)
    if "pipeline" not in wrapped:
        check_by_hand(cross_val_distribution(wrap(quick(exposure=1)), FRAME, Y, cv=CV), False)


def test_distributions_of_folds_with_routing():
    with config_context(enable_metadata_routing=True):
        model = quick().set_fit_request(exposure=True).set_predict_request(exposure=False)
        with pytest.raises(ValueError, match="scores of counts need"):
            cross_val_distribution(model, X, Y, cv=CV, params={"exposure": E})
        model = make_pipeline(StandardScaler(), model.set_predict_request(exposure=True))
        found = cross_val_distribution(model, X, Y, cv=CV, params={"exposure": E})
    check_by_hand(found, True)


def test_tables_of_other_processes_are_read_as_frames():
    table = Table.of(FRAME)
    found = quick(exposure="months", max_iter=3).fit(table, Y).predict(table)
    assert_allclose(found, quick(exposure="months", max_iter=3).fit(FRAME, Y).predict(FRAME))
