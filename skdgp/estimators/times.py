"""Times of rows, and the blocks of the future that they are left out in."""

import datetime

import narwhals as nw
import numpy as np

from .._arrays import one_dimensional
from ..preprocessing.frame_columns import Column, as_frame
from ..preprocessing.frames import describe
from ..preprocessing.notations import DAY

_KINDS = "number", "date", "duration"  #: of columns that are times
_BLOCKS = 10  #: of the horizon in the span of time, by default
_PAST = 0.5  #: share of the span that is never left out, if there is room for a block beside it
_MOST_BLOCKS = 50  #: each of which takes a search among the rows before it
_ROUNDING = 1e-9  #: of a time, relative to the horizon


def column_of(time, n_rows):
    """An array of times as a column."""
    series = as_frame(time)
    if isinstance(series, nw.Series):
        found = Column.of_series("time", series)
    else:
        array = np.array(time, dtype=object) if isinstance(time, list | tuple) else time
        found = Column.of_array("time", one_dimensional(array, "time"))
    if len(found) != n_rows:
        raise ValueError(
            f"time must have one value for each of the {n_rows} rows; got {len(found)}."
        )
    return found


def read(column):
    """Times (n,) as numbers, dates and durations in days, and whether they have a unit.

    Raises
    ------
    ValueError
        If some are missing, or are no times.
    """
    reading, _ = describe(column, False, True, True)
    if reading.kind not in _KINDS:
        raise ValueError(
            f"time must be numbers, dates or durations, and holds {reading.kind} values such as "
            f"{column.present()[0]!r}; convert them."
        )
    times = np.asarray(column.numbers(reading), dtype=np.float64)
    missing = np.flatnonzero(np.isnan(times))
    if len(missing):
        raise ValueError(f"time is missing in row {missing[0]}; leave out rows without a time.")
    return times, reading.kind != "number"


def axis(column):
    """Times for the axis of a picture: datetime64 of dates, and numbers of all else."""
    times, _ = read(column)
    is_date = describe(column, False, True, True)[0].kind == "date"
    return np.rint(times * DAY).astype("M8[us]") if is_date else times


def blocks(times, has_unit, rows, horizon):
    """Numbers of the blocks of the `rows` that count, as int, in the order of `times`.

    Blocks are as long as the horizon, and the last one ends with the last row. Block 0 has all rows before the
    others: half of the span of time or more, if there is room.

    Raises
    ------
    ValueError
        If the horizon is in another unit than times, or there are no rows before the last block.
    """
    times = times[rows]
    span = float(np.ptp(times))
    if span == 0.0:
        raise ValueError(
            "time has a single value; rows at two times at least are needed to predict the later."
        )
    length = length_of(horizon, has_unit, span)
    if length >= span:
        raise ValueError(
            f"horizon={horizon} is as long as all rows took, and leaves none to predict from; choose a "
            "shorter one."
        )
    n = int(np.clip(_PAST * span / length + _ROUNDING, 1, _MOST_BLOCKS))
    age = np.floor((times.max() - times) / length + _ROUNDING)  # in blocks
    return np.unique(np.maximum(n - age, 0.0), return_inverse=True)[1].ravel()


def length_of(horizon, has_unit, span):
    """The horizon as a number, in days if times have a unit; a tenth of the span if it is None."""
    if horizon is None:
        return span / _BLOCKS
    if isinstance(horizon, np.timedelta64):
        if np.isnat(horizon):
            raise ValueError("horizon is NaT; give a duration.")
        horizon = horizon.astype("m8[us]").item()
    is_duration = isinstance(horizon, datetime.timedelta)
    if is_duration != has_unit:
        wrong, right = ("a number", "a timedelta") if has_unit else ("a timedelta", "a number")
        raise ValueError(
            f"horizon is {wrong}, and time has {'a unit' if has_unit else 'no unit'}; give {right}."
        )
    length = horizon / datetime.timedelta(days=1) if is_duration else float(horizon)
    if not length > 0.0:
        raise ValueError(f"horizon must be positive; got {horizon}.")
    return length
