"""Distributions of targets that monotone maps make mixtures of Gaussians.

Moments are of distributions with ends, because Student-t noise has no finite mean under an exponential. A
distribution goes to the farthest training target, and to two standard deviations from the row's own mean; it
goes beyond the range of the training targets by one such range at most, before the inverse map. Values beyond
the ends count as if they were there. Densities, probabilities and quantiles have no ends.
"""

import math
from itertools import pairwise

import numpy as np
import torch

from ..quadrature import gauss_legendre
from .base import Distribution
from .crps import crps_of_mapped
from .noise import variance_by_function

_NEGLIGIBLE = 1e-7  #: largest total weight of components that are left out of moments
_FAR = 7.0  #: standard deviations beyond which a component has less than 1e-11
_N_NODES = 26  #: nodes between these, for integrals to 1e-6
_SHARP = 1e-3  #: e-folds below which closed forms lose digits
_FARTHEST = 700.0  #: e-folds beyond which closed forms overflow
_IN_CACHE = 60_000  #: numbers that are looked at together
_REACH = 2.0  #: standard deviations from a row's mean to which its distribution goes at least
_REACH_OF_PARTS = 6.0  #: the same for the parts of a deviation, which need functions far out
_TINY = 1e-150  #: least deviation: its square does not vanish


class Transformed(Distribution):
    """Distribution of targets that the maps of a `scaler` make a mixture.

    The `base` is a distribution in standardized units. It has components: a
    :class:`~skdgp.predictive.base.GaussianMixture`, or a mixture of members with such a one.
    """

    def __init__(self, base, scaler):
        self.base, self.scaler = base, scaler

    def _gaussians(self):
        return self.base.gaussians().components()

    def moments(self):
        return mapped_moments(*self._gaussians(), self.scaler)

    def ends(self):
        """Ends of the distributions, two tensors (n, k), in standardized units."""
        return ends(*self._gaussians(), self.scaler)

    def decomposed_moments(self):
        components = self._gaussians()
        mean, std = mapped_moments(*components, self.scaler)
        limits = ends(*components, self.scaler, _REACH_OF_PARTS)
        var = variance_by_function(self.base.gaussian_parts, mean, self.scaler, limits)
        var = torch.minimum(var, std.square())
        return mean, var.sqrt(), (std.square() - var).sqrt()

    def log_prob(self, y):
        log_p = self.base.log_prob(self.scaler.transform(y))
        return log_p + torch.as_tensor(self.scaler.log_jacobian(y)).to(log_p)

    def tail(self, y, above):
        return self.base.tail(self.scaler.standardized_thresholds(y), above)

    def quantiles(self, alpha):
        z = self.base.quantiles(alpha)
        return self.scaler.inverse(z.movedim(-1, 0)).movedim(0, -1)

    def crps(self, y):
        components = self._gaussians()
        limits = ends(*components, self.scaler)
        arrays = [part.numpy(force=True) for part in (*heaviest(*components), *limits)]
        scores = np.empty(y.shape)
        for j in range(y.shape[1]):
            parts = (part[..., j] for part in arrays)
            scores[:, j] = crps_of_mapped(y[:, j], *parts, self.scaler.output(j))
        return scores


def ends(weights, means, variances, scaler, reach=_REACH):
    """Return the ends of distributions (c, n, k), two tensors (n, k), in standardized units."""
    middle = (weights * means).sum(0)
    spread = (weights * (variances + (means - middle).square())).sum(0).sqrt()
    least, low, high, most = (
        middle.new_tensor(end)
        for end in (scaler.farthest[0], scaler.low, scaler.high, scaler.farthest[1])
    )
    below, above = middle - reach * spread, middle + reach * spread
    return torch.maximum(torch.minimum(below, low), least), torch.minimum(
        torch.maximum(above, high), most
    )


def heaviest(weights, means, variances):
    """The components (c, n, k) of each row and output without those that hardly count."""
    weights = weights.expand_as(means)
    order = torch.argsort(-weights, dim=0, stable=True)
    weights = torch.gather(weights, 0, order)
    kept = weights.flip(0).cumsum(0).flip(0) > _NEGLIGIBLE * weights.sum(0)
    most = int(kept.sum(0).max())  # components that another row needs have no weight
    weights = torch.where(kept, weights, 0.0)[:most]
    parts = (torch.gather(part, 0, order[:most]) for part in (means, variances))
    return weights / weights.sum(0), *parts


