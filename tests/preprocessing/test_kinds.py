"""Kinds of columns in fit and in predict, for each library and as text: the same numbers, or a sentence."""

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

from skdgp.preprocessing.frames import FrameReader
from skdgp.preprocessing.levels import UNSEEN

N = 40
RNG = np.random.default_rng(0)
START = datetime.datetime(2024, 1, 1)
DAYS = [START + datetime.timedelta(hours=7 * i) for i in range(N)]
UTC = [one.replace(tzinfo=datetime.UTC) for one in DAYS]
#: kinds, and the cells of a column of each
CELLS = {
    "number": (RNG.integers(-99, 99, N) / 4).tolist(),
    "boolean": (RNG.random(N) < 0.5).tolist(),
    "date": DAYS,
    "instant": UTC,
    "duration": [one - START for one in DAYS],
    "time": [one.time() for one in DAYS],
    "category": RNG.choice(["red", "green", "blue"], N).tolist(),
}


def _pandas(kind, cells):
    return pd.DataFrame({"c": pd.Series(cells, dtype=object if kind == "time" else None)})


def _arrow(kind, cells):
    return pytest.importorskip("pyarrow").table({"c": cells})


#: frames of the cells of a kind
FRAMES = {
    "pandas": _pandas,
    "objects": lambda kind, cells: pd.DataFrame({"c": cells}, dtype=object),
    "nullable": lambda kind, cells: _pandas(kind, cells).convert_dtypes(),
    "polars": lambda kind, cells: pl.DataFrame({"c": cells}),
    "arrow": _arrow,
    "text": lambda kind, cells: pd.DataFrame({"c": list(map(str, cells))}),
    "polars text": lambda kind, cells: pl.DataFrame({"c": list(map(str, cells))}),
}
READ = {"instant": "date"}  #: what a kind is read as
every_library = pytest.mark.parametrize("library", FRAMES)


def _with_gap(cells):
    return [*cells[:-1], None]


@every_library
@pytest.mark.parametrize("kind", CELLS)
def test_kinds_are_found_in_every_library_and_in_text(kind, library):
    reader = FrameReader().fit(FRAMES[library](kind, CELLS[kind]))
    found = "category" if kind == "boolean" and "text" in library else READ.get(kind, kind)
    assert reader.kinds == [found]
    assert [bool("'c' as" in note) for note in reader.notes] == (
        [True] if kind == "number" and "text" in library else []
    )


@every_library
@pytest.mark.parametrize("kind", CELLS)
def test_the_same_cells_have_the_same_values_from_every_library(kind, library):
    reader = FrameReader().fit(FRAMES["pandas"](kind, CELLS[kind]))
    expected = reader.transform(FRAMES["pandas"](kind, CELLS[kind]))
    assert np.isfinite(expected).all()
    assert_array_equal(reader.transform(FRAMES[library](kind, CELLS[kind])), expected)
    for other in FRAMES:  # whatever fit has seen
        if not (kind == "boolean" and "text" in library):
            again = FrameReader().fit(FRAMES[library](kind, CELLS[kind]))
            assert_array_equal(again.transform(FRAMES[other](kind, CELLS[kind])), expected)
    if "text" not in library:
        gap = reader.transform(FRAMES[library](kind, _with_gap(CELLS[kind])))
        assert_array_equal(gap, np.append(expected[:-1], [[np.nan]], 0))


@every_library
@pytest.mark.parametrize("other", CELLS)
@pytest.mark.parametrize("kind", CELLS)
def test_another_kind_is_an_error_or_an_unseen_level(kind, other, library):
    """Only true and false may stand for numbers, 1 and 0, and 7:00 for a duration."""
    reader = FrameReader().fit(FRAMES["pandas"](kind, CELLS[kind]))
    frame = FRAMES[library](other, CELLS[other])
    if kind == other:
        return
    if kind == "category":
        assert (reader.transform(frame) == UNSEEN).all()
    elif (kind, other) == ("number", "boolean") and "text" not in library:
        assert_array_equal(reader.transform(frame)[:, 0], CELLS[other])
    elif (kind, other) == ("duration", "time") and "text" in library:
        assert_array_equal(reader.transform(frame), FrameReader().fit(frame).transform(frame))
    else:
        message = rf"Column 'c' of X had {READ.get(kind, kind)}s in fit, and has .* now; .*\.$"
        with pytest.raises(ValueError, match=message):
            reader.transform(frame)


