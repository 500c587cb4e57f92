"""Tables of numbers from data frames: one column of float64 for each column of the frame."""

import narwhals as nw
import numpy as np
from sklearn.utils import check_array

from .cells import AS, DAY, DAYS, as_float, in_order, is_missing, level_of, positions

_TEXT_SHARE = 0.9  #: distinct values per row from which strings are text rather than categories
_TEXT_ROWS = 20  #: rows below which strings are categories: few rows repeat none of their levels
UNSEEN = -1.0  #: code of a level that was not in training


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
        chosen = self._chosen(columns)
        self.kinds, self.levels = [], []
        for j, column in enumerate(columns):
            kind, levels = column.describe(chosen[j])
            self.kinds.append(kind)
            self.levels.append(levels)
        return self

    def _chosen(self, columns):
        """For each column, whether the user names it as a category; None leaves it to the dtype."""
        given = self.categorical_features
        if given is None or (isinstance(given, str) and given == "from_dtype"):
            return [None if given is not None else False] * len(columns)
        given, names = np.asarray(given), [column.name for column in columns]
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

    def transform(self, X, extend=False):
        """Read a frame with the columns of the one that was fitted.

        With `extend`, new levels get codes of their own.
        """
        columns = columns_of(X)
        table = np.empty((len(columns[0]) if columns else 0, len(columns)))
        for j, (column, kind) in enumerate(zip(columns, self.kinds)):
            if kind == "text":
                table[:, j] = 0.0
            elif kind in ("category", "ordered"):
                if extend:
                    known = positions(self.levels[j])
                    self.levels[j] = self.levels[j] + [
                        level for level in in_order(column.levels()) if level not in known
                    ]
                table[:, j] = column.codes(self.levels[j])
            else:
                table[:, j] = column.numbers(kind)
        return table

    def texts(self):
        """Positions of the columns that are left out because nearly all their values differ."""
        return [j for j, kind in enumerate(self.kinds) if kind == "text"]


