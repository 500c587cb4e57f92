"""Complete tables of numbers from tables with categories, dates and missing cells."""

import copy

import numpy as np
from scipy.stats import norm

from .adjustment import Adjustment
from .columns import CIRCLES, CODE, N_FOLDS, Column, Date, Group, Levels, Ordered, Time, Timeline
from .missing_values import Donors
from .outliers import pieces

_DONORS = 500  #: training rows from which missing cells are filled, for the sake of memory
_VERSIONS = 16  #: of a row with an unknown cell, from which the variance between them is taken

#: others are numbers; timelines are dates in whose order rows are
_KINDS = {
    "group": Group,
    "ordered": Ordered,
    "date": Date,
    "time": Time,
    "timeline": Timeline,
}


class ColumnEncoder:
    """Encode the columns of a table as numbers that every kernel understands.

    Levels of a category get positions by the mean targets of their rows, less what the numbers in
    these rows explain. The means are shrunk towards that of all rows as in a mixed model, so that
    rare levels stay near the middle (Micci-Barreca, 2001, ACM SIGKDD Explorations 3). Positions of training
    rows with rare levels are cross-fitted: they come from the rows of other folds. Where effects of
    numbers are clearly steeper at some levels, a second position tells how much. Missing cells are
    filled with estimates from the nearest rows and the other columns, with an indicator where gaps go
    with other targets. Dates have circles for those cycles that they cover.

    The columns of the table that encoded ones come from are `sources`, and `suffixes` are what
    these add to their names; `is_bounded` is which of them hold positions of levels or points of circles, where
    no value is an outlier, and `is_code` which hold codes of levels, for models with effects of these.
    """

    def fit(
        self, table, targets, weights, kinds, rng, is_class=False, has_effects=False, weighs=False
    ):
        """Learn the encoding of a table (n, n_columns), from standardized targets or indicators (n, k).

        With `has_effects`, some models have effects of levels. With `weighs`, training rows count by what
        their gaps hide, see :class:`Donors`.
        """
        self.folds = np.arange(len(table)) % N_FOLDS
        rng.shuffle(self.folds)
        self._is_level = is_level = np.array([kind == "category" for kind in kinds], dtype=bool)
        self._adjustment, adjusted, slopes = None, targets, None
        if is_level.any() and not is_level.all():
            self._adjustment = Adjustment().fit(table, is_level, targets, weights)
            adjusted, slopes = self._without_numbers(table, targets)
        self._columns, self._constants = [], np.full(len(kinds), np.nan)
        self._constant = np.zeros(len(kinds), dtype=bool)
        for j, kind in enumerate(kinds):
            values = np.asarray(table[:, j], dtype=np.float64)
            present = values[~np.isnan(values)]
            self._constants[j] = present[0] if len(present) else np.nan
            self._constant[j] = kind != "group" and not (present != self._constants[j]).any()
            column = Levels(has_effects) if kind == "category" else _KINDS.get(kind, Column)()
            column = column.fit(values, adjusted, weights, self.folds, slopes)
            column.fit_gaps(np.isnan(values), targets, weights)
            self._columns.append(column)
        found = [(j, suffix) for j, one in enumerate(self._columns) for suffix in one.suffixes()]
        self.sources = np.array([j for j, _ in found], dtype=int)
        self.suffixes = [suffix for _, suffix in found]
        self.is_code = np.array([suffix == CODE for suffix in self.suffixes], dtype=bool)
        circles = np.array([suffix.startswith(CIRCLES) for suffix in self.suffixes], dtype=bool)
        self.is_bounded = is_level[self.sources] & ~self.is_code | circles
        # in random order, as the first ones of equally near donors are taken
        rows = rng.choice(len(table), min(len(table), _DONORS), replace=False)
        order = np.argsort(rows)
        encoded = self._without_codes(self._open(table[rows[order]])[np.argsort(order)])
        learned = np.array([column.learned_gaps for column in self._columns], dtype=bool)
        learned = learned[self.sources]
        self._donors = Donors(encoded, targets[rows], learned, is_class, weighs)
        return self

    def _without_codes(self, encoded):
        """Encoded rows without codes, which are no distances between rows."""
        return np.where(self.is_code, 0.0, encoded) if self.is_code.any() else encoded

    def _without_numbers(self, table, targets):
        """Targets without effects of numbers and, of one target, how these depend on the former."""
        rest = self._adjustment.remove(table, targets)
        return rest, self._adjustment.slopes(table, rest) if targets.shape[1] == 1 else None

    def with_levels(self, table, targets, weights):
        """Return an encoder with the new levels of a table added; others stay where they are."""
        new, slopes = copy.copy(self), None
        if self._adjustment is not None:
            targets, slopes = self._without_numbers(table, targets)
        new._columns = [
            column.with_levels(np.asarray(values, dtype=np.float64), targets, weights, slopes)
            for column, values in zip(self._columns, table.T)
        ]
        return new

    def with_changed(self, columns):
        """An encoder for a table in which these columns are no longer constant."""
        new = copy.copy(self)
        new._constant = self._constant.copy()
        new._constant[columns] = False
        return new

    def _open(self, table, folds=None):
        """Encoded columns with NaN for missing cells."""
        table = np.asarray(table, dtype=np.float64)
        parts = [column.encode(values, folds) for column, values in zip(self._columns, table.T)]
        return np.concatenate(parts, axis=1)

    def transform(self, table, folds=None):
        """Encode rows without gaps, (n, n_encoded); training rows have `folds` (n,)."""
        encoded = self._open(table, folds)
        incomplete = np.flatnonzero(np.isnan(encoded).any(1))
        for part in pieces(len(incomplete)):
            rows = incomplete[part]
            filled = self._donors.fill(self._without_codes(encoded[rows]))
            encoded[rows] = np.where(self.is_code, encoded[rows], filled)
        return encoded

    @property
    def n_features(self):
        """Number of columns of the table."""
        return len(self._columns)

    def constant_columns(self):
        """Columns with one value in training, apart from gaps, and these values; NaN for gaps alone."""
        return np.flatnonzero(self._constant), self._constants[self._constant]

    def shares_of_levels(self):
        """Categories with several levels, and the variances that a new level adds (see `Levels.share`)."""
        columns = np.flatnonzero(self._is_level & ~self._constant)
        return columns, np.array([self._columns[j].share() for j in columns])

    @property
    def has_gaps(self):
        """Whether training rows have gaps that count."""
        return self._donors.has_gaps

    def noise(self, table):
        """Variance of the noise of rows, relative to that of the model, (n_rows, k), or None."""
        if not self._donors.has_gaps:
            return None
        return self._donors.noise(self._without_codes(self._open(table)))

    def precision(self, table):
        """Weights of training rows with gaps, (n_rows,); None without gaps."""
        if not self.has_gaps:
            return None
        return self._donors.precision(self._without_codes(self._open(table)))

    def unknown(self, table, by_codes=False):
        """Rows with cells that no training row prepares for: unseen levels and new gaps, (n_rows,) of bool.

        `by_codes` is for models with effects of levels, which codes prepare for any level.
        """
        table = np.asarray(table, dtype=np.float64)
        found = np.zeros(len(table), dtype=bool)
        for column, values in zip(self._columns, table.T):
            if not (by_codes and column.has_effects):
                found |= column.unknown(values)
        return found

    def versions(self, table, by_codes=False):
        """Encode rows with unknown cells in several ways, (n, n_versions, n_encoded).

        An unseen level may be like any of the known ones, one with a single row is near its position, and
        new gaps may hide what the nearest rows have there: all gaps of a version what one of these rows
        has. The second result (n,) is by which factor the variance between versions underestimates that
        of a new level: with few levels the variance between them is uncertain.
        """
        table = np.asarray(table, dtype=np.float64)
        encoded, factor = self._open(table), np.ones(len(table))
        versions = np.repeat(self.transform(table)[:, None], _VERSIONS, axis=1)
        for i, (column, values) in enumerate(zip(self._columns, table.T)):
            own = np.flatnonzero((self.sources == i) & ~self.is_code)
            rows = np.flatnonzero(column.unknown(values))
            if not len(rows) or (by_codes and column.has_effects):
                continue
            deviations, centers = column.uncertain(values[rows])
            if deviations.any():
                if centers is not None:
                    some = deviations > 0.0
                    versions[np.ix_(rows[some], np.arange(_VERSIONS), own)] = centers[some][:, None]
                order = np.random.default_rng(i).permutation(_VERSIONS)
                z = norm.ppf((order + 0.5) / _VERSIONS)
                versions[rows, :, own[0]] += deviations[:, None] * z / z.std()
                rows = rows[deviations == 0.0]
            gaps = np.isnan(encoded[rows][:, own]).any(1)
            unseen, gaps = rows[~gaps], rows[gaps]
            if len(unseen):
                order = np.random.default_rng(i).permutation(_VERSIONS)
                alternatives, more = column.alternatives(_VERSIONS)
                versions[np.ix_(unseen, order, own)] = alternatives
                factor[unseen] = np.maximum(factor[unseen], more)
            if len(gaps):
                self._fill_versions(versions, encoded, gaps, own)
        return versions, factor

    def _fill_versions(self, versions, encoded, rows, own):
        """Put the values of the nearest donors in the place of a gap, one after the other."""
        rest = self._without_codes(encoded[rows])
        distances, cells = self._donors.distances(rest), self._donors.rows[:, own]
        donors = np.flatnonzero(~np.isnan(cells).any(1))
        if not len(donors):
            return
        n = min(_VERSIONS, len(donors))
        near = np.argsort(distances[:, donors], axis=1, kind="stable")[:, :n]
        near = donors[near[:, np.arange(_VERSIONS) % n]]
        versions[np.ix_(rows, np.arange(_VERSIONS), own)] = cells[near]
