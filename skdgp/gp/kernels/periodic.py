"""The kernel of functions that repeat."""

import math

import numpy as np
import torch

from .base import Kernel, over_rows, tensor_like
from .stationary import SquaredExponential


class Periodic(Kernel):
    r"""Periodic kernel (MacKay, 1998).

    .. math:: k(x, x') = \sigma^2 \exp\left(-2 \sum_q \frac{\sin^2(\pi (x_q - x'_q) / p_q)}{\ell_q^2}\right)

    It is the squared exponential of circles on which inputs go round. Functions repeat forever; times a kernel
    of a long lengthscale, they change in time.

    Parameters
    ----------
    period : float, array of shape (n_features,), Prior or Fixed, default=1.0
        In units of X in the first layer, of dates in days; else in units of the inputs. Training finds it only
        from a start that is nearly right.
    lengthscale : float, array of shape (n_features,), Prior or Fixed, default=1.0
        On a circle with the radius 1.
    variance, ard, trainable, on
        As for :class:`SquaredExponential`.

    References
    ----------
    D. MacKay (1998). Introduction to Gaussian processes. Neural Networks and Machine Learning, Springer.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.kernels import Periodic
    >>> kernel = Periodic(period=7.0)
    >>> X = torch.tensor([[0.0], [3.5], [7.0]])
    >>> kernel(X, X[:1]).numpy().round(3).ravel()
    array([1.   , 0.135, 1.   ], dtype=float32)
    """

    _positive = {"period": 0.0, "lengthscale": 0.0, "variance": 0.0}
    _roles = {"lengthscale": "lengthscale", "variance": "variance"}
    _of_inputs = {"period": lambda n: 1.0, "lengthscale": lambda n: 1.0}
    extrapolates = True
    _unit = 1.0  #: of the period, in units of the inputs

    def __init__(
        self, period=1.0, lengthscale=1.0, variance=1.0, ard=True, trainable=True, on=None
    ):
        self.period = period
        self.lengthscale = lengthscale
        self.variance = variance
        self.ard = ard
        self.trainable = trainable
        self.on = on

    def in_units(self, scale):
        return self.with_values(_unit=np.asarray(scale, dtype=np.float64))

    def with_inputs(self, n_features):
        new = super().with_inputs(n_features)
        if np.ndim(self._unit):
            more = np.ones(n_features - len(self._unit))
            new = new.with_values(_unit=np.append(self._unit, more))
        return new

    def _circles(self, X):
        angle = X * (2.0 * math.pi * tensor_like(self._unit, X) / tensor_like(self.period, X))
        return torch.cat([angle.cos(), angle.sin()], -1)

    def _of_circles(self, like):
        lengthscale = tensor_like(self.lengthscale, like)
        if lengthscale.ndim:
            lengthscale = (
                torch.cat([lengthscale] * 2, -1) if lengthscale.shape[-1] > 1 else lengthscale
            )
        return SquaredExponential(lengthscale).with_values(variance=self.variance)

    def __call__(self, X, Z):
        H = self._circles(X)
        return self._of_circles(X)(H, H if X is Z else self._circles(Z))

    def between(self, X, Z):
        return self._of_circles(X).between(self._circles(X), self._circles(Z))

    def within(self, X):
        return self._of_circles(X).within(self._circles(X))

    def diag(self, X):
        return over_rows(self.variance, X)

    def features(self, n, n_features, generator, like, importance=0.0):
        inner = self._of_circles(like)
        phi = inner.features(n, 2 * n_features, generator, like, importance)
        return lambda X: phi(self._circles(X))

    @property
    def slopes(self):
        period, lengthscale = (
            torch.as_tensor(part, dtype=torch.float64) for part in (self.period, self.lengthscale)
        )
        turns = 2.0 * math.pi * tensor_like(self._unit, period) / period
        return self.variance * (turns / lengthscale) ** 2