class _Column:
    """One column of a frame or of an array.

    Ordered categories have their levels in `order`; `is_category` is whether the dtype says so.
    """

    def __init__(self, name, values, order=None, is_category=False):
        self.name, self.values, self.order, self.is_category = name, values, order, is_category

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
        if self._is_temporal():
            return self._temporal_kind(), None
        if self._is_boolean():
            return "boolean", None
        if self._is_number() or self._holds_numbers():
            return "number", None
        present = self._present()
        if chosen is None or not any(isinstance(cell, str) for cell in present):
            for kind in ("date", "time"):
                if all(DAYS[kind](cell) is not None for cell in present):
                    return kind, None
        levels = self.levels()
        n = len(self) - int(self._missing().sum())
        if chosen is None and n >= _TEXT_ROWS and len(levels) > _TEXT_SHARE * n:
            return ("text" if None in map(as_float, levels) else "number"), None
        return "category", in_order(levels)

    def levels(self):
        """Distinct values that are present; ValueError if some are neither strings nor numbers."""
        return list(dict.fromkeys(self._cells()))

    def _cells(self, others=()):
        """Cells that are present, as levels: strings, numbers, or of the types in `others`."""
        cells, kinds = list(map(level_of, self._present())), (str, bool, int, float, *others)
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
        missing, codes = self._missing(), np.full(len(self), np.nan)
        cells = self._cells(set(map(type, levels)))
        codes[~missing] = [position.get(cell, UNSEEN) for cell in cells]
        return codes

    def numbers(self, kind):
        """Values as float64, dates in days, NaN where they are missing.

        Raises ValueError if some are no numbers, or infinite.
        """
        if self._is_temporal():
            return self._days()
        if kind in DAYS and not self._is_number():
            return self._days_of_cells(kind)
        numbers = self._as_floats()
        if numbers is None:
            wrong = next(cell for cell in self._present() if as_float(cell) is None)
            raise ValueError(
                f"{self.label} of X had numbers in fit, and has {str(wrong)!r} now; convert it, or name "
                "the column in categorical_features before fit."
            )
        if np.isinf(numbers).any():
            raise ValueError(
                f"{self.label} of X holds infinity, or a value too large for dtype('float64')."
            )
        return numbers

    def _is_series(self):
        return isinstance(self.values, nw.Series)

    def _is_temporal(self):
        if self._is_series():
            return self.values.dtype.is_temporal()
        return self.values.dtype.kind in "mM"

    def _temporal_kind(self):
        """Dates recur by week and year, times of day by day; durations are numbers."""
        dtype = self.values.dtype
        if not self._is_series():
            return "date" if dtype.kind == "M" else "number"
        return {nw.Duration: "number", nw.Time: "time"}.get(type(dtype), "date")

    def _is_boolean(self):
        return self.values.dtype == (nw.Boolean if self._is_series() else np.bool_)

    def _is_number(self):
        if self._is_series():
            return self.values.dtype.is_numeric()
        return self.values.dtype.kind in "iuf"

    def _holds_numbers(self):
        """Whether objects are numbers, and no strings."""
        present = self._present()
        if any(isinstance(cell, str) for cell in present):
            return False
        return None not in map(as_float, present)

    def _objects(self):
        if self._is_series():
            return np.fromiter(self.values.to_list(), dtype=object, count=len(self))
        return np.asarray(self.values, dtype=object)

    def _present(self):
        """Cells that are not missing, as a list of Python objects."""
        return self._objects()[~self._missing()].tolist()

    def _missing(self):
        """Which cells are missing, (n_rows,) of bool."""
        if self._is_series() and self.values.dtype != nw.Object:
            missing = self.values.is_null()
            if self.values.dtype.is_float():
                missing = missing | self.values.is_nan().fill_null(True)
            return np.asarray(missing.to_numpy(), dtype=bool)
        return np.array([is_missing(value) for value in self._objects()], dtype=bool)

    def _as_floats(self):
        """Values as float64, or None if some are neither numbers nor missing."""
        if self._is_number():
            if self._is_series():
                return np.asarray(self.values.cast(nw.Float64).to_numpy(), dtype=np.float64)
            return self.values.astype(np.float64)
        missing, numbers = self._missing(), np.full(len(self), np.nan)
        present = list(map(as_float, self._present()))
        if None in present:
            return None
        numbers[~missing] = present
        return numbers

    def _days_of_cells(self, kind):
        missing = self._missing()
        days, cells = np.full(len(self), np.nan), self._present()
        found = list(map(DAYS[kind], cells))
        if None in found:
            raise ValueError(
                f"{self.label} of X had {kind}s in fit, and has {str(cells[found.index(None)])!r} now; "
                f"write {AS[kind]}, or name the column in categorical_features before fit."
            )
        days[~missing] = found
        return days

    def _days(self):
        """Days since 1970 of dates, since midnight of times, and of durations."""
        if not self._is_series():
            values = self.values
            is_date = values.dtype.kind == "M"
            values = values.astype("datetime64[us]" if is_date else "timedelta64[us]")
            days = values.astype(np.int64) / DAY
            return np.where(np.isnat(values), np.nan, days)
        dtype = self.values.dtype
        if dtype == nw.Duration:
            numbers = self.values.dt.total_microseconds()
        elif dtype == nw.Time:
            return self._days_of_cells("time")
        else:
            values = self.values
            if dtype == nw.Date:
                values = values.cast(nw.Datetime("us"))
            elif dtype.time_zone is not None:  # hours are those of the clock on the wall
                values = values.dt.replace_time_zone(None)
            numbers = values.dt.timestamp("us")
        return np.asarray(numbers.cast(nw.Float64).to_numpy(), dtype=np.float64) / DAY


def as_frame(X):
    """A data frame or a series behind narwhals; all else as it is.

    Raises ValueError if several columns have the same name, or the frame is lazy.
    """
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
        return [_Column(j, X[:, j]) for j in range(X.shape[1])]
    columns = []
    for name, values in zip(frame.columns, frame.iter_columns()):
        order = list(values.dtype.categories) if values.dtype == nw.Enum else None
        is_category = values.dtype in (nw.Enum, nw.Categorical)
        columns.append(_Column(name, values, order, is_category))
    return columns
