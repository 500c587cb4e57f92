"""Mixtures of Gaussians before a monotone map of the target, in the user's units.

They end, because Student-t noise has no finite mean under an exponential: what is beyond all training targets,
and more than two standard deviations from the row's own mean, counts as if it were there. No distribution goes
beyond the range of the training targets by more than one such range, before the inverse map.
"""

from itertools import pairwise

import numpy as np
import torch
from scipy.special import log_ndtr, ndtr

from ..quadrature import gauss_hermite, gauss_legendre
from .components import dispersion_of

_NEGLIGIBLE = 1e-7  #: weight of a row's components that may be left out
_FAR = 7.0  #: standard deviations beyond which a component has less than 1e-11
_N_NODES = 26  #: between these, for integrals to 1e-6
_SHARP = 1e-3  #: e-folds below which closed forms lose digits
_FARTHEST = 700.0  #: e-folds beyond which they may overflow
_N_LATENT = 12, 7  #: nodes for means of the target, and for sizes of its noise
_IN_CACHE = 60_000  #: numbers that are looked at together
END = 2.0  #: standard deviations from a row's mean to which its distribution goes at least
#: likewise from the row's mean, where hardly any component but of heavy tails goes
END_OF_ROW = 6.0
_END_OF_NOISE = 3.0  #: likewise from the function, where that is given


def ends(weights, means, variances, scaler, reach=END):
    """Return the ends of distributions (c, n, k), two arrays (n, k), in standardized target units."""
    middle = (weights * means).sum(0)
    spread = np.sqrt((weights * (variances + np.square(means - middle))).sum(0))
    low, high = middle - reach * spread, middle + reach * spread
    least, most = scaler.farthest
    return np.clip(low, least, scaler.low), np.clip(high, scaler.high, most)


def heaviest(weights, means, variances):
    """The components (c, n, k) of each row and output without those that hardly count."""
    weights = np.broadcast_to(weights, means.shape)
    order = np.argsort(-weights, axis=0, kind="stable")
    weights = np.take_along_axis(weights, order, 0)
    kept = weights[::-1].cumsum(0)[::-1] > _NEGLIGIBLE * weights.sum(0)
    most = int(kept.sum(0).max())  # those of a row that another one needs have no weight
    weights = np.where(kept, weights, 0.0)[:most]
    parts = (np.take_along_axis(part, order[:most], 0) for part in (means, variances))
    return weights / weights.sum(0), *parts


