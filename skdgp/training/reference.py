"""A simple model as a reference for the predictions of a better one."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

_LENGTHSCALES = (0.03, 0.1, 0.3, 1.0, 3.0)  #: relative to the square root of the number of inputs
_NOISES = 10.0 ** np.arange(-4.0, 1.1, 0.5)  #: relative to the variance of the function
_LEAST = 0.05  #: predictive variance, relative to the target's, below which nobody has to go
MOST_GAIN = -0.5 * np.log(_LEAST)  #: of log density per row and output over a constant


class LeaveOneOut(NamedTuple):
    """Predictions of each row from all others, with the noise that makes them best."""

    log_density: np.ndarray  #: (n,), summed over outputs; variances have a floor at `_LEAST`
    error: np.ndarray  #: (n, k)
    noise: float  #: relative to the variance of the function
    values: np.ndarray  #: (n,), eigenvalues of the covariance matrix

    @classmethod
    def best(cls, K, t):
        """Predict `t` (n, k), of variance 1, with the best noise for functions with covariance `K`.

        The noise has the highest leave-one-out log density. The predictions have a closed form
        (Rasmussen and Williams, 2006, section 5.4.2).
        """
        values, U = eigh(K, driver="evd")
        values, squares, Ut = np.maximum(values, 0.0), np.square(U), U.T @ t
        inverses = 1.0 / (values + _NOISES[:, None])  # noises, n
        diagonals = (inverses @ squares.T)[..., None]  # of the inverse matrices
        errors = (U @ (inverses[..., None] * Ut)) / diagonals  # noises, n, k
        # the variance of the function makes the squared errors right on average
        var = np.mean(np.square(errors) * diagonals, 1, keepdims=True) / diagonals
        var = np.maximum(var, _LEAST)
        logs = -0.5 * (np.square(errors) / var + np.log(2.0 * np.pi * var)).sum(2)
        i = int(np.argmax(logs.sum(1)))
        return cls(logs[i], errors[i], float(_NOISES[i]), values)


class Reference:
    """Leave-one-out predictions of a Gaussian process with a Matern 3/2 kernel.

    Lengthscale, the same for all standardized inputs `X` (n, d), and noise are the best of a few.

    Attributes
    ----------
    log_density : ndarray of shape (n,)
        Of each row given the others, summed over outputs. Variances have a floor at a twentieth of
        the target's: where the function is known, more confidence is no merit.
    constant : ndarray of shape (n,)
        Log density of each row by mean and variance of all.
    mean : ndarray of shape (n, k)
    mse : float
        Mean squared error, relative to the variance of `y`.
    lengthscale, noise : float
        The lengthscale is relative to the square root of the number of inputs, the noise to the
        variance of the function.
    n_effective : float
        Effective number of parameters, the trace of the smoother, for a noise of a hundredth at
        least; below, it counts details that nobody needs.
    """

    def __init__(self, X, y):
        center, scale = y.mean(0), y.std(0)
        scale = np.where(scale > 1e-12, scale, 1.0)
        t = (y - center) / scale
        self.constant = constant_log_density(t) - np.log(scale).sum()
        distance = cdist(X, X) / np.sqrt(X.shape[1])
        best = None
        for lengthscale in _LENGTHSCALES:
            r = np.sqrt(3.0) / lengthscale * distance
            loo = LeaveOneOut.best((1.0 + r) * np.exp(-r), t)
            if best is None or loo.log_density.sum() > best.log_density.sum():
                self.lengthscale, best = lengthscale, loo
        self.noise = best.noise
        self.log_density = best.log_density - np.log(scale).sum()
        self.mean = y - best.error * scale
        self.mse = float(np.mean(np.square(best.error)))
        self.n_effective = float(np.sum(best.values / (best.values + max(best.noise, 0.01))))


def constant_log_density(t):
    """Log density of standardized targets (n, k) under the standard normal, summed over outputs."""
    return -0.5 * (np.square(t) + np.log(2.0 * np.pi)).sum(1)
