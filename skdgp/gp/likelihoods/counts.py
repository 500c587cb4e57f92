"""Likelihoods of counts."""

import math
from itertools import pairwise

import numpy as np
import torch
from scipy import special

from ...quadrature import gauss_hermite, gauss_legendre
from ...random import gamma
from ..kernels.base import tensor_like
from .base import LARGEST, LOG_2PI, Likelihood

_N_GAMMAS = 62  #: steps of a rule for them
_LONG = 1e18  #: counts to which samples are integers
_NEWTON = 30  #: iterations, from a start where they converge monotonically, or halving an interval
_NEGLIGIBLE = 30.0  #: below the largest, in logarithms, an integrand is left out
_STEEP = 7.0  #: widths of the step of a distribution function, on each side of it
_WIDE = 6.5  #: standard deviations beyond which a Gaussian has ended


def _over_rates(shape, log_rate, sd):
    """``P(Gamma(shape) > rate)``, where the log of the rate is N(log_rate, sd^2).

    The trapezoidal rule over the rate; good to 1e-8 for deviations below half of that of the gamma
    variable's logarithm.
    """
    total, norm = 0.0, 0.0
    for z in np.arange(-8, 9) * 0.8:
        weight = math.exp(-0.5 * z * z)
        rate = (log_rate + z * sd).clamp_max(LARGEST).exp()
        total = total + weight * torch.special.gammaincc(shape, rate)
        norm += weight
    return total / norm


def _over_gammas(shape, log_rate, sd):
    """The same by the trapezoidal rule over the gamma variable, for larger deviations."""
    spread = shape.rsqrt()
    level = (shape.log() - log_rate) / sd
    # few gamma variables of a small shape are as small as this: less than 1e-8
    lowest = -6.0 - 12.8 * spread
    step = (6.0 - lowest) / _N_GAMMAS
    total, norm = 0.0, 0.0
    for i in range(_N_GAMMAS + 1):
        x = (lowest + i * step) * spread  # log(Gamma / shape)
        weight = torch.exp(shape * (x - torch.expm1(x)))
        total = total + weight * torch.special.ndtr(level + x / sd)
        norm = norm + weight
    return total / norm


class _Counts(Likelihood):
    """Counts whose mean is :math:`r e^f`."""

    discrete = True

    def check_target(self, y):
        if (y < 0).any():
            raise ValueError(
                f"Some values of y are negative, but the {type(self).__name__} likelihood is for counts."
            )
        parts = y[y % 1.0 != 0.0]
        if len(parts):
            raise ValueError(
                f"y has the value {parts[0]:g}, but the {type(self).__name__} likelihood is for counts, which "
                "are whole numbers; choose another likelihood, or round y."
            )

    def _log_rate(self, f):
        return f + tensor_like(self.rate, f).log()

    def conditional_mean(self, f):
        return self._log_rate(f).clamp_max(LARGEST).exp()

    def variance_of_mean(self, m, v):
        # mean^2 (e^v - 1), where neither factor may overflow alone
        log_var = 2.0 * (self._log_rate(m) + v) + torch.log(-torch.expm1(-v))
        return log_var.clamp_max(2.0 * LARGEST).exp()

    def _draw(self, rate, generator, like):
        rate = rate.clamp_max(math.exp(LARGEST)).to(generator.device)
        counts = torch.poisson(rate.clamp_max(_LONG), generator=generator)
        # what no integer holds differs from its rate by parts in a billion
        return torch.where(rate > _LONG, rate, counts).to(like.device)


class Poisson(_Counts):
    r"""Counts with rate :math:`r e^f`.

    Its variance is the mean. Where counts vary more, or more of them are zero than rates explain,
    :class:`NegativeBinomial` is the better choice.

    Parameters
    ----------
    rate : float, array of shape (n_outputs,) or None, default=None
        Starting value of :math:`r`; None stands for the mean of the target.
    trainable : bool, default=True
        Whether training changes :math:`r`.
    """

    _positive = {"rate": 0.0}

    def __init__(self, rate=None, trainable=True):
        self.rate = rate
        self.trainable = trainable

    def _default(self, name, y, weights):
        return np.maximum(np.average(y, axis=0, weights=weights), 1e-3)

    def log_density(self, y, f):
        rate = tensor_like(self.rate, f)
        return y * (f + rate.log()) - rate * f.exp() - torch.lgamma(y + 1.0)

    def expected_log_prob(self, y, m, v):
        rate = tensor_like(self.rate, m)
        return (y * (m + rate.log()) - rate * torch.exp(m + 0.5 * v) - torch.lgamma(y + 1.0)).sum(
            -1
        )

    def log_partition(self, y, m, v, alpha=1.0):
        # adaptive Gauss-Hermite: nodes around the mode of p(y | f)^alpha N(f; m, v), as wide as it is
        rate = tensor_like(self.rate, m)
        with torch.no_grad():
            f = torch.minimum(m + alpha * v * y, torch.maximum(m, torch.log(y / rate)))
            # at a mode above 0, rate e^f = y + (m - f) / (alpha v): no start is further off
            most = (y + m.clamp_min(0.0) / (alpha * v)) / rate
            f = torch.minimum(f, most.log().clamp_min(0.0))
            for _ in range(_NEWTON):  # from the right, where Newton's method is monotone
                excess = alpha * rate * f.exp()
                f = f - ((f - m) / v - alpha * y + excess) / (1.0 / v + excess)
            sd = (1.0 / v + alpha * rate * f.exp()).rsqrt()
        nodes, log_weights = gauss_hermite(self.n_nodes, m)
        shape = (-1,) + (1,) * m.ndim
        nodes = nodes.view(shape)
        x = f + sd * nodes
        log_z = alpha * self.log_density(y, x) + 0.5 * (nodes.square() - (x - m).square() / v)
        log_z = torch.logsumexp(log_weights.view(shape) + log_z, 0)
        return (log_z + sd.log() - 0.5 * v.log()).sum(-1)

    def moments(self, m, v):
        mean = (self._log_rate(m) + 0.5 * v).clamp_max(LARGEST).exp()
        return mean, mean + self.variance_of_mean(m, v)

    def cdf(self, y, m, v):
        # a count exceeds y where a gamma variable of shape y + 1 is below the rate; the difference
        # of their logarithms is integrated over that of the two which is narrower
        shape = torch.floor(y.clamp_min(0.0)) + 1.0
        log_rate = self._log_rate(m)
        shape, log_rate, sd = torch.broadcast_tensors(shape, log_rate, v.sqrt())
        known = shape.sqrt() * sd < 0.5
        inside = torch.empty_like(log_rate, memory_format=torch.contiguous_format)
        for which, integral in ((known, _over_rates), (~known, _over_gammas)):
            inside[which] = integral(shape[which], log_rate[which], sd[which])
        return torch.where(y >= 0.0, inside, 0.0)

    def sample(self, f, generator):
        return self._draw(self._log_rate(f).clamp_max(LARGEST).exp(), generator, f)


