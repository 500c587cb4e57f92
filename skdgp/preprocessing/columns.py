"""Encodings of single columns of a table as numbers."""

import copy
from typing import ClassVar

import numpy as np

from .levels import UNIT, UNSEEN
from .outliers import FAR

N_FOLDS = 5  #: of the cross-fitted positions of levels, as of scikit-learn's TargetEncoder
_DIMENSIONS = 2  #: option: of the positions of levels at most, where there are several targets
_FEW_LEVELS = 2  #: levels up to which each has a column of its own
#: rows of a level that say too little of its position, and the levels with so few that effects need
_RARE, _SEVERAL_RARE = 2, 3
CODE = " (level)"  #: suffix of columns with the codes of levels
CIRCLES = " (sine of", " (cosine of"  #: beginnings of those of points of circles
#: rows of a level from which its position is that of all its rows: each of them is 3 % of it at most
_COMMON = 30.0
_GAPS = 0.01  #: share of training rows with a gap from which models have learned how gaps predict
#: standard errors by which targets of rows with gaps, or the variance of slopes, must differ from chance
_ERRORS = 3.0
_WEEK, _YEAR = 7.0, 365.2425  #: calendar: days
_PHASES = 3.0  #: option: of rows in a period, without which it is none
_CYCLES = 2.0  #: periods that dates must cover: of one, a trend says the same
#: degrees of freedom of the prior of the variance between levels, the fewest with a mean
_PRIOR_DOF = 3.0


class Column:
    """Encoding of one column, here of numbers that stay as they are; one may tell gaps from values."""

    has_indicator = learned_gaps = False
    has_codes = False  #: of levels, of which UNSEEN is one
    has_effects = (
        False  #: whether codes of levels are encoded, too, for models with effects of levels
    )

    def fit(self, values, targets, weights, folds, slopes=None):
        return self

    def with_levels(self, values, targets, weights, slopes=None):
        return self

    def fit_gaps(self, missing, targets, weights):
        """Decide whether gaps have an indicator: where they go with other targets."""
        own, others = weights[missing].sum(), weights[~missing].sum()
        self.learned_gaps = own >= _GAPS * (own + others)
        if not self.learned_gaps or others == 0.0 or missing.sum() < 2:
            return
        with_gap, without = (
            np.average(targets[part], axis=0, weights=weights[part]) for part in (missing, ~missing)
        )
        error = np.sqrt(1.0 / own + 1.0 / others)  # of standardized targets
        self.has_indicator = bool(np.abs(with_gap - without).max() > _ERRORS * error)

    def suffixes(self):
        return [*self._suffixes(), *([" (missing)"] if self.has_indicator else [])]

    def _suffixes(self):
        return [""]

    def encode(self, values, folds):
        """Encoded values (n_rows, n_encoded), NaN where they are missing."""
        encoded = self._encode(values, folds)
        if self.has_indicator:
            encoded = np.column_stack([encoded, np.isnan(values)])
        return encoded

    def _encode(self, values, folds):
        return values[:, None]

    def uncertain(self, values):
        """Standard deviations (n,) of first encoded values and, if these are others, their centers."""
        return np.zeros(len(values)), None

    def unknown(self, values):
        """Which values are unseen levels or new gaps."""
        return (values == UNSEEN) & self.has_codes | np.isnan(values) & (not self.learned_gaps)


class Group(Column):
    """Codes of groups, in their unit."""

    def _suffixes(self):
        return [CODE]


class Ordered(Column):
    """Codes of ordered levels; one that is not among them is like a gap."""

    has_codes = True

    def _encode(self, values, folds):
        return np.where(values == UNSEEN, np.nan, values)[:, None]


