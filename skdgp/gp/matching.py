"""Layers with random inputs: the first two moments of their outputs."""

import torch
from torch.autograd.function import once_differentiable

from ..linalg import cholesky, gradient_of_gram, inverse_triangular
from ..quadrature import gauss_hermite

_NODES = {1: 20, 2: 10}  #: Gauss-Hermite nodes for each random input, where there are few of them


class _InverseFactor(torch.autograd.Function):
    """Inverse of the Cholesky factor of ``K + jitter I``."""

    @staticmethod
    def forward(ctx, K, jitter):
        L_inv = inverse_triangular(cholesky(K, jitter))
        ctx.save_for_backward(L_inv)
        return L_inv

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (L_inv,) = ctx.saved_tensors
        return gradient_of_gram(L_inv, g @ L_inv.T), None


def check_matching(kernel, n_random):
    """Raise ValueError if layers of such a kernel cannot have so many random inputs."""
    if kernel.psi is None and n_random not in _NODES:
        raise ValueError(
            f"{type(kernel).__name__} has no closed form for uncertain inputs, and hidden layers of width "
            f"{n_random} are too wide for quadrature; use the kernel 'squared_exponential', or width "
            f"{max(_NODES)} at most."
        )


def matched_moments(kernel, Z, m, v, q_mean, Q, W, jitter):
    r"""Mean and variance of a layer's outputs for inputs :math:`h_p \sim N(m_p, \mathrm{diag}\, v_p)`.

    Parameters
    ----------
    kernel : Kernel
    Z : tensor of shape (M, n)
    m, v : tensors of shape (P, n)
    q_mean : tensor of shape (M, D)
        Of the whitened inducing variables.
    Q : tensor of shape (D, M, M)
        Their covariances, less the prior's.
    W : tensor of shape (n, D) or None
        The linear mean function.
    jitter : float

    Returns
    -------
    mean, var : tensors of shape (P, D)
        Report, equations 3.19 and 3.20, in terms of covariances, and with the factor of two that the
        latter lacks.
    """
    L_inv = _InverseFactor.apply(kernel(Z, Z), jitter)
    psi = kernel.psi(Z, m, v)
    c = L_inv.T @ q_mean  # M, D
    E = L_inv.T @ (Q + q_mean.T[:, :, None] * q_mean.T[:, None, :]) @ L_inv  # D, M, M
    mean = psi.psi1 @ c
    var = psi.variance + psi.contract(E) - mean.square()
    if W is not None:
        var = var + v @ W.square() + 2.0 * psi.slopes(c, W)
        mean = mean + m @ W
    return mean, var


def moments_by_quadrature(moments, m, v, n_random):
    """Mean and variance of a layer's outputs, by quadrature over its first `n_random` inputs.

    Parameters
    ----------
    moments : callable
        Mean and variance, (P, D), for certain inputs (P, n).
    m, v : tensors of shape (P, n)
    n_random : int
    """
    nodes, log_weights = gauss_hermite(_NODES[n_random], m)
    nodes = torch.cartesian_prod(*[nodes] * n_random).view(-1, 1, n_random)  # K, 1, n_random
    weights = (
        torch.cartesian_prod(*[log_weights] * n_random)
        .view(-1, 1, n_random)
        .sum(-1, keepdim=True)
        .exp()
    )
    h = m[:, :n_random] + v[:, :n_random].sqrt() * nodes
    H = torch.cat([h, m[:, n_random:].expand(len(h), -1, -1)], -1)  # K, P, n
    mean, var = (part.view(len(h), len(m), -1) for part in moments(H.flatten(0, 1)))
    total = (weights * mean).sum(0)
    return total, (weights * (var + (mean - total).square())).sum(0)