class NegativeBinomial(_Counts):
    r"""Counts with mean :math:`\mu = r e^f` and variance :math:`\mu + a \mu^2`.

    A Poisson variable whose rate varies like a gamma variable of variance :math:`a` around what the model
    says: counts that come in clusters. Many zeros beside large counts are a sign of a large :math:`a`. Where
    zeros have a cause of their own, let a classifier tell them from other counts, and model those alone.

    Parameters
    ----------
    rate : float, array of shape (n_outputs,) or None, default=None
        Starting value of :math:`r`; None stands for the mean of the target.
    overdispersion : float, array of shape (n_outputs,) or None, default=None
        Starting value of :math:`a`, larger than 1e-4; with 0 it would be the Poisson distribution. None stands
        for half of what explains the variance of the target without a model, between 0.05 and 1.
    trainable : bool, default=True
        Whether training changes both.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.likelihoods import NegativeBinomial
    >>> likelihood = NegativeBinomial(rate=2.0, overdispersion=0.5)
    >>> likelihood.log_prob(torch.tensor([[3.0]]), torch.tensor([[0.0]])).numpy().round(4)
    array([-2.0794], dtype=float32)
    """

    n_nodes = 56  # its logarithm has poles at a distance of pi from the real line
    _positive = {"rate": 0.0, "overdispersion": 1e-4}

    def __init__(self, rate=None, overdispersion=None, trainable=True):
        self.rate = rate
        self.overdispersion = overdispersion
        self.trainable = trainable

    def _default(self, name, y, weights):
        mean = np.maximum(np.average(y, axis=0, weights=weights), 1e-3)
        if name == "rate":
            return mean
        variance = np.average(np.square(y - mean), axis=0, weights=weights)
        return np.clip(0.5 * (variance - mean) / mean**2, 0.05, 1.0)

    def log_density(self, y, f):
        size = 1.0 / tensor_like(self.overdispersion, f)
        x = self._log_rate(f) - size.log()
        log_choose = torch.lgamma(y + size) - torch.lgamma(size) - torch.lgamma(y + 1.0)
        return log_choose + y * x - (y + size) * torch.nn.functional.softplus(x)

    def log_partition(self, y, m, v, alpha=1.0):
        # p(y | f)^alpha N(f; m, v) is log-concave, and falls from its mode faster than a Gaussian of variance v
        with torch.no_grad():
            size, sd = 1.0 / tensor_like(self.overdispersion, m), v.sqrt()
            shift = self._log_rate(m) - size.log() - m

            def log_joint(f):
                x = f + shift
                log_p = y * x - (y + size) * torch.nn.functional.softplus(x)
                return alpha * log_p - 0.5 * (f - m).square() / v

            def bisect(low, high, is_left):
                for _ in range(_NEWTON):
                    f = 0.5 * (low + high)
                    left = is_left(f)
                    low, high = torch.where(left, f, low), torch.where(left, high, f)
                return 0.5 * (low + high)

            mode = bisect(
                m - alpha * v * size,
                m + alpha * v * y,
                lambda f: alpha * (y - (y + size) * torch.sigmoid(f + shift)) > (f - m) / v,
            )
            least, most = log_joint(mode) - _NEGLIGIBLE, math.sqrt(2.0 * _NEGLIGIBLE) * sd
            low = bisect(mode - most, mode, lambda f: log_joint(f) < least)
            high = bisect(mode, mode + most, lambda f: log_joint(f) > least)
        nodes, weights = gauss_legendre(self.n_nodes // 2, m)
        shape = (-1,) + (1,) * m.ndim
        nodes, log_weights = 0.5 * (1.0 + nodes.view(shape)), (0.5 * weights.view(shape)).log()
        log_z = []
        for a, b in ((low, mode), (mode, high)):
            f = torch.lerp(a, b, nodes)
            log_p = alpha * self.log_density(y, f) - 0.5 * (f - m).square() / v
            log_z.append(log_p + log_weights + (b - a).clamp_min(torch.finfo(m.dtype).tiny).log())
        return (torch.logsumexp(torch.cat(log_z), 0) - 0.5 * (LOG_2PI + v.log())).sum(-1)

    def moments(self, m, v):
        log_rate, a = self._log_rate(m), tensor_like(self.overdispersion, m)
        mean = (log_rate + 0.5 * v).clamp_max(LARGEST).exp()
        # of the rate: mean^2 (e^v (1 + a) - 1), where neither factor may overflow alone
        log_var = 2.0 * (log_rate + v) + torch.log(a - torch.expm1(-v))
        return mean, mean + log_var.clamp_max(2.0 * LARGEST).exp()

    def cdf(self, y, m, v):
        """Given the rate an incomplete beta function, which changes where the rate is about `y`."""
        size = 1.0 / tensor_like(self.overdispersion, m)
        count, m, sd, size = torch.broadcast_tensors(
            y.clamp_min(0.0).floor(), self._log_rate(m), v.sqrt(), size
        )
        middle, width = torch.log(count + 0.5), (1.0 / size + 1.0 / (count + 1.0)).sqrt()
        ends = [middle + step * width for step in (-_STEEP, 0.0, _STEEP)]
        ends = [
            m - _WIDE * sd,
            *(torch.maximum(torch.minimum(x, m + _WIDE * sd), m - _WIDE * sd) for x in ends),
            m + _WIDE * sd,
        ]
        nodes, weights = gauss_legendre(self.n_nodes // 3, m)
        total = norm = 0.0
        for a, b in pairwise(ends):
            for x, weight in zip((0.5 * (1.0 + nodes)).tolist(), weights.tolist()):
                log_rate = a + x * (b - a)
                density = weight * (b - a) * torch.exp(-0.5 * ((log_rate - m) / sd).square())
                p = torch.sigmoid(size.log() - log_rate)
                inside = special.betainc(*(part.cpu().numpy() for part in (size, count + 1.0, p)))
                total = total + density * torch.as_tensor(inside).to(p)
                norm = norm + density
        return torch.where(y >= 0.0, total / norm, 0.0)

    def sample(self, f, generator):
        a = tensor_like(self.overdispersion, f)
        log_rate = self._log_rate(f).clamp_max(LARGEST)
        mixing = gamma(1.0 / a, f.shape, generator, f) * a
        return self._draw(log_rate.exp() * mixing, generator, f)
