"""Kernels of inner products."""

import math

from ...random import normal
from ..covariances import ArcCosineProfile
from .base import Kernel, tensor_like


class ArcCosine(Kernel):
    r"""Arc-cosine kernel of order 1 (Cho and Saul, 2009).

    The limit of a wide layer of rectified linear units. With :math:`u = (x / \ell, b)`,
    :math:`k = \frac{\sigma^2}{\pi} |u| |u'| (\sin t + (\pi - t) \cos t)`
    where :math:`t` is the angle between :math:`u` and :math:`u'`. The diagonal is
    :math:`\sigma^2 |u|^2`.

    Parameters
    ----------
    lengthscale, variance, ard, trainable
        As for :class:`SquaredExponential`.
    bias : float, default=1.0
        The constant input :math:`b`; 0 for none.
    """

    _positive = {"lengthscale": 0.0, "variance": 0.0, "bias": 0.0}
    _may_be_zero = ("bias",)

    def __init__(self, lengthscale=None, variance=1.0, bias=1.0, ard=True, trainable=True):
        self.lengthscale = lengthscale
        self.variance = variance
        self.bias = bias
        self.ard = ard
        self.trainable = trainable

    def bind(self, n_features):
        return self._with_lengthscales(n_features)

    def _scaled(self, X):
        X = X / tensor_like(self.lengthscale, X)
        bias2 = tensor_like(self.bias, X).square()
        return X, bias2, ((X * X).sum(-1) + bias2).clamp_min(1e-12)

    def __call__(self, X, Z):
        X, bias2, norm_x = self._scaled(X)
        Z, _, norm_z = self._scaled(Z)
        norms = (norm_x[..., :, None] * norm_z[..., None, :]).sqrt()
        angle = ArcCosineProfile.apply((X @ Z.mT + bias2) / norms)
        return tensor_like(self.variance, X) / math.pi * norms * angle

    def diag(self, X):
        return tensor_like(self.variance, X) * self._scaled(X)[2]

    def features(self, n, n_features, generator, like, importance=0.0):
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        omega = omega / tensor_like(self.lengthscale, like)[..., None]
        shift = tensor_like(self.bias, like) * normal((*n[:-1], 1, n[-1]), generator, like)
        root = (2.0 * tensor_like(self.variance, like)).sqrt()
        return lambda X: root * (X @ omega + shift).clamp_min(0.0)[..., None]


class Linear(Kernel):
    r"""Linear kernel, :math:`b^2 + \sum_q \sigma_q^2 x_q x'_q`.

    Parameters
    ----------
    variance : float, array of shape (n_features,) or None, default=None
        None stands for one over the number of inputs.
    bias : float, default=1.0
        Standard deviation of the constant; 0 for none.
    ard, trainable
        As for :class:`SquaredExponential`.
    """

    _positive = {"variance": 0.0, "bias": 0.0}
    _may_be_zero = ("bias",)

    def __init__(self, variance=None, bias=1.0, ard=True, trainable=True):
        self.variance = variance
        self.bias = bias
        self.ard = ard
        self.trainable = trainable

    def bind(self, n_features):
        variance = self._per_feature(self.variance, 1.0 / n_features, n_features, "variance")
        return self.with_values(variance=variance)

    def __call__(self, X, Z):
        return (X * tensor_like(self.variance, X)) @ Z.mT + tensor_like(self.bias, X).square()

    @property
    def slopes(self):
        return self.variance

    def diag(self, X):
        bias2 = tensor_like(self.bias, X).square()
        return (X.square() * tensor_like(self.variance, X)).sum(-1) + bias2

    def features(self, n, n_features, generator, like, importance=0.0):
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        omega = omega * tensor_like(self.variance, like).sqrt()[..., None]
        shift = tensor_like(self.bias, like) * normal((*n[:-1], 1, n[-1]), generator, like)
        return lambda X: (X @ omega + shift)[..., None]
