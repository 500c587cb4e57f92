"""Tables of numbers from data frames: one column of float64 for each column of the frame.

What a column holds, by its dtype or else by its cells, decides its kind, and how it is read ever after:

========  ===========================  =====================================  =======================
kind      dtype                        cells of objects and text              value
========  ===========================  =====================================  =======================
number    integers, floats, decimals   numbers; text such as 12 or 1,234.5    the number
boolean   booleans                     True and False                         0 and 1
date      dates, datetimes             dates; text such as 2026-01-31         days since 1970
time      times                        times; text such as 8:30               days since midnight
duration  durations                    durations; text such as 1 day 8:30:00  days
category  categories                   other text, and mixtures               position of the level
ordered   ordered categories                                                  position of the level
text                                   text of which nearly all cells differ  0, as it is left out
========  ===========================  =====================================  =======================
"""

import copy
from dataclasses import dataclass, replace

import numpy as np

from .frame_columns import columns_of, is_gap
from .notations import NOTATIONS, STYLES, TRIED, ZONED, is_code

_TEXT_SHARE = 0.9  #: distinct values per row from which strings are text rather than categories
_TEXT_ROWS = 20  #: rows below which strings are categories: few rows repeat none of their levels
_NEARLY_ALL = 0.95  #: share of cells with a number or a date from which text is read as such
_FIRST = 100  #: distinct cells that tell whether to look at all
_RECUR = 20  #: distinct numbers or dates up to which they may name levels, without a warning


@dataclass
class Reading:
    """Reading of one column, chosen by ``fit``."""

    kind: str
    levels: list | None = None  #: of categories, in the order of their codes
    style: int = 0  #: the notation of cells that are text, by its position
    zone: str | None = None  #: time zone of dates with one, by whose clock days are counted
    gaps: list | None = None  #: words that are read as missing, if there was text


class FrameReader:
    """Read data frames as tables of float64.

    Missing cells become NaN, levels that were not in training -1. `categorical_features` is as in
    :class:`~sklearn.ensemble.HistGradientBoostingRegressor`; if it is empty, text is not looked into.

    Attributes
    ----------
    readings : list of Reading
        One for each column.
    notes : list of str
        Columns of text that are read as numbers or dates, and how.
    """

    def __init__(self, categorical_features="from_dtype"):
        self.categorical_features = categorical_features

    def fit(self, X):
        """Decide how the columns are read."""
        columns, given = columns_of(X), self.categorical_features
        is_list = given is not None and not (isinstance(given, str) and given == "from_dtype")
        looks = not is_list or np.size(given) > 0
        chosen = self._chosen(columns) if is_list else [False] * len(columns)
        found = [
            describe(column, named, not is_list and given is not None, looks)
            for column, named in zip(columns, chosen)
        ]
        self.readings = [reading for reading, _ in found]
        self.notes = [note for _, note in found if note]
        return self

    @classmethod
    def of_numbers(cls, n_columns):
        """A reader of columns that were numbers in fit."""
        reader = cls()
        reader.readings = [Reading("number")] * n_columns
        return reader

    def _chosen(self, columns):
        """For each column, whether the user names it as a category."""
        given, names = np.asarray(self.categorical_features), [column.name for column in columns]
        if given.size and (given.ndim != 1 or given.dtype.kind not in "biuOUST"):
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
    def kinds(self):
        """Kinds of the columns."""
        return [reading.kind for reading in self.readings]

    @property
    def levels(self):
        """Levels of the columns in the order of their codes, None for those that are no categories."""
        return [reading.levels for reading in self.readings]

    @property
    def plain(self):
        """Whether all columns are numbers."""
        return set(self.kinds) <= {"number", "boolean", "duration"}

    def transform(self, X):
        """Read a frame as ``fit`` has decided."""
        columns = columns_of(X)
        table = np.zeros((len(columns[0]) if columns else 0, len(columns)))
        for j, (column, reading) in enumerate(zip(columns, self.readings)):
            if reading.levels is not None:
                table[:, j] = column.codes(reading.levels)
            elif reading.kind != "text":
                table[:, j] = column.numbers(reading)
        return table

    def extended(self, X):
        """Return a reader that includes the levels of these rows."""
        new = copy.copy(self)
        each = zip(columns_of(X), self.readings)
        new.readings = [
            reading
            if reading.levels is None
            else replace(reading, levels=column.more_levels(reading.levels))
            for column, reading in each
        ]
        return new

    def texts(self):
        """Positions of the columns that are left out because nearly all their values differ."""
        return [j for j, kind in enumerate(self.kinds) if kind == "text"]


