"""Times of rows: what is left out are blocks of the future."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.estimators.times import blocks, column_of, read
from skdgp.fitting.left_out import last_groups
from skdgp.fitting.table import Table
from skdgp.inference import Vecchia
from skdgp.model_selection import cross_val_distribution

N = 120
DAYS = pd.date_range("2024-01-01", periods=N, freq="D")
DAY = datetime.timedelta(days=1)


def series(seed=0):
    """A random walk with a column that explains a part of it, by day."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=N)
    y = np.cumsum(rng.normal(size=N)) + x + 0.1 * rng.normal(size=N)
    return pd.DataFrame({"day": DAYS, "x": x}), y


def regressor(**settings):
    return DeepGPRegressor(**{"max_iter": 20, "random_state": 0, **settings})


def numbers(time, horizon=None, rows=slice(None)):
    return blocks(*read(column_of(time, len(time))), rows, horizon)


# Blocks


def test_blocks_are_as_long_as_the_horizon_and_end_with_the_last_row():
    hours = pd.date_range("2024-01-01", periods=480, freq="h")
    found = numbers(hours, datetime.timedelta(hours=48))
    assert_array_equal(np.bincount(found), [288, 48, 48, 48, 48])
    assert_array_equal(found, np.sort(found))
    shuffled = np.random.default_rng(0).permutation(480)
    assert_array_equal(numbers(hours[shuffled], np.timedelta64(2, "D")), found[shuffled])
    assert_array_equal(numbers(np.arange(480.0), 48), found)
    for time in (
        hours.to_numpy(),
        list(hours.to_pydatetime()),
        hours.to_series(),
        hours.astype(str),
    ):
        assert_array_equal(numbers(time, pd.Timedelta(days=2)), found)


def test_a_tenth_of_the_span_is_the_default():
    found = numbers(np.linspace(0.0, 1.0, 1001))
    assert_array_equal(np.bincount(found), [501, *[100] * 5])


def test_gaps_and_long_horizons_leave_a_past():
    time = np.array([0.0, 1.0, 2.0, 60.0, 99.0, 100.0])
    assert_array_equal(numbers(time, 3.0), [0, 0, 0, 1, 2, 2])  # empty blocks are none
    assert_array_equal(numbers(time, 60.0), [0, 0, 0, 1, 1, 1])
    assert_array_equal(numbers(time, 99.5), [0, 1, 1, 1, 1, 1])
    many = numbers(np.arange(1000.0), 1.0)
    assert many.max() == 50 and np.count_nonzero(many) == 50
    assert_array_equal(numbers(time, 3.0, np.arange(5)), [0, 0, 0, 1, 2])


def test_held_out_rows_are_the_last_blocks():
    groups = np.repeat([0, 1, 2, 3], [50, 10, 20, 20])
    for n_held, start in ((1, 80), (29, 80), (31, 60), (49, 50), (1000, 50)):
        assert_array_equal(last_groups(groups, n_held, None), np.arange(start, 100))
    labels = (np.arange(100) > 65).astype(int)  # block 2 has the first rows of a class
    assert_array_equal(last_groups(groups, 1000, labels), np.arange(80, 100))
    labels = (np.arange(100) > 85).astype(int)
    assert not len(last_groups(groups, 20, labels))
    assert not len(last_groups(np.zeros(5, dtype=int), 2, None))


def test_early_stopping_looks_at_the_last_rows():
    X, y = series()
    shuffled = np.random.default_rng(0).permutation(N)
    groups = numbers(DAYS)[shuffled]
    columns = np.column_stack([X["x"], np.arange(N)])[shuffled], y[shuffled, None], np.ones(N)
    table = Table(*columns, groups=groups, forward=True).merged()
    assert_array_equal(table.groups, np.sort(groups))
    rest, held = table.split(0.2, np.random.default_rng(0))
    assert len(held) == 24 and rest.forward and held.forward
    assert held.X[:, 1].min() > rest.X[:, 1].max()


# Estimators


@pytest.fixture(scope="module")
def fitted():
    X, y = series()
    return regressor(time="day").fit(X, y)


