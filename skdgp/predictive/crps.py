"""The continuous ranked probability score of distributions that have no closed form for it.

With the distribution function F it is

    integral from 0 to infinity of F(y - d)^2 + (1 - F(y + d))^2 over d.

Written so, all terms are positive, and the score keeps its relative precision where the difference of two
expected distances would lose it.
"""

from functools import lru_cache, partial

import numpy as np
import torch
from numpy.polynomial import legendre

_REACH = 1000.0  #: standard deviations beyond which Cantelli's inequality leaves less than 1e-9
_N_NODES = 11
_NEGLIGIBLE = 1e-7  #: weight of components that may be left out
_N_TERMS = 64  #: counts on either side of y that are summed one by one
_SMALL = 1e-5  #: share of the score that what follows them may have, if it is a geometric series
_TINY = np.finfo(float).tiny
_BUDGET = 4_000_000  #: numbers that one evaluation may need at once


def crps_of_mixture(y, mean, std, weights, means, variances):
    """Score of mixtures (c, n) of many Gaussians with moments `mean` and `std`, to a relative error of 1e-4."""
    weights = np.broadcast_to(weights, means.shape)
    most = weights.max(1)
    order = np.argsort(most)
    kept = np.sort(order[np.cumsum(most[order]) > _NEGLIGIBLE])
    # around y, single precision is enough, and twice as fast
    weights, means, factors = (
        torch.from_numpy(np.array(part[kept].T, np.float32, order="C"))
        for part in (weights, means - y, 1.0 / np.sqrt(2.0 * variances))
    )

    def cdf(which, d):
        d = torch.as_tensor(d, dtype=torch.float32)[:, :, None]
        z = (d - means[which, None]) * factors[which, None]
        total = torch.bmm(z.erf_(), weights[which, :, None])[..., 0].double().numpy()
        return 0.5 + 0.5 * total

    def score_density(which, d):
        return np.square(cdf(which, -d)) + np.square(1.0 - cdf(which, d))

    at_once = _BUDGET // (_N_NODES * weights.shape[1])
    return _integral_over_distances(score_density, y, mean, std, at_once, tol=1e-6)


def crps_of_mapped(y, weights, means, variances, low, high, scaler):
    """Score of targets `y` (n,) that the map of `scaler`, of one output, makes mixtures (c, n) of Gaussians.

    It is an integral over the values of the map. The distributions end at `low` and `high` (n,), in
    standardized units: what is beyond counts as if it were there.
    """
    given = scaler.transform(y[:, None])[:, 0]
    z = np.clip(given, low, high)
    scores = np.where(z == given, 0.0, np.abs(y - scaler.inverse(z[:, None])[:, 0]))
    weights, means, factors = (
        torch.tensor(part.T) for part in (weights, means, 1.0 / np.sqrt(2.0 * variances))
    )
    at_once = _BUDGET // (_N_NODES * weights.shape[1])
    for side, reach in ((-1.0, z - low), (1.0, high - z)):

        def density(which, d, side=side):
            x = z[which, None] + side * d
            at = (torch.as_tensor(x)[:, :, None] - means[which, None]) * factors[which, None]
            outside = torch.bmm(torch.special.erfc(side * at), weights[which, :, None])[..., 0]
            return np.square(0.5 * outside.numpy()) * scaler.slope(x)

        scores = scores + integrate(partial(_in_pieces, density, at_once), reach, tol=1e-6)
    return scores


