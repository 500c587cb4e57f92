"""Wishart and inverse Wishart distributions, by Cholesky factors.

``W(V, nu)`` has the mean ``nu V``; ``W^{-1}(Psi, nu)`` of p x p matrices has the mean
``Psi / (nu - p - 1)``, as in :data:`scipy.stats.invwishart`.
"""

import math

import numpy as np
import torch
from scipy.special import gammaincinv, gammaln, ndtr, psi, zeta

from ...random import gamma, normal


def log_det(L):
    """Half the log-determinants of ``L L^T``."""
    return torch.diagonal(L, dim1=-2, dim2=-1).log().sum(-1)


def kl_of_degrees(nu_q, nu_p, p):
    """Part of the divergence in the degrees of freedom, floats, alone, and its two derivatives."""
    a_q, a_p = (0.5 * nu - 0.5 * np.arange(p) for nu in (nu_q, nu_p))
    psi_q, half = psi(a_q).sum(), 0.5 * (nu_q - nu_p)
    value = (gammaln(a_p) - gammaln(a_q)).sum() + half * psi_q
    # zeta(2, a) is the trigamma function
    return value, 0.5 * half * zeta(2.0, a_q).sum(), 0.5 * (psi(a_p).sum() - psi_q)


def degrees(nu, p):
    """Degrees of freedom of the chi-square variables of :func:`inverse_wishart_root`, shape (p,)."""
    return nu - p + 1.0 + torch.arange(p, dtype=nu.dtype, device=nu.device)


def inverse_wishart_root(L, n, c2):
    """Cholesky factor of a draw from ``W^{-1}(L L^T, nu)``, by Bartlett's decomposition."""
    M = n.tril(-1) + torch.diag_embed(c2.sqrt())
    return torch.linalg.solve_triangular(M, L.expand_as(M), upper=False, left=False)


class Fresh:
    """Base randomness from a generator, for training."""

    def __init__(self, n_draws, generator):
        self.n_draws, self.generator = n_draws, generator

    def normal(self, shape, like):
        """Standard normal variables (n_draws, ...)."""
        like = like.detach()
        single = like.new_empty(0, dtype=torch.float32)  # drawn in half the time
        return normal((self.n_draws, *shape), self.generator, single).to(like)

    def lower(self, p, like):
        """Normal variables for :func:`inverse_wishart_root`."""
        return self.normal((p, p), like)

    def chi2(self, dof, shape):
        """Chi-square variables (n_draws, ...), for degrees of freedom that broadcast to the shape."""
        return 2.0 * gamma(0.5 * dof, (self.n_draws, *shape), self.generator, dof)


class Fixed:
    """Base randomness from given normal variables (n_draws, dim), used up from left to right."""

    def __init__(self, points):
        self.points, self.n_draws, self._used = points, len(points), 0

    def _take(self, shape):
        size = math.prod(shape)
        part = self.points[:, self._used : self._used + size]
        self._used += size
        return part.reshape(self.n_draws, *shape)

    def normal(self, shape, like):
        return torch.as_tensor(self._take(shape)).to(like)

    def lower(self, p, like):
        n = np.zeros((self.n_draws, p, p))
        n[(slice(None), *np.tril_indices(p, -1))] = self._take((p * (p - 1) // 2,))
        return torch.as_tensor(n).to(like)

    def chi2(self, dof, shape):
        u = ndtr(self._take(shape)).clip(1e-12, 1.0 - 1e-12)
        return torch.as_tensor(2.0 * gammaincinv(0.5 * dof.numpy(force=True), u)).to(dof)
