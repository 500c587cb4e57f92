"""Columns of data frames and arrays, apart from the library that they come from."""

import datetime
import numbers
from collections import Counter
from zoneinfo import ZoneInfo

import narwhals as nw
import numpy as np
from sklearn.utils import check_array

from .levels import UNSEEN, in_order, level_of, positions
from .notations import DAY, MISSING, NOTATIONS

#: kinds by the dtypes of numpy
_OF_NUMPY = dict.fromkeys("iuf", "number") | {"b": "boolean", "M": "date", "m": "duration"}
_ALIKE = {"number", "boolean"}  #: kinds whose values are numbers without a unit
#: how to write a cell so that it can be read
_CURES = {
    "number": "convert it",
    "boolean": "write True or False",
    "date": "write dates as 2026-01-31, with a time zone if those of fit have one",
    "time": "write times as 08:30",
    "duration": "convert it to a duration",
}


class Column:
    """One column of a frame, as an array.

    Cells of columns whose `kind` the dtype gives are float64, dates of UTC; all others are objects, None where
    they are missing. Ordered categories have their levels in `order`, and dates a time `zone` or None.
    """

    def __init__(self, name, cells, kind=None, order=None, zone=None):
        self.name, self.cells, self.kind, self.order, self.zone = name, cells, kind, order, zone

    @classmethod
    def of_array(cls, name, values):
        """A column of an array."""
        kind = _OF_NUMPY.get(values.dtype.kind)
        if kind in ("date", "duration"):
            unit = "M8[us]" if kind == "date" else "m8[us]"
            values = np.where(np.isnat(values), np.nan, values.astype(unit).astype(np.int64) / DAY)
        return cls(name, _objects(values) if kind is None else values, kind)

    @classmethod
    def of_series(cls, name, values):
        """A column of a frame."""
        zone, unit = getattr(getattr(values.to_native(), "dtype", None), "tz", None), 1
        if zone is not None:  # of pandas: narwhals has no zones such as America/New_York
            values = nw.from_native(values.to_native().dt.tz_convert("UTC"), series_only=True)
        dtype = values.dtype
        if dtype in (nw.Enum, nw.Categorical):
            order = [level_of(one) for one in dtype.categories] if dtype == nw.Enum else None
            kind = "category" if order is None else "ordered"
            return cls(name, _objects(values.to_list()), kind, order)
        if dtype.is_numeric():
            kind = "number"
        elif dtype == nw.Boolean:
            kind = "boolean"
        elif dtype == nw.Duration:
            kind, values, unit = "duration", values.dt.total_microseconds(), DAY
        elif dtype in (nw.Date, nw.Datetime):
            kind, unit = "date", DAY
            zone = zone or getattr(dtype, "time_zone", None)
            values = values.cast(nw.Datetime("us")) if dtype == nw.Date else values
            values = values.dt.timestamp("us")
        else:
            return cls(name, _objects(values.to_list()))
        if kind != "number" or not dtype.is_integer() or values.is_null().any():
            values = values.cast(
                nw.Float64
            )  # integers stay as they are: levels may need all digits
        cells = values.to_numpy()
        return cls(
            name, cells if unit == 1 else cells / unit, kind, zone=zone and _known(str(zone))
        )

    @classmethod
    def joined(cls, parts):
        """The rows of several columns, one after another; ValueError if they hold different things."""
        filled = [part for part in parts if not part.is_missing.all()] or parts[:1]
        first, found = filled[0], {(part.held, str(part.order)) for part in filled}
        if len(found) > 1:
            kinds = " and ".join(sorted({part.held for part in filled}))
            raise ValueError(
                f"{first.label} of X does not hold the same on all ranks ({kinds}, or other levels); "
                "convert it."
            )
        nothing = np.nan if first.is_float else None
        cells = [
            part.cells
            if part in filled
            else np.full(len(part), nothing, dtype=float if first.is_float else object)
            for part in parts
        ]
        return cls(first.name, np.concatenate(cells), first.kind, first.order, first.zone)

    def __len__(self):
        return len(self.cells)

    def __getitem__(self, rows):
        return Column(self.name, self.cells[rows], self.kind, self.order, self.zone)

    @property
    def label(self):
        return f"Column {self.name!r}" if isinstance(self.name, str) else f"Column {self.name}"

    @property
    def is_float(self):
        """Whether the cells are numbers, and no objects."""
        return self.cells.dtype != object

    @property
    def held(self):
        """The dtype in words."""
        words = {None: "text or objects", "category": "categories", "ordered": "ordered categories"}
        zone = "" if self.kind != "date" or self.zone is None else " with a time zone"
        return words.get(self.kind, f"{self.kind}s{zone}")

    @property
    def is_missing(self):
        """Which cells hold nothing, (n_rows,)."""
        if self.is_float:
            return np.isnan(self.cells)
        return np.array([cell is None for cell in self.cells], dtype=bool)

    def ends(self):
        """Rows with the smallest and the largest number, or one for each of the values that recur."""
        there = np.flatnonzero(~self.is_missing)
        if self.is_float:
            cells = self.cells[there]
            return there[[cells.argmin(), cells.argmax()]] if len(there) else there
        first = {}
        for i, cell in zip(there, self.cells[there]):
            first.setdefault(cell, i)
        return np.array([*first.values()] if 2 * len(first) <= len(there) else [], dtype=np.intp)

    def present(self):
        """Cells that are not missing, as a list of Python objects."""
        cells = self.cells[~self.is_missing]
        if self.is_float and self.kind == "date":
            cells = np.rint(cells * DAY).astype("M8[us]")
        return cells.tolist()

    def counts(self):
        """Count the occurrences of each cell; ValueError if some cannot be compared."""
        try:
            return Counter(self.present())
        except TypeError:  # as lists
            self._check_levels(self.present())
            raise

    def levels(self):
        """Distinct values that are present, in order; ValueError if some are neither text nor numbers."""
        return in_order(set(self._check_levels(map(level_of, self.present()))))

    def _check_levels(self, cells, others=()):
        cells, kinds = list(cells), (str, bool, int, float, *others)
        for cell in cells:
            if not isinstance(cell, kinds):
                raise ValueError(
                    f"{self.label} of X holds {type(cell).__name__} objects; convert them to numbers or "
                    "strings."
                )
        return cells

    def codes(self, levels):
        """Positions of the values in `levels`, -1 for others, NaN where they are missing."""
        find = positions(levels)
        cells = self._check_levels(map(level_of, self.present()), set(map(type, levels)))
        return self._in_place([find(cell) for cell in cells])

    def more_levels(self, levels):
        """The `levels`, and behind them those that are new."""
        find = positions(levels)
        return [*levels, *(one for one in self.levels() if find(one) == UNSEEN)]

    def numbers(self, reading):
        """Values as float64, dates in days, NaN where missing."""
        if self.is_float:
            kinds, zones = {self.kind, reading.kind}, {self.zone is None, reading.zone is None}
            alike = kinds <= _ALIKE or (len(kinds) == 1 and len(zones) == 1)
            if not (alike or self.is_missing.all()):
                naive = " without a time zone" * (len(kinds) == 1 and self.zone is None)
                raise self._unlike(reading, f"{self.held}{naive}")
            numbers = self.cells.astype(np.float64)
            others = ~np.isin(numbers, (0.0, 1.0)) & ~np.isnan(numbers)
            if reading.kind == "boolean" and others.any():
                raise self._unlike(reading, f"{numbers[others][0]:g}")
        else:
            values = {cell: self._value(cell, reading) for cell in self.counts()}
            numbers = self._in_place([values[cell] for cell in self.present()])
        if np.isinf(numbers).any():
            raise ValueError(
                f"{self.label} of X holds infinity, or a value too large for dtype('float64')."
            )
        return numbers if reading.zone is None else _by_the_clock(numbers, reading.zone)

    def _value(self, cell, reading):
        """Value of a cell; ValueError if it is of another kind than those of fit."""
        value = NOTATIONS[reading.kind](cell)[reading.style]
        is_missing = reading.gaps is not None and (is_gap(cell) or cell in reading.gaps)
        if np.isnan(value) and not is_missing:
            raise self._unlike(reading, repr(cell if isinstance(cell, str) else str(cell)))
        return value

    def _unlike(self, reading, found):
        return ValueError(
            f"{self.label} of X had {reading.kind}s in fit, and has {found} now; {_CURES[reading.kind]}, or "
            "name the column in categorical_features before fit."
        )

    def _in_place(self, found):
        """Numbers of the cells that are present as an array, with NaN for the others."""
        numbers = np.full(len(self), np.nan)
        numbers[~self.is_missing] = found
        return numbers


