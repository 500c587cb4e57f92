"""Integrals over a standard normal distribution, and inverses of distribution functions."""

import math
from functools import lru_cache

import numpy as np
import torch
from scipy.special import roots_hermitenorm

from .random import sobol_normal

_PRECISION = 1e-13  #: of quantiles, in standard deviations
_MOST_HALVINGS = 1100  #: from the largest float64 number to the least one
_HALVINGS = 30  #: of an interval
_NEGLIGIBLE = 30.0  #: below the largest, in logarithms, an integrand is left out


def _tensors(arrays, like):
    return tuple(torch.as_tensor(a, dtype=like.dtype, device=like.device) for a in arrays)


@lru_cache(maxsize=32)
def _hermite(n):
    nodes, weights = roots_hermitenorm(n)
    with np.errstate(divide="ignore"):  # of many nodes, the outer weights underflow
        return nodes, np.log(weights / weights.sum())


def gauss_hermite(n, like):
    """Nodes and log-weights for means of polynomials over a standard normal variable."""
    return _tensors(_hermite(n), like)


@lru_cache(maxsize=32)
def _legendre(n):
    return np.polynomial.legendre.leggauss(n)


def gauss_legendre(n, like):
    """Nodes and weights for integrals of polynomials over the interval from -1 to 1."""
    return _tensors(_legendre(n), like)


@lru_cache(maxsize=32)
def _nodes(dim, budget):
    order = int(budget ** (1.0 / dim) + 1e-9)
    if order >= 5:
        nodes, log_weights = _hermite(order)
        grid = np.stack(np.meshgrid(*[nodes] * dim, indexing="ij"), -1).reshape(-1, dim)
        weight = sum(np.meshgrid(*[log_weights] * dim, indexing="ij")).reshape(-1)
        return grid, weight
    half = 2 ** int(np.log2(max(budget, 2)) - 1)
    nodes = sobol_normal(half, dim, seed=0)
    if half >= 2 * dim:  # match the second moments, all of them or those of each variable
        nodes = nodes @ np.linalg.inv(np.linalg.cholesky(nodes.T @ nodes / half)).T
    else:
        nodes /= np.sqrt(np.mean(nodes**2, axis=0))
    return np.vstack([nodes, -nodes]), np.full(2 * half, -np.log(2 * half))


def normal_nodes(dim, budget, like):
    """At most `budget` nodes (n, dim), with log-weights, for `dim` standard normal variables.

    A Gauss-Hermite grid where at least five nodes an axis fit the budget, otherwise a fixed
    scrambled Sobol sequence with its mirror image, scaled to the right second moments.
    """
    return _tensors(_nodes(dim, budget), like)


@lru_cache(maxsize=8)
def _sobol(dim, n_groups, n):
    nodes = sobol_normal(n_groups * n, dim, seed=0).reshape(n_groups, n, dim)
    return nodes.transpose(1, 0, 2).copy()


def sobol_nodes(dim, n_groups, n, like):
    """Nodes (n, n_groups, dim), together one Sobol sequence, so that errors over groups cancel."""
    return _tensors([_sobol(dim, n_groups, n)], like)[0]


def peak(log_density, rises, low, high, sd):
    """The mode of a log-concave function that `rises` before it, and where it is negligible.

    It falls from there at least as fast as a Gaussian of standard deviation `sd`.
    """

    def bisect(low, high, is_left):
        for _ in range(_HALVINGS):
            f = 0.5 * (low + high)
            left = is_left(f)
            low, high = torch.where(left, f, low), torch.where(left, high, f)
        return 0.5 * (low + high)

    reach = math.sqrt(2.0 * _NEGLIGIBLE) * sd
    mode = bisect(low, high, rises)
    least = log_density(mode) - _NEGLIGIBLE
    low = bisect(mode - reach, mode, lambda f: log_density(f) < least)
    return low, mode, bisect(mode, mode + reach, lambda f: log_density(f) > least)


def inverse(cdf, p, mean, std, discrete=False):
    """Quantiles of the orders `p` by bisection, for distributions with these moments.

    Parameters
    ----------
    cdf : callable
        Distribution functions at a tensor of the shape of `mean`.
    p : float or tensor that broadcasts against `mean`
    mean, std : tensors of one shape
    discrete : bool
        Whether quantiles are counts.

    Returns
    -------
    quantiles : tensor of the shape of `mean`
    """
    p = torch.as_tensor(p).to(mean)
    # Cantelli's inequality brackets every quantile
    low = mean - std * (((1.0 - p) / p).sqrt() * 1.001 + 1e-6)
    high = mean + std * ((p / (1.0 - p)).sqrt() * 1.001 + 1e-6)
    if discrete:
        low, high = torch.full_like(low, -1.0), high.clamp_min(0.0).ceil() + 1.0
    for _ in range(_MOST_HALVINGS):
        middle = 0.5 * (low + high)
        middle = middle.floor() if discrete else middle
        # beyond 2^53 counts are more than one apart
        between = (low < middle) & (middle < high) & (discrete | (high - low > _PRECISION * std))
        if not between.any():
            break
        enough = cdf(middle) >= p
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return high
