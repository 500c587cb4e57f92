"""Densities and divergences of Wishart distributions, for comparison."""

import math

import torch

from skdgp.inference.deep_kernel_process.wishart import log_det


def triangular(L, B):
    """``L^{-1} B`` for a lower triangular `L`."""
    return torch.linalg.solve_triangular(L, B, upper=False)


def _steps(a, p):
    return a[..., None] - 0.5 * torch.arange(p, dtype=a.dtype, device=a.device)


def multivariate_lgamma(a, p):
    """Logarithm of the multivariate gamma function."""
    return 0.25 * p * (p - 1) * math.log(math.pi) + torch.lgamma(_steps(a, p)).sum(-1)


def multivariate_digamma(a, p):
    """Its derivative."""
    return torch.digamma(_steps(a, p)).sum(-1)


def inverse_wishart_log_density(C, L, nu):
    """``log W^{-1}(C C^T; L L^T, nu)``, shape (...)."""
    p = C.shape[-1]
    squares = triangular(C, L).square().sum((-1, -2))
    normalizer = 0.5 * nu * p * math.log(2.0) + multivariate_lgamma(0.5 * nu, p)
    return nu * log_det(L) - (nu + p + 1.0) * log_det(C) - 0.5 * squares - normalizer


def wishart_log_density(C, L, nu):
    """``log W(C C^T; L L^T, nu)``, shape (...)."""
    p = C.shape[-1]
    squares = triangular(L, C).square().sum((-1, -2))
    normalizer = 0.5 * nu * p * math.log(2.0) + multivariate_lgamma(0.5 * nu, p)
    return (nu - p - 1.0) * log_det(C) - nu * log_det(L) - 0.5 * squares - normalizer


def inverse_wishart_kl(L_q, nu_q, L_p, nu_p):
    """Divergence of ``W^{-1}(L_q L_q^T, nu_q)`` from ``W^{-1}(L_p L_p^T, nu_p)``, shape (...)."""
    p = L_q.shape[-1]
    squares = triangular(L_q, L_p).square().sum((-1, -2))
    of_degrees = multivariate_lgamma(0.5 * nu_p, p) - multivariate_lgamma(0.5 * nu_q, p)
    of_degrees = of_degrees + 0.5 * (nu_q - nu_p) * multivariate_digamma(0.5 * nu_q, p)
    return nu_p * (log_det(L_q) - log_det(L_p)) + 0.5 * nu_q * (squares - p) + of_degrees
