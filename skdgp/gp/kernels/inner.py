"""Kernels of inner products."""

import math

import torch
from torch.autograd.function import once_differentiable

from ...linalg import arccos
from ...random import normal
from .base import Kernel, over_rows, tensor_like

_NEAR_ONE = 1.0 - 1e-15  #: cosine beyond which the slope of the angle is infinite


def rectified(x, order):
    """Powers of rectified linear units: steps, ramps or parabolas."""
    return (x > 0.0).to(x) if order == 0 else x.clamp_min(0.0) ** order


class ArcCosine(Kernel):
    r"""Arc-cosine kernel (Cho and Saul, 2009).

    The limit of a wide layer of rectified linear units. With :math:`u = (x / \ell, b)`,
    :math:`k = \frac{\sigma^2}{\pi} |u| |u'| (\sin t + (\pi - t) \cos t)`
    where :math:`t` is the angle between :math:`u` and :math:`u'`. The diagonal is
    :math:`\sigma^2 |u|^2`. This is order 1; order 0 is the limit of steps, with
    :math:`\sigma^2 (\pi - t) / \pi`, and order 2 that of squared rectified linear units, with
    :math:`3 \sigma^2 |u|^4` on the diagonal.

    Parameters
    ----------
    lengthscale, variance, ard, trainable, on
        As for :class:`SquaredExponential`.
    bias : float, default=1.0
        The constant input :math:`b`; 0 for none.
    order : {0, 1, 2}, default=1
        Power of the rectified linear units.
    """

    _positive = {"lengthscale": 0.0, "variance": 0.0, "bias": 0.0}
    _roles = {"lengthscale": "lengthscale", "variance": "variance"}
    _may_be_zero = ("bias",)
    _allowed = {"order": (0, 1, 2)}
    _of_inputs = {"lengthscale": math.sqrt}

    def __init__(
        self, lengthscale=None, variance=1.0, bias=1.0, ard=True, trainable=True, order=1, on=None
    ):
        self.lengthscale = lengthscale
        self.variance = variance
        self.bias = bias
        self.ard = ard
        self.trainable = trainable
        self.on = on
        self.order = order

    @property
    def extrapolates(self):
        return self.order > 0

    def _scaled(self, X):
        X = X / tensor_like(self.lengthscale, X)
        bias2 = tensor_like(self.bias, X).square()
        return X, bias2, ((X * X).sum(-1) + over_rows(bias2, X)).clamp_min(1e-12)

    def __call__(self, X, Z):
        X, bias2, norm_x = self._scaled(X)
        Z, _, norm_z = self._scaled(Z)
        return self._of_inner_products(X @ Z.mT + bias2, norm_x, norm_z)

    def _of_inner_products(self, inner, left, right):
        return tensor_like(self.variance, inner) * arc_cosine(self.order, inner, left, right)

    def _of_norms(self, norms, variance=None):
        variance = tensor_like(self.variance, norms) if variance is None else variance
        return variance * (1.0, 1.0, 3.0)[self.order] * norms**self.order

    def _of_products(self, G, left, right):
        bias2, scale = tensor_like(self.bias, G).square(), tensor_like(self.lengthscale, G) ** -2
        # a row of zeros has no angle
        norms = [(d * scale + bias2).clamp_min(1e-12) for d in (left, right)]
        return self._of_inner_products(G * scale + bias2, *norms)

    def diag_from_gram(self, d):
        bias2, scale = tensor_like(self.bias, d).square(), tensor_like(self.lengthscale, d) ** -2
        return self._of_norms((d * scale + bias2).clamp_min(1e-12))

    def diag(self, X):
        return self._of_norms(self._scaled(X)[2], over_rows(self.variance, X))

    def features(self, n, n_features, generator, like, importance=0.0):
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        omega = omega / tensor_like(self.lengthscale, like)[..., None]
        shift = tensor_like(self.bias, like) * normal((*n[:-1], 1, n[-1]), generator, like)
        root = (2.0 * tensor_like(self.variance, like)).sqrt()

        def phi(X):
            return root * rectified(X @ omega + shift, self.order)[..., None]

        return phi


