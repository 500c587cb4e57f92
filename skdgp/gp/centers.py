"""Centers of rows."""

import numpy as np
from sklearn.cluster import KMeans

from .._threads import at_most

METHODS = ("kmeans", "random")


def centers(X, weights, n_centers, method, rng):
    """`n_centers` distinct points that represent the rows of `X`."""
    places, inverse = np.unique(X, axis=0, return_inverse=True)
    if len(places) < len(X):  # rows that differ in the target alone
        X, weights = places, np.bincount(inverse.ravel(), weights=weights)
    if len(X) <= n_centers:
        extra = n_centers - len(X)
        return np.vstack(
            [X, X[rng.randint(len(X), size=extra)] + 0.1 * rng.standard_normal((extra, X.shape[1]))]
        )
    if method == "random":
        return X[rng.choice(len(X), n_centers, replace=False, p=weights / weights.sum())]
    with at_most(1):  # the order of sums over threads would change the result
        kmeans = KMeans(n_centers, n_init=1, max_iter=30, random_state=rng)
        return kmeans.fit(X, sample_weight=weights).cluster_centers_