def test_members_are_judged_by_blocks_of_the_future(fitted):
    """Of a random walk, the day before and the day after tell more than any day before the block."""
    X, y = series()
    alone = regressor(time=None).fit(X, y)
    forward, backward = (max(m.record.log_density for m in one.members_) for one in (fitted, alone))
    assert forward < backward - 0.3
    assert fitted.column_kinds_["day"] == "date"


def test_an_array_and_a_column_leave_the_same_out(fitted):
    X, y = series()
    expected = fitted.predict(X, return_std=True)
    for settings, given in (
        ({}, {"time": X["day"]}),
        ({"time": 0}, {}),
        ({}, {"time": np.arange(N)}),
    ):
        found = regressor(**settings).fit(X, y, **given)
        if "time" in given:
            scores = [[m.record.log_density for m in one.members_] for one in (found, fitted)]
            assert np.isfinite(scores[0]).all()
            continue
        assert_allclose(found.predict(X, return_std=True), expected)


def test_rows_in_any_order_are_the_same_series(fitted):
    X, y = series()
    order = np.random.default_rng(1).permutation(N)
    model = regressor(time="day").fit(X.iloc[order], y[order])
    assert_allclose(model.predict(X), fitted.predict(X), rtol=1e-6)


@pytest.mark.parametrize("estimator", [DeepGPRegressor, DeepGPClassifier])
@pytest.mark.parametrize(
    ("settings", "given", "match"),
    [
        ({"time": "date"}, {}, "time='date' names a column that X does not have"),
        (
            {"time": "x", "horizon": DAY},
            {},
            "horizon is a timedelta, and time has no unit; give a number",
        ),
        (
            {"time": "day", "horizon": 3},
            {},
            "horizon is a number, and time has a unit; give a timedelta",
        ),
        ({"time": "day", "horizon": 400 * DAY}, {}, "as long as all rows took"),
        ({"time": "day", "horizon": 0 * DAY}, {}, "horizon must be positive"),
        ({"time": "day", "horizon": np.timedelta64(400, "D")}, {}, "as long as all rows took"),
        ({"time": "day", "horizon": np.timedelta64("NaT")}, {}, "horizon is NaT"),
        ({}, {"time": np.c_[DAYS, DAYS]}, "time must have one value for each row; got shape"),
        ({"time": None, "horizon": 3}, {}, "give time, too"),
        ({}, {"time": DAYS[1:]}, "one value for each of the 120 rows; got 119"),
        ({}, {"time": DAYS.where(DAYS != DAYS[7])}, "time is missing in row 7"),
        ({}, {"time": np.zeros(N)}, "time has a single value"),
        ({}, {"time": ["now", "then"] * 60}, "time must be numbers, dates or durations"),
        ({"time": "day"}, {"time": DAYS}, "time is given twice"),
        ({"time": "day"}, {"groups": np.arange(N)}, "groups and time are both given"),
        ({"time": "day", "groups": "x"}, {}, "groups and time are both given"),
    ],
)
def test_times_that_are_none(estimator, settings, given, match):
    X, y = series()
    model = estimator(max_iter=2, **settings)
    with pytest.raises(ValueError, match=match):
        model.fit(X, y > 0.0 if estimator is DeepGPClassifier else y, **given)
    assert not model._is_fitted()


def test_full_scale_approximations_do_not_go_forward():
    X, y = series()
    scheme = Vecchia(6, start="subset", full_scale=5)
    with pytest.raises(ValueError, match="full_scale of Vecchia has no predictions from earlier"):
        regressor(n_layers=1, inference=scheme, time="day").fit(X, y)


@pytest.mark.parametrize("inference", ["dsvi", "vecchia", "exact", "vfe"])
def test_single_models_and_classes(inference):
    X, y = series()
    stops = inference == "dsvi"
    settings = {"inference": inference, "max_iter": 5, "early_stopping": stops, "time": "day"}
    model = regressor(n_layers=1, **settings).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    model = DeepGPClassifier(1, random_state=0, **settings).fit(X, np.where(y > y.mean(), "a", "b"))
    assert model.predict_proba(X).shape == (N, 2)