class Linear(Kernel):
    r"""Linear kernel, :math:`b^2 + \sum_q \sigma_q^2 x_q x'_q`.

    Parameters
    ----------
    variance : float, array of shape (n_features,) or None, default=None
        None stands for one over the number of inputs.
    bias : float, default=1.0
        Standard deviation of the constant; 0 for none.
    ard, trainable, on
        As for :class:`SquaredExponential`.
    """

    _positive = {"variance": 0.0, "bias": 0.0}
    _roles = {"variance": "variance"}
    _may_be_zero = ("bias",)
    _of_inputs = {"variance": lambda n: 1.0 / n}
    _of_length = {"variance": 1.0}
    extrapolates = True

    def __init__(self, variance=None, bias=1.0, ard=True, trainable=True, on=None):
        self.variance = variance
        self.bias = bias
        self.ard = ard
        self.trainable = trainable
        self.on = on

    def __call__(self, X, Z):
        inner = (X * tensor_like(self.variance, X)) @ Z.mT
        bias2 = tensor_like(self.bias, X).square()
        return inner + bias2 if bias2.ndim else inner.add_(bias2)  # one for each state, or for all

    def from_gram(self, G, left=None, right=None):
        return tensor_like(self.variance, G) * G + tensor_like(self.bias, G).square()

    def diag_from_gram(self, d):
        return tensor_like(self.variance, d) * d + tensor_like(self.bias, d).square()

    @property
    def slopes(self):
        return self.variance

    def diag(self, X):
        bias2 = over_rows(self.bias, X).square()
        return (X.square() * tensor_like(self.variance, X)).sum(-1) + bias2

    def features(self, n, n_features, generator, like, importance=0.0):
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        omega = omega * tensor_like(self.variance, like).sqrt()[..., None]
        shift = tensor_like(self.bias, like) * normal((*n[:-1], 1, n[-1]), generator, like)
        return lambda X: (X @ omega + shift)[..., None]


def arc_cosine(order, inner, left, right):
    """Arc-cosine kernels from inner products and squared norms (Cho and Saul, 2009)."""
    if order == 1:
        return _FirstOrder.apply(inner, left, right)
    norms = (left[..., :, None] * right[..., None, :]).sqrt()
    c = inner / norms
    if order == 0:
        return 1.0 - arccos(c.clamp(-_NEAR_ONE, _NEAR_ONE)) / c.new_tensor(math.pi)
    return norms.square() * _SecondProfile.apply(c) / c.new_tensor(math.pi)


class _FirstOrder(torch.autograd.Function):
    """``|u| |v| (sin(t) + (pi - t) cos(t)) / pi``, whose slope in the inner product is ``(pi - t) / pi``."""

    @staticmethod
    def forward(ctx, inner, left, right):
        norms = left.sqrt()[..., :, None] * right.sqrt()[..., None, :]
        c = (inner / norms).clamp_(-1.0, 1.0)
        share = c.new_tensor(1.0 / math.pi)  # ONNX has plain numbers in single precision
        complement = arccos(-c).mul_(share)
        sine = torch.sqrt_((1.0 - c).mul_(1.0 + c)).mul_(norms).mul_(share)
        ctx.save_for_backward(left, right, complement, sine)
        return torch.addcmul(sine, complement, c.mul_(norms))

    @staticmethod
    @once_differentiable
    def backward(ctx, dK):
        left, right, complement, sine = ctx.saved_tensors
        T = dK * sine
        return dK * complement, 0.5 * T.sum(-1) / left, 0.5 * T.sum(-2) / right


class _SecondProfile(torch.autograd.Function):
    """``3 sin(t) cos(t) + (pi - t) (1 + 2 c^2)`` of ``c = cos(t)``; its slope is four times order one."""

    @staticmethod
    def forward(ctx, c):
        c = c.clamp(-1.0, 1.0)
        complement, sine = arccos(-c), torch.sqrt((1.0 - c) * (1.0 + c))
        ctx.save_for_backward(sine + complement * c)
        return 3.0 * sine * c + complement * (1.0 + 2.0 * c * c)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return 4.0 * g * ctx.saved_tensors[0]
