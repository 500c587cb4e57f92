"""Starting values that depend on data."""

import numpy as np
import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from ..gp.means import linear_map

METHODS = ("kmeans", "random")


def start(model, X, weights, method, rng):
    """Place inducing inputs, and set the mean functions of hidden layers.

    The inducing inputs of the first layer are centers of the rows; those of later layers are the
    same centers, pushed through the mean functions (report, equation 3.12).

    Parameters
    ----------
    model : Model
        With `layers` and `input_connected`.
    X : ndarray of shape (n_rows, n_features)
        Training rows as the model sees them, or a sample of them.
    weights : ndarray of shape (n_rows,)
    method : {"kmeans", "random"}
        Centers by k-means or a random choice of rows.
    rng : numpy.random.RandomState
    """
    if hasattr(model, "start"):  # a model without inducing inputs
        return model.start(X, weights, rng)
    M = len(model.layers[0].Z)
    Z = centers(X, weights, M, method, rng)
    A, Z_first = X, Z
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            n_hidden = A.shape[1]
            inputs = np.hstack([Z, Z_first]) if i and model.input_connected else Z
            layer.Z.copy_(torch.as_tensor(inputs))
            if i == len(model.layers) - 1:
                break
            W = linear_map(A, layer.n_outputs, weights)
            A, Z = A @ W, Z @ W
            if layer.W is not None:
                layer.W.zero_()  # which leaves fed-forward inputs without a mean of their own
                layer.W[:n_hidden].copy_(torch.as_tensor(W))


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
    with threadpool_limits(1):  # the order of sums over threads would change the result
        kmeans = KMeans(n_centers, n_init=1, max_iter=30, random_state=rng)
        return kmeans.fit(X, sample_weight=weights).cluster_centers_