def test_classes_by_all_members():
    X, _ = series()
    labels = np.where(np.arange(N) % 3 > 0, "b", "a")
    model = DeepGPClassifier(max_iter=10, random_state=0, time="day", horizon=10 * DAY)
    model.fit(X, labels)
    assert all(np.isfinite(m.record.log_density) for m in model.members_)


def test_pipelines_searches_and_cross_validation():
    X, y = series()
    seen = []

    class Noting(DeepGPRegressor):
        def _plans(self, data):
            seen.append((len(data), data.forward, int(data.groups.max())))
            return super()._plans(data)

    model = Noting(1, inference="exact", max_iter=3, random_state=0, time="day", horizon=10 * DAY)
    cv = TimeSeriesSplit(2)
    GridSearchCV(make_pipeline(model), {"noting__tol": [0.0]}, cv=cv).fit(X, y)
    cross_val_score(model, X, y, cv=cv)
    found = cross_val_distribution(model, X, y, cv=cv)
    assert np.isnan(found.mean[:40]).all() and np.isfinite(found.mean[40:]).all()
    assert [n for n, *_ in seen] == [40, 80, 120, 40, 80, 40, 80]
    assert {last for n, _, last in seen if n == 40} == {1}
    assert {last for n, _, last in seen if n == 120} == {5}
    assert all(forward for _, forward, _ in seen)


def test_chunks_have_no_blocks():
    X, y = series()
    model = DeepGPRegressor(1, inference="dsvi", time="day", random_state=0)
    model.partial_fit(X[:60], y[:60]).partial_fit(X[60:61], y[60:61])
    assert np.isfinite(model.predict(X)).all()


def test_warm_starts_and_checkpoints(tmp_path):
    X, y = series()
    settings = {"n_layers": 1, "inference": "exact", "max_iter": 3, "time": "day"}
    model = regressor(warm_start=True, checkpoint=tmp_path, **settings).fit(X[:100], y[:100])
    assert_array_equal(regressor(checkpoint=tmp_path, **settings).fit(X, y).predict(X).shape, (N,))
    assert np.isfinite(model.fit(X, y).predict(X)).all()


# Members and the calendar


def test_members_go_on_beyond_the_last_row():
    """A series with a week, a slope and a level that moves, four weeks ahead."""
    rng = np.random.default_rng(3)
    days = pd.date_range("2023-03-01", periods=238, freq="D")
    week = np.array([0.0, 1.0, 1.5, 1.0, 2.0, 5.0, 4.0])[days.dayofweek]
    y = (
        week
        + 0.05 * np.arange(238)
        + np.cumsum(0.3 * rng.normal(size=238))
        + 0.3 * rng.normal(size=238)
    )
    X = pd.DataFrame({"day": days})
    model = DeepGPRegressor(time="day", horizon=28 * DAY, random_state=0).fit(X[:210], y[:210])
    dist = model.predict_dist(X[210:])
    low, high = dist.interval(0.9).T
    assert np.mean((low <= y[210:]) & (y[210:] <= high)) > 0.5
    assert dist.std[-1] > 1.3 * dist.std[0]
    of_week = (
        model.predict(X[210:]) - pd.Series(model.predict(X[210:])).rolling(7, center=True).mean()
    )
    assert np.corrcoef(of_week.dropna(), (week[210:] - week.mean())[3:-3])[0, 1] > 0.95
    assert {type(m.scheme).__name__ for m in model.members_} == {
        "Exact"
    }  # none sees what it is judged by


def test_a_calendar_has_periods_that_rows_divide():
    y = np.sin(np.arange(N))
    for freq, expected in (
        ("MS", ["year"]),
        ("D", ["week"]),
        ("h", ["day"]),
        ("YS", []),
        ("QS", ["year"]),
    ):
        X = pd.DataFrame({"t": pd.date_range("2000-01-01", periods=N, freq=freq)})
        model = regressor(n_layers=1, inference="exact", max_iter=2, time="t").fit(X, y)
        names = [
            "t",
            *(f"t ({part} of {name})" for name in expected for part in ("sine", "cosine")),
        ]
        assert model._x_scaler.names(["t"]) == names


