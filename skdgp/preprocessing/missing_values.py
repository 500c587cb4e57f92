"""Missing cells: their values from other cells and near rows, and what they hide of the target."""

import numpy as np
from scipy.stats import norm
from sklearn.metrics.pairwise import nan_euclidean_distances

_DIGITS, _ROUNDED = 9, 1e6  #: rounding: decimals of squared distances, up to this size
_NEIGHBORS = 8  #: donors for each cell: the error of their mean is a third of their deviation
_FAR = 1e150  #: rounding: standard deviations beyond which distances do not grow, so that squares are numbers
_STEPS = 20  #: time: of expectation maximization
_CHANGE = 1e-3  #: rounding: of covariances, below which it ends
_LEAST = 1e-3  #: rounding: variance of the noise, relative to that of the target
#: option: share of a class below which correlations with it are too uncertain to correct
_RARE = 0.1
_LEAST_OF_CLASSES = 0.1  #: option: the same between classes, which is uncertain by as much
_MOST = 100  #: columns up to which the covariance of some hundred rows says something


class Donors:
    r"""Training rows from which missing cells of other rows are filled.

    A missing cell gets the average of two estimates, the mean of the nearest donors in the other
    columns, and the conditional mean of a Gaussian distribution of all columns; of very many
    columns, the former alone.

    Let a target be linear in the columns, with coefficients :math:`\beta` and noise of variance
    `r`. Where the cells `m` are missing, its conditional variance is :math:`r + h = r + \beta_m^T
    V_m \beta_m`, with the covariance :math:`V_m` of these cells given the others. If `weighs`,
    training rows count in proportion to :math:`1 / (r + h)`, and a model learns the noise of a row
    with the harmonic mean of :math:`r + h`; otherwise, that of one with the arithmetic mean. The
    noise of any row is its :math:`r + h` over that mean.

    The `rows` (n, d) are NaN where cells are missing, `targets` (n, k) are standardized, and
    `learned` (d,) are columns in which training rows have gaps that count; `has_gaps` is whether
    there are some. Indicators of classes (`is_class`) stand for Gaussian variables beyond a
    threshold, whose correlations are larger (biserial correlations).
    """

    def __init__(self, rows, targets, learned, is_class=False, weighs=False):
        self.rows, self._learned = rows, learned
        self.has_gaps = bool((np.isnan(rows) & learned).any())
        d = rows.shape[1]
        center, spread, some = np.zeros(d), np.zeros(d), ~np.isnan(rows).all(0)
        largest = np.nanmax(np.abs(rows[:, some]), axis=0, initial=np.finfo(float).tiny)
        # squares of the largest and of the smallest numbers are no numbers
        center[some] = largest * np.nanmean(rows[:, some] / largest, axis=0)
        spread[some] = largest * np.nanstd(rows[:, some] / largest, axis=0)
        self._unit, self._center = np.where(spread > 0.0, spread, 1.0), center
        Z = self._standardized(rows)
        self._range = np.nanmin(Z, axis=0, initial=0.0), np.nanmax(Z, axis=0, initial=0.0)
        self._correlated = d <= _MOST
        self._mean, covariance = _gaussian(np.hstack([Z, targets]), self._correlated)
        self._mean, own, with_targets = self._mean[:d], covariance[:d, :d], covariance[:d, d:]
        self._precision = np.linalg.inv(own)
        self._effects = self._precision @ with_targets
        self._rest, least = np.diag(covariance[d:, d:] - with_targets.T @ self._effects), _LEAST
        if is_class:
            share, least = _of_indicators(targets), _LEAST_OF_CLASSES
            self._effects = self._effects / np.sqrt(share)
            self._rest = 1.0 - (1.0 - self._rest) / share
        self._rest = self._rest.clip(least)
        noise = self._rest + self._hidden(rows)
        self._usual, self._unit_weight = noise.mean(0), None
        if weighs:
            each = self._of_all(noise)
            self._unit_weight = 1.0 / each.mean()
            self._usual = each @ noise / each.sum()

    def _standardized(self, rows):
        with np.errstate(over="ignore", invalid="ignore"):
            Z = (rows - self._center) / self._unit
        return np.clip(Z, -len(self.rows), len(self.rows))

    def _hidden(self, encoded):
        """Variance of targets that gaps hide, (n_rows, k)."""
        hidden = np.zeros((len(encoded), len(self._rest)))
        for rows, gaps in _patterns(np.isnan(encoded) & self._learned):
            V, effects = np.linalg.inv(self._precision[np.ix_(gaps, gaps)]), self._effects[gaps]
            hidden[rows] = np.einsum("ik,ij,jk->k", effects, V, effects)
        return hidden

    def _of_all(self, noise):
        """Precisions (n_rows,) of all targets together from variances of their noise."""
        return 1.0 / (noise / self._rest).mean(1)

    def noise(self, encoded):
        """Variances of the noise of rows, relative to those that a model learns, (n_rows, k)."""
        return (self._rest + self._hidden(encoded)) / self._usual

    def precision(self, encoded):
        """Weights of training rows, (n_rows,), with a mean of one; None if all are alike."""
        if self._unit_weight is None:
            return None
        return self._unit_weight * self._of_all(self._rest + self._hidden(encoded))

    def distances(self, encoded):
        """Squared distances from rows to donors in the columns that both have, scaled up to all columns."""
        with np.errstate(over="ignore"):
            rows, donors = (
                np.clip((one - self._center) / self._unit, -_FAR, _FAR)
                for one in (encoded, self.rows)
            )
        squares = nan_euclidean_distances(rows, donors, squared=True)
        # rounding errors depend on the rows beside; where values are few, many donors are equally near
        squares = np.where(
            squares < _ROUNDED, np.round(squares.clip(max=_ROUNDED), _DIGITS), squares
        )
        return np.where(np.isnan(squares), np.inf, squares)

    def fill(self, encoded):
        """Rows with estimates in the place of gaps."""
        filled, distances, missing = encoded.copy(), self.distances(encoded), np.isnan(encoded)
        # conditional means, between the smallest and the largest value of donors
        Z = self._standardized(encoded)
        _condition(Z, missing, self._mean, self._precision)
        expected = self._center + self._unit * np.clip(Z, *self._range)
        for j in np.flatnonzero(missing.any(0)):
            donors, rows = np.flatnonzero(~np.isnan(self.rows[:, j])), np.flatnonzero(missing[:, j])
            if not len(donors):
                filled[rows, j] = 0.0
                continue
            n = min(_NEIGHBORS, len(donors))
            own = distances[np.ix_(rows, donors)]
            near = own <= np.partition(own, n - 1, axis=1)[:, n - 1 : n]  # with all that are tied
            means = (near / near.sum(1, keepdims=True)) @ self.rows[donors, j]
            nothing = np.isinf(distances[rows]).all(1)  # no cell in common with any donor
            means[nothing] = self._center[j]
            filled[rows, j] = means
            if self._correlated:
                filled[rows, j] = 0.5 * means + 0.5 * expected[rows, j]
        return filled


