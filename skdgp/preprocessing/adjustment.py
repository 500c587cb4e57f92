"""Targets less what the columns of numbers explain of them."""

import numpy as np

from .outliers import FAR, pieces

_ROWS = 5000  #: time: from which effects are found: some dozens for each of a hundred columns
#: time: of a category whose effects are found together with those of numbers, for the sake of time
_MOST_LEVELS = 100
_REACH = 3.0  #: the same of the factors of a product, whose moments few rows decide otherwise


class Adjustment:
    """Linear and quadratic effects of numbers, which are taken from targets before levels get positions.

    Levels with the same mean target may differ where the other columns agree: large diamonds of bad
    quality cost as much as small ones of good quality. Effects of numbers and of levels are
    therefore found together, by ridge regression. A priori all effects together have the variance
    of the targets, which are standardized.
    """

    def fit(self, table, is_level, targets, weights):
        """Find the effects in a table (n, n_columns) of which some columns have codes of levels."""
        some = slice(None, None, -(-len(table) // _ROWS))
        table = np.asarray(table[some], dtype=np.float64)
        targets, weights = targets[some], weights[some]
        self._numbers = np.flatnonzero(~is_level)
        numbers = table[:, self._numbers]
        known = ~np.isnan(numbers)
        own, numbers = np.where(known, weights[:, None], 0.0), np.where(known, numbers, 0.0)
        total = np.maximum(own.sum(0), 1e-300)
        size = np.abs(numbers).max(0, initial=0.0)
        # in powers of two, which change no digit, and whose squares do not overflow
        unit = np.exp2(np.floor(np.log2(np.where(size > 0.0, size, 1.0))))
        mean = (own * (numbers / unit)).sum(0) / total
        off = np.where(known, numbers / unit - mean, 0.0)
        self._mean, self._std = unit * mean, unit * np.sqrt((own * off**2).sum(0) / total)
        effects = self._effects(table)
        design = np.hstack([effects, *map(_indicators, table[:, is_level].T)])
        prior = np.eye(design.shape[1]) * design.shape[1]
        weighted = design * weights[:, None]
        found = np.linalg.solve(design.T @ weighted + prior, weighted.T @ targets)
        self._coefficients = found[: effects.shape[1]]
        explained = effects @ self._coefficients
        rest = targets - explained
        self._middle = weights @ explained / weights.sum()
        self._range = np.sqrt(weights @ np.square(explained - self._middle) / weights.sum())
        self._center = weights @ rest / weights.sum()
        variance = weights @ np.square(rest - self._center) / weights.sum()
        self._scale = np.sqrt(np.where(variance > 0.0, variance, 1.0))
        return self

    def _effects(self, table):
        """Standardized numbers and their squares, zero for gaps and constant columns."""
        with np.errstate(over="ignore"):
            off = np.nan_to_num(table[:, self._numbers] - self._mean)
        scaled = np.clip(off / np.where(self._std > 0.0, self._std, np.inf), -FAR, FAR)
        return np.hstack([scaled, scaled**2])

    def _explained(self, table):
        """Sums of the effects of numbers, (n, k)."""
        parts = (np.asarray(table[rows], dtype=np.float64) for rows in pieces(len(table)))
        return np.concatenate([self._effects(part) @ self._coefficients for part in parts])

    def remove(self, table, targets):
        """Targets without the effects of numbers, standardized as those of training are."""
        return (targets - self._explained(table) - self._center) / self._scale

    def slopes(self, table, rest):
        """Products of targets without effects of numbers and these effects, both standardized.

        Effects of numbers are steeper at a level where the mean over its rows is larger.
        """
        unit = np.where(self._range > 0.0, self._range, np.inf)
        scaled = (self._explained(table) - self._middle) / unit
        return np.clip(rest, -_REACH, _REACH) * np.clip(scaled, -_REACH, _REACH)


def _indicators(codes):
    """A column for each level (n, n_levels), gaps among them; none if they are too many."""
    distinct, index = np.unique(codes, return_inverse=True)
    return np.eye(len(distinct))[index] if len(distinct) <= _MOST_LEVELS else codes[:, None][:, :0]
