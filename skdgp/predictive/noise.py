"""Means of transformed targets given functions, by quadrature over the noise."""

import math

import torch

from ..quadrature import gauss_hermite
from .base import GaussianMixture

_N_NODES, _FARTHEST = 41, 6.0  #: nodes over the noise, and the normal score of the outermost ones
_N_FUNCTION, _N_NOISE_SIZE = 12, 7  #: nodes over functions, and over logarithms of noise variances
_REACH = 3.0  #: standard deviations from the function to which targets go at least
_NEGLIGIBLE = 1e-7  #: weight below which a component has no variance
_AT_ONCE = 2_000_000  #: numbers that one evaluation needs


def mean_given_function(likelihood, f, scaler, limits=None):
    """Means (..., n, k) of targets given latent functions `f` (..., n, n_latents), in the user's units.

    The noise is one distribution times a deviation that may differ by row. Nodes are at equal steps of its
    normal scores. Given a function, targets go to the ends of the training targets and to three deviations, and
    not beyond `limits` (n, k).
    """
    k = f.shape[-1] // likelihood.n_latents(1)
    mean, var = likelihood.moments(f, torch.zeros_like(f))
    sd = var.sqrt()
    least, low, high, most = (
        mean.new_tensor(end)
        for end in (scaler.farthest[0], scaler.low, scaler.high, scaler.farthest[1])
    )
    low = torch.maximum(torch.minimum(mean - _REACH * sd, low), least)
    high = torch.minimum(torch.maximum(mean + _REACH * sd, high), most)
    if limits is not None:
        low, high = torch.maximum(low, limits[0]), torch.minimum(high, limits[1])
    (nodes, weights), total = _nodes(likelihood, f, k), 0.0
    for node, weight in zip(nodes, weights):
        z = torch.minimum(torch.maximum(mean + sd * node, low), high)
        total = total + weight * scaler.inverse(z)
    return total


def _nodes(likelihood, f, k):
    """Nodes (N, ..., 1, k) for noise of unit variance, and weights (N,)."""
    t = torch.linspace(-_FARTHEST, _FARTHEST, _N_NODES, dtype=f.dtype, device=f.device)
    weights = torch.softmax(-0.5 * t.square(), 0)
    one = likelihood.of_rows(slice(0, 1))
    zeros = torch.zeros_like(f[..., :1, :])
    log_w, means, variances = one.components(zeros, zeros)
    shape = means.shape[1:]  # ..., 1, k
    flat = (
        part.expand_as(means).reshape(len(means), -1, 1) for part in (log_w.exp(), means, variances)
    )
    noise = GaussianMixture(*flat)
    if len(means) == 1:  # Gaussian
        return t.view(-1, *(1,) * f.ndim), weights
    orders = (0.5 * torch.special.erfc(-t / math.sqrt(2.0))).tolist()
    scores = noise.quantiles(orders)[:, 0].T.reshape(-1, *shape)
    _, std = noise.moments()
    return scores / std.reshape(shape), weights


def variance_by_function(parts, mean, scaler, limits):
    """Variance (n, k) of ``E[y | f]``, for all latents f: means, and sizes of the noise."""
    variance = torch.zeros_like(mean)
    for weights, likelihood, m, v in parts:
        counts = weights[:, 0, 0] > _NEGLIGIBLE
        m, v, w = m[counts], v[counts], weights[counts, 0, 0]
        likelihood = _of_components(likelihood, counts)
        size = max(1, _AT_ONCE // (len(m) * _N_FUNCTION * _N_NOISE_SIZE * m.shape[-1]))
        for i in range(0, len(mean), size):
            rows = slice(i, i + size)
            f, shares = _latent_nodes(m[:, rows], v[:, rows], mean.shape[1])
            own = tuple(end[rows] for end in limits)
            given = mean_given_function(likelihood.of_rows(rows), f, scaler, own)
            square = (given - mean[rows]).square()  # q, S, n, k
            variance[rows] += torch.einsum("q,s,qsnk->nk", shares, w, square)
    return variance


def _of_components(likelihood, kept):
    """The likelihood of some components, if each has hyperparameters of its own (C, 1, k)."""
    own = {
        name: value[kept]
        for name, value in vars(likelihood).items()
        if getattr(value, "ndim", 0) == 3 and len(value) == len(kept)
    }
    return likelihood.with_values(**own)


def _latent_nodes(m, v, k):
    """Nodes (q, S, n, n_latents) of latents with moments (S, n, n_latents), and their weights (q,)."""
    (x, of_x), (u, of_u) = (gauss_hermite(n, m) for n in (_N_FUNCTION, _N_NOISE_SIZE))
    if not v[..., k:].any():
        middle = _N_NOISE_SIZE // 2
        u, of_u = u[middle : middle + 1], torch.zeros_like(of_u[:1])
    x, u = (part.flatten() for part in torch.meshgrid(x, u, indexing="ij"))
    shares = (of_x[:, None] + of_u).exp().flatten()
    t = torch.stack([x] * k + [u] * (m.shape[-1] - k), -1)
    return m + v.sqrt() * t[:, None, None], shares
