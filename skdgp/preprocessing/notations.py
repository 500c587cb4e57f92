"""Numbers, dates, times and durations in single cells: objects of Python, or text.

Each function reads a cell in several notations, and has NaN for those that do not apply. Times,
durations and dates, from 1970 on, are in days.
"""

import contextlib
import datetime
import math
import re

DAY = 86_400_000_000  #: microseconds
#: words for a cell that holds nothing, in lower case
MISSING = frozenset(
    ["", "?", "-", "--", ".", "n/a", "#n/a", "na", "<na>", "nan", "nat", "null", "none", "missing", "unknown"]
)  # fmt: skip

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.I)
#: as 1,234,567.8, also with spaces or apostrophes
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}([,'\u2019 \u00a0\u202f])\d{3}(\1\d{3})*(\.\d*)?")
_CODE = re.compile(r"0\d+")  #: postal codes and the like
_SWAPPED = str.maketrans(",.", ".,")
_MONTHS = (
    "january february march april may june july august september october november december".split()
)
_CENTURY = 69  #: years of two digits from this one on are in the last century, as in POSIX
_CLOCK = re.compile(r"(\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?(?: ?([ap])\.?m\.?)?", re.I)
_ZONE = re.compile(r"([+-])(\d\d):?(\d\d)?")
_DURATION = re.compile(r"(?:(-?\d+) days?(?:,? \+?|$))?(.+)?")
_TIME = (
    r"(?:[t, ] ?(?P<clock>\d\d?:\d\d(?:[:.,]\d+)*(?: ?[ap]\.?m\.?)?)"
    r" ?(?P<zone>z|utc|gmt|[+-]\d\d:?(?:\d\d)?)?)?"
)
_WEEKDAY = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?"
_NAME = rf"(?P<name>{'|'.join(f'{month[:3]}(?:{month[3:]})?' for month in _MONTHS)}|sept)\.?"
_WRITTEN = [
    re.compile(date + _TIME, re.I)
    for date in (
        r"(?P<year>\d{4})(?:[-/.](?P<month>\d\d?)(?:[-/.](?P<day>\d\d?))?)",
        r"(?P<year>(?:19|20)\d\d)(?P<month>[01]\d)(?P<day>[0-3]\d)",
        rf"{_WEEKDAY}(?P<day>\d\d?)(?:st|nd|rd|th|\.)?[- /]{_NAME}[-, /]{{1,2}}(?P<year>\d{{4}}|\d\d)",
        rf"{_NAME}[-, /]{{1,2}}(?P<year>\d{{4}})",
        rf"{_WEEKDAY}{_NAME} (?P<day>\d\d?)(?:st|nd|rd|th)?,? (?P<year>\d{{4}})",
        r"(?P<year>\d{4})-?(?P<week>w)(?P<month>\d\d)(?:-?(?P<day>[1-7]))?",
        r"(?P<year>\d{4})[-/ ]?q(?P<quarter>[1-4])",
        r"q(?P<quarter>[1-4])[-/ ]?(?P<year>\d{4})",
    )
]
#: two numbers, one of them the month, and the year
_IN_ORDER = re.compile(
    r"(?P<first>\d\d?)(?P<sign>[-/.])(?P<second>\d\d?)(?P=sign)(?P<year>\d{4}|\d\d)" + _TIME, re.I
)


def number(text):
    """The number that a text says, with a decimal point; NaN for others."""
    text = text.strip().strip("$€£%").strip()
    text = text.replace("\u2212", "-")
    grouped = _GROUPED.fullmatch(text)
    text = text.replace(grouped[1], "") if grouped else text
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def is_code(cell):
    """Whether a cell is digits behind a zero, as postal codes are."""
    return isinstance(cell, str) and _CODE.fullmatch(cell) is not None


def numbers(cell):
    """A number with a decimal point, and with a decimal comma."""
    if isinstance(cell, str):
        return number(cell), number(cell.translate(_SWAPPED))
    if isinstance(cell, (datetime.date, datetime.time, datetime.timedelta)):
        return math.nan, math.nan
    try:
        return (float(cell),) * 2
    except OverflowError:  # an integer beyond float64
        return math.inf, math.inf
    except (TypeError, ValueError):
        return math.nan, math.nan


def booleans(cell):
    """One for true and zero for false, also as numbers and as text."""
    if isinstance(cell, str):
        return ({"true": 1.0, "false": 0.0}.get(cell.strip().lower(), math.nan),)
    return (float(cell) if isinstance(cell, (bool, int, float)) and cell in (0, 1) else math.nan,)


def times(cell):
    """Time of the day."""
    if isinstance(cell, datetime.time):
        return (_microseconds(cell) / DAY,)
    return (_clock(cell) / DAY if isinstance(cell, str) else math.nan,)


def durations(cell):
    """Duration, in text such as 1 day 8:30:00."""
    if isinstance(cell, datetime.timedelta):
        return (cell / datetime.timedelta(days=1),)
    found = _DURATION.fullmatch(cell.strip()) if isinstance(cell, str) else None
    return ((int(found[1] or 0) * DAY + _clock(found[2])) / DAY if found else math.nan,)


def dates(cell):
    """Dates without a zone and, of UTC, with one, in three notations each.

    Text that cannot be misread, and that with numbers for day and month, the month first or the day first.
    """
    nothing = (math.nan,) * 3
    if isinstance(cell, str) and (cell[4:5] == cell[7:8] == "-" or cell[8:9] == "T"):
        with contextlib.suppress(ValueError):
            cell = datetime.datetime.fromisoformat(cell)  # many times as fast
    if isinstance(cell, datetime.datetime):
        has_zone = cell.tzinfo is not None
        cell = cell.astimezone(datetime.UTC) if has_zone else cell
        found = (_from_1970(cell.toordinal(), _microseconds(cell)),) * 3
    elif isinstance(cell, datetime.date):
        found, has_zone = (_from_1970(cell.toordinal()),) * 3, False
    elif isinstance(cell, str):
        found, has_zone = _written(cell.strip())
    else:
        found, has_zone = nothing, False
    return (*nothing, *found) if has_zone else (*found, *nothing)


#: functions by kinds
NOTATIONS = {
    "date": dates,
    "time": times,
    "duration": durations,
    "number": numbers,
    "boolean": booleans,
}
TRIED = "date", "time", "duration", "number"  #: kinds of text, in the order in which they are tried
#: names of the notations of dates and numbers; others have one
STYLES = {
    "date": ("", "with the month first", "with the day first") * 2,
    "number": ("", "with a decimal comma"),
}
ZONED = 3  #: first notation of dates with a time zone


def _written(text):
    """A text in the notations of a date, and whether it has a time zone."""
    found = next(filter(None, (pattern.fullmatch(text) for pattern in _WRITTEN)), None)
    if found:
        part = found.groupdict()
        name, month = part.get("name"), part.get("month")
        if name is not None:
            month = 1 + [month[:3] for month in _MONTHS].index(name[:3].lower())
        elif part.get("quarter"):
            month = 3 * int(part["quarter"]) - 2
        values = (_date(part["year"], month, part.get("day") or 1, part),) * 3
    elif found := _IN_ORDER.fullmatch(text):
        part = found.groupdict()
        first, second, year = part["first"], part["second"], part["year"]
        by_month = math.nan if part["sign"] == "." else _date(year, first, second, part)
        values = math.nan, by_month, _date(year, second, first, part)
    else:
        return (math.nan,) * 3, False
    return values, part["zone"] is not None


def _date(year, month, day, part):
    """Days from 1970 to a date with the clock and zone of a match."""
    year = int(year) + (0 if len(year) == 4 else 1900 if int(year) >= _CENTURY else 2000)
    make = datetime.date.fromisocalendar if part.get("week") else datetime.date
    try:
        ordinal = make(year, int(month), int(day)).toordinal()
    except ValueError:  # such as February 30
        return math.nan
    return _from_1970(ordinal, _clock(part["clock"]) - _offset(part["zone"]))


def _from_1970(ordinal, microseconds=0):
    return ((ordinal - datetime.date(1970, 1, 1).toordinal()) * DAY + microseconds) / DAY


def _offset(zone):
    """Microseconds by which a zone is ahead of UTC."""
    found = _ZONE.fullmatch(zone or "")
    if found is None:
        return 0
    minutes = 60 * int(found[2]) + int(found[3] or 0)
    return (-minutes if found[1] == "-" else minutes) * 60_000_000


def _clock(text):
    """Microseconds since midnight; NaN for what is no time of the day."""
    if text is None:
        return 0
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return math.nan
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if found[5]:
        if not 1 <= hour <= 12:
            return math.nan
        hour = hour % 12 + 12 * (found[5].lower() == "p")
    if hour > 23 or minute > 59 or second > 59:
        return math.nan
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(
        (found[4] or "0")[:6].ljust(6, "0")
    )


def _microseconds(value):
    """Microseconds since midnight of a time or a datetime."""
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond
