import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skdgp.preprocessing.frames import FrameReader
from skdgp.preprocessing.levels import UNSEEN


def a_frame():
    return pd.DataFrame(
        {
            "number": [1.5, np.nan, 3.0],
            "nullable": pd.array([1, None, 3], dtype="Int64"),
            "flag": pd.array([True, None, False], dtype="boolean"),
            "text": ["u", None, "v"],
            "category": pd.Categorical(["x", "y", None]),
            "ordered": pd.Categorical(["hi", "lo", None], categories=["lo", "hi"], ordered=True),
            "date": pd.to_datetime(["2020-01-01 06:00", None, "2020-01-03 00:00"]),
            "zone": pd.to_datetime(["2020-01-01", None, "2020-01-02"]).tz_localize("US/Eastern"),
            "duration": pd.to_timedelta([12, None, 36], unit="h"),
            "objects": np.array([1, 2.5, None], dtype=object),
        }
    )


def test_each_dtype_has_a_kind_and_float64_values():
    reader = FrameReader().fit(a_frame())
    categories, numbers = ["category", "category", "ordered"], ["number", "number"]
    last = ["date", "date", "duration", "number"]
    assert reader.kinds == [*numbers, "boolean", *categories, *last]
    day = (datetime.date(2020, 1, 1) - datetime.date(1970, 1, 1)).days
    expected = np.array(
        [
            [1.5, 1, 1, 0, 0, 1, day + 0.25, day, 0.5, 1],
            [np.nan, np.nan, np.nan, np.nan, 1, 0, np.nan, np.nan, np.nan, 2.5],
            [3, 3, 0, 1, np.nan, np.nan, day + 2, day + 1, 1.5, np.nan],
        ]
    )
    assert_allclose(reader.transform(a_frame()), expected, rtol=1e-15)


def test_polars_frames_are_read_like_pandas_frames():
    frame = a_frame().drop(columns=["objects", "ordered"])
    cells = frame.astype(object).where(frame.notna(), None)
    other = pl.DataFrame({column: cells[column].tolist() for column in frame})
    a, b = FrameReader().fit(frame), FrameReader().fit(other)
    assert a.kinds == b.kinds
    assert a.levels == b.levels
    assert_array_equal(a.transform(frame), b.transform(other))
    enum = pl.DataFrame({"size": pl.Series(["lo", "hi", None], dtype=pl.Enum(["lo", "hi"]))})
    reader = FrameReader().fit(enum)
    assert reader.kinds == ["ordered"]
    assert_array_equal(reader.transform(enum)[:, 0], [0.0, 1.0, np.nan])


def test_times_of_day_are_fractions_of_a_day():
    frame = pl.DataFrame({"at": [datetime.time(6), datetime.time(18, 30), None]})
    reader = FrameReader().fit(frame)
    assert reader.kinds == ["time"]
    assert_allclose(reader.transform(frame)[:, 0], [0.25, 18.5 / 24.0, np.nan])


def test_objects_of_datetime_are_dates_times_and_durations():
    at = datetime.datetime(1969, 12, 31, 18)
    cells = {
        "date": [datetime.date(1970, 1, 3), None, datetime.date(1969, 12, 31)],
        "instant": [at, pd.Timestamp(at), None],
        "zone": [pd.Timestamp(at, tz="Asia/Tokyo"), pd.NaT, pd.Timestamp(at, tz="UTC")],
        "time": [datetime.time(6), None, datetime.time(18, 30)],
        "duration": [datetime.timedelta(hours=6), pd.Timedelta(2, "D"), None],
    }
    frame = pd.DataFrame(cells, dtype=object)
    for given_as in ("from_dtype", None):
        reader = FrameReader(given_as).fit(frame)
        assert reader.kinds == ["date", "date", "date", "time", "duration"]
        expected = [
            [2, -0.25, -0.625, 0.25, 0.25],
            [np.nan, -0.25, np.nan, np.nan, 2],
            [-1, np.nan, -0.25, 18.5 / 24, np.nan],
        ]
        assert_allclose(reader.transform(frame), expected, rtol=1e-15)
    with pytest.raises(ValueError, match="'time' of X had times in fit, and has 'noon' now"):
        reader.transform(frame.assign(time="noon"))
    levels = FrameReader(["date"]).fit(frame)
    assert levels.levels[0] == ["1969-12-31", "1970-01-03"]
    assert_array_equal(levels.transform(frame)[:, 0], [1.0, np.nan, 0.0])


def test_cells_that_cannot_be_read_meet_a_sentence():
    kind = FrameReader().fit(pd.DataFrame({"kind": ["a", "b"]}))
    with pytest.raises(ValueError, match="'kind' of X holds list objects"):
        kind.transform(pd.DataFrame({"kind": [["a"], ["b"]]}))
    huge = pd.DataFrame({"size": [10**400, 1]}, dtype=object)
    with pytest.raises(ValueError, match="'size' of X holds infinity, or a value too large"):
        FrameReader().fit(huge).transform(huge)
    wide = pl.DataFrame({"kind": pl.Series([1, 2, None], dtype=pl.Int128)})
    assert_array_equal(FrameReader([0]).fit(wide).transform(wide)[:, 0], [0.0, 1.0, np.nan])


