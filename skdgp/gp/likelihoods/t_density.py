r"""Density of t noise added to a Gaussian, to a relative error of 1e-6 near and far.

Student's t is a mixture of Gaussians. The logarithm of the noise's variance, in units of :math:`s^2`, is
:math:`w = \sqrt{c} z - \log l`, with standard normal `z` and :math:`l \sim \mathrm{Gamma}(\nu / 2, \nu / 2)`.
The density of an error `e` beside Gaussian variance `v` is the mean of :math:`N(e; 0, v + s^2 e^w)` over `w`.
The integrand has one mode or two: one where noise is as usual, one where it explains the error.

The density of `w` is that of :math:`l` times the Laplace transform of a log-normal variable. Let
:math:`k = \nu c / 2` and :math:`w = x + k (1 - e^{-x})`. The Laplace approximation of the transform (Asmussen,
Jensen and Rojas-Nandayapa, 2016) is an explicit function of `x`, which is the variable of integration. The
error of the approximation is small and smooth, and tabulated.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial import chebyshev

from ...linalg import at_once
from ...quadrature import gauss_legendre
from .base import LOG_2PI

N_NODES = 32  #: on both sides of the middle; with 24, errors of 1e-4 between two modes far apart
_AT_ONCE = 60_000  #: numbers that the nodes of some elements need; more leave the cache
_NEGLIGIBLE = 17.0  #: below the largest, in logarithms, an integrand is left out: 4e-8
_N_STEPS = 8, 3  #: of Newton's method for the right mode, and for the left one, which starts near
_SMALLEST = 1e-30  #: what has a reciprocal
_WIDEST = 36.0  #: variance `c` to which the table is right; beyond, errors grow to 0.1
_SCALE = 2.0  #: standard deviation in the middle of the table
_SHAPE = 16, 24  #: of the table; errors of 2e-7 to a variance of 5, 5e-6 to 10


def _missing(W, c):
    """Logarithm of the Laplace transform of a log-normal variable over its Laplace approximation."""
    sd = 1.0 / np.sqrt(1.0 + W)
    t, step = np.linspace(-min(11.0 / sd, 80.0), 11.0, 3001, retstep=True)
    u = np.sqrt(c) * sd * t
    with np.errstate(over="ignore"):
        rest = np.where(np.abs(u) < 1e-3, u**3 / 6 + u**4 / 24, np.expm1(u) - u - 0.5 * u**2)
        return np.log(np.exp(-0.5 * t**2 - W / c * rest).sum() * step / np.sqrt(2.0 * np.pi))


@lru_cache(maxsize=1)
def _table():
    """Coefficients of powers, by Chebyshev interpolation, for :func:`_correction`."""
    values = []
    of_c, of_W = (np.cos(np.pi * (np.arange(n) + 0.5) / n) for n in _SHAPE)
    for place in 0.5 * (of_c + 1.0) * _place(np.sqrt(_WIDEST)):
        c = (_SCALE * place / (1.0 - place)) ** 2
        shares = (0.5 * (of_W + 1.0)) ** 2
        values.append([_missing(share / (1.0 - share), c) / place for share in shares])
    table = np.array(values)
    for x in (of_c, of_W):
        T = chebyshev.chebvander(x, len(x) - 1)
        powers = [
            np.pad(p := chebyshev.cheb2poly(row), (0, len(x) - len(p))) for row in np.eye(len(x))
        ]
        table = (np.array(powers).T @ np.linalg.solve(T, table)).T
    return table


def _place(sd):
    return sd / (sd + _SCALE)


def _correction(W, c):
    """Interpolate :func:`_missing` in its table, for `c` without the first axis of `W`."""
    place = _place(c.clamp(_SMALLEST, _WIDEST).sqrt())
    x, n = 2.0 * place / _place(_WIDEST**0.5) - 1.0, torch.arange(_SHAPE[0], device=c.device)
    table = torch.as_tensor(_table(), dtype=c.dtype, device=c.device)
    coefficients = (x[..., None] ** n @ table).movedim(-1, 0) * place
    y = 2.0 * (W / (1.0 + W)).clamp_min(_SMALLEST).sqrt() - 1.0
    total = torch.addcmul(coefficients[-2], coefficients[-1], y)
    out = None if total.requires_grad else total
    for coefficient in coefficients.flip(0)[2:]:
        total = torch.addcmul(coefficient, total, y, out=out)
    return total


def _exp(x):
    """The exponential, without overflow."""
    most = 0.95 * np.log(torch.finfo(x.dtype).max)
    return torch.exp(x.clamp(-most, most))


def _parts(x, q, r, df, k):
    """``e^-x``, ``k e^-x``, the share of noise in the variance, and ``q noise / variance^2``."""
    rho = torch.exp(-x)
    noise = _exp(x + k * (1.0 - rho))
    share = noise / (r + noise)
    return rho, k * rho, share, q * share / (r + noise)


def _log_joint(x, q, r, df, k):
    """Logarithm of the integrand up to a constant, the Jacobian and what :func:`_missing` is."""
    rest = -torch.expm1(-x)
    variance = r + _exp(x + k * rest)
    prior = df * (x - rest) + 0.5 * df * k * rest.square()
    return -0.5 * (prior + q / variance + variance.log())


def _reach(rate, W):
    """Return an upper bound of the `x` beyond which an integrand is negligible.

    There ``rate / 2 (x + e^-x - 1 + W / 2 (1 - e^-x)^2)`` is `_NEGLIGIBLE`.
    """
    t, ends = 2.0 * _NEGLIGIBLE / rate, []
    for least in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0):  # from where the second term is at least as much
        rest = (t - 0.5 * W * np.expm1(-least) ** 2).clamp_min(0.0)
        ends.append((rest + (2.0 * rest).sqrt().clamp_max(1.0)).clamp_min(least))
    share = (2.0 * t / W.clamp_min(_SMALLEST)).clamp_max(1.0 - 1e-9)
    ends.append(torch.where(share < 0.9, -torch.log1p(-share.sqrt()), torch.inf))
    return torch.stack(ends).amin(0)


@torch.no_grad()
def _panels(q, r, df, k):
    """Two intervals of `x`, ends (4, ...), with the modes, outside of which nothing matters."""
    # the right mode if c = 0 and noise is large: (r + X)^2 = ratio X, or where the two would be equal
    growth = torch.ones_like(q)
    for _ in range(2):
        ratio = (q + df * growth) / (df + 1.0)
        X = 0.5 * (ratio - 2.0 * r + (ratio * (ratio - 4.0 * r).clamp_min(0.0)).sqrt())
        w = torch.stack([X, torch.minimum(r, 0.25 * ratio)]).clamp_min(1.0).log()
        x = w / (1.0 + k)
        for _ in range(3):  # concave: from the left, monotone
            x = x + (w - x + k * torch.expm1(-x)) / (1.0 + k * torch.exp(-x))
        growth = torch.exp(w[0] - x[0])
    least, right, left = x[1], torch.maximum(x[0], x[1]), torch.zeros_like(q)
    for i in range(_N_STEPS[0]):  # on the logarithm of a ratio that is 1 at the mode
        rho, W, share, pull = _parts(right, q, r, df, k)
        above, below = pull + df * rho, df + share
        slope = (df * rho + (1.0 + W) * pull * (2.0 * share - 1.0)) / above
        slope = slope + (1.0 + W) * share * (1.0 - share) / below
        step, most = (above / below).log() / slope.clamp_min(0.2), 1.0 / (1.0 + W)
        right = torch.maximum(right + torch.minimum(torch.maximum(step, -most), most), least)
        if i < _N_STEPS[1]:
            rho, W, share, pull = _parts(left, q, r, df, k)
            bend = df * rho + (1.0 + W) * (share * (1.0 - share) - pull * (1.0 - 2.0 * share))
            step = (pull - share - df * (1.0 - rho)) / torch.maximum(bend, 0.1 * df * rho)
            most = 1.0 / (1.0 + W)  # to the right there may be the other mode
            left = left + torch.minimum(torch.maximum(step, -4.0 * most), 0.5 * most)
    modes = torch.stack([left, torch.maximum(left, right)])
    rho, W, share, pull = _parts(modes, q, r, df, k)
    # both ways, the integrand falls at least as fast as a gamma variable's density with this curvature
    bend = share * (1.0 - share) + (2.0 * share - 1.0) * pull
    curvature = torch.maximum(df * rho + (1.0 + W) * bend, 0.02 * df * rho) * (1.0 + W)
    t = 2.0 * _NEGLIGIBLE / curvature
    wider = t.new_tensor([1.2, 1.3]).view(-1, *[1] * q.ndim)  # but for what the other mode adds
    low = modes - wider * torch.log1p(t + (2.0 * t).sqrt())
    rate = df * rho + share * (1.0 - share) + (2.0 * share - 1.0).clamp_min(0.0) * pull
    high = modes + _reach(torch.maximum(rate, 0.02 * df * rho), W)
    # as far as usual noise goes, and as that which explains the error
    usual = torch.minimum(high[0], modes[0].clamp_min(0.0) + _reach(df, k))
    last = torch.minimum(high[1], torch.log1p(q) + _reach(df, torch.zeros_like(k)))
    last = torch.maximum(last, usual)
    a, b = torch.minimum(high[0], modes[1]), torch.maximum(low[1], modes[0])
    middle = 0.5 * (a + b)
    a, b = torch.where(a < b, a, middle), torch.where(a < b, b, middle)
    # of two modes, one may not matter
    drop = _log_joint(modes, q, r, df, k).diff(dim=0)[0]
    only = torch.where(drop > 1.3 * _NEGLIGIBLE, 1, torch.where(drop < -1.3 * _NEGLIGIBLE, 0, 2))
    choice = [
        (low[0], modes[0], modes[0], torch.minimum(last, usual)),
        (low[1], modes[1], modes[1], last),
        (low[0], a, b, last),
    ]
    return [torch.stack(ends).gather(0, only[None])[0] for ends in zip(*choice)]


def log_t_density(error, v, df, scale2, c=None):
    """Log density of ``N(0, v)`` plus t noise, whose log squared scale may have a variance `c`."""
    q, r, df, k = torch.broadcast_tensors(
        error.square() / scale2, v / scale2, df, df * 0.0 if c is None else 0.5 * df * c
    )
    panels = _panels(q.detach(), r.detach(), df.detach(), k.detach())
    given = [q, r, df, k, *panels, *([] if c is None else [c.expand_as(q)])]
    size = max(1, at_once(_AT_ONCE, q.device) // (2 * N_NODES))
    pieces = zip(*(part.flatten().split(size) for part in given))
    log_z = torch.cat([_log_integral(*piece) for piece in pieces]).view_as(q)
    half = 0.5 * df
    constant = torch.xlogy(half, half) - half - torch.lgamma(half) - 0.5 * (LOG_2PI + scale2.log())
    return log_z + constant


def _log_integral(q, r, df, k, a, b, c_, d, c=None):
    """Logarithm of the integral of :func:`_log_joint` over both panels, with few logarithms."""
    nodes, weights = gauss_legendre(N_NODES, q)
    low, lengths = torch.stack([a, c_]), torch.stack([b - a, d - c_])
    x = torch.addcmul(low[:, None], lengths[:, None], 0.5 * (1.0 + nodes[:, None])).flatten(0, 1)
    lengths = (0.5 * weights[:, None] * lengths.clamp_min(_SMALLEST)[:, None]).flatten(0, 1)
    rho = torch.exp(-x)
    rest = 1.0 - rho
    variance = r + _exp(torch.addcmul(x, k, rest))
    exponent = torch.addcmul(df * (x - rest), 0.5 * df * k, rest.square()).add_(q / variance)
    exponent = exponent.mul_(-0.5)
    if c is None:
        factor = variance.rsqrt()
    else:
        W = k * rho
        exponent = exponent + _correction(W, c)
        factor = ((1.0 + W) / variance).sqrt()
    largest = exponent.detach().amax(0)
    return (factor * lengths * torch.exp(exponent - largest)).sum(0).log() + largest