def test_times_without_other_columns_and_arrays_of_numbers():
    t = np.arange(80.0)
    y = 0.1 * t + np.sin(t)
    model = regressor(time=0).fit(t[:, None], y)
    mean, std = model.predict([[85.0], [400.0]], return_std=True)
    assert mean[1] > 30.0 and std[1] > std[0]


def test_several_outputs_and_minibatches_of_counts():
    X, y = series()
    model = regressor(time="day").fit(X, np.column_stack([y, -y]))
    assert model.predict(X).shape == (N, 2)
    counts = np.random.default_rng(0).poisson(3.0, N)
    model = regressor(time="day", likelihood="poisson").fit(X, counts)
    assert {type(m.scheme).__name__ for m in model.members_} == {"DSVI"}
    assert all(np.isfinite(m.record.log_density) for m in model.members_)


# Warnings


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [
        str(w.message)
        for w in caught
        if "order of the dates" in str(w.message) or "of the rows" in str(w.message)
    ]


def test_dates_in_order_are_noticed():
    X, y = series()
    settings = {"n_layers": 1, "inference": "exact", "max_iter": 2}
    (message,) = warned(lambda: regressor(**settings).fit(X, y))
    assert "set time='day'" in message
    order = np.random.default_rng(0).permutation(N)
    for rows, target, more in (
        (X, y, {"time": "day"}),
        (X.iloc[order], y[order], {}),
        (X, y[order], {}),  # targets that are not alike
        (X.iloc[:40], y[:40], {}),
        (X.assign(day=np.arange(N)), y, {}),
    ):
        assert not warned(lambda: regressor(**settings, **more).fit(rows, target))  # noqa: B023
    assert not warned(lambda: regressor(**settings).fit(X, y, groups=np.arange(N) % 9))
    assert warned(
        lambda: DeepGPRegressor(budget=0.01, max_iter=2).fit(
            X[np.arange(N) != 60], y[np.arange(N) != 60]
        )
    )
    sparse = SparseGPRegressor(max_iter=2, random_state=0)  # without the parameter
    assert not warned(lambda: sparse.fit(X, y))


@pytest.mark.filterwarnings("ignore:Rows are in the order")
def test_the_only_dates_in_order_are_the_time():
    X, y = series()

    class Found(Exception):
        pass

    class Noting(DeepGPRegressor):
        def _plans(self, data):
            raise Found(data.time, data.forward)

    def time_of(X, y, **settings):
        with pytest.raises(Found) as found:
            Noting(**settings).fit(X, y)
        return found.value.args

    months = pd.date_range("2010-01-01", periods=N, freq="MS")
    taken, left = (0, True), (None, False)
    assert time_of(X, y) == time_of(X.assign(day=months), y) == taken
    folds = KFold(5, shuffle=True, random_state=0).split(X)
    for train, _ in folds:  # whose rows stay in order
        assert time_of(X.iloc[train], y[train]) == left
    for train, _ in TimeSeriesSplit(2).split(X[60:]):
        assert time_of(X[: 60 + len(train)], y[: 60 + len(train)]) == taken
    assert time_of(X.assign(other=months), y) == time_of(X, y, time=None) == left
    assert time_of(X, y, n_layers=1, inference="exact") == time_of(X, y, noise="none") == left
    assert time_of(X, np.random.default_rng(0).permutation(y)) == left


def test_rows_beyond_the_training_time_are_noticed():
    X, y = series()
    order = np.random.default_rng(0).permutation(100)
    settings = {"n_layers": 1, "inference": "exact", "max_iter": 2}
    plain = regressor(**settings).fit(X.iloc[order], y[order])
    (message,) = warned(lambda: plain.predict(X[90:]))
    assert "67% of the rows are later than all training rows by 'day'" in message
    assert "time='day'" in message
    assert not warned(lambda: plain.predict(X[80:]))  # half
    timed = regressor(time="day", horizon=10 * DAY, **settings).fit(X[:100], y[:100])
    assert not warned(lambda: timed.predict(X[100:110]))
    (message,) = warned(lambda: timed.predict(X[112:]))
    assert "100% of the rows lie farther ahead than the horizon by 'day'" in message