class _Cyclic(Column):
    """A trend, and the circles of the periods that the values cover, which are `kept`."""

    periods: ClassVar[tuple[tuple[str, float], ...]] = ()

    def fit(self, values, targets, weights, folds, slopes=None):
        self.kept = [one for one in self.periods if self._covers(values[~np.isnan(values)], one)]
        return self

    def _covers(self, values, period):
        _, length = period
        long_enough = len(values) and np.ptp(values) >= _CYCLES * length
        return bool(long_enough) and len(np.unique(np.round(values / length % 1.0, 6))) > 2

    def _suffixes(self):
        circles = (f"{start} {name})" for name, _ in self.kept for start in CIRCLES)
        return ["", *circles]

    def _encode(self, values, folds):
        angles = [2.0 * np.pi * values / length for _, length in self.kept]
        return np.column_stack([values, *(f(angle) for angle in angles for f in (np.sin, np.cos))])


class Date(_Cyclic):
    """Days, with the time of the day, the day of the week and the day of the year."""

    periods = (("day", 1.0), ("week", _WEEK), ("year", _YEAR))


class Timeline(Date):
    """Dates in whose order rows are: of the periods, those within which rows have several phases."""

    def _covers(self, values, period):
        steps = np.diff(np.unique(values))
        return super()._covers(values, period) and np.median(steps) <= period[1] / _PHASES


class Time(_Cyclic):
    """Times of the day."""

    periods = (("day", 1.0),)

    def _covers(self, values, period):
        return len(np.unique(values)) > 2


