"""Class probabilities under a softmax of Gaussian latent functions, good enough for predictions."""

import math

import torch

from ...linalg import at_once, is_exporting
from ...quadrature import gauss_hermite, gauss_legendre, sobol_nodes

_TINY = 1e-12
#: of a prediction over all components, for ten classes or fewer, and for more
_N_NODES = 4096, 2048
_FEW = 4  #: components for which integrals over one variable cost less than nodes of their own
_N_LEVELS = 40, 32  #: nodes of that variable, for few classes and for more than four
_N_GIVEN_LEVEL = 40, 20  #: nodes of a latent function given it, likewise
_WIDE = 4.0  #: standard deviation up to which nodes of one variable are dense enough
_RARE, _RARE_DEVIATION = 1e-4, 3.7  #: probability of levels that are left out on each side
_LARGE = 300.0  #: logarithm whose square is finite
_SAFE = 80.0  #: standard deviation from which on differences of latents may have no exponential
_CACHED = 25_000  #: numbers that predictions handle at once; more leave the cache
_N_PARTS = 16  #: of the nodes where there are gradients, each an operation of exported programs
_OF_LEVELS = 100_000  #: likewise, at all nodes given some levels


def log_probabilities(m, v):
    """Logarithms of class probabilities, shape (..., n, C), to .001 in every probability as a rule."""
    if m.requires_grad or v.requires_grad or is_exporting():
        return _differentiable(m, v)
    return _log_probabilities(m, v)


