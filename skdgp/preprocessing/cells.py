"""Single cells of a table as levels and as numbers."""

import datetime
import re

import numpy as np

#: a date, or a date and a time, of ISO 8601
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")
DAY = 86_400_000_000  #: microseconds; dates, times and durations are measured in days
_EPOCH = datetime.datetime(1970, 1, 1)


def level_of(value):
    """A level as a plain Python object; 1 and 1.0 are the same, and dates and times are text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta)):
        return str(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _days_of_date(value):
    """Days from 1970 to a date, or to a text in the format of ISO 8601; None for others."""
    if isinstance(value, str):
        if not _ISO_DATE.fullmatch(value.strip()):
            return None
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:  # such as February 30
            return None
    if not isinstance(value, datetime.date):
        return None
    midnight = datetime.datetime(value.year, value.month, value.day)
    since = _days_of_time(value.time()) if isinstance(value, datetime.datetime) else 0.0
    return (midnight - _EPOCH).days + since


def _days_of_time(value):
    """Part of the day before a time; None for others."""
    if not isinstance(value, datetime.time):
        return None
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return (seconds * 1_000_000 + value.microsecond) / DAY


DAYS = {"date": _days_of_date, "time": _days_of_time}
AS = {"date": "it as '2026-01-31'", "time": "it as datetime.time"}


def is_missing(value):
    """Whether a cell holds nothing: None, NaN, NaT or pandas.NA."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def as_float(value):
    """A number as a float, a duration in days; None for others."""
    if isinstance(value, datetime.timedelta):
        return value / datetime.timedelta(days=1)
    try:
        return float(value)
    except OverflowError:  # an integer beyond float64
        return np.inf
    except (TypeError, ValueError):
        return None


def in_order(levels):
    """Levels in an order that depends on their values alone."""
    return sorted(levels, key=lambda level: (isinstance(level, str), level))


def positions(levels):
    """Code of each level, and of what it is elsewhere: 1 and "1" are the same level if only one is there."""
    found = {level: float(i) for i, level in enumerate(levels)}
    for i, level in enumerate(levels):
        found.setdefault(_twin(level), float(i))
    return found


def _twin(level):
    """The text of a number or boolean; the number or boolean of such a text, or None."""
    if not isinstance(level, str):
        return str(level)
    number = {"True": True, "False": False}.get(level, as_float(level))
    return number if str(level_of(number)) == level else None
