"""Likelihoods of counts, with their exposures."""

import math
from itertools import pairwise

import numpy as np
import torch

from ...quadrature import gauss_hermite, gauss_legendre, peak
from ..kernels.base import tensor_like
from .base import LARGEST, Likelihood, hermite

_LONG = 1e18  #: counts to which samples are integers
# Distribution functions are integrals of analytic functions, to which these rules are good to 1e-10.
#: Deviations of the log rate for trapezoidal rules over it: widths of the log threshold, and e-folds
_RESOLVED = 0.6, 0.5
_HERMITE = {0.25: 6, 0.5: 11}  #: Gauss-Hermite nodes that do for these parts of them
_STEP, _STEPS = 0.65, 11  #: of these rules: deviations, and how many on each side of the mean
_SPACINGS = 0.45, 0.34  #: widest ones over the log threshold: in its widths, and in e-folds
_ENDS = 7.0, 26.0  #: of its density: in widths, and in e-folds of an exponential tail
_N_THRESHOLDS = 32  #: steps over it are multiples of this: rows with as many are worked on together
_RARE = 1e-3  #: probability of a tail below which its relative error needs nodes of its own
_N_RARE = 28  #: of these, on each side of the mode
_LEAST_VARIANCE = 1e-16  #: of a log rate, where it is known
_COST = 2.0  #: of a node over rates, in those over thresholds
_FEW = 200  #: counts up to which a sum of probabilities takes less than an incomplete beta function
RAREST = 700.0  #: -log of the probability of no count, where that of few more is zero
_NEWTON = 30  #: iterations, from a start where they converge monotonically


def _width(shape, size):
    """Return the approximate width of the logarithm of the ratio of two gamma variables."""
    return ((1.0 + 1.0 / shape) / shape + (1.0 + 1.0 / size) / size) ** 0.5


def _reach(shape, size):
    """Return the distances from the mode of that logarithm to its lower end and to its upper end."""
    widths, folds = _ENDS
    bulk = widths * _width(shape, size)
    return [(bulk**2 + (folds / k) ** 2) ** 0.5 for k in (shape, size)]


def at_one_exposure(y, k, log_exposure=None):
    """Counts (n, k) as if all rows had one exposure, by default the geometric mean of theirs."""
    of_rows = y[:, k:]
    if not of_rows.size:
        return y
    return y[:, :k] * np.exp((of_rows.mean() if log_exposure is None else log_exposure) - of_rows)


def exposed(y, f):
    """Counts alone, and latents with the logarithms of exposures added, if these follow the counts."""
    k = f.shape[-1]
    return (y, f) if y.shape[-1] == k else (y[..., :k], f + y[..., k:])


