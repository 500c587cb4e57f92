"""A simple model that tells what can be expected of a better one."""

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

_LENGTHSCALES = (0.03, 0.1, 0.3, 1.0, 3.0)  #: relative to the square root of the number of inputs
_NOISES = 10.0 ** np.arange(-4.0, 1.1, 0.5)  #: relative to the variance of the function
_LEAST = 0.05  #: predictive variance, relative to the target's, below which nobody has to go


class Reference:
    """Leave-one-out predictions of a Gaussian process with a Matern 3/2 kernel.

    Lengthscale, the same for all inputs, and noise are the best of a few; every row is predicted
    from all others in closed form (Rasmussen and Williams, 2006, section 5.4.2).

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Standardized.
    y : ndarray of shape (n, k)

    Attributes
    ----------
    log_density : ndarray of shape (n,)
        Of each row given the others, summed over outputs. Variances have a floor at a twentieth of the
        target's: where the function is known, more confidence is no merit.
    constant : ndarray of shape (n,)
        Log-density of each row by mean and variance of all.
    mean : ndarray of shape (n, k)
    mse : float
        Mean squared error, relative to the variance of `y`.
    lengthscale, noise : float
        The best ones; the lengthscale relative to the square root of the number of inputs, the
        noise to the variance of the function.
    n_effective : float
        Effective number of parameters, the trace of the smoother, for a noise of a hundredth at
        least; below, it counts details that nobody needs.
    """

    def __init__(self, X, y):
        center, scale = y.mean(0), y.std(0)
        scale = np.where(scale > 1e-12, scale, 1.0)
        t = (y - center) / scale
        self.constant = -0.5 * (np.square(t) + np.log(2.0 * np.pi)).sum(1) - np.log(scale).sum()
        distance = cdist(X, X) / np.sqrt(X.shape[1])
        best = -np.inf
        for lengthscale in _LENGTHSCALES:
            r = np.sqrt(3.0) / lengthscale * distance
            values, U = eigh((1.0 + r) * np.exp(-r), driver="evd")
            values, squares, Ut = np.maximum(values, 0.0), np.square(U), U.T @ t
            for noise in _NOISES:
                inverse = 1.0 / (values + noise)
                diagonal = squares @ inverse  # n, of the inverse
                error = (U @ (inverse[:, None] * Ut)) / diagonal[:, None]
                # the variance of the function makes the squared errors right on average
                var = np.mean(np.square(error) * diagonal[:, None], 0) / diagonal[:, None]
                var = np.maximum(var, _LEAST)
                logs = -0.5 * (np.square(error) / var + np.log(2.0 * np.pi * var))
                if logs.sum() > best:
                    best = logs.sum()
                    self.lengthscale, self.noise = lengthscale, noise
                    self.log_density = (logs - np.log(scale)).sum(1)
                    self.mean = y - error * scale
                    self.mse = float(np.mean(np.square(error)))
                    self.n_effective = float(np.sum(values / (values + max(noise, 0.01))))
