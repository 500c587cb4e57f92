"""Monotone maps of targets: ``forward`` and ``log_slope`` of arrays, ``inverse`` of tensors."""

import math

import numpy as np
import torch
from scipy.special import ndtri_exp

from ..linalg import LOG_2PI

#: smallest and largest number that has a score, and whose square does not overflow
_SCORED = 1e-300, 1e150
_TINY, _MAX = 5e-324, np.finfo(np.float64).max
_LOG_MOST = 709.0  #: exponentials of more overflow
_LOG_FAR = 345.0  #: likewise of values whose squares are needed
_MOST_SHARE = 1.0 - 2.0**-53  #: largest number below one
_STRAIGHT = 1e-6  #: powers nearer to 0 are as good as a logarithm


class Log:
    """The logarithm of positive targets."""

    name = "log"

    def forward(self, y):
        return np.log(np.maximum(y, _TINY))

    def inverse(self, x):
        return x.clamp(-_LOG_MOST, _LOG_MOST).exp()

    def log_slope(self, y):
        """Logarithm of the derivative; densities are zero where there is no logarithm."""
        return np.where(y > 0.0, -self.forward(y), -np.inf)


class Logit:
    """The log odds of targets between 0 and 1."""

    name = "logit"
    cuts = (-9.0, -3.0, 3.0, 9.0)  #: between which quadrature sees no bend of the inverse
    ends = 20.0  #: size of log odds beyond which targets are 0 or 1 to a part in a billion

    def forward(self, y):
        y = np.clip(y, _TINY, _MOST_SHARE)
        return np.log(y) - np.log1p(-y)

    def inverse(self, x):
        return torch.special.expit(x).clamp(_TINY, _MOST_SHARE)

    def log_slope(self, y):
        """Logarithm of the derivative; densities are zero at 0 and 1, and outside."""
        inside = (y > 0.0) & (y < 1.0)
        y = np.clip(y, _TINY, _MOST_SHARE)
        return np.where(inside, -np.log(y) - np.log1p(-y), -np.inf)


class ExponentialNormal:
    r"""The normal score of positive targets, as if they were exponential.

    .. math:: g(y) = \Phi^{-1}(1 - e^{-y / s})

    Gamma, Weibull and exponential amounts are nearly Gaussian after it. A logarithm would leave
    them a long lower tail, whose mirror image then ruins means. The `unit` `s` is about the mean of
    the targets, or much more if their logarithm is nearly Gaussian.
    """

    name = "exponential-normal"

    def __init__(self, unit):
        self.unit = float(unit)

    @classmethod
    def of(cls, y, weights):
        """The map whose unit is the median of some targets (n,)."""
        return cls(max(_median(y, weights), _TINY))

    def learned(self, bend):
        return ExponentialNormal(np.clip(self.unit * math.exp(min(bend, 100.0)), 1e-300, 1e300))

    def scaled(self, y):
        with np.errstate(over="ignore"):
            return np.clip(y / self.unit, *_SCORED)

    def forward(self, y):
        return _score(self.scaled(y))

    def inverse(self, x):
        y = self.unit * -torch.special.log_ndtr(-x.clamp(-1e150, 1e150))
        return y.clamp(_TINY, _MAX)

    def log_slope(self, y):
        """Logarithm of the derivative; densities are zero where targets are not positive."""
        u = self.scaled(y)
        return np.where(y > 0.0, _log_slope_of_score(u, _score(u)) - math.log(self.unit), -np.inf)

    @staticmethod
    def bent(u, bend):
        """The map of scaled targets whose unit is `exp(bend)`, and the logarithm of its slope."""
        u = (u * torch.exp(-bend)).clamp(*_SCORED)
        z, log_slope = _Score.apply(u)
        return z, log_slope - bend


def _score(u):
    """Normal scores of numbers that are as if of a standard exponential distribution."""
    return np.where(u < 0.5, ndtri_exp(np.log(-np.expm1(-u))), -ndtri_exp(-u))


def _log_slope_of_score(u, z):
    far = np.maximum(z, 1.0)
    near = 0.5 * z * z - u + 0.5 * LOG_2PI
    return np.where(u > 1e6, -np.log(far + 1.0 / far), near)


class _Score(torch.autograd.Function):
    """The score and the logarithm of its slope, which is its derivative."""

    @staticmethod
    def forward(ctx, u):
        z = _score(u.detach().numpy())
        log_slope = _log_slope_of_score(u.detach().numpy(), z)
        z, log_slope = torch.from_numpy(z), torch.from_numpy(log_slope)
        ctx.save_for_backward(z, log_slope)
        return z, log_slope

    @staticmethod
    def backward(ctx, of_z, of_log_slope):
        z, log_slope = ctx.saved_tensors
        slope = log_slope.exp()
        return of_z * slope + of_log_slope * (z * slope - 1.0)


class YeoJohnson:
    r"""The power transformation of Yeo and Johnson (2000) of :math:`u = (y - c) / s`.

    .. math:: g(u) = \operatorname{sign}(u) \, ((1 + |u|)^p - 1) / p

    with :math:`p = \lambda` for positive `u` and :math:`2 - \lambda` for others. Between 0 and 2
    all real numbers are values, so that every prediction has an inverse; the identity is a `curve`
    of 1. `center` and `unit` are the median of the targets, and the median distance from it: other
    units lead to the same map.
    """

    name = "yeo-johnson"

    def __init__(self, center, unit, curve):
        self.center, self.unit = float(center), float(unit)
        self.curve = float(np.clip(curve, _STRAIGHT, 2.0 - _STRAIGHT))

    @classmethod
    def of(cls, y, weights, curve=1.0):
        """The map with the center and the unit of some targets (n,)."""
        with np.errstate(over="ignore"):
            center = _median(y, weights)
            distance = np.minimum(np.abs(y - center), np.finfo(np.float64).max)
            unit = _median(distance, weights) or distance.max() or 1.0
        return cls(center, unit, curve)

    def scaled(self, y):
        with np.errstate(over="ignore"):
            u = (y / 2.0 - self.center / 2.0) / (self.unit / 2.0)
        return np.clip(u, -1e300, 1e300)

    def _power(self, side):
        return np.where(side >= 0.0, self.curve, 2.0 - self.curve)

    def forward(self, y):
        u = self.scaled(y)
        p = self._power(u)
        return np.sign(u) * np.expm1(np.minimum(p * np.log1p(np.abs(u)), _LOG_FAR)) / p

    def inverse(self, x):
        p = torch.where(x >= 0.0, x.new_tensor(self.curve), x.new_tensor(2.0 - self.curve))
        u = torch.expm1((torch.log1p(p * x.abs()) / p).clamp_max(_LOG_MOST))
        return (self.center + self.unit * x.sign() * u).clamp(-_MAX, _MAX)

    def log_slope(self, y):
        u = self.scaled(y)
        return (self._power(u) - 1.0) * np.log1p(np.abs(u)) - math.log(self.unit)

    def learned(self, bend):
        return YeoJohnson(self.center, self.unit, 1.0 + math.tanh(bend))

    @staticmethod
    def bent(u, bend):
        """The map of scaled targets with the curve ``1 + tanh(bend)``, and the logarithm of its slope."""
        size, curve = u.abs().log1p(), 1.0 + bend.tanh()
        p = torch.where(u >= 0.0, curve, 2.0 - curve).clamp_min(_STRAIGHT)
        return u.sign() * (p * size).clamp_max(_LOG_FAR).expm1() / p, (p - 1.0) * size


def _median(values, weights):
    return np.quantile(values, 0.5, weights=weights, method="inverted_cdf")