class Counts(Likelihood):
    """Counts whose mean is :math:`r e^f`, or :math:`e` times that with an exposure `e` of the row.

    Training targets may have one more column than outputs: the logarithms of exposures. Each likelihood has
    ``_incomplete(n, log_rate, size, above)``, the probability of less than `n` counts, or of as many;
    ``_ratio(log_rate, size)``, the probability of no count, and of one beside it; and
    ``_log_density(shape, size, d)`` of the log threshold at `d` from its mode, relative to the mode.
    """

    discrete = True
    overdispersion = 0.0  #: variance of the gamma variable of mean 1 by which rates vary

    def at_one_exposure(self, y):
        return at_one_exposure(y, len(self.rate))

    def _default(self, name, y, weights, k):
        exposure = np.exp(y[:, k:]) if y.shape[1] > k else np.ones((len(y), 1))
        y, total = y[:, :k], weights @ exposure
        rate = np.maximum(weights @ y, 1e-3 * weights.sum()) / total
        if name == "rate":
            return rate
        mean = exposure * rate
        excess = weights @ (np.square(y - mean) - mean)
        return np.clip(0.5 * excess / (weights @ np.square(mean)), 0.05, 1.0)

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

    def on_link_scale(self, f):
        """Logarithms of the rates."""
        return self._log_rate(f)

    def conditional_mean(self, f):
        return self._log_rate(f).clamp_max(LARGEST).exp()

    def variance_of_mean(self, m, v):
        return self._variance_of_rate(m, v, 0.0)

    def _variance_of_rate(self, m, v, overdispersion):
        # mean^2 (e^v (1 + a) - 1), where neither factor may overflow alone
        log_var = 2.0 * (self._log_rate(m) + v) + torch.log(overdispersion - torch.expm1(-v))
        return log_var.clamp_max(2.0 * LARGEST).exp()

    def moments(self, m, v):
        mean = (self._log_rate(m) + 0.5 * v).clamp_max(LARGEST).exp()
        return mean, mean + self._variance_of_rate(m, v, tensor_like(self.overdispersion, m))

    def _size(self, like):
        """Shape of the gamma variable of mean 1 by which rates vary, for each output."""
        return 1.0 / tensor_like(self.overdispersion, like)

    def cdf(self, y, m, v):
        """By quadrature over the narrower one of two variables.

        There are more than `y` counts where the mean exceeds a random threshold: the ratio of gamma variables
        of the shapes ``y + 1`` and `size`, the latter with mean 1. The threshold has its mode at ``y + 1``.
        """
        shape = y.clamp_min(0.0).floor() + 1.0
        shape, log_rate, sd = torch.broadcast_tensors(shape, self._log_rate(m), v.sqrt())
        outputs = zip(*(part.unbind(-1) for part in (shape, log_rate, sd)))
        sizes = self._size(m)
        if sizes.ndim < 2:
            sizes = sizes.expand(m.shape[-1]).tolist()
        else:  # of samples, each of which has its own
            sizes = sizes.expand_as(shape).unbind(-1)
        inside = torch.stack([self._below(s, *parts) for s, parts in zip(sizes, outputs)], -1)
        return torch.where(y >= 0.0, inside, 0.0)

    def tail(self, y, m, v, above):
        """As the distribution function, and by quadrature around the mode of the integrand where it is rare."""
        found = self.cdf(y, m, v)
        found = 1.0 - found if above else found
        n, var = y.floor() + 1.0, v.clamp_min(_LEAST_VARIANCE)
        n, log_rate, var = torch.broadcast_tensors(n, self._log_rate(m), var)
        sizes = self._size(m).expand_as(n)
        rare = (found < _RARE) & (n >= 1.0)
        if rare.any():
            found[rare] = self._rare(*(part[rare] for part in (n, log_rate, var, sizes)), above)
        return found

    def _rare(self, n, log_rate, var, size, above):
        """Probabilities (m,) of rare counts: integrals of log-concave functions of the log rate."""

        def log_joint(f):
            return self._incomplete(n, f, size, above).log() - 0.5 * (f - log_rate).square() / var

        def rises(f):
            here, step = log_joint(f), 1e-4 * torch.minimum(var.sqrt(), n.rsqrt())
            return torch.where(here.isneginf(), above, log_joint(f + step) > here)

        # slopes of logarithms are at most n above, or less than 2 sqrt(n) from log(n) on; minus the rate below
        if above:
            most = torch.maximum(log_rate, n.log()) + 2.0 * var * n.sqrt()
            ends = log_rate, torch.minimum(log_rate + var * n, most)
        else:
            half = 0.5 * log_rate.clamp_min(_LEAST_VARIANCE)
            least = torch.minimum(half, (half / var).log())
            rate = log_rate.clamp_max(LARGEST).exp()
            ends = torch.maximum(log_rate - var * rate, least).minimum(log_rate), log_rate
        low, mode, high = peak(log_joint, rises, *ends, var.sqrt())
        nodes, weights = gauss_legendre(_N_RARE, log_rate)
        nodes, weights = 0.5 * (1.0 + nodes[:, None]), 0.5 * weights[:, None]
        ends = pairwise((low, mode, high))
        total = sum((b - a) * log_joint(a + nodes * (b - a)).exp() for a, b in ends)
        return (weights * total).sum(0) / (2.0 * math.pi * var).sqrt()

    def _below(self, size, shape, log_rate, sd):
        """Return the probability of less than `shape` counts, for one output."""
        width = _width(shape, size)
        ends = _RESOLVED, _SPACINGS
        resolved, spacing = ((widths * width).clamp_max(folds) for widths, folds in ends)
        finer = torch.exp2(torch.log2(sd / resolved).ceil()).clamp_min(min(_HERMITE))
        n_steps = (sum(_reach(shape, size)) / spacing / _N_THRESHOLDS).ceil() * _N_THRESHOLDS
        over_rates = (finer <= 1.0) | (_COST * 2 * _STEPS * finer <= n_steps)
        inside = torch.empty_like(log_rate, memory_format=torch.contiguous_format)
        for chosen, parts, rule in (
            (over_rates, finer, self._over_rates),
            (~over_rates, n_steps, self._over_thresholds),
        ):
            for n in parts[chosen].unique().tolist():
                which = chosen & (parts == n)
                own = size if isinstance(size, float) else size[which]
                inside[which] = rule(n, own, *(part[which] for part in (shape, log_rate, sd)))
        return inside

    def _over_rates(self, finer, size, shape, log_rate, sd):
        if finer < 1.0:
            z, log_weights = gauss_hermite(_HERMITE[finer], sd)
            weights = log_weights.exp()
        else:
            n = int(_STEPS * finer)
            z = torch.arange(-n, n + 1, dtype=sd.dtype, device=sd.device) * (_STEP / finer)
            weights = torch.exp(-0.5 * z.square())
            weights = weights / weights.sum()
        shape, order = shape.sort()
        counts, lengths = shape.unique_consecutive(return_counts=True)
        lengths = lengths.tolist()
        pieces = (part[order].split(lengths) for part in (log_rate, sd))
        log_rates = (torch.addcmul(m, z[:, None], s) for m, s in zip(*pieces))
        sizes = [size] * len(lengths) if isinstance(size, float) else size[order].split(lengths)
        pieces = zip(counts.tolist(), log_rates, sizes)
        below = [(weights[:, None] * self._less_than(*each)).sum(0) for each in pieces]
        return torch.empty_like(sd).index_copy_(0, order, torch.cat(below))

    def _less_than(self, n, log_rate, size):
        """Probability of less than `n` counts; of few by Horner's rule."""
        if n > _FEW:
            return self._incomplete(n, log_rate, size)
        none, ratio = self._ratio(log_rate, size)
        total, one = torch.ones_like(log_rate), torch.ones_like(log_rate)
        for i in range(int(n) - 1, 0, -1):
            growth = (1.0 + (i - 1) / size) / i
            if isinstance(growth, float):
                total = torch.addcmul(one, total, ratio, value=growth)
            else:
                total = torch.addcmul(one, total, ratio * growth)
        return total * none

    def _over_thresholds(self, n_steps, size, shape, log_rate, sd):
        low, high = _reach(shape, size)
        total, norm = 0.0, 0.0
        for i in range(int(n_steps) + 1):
            d = (low + high) * (i / n_steps) - low
            weight = self._log_density(shape, size, d).exp()
            total = total + weight * torch.special.ndtr((shape.log() + d - log_rate) / sd)
            norm = norm + weight
        return total / norm

    def _draw(self, rate, generator, like):
        rate = rate.clamp_max(math.exp(LARGEST)).to(generator.device)
        counts = torch.poisson(rate.clamp_max(_LONG), generator=generator)
        # what no integer holds differs from its rate by parts in a billion
        return torch.where(rate > _LONG, rate, counts).to(like.device)