def mapped_moments(weights, means, variances, scaler, limits=None):
    """Mean and standard deviation (n, k) of inversely mapped mixtures (c, n, k) with ends, or `limits`."""
    low, high = limits or ends(weights, means, variances, scaler)
    parts = *heaviest(weights, means, variances), low[None], high[None]
    mean, std = np.empty_like(low), np.empty_like(low)
    size = max(1, _IN_CACHE // len(parts[0]))
    for j in range(low.shape[1]):
        one = scaler.output(j)
        for i in range(0, len(low), size):
            rows = slice(i, i + size)
            mean[rows, j], std[rows, j] = _moments(*(part[:, rows, j] for part in parts), one)
    return mean, std


def _moments(weights, means, variances, low, high, scaler):
    """Return the moments of one output, from arrays (c, n) and ends (1, n)."""
    middle = (weights * means).sum(0)
    second = (weights * (variances + np.square(means - middle))).sum(0)
    middle = np.clip(middle, low[0], high[0])
    start, least, most = (scaler.inverse(z[:, None])[:, 0] for z in (middle, low[0], high[0]))
    unit = np.maximum(most - start, start - least)
    unit = np.maximum(unit, np.maximum(1e-300, 1e-150 * np.abs(start)))  # squares do not overflow
    parts = weights, means, np.maximum(np.sqrt(variances), 1e-150), low, high
    first, square = np.empty_like(middle), np.empty_like(middle)
    closed = np.zeros(len(middle), dtype=bool)
    if scaler.is_log:
        far = np.maximum(
            np.abs(scaler.center + scaler.scale * low[0]),
            np.abs(scaler.center + scaler.scale * high[0]),
        )
        closed = (scaler.scale[0] * np.sqrt(second) > _SHARP) & (far < _FARTHEST)
    for which, method in ((closed, _of_logarithms), (~closed, _by_quadrature)):
        if which.any():
            own = *(part[:, which] for part in parts), middle[which], start[which], unit[which]
            first[which], square[which] = method(*own, scaler)
    return start + unit * first, unit * np.sqrt(np.maximum(square - np.square(first), 0.0))


def _of_logarithms(weights, means, sd, low, high, middle, start, unit, scaler):
    """First two moments of deviations from `start`, in closed form: ``E exp(k clip(z))`` for k = 1, 2."""
    below, above, raw = (low - means) / sd, (high - means) / sd, []
    factor = start / unit
    for k in (1.0, 2.0):
        rate, log_factor = k * scaler.scale[0], k * np.log(factor)
        shift = rate * sd
        p, q = above - shift, below - shift
        mirrored = q > 0.0
        p, q = np.where(mirrored, -q, p), np.where(mirrored, -p, q)
        p, q = log_ndtr(p), log_ndtr(q)
        log_inside = p + np.log(-np.expm1(np.minimum(q - p, -1e-300)))
        total = np.exp(rate * (means - middle) + 0.5 * shift**2 + log_inside + log_factor)
        total += np.exp(rate * (low - middle) + log_factor) * ndtr(below)
        total += np.exp(rate * (high - middle) + log_factor) * ndtr(-above)
        raw.append((weights * total).sum(0))
    return raw[0] - factor, raw[1] - 2.0 * factor * raw[0] + factor**2


def _by_quadrature(weights, means, sd, low, high, middle, start, unit, scaler):
    """Return the moments by Gauss-Legendre quadrature between the ends and the cuts of the map."""
    nodes, shares = (part.numpy() for part in gauss_legendre(_N_NODES, torch.zeros(0).double()))
    first, square = np.zeros_like(middle), np.zeros_like(middle)

    def add(z, share):
        nonlocal first, square
        off = (scaler.inverse(z[..., None])[..., 0] - start) / unit
        first = first + (weights * share * off).sum(0)
        square = square + (weights * share * off * off).sum(0)

    add(low, ndtr((low - means) / sd)), add(high, ndtr((means - high) / sd))
    cuts = [low, *(np.clip(cut, low, high) for cut in scaler.cuts), high]
    cuts = [np.clip((cut - means) / sd, -_FAR, _FAR) for cut in cuts]
    for left, right in pairwise(cuts):
        half, center = 0.5 * (right - left), 0.5 * (right + left)
        if half.any():
            for node, share in zip(nodes, shares):
                t = center + node * half
                add(means + sd * t, share * half * np.exp(-0.5 * t * t) / np.sqrt(2.0 * np.pi))
    return first, square


def variance_by_function(parts, mean, scaler, limits):
    """Variance (n, k) of ``E[y | f]``, for all latents f: means, and sizes of the noise.

    At `limits`, two arrays (n, k), means given f end: hardly possible sizes of noise have no finite ones.
    """
    variance = np.zeros_like(mean)
    for weights, likelihood, m, v in parts:
        f, shares = _latent_nodes(likelihood, m, v, mean.shape[1])
        size = max(1, _IN_CACHE // (len(f) * len(m)))
        for i in range(0, len(mean), size):
            rows = slice(i, i + size)
            own, some = tuple(end[rows] for end in limits), likelihood.of_rows(rows)
            with np.errstate(over="ignore", invalid="ignore"):
                off = mean_before_map(some, f[:, :, rows], scaler, own).numpy() - mean[rows]
            of_parts = weights[..., 0, 0].cpu().numpy()
            off[:, of_parts <= _NEGLIGIBLE] = 0.0  # closed forms overflow far out
            both = shares[:, None] * of_parts
            variance[rows] += np.einsum("qs,qsnk->nk", both, np.square(off))
    return variance


def mean_before_map(likelihood, f, scaler, limits=None):
    """Means (..., n, k) of targets in the user's units given latent functions, between `limits` (n, k)."""
    parts = likelihood.components(f, torch.zeros_like(f))
    parts = torch.broadcast_tensors(parts[0].exp(), *parts[1:])
    shape = parts[1].shape
    flat = [part.reshape(shape[0], -1, shape[-1]).cpu().numpy() for part in parts]
    if limits is None:
        limits = ends(*flat, scaler, _END_OF_NOISE)
    else:
        outer = [np.broadcast_to(end, shape[1:]).reshape(-1, shape[-1]) for end in limits]
        low, high = ends(*flat, scaler, _END_OF_NOISE)
        limits = np.maximum(low, outer[0]), np.minimum(high, outer[1])
    mean, _ = mapped_moments(*flat, scaler, limits)
    return torch.from_numpy(mean.reshape(shape[1:]))


def _latent_nodes(likelihood, m, v, k):
    """Nodes (q, S, n, n_latents) of latents with moments (S, n, n_latents), and their weights (q,)."""
    (x, of_x), (u, of_u) = (gauss_hermite(n, m) for n in _N_LATENT)
    if not v[..., k:].any():
        u, of_u = u[3:4], of_u[:1] * 0.0
    x, u = (part.flatten() for part in torch.meshgrid(x, u, indexing="ij"))
    shares = (of_x[:, None] + of_u).exp().flatten()
    t = torch.stack([x] * k + [u] * (m.shape[-1] - k), -1)
    off = v.sqrt() * t[:, None, None]
    off[..., :k] *= dispersion_of(likelihood)
    return m + off, shares.cpu().numpy()
