"""Predictions over time."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline

from skdgp import DeepGPRegressor
from skdgp.inspection import ForecastDisplay

pytest.importorskip("matplotlib").use("Agg")
N = 70
X = pd.DataFrame({"x": np.sin(np.arange(N)), "day": pd.date_range("2024-01-01", periods=N)})
Y = pd.Series(np.arange(N) / 10.0 + X["x"].to_numpy(), name="sales")
PAST, LATER = slice(60), slice(60, N)


@pytest.fixture(scope="module")
def model():
    settings = {"inference": "exact", "max_iter": 5, "random_state": 0, "time": "day"}
    return DeepGPRegressor(1, **settings).fit(X[PAST], Y[PAST])


def test_all_parts(model):
    order = np.random.default_rng(0).permutation(10)
    rows, y = X[LATER].iloc[order], Y[LATER].iloc[order]
    shown = ForecastDisplay.from_estimator(model, rows, y, past=(X[PAST], Y[PAST]), color="red")
    assert_array_equal(shown.time, X["day"][LATER].to_numpy())
    assert_array_equal(shown.y_true, Y[LATER])
    assert_allclose(shown.mean, model.predict(X[LATER]))
    assert_allclose(shown.intervals[1], model.predict_interval(X[LATER], coverage=0.9))
    assert_array_equal(shown.past_.get_ydata(), Y[PAST])
    assert_array_equal(shown.true_.get_ydata(), Y[LATER])
    assert (shown.ax_.get_xlabel(), shown.ax_.get_ylabel()) == ("day", "sales")
    assert shown.line_.get_color() == "red" and len(shown.bands_) == 2
    bare = ForecastDisplay.from_estimator(model, X[LATER], coverage=0.8)
    assert bare.true_ is None and bare.past_ is None and len(bare.bands_) == 1


def test_times_by_name_position_and_array(model):
    expected = X["day"][LATER].to_numpy()
    pipeline = make_pipeline("passthrough", model)
    for estimator, time in ((pipeline, "day"), (model, 1), (model, expected), (pipeline, None)):
        found = ForecastDisplay.from_estimator(estimator, X[LATER], time=time)
        assert_array_equal(found.time, expected)


def test_what_there_is_no_picture_of(model):
    plain = DeepGPRegressor(1, inference="exact", max_iter=2, random_state=0).fit(X[PAST], Y[PAST])
    with pytest.raises(ValueError, match="There is no time"):
        ForecastDisplay.from_estimator(plain, X[LATER])
    with pytest.raises(ValueError, match="time='hour' names a column that X does not have"):
        ForecastDisplay.from_estimator(plain, X[LATER], time="hour")
    with pytest.raises(ValueError, match="past needs the name"):
        ForecastDisplay.from_estimator(model, X[LATER], time=np.arange(10), past=(X[PAST], Y[PAST]))
    with pytest.raises(ValueError, match="one value for each of the 10 rows"):
        ForecastDisplay.from_estimator(model, X[LATER], time=np.arange(9))
