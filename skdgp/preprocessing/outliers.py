"""Weighted moments of columns, robust to codes and gross outliers."""

from itertools import pairwise

import numpy as np

_ROWS = 65536  #: memory: of a piece: 20 MB of 40 columns
FAR = 5.0  #: deviations, or ranges of ordinary values, beyond which a value is far from others
_SHARED = 0.002  #: of the rows hold a code, at least; two of few rows
_ORDINARY = [0.05, 0.95]  #: quantiles that codes and gross outliers do not reach
_ROUNDING = 1e-9  #: rounding: relative to their size, where ordinary values hardly vary
#: of rounding, where sums cancel; 0.1 to 11 in tables of PCA
LEFT_OVER = np.array([1.0 / 64, 16.0])


def pieces(n_rows: int) -> list:
    """Slices that cover the rows."""
    return [slice(i, min(i + _ROWS, n_rows)) for i in range(0, n_rows, _ROWS)]


def left_over(std, centered, eps):
    """Columns whose deviations are of the size of the rounding errors of the next larger ones.

    A unit may be tiny, as that of a capacitance in farads beside lengths in meters. But such columns and
    the rest rarely have a gap between them of just the digits of a number, and rarely lie around zero,
    as most of those do that sums leave.
    """
    some = np.zeros(len(std), dtype=bool)
    order = np.argsort(std)
    for small, large in pairwise(order):
        if 0.0 < std[small] <= LEFT_OVER[1] * eps * std[large]:
            group = (std <= std[small]) & (std >= LEFT_OVER[0] * eps * std[large])
            if 2 * centered[group].sum() >= group.sum():
                some |= group
    return some


def ordinary_range(X, weights, rounding=0.0):
    """Ends between which the values of each column set its center and scale, two of shape (D,).

    They are three times the range between the first and last percentile or, of fewer than 150 rows, of all
    but the outermost on either side. Codes count as the next ordinary value, see :func:`codes`. Values are
    equal if their standard deviation may be no larger than `rounding` times their size.
    """
    total = weights.sum()
    outside = np.clip(1.5 / total, 0.01, 0.25)  # of few rows, one of them
    low, high = _quantiles(X, [outside, 1.0 - outside], weights)
    least_std = np.sqrt(outside / 2.0) * (high - low)  # if all but the tails lie in the middle
    varies = least_std > rounding * np.maximum(np.abs(low), np.abs(high))
    margin = np.where(varies, high - low, np.inf)  # a column of rare values has no outliers
    ends = np.stack([low - margin, high + margin])
    fewest = np.clip(1.5 / total, _SHARED, 0.25) * total
    for j, column in enumerate(X.T):
        coded = codes(column, weights, fewest)
        if len(coded):
            plain = ~np.isin(column, coded)
            low, high = _quantiles(column[plain], _ORDINARY, weights[plain])
            low, high = low - (high - low), high + (high - low)
            inside = column[plain & (column >= low) & (column <= high)]
            ends[0, j] = inside.min() if coded[0] < low else low
            ends[1, j] = inside.max() if coded[-1] > high else high
    return ends


def codes(column, weights, fewest):
    """Values that weigh at least `fewest` and are far from the ordinary ones, in their order.

    Ordinary is what lies between quantiles of the values that few rows share. Where hardly any rows have
    such a value, as in a column of grades, it is the narrowest half of the shared ones, and all that can
    be reached from there. Codes on both sides are thus not judged by each other.
    """
    values, inverse = np.unique(column, return_inverse=True)
    total = np.bincount(inverse, weights=weights)
    shared = total >= fewest
    rare, pool = values[~shared], values[shared]
    if 2 * len(rare) >= len(values) and total[~shared].sum() >= _ORDINARY[0] * total.sum():
        low, high = np.quantile(rare, _ORDINARY, method="inverted_cdf")
        near = _within(pool, low, high)
    elif len(pool) > 2:
        more = (len(pool) - 1) // 2
        first = np.argmin(pool[more:] - pool[: len(pool) - more])
        low, high, near, before = pool[first], pool[first + more], pool[:0], None
        while len(near) != before:
            before, near = len(near), _within(pool, low, high)
            low, high = near[0], near[-1]
    else:
        return pool[:0]
    far = np.setdiff1d(pool, near)
    if not len(far) or high - low <= _ROUNDING * max(abs(low), abs(high)):
        return pool[:0]
    plain = ~np.isin(column, far)
    return np.union1d(far, codes(column[plain], weights[plain], fewest))


def _within(values, low, high):
    """Return the values that are not far from a range."""
    reach = FAR * (high - low)
    return values[(values >= low - reach) & (values <= high + reach)]


def _quantiles(X, orders, weights):
    return np.quantile(X, orders, axis=0, weights=weights, method="inverted_cdf")


def weighted_moments(X, weights, low=-np.inf, high=np.inf):
    """Mean and standard deviation of the columns of `X`, clipped to a range; three passes, in pieces."""

    def clipped(rows):
        return np.clip(np.asarray(X[rows], dtype=np.float64), low, high)

    parts = pieces(len(X))
    size = np.max([np.abs(clipped(rows)).max(0) for rows in parts], axis=0)
    unit = np.exp2(np.floor(np.log2(np.where(size > 0.0, size, 1.0))))  # squares do not overflow
    mean = sum(weights[rows] @ (clipped(rows) / unit) for rows in parts) / weights.sum()
    squares = (weights[rows] @ np.square(clipped(rows) / unit - mean) for rows in parts)
    var = sum(squares) / weights.sum()
    return mean * unit, np.sqrt(var) * unit
