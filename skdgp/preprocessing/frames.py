"""Tables of numbers from data frames: one column of float64 for each column of the frame."""

import copy
import datetime
import re
from functools import cached_property

import narwhals as nw
import numpy as np
from sklearn.utils import check_array

_TEXT_SHARE = 0.9  #: distinct values per row from which strings are text rather than categories
_TEXT_ROWS = 20  #: rows below which strings are categories: few rows repeat none of their levels
UNSEEN = -1.0  #: code of a level that was not in training
#: a date, or a date and a time, of ISO 8601
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")
DAY = 86_400_000_000  #: microseconds; dates, times and durations are measured in days
_EPOCH = datetime.datetime(1970, 1, 1)


class FrameReader:
    """Read data frames as tables of float64.

    Numbers stay as they are. Booleans become 0 and 1, categories the position of their level,
    dates, times and durations become days. Missing cells become NaN, levels that were not in
    training -1. `categorical_features` is as in
    :class:`~sklearn.ensemble.HistGradientBoostingRegressor`.

    Attributes
    ----------
    kinds : list of str
        For each column: "number", "boolean", "category", "ordered", "date", "time" or "text".
    levels : list of list or None
        For each column: the levels of categories in the order of their codes, or None.
    """

    def __init__(self, categorical_features="from_dtype"):
        self.categorical_features = categorical_features

    def fit(self, X):
        """Learn the kinds and levels of the columns."""
        columns = columns_of(X)
        found = [one.describe(chosen) for one, chosen in zip(columns, self._chosen(columns))]
        self.kinds, self.levels = [kind for kind, _ in found], [levels for _, levels in found]
        return self

    def _chosen(self, columns):
        """For each column, whether the user names it as a category; None leaves it to the dtype."""
        given = self.categorical_features
        if given is None or (isinstance(given, str) and given == "from_dtype"):
            return [None if given is not None else False] * len(columns)
        given, names = np.asarray(given), [column.name for column in columns]
        if given.size == 0:
            return [False] * len(columns)
        if given.ndim != 1 or given.dtype.kind not in "biuOUST":
            raise ValueError(
                "categorical_features must be 'from_dtype', None, or a list of names, positions or booleans, "
                f"one for each column; got {self.categorical_features!r}."
            )
        if given.dtype.kind == "b":
            if len(given) != len(columns):
                raise ValueError(
                    f"categorical_features has {len(given)} booleans, and X has {len(columns)} columns."
                )
            return given.tolist()
        chosen = [False] * len(columns)
        for one in given.tolist():
            if isinstance(one, str):
                if one not in names:
                    raise ValueError(
                        f"categorical_features names {one!r}, and X has no such column."
                    )
                chosen[names.index(one)] = True
            elif not 0 <= one < len(columns):
                raise ValueError(
                    f"categorical_features has position {one}, and X has {len(columns)} columns."
                )
            else:
                chosen[one] = True
        return chosen

    @property
    def plain(self):
        """Whether all columns are numbers."""
        return all(kind in ("number", "boolean") for kind in self.kinds)

    def extended(self, X):
        """A reader whose levels are those of this one and, after them, those that are new in a frame."""
        new, columns = copy.copy(self), columns_of(X)
        new.levels = list(self.levels)
        for j, (column, kind) in enumerate(zip(columns, self.kinds)):
            if kind in ("category", "ordered"):
                known, found = positions(self.levels[j]), in_order(column.levels())
                new.levels[j] = [*self.levels[j], *(one for one in found if one not in known)]
        return new

    def transform(self, X):
        """Read a frame with the fitted columns."""
        columns = columns_of(X)
        table = np.empty((len(columns[0]) if columns else 0, len(columns)))
        for j, (column, kind) in enumerate(zip(columns, self.kinds)):
            if kind == "text":
                table[:, j] = 0.0
            elif kind in ("category", "ordered"):
                table[:, j] = column.codes(self.levels[j])
            else:
                table[:, j] = column.numbers(kind)
        return table

    def texts(self):
        """Positions of the columns that are left out because nearly all their values differ."""
        return [j for j, kind in enumerate(self.kinds) if kind == "text"]


