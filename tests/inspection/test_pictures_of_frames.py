"""Displays of models of data frames: dates, integers, many levels, rare values; labels have room."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdgp import DeepGPRegressor
from skdgp.inspection import CoverageDisplay, EffectsDisplay, LayersDisplay, PredictiveDisplay
from skdgp.inspection._points import points_along
from skdgp.inspection._slices import slice_along

pytestmark = pytest.mark.filterwarnings("ignore")
EXACT = {"n_layers": 1, "inference": "exact", "max_iter": 10, "random_state": 0}
N = 200
RNG = np.random.default_rng(0)
DAYS = pd.Series(pd.date_range("2024-01-01", periods=N, freq="D"), name="when")
SIZE = RNG.uniform(size=N)
TREND = 0.05 * np.arange(N) + SIZE + 0.1 * RNG.normal(size=N)


def boxes(labels, figure):
    figure.canvas.draw()
    return [label.get_window_extent() for label in labels if label.get_text()]


def have_room(labels, figure):
    """Whether texts are inside of a figure, and do not overlap."""
    found = boxes(labels, figure)
    inside = all(
        figure.bbox.x0 - 1 <= b.x0
        and b.x1 <= figure.bbox.x1 + 1
        and figure.bbox.y0 - 1 <= b.y0
        and b.y1 <= figure.bbox.y1 + 1
        for b in found
    )
    apart = not any(a.overlaps(b) for i, a in enumerate(found) for b in found[:i])
    return inside and apart


def pandas_of(column):
    return pd.DataFrame({"when": column, "size": SIZE})


ALONG_DATES = {
    "naive": lambda: pandas_of(DAYS),
    "zone": lambda: pandas_of(DAYS.dt.tz_localize("America/New_York")),
    "seconds": lambda: pandas_of(DAYS.astype("datetime64[s]")),
    "objects": lambda: pandas_of(DAYS.dt.date),
    "iso": lambda: pandas_of(DAYS.dt.strftime("%Y-%m-%d")),
    "text": lambda: pandas_of(DAYS.dt.strftime("%d/%m/%Y")),
    "polars": lambda: pl.DataFrame({"when": DAYS.tolist(), "size": SIZE}),
    "polars date": lambda: pl.DataFrame({"when": DAYS.dt.date.tolist(), "size": SIZE}),
    "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(pandas_of(DAYS)),
}


@pytest.mark.parametrize("library", ALONG_DATES)
def test_a_curve_along_dates_is_that_of_predict(plt, library):
    X = ALONG_DATES[library]()
    model = DeepGPRegressor(**EXACT).fit(X, TREND)
    display = PredictiveDisplay.from_estimator(model, X, TREND, feature="when", n_points=5)
    ends = DAYS if library != "zone" else X["when"]
    dates = pd.date_range(ends.min(), ends.max(), periods=5)
    rows = pd.DataFrame({"when": dates, "size": np.median(SIZE)})
    assert_allclose(display.mean, model.predict(rows), rtol=1e-6)
    shown = dates if dates.tz is None else dates.tz_convert("UTC").tz_localize(None)
    assert_array_equal(display.x, shown.to_numpy().astype("M8[us]"))
    assert display.x_data.dtype == display.x.dtype
    display.figure_.canvas.draw()
    assert any("2024" in label.get_text() for label in display.ax_.get_xticklabels())
    ends = DAYS[0], DAYS[50]
    some = (
        PredictiveDisplay.from_estimator(
            model, X, feature="when", feature_range=[str(e) for e in ends], n_points=3
        )
        if library != "zone"
        else None
    )
    assert some is None or some.x[-1] == ends[1]


@pytest.mark.parametrize(
    "dtype", ["int64", "Int64", "UInt8", "float32", "float64", "str", "object"]
)
def test_a_curve_along_integers_is_that_along_floats(plt, dtype):
    rooms = np.random.default_rng(1).integers(1, 30, N)
    X = pd.DataFrame({"rooms": rooms.astype(float), "size": SIZE})
    expected = DeepGPRegressor(**EXACT).fit(X, rooms + SIZE)
    of_floats = PredictiveDisplay.from_estimator(expected, X, feature="rooms", n_points=7)
    other = X.assign(rooms=rooms).astype({"rooms": dtype})
    display = PredictiveDisplay.from_estimator(expected, other, feature="rooms", n_points=7)
    assert_allclose(display.mean, of_floats.mean)
    assert_allclose(display.x, of_floats.x)


def test_times_durations_and_arrays_of_dates(plt):
    at = DAYS + pd.to_timedelta(np.arange(N) * 7.3, unit="h")
    X = pd.DataFrame({"at": at.dt.time, "for": at - at[0], "when": at})
    model = DeepGPRegressor(**EXACT).fit(X, TREND)
    for feature, unit in (("at", "(hours)"), ("for", "(days)"), ("when", "")):
        display = PredictiveDisplay.from_estimator(model, X, TREND, feature=feature, n_points=4)
        assert display.ax_.get_xlabel() == f"{feature} {unit}".strip()
        assert np.isfinite(display.mean).all()
    assert display.x[0] == at.min().to_datetime64()
    dates = X[["when"]].to_numpy()
    model = DeepGPRegressor(**EXACT).fit(dates, TREND)
    display = PredictiveDisplay.from_estimator(model, dates, n_points=4)
    assert_allclose(display.mean, model.predict(display.x[:, None]))


def test_typical_rows_have_medians_and_modes():
    frame = pd.DataFrame(
        {
            "x": SIZE,
            "when": DAYS,
            "text": SIZE.round(3).astype(str),
            "kind": ["b", "b", "a", None] * 50,
            "flag": [True, True, False, False] * 50,
            "empty": [None] * N,
        }
    )
    rows = slice_along(frame, "x", 3).rows
    assert_array_equal(rows["x"], np.linspace(SIZE.min(), SIZE.max(), 3))
    assert set(rows["when"]) <= set(DAYS[99:101]) and rows["when"].dtype == DAYS.dtype
    assert abs(float(rows["text"][0]) - np.median(SIZE)) < 0.02
    assert rows["kind"].tolist() == ["b"] * 3 and rows["flag"].tolist() == [False] * 3
    cells = frame.astype(object).where(frame.notna(), None)  # None, as polars needs it
    as_polars = slice_along(pl.DataFrame({c: cells[c].tolist() for c in cells}), "x", 3).rows
    assert as_polars.to_dict(as_series=False)["kind"] == ["b"] * 3


def levels_of(frequent, rare):
    kinds = [f"a{i:02d}" for i in range(frequent)] + [f"b{i:02d}" for i in range(rare)]
    kind = np.repeat(kinds, [6] * frequent + [3] * rare)
    X = pd.DataFrame({"kind": kind, "x": np.random.default_rng(0).uniform(size=len(kind))})
    return X, np.where(X["kind"].str[0] == "a", 1.0, -1.0) + X["x"]


@pytest.mark.parametrize("given", [True, False])
def test_effects_of_many_levels_are_centered_over_all(plt, given):
    X, y = levels_of(20, 20)
    model = DeepGPRegressor(**EXACT).fit(X, y)
    settings = {"features": ["kind"], "n_draws": 4}
    display = EffectsDisplay.from_estimator(model, X if given else None, **settings)
    levels = sorted(set(X["kind"]))
    at = {level: model.predict(X.assign(kind=level)).mean() for level in levels}
    center = np.mean([at[level] for level in X["kind"]])
    assert display.levels == [levels[:20]]  # the frequent ones
    assert_allclose(display.effects[0], [at[one] - center for one in levels[:20]], atol=0.05)
    assert "20 of 40 levels" in display.axes_[0].get_xlabel()
    whole = EffectsDisplay.from_estimator(model, X, n_points=40, **settings)
    assert whole.levels == [levels] and whole.axes_[0].get_xlabel() == "kind"
    assert_allclose(whole.effects[0], [at[one] - center for one in levels], atol=0.05)


def test_unseen_levels_are_none_of_those_shown(plt):
    X, y = levels_of(3, 2)
    model = DeepGPRegressor(**EXACT).fit(X, y)
    other = X.assign(kind=["zzz"] * 10 + X["kind"][10:].tolist())
    display = EffectsDisplay.from_estimator(model, other, features=["kind"], n_draws=4)
    assert set(display.levels[0]) <= set(X["kind"])


@pytest.mark.parametrize("n_levels", [1000, 120, 5])
def test_centers_are_weighted_means_over_values(n_levels):
    """Exact up to 100 values beside those shown, and else within four standard errors."""
    rng = np.random.default_rng(0)
    codes, effect = rng.integers(0, n_levels, 3000).astype(float), rng.normal(size=n_levels)
    weights = rng.uniform(size=3000)
    points = points_along(codes, weights, 20, "category", [str(i) for i in range(n_levels)])
    found = points.center @ effect[points.values.astype(int)]
    expected = np.average(effect[codes.astype(int)], weights=weights)
    assert_allclose(points.center.sum(), 1.0)
    assert abs(found - expected) < (1e-12 if n_levels <= 120 else 4.0 / np.sqrt(100))
    dates = points_along(np.arange(400.0), np.ones(400), 20, "date", None)
    of_week = np.sin(2 * np.pi * dates.values / 7)
    assert abs(dates.center @ of_week) < 0.1


@pytest.mark.parametrize(
    ("days", "steps", "note"),
    [
        (np.arange(200.0), 1.0, ""),  # finer than a quarter of a week
        (np.arange(0.0, 12.0, 1 / 24), 0.25, ""),
        (np.arange(0.0, 300.0, 1 / 24), 1.0, "always the same time of day"),
        (np.arange(5000.0), 91.0, "always the same weekday"),
        (np.arange(0.0, 9000.0, 30.5), 91.5, None),
    ],
)
def test_points_along_dates_show_cycles_or_stay_in_step_with_them(days, steps, note):
    points = points_along(days, np.ones(len(days)), 20, "date", None)
    grid = points.values[: len(points.shown)]
    step = np.diff(grid)
    assert_allclose(step, step[0])
    assert step[0] <= max(1.75, steps) and len(grid) <= 450
    if note is not None:
        assert points.note == note
    cycle = {"always the same time of day": 1.0, "always the same weekday": 7.0}.get(points.note)
    if cycle is not None:
        assert_allclose(step / cycle, np.round(step / cycle))
    assert points.shown.dtype == "M8[us]"


def test_effects_along_dates_are_those_of_predict(plt):
    week = np.sin(2 * np.pi * np.arange(N) / 7)
    X = pandas_of(DAYS)
    model = DeepGPRegressor(**{**EXACT, "max_iter": 40}).fit(X, 3.0 * week + SIZE)
    display = EffectsDisplay.from_estimator(model, X, features=["when"], n_draws=4)
    at = [model.predict(X.assign(when=date)).mean() for date in display.grids[0]]
    center = np.mean([model.predict(X.assign(when=date)).mean() for date in DAYS])
    assert_allclose(display.effects[0], np.array(at) - center, atol=0.1)
    assert np.ptp(display.effects[0]) > 4.0  # 6 in truth


def test_one_rare_value_does_not_set_the_scale(plt):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.uniform(size=N), "kind": rng.choice(list("abc"), N)})
    X.loc[7, "kind"] = "d"
    y = X["x"] + 50.0 * (X["kind"] == "d") + 0.01 * rng.normal(size=N)
    model = DeepGPRegressor(**EXACT, target_transform=None).fit(X, y)
    display = EffectsDisplay.from_estimator(model, X, features=["x", "kind"], n_draws=4)
    assert np.abs(display.effects[1]).max() > 5.0
    low, high = display.axes_[0].get_ylim()
    assert -2.0 < low < high < 2.0
    assert display.axes_[1].get_title() == "1 rare value beyond the scale"
    assert display.axes_[0].get_title() == ""


@pytest.mark.parametrize(
    "names",
    [
        list("abc"),
        [f"level number {i}" for i in range(5)],
        [f"a very long name of one level, {i}" for i in range(20)],
        [str(i) for i in range(40)],
    ],
)
def test_names_of_levels_have_room(plt, names):
    n = len(names)
    display = EffectsDisplay(
        grids=[np.arange(n)] * 4,
        effects=[np.zeros(n)] * 4,
        bands=[np.tile([-1.0, 1.0], (n, 1))] * 4,
        feature_names=["kind", "a name of a column that takes two lines", "c", "d"],
        coverage=0.9,
        discrete=[True] * 4,
        levels=[names] * 4,
    ).plot()
    for axis in display.axes_:
        assert have_room(axis.get_xticklabels(), display.figure_)
        texts = [label.get_text() for label in axis.get_xticklabels()]
        assert len(set(texts)) == len(texts)  # the ends of long names differ


@pytest.mark.parametrize("values", [[1, 2, 3, 1000], np.arange(10) * 1e5 + 0.5, [0, 1]])
def test_names_of_few_numbers_have_room(plt, values):
    values = np.asarray(values, dtype=float)
    X = pd.DataFrame({"x": np.resize(values, N), "size": SIZE})
    model = DeepGPRegressor(**EXACT).fit(X, SIZE)
    display = PredictiveDisplay.from_estimator(model, X, feature="x")
    assert display.discrete
    assert have_room(display.ax_.get_xticklabels(), display.figure_)


@pytest.mark.parametrize("n_models", [1, 2, 5])
def test_legends_of_coverage_are_not_cut(plt, n_models):
    y, levels = np.random.default_rng(0).normal(size=50), np.array([0.5, 0.9])
    display = None
    for i in range(n_models):
        display = CoverageDisplay.from_predictions(
            y,
            -np.ones((50, 2)),
            np.ones((50, 2)),
            levels,
            name=f"model {i}",
            ax=None if display is None else display.ax_,
        )
    texts = display.ax_.get_legend().get_texts()
    assert len(texts) == n_models + 2
    assert have_room(texts, display.figure_)


def test_layers_along_dates(plt):
    X = pandas_of(DAYS).assign(kind=np.resize(list("abcd"), N))[["kind", "when", "size"]]
    model = DeepGPRegressor(inference="dsvi", n_inducing=6, max_iter=5, random_state=0)
    display = LayersDisplay.from_estimator(model.fit(X, TREND), X, feature="when", n_points=5)
    layer = display.layers[0]
    for x in (layer.x, layer.rows_x, layer.inducing_x):
        assert x.dtype == "M8[us]"
        assert (x >= DAYS.min() - pd.Timedelta("99D")).all()
        assert (x <= DAYS.max() + pd.Timedelta("99D")).all()
