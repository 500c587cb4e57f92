"""Numbers, dates and times in text, by what pandas and strftime make of them."""

import datetime
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skdgp.preprocessing.notations import ZONED, dates, durations, number, numbers, times

DAY = datetime.timedelta(days=1)
EPOCH = datetime.datetime(1970, 1, 1)
instants = st.datetimes(datetime.datetime(1969, 1, 1), datetime.datetime(2068, 12, 31))
#: formats of strftime, and the positions of the notations that read them
SURE, BY_MONTH, BY_DAY = (0, 1, 2), (1,), (2,)
FORMATS = {
    "%Y-%m-%d": SURE,
    "%Y/%m/%d": SURE,
    "%Y%m%d": SURE,
    "%b %d, %Y": SURE,
    "%B %d, %Y": SURE,
    "%d %b %Y": SURE,
    "%d-%b-%y": SURE,
    "%A, %d %B %Y": SURE,
    "%m/%d/%Y": BY_MONTH,
    "%m/%d/%y": BY_MONTH,
    "%m-%d-%Y": BY_MONTH,
    "%d/%m/%Y": BY_DAY,
    "%d.%m.%Y": BY_DAY,
    "%d.%m.%y": BY_DAY,
    "%d-%m-%Y": BY_DAY,
}
#: formats of times, and their resolution in microseconds
CLOCKS = {
    "": 86_400_000_000,
    " %H:%M": 60_000_000,
    "T%H:%M:%S": 1_000_000,
    " %H:%M:%S.%f": 1,
    ", %I:%M %p": 60_000_000,
    " %I:%M:%S%p": 1_000_000,
}


@given(instants, st.sampled_from(list(FORMATS)), st.sampled_from(list(CLOCKS)))
def test_dates_in_many_formats(instant, date, clock):
    if date == "%Y%m%d" and instant.year < 1970:
        return
    found = dates(instant.strftime(date + clock))
    since = (instant - EPOCH) // datetime.timedelta(microseconds=1)
    expected = since // CLOCKS[clock] * CLOCKS[clock] / 86_400_000_000
    assert all(found[i] == expected for i in FORMATS[date])
    assert all(math.isnan(value) for value in found[ZONED:])
    if FORMATS[date] is not SURE:
        assert math.isnan(found[0])
    if ".%m." in date or instant.day > 12:
        assert sum(value == value for value in found) == len(FORMATS[date])


@given(instants, st.sampled_from(["Z", "+00:00", "+0530", " -08:00", "+02"]))
def test_zones_tell_the_same_instants(instant, zone):
    text = instant.replace(microsecond=0).isoformat() + zone
    expected = pd.Timestamp(text.replace(" ", "")).timestamp() / 86_400.0
    assert dates(text)[ZONED:] == pytest.approx((expected,) * 3, abs=1e-9)
    assert all(math.isnan(value) for value in dates(text)[:ZONED])
    stamp = pd.Timestamp(text.replace(" ", ""))
    assert dates(stamp)[ZONED:] == dates(text)[ZONED:] == dates(stamp.to_pydatetime())[ZONED:]


@pytest.mark.parametrize(
    "text",
    [
        "20240131T083000",
        "2024-01-31 08:30:00",
        "2024.1.31 8:30",
        "January 31st, 2024 8:30 AM",
        "31-Jan-2024 08:30",
        "Wed, 31 Jan 2024 08:30:00",
        "1/31/2024 8:30:00 AM",
        "31.01.24 08:30",
    ],
)
def test_dates_as_others_write_them(text):
    expected = (datetime.datetime(2024, 1, 31, 8, 30) - EPOCH) / DAY
    assert expected in dates(text)[:ZONED]
    assert {value for value in dates(text) if value == value} == {expected}


@given(st.dates(datetime.date(1970, 1, 5), datetime.date(2060, 1, 1)))
def test_weeks_and_quarters_are_their_first_days(day):
    year, week, weekday = day.isocalendar()
    own = (day - EPOCH.date()) / DAY
    assert (
        dates(f"{year}-W{week:02d}-{weekday}")[0] == dates(f"{year}W{week:02d}{weekday}")[0] == own
    )
    assert dates(f"{year}-W{week:02d}")[0] == own - weekday + 1
    quarter = pd.Period(day, "Q")
    first = (quarter.start_time.to_pydatetime() - EPOCH) / DAY
    q = quarter.quarter
    for text in (str(quarter), f"{day.year}-Q{q}", f"Q{q} {day.year}", f"q{q}/{day.year}"):
        assert dates(text)[0] == dates(text)[2] == first
        assert math.isnan(dates(text)[ZONED])


@pytest.mark.parametrize(
    "text",
    "2024-02-30 2024-13-01 31/31/2024 1.2.3 12-34-5678 soon 2024 mark-2001 24:61 Q5-2024 2024-W54".split()
    + ["Jan 31", "31 Foo 2024", "2024-01-31 25:00", "2024-01-31 8:30 xm", "", "maybe 2024"],
)
def test_what_is_no_date(text):
    assert all(math.isnan(value) for value in dates(text))


@pytest.mark.parametrize(
    ("text", "by_point", "by_comma"),
    [
        ("12", 12.0, 12.0),
        (" -3.5 ", -3.5, math.nan),
        ("1e-3", 0.001, 0.001),
        ("3,5", math.nan, 3.5),
        ("1,234", 1234.0, 1.234),
        ("1,234,567.8", 1234567.8, math.nan),
        ("1.234,5", math.nan, 1234.5),
        ("$1,200.50", 1200.5, math.nan),
        ("12 %", 12.0, 12.0),
        ("inf", math.inf, math.inf),
        ("1'234'567.8", 1234567.8, math.nan),
        ("1\u202f234,5", math.nan, 1234.5),
        ("12 345", 12345.0, 12345.0),
        ("\u22123.5", -3.5, math.nan),
        ("0,123", math.nan, 0.123),
        *((text, math.nan, math.nan) for text in ("12 km", "1_000", "0x1f", "A1", "1-2", "nan")),
    ],
)
def test_numbers_with_a_point_and_with_a_comma(text, by_point, by_comma):
    np.testing.assert_array_equal(numbers(text), (by_point, by_comma))


@given(st.floats(allow_nan=False))
def test_the_text_of_a_number_says_nothing_else(value):
    assert number(str(value)) == value == numbers(value)[0]


@given(st.times(), st.integers(-1000, 1000))
def test_times_and_durations(time, days):
    part = datetime.datetime.combine(EPOCH, time) - EPOCH
    assert times(time) == times(time.isoformat()) == (part / DAY,)
    delta = days * DAY + part
    for text in (str(pd.Timedelta(delta)), str(delta)):
        assert durations(text) == durations(delta) == pytest.approx((delta / DAY,), abs=1e-12)
    assert math.isnan(times(delta)[0]) and math.isnan(durations("days")[0])
