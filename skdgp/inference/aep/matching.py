"""Layers with random inputs: the first two moments of their outputs."""

import torch
from torch.autograd.function import once_differentiable

from ...linalg import cholesky, gradient_of_gram, inverse_triangular
from ...quadrature import gauss_hermite

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


class _QuadraticForms(torch.autograd.Function):
    """``sum_ij Q_dij A_ip A_jp`` for symmetric Q (D, M, M) and A (M, P); shape (D, P)."""

    @staticmethod
    def forward(ctx, Q, A):
        QA = Q @ A
        ctx.save_for_backward(A, QA)
        return (QA * A).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        A, QA = ctx.saved_tensors
        g = g[:, None]
        return (A * g) @ A.T, (QA * g).sum(0).mul_(2.0)


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

    Notes
    -----
    Where inducing inputs are close, `E` is so large that nothing is left of the difference
    :math:`\sum_{ij} E_{ij} \psi_{2,ij} - \mathrm{mean}^2`. With the roots :math:`\chi_i` of
    :math:`\psi_{2,ii}`, it is the sum of :math:`\chi^\top L^{-\top} Q L^{-1} \chi`, of
    :math:`(\chi^\top c)^2 - (\psi_1^\top c)^2`, and of what :math:`\psi_2` lacks of
    :math:`\chi \chi^\top`; the last two are as small as `v`.
    """
    L_inv = _InverseFactor.apply(kernel(Z, Z), jitter)
    psi = kernel.psi(Z, m, v)
    c = L_inv.T @ q_mean  # M, D
    E = L_inv.T @ (Q + q_mean.T[:, :, None] * q_mean.T[:, None, :]) @ L_inv  # D, M, M
    A = L_inv @ psi.root.T  # M, P
    mean, excess = psi.psi1 @ c, psi.excess @ c
    var = psi.variance + _QuadraticForms.apply(Q, A).T + psi.contract(E)
    var = var + excess * (2.0 * mean + excess)  # of (mean + excess)^2 over mean^2
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