class Table:
    """Columns of a frame as arrays, for other processes; `header` is the frame without its rows."""

    def __init__(self, columns, header):
        self.columns, self.header = columns, header
        self.shape = len(columns[0]) if columns else 0, len(columns)

    @classmethod
    def of(cls, X):
        """The table of a frame; all else becomes an array."""
        frame = as_frame(X)
        if not isinstance(frame, nw.DataFrame):
            return np.asarray(X)
        return cls(columns_of(X), frame.head(0).to_native())

    @classmethod
    def joined(cls, tables):
        """The rows of several tables, one after another; ValueError if columns hold different things."""
        each = zip(*(table.columns for table in tables))
        return cls(list(map(Column.joined, each)), tables[0].header)

    @property
    def names(self):
        """Names of the columns."""
        return [column.name for column in self.columns]

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        return Table([column[rows] for column in self.columns], self.header)


def as_frame(X):
    """A data frame or a series behind narwhals; all else as it is."""
    try:
        frame = nw.from_native(X, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = list(X.columns)
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"X has several columns named {twice!r}; rename them.") from None
    if isinstance(frame, nw.LazyFrame):
        raise ValueError("X is a lazy frame; collect it first.")
    return frame


def columns_of(X):
    """Columns of a data frame or of a two-dimensional array."""
    if isinstance(X, Table):
        return X.columns
    frame = as_frame(X)
    if not isinstance(frame, nw.DataFrame):
        X = check_array(X, dtype=None, ensure_all_finite=False, ensure_min_samples=0)
        return list(map(Column.of_array, range(X.shape[1]), X.T))
    return list(map(Column.of_series, frame.columns, frame.iter_columns()))


