"""Standardization of inputs and targets."""

import numpy as np

_CHUNK = 65536
_SAMPLE = 100_000
_LINEAR = 5.0  #: standard deviations up to which inputs are scaled linearly
_FAR = 5.0  #: times the range of all other values that a code is away from them
_ROUNDING = 1e-9  #: relative to their size, where the others hardly vary


def pieces(n_rows):
    """Slices that cover the rows."""
    return [slice(i, min(i + _CHUNK, n_rows)) for i in range(0, n_rows, _CHUNK)]


class InputScaler:
    """Centers and scales columns, safe against outliers.

    Mean and standard deviation are those of the columns clipped to three times the range between
    their first and last percentile or, of fewer than 150 rows, of all but the outermost on either
    side. A value that many rows share and that is far from all others, such as a code for what is
    missing, counts as the next one. Values farther than five standard deviations from the mean grow
    only logarithmically. Constant columns are dropped. What is scaled may then be warped.

    Parameters
    ----------
    standardize : bool
        If False, columns pass as they are.

    Attributes
    ----------
    columns : ndarray of int
        Columns that vary.
    center, scale : ndarray of shape (n_columns,)
    constants : ndarray of shape (n_features,)
        Means of all columns.
    warp : Warp or None
        How scaled columns are warped.
    """

    warp = None
    blank = False  #: whether no column varies: models see a column of zeros, because they need one

    def __init__(self, standardize=True):
        self.standardize = standardize

    def fit(self, X, weights, rng):
        """Learn center and scale from rows and their weights, in pieces."""
        n = len(X)
        if not self.standardize:
            self.columns = np.arange(X.shape[1])
            self.center = self.constants = np.zeros(X.shape[1])
            self.scale = np.ones(X.shape[1])
            return self
        rows = np.arange(n) if n <= _SAMPLE else np.sort(rng.choice(n, _SAMPLE, replace=False))
        sample = np.asarray(X[rows], dtype=np.float64)
        outside = np.clip(1.5 / weights.sum(), 0.01, 0.25)  # of few rows, one of them
        low, high = np.quantile(
            sample, [outside, 1.0 - outside], axis=0, weights=weights[rows], method="inverted_cdf"
        )
        margin = np.where(high > low, high - low, np.inf)  # a column of rare values has no outliers
        beside_low, beside_high = beside_code(sample, low), beside_code(sample, high)
        low = np.where(np.isnan(beside_low), low - margin, beside_low)
        high = np.where(np.isnan(beside_high), high + margin, beside_high)
        mean, std = weighted_moments(X, weights, low, high)
        # as StandardScaler: a deviation that rounding explains, of values or of sums, is none
        eps = np.finfo(np.float32 if X.dtype == np.float32 else np.float64).eps
        eps = 10.0 * eps + n * np.finfo(np.float64).eps
        constant = std <= eps * np.abs(mean)
        self.blank = bool(constant.all())
        self.columns = np.arange(1) if self.blank else np.flatnonzero(~constant)
        self.constants, self.center = mean, mean[self.columns]
        self.scale = np.where(constant, 1.0, std)[self.columns]
        return self

    @property
    def dropped(self):
        """Columns that are constant, and that models do not see."""
        every = np.arange(len(self.constants))
        return every if self.blank else np.setdiff1d(every, self.columns)

    def transform(self, X):
        """Scaled rows, in float64."""
        if self.blank:
            return np.zeros((len(X), 1))
        X = (np.asarray(X[:, self.columns], dtype=np.float64) - self.center) / self.scale
        if not self.standardize:
            return X
        size = np.abs(X)
        if size.max(initial=0.0) > _LINEAR:
            excess = np.maximum(size - _LINEAR, 0.0)
            X = np.sign(X) * (np.minimum(size, _LINEAR) + np.log1p(excess))
        return X if self.warp is None else self.warp.transform(X)

    def curvature(self, n_features):
        """How much each column is warped; 0 stands for not at all."""
        curve = np.zeros(n_features)
        if self.warp is not None:
            curve[self.columns[self.warp.columns]] = self.warp.curve
        return curve

    def inverse_transform(self, X):
        """Rows in the user's units; constant columns have their constant value."""
        if self.warp is not None:
            X = self.warp.inverse_transform(X)
        if self.standardize:
            size = np.abs(X)
            excess = np.maximum(size - _LINEAR, 0.0)
            X = np.sign(X) * (np.minimum(size, _LINEAR) + np.expm1(excess))
        full = np.tile(self.constants, (len(X), 1))
        full[:, self.columns] = X * self.scale + self.center
        return full


class TargetScaler:
    """Centers and scales each target, or does nothing.

    Attributes
    ----------
    center, scale : ndarray of shape (n_outputs,)
    """

    def __init__(self, standardize=True):
        self.standardize = standardize

    def fit(self, y, weights):
        k = y.shape[1]
        self.center, self.scale = np.zeros(k), np.ones(k)
        if self.standardize:
            mean, std = weighted_moments(y, weights)
            constant = (y == y[0]).all(0)  # whose mean may be rounded by more than its unit
            self.center = np.where(constant, y[0], mean)
            rounding = 1e-14 * np.abs(mean)
            varies = ~constant & (std > rounding)
            self.scale = np.where(varies, std, np.maximum(1.0, rounding))
        return self

    def transform(self, y):
        return (np.asarray(y, dtype=np.float64) - self.center) / self.scale


def beside_code(X, values):
    """Of each column, what is nearest to a value that is far from all others; NaN if it is not far."""
    nearest = np.full(len(values), np.nan)
    for j, value in enumerate(values):
        others = X[X[:, j] != value, j]
        if len(others) == 0:
            continue
        low, high = others.min(), others.max()
        size = high - low
        vary = size > _ROUNDING * max(abs(low), abs(high))
        if vary and _FAR * size < max(low - value, value - high):
            nearest[j] = low if value < low else high
    return nearest


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