class _Column:
    """One column of a frame or of an array, `values` being a series or an array.

    Ordered categories have their levels in `order`; `is_category` is whether the dtype says so. The dtype
    gives the `kind`, unless it is None.
    """

    def __init__(self, name, values):
        self.name, self.values = name, values
        self.order, self.is_category = None, False
        dtype = values.dtype
        if isinstance(values, np.ndarray):
            kinds = dict.fromkeys("iufm", "number")
            self.kind = (kinds | {"b": "boolean", "M": "date"}).get(dtype.kind)
            return
        self.is_category = dtype in (nw.Enum, nw.Categorical)
        self.order = list(dtype.categories) if dtype == nw.Enum else None
        # dates recur by week and year, times of day by day; durations are numbers
        kinds = {nw.Boolean: "boolean", nw.Duration: "number", nw.Time: "time"}
        other = "number" if dtype.is_numeric() else "date" if dtype.is_temporal() else None
        self.kind = kinds.get(type(dtype), other)

    def __len__(self):
        return len(self.values)

    @property
    def label(self):
        return f"Column {self.name!r}" if isinstance(self.name, str) else f"Column {self.name}"

    def describe(self, chosen):
        """Kind and levels; `chosen` is whether the user names the column as a category, or None."""
        as_category = self.is_category if chosen is None else chosen
        if self.order is not None and (as_category or chosen is None):
            return "ordered", list(map(level_of, self.order))
        if as_category:
            return "category", in_order(self.levels())
        if self.kind is not None:
            return self.kind, None
        has_text = any(isinstance(cell, str) for cell in self._present)
        if not has_text and None not in map(as_float, self._present):
            return "number", None
        if chosen is None or not has_text:
            for kind in ("date", "time"):
                if all(_DAYS[kind](cell) is not None for cell in self._present):
                    return kind, None
        levels, n = self.levels(), len(self._present)
        if chosen is None and n >= _TEXT_ROWS and len(levels) > _TEXT_SHARE * n:
            return ("text" if None in map(as_float, levels) else "number"), None
        return "category", in_order(levels)

    def levels(self):
        """Distinct values that are present; ValueError if some are neither strings nor numbers."""
        return list(dict.fromkeys(self._cells()))

    def _cells(self, others=()):
        """Cells that are present, as levels: strings, numbers, or of the types in `others`."""
        cells, kinds = list(map(level_of, self._present)), (str, bool, int, float, *others)
        for cell in cells:
            if not isinstance(cell, kinds):
                raise ValueError(
                    f"{self.label} of X holds {type(cell).__name__} objects; convert them to numbers or "
                    "strings."
                )
        return cells

    def codes(self, levels):
        """Positions of the values in `levels`, -1 for others, NaN where they are missing."""
        position = positions(levels)
        cells = self._cells(set(map(type, levels)))
        return self._in_place([position.get(cell, UNSEEN) for cell in cells])

    def numbers(self, kind):
        """Values as float64, dates in days, NaN where missing; `kind` is that of the column in fit."""
        numbers = _numbers_of(self.values)
        if numbers is None:
            kind = self.kind if self.kind == "time" else kind
            found = list(map(_DAYS.get(kind, as_float), self._present))
            if None in found:
                wrong = str(self._present[found.index(None)])
                advice = f"write {_AS[kind]}" if kind in _AS else "convert it"
                raise ValueError(
                    f"{self.label} of X had {kind if kind in _AS else 'number'}s in fit, and has {wrong!r} "
                    f"now; {advice}, or name the column in categorical_features before fit."
                )
            numbers = self._in_place(found)
        if np.isinf(numbers).any():
            raise ValueError(
                f"{self.label} of X holds infinity, or a value too large for dtype('float64')."
            )
        return numbers

    def _in_place(self, found):
        """Numbers of the cells that are present as an array, with NaN for the others."""
        numbers = np.full(len(self), np.nan)
        numbers[~self._missing] = found
        return numbers

    @cached_property
    def _present(self):
        """Cells that are not missing, as a list of Python objects."""
        return self._objects[~self._missing].tolist()

    @cached_property
    def _objects(self):
        if isinstance(self.values, np.ndarray):
            return np.asarray(self.values, dtype=object)
        return np.fromiter(self.values.to_list(), dtype=object, count=len(self))

    @cached_property
    def _missing(self):
        numbers = _numbers_of(self.values)
        if numbers is not None:
            return np.isnan(numbers)
        if isinstance(self.values, nw.Series) and self.values.dtype != nw.Object:
            return np.asarray(self.values.is_null().to_numpy(), dtype=bool)
        return np.array([is_missing(value) for value in self._objects], dtype=bool)


def _numbers_of(values):
    """Numbers, and days of dates and durations, as float64; None for a dtype of others."""
    dtype = values.dtype
    if isinstance(values, np.ndarray):
        if dtype.kind in "iuf":
            return values.astype(np.float64)
        if dtype.kind not in "mM":
            return None
        values = values.astype("datetime64[us]" if dtype.kind == "M" else "timedelta64[us]")
        return np.where(np.isnat(values), np.nan, values.astype(np.int64) / DAY)
    unit = DAY
    if dtype.is_numeric():
        unit = 1
    elif dtype == nw.Duration:
        values = values.dt.total_microseconds()
    elif dtype.is_temporal() and dtype != nw.Time:
        if dtype == nw.Date:
            values = values.cast(nw.Datetime("us"))
        elif dtype.time_zone is not None:  # hours are those of the clock on the wall
            values = values.dt.replace_time_zone(None)
        values = values.dt.timestamp("us")
    else:
        return None
    return np.asarray(values.cast(nw.Float64).to_numpy(), dtype=np.float64) / unit


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
    frame = as_frame(X)
    if not isinstance(frame, nw.DataFrame):
        X = check_array(X, dtype=None, ensure_all_finite=False, ensure_min_samples=0)
        return list(map(_Column, range(X.shape[1]), X.T))
    return list(map(_Column, frame.columns, frame.iter_columns()))


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


_DAYS = {"date": _days_of_date, "time": _days_of_time}
_AS = {"date": "it as '2026-01-31'", "time": "it as datetime.time"}


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