class Levels(Column):
    """Positions of the levels of a category; gaps in training are a level of their own.

    With `has_effects`, where several levels are rare, these and new ones are in the middle, and their codes are
    encoded, too: models with effects of levels learn from their rows what they are. Other models see several
    positions of them.

    Positions of rare levels are cross-fitted, so that targets of training rows do not give themselves
    away. Those of common ones are not: rows that agree in their levels would differ in their positions,
    and those of a fold with larger targets would have smaller positions. The `slopes` (n, 1) are those
    of :meth:`~skdgp.preprocessing.adjustment.Adjustment.slopes`, by which levels have a second position
    if they differ in them by more than chance explains.
    """

    has_codes = True
    _slope_ratio = None  #: of the second position, see :func:`shrunk_means`
    #: standard deviations (n_levels,) of the positions of levels with one row, zero for others
    _uncertain = np.zeros(0)
    _own = None  #: positions (n_levels + 1, n_encoded) by all rows, where those of some levels are the middle

    def __init__(self, has_effects=False):
        self.has_effects = has_effects

    def fit(self, values, targets, weights, folds, slopes=None):
        self._n_levels = int(np.nanmax(values, initial=-1.0)) + 1
        wanted, self.has_effects = self.has_effects, False
        codes = np.where(np.isnan(values), self._n_levels, values).astype(np.int64)
        self.has_gaps = bool(np.isnan(values).any())
        n = self._n_levels + 1

        def cross_fitted(y):
            """Means (N_FOLDS + 1, n, k) without the rows of each fold and of all, and the ratio of all."""
            parts = [*(folds != fold for fold in range(N_FOLDS)), slice(None)]
            found = [shrunk_means(codes[i], y[i], weights[i], n) for i in parts]
            return np.stack([means for means, _ in found]), found[-1][1]

        means, self._ratio = cross_fitted(targets)
        if self._n_levels + self.has_gaps <= _FEW_LEVELS:
            self._origin = means[-1, :1]
            step = np.diff(means[-1, :2], axis=0)[:1] if n > 1 else self._origin
            self._axes = step.T / max(np.square(step).sum(), 1e-12)
            self._positions = np.tile(np.arange(float(n))[:, None], (N_FOLDS + 1, 1, 1))
            return self
        _, _, V = np.linalg.svd(means[-1], full_matrices=False)
        axes = V[:_DIMENSIONS].T
        self._axes, self._origin = axes * np.where(axes.sum(0) < 0.0, -1.0, 1.0), 0.0
        self._positions = means @ self._axes
        size = np.bincount(codes, weights=weights, minlength=n)
        if slopes is not None:
            steeper, ratio = cross_fitted(slopes)
            if standard_errors(size, ratio[0]) > _ERRORS:
                self._slope_ratio = ratio
                self._positions = np.concatenate([self._positions, steeper], axis=2)
        counts = np.bincount(codes, minlength=n)
        rare = counts <= _RARE
        self.has_effects = wanted and bool(np.count_nonzero(counts[rare]) >= _SEVERAL_RARE)
        most = _RARE if self.has_effects else 1
        self._uncertain = self._of_few_rows(codes, targets, weights, most)
        is_common = size >= _COMMON
        self._positions[:, is_common] = self._positions[-1, is_common]
        if self.has_effects:
            self._own = self._positions[-1].copy()
            self._positions[:, rare] = 0.0
            self._codes = np.where(rare, np.arange(n) + 1.0, 0.0)
        return self

    def _of_few_rows(self, codes, targets, weights, most):
        """Standard deviations (n_levels,) of first positions, of levels with so few rows; zero for others.

        Models have not seen such a position: without its row, that is the mean of all levels.
        """
        size = np.bincount(codes, weights=weights, minlength=self._n_levels)
        sums = np.stack([np.bincount(codes, weights * y, len(size)) for y in targets.T], 1)
        means = sums / np.maximum(size, 1e-300)[:, None]
        within = weights @ np.square(targets - means[codes])
        noise = within / max(size.sum() - np.count_nonzero(size), 1.0)
        of_position = noise / size[:, None].clip(1e-300) @ np.square(self._axes[:, 0])
        counts = np.bincount(codes, minlength=len(size))
        return np.where((counts > 0) & (counts <= most), np.sqrt(of_position), 0.0)[
            : self._n_levels
        ]

    def uncertain(self, values):
        known = (values >= 0.0) & (values < len(self._uncertain))
        index = np.where(known, values, 0.0).astype(np.int64)
        deviations = np.where(known, self._uncertain[index], 0.0) if known.any() else known * 0.0
        centers = None if self._own is None else self._own[index]
        return deviations, centers

    def unknown(self, values):
        found = super().unknown(values) | (values >= self._n_levels)
        return found | (self.uncertain(values)[0] > 0.0)

    def with_levels(self, values, targets, weights, slopes=None):
        last = int(np.nanmax(values, initial=-1.0))
        if last < self._n_levels:
            return self
        new, extra = copy.copy(self), last + 1 - self._n_levels
        codes = np.where(values >= self._n_levels, values - self._n_levels, extra).astype(np.int64)
        added = (_shrunk(codes, targets, weights, extra, self._ratio) - self._origin) @ self._axes
        if self._slope_ratio is not None:
            steeper = _shrunk(codes, slopes, weights, extra, self._slope_ratio)
            added = np.hstack([added, steeper])
        added = np.tile(added, (N_FOLDS + 1, 1, 1))
        known, gap = self._positions[:, : self._n_levels], self._positions[:, self._n_levels :]
        new._positions = np.concatenate([known, np.clip(added, -FAR, FAR), gap], axis=1)
        new._n_levels = last + 1
        if self.has_effects:
            new._own = new._positions[-1].copy()
            new._own[: self._n_levels] = self._own[: self._n_levels]
            new._positions[:, self._n_levels : last + 1] = 0.0
            more = np.arange(self._n_levels, last + 1) + 2.0  # one beyond that of gaps
            new._codes = np.concatenate([self._codes[:-1], more, self._codes[-1:]])
        return new

    def fit_gaps(self, missing, targets, weights):
        self.learned_gaps = self.has_gaps

    def _suffixes(self):
        n = self._axes.shape[1]
        names = [""] if n == 1 else [f" ({i + 1})" for i in range(n)]
        names += [] if self._slope_ratio is None else [" (slope)"]
        return names + [CODE] * self.has_effects

    def _encode(self, values, folds):
        gaps = self._n_levels if self.has_gaps else np.nan
        codes = np.where(np.isnan(values), gaps, np.where(values < self._n_levels, values, UNSEEN))
        known = codes >= 0.0
        index = np.where(known, codes, 0.0).astype(np.int64)
        fold = N_FOLDS if folds is None else folds
        encoded = self._positions[fold, index]
        middle = 0.0 if self.has_effects else self._positions[-1, : max(self._n_levels, 1)].mean(0)
        if self.has_effects:  # gaps that are new are an unseen level
            codes = np.where(np.isnan(codes), UNSEEN, codes)
        encoded = np.where((codes == UNSEEN)[:, None], middle, encoded)
        encoded = np.where(np.isnan(codes)[:, None], np.nan, encoded)
        if self.has_effects:
            own = np.where(codes == UNSEEN, UNSEEN, self._codes[index])
            own = np.where(values >= self._n_levels, values + 2.0, own)  # of rows to condition on
            encoded = np.column_stack([encoded, UNIT * own])
        return encoded

    def alternatives(self, n):
        """Positions (n, n_encoded) of known levels for an unseen one, and the factor of the variance."""
        L = max(self._n_levels, 1)
        positions = (self._positions[-1] if self._own is None else self._own)[:L]
        order = np.argsort(positions[:, 0], kind="stable")
        chosen = order[((np.arange(n) + 0.5) * L / n).astype(np.int64)]
        return positions[chosen], variance_of_new(L, L / max(L - 1.0, 1.0))

    def share(self):
        """Variance that a new level adds where known ones are alike, relative to that of a level.

        The scale of the prior in :meth:`alternatives` is that of the known levels plus a third of
        this prior variance, so that few levels that happen to be alike do not rule out another one.
        Of one level it is 2, the difference of two.
        """
        L = max(self._n_levels, 1)
        return (1.0 + 1.0 / L) * (_PRIOR_DOF - 2.0) / (L + _PRIOR_DOF - 3.0)