def describe(column, is_named, by_dtype, looks):
    """The Reading of a column, and a note if one is due.

    The column is a category if the user names it, or `by_dtype`; `looks` is whether text is looked into.
    """
    if is_named or (by_dtype and column.kind in ("category", "ordered")):
        if column.kind == "ordered":
            return Reading("ordered", column.order), None
        return Reading("category", column.levels()), None
    if column.is_float:
        style = 0 if column.zone is None else ZONED
        return Reading(column.kind, style=style, zone=column.zone), None
    counts = column.counts()
    types, n = set(map(type, counts)), sum(counts.values())
    if types <= {bool}:
        return Reading("boolean" if types else "number"), None
    reading = note = None
    if looks or str not in types:
        reading, note = _by_cells(column.name, counts, str in types)
    if reading is None:
        levels = column.levels()
        is_text = looks and n >= _TEXT_ROWS and len(levels) > _TEXT_SHARE * n
        reading = Reading("text") if is_text else Reading("category", levels)
        note = None if is_text else note  # of which there is another warning
    return reading, note


def _by_cells(name, counts, has_text):
    """A Reading if nearly all cells hold the same, or None, and a note or None."""
    words = [cell for cell in counts if not is_gap(cell)]
    n, note = np.array([counts[word] for word in words], dtype=np.float64), None
    for kind in TRIED if words else ():
        for some in (slice(_FIRST), slice(None)):
            values = np.array([NOTATIONS[kind](word) for word in words[some]])
            shares = n[some] @ ~np.isnan(values) / n[some].sum()
            if shares.max() < 0.5:
                break
        style = int(shares.argmax())
        unread = [word for word, value in zip(words, values[:, style]) if np.isnan(value)]
        if shares[style] < _NEARLY_ALL or not {str}.issuperset(map(type, unread)):
            if shares[style] >= 0.5 and len(words) - len(unread) > _RECUR:
                note = f"{name!r} as categories, though most of its cells are {kind}s"
            continue
        if kind == "number" and any(map(is_code, words)):
            return None, f"{name!r} as categories, because zeros lead some of its numbers"
        gaps = sorted({*unread, *filter(is_gap, counts)}) if has_text else None
        zone = "UTC" if kind == "date" and style >= ZONED else None
        reading = Reading(kind, style=style, zone=zone, gaps=gaps)
        read = values[~np.isnan(values[:, style])]
        others = read[:, shares == shares[style]] != read[:, [style]]
        return reading, _note(name, reading, bool(others.any()))
    return None, note or _note_of_unit(name, words)


def _note_of_unit(name, words):
    """A note if all cells are numbers with one unit behind them, else None."""
    if len(words) <= _RECUR or not {str}.issuperset(map(type, words)):
        return None
    words = list(map(str.strip, words))
    unit = words[0].lstrip("+-0123456789.,' \u00a0")
    if not unit or not all(word.endswith(unit) for word in words):
        return None
    if np.isnan([NOTATIONS["number"](word.removesuffix(unit)) for word in words]).all(1).any():
        return None
    return f"{name!r} as categories, though all of its cells are numbers with {unit!r} behind them"


def _note(name, reading, in_doubt):
    """Describe how text is read, unless this is obvious."""
    gaps, style = reading.gaps, STYLES.get(reading.kind, ("",))[reading.style]
    if gaps is None or not (gaps or style or in_doubt or reading.kind == "number"):
        return None
    words = [f"{name!r} as {reading.kind}s", style, "(which is not sure)" * in_doubt]
    if gaps:
        words.append(f"({', '.join(map(repr, gaps[:3]))}{', ...' * (len(gaps) > 3)} as missing)")
    return " ".join(filter(None, words))