def test_unseen_levels_have_a_code_of_their_own_until_they_are_learned():
    frame = pd.DataFrame({"kind": ["a", "b"]})
    reader = FrameReader().fit(frame)
    new = pd.DataFrame({"kind": ["b", "c", None]})
    assert_array_equal(reader.transform(new)[:, 0], [1.0, UNSEEN, np.nan])
    extended = reader.extended(new)
    assert_array_equal(extended.transform(new)[:, 0], [1.0, 2.0, np.nan])
    assert extended.levels == [["a", "b", "c"]] and reader.levels == [["a", "b"]]


def test_categorical_features_by_name_position_and_mask():
    frame = pd.DataFrame({"a": [1, 2, 1], "b": [0.5, 1.5, 2.5]})
    for given_as in (["a"], [0], [True, False]):
        assert FrameReader(given_as).fit(frame).kinds == ["category", "number"]
    array = np.array([["u", 1.0], ["v", 2.0]], dtype=object)
    assert FrameReader([0]).fit(array).kinds == ["category", "number"]
    numbers = frame.astype({"a": "category"})
    assert FrameReader().fit(numbers).kinds == ["category", "number"]
    for given_as in (None, [], np.array([])):
        assert FrameReader(given_as).fit(numbers).kinds == ["number", "number"]


@pytest.mark.parametrize(
    ("given_as", "message"),
    [
        (["c"], "names 'c', and X has no such column"),
        ([2], "has position 2, and X has 2 columns"),
        ([True], "has 1 booleans, and X has 2 columns"),
        ([0.5], "must be 'from_dtype'"),
    ],
)
def test_wrong_categorical_features_are_named(given_as, message):
    frame = pd.DataFrame({"a": [1, 2], "b": [1, 2]})
    with pytest.raises(ValueError, match=message):
        FrameReader(given_as).fit(frame)


def test_long_texts_are_no_categories():
    frame = pd.DataFrame({"note": [f"note {i}" for i in range(30)], "kind": ["a", "b", "c"] * 10})
    reader = FrameReader().fit(frame)
    assert reader.kinds == ["text", "category"]
    assert reader.texts() == [0]
    assert_array_equal(reader.transform(frame)[:, 0], 0.0)


def test_a_word_among_numbers_and_other_objects_name_the_column():
    reader = FrameReader().fit(pd.DataFrame({"size": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="'size' of X had numbers in fit, and has 'big' now"):
        reader.transform(pd.DataFrame({"size": [1.0, "big"]}))
    with pytest.raises(ValueError, match="'list' of X holds list objects"):
        FrameReader().fit(pd.DataFrame({"list": [[1], [2]]}))
    with pytest.raises(ValueError, match="'size' of X holds infinity"):
        reader.transform(pd.DataFrame({"size": [1.0, np.inf]}))


columns = st.sampled_from(list(a_frame()))


@settings(max_examples=30, deadline=None)
@given(st.lists(columns, min_size=1, max_size=6, unique=True), st.permutations([0, 1, 2]))
def test_values_belong_to_rows_and_columns(names, order):
    frame = a_frame()[names]
    reader = FrameReader().fit(frame)
    table = reader.transform(frame)
    assert table.dtype == np.float64
    assert_array_equal(reader.transform(frame.iloc[order]), table[order])
    again = FrameReader().fit(frame.iloc[order])
    assert again.kinds == reader.kinds
    assert_array_equal(again.transform(frame), table)


def _number(level):
    """The number that a level is or says, else its text."""
    try:
        return float(level) if not isinstance(level, bool) else str(level)
    except ValueError:
        return level


@pytest.mark.parametrize(
    ("fitted", "seen"),
    [
        (["1", "2"], [2, 1]),
        (["1", "2"], [2.0, 1.0]),
        (["1", "2"], ["2.0", "1.0"]),
        ([1, 2], ["2.0", "1.00"]),
        (["1.0", "2.0"], [2, 1]),
        ([1, 2], ["2", "1"]),
        (["1.5", "a"], ["a", 1.5]),
        (["True", "False"], [False, True]),
        ([True, False], ["False", "True"]),
    ],
)
def test_levels_are_the_same_as_text_and_as_numbers(fitted, seen):
    reader = FrameReader(["g"]).fit(pd.DataFrame({"g": np.array(fitted, dtype=object)}))
    rows = pd.DataFrame({"g": np.array(seen, dtype=object)})
    own = reader.levels[0]
    found = [own[int(code)] for code in reader.transform(rows)[:, 0]]
    assert [_number(one) for one in found] == [_number(one) for one in seen]
    assert reader.extended(rows).levels[0] == own


def test_levels_that_were_apart_in_training_stay_apart():
    reader = FrameReader(["g"]).fit(pd.DataFrame({"g": np.array([1, "1", "01"], dtype=object)}))
    codes = reader.transform(pd.DataFrame({"g": np.array(["1", 1, "01", "1.0"], dtype=object)}))
    assert len(set(codes[:3, 0])) == 3 and codes[3, 0] == UNSEEN
