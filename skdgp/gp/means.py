"""Mean functions of hidden layers: fixed linear maps, as rows times a matrix."""

import numpy as np


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
