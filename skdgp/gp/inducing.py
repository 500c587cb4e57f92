"""Inducing inputs, and the linear maps that take them from layer to layer."""

import numpy as np
import torch
from sklearn.cluster import KMeans

from .._threads import at_most
from ..linalg import cholesky

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


def linear_map(A, n_outputs, weights=None):
    """Matrix (n_inputs, n_outputs) of the linear mean function between two widths.

    The identity for equal widths, the identity padded with zeros for a wider output, and the
    leading right-singular vectors of `A`, not centered, for a narrower one (Salimbeni and
    Deisenroth, 2017). A (n_rows, n_inputs) are training rows, pushed through the mean functions of
    the layers before.
    """
    n_inputs = A.shape[1]
    if n_inputs <= n_outputs:
        return np.eye(n_inputs, n_outputs)
    if weights is not None:
        A = A * np.sqrt(weights)[:, None]
    V = np.linalg.svd(A, full_matrices=False)[2][:n_outputs].T
    if V.shape[1] < n_outputs:  # fewer rows than outputs: the rest of the map is zero
        V = np.pad(V, ((0, 0), (0, n_outputs - V.shape[1])))
    largest = V[np.abs(V).argmax(0), np.arange(n_outputs)]
    return V * np.where(largest < 0, -1.0, 1.0)  # singular vectors have no sign of their own


def spread_out(K, n, n_kept=0):
    """Indices of points where the prior varies most given those before (Burt et al., 2020)."""
    rest, rows, chosen = torch.diagonal(K).clone(), K.new_zeros(n, len(K)), []
    for i in range(n):
        j = i if i < n_kept else int(rest.argmax())
        if rest[j] > 1e-12 * K[j, j]:
            rows[i] = (K[j] - rows[:i, j] @ rows[:i]) / rest[j].sqrt()
        rest -= rows[i].square()
        rest[j] = -torch.inf  # not twice
        chosen.append(j)
    return chosen


def relocated(kernel, Z, H, n, jitter):
    """Inducing inputs among the present ones and some rows, and their regression on the present ones.

    The whitened variables there have the mean ``B v`` and the covariance ``I - B B^T``: the
    posterior process stays what it is wherever the new inputs have what `Z` had.
    """
    pool = torch.cat([Z, H])
    K = kernel(pool, pool)
    K.diagonal().add_(jitter)  # as if each point had a share of its own, which it keeps
    chosen = spread_out(K, n, len(Z) if n > len(Z) else 0)
    L, L_new = (cholesky(K[rows][:, rows]) for rows in (list(range(len(Z))), chosen))
    half = torch.linalg.solve_triangular(L, K[: len(Z), chosen], upper=False)
    return pool[chosen], torch.linalg.solve_triangular(L_new, half.mT, upper=False)
