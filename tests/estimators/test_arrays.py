"""Inputs and targets whose meaning numpy would lose in silence, and messages that say what is wrong."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor

EXACT = {"n_layers": 1, "inference": "exact", "max_iter": 5, "random_state": 0}
rng = np.random.default_rng(0)
X = rng.uniform(-1.0, 1.0, (60, 2))
y = np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
HOURS = pd.date_range("2020", periods=60, freq="h").to_numpy()[:, None]


@pytest.mark.parametrize("dates", [HOURS, HOURS - HOURS[0]])
def test_arrays_of_dates_have_a_unit_of_their_own(dates):
    model = DeepGPRegressor(**EXACT).fit(dates, y)
    kind = dates.dtype.kind
    assert list(model.column_kinds_.values()) == ["date" if kind == "M" else "duration"]
    for unit in ("s", "m", "h"):
        same = dates.astype(f"{kind}8[{unit}]")
        assert_array_equal(model.predict(same), model.predict(dates))
        assert_array_equal(model.predict(pd.DataFrame(same).to_numpy()), model.predict(dates))
    with pytest.raises(ValueError, match=r"Column 0 of X had (date|duration)s in fit, and has num"):
        model.predict(dates.astype(float))
    numbers = DeepGPRegressor(**EXACT).fit(X[:, :1], y)
    with pytest.raises(ValueError, match=r"Column 0 of X had numbers in fit, and has (date|durat)"):
        numbers.predict(dates)


def test_masks_are_refused():
    masked = np.ma.masked_greater(X, 0.5)
    for call in (
        lambda: DeepGPRegressor(**EXACT).fit(masked, y),
        lambda: DeepGPRegressor(**EXACT).fit(X, np.ma.masked_greater(y, 0.5)),
        lambda: DeepGPRegressor(**EXACT).fit(X, y).predict(masked),
    ):
        with pytest.raises(ValueError, match="Some values are masked"):
            call()
    nothing = np.ma.masked_greater(X, 5.0)
    model, expected = (DeepGPRegressor(**EXACT).fit(rows, y) for rows in (nothing, X))
    assert_array_equal(model.predict(nothing), expected.predict(X))


@pytest.mark.parametrize("dtype", [np.longdouble, np.float32, np.float16])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_numbers_of_other_widths(dtype):
    model = DeepGPRegressor(**EXACT).fit(X.astype(dtype), y.astype(dtype))
    rows = X.astype(dtype).astype(float)
    expected = DeepGPRegressor(**EXACT).fit(rows, y.astype(dtype).astype(float))
    assert_allclose(model.predict(X.astype(dtype)), expected.predict(rows), rtol=1e-6)
    targets = y.astype(dtype), y.astype(dtype).astype(float)
    assert_allclose(*(model.log_predictive_density(rows, target) for target in targets))


@pytest.mark.skipif(np.finfo(np.longdouble).max <= np.finfo(float).max, reason="is float64 here")
def test_wide_numbers_that_do_not_fit():
    target = y.astype(np.longdouble)
    target[3] = np.longdouble(10.0) ** 400
    with pytest.raises(ValueError, match="y contains infinity or a value too large"):
        DeepGPRegressor(**EXACT).fit(X, target)


@pytest.mark.parametrize("n_far", [1, 3])
def test_targets_far_from_all_others_are_named(n_far):
    far = np.sort(np.random.default_rng(1).choice(60, n_far, replace=False))
    target = y.copy()
    target[far] = 999_999.0
    with pytest.warns(UserWarning, match=f"targets of rows {', '.join(map(str, far))} are more"):
        SparseGPRegressor(5, max_iter=1).fit(X, target)


@pytest.mark.parametrize(
    "target",
    [y, np.exp(3.0 * y), np.r_[1.0, np.zeros(59)], np.r_[np.zeros(40), y[:20] + 2.0], np.ones(60)],
    ids=["plain", "lognormal", "one", "zeros", "constant"],
)
def test_ordinary_targets_are_not(target):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        SparseGPRegressor(5, max_iter=1).fit(X, target)


@pytest.mark.parametrize("Estimator", [DeepGPRegressor, DeepGPClassifier])
def test_held_out_rows_are_named(Estimator):
    target = y if Estimator is DeepGPRegressor else y > 0.0
    bad = X.copy()
    bad[0, 0] = np.inf
    model = Estimator(inference="dsvi", max_iter=2, n_inducing=5)
    for settings, match in (
        ({"X_val": bad, "y_val": target}, "X_val.* contains infinity"),
        ({"X_val": X[:, :1], "y_val": target}, "X_val.* has 1 features, but"),
    ):
        with pytest.raises(ValueError, match=match):
            model.fit(X, target, **settings)


def test_numpy_errors_of_the_caller_change_nothing():
    """Numbers that vanish are zero, also for callers who want to know of them."""
    model = DeepGPRegressor(max_iter=5, n_inducing=5, random_state=0)
    expected = model.fit(X, y).predict_interval(X)
    near = 1e-300 * X
    with np.errstate(all="raise"):
        model.fit(X, y)
        assert_array_equal(model.predict_interval(X), expected)
        for call in (
            lambda: model.predict(near, return_std=True),
            lambda: model.predict(near[:5], return_cov=True),
            lambda: model.sample_y(near, 3),
            lambda: model.log_predictive_density(near, y),
            lambda: model.predict_interval(1e300 * X),
        ):
            assert all(np.isfinite(part).all() for part in call())


def test_the_largest_numbers():
    model = DeepGPRegressor(**EXACT)
    expected = model.fit(X, y).predict(X)
    assert np.isfinite(model.predict([[1.7e308, -1.7e308]], return_std=True)).all()
    assert_allclose(model.fit(1e306 * X, y).predict(1e306 * X), expected, atol=1e-3)
    with pytest.raises(ValueError, match="choose a larger unit"):
        model.fit(1.7e308 * X, y)


def test_one_column_is_no_table():
    """A Series, and a row of a frame, meet the sentence of scikit-learn."""
    frame = pd.DataFrame(X, columns=["weight", "power"])
    model = DeepGPRegressor(**EXACT).fit(frame, y)
    with pytest.raises(ValueError, match=r"Pass a DataFrame containing .* a single column"):
        DeepGPRegressor(**EXACT).fit(frame["weight"], y)
    for method in (model.predict, model.predict_interval, model.sample_y):
        with pytest.raises(ValueError, match="Pass a DataFrame containing a single row"):
            method(frame.iloc[0])
    polars = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"Reshape your data|Expected 2D"):
        SparseGPRegressor().fit(polars.Series(X[:, 0]), y)


def test_text_is_named_where_numbers_were():
    frame = pd.DataFrame({"weight": X[:, 0], "origin": ["1.5", "usa"] * 30})
    message = "X_val.*Column 'origin' of X had numbers in fit, and has 'usa' now"
    with pytest.raises(ValueError, match=message):
        DeepGPRegressor(**EXACT).fit(X, y, X_val=frame, y_val=y)
    with pytest.raises(ValueError, match="Column '1' of X holds text, such as 'usa'"):
        DeepGPRegressor(**EXACT).fit(frame.to_numpy(dtype=object), y)
    with pytest.raises(ValueError, match="Column '1' of X holds text, such as 'usa'"):
        DeepGPRegressor(**EXACT).fit(frame.to_numpy(dtype=str), y)


def test_numbers_that_are_written_as_text_are_numbers():
    frame = pd.DataFrame(X, columns=["a", "b"]).astype({"b": str})
    with pytest.warns(UserWarning, match="'b' as numbers"):
        model = SparseGPRegressor(random_state=0).fit(frame, y)
    assert_array_equal(model.predict(frame), model.predict(frame.astype(float)))


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
@pytest.mark.parametrize("make", [DeepGPClassifier, SparseGPClassifier, DeepGPRegressor])
def test_missing_targets_are_an_error(make, missing):
    a, b = (1.0, 2.0) if make is DeepGPRegressor else ("a", "b")
    targets = [a, b, missing, a]
    for y in (targets, np.array(targets, dtype=object), pd.Series(targets, dtype=object)):
        with pytest.raises(ValueError, match="Input y contains NaN"):
            make().fit(np.eye(4), y)
