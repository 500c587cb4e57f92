"""Class probabilities under a softmax of Gaussian latent functions, good enough for predictions."""

import math
from functools import partial

import torch

from ...linalg import at_once, is_exporting
from ...quadrature import gauss_hermite, gauss_legendre, sobol_nodes

_TINY = 1e-12
#: of a prediction over all components, for ten classes or fewer, and for more
_N_NODES = 4096, 2048
#: integrals over one variable: the largest standard deviation of a latent function, nodes of the variable,
#: and nodes of each latent function given it
_LEVELS = (1.0, 16, 10), (2.0, 24, 12), (4.0, 36, 30)
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
    for integral, at_most, rows in _split(v_):
        size = max(1, at_once(at_most, m.device) // max(1, m_[..., 0].numel()))
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
    """Rules by variances (S, C, n), with numbers that they handle at once, and indices of their rows."""
    (S, C, _), v = v.shape, v.flatten(0, 1).amax(0)
    most = _n_nodes(C)
    rules, rest = [], torch.ones_like(v, dtype=torch.bool)
    for sd, n_levels, n_given in _LEVELS:
        if n_levels * n_given * S <= most:  # else nodes of all components cost less
            rule = partial(_by_levels, n_levels=n_levels, n_given=n_given)
            rules.append((rule, _OF_LEVELS // n_given, rest & (v <= sd**2)))
            rest = rest & (v > sd**2)
    rules.append((_by_nodes, _CACHED, rest))
    return [(*rule, rows) for *rule, chosen in rules if len(rows := chosen.nonzero()[:, 0])]


def _n_nodes(n_classes):
    return _N_NODES[0] if n_classes <= 10 else _N_NODES[1]


def _by_nodes(m, v):
    """The mean over a part of a Sobol sequence, another one for each component."""
    order = m.mean(0).argsort(0).expand_as(m)
    m, v = m.gather(1, order), v.gather(1, order)
    n_components, n_classes = m.shape[:2]
    nodes = sobol_nodes(n_classes, n_components, max(1, _n_nodes(n_classes) // n_components), m)
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


def _by_levels(m, v, n_levels, n_given):
    r"""An integral over the largest of :math:`f_c + g_c` with independent Gumbel variables `g`.

    Given f, it is that of class c with the probability of the class. The distribution function of
    :math:`f_c + g_c` is the mean of :math:`\exp(-e^{f_c - x})`, over one latent function.
    """
    low, high, z2 = math.log(-math.log(_RARE)), -math.log(_RARE), _RARE_DEVIATION**2
    low = (m - (low**2 + z2 * v).sqrt()).amax(1, keepdim=True)
    high = (m + (high**2 + z2 * v).sqrt()).amax(1, keepdim=True)
    levels, weights = gauss_legendre(n_levels, m)
    z, log_weights = gauss_hermite(n_given, m)
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
    p, largest = _plain_nodes(m_, v_), v_.flatten(0, 1).amax(0)
    for sd, n_levels, n_given in reversed(_LEVELS):
        if n_levels * n_given * len(m_) <= _n_nodes(m_.shape[1]):
            narrow = largest <= sd**2
            levels = _plain_levels(m_, torch.where(narrow, v_, 1.0), n_levels, n_given)
            p = torch.where(narrow, levels, p)
    return _logarithms(p.mT.reshape(shape), m, v)


def _plain_nodes(m, v):
    order = m.detach().mean(0).argsort(0).expand_as(m)
    n_components, n_classes = m.shape[:2]
    nodes = sobol_nodes(n_classes, n_components, max(1, _n_nodes(n_classes) // n_components), m)
    m, sd = m.gather(1, order), v.gather(1, order).sqrt()
    parts = nodes.split(-(-len(nodes) // _N_PARTS))
    p = sum(torch.softmax(m + sd * z[..., None], 2).sum(0) for z in parts) / len(nodes)
    return torch.zeros_like(p).scatter(1, order, p)


def _plain_levels(m, v, n_levels, n_given):
    low, high, z2 = math.log(-math.log(_RARE)), -math.log(_RARE), _RARE_DEVIATION**2
    low = (m - (low**2 + z2 * v).sqrt()).amax(1, keepdim=True)
    high = (m + (high**2 + z2 * v).sqrt()).amax(1, keepdim=True)
    levels, weights = gauss_legendre(n_levels, m)
    z, log_weights = gauss_hermite(n_given, m)
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