def variance_of_new(n, variance=1.0):
    """Predictive variance of a new level from the variance of `n`, with a scaled inverse chi-square prior."""
    new, dof = 1.0 + 1.0 / n, n - 1.0 + _PRIOR_DOF
    return variance * new * dof / (dof - 2.0)


def _shrunk(codes, targets, weights, n_levels, ratio):
    """Sums of targets over the rows of each level and as many more of zero as the ratio says."""
    size = np.bincount(codes, weights=weights, minlength=n_levels)[:n_levels, None]
    sums = [
        np.bincount(codes, weights=weights * y, minlength=n_levels)[:n_levels] for y in targets.T
    ]
    return np.where(size > 0.0, np.stack(sums, 1) / np.maximum(size + ratio, 1e-300), 0.0)


def standard_errors(size, ratio):
    """Variance between levels of these sizes over its standard error where they are alike."""
    total, n_used = size.sum(), np.count_nonzero(size)
    effective = total - size @ size / max(total, 1e-300)
    return effective / np.maximum(ratio * np.sqrt(2.0 * max(n_used - 1.0, 1.0)), 1e-300)


def shrunk_means(codes, targets, weights, n_levels):
    """Mean targets of the levels as best linear unbiased predictions of a one-way mixed model.

    `codes` (n,) are numbers of levels, `targets` have shape (n, k). Returns deviations from the
    mean of all rows (n_levels, k), 0 for levels without rows, and for each target the variance
    within levels over that between them: how many rows the mean of all is worth. The variance
    between levels is at least its own standard error: levels that differ only together with other
    columns keep different positions.
    """
    size = np.bincount(codes, weights=weights, minlength=n_levels)
    total = max(size.sum(), 1e-300)
    means, ratio = np.zeros((n_levels, targets.shape[1])), np.full(targets.shape[1], np.inf)
    for k, y in enumerate(targets.T):
        mean = weights @ y / total
        sums = np.bincount(codes, weights=weights * (y - mean), minlength=n_levels)
        own = sums / np.maximum(size, 1e-300)
        within_squares = weights @ np.square(y - mean - own[codes])
        between_squares = size @ np.square(own)
        n_used = np.count_nonzero(size)
        # moments of a one-way mixed model with unequal sizes (Searle, Casella and McCulloch, 1992, section 3.6)
        noise = within_squares / max(total - n_used, 1.0)
        effective, error = total - size @ size / total, noise * np.sqrt(2.0 * (n_used - 1.0))
        variance = max(between_squares - (n_used - 1.0) * noise, error) / max(effective, 1e-300)
        if variance > 0.0 and total > n_used:  # of one row each, noise and levels are the same
            ratio[k] = noise / variance
            np.divide(own * size, size + ratio[k], where=size > 0.0, out=means[:, k])
    return means, ratio
