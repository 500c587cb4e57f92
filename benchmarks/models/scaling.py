"""What peers leave to the user: scaling, and places for inducing inputs."""

import numpy as np
from sklearn.cluster import KMeans

from skdgp.preprocessing.scaling import InputScaler

_SAMPLE_ROWS = 10_000


class Standardized:
    """Training rows with mean 0 and variance 1, and the way back.

    Constant columns, of which there are some, become zero.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    y : ndarray of shape (n,)
    outliers : bool
        Whether `X` has outliers, which then are moved as skdgp moves them.
    """

    def __init__(self, X, y, outliers=False):
        # without outliers the first scaler changes nothing
        scaler = InputScaler(standardize=outliers)
        self._squeeze = scaler.fit(X, np.ones(len(X)), np.random.RandomState(0))
        squeezed = self._squeeze.transform(X)
        self._center, spread = squeezed.mean(0), squeezed.std(0)
        self._spread = np.where(spread > 1e-12 * (1.0 + np.abs(self._center)), spread, 1.0)
        self._mean, self._scale = y.mean(), y.std()
        self.X, self.y = self.inputs(X), (y - self._mean) / self._scale

    def inputs(self, X):
        """Scaled inputs."""
        return (self._squeeze.transform(X) - self._center) / self._spread

    def moments(self, means, variances):
        """Means and variances in the target's units."""
        return means * self._scale + self._mean, variances * self._scale**2


def centers(X, n_centers, seed):
    """At most `n_centers` places that represent the rows, by k-means."""
    rng = np.random.RandomState(seed)
    X = np.unique(X, axis=0)
    if len(X) > _SAMPLE_ROWS:
        X = X[rng.choice(len(X), _SAMPLE_ROWS, replace=False)]
    if len(X) <= n_centers:
        return X
    kmeans = KMeans(n_centers, n_init=1, max_iter=30, random_state=rng)
    return kmeans.fit(X).cluster_centers_