def crps_of_counts(y, mean, std, cdf, at_once):
    """Score of distributions on the integers, where F has steps and the integral is a sum.

    ``cdf(which, x)`` evaluates the distribution functions `which` (m,) at `x` (m, q), `at_once` together.
    """
    start = np.floor(y)

    def term(which, d):
        at = start[which, None]
        return np.square(cdf(which, at - d)) + np.square(1.0 - cdf(which, at + d))

    def polygon(which, d):  # through the terms
        before = np.floor(d)
        share = d - before
        return (1.0 - share) * term(which, before) + share * term(which, before + 1.0)

    everything = np.arange(len(y))
    below = _in_pieces(cdf, at_once, everything, start[:, None])[:, 0]
    scores = (y - start) * below**2 + (1.0 - (y - start)) * (1.0 - below) ** 2
    rest = everything
    for first in range(1, _N_TERMS, 8):
        d = np.broadcast_to(np.arange(first, first + 8.0), (len(rest), 8))
        terms = _in_pieces(term, at_once, rest, d)
        scores[rest] += terms.sum(1)
        before, last = terms[:, -2], terms[:, -1]
        tail = last**2 / np.maximum(before - last, 0.1 * before + _TINY)  # of a geometric series
        more = tail > _SMALL * scores[rest]
        scores[rest[~more]] += tail[~more]
        rest, last = rest[more], last[more]
    if len(rest):  # what follows a term sums to the integral of the polygon less half of the term
        scores[rest] -= 0.5 * last
        scores[rest] += _integral_over_distances(
            lambda which, d: polygon(rest[which], d),
            *(part[rest] for part in (y, mean, std)),
            at_once,
            tol=1e-5,  # more would look at every kink
            start=float(_N_TERMS),
        )
    return scores


def crps_of_densities(y, mean, std, cdf, at_once):
    """Score of distributions that have a density; `cdf` and `at_once` as for :func:`crps_of_counts`."""

    def score_density(which, d):
        at = y[which, None]
        return np.square(cdf(which, at - d)) + np.square(1.0 - cdf(which, at + d))

    return _integral_over_distances(score_density, y, mean, std, at_once, tol=1e-6)


def _integral_over_distances(f, y, mean, std, at_once, tol, start=0.0):
    """Integrals of f over d from `start`, in equal steps near y and in equal ratios far away."""

    def integrand(which, t):
        scale = std[which, None]
        return f(which, start + scale * np.sinh(t)) * scale * np.cosh(t)

    upper = np.arcsinh(np.abs(y - mean) / std + _REACH)
    return integrate(lambda *points: _in_pieces(integrand, at_once, *points), upper, tol)


def _in_pieces(f, at_once, *arrays):
    """Values of a function of rows, a few rows at a time."""
    size = max(1, at_once)
    pieces = range(0, max(1, len(arrays[0])), size)
    return np.concatenate([f(*(array[i : i + size] for array in arrays)) for i in pieces])


@lru_cache(maxsize=1)
def _rule():
    """Clenshaw-Curtis nodes and weights, and a map to the leading two Legendre coefficients."""
    nodes = -np.cos(np.pi * np.arange(_N_NODES) / (_N_NODES - 1))
    coefficients = np.linalg.inv(legendre.legvander(nodes, _N_NODES - 1))
    norms = np.sqrt(2.0 / (2.0 * np.arange(_N_NODES) + 1.0))  # of Legendre polynomials
    return nodes, 2.0 * coefficients[0], (coefficients * norms[:, None])[-2:].T


def integrate(f, upper, tol):
    """Integrals of many non-negative functions from 0 to `upper` (n,), by adaptive bisection.

    ``f(which, t)`` evaluates the functions `which` (m,) at the rows of `t` (m, q). Intervals are halved until
    the leading two coefficients of the polynomial through their nodes are small: unlike the difference of two
    rules they do not both vanish by chance at a step.
    """
    nodes, weights, leading = _rule()
    total = np.zeros(len(upper))
    which, a, b = np.arange(len(upper)), np.zeros(len(upper)), upper
    while len(which):
        middle, half = 0.5 * (a + b), 0.5 * (b - a)
        values = f(which, middle[:, None] + half[:, None] * nodes)
        parts, errors = half * (values @ weights), half * np.hypot(*(values @ leading).T)
        estimate = total.copy()
        np.add.at(estimate, which, parts)
        halve = errors > tol * estimate[which]  # never where there is a NaN
        np.add.at(total, which[~halve], parts[~halve])
        which, a, middle, b = (array[halve] for array in (which, a, middle, b))
        which, a, b = np.tile(which, 2), np.append(a, middle), np.append(middle, b)
    return total