def _of_indicators(targets):
    """Squared correlations (k,) of standardized indicators with the variables behind them."""
    odds = np.square(targets.min(0))
    p = np.clip(odds / (1.0 + odds), _RARE, 1.0 - _RARE)
    return np.square(norm.pdf(norm.ppf(p))) / (p * (1.0 - p))


def _patterns(missing):
    """Pairs of rows and the columns that they lack."""
    incomplete = np.flatnonzero(missing.any(1))
    patterns, which = np.unique(missing[incomplete], axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(patterns)))[:-1]
    return zip(np.split(incomplete[order], ends), map(np.flatnonzero, patterns))


def _condition(Z, missing, mean, precision):
    """Put conditional means in the place of gaps; the sum of the conditional covariances."""
    total = np.zeros_like(precision)
    off = np.where(missing, 0.0, Z - mean)
    for rows, gaps in _patterns(missing):
        V = np.linalg.inv(precision[np.ix_(gaps, gaps)])
        Z[np.ix_(rows, gaps)] = mean[gaps] - off[rows] @ precision[:, gaps] @ V
        total[np.ix_(gaps, gaps)] += len(rows) * V
    return total


def _gaussian(Z, correlated):
    """Mean and covariance of rows with gaps, shrunk towards independence where rows are few.

    Expectation maximization (Dempster, Laird and Rubin, 1977), from standardized and independent columns.
    """
    n, d = Z.shape
    missing, Z = np.isnan(Z), Z.copy()
    mean, covariance = np.zeros(d), np.eye(d)
    for _ in range(_STEPS):
        old, hidden = covariance, _condition(Z, missing, mean, np.linalg.inv(covariance))
        mean = Z.mean(0)
        covariance = ((Z - mean).T @ (Z - mean) + hidden) / n
        more = (d + 1.0) ** 2 / n  # rows in which columns are independent
        share = more / (n + more) if correlated else 1.0
        variances = np.diag(covariance)
        covariance = (1.0 - share) * covariance
        np.fill_diagonal(covariance, np.where(variances > 0.0, variances, 1.0))
        if not missing.any() or np.abs(covariance - old).max() < _CHANGE:
            break
    return mean, covariance