class Poisson(Counts):
    r"""Counts with rate :math:`r e^f`.

    Its variance is the mean. Where counts vary more, or more of them are zero than rates explain,
    :class:`NegativeBinomial` is the better choice.

    Parameters
    ----------
    rate : float, array of shape (n_outputs,) or None, default=None
        Starting value of :math:`r`; None stands for the mean of the target, or what explains it with exposures.
    trainable : bool or list of str, default=True
        Whether training changes :math:`r`.
    """

    _positive = {"rate": 0.0}

    def __init__(self, rate=None, trainable=True):
        self.rate = rate
        self.trainable = trainable

    def log_density(self, y, f):
        y, f = exposed(y, f)
        rate = tensor_like(self.rate, f)
        return y * (f + rate.log()) - rate * f.exp() - torch.lgamma(y + 1.0)

    def expected_log_prob(self, y, m, v):
        y, m = exposed(y, m)
        rate = tensor_like(self.rate, m)
        expected = y * (m + rate.log()) - rate * torch.exp(m + 0.5 * v) - torch.lgamma(y + 1.0)
        return expected.sum(-1)

    def log_partition(self, y, m, v, alpha=1.0):
        y, m = exposed(y, m)
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
        nodes, log_weights = hermite(self.n_nodes, m)
        x = f + sd * nodes
        log_z = alpha * self.log_density(y, x) + 0.5 * (nodes.square() - (x - m).square() / v)
        log_z = torch.logsumexp(log_weights + log_z, 0)
        return (log_z + sd.log() - 0.5 * v.log()).sum(-1)

    def _incomplete(self, n, log_rate, size, above=False):
        rate = log_rate.clamp_max(LARGEST).exp()
        n = tensor_like(n, rate).expand_as(rate)
        return (torch.special.gammainc if above else torch.special.gammaincc)(n, rate)

    def _ratio(self, log_rate, size):
        rate = log_rate.exp().clamp_max(RAREST)
        return torch.exp(-rate), rate

    def _log_density(self, shape, size, d):
        return shape * (d - torch.expm1(d))

    def sample(self, f, generator):
        return self._draw(self._log_rate(f).clamp_max(LARGEST).exp(), generator, f)
