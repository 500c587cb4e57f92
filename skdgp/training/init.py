"""Starting values that depend on data."""

import numpy as np
import torch

from ..gp.centers import METHODS, centers
from ..gp.gaussian import GaussianBlock
from ..gp.means import linear_map
from .greedy import greedy
from .handover import hand_over
from .lengthscales import shorten_lengthscales
from .median import median

STARTS = (*METHODS, "median", "greedy")

__all__ = ["METHODS", "STARTS", "centers", "hand_over", "start"]


def start(model, X, weights, method, rng, y=None, train=None):
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
    method : {"kmeans", "random", "median", "greedy"}
        Centers by k-means or a random choice of rows. The last two go on from k-means.
    rng : numpy.random.RandomState
    y : ndarray of shape (n_rows, k), optional
        Targets as the model sees them, for the greedy start.
    train : callable, optional
        Trains the model, for the greedy start: see :func:`~skdgp.training.greedy.greedy`.

    Raises
    ------
    ValueError
        If the model has no inducing inputs to be placed.
    """
    if model.start is not None and method == METHODS[0]:  # a model without inducing inputs
        return model.start(X, weights, rng)
    if not all(hasattr(layer, "Z") for layer in getattr(model, "layers", [None])):
        raise ValueError(
            f"init={method!r} places inducing inputs, and {type(model).__name__} has none; leave init "
            f"at {METHODS[0]!r}, which such a model answers by a method `start`."
        )
    if method not in METHODS and not all(
        isinstance(layer.q, GaussianBlock) for layer in model.layers
    ):
        raise ValueError(
            f"init={method!r} sets the posterior of each layer, and {type(model).__name__} has none for "
            f"each alone; choose init={METHODS[0]!r} or {METHODS[1]!r}."
        )
    inputs = _place(model, X, weights, method if method in METHODS else "kmeans", rng)
    if method in METHODS and y is not None:
        *hidden, layer = model.layers
        if any(other.W is None for other in hidden):  # which hand nothing on as yet
            layer, inputs = hidden[0], X
        shorten_lengthscales(layer, model.likelihood(), inputs, y, weights)
    if method == "median":
        median(model, X, rng)
    if method == "greedy":
        greedy(model, X, y, weights, train, rng)


def _place(model, X, weights, method, rng):
    """Set inducing inputs and mean functions; what the last layer then sees of the rows."""
    M = model.layers[0].Z.shape[-2]
    Z = centers(X, weights, M, method, rng)
    A, Z_first = X, Z
    with torch.no_grad():
        for i, layer in enumerate(model.layers):
            n_hidden = A.shape[1]
            inputs = np.hstack([Z, Z_first]) if i and model.input_connected else Z
            layer.Z.copy_(torch.as_tensor(inputs))
            if i == len(model.layers) - 1:
                return np.hstack([A, X]) if i and model.input_connected else A
            W = linear_map(A, layer.n_outputs, weights)
            A, Z = A @ W, Z @ W
            if layer.W is not None:
                layer.W.zero_()  # which leaves fed-forward inputs without a mean of their own
                layer.W[:n_hidden].copy_(torch.as_tensor(W))