def mapped_moments(weights, means, variances, scaler, limits=None):
    """Mean and standard deviation (n, k) of inversely mapped mixtures (c, n, k) with ends, or `limits`."""
    low, high = ends(weights, means, variances, scaler) if limits is None else limits
    parts = *heaviest(weights, means, variances), low[None], high[None]
    size = max(1, _IN_CACHE // len(parts[0]))
    columns = []
    for j in range(low.shape[1]):
        one = scaler.output(j)
        pieces = zip(*(part[..., j].split(size, 1) for part in parts))
        found = zip(*(_moments(*piece, one) for piece in pieces))
        columns.append([torch.cat(part) for part in found])
    return tuple(torch.stack(part, 1) for part in zip(*columns))


def _inverse(scaler, z):
    """Targets of standardized ones of any shape, for a scaler of one output."""
    return scaler.inverse(z[..., None])[..., 0]


def _moments(weights, means, variances, low, high, scaler):
    """Return the moments of one output, from tensors (c, n) and ends (1, n)."""
    middle = (weights * means).sum(0)
    spread = (weights * (variances + (means - middle).square())).sum(0).sqrt()
    middle = torch.minimum(torch.maximum(middle, low[0]), high[0])
    start, least, most = (_inverse(scaler, z) for z in (middle, low[0], high[0]))
    unit = torch.maximum(most - start, start - least).detach()
    unit = torch.maximum(unit, (_TINY * start.detach().abs()).clamp_min(1e-300))
    parts = weights, means, variances.clamp_min(_TINY**2).sqrt(), low, high
    closed = torch.zeros_like(middle, dtype=torch.bool)
    if scaler.is_log:
        size, center = float(scaler.scale[0]), float(scaler.center[0])
        far = torch.maximum((center + size * low[0]).abs(), (center + size * high[0]).abs())
        closed = (size * spread > _SHARP) & (far < _FARTHEST)
    first, square = torch.zeros_like(middle), torch.zeros_like(middle)
    for which, method in ((closed, _of_logarithms), (~closed, _by_quadrature)):
        if which.any():
            own = *(part[:, which] for part in parts), middle[which], start[which], unit[which]
            moments = method(*own, scaler)
            first, square = (
                part.masked_scatter(which, new) for part, new in zip((first, square), moments)
            )
    var = (square - first.square()).clamp_min(0.0)
    return start + unit * first, unit * var.clamp_min(1e-300).sqrt() * (var > 0.0)


def _ndtr(x):
    return 0.5 * torch.special.erfc(x * -math.sqrt(0.5))


def _scaled(x, shift):
    """``exp(shift (shift - 2 x) / 2)`` times the distribution function at ``x - shift``, below zero."""
    z = ((shift - x) * math.sqrt(0.5)).clamp_min(0.0)
    return 0.5 * torch.special.erfcx(z) * torch.exp(-0.5 * x.square())


def _of_logarithms(weights, means, sd, low, high, middle, start, unit, scaler):
    """First two moments of deviations from `start`, in closed form: ``E exp(k clip(z))`` for k = 1, 2."""
    below, above, raw = (low - means) / sd, (high - means) / sd, []
    factor = start / unit
    for k in (1.0, 2.0):
        rate, log_factor = k * float(scaler.scale[0]), k * factor.log()
        at_low, at_high = (torch.exp(rate * (end - middle) + log_factor) for end in (low, high))
        steep = rate * sd > above  # squares of deviations would cancel
        shift = torch.where(steep, 0.0, rate * sd)
        p, q = above - shift, below - shift
        mirrored = q > 0.0
        p, q = torch.where(mirrored, -q, p), torch.where(mirrored, -p, q)
        p, q = torch.special.log_ndtr(p), torch.special.log_ndtr(q)
        log_inside = p + torch.log(-torch.expm1((q - p).clamp_max(-1e-300)))
        inside = torch.exp(rate * (means - middle) + 0.5 * shift.square() + log_inside + log_factor)
        inside = torch.where(steep, at_high * _scaled(above, rate * sd), inside)
        inside = inside - torch.where(steep, at_low * _scaled(below, rate * sd), 0.0)
        total = inside + at_low * _ndtr(below) + at_high * _ndtr(-above)
        raw.append((weights * total).sum(0))
    return raw[0] - factor, raw[1] - 2.0 * factor * raw[0] + factor.square()


def _by_quadrature(weights, means, sd, low, high, middle, start, unit, scaler):
    """Return the moments by Gauss-Legendre quadrature between the ends and the cuts of the map."""
    nodes, shares = gauss_legendre(_N_NODES, means)
    first, square = torch.zeros_like(middle), torch.zeros_like(middle)

    def moments(z, share):
        off = (_inverse(scaler, z) - start) / unit
        weighted = weights * share * off
        return weighted.sum(0), (weighted * off).sum(0)

    def add(z, share):
        nonlocal first, square
        one, two = moments(z, share)
        first, square = first + one, square + two

    add(low, _ndtr((low - means) / sd)), add(high, _ndtr((means - high) / sd))
    cuts = [low, *(torch.full_like(low, c).clamp(low, high) for c in scaler.cuts), high]
    cuts = [((cut - means) / sd).clamp(-_FAR, _FAR) for cut in cuts]
    for left, right in pairwise(cuts):
        half, center = 0.5 * (right - left), 0.5 * (right + left)
        if half.any():
            for node, share in zip(nodes, shares):
                t = center + node * half
                density = torch.exp(-0.5 * t.square()) / math.sqrt(2.0 * math.pi)
                add(means + sd * t, share * half * density)
    return first, square
