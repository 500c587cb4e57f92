"""What columns hold in fit, predict and partial_fit of the estimators."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor

FEW = {"max_iter": 5, "random_state": 0}
ESTIMATORS = [
    DeepGPRegressor(1, inference="exact", **FEW),
    DeepGPRegressor(inference="dsvi", n_inducing=5, **FEW),
    DeepGPClassifier(inference="dsvi", n_inducing=5, **FEW),
    SparseGPRegressor(5, **FEW),
    SparseGPClassifier(5, **FEW),
]
every_estimator = pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda model: f"{type(model).__name__}-{model.n_layers}"
)
RNG = np.random.default_rng(0)
X = pd.DataFrame(
    {
        "km": np.round(RNG.uniform(0, 10, 80), 1),
        "when": pd.date_range("2024-01-01", periods=80),
        "city": RNG.choice(["london", "paris", "rome"], 80),
    }
)
EFFECT = X["city"].map({"london": 0.0, "paris": 3.0, "rome": -3.0}).to_numpy()
Y = np.sin(X["km"].to_numpy()) + EFFECT


def targets(model):
    return (Y > 0.5).astype(int) if "Classifier" in type(model).__name__ else Y


def predictions(model, rows):
    return model.predict_proba(rows) if hasattr(model, "predict_proba") else model.predict(rows)


@every_estimator
def test_text_of_numbers_and_dates_is_read_with_one_warning(estimator):
    expected = clone(estimator).fit(X, targets(estimator))
    text = X.astype({"km": str}).assign(when=X["when"].dt.strftime("%d/%m/%Y"))
    with pytest.warns(UserWarning, match="'km' as numbers; 'when' as dates with the day f") as said:
        model = clone(estimator).fit(text, targets(estimator))
    assert len([one for one in said if "'km'" in str(one.message)]) == 1
    assert model.column_kinds_ == {"km": "number", "when": "date", "city": "category"}
    for rows in (text, X, pl.DataFrame(X.to_dict("list"))):
        assert_array_equal(predictions(model, rows), predictions(expected, X))
    kept = clone(estimator).set_params(categorical_features=[]).fit(text, targets(estimator))
    assert set(kept.column_kinds_.values()) == {"category"}


@every_estimator
def test_another_kind_in_predict_is_an_error_that_names_the_column(estimator):
    model = clone(estimator).fit(X, targets(estimator))
    days = (X["when"] - pd.Timestamp(0)) // pd.Timedelta("1ms")
    for change in ({"when": days}, {"when": X["when"].dt.strftime("%Y%m%d").astype(int)}):
        with pytest.raises(ValueError, match="'when' of X had dates in fit, and has numbers now"):
            model.predict(X.assign(**change))
    with pytest.raises(ValueError, match="'km' of X had numbers in fit, and has dates now"):
        model.predict(X.assign(km=X["when"]))
    numbers = clone(estimator).fit(X[["km"]], targets(estimator))
    for wrong in (X["when"], X["when"] - X["when"][0], X["city"], [datetime.time(8)] * 80):
        with pytest.raises(ValueError, match="'km' of X had numbers in fit, and has "):
            numbers.predict(X[["km"]].assign(km=wrong))


@every_estimator
@pytest.mark.parametrize(("change", "n"), [(str.title, 80), (lambda x: x + " ", 80), (str, 0)])
def test_levels_that_fit_has_not_seen_are_one_warning(estimator, change, n, recwarn):
    model = clone(estimator).fit(X, targets(estimator))
    recwarn.clear()
    model.predict(X.assign(city=X["city"].map(change)))
    said = [str(one.message) for one in recwarn if "city" in str(one.message)]
    assert len(said) == (n > 0)
    assert all("80 of 80 rows (100%) in 'city'" in message for message in said)


def test_a_few_unseen_levels_are_no_news(recwarn):
    model = clone(ESTIMATORS[0]).fit(X, Y)
    for n, expected in ((8, []), (9, ["9 of 80 rows (11%)"])):
        recwarn.clear()
        model.predict(X.assign(city=[*["oslo"] * n, *X["city"][n:]]))
        said = [str(one.message) for one in recwarn if "city" in str(one.message)]
        assert [part in message for part, message in zip(expected, said, strict=True)] == (
            [True] * len(expected)
        )


def test_chunks_are_read_as_the_first_one():
    model = DeepGPRegressor(inference="dsvi", n_inducing=5, random_state=0)
    text = X.assign(when=X["when"].dt.strftime("%m/%d/%Y"))
    with pytest.warns(UserWarning, match="'when' as dates with the month first"):
        model.partial_fit(text[:40], Y[:40])
    before, levels = model.predict(X), model._reader.levels
    with pytest.raises(ValueError, match="'km' of X had numbers in fit, and has 'far' now"):
        model.partial_fit(text[40:].assign(km="far", city="oslo"), Y[40:])
    assert_array_equal(model.predict(X), before)
    assert model._reader.levels == levels
    model.partial_fit(X[40:].assign(city="oslo"), Y[40:])
    assert model._reader.levels == [None, None, ["london", "paris", "rome", "oslo"]]