@torch.no_grad()
def _log_probabilities(m, v):
    shape, v = m.shape, v.clamp_min(_TINY)
    m_, v_ = (moment.reshape(-1, *shape[-2:]).mT for moment in (m, v))  # S, C, n
    p = torch.empty_like(m_)
    for integral, rows in _split(v_):
        most = _OF_LEVELS // _N_GIVEN_LEVEL[0] if integral is _by_levels else _CACHED
        size = max(1, at_once(most, m.device) // max(1, m_[..., 0].numel()))
        for i in rows.split(size):
            p[..., i] = integral(m_[..., i].contiguous(), v_[..., i].contiguous())
    return _logarithms(p.mT.reshape(shape), m, v)


def _logarithms(p, m, v):
    """Logarithms of probabilities, with finite gradients where these are zero."""
    # the exponential of the expected logarithm is never more, and does not underflow
    least = m - torch.logsumexp(m + 0.5 * v, -1, keepdim=True)
    positive = p > 0.0
    return torch.where(positive, torch.maximum(torch.where(positive, p, 1.0).log(), least), least)


def _split(v):
    """Pairs of a rule and the rows (indices) that it is for, by variances (S, C, n)."""
    by_nodes = _is_wide(v) | (len(v) >= _FEW)
    parts = (_by_nodes, by_nodes), (_by_levels, ~by_nodes)
    return [(rule, rows) for rule, chosen in parts if len(rows := chosen.nonzero()[:, 0])]


def _is_wide(v):
    """Whether rows (n,) have a latent function with a large variance."""
    return (v > _WIDE**2).flatten(0, 1).any(0)


def _by_nodes(m, v):
    """The mean over a part of a Sobol sequence, another one for each component."""
    order = m.mean(0).argsort(0).expand_as(m)
    m, v = m.gather(1, order), v.gather(1, order)
    n_components, n_classes = m.shape[:2]
    most = _N_NODES[0] if n_classes <= 10 else _N_NODES[1]
    nodes = sobol_nodes(n_classes, n_components, max(1, most // n_components), m)
    p, sd, together = torch.zeros_like(m), v.sqrt(), max(1, _CACHED // m.numel())
    m, large = m - m.amax(1, keepdim=True), bool((sd > _SAFE).any())
    f = m.new_empty(min(together, len(nodes)), *m.shape)
    for z in nodes.split(together):
        f = torch.addcmul(m, sd, z[..., None], out=f[: len(z)])
        if large:
            f -= f.amax(2, keepdim=True)
        total = f.exp_().sum(2, keepdim=True)
        if len(z) == 1:
            p.addcmul_(f[0], total[0].reciprocal_())  # sooner than quotients
        else:
            p += f.mul_(total.reciprocal_()).sum(0)
    return torch.empty_like(p).scatter_(1, order, p / len(nodes))


def _by_levels(m, v):
    r"""An integral over the largest of :math:`f_c + g_c` with independent Gumbel variables `g`.

    Given f, it is that of class c with the probability of the class. The distribution function of
    :math:`f_c + g_c` is the mean of :math:`\exp(-e^{f_c - x})`, over one latent function.
    """
    few = int(m.shape[1] > 4)
    low, high, z2 = math.log(-math.log(_RARE)), -math.log(_RARE), _RARE_DEVIATION**2
    low = (m - (low**2 + z2 * v).sqrt()).amax(1, keepdim=True)
    high = (m + (high**2 + z2 * v).sqrt()).amax(1, keepdim=True)
    levels, weights = gauss_legendre(_N_LEVELS[few], m)
    z, log_weights = gauss_hermite(_N_GIVEN_LEVEL[few], m)
    factors = torch.exp((v.sqrt() * z.view(-1, 1, 1, 1)).clamp_max(_LARGE))  # nodes, S, C, n
    shares, p, length = log_weights.exp(), torch.zeros_like(m), high - low
    size = max(1, at_once(_OF_LEVELS, m.device) // factors.numel())
    for level, weight in zip(levels.split(size), weights.split(size)):
        x = torch.lerp(low, high, 0.5 * (1.0 + level.view(-1, 1, 1, 1)))
        tail = -torch.exp((m - x).clamp_max(_LARGE))  # levels, S, C, n
        negative = tail[:, None] * factors
        inside = negative.exp()
        below = (shares @ inside.flatten(2)).view_as(tail).clamp_min_(1e-300)
        density = (shares @ negative.mul_(inside).flatten(2)).view_as(tail)
        others = below.log().sum(2, keepdim=True).exp_().mul_(length)
        p -= torch.einsum("l,lscn->scn", weight, density.div_(below).mul_(others))
    return p / p.sum(1, keepdim=True)


# The same rules, in which nothing is written over


def _differentiable(m, v):
    shape, v = m.shape, v.clamp_min(_TINY)
    m_, v_ = (moment.reshape(-1, *shape[-2:]).mT for moment in (m, v))  # S, C, n
    p = _plain_nodes(m_, v_)
    if len(m_) < _FEW:
        wide = _is_wide(v_)
        p = torch.where(wide, p, _plain_levels(m_, torch.where(wide, 1.0, v_)))
    return _logarithms(p.mT.reshape(shape), m, v)


def _plain_nodes(m, v):
    order = m.detach().mean(0).argsort(0).expand_as(m)
    n_components, n_classes = m.shape[:2]
    most = _N_NODES[0] if n_classes <= 10 else _N_NODES[1]
    nodes = sobol_nodes(n_classes, n_components, max(1, most // n_components), m)
    m, sd = m.gather(1, order), v.gather(1, order).sqrt()
    parts = nodes.split(-(-len(nodes) // _N_PARTS))
    p = sum(torch.softmax(m + sd * z[..., None], 2).sum(0) for z in parts) / len(nodes)
    return torch.zeros_like(p).scatter(1, order, p)


def _plain_levels(m, v):
    few = int(m.shape[1] > 4)
    low, high, z2 = math.log(-math.log(_RARE)), -math.log(_RARE), _RARE_DEVIATION**2
    low = (m - (low**2 + z2 * v).sqrt()).amax(1, keepdim=True)
    high = (m + (high**2 + z2 * v).sqrt()).amax(1, keepdim=True)
    levels, weights = gauss_legendre(_N_LEVELS[few], m)
    z, log_weights = gauss_hermite(_N_GIVEN_LEVEL[few], m)
    factors = torch.exp((v.sqrt() * z.view(-1, 1, 1, 1)).clamp_max(_LARGE))  # nodes, S, C, n
    shares, p = log_weights.exp(), 0.0
    for level, weight in zip(levels, weights):
        x = torch.lerp(low, high, 0.5 * (1.0 + level))
        tail = -torch.exp((m - x).clamp_max(_LARGE)) * factors
        below = torch.einsum("q,qscn->scn", shares, tail.exp()).clamp_min(1e-300)
        density = torch.einsum("q,qscn->scn", shares, tail * tail.exp())
        others = below.log().sum(1, keepdim=True).exp() * (high - low)
        p = p - weight * density / below * others
    return p / p.sum(1, keepdim=True)