def is_missing(value):
    """Whether a cell holds nothing: None, NaN, NaT or pandas.NA."""
    if isinstance(value, numbers.Number):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def is_gap(cell):
    """Whether a cell is a word for a missing one."""
    return isinstance(cell, str) and cell.strip().lower() in MISSING


def _objects(values):
    """Values as plain Python objects, None for those that are missing."""
    plain = (None if is_missing(value) else _plain(value) for value in values)
    return np.fromiter(plain, dtype=object, count=len(values))


def _plain(value):
    if type(value).__name__ == "Period":  # of pandas
        return value.to_timestamp()
    if not isinstance(value, np.generic):
        return value
    if value.dtype.kind in "mM":  # of nanoseconds, numpy makes integers
        value = value.astype(f"{value.dtype.kind}8[us]")
    return value.item()


def _known(zone):
    """A time zone, or UTC if its rules are not known here."""
    try:
        return ZoneInfo(zone).key
    except (OSError, ValueError, KeyError):
        return "UTC"


def _by_the_clock(days, zone):
    """Days by the clock of a zone, from those of UTC."""
    there = ~np.isnan(days)
    if zone == "UTC" or not there.any():
        return days
    # offsets change at full quarters of an hour
    quarters, index = np.unique(np.floor(96 * days[there]), return_inverse=True)
    instants = (datetime.datetime.fromtimestamp(900 * one, datetime.UTC) for one in quarters)
    offsets = [one.astimezone(ZoneInfo(zone)).utcoffset() for one in instants]
    offsets = np.array([offset / datetime.timedelta(microseconds=1) for offset in offsets])
    days = days.copy()
    days[there] = (np.rint(days[there] * DAY) + offsets[index]) / DAY
    return days