@pytest.mark.parametrize(
    "zone", [None, "UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]
)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_instants_are_the_same_in_every_resolution_and_zone(zone, unit):
    """Days are those of the clock of fit: also where it is put forward or back."""
    rng = np.random.default_rng(1)
    seconds = rng.integers(1.7e9, 1.74e9, 200)
    utc = pd.Series(pd.to_datetime(seconds, unit="s"))
    fitted = utc if zone is None else utc.dt.tz_localize("UTC").dt.tz_convert(zone)
    reader = FrameReader().fit(pd.DataFrame({"t": fitted}))
    clock = fitted if zone is None else fitted.dt.tz_localize(None)
    expected = (clock - pd.Timestamp(0)).dt.total_seconds() / 86_400
    assert_array_equal(reader.transform(pd.DataFrame({"t": fitted}))[:, 0], expected)
    for other in ("UTC", "Europe/Vienna", "UTC+01:30") if zone else ("naive",):
        same = fitted.dt.tz_convert(other) if zone else fitted
        same = same.astype(str(same.dtype).replace("[ns", f"[{unit}"))
        for column in (same, same.astype(object), same.astype(str)):
            found = reader.transform(pd.DataFrame({"t": column}))[:, 0]
            assert_array_equal(found, expected)
        if other != "UTC+01:30":  # which polars does not know
            found = reader.transform(pl.DataFrame({"t": pl.Series(same.to_list())}))[:, 0]
            assert_array_equal(found, expected)
    with_or_without = utc.dt.tz_localize("UTC") if zone is None else utc
    now = (
        "and has dates with a time zone now"
        if zone is None
        else "and has dates without a time zone now"
    )
    for column, match in ((with_or_without, now), (with_or_without.astype(str), ".* time zone")):
        with pytest.raises(ValueError, match=f"'t' of X had dates in fit, {match}"):
            reader.transform(pd.DataFrame({"t": column}))


@pytest.mark.parametrize("wrong", [7, 0.5, -1, "yes", "2"])
def test_other_numbers_are_no_booleans(wrong):
    reader = FrameReader().fit(pd.DataFrame({"flag": [True, False, True]}))
    for cells in ([wrong, 1], np.array([wrong, True], dtype=object)):
        with pytest.raises(ValueError, match=r"'flag' of X had booleans in fit, and has .* now"):
            reader.transform(pd.DataFrame({"flag": cells}))
    for cells in ([1, 0], [1.0, 0.0], ["True", "false"], np.array([True, 0], dtype=object)):
        assert_array_equal(reader.transform(pd.DataFrame({"flag": cells}))[:, 0], [1.0, 0.0])


def _text(*cells):
    return pd.DataFrame({"c": np.resize(np.array(cells, dtype=object), 40)})


@pytest.mark.parametrize(
    ("cells", "kind", "note"),
    [
        (["1", "2.5", "3"], "number", "'c' as numbers"),
        (["1,5", "2,5", "3"], "number", "'c' as numbers with a decimal comma"),
        (["1,234", "999"], "number", "'c' as numbers (which is not sure)"),
        ([1.0, 2.0, *range(37), "?"], "number", "'c' as numbers ('?' as missing)"),
        (["1", "n/a", "", "NULL"], "number", "'c' as numbers ('', 'NULL', 'n/a' as missing)"),
        ([*range(39), "about 5"], "number", "'c' as numbers ('about 5' as missing)"),
        (["02139", "94110"], "category", "'c' as categories, because zeros lead some of its numb"),
        (["38", "40", "M", "L"], "category", None),
        (["1", "?", "a"], "category", None),
        (["2024-01-31", "2024-02-01"], "date", None),
        (["2024-01-31T00:00Z", "2024-02-01T01:00+01:00"], "date", None),
        (["Jan 31, 2024", "Feb 1, 2024"], "date", None),
        (["01/31/2024", "02/01/2024"], "date", "'c' as dates with the month first"),
        (["31/01/2024", "01/02/2024"], "date", "'c' as dates with the day first"),
        (["31.01.2024", "01.02.2024"], "date", "'c' as dates with the day first"),
        (["01/02/2024", "03/04/2024"], "date", "'c' as dates with the month first (which is not s"),
        (["2024-01-31", "?"], "date", "'c' as dates ('?' as missing)"),
        ([*["2024-01-31"] * 39, "2024-02-30"], "date", "'c' as dates ('2024-02-30' as missing)"),
        (["31/01/2024", "01/31/2024"], "category", None),
        (["8:30", "17:45"], "time", None),
        (["?", "?"], "category", None),
        ([datetime.date(2024, 1, 31), "2024-02-01"], "date", None),
        (["2024Q1", "2024Q2"], "date", None),
        (
            [f"{i} km" for i in range(30)],
            "category",
            "'c' as categories, though all of its cells are num",
        ),
        (
            [*range(30), *["low"] * 10],
            "category",
            "'c' as categories, though most of its cells are nu",
        ),
        (
            [*DAYS[:25], *["later"] * 15],
            "category",
            "'c' as categories, though most of its cells are d",
        ),
    ],
)
def test_text_is_read_by_what_it_says(cells, kind, note):
    frame = _text(*cells)
    reader = FrameReader().fit(frame)
    assert reader.kinds == [kind]
    assert reader.notes == [] if note is None else reader.notes[0].startswith(note)
    again = FrameReader().fit(frame[::-1])
    assert again.kinds == [kind] and again.notes == reader.notes
    assert_array_equal(again.transform(frame), reader.transform(frame))
    if all(isinstance(cell, str) for cell in cells):
        for given in (["c"], []):
            assert FrameReader(given).fit(frame).kinds == ["category"]
    two = frame.assign(d="x")
    assert FrameReader(["d"]).fit(two).kinds == [kind, "category"]


@pytest.mark.parametrize("first", ["day", "month"])
def test_the_order_of_day_and_month_is_that_of_fit(first):
    form = "%d/%m/%Y" if first == "day" else "%m/%d/%Y"
    day = pd.Series(pd.date_range("2024-01-01", periods=60))
    reader = FrameReader().fit(pd.DataFrame({"c": day.dt.strftime(form)}))
    expected = FrameReader().fit(day.to_frame("c")).transform(day.to_frame("c"))
    for i in range(0, 60, 7):  # row by row, which are ambiguous in part
        row = pd.DataFrame({"c": [day[i].strftime(form)]})
        assert_array_equal(reader.transform(row), expected[[i]])
    assert_array_equal(reader.transform(day.to_frame("c")), expected)
    other = "%m/%d/%Y" if first == "day" else "%d/%m/%Y"
    with pytest.raises(ValueError, match="'c' of X had dates in fit, and has '"):
        reader.transform(pd.DataFrame({"c": day.dt.strftime(other)}))
    of_dates = FrameReader().fit(day.to_frame("c"))
    with pytest.raises(ValueError, match="write dates as 2026-01-31"):
        of_dates.transform(pd.DataFrame({"c": ["01/02/2024"]}))


def test_periods_and_missing_decimals_are_read():
    periods = pd.period_range("2024-01", periods=6, freq="M")
    expected = (periods.start_time - pd.Timestamp(0)) / pd.Timedelta(days=1)
    for cells in (periods, periods.astype(object), periods.start_time, periods.astype(str)):
        reader = FrameReader().fit(pd.DataFrame({"c": periods}))
        assert reader.kinds == ["date"]
        assert_array_equal(reader.transform(pd.DataFrame({"c": cells}))[:, 0], expected)
    cells = [decimal.Decimal("1.5"), decimal.Decimal("NaN"), np.float32("nan")]
    frame = pd.DataFrame({"c": np.array(cells, dtype=object)})
    reader = FrameReader().fit(frame)
    assert reader.kinds == ["number"]
    assert_array_equal(reader.transform(frame)[:, 0], [1.5, np.nan, np.nan])


def test_words_that_fit_takes_for_gaps_stay_gaps_and_others_are_errors():
    reader = FrameReader().fit(_text(*range(39), "about 5"))
    new = pd.DataFrame({"c": ["about 5", "?", "NaN", "6", None]})
    assert_array_equal(reader.transform(new)[:, 0], [np.nan, np.nan, np.nan, 6.0, np.nan])
    with pytest.raises(ValueError, match="'c' of X had numbers in fit, and has 'about 6' now"):
        reader.transform(pd.DataFrame({"c": ["about 6"]}))
    numbers = FrameReader().fit(pd.DataFrame({"c": [1.0, 2.0]}))
    with pytest.raises(ValueError, match=r"has '\?' now"):
        numbers.transform(pd.DataFrame({"c": ["1", "?"]}))


def test_levels_are_those_of_other_spellings_of_a_number_alone():
    reader = FrameReader(["c"]).fit(pd.DataFrame({"c": ["01", "02"]}))
    assert_array_equal(reader.transform(pd.DataFrame({"c": [1, 2]}))[:, 0], [0.0, 1.0])
    text = FrameReader().fit(pd.DataFrame({"c": ["a", "b"]}))
    found = text.transform(pd.DataFrame({"c": ["a", "A", "a ", "b"]}))[:, 0]
    assert_array_equal(found, [0.0, UNSEEN, UNSEEN, 1.0])
