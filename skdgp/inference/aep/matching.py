"""Layers with random inputs: the first two moments of their outputs."""

from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from ...gp.frozen import FormLayer
from ...gp.kernels import SquaredExponential
from ...gp.kernels.base import tensor_like
from ...linalg import cholesky, gradient_of_gram, inverse_triangular
from ...quadrature import gauss_hermite
from .psi import SquaredExponentialPsi

_SMALLEST = 1e-10  #: bound on variances, which are differences
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


def psi_of(kernel):
    """Return ``psi(Z, m, v)`` for expectations under Gaussian inputs; None without a closed form."""
    if not isinstance(kernel, SquaredExponential):
        return None

    def psi(Z, m, v):
        lengthscale, variance = tensor_like(kernel.lengthscale, Z), tensor_like(kernel.variance, Z)
        return SquaredExponentialPsi(Z, m, v, lengthscale, variance)

    return psi


def check_matching(kernel, n_random):
    """Raise ValueError if layers of such a kernel cannot have so many random inputs."""
    if psi_of(kernel) is None and n_random not in _NODES:
        raise ValueError(
            f"{type(kernel).__name__} has no closed form for uncertain inputs, and hidden layers of width "
            f"{n_random} are too wide for quadrature; use the kernel 'squared_exponential', or width "
            f"{max(_NODES)} at most."
        )


class Matched(NamedTuple):
    r"""Outputs with a common kernel, for inputs :math:`h_p \sim N(m_p, \mathrm{diag}\, v_p)`.

    Notes
    -----
    Where inducing inputs are close, `E` is so large that nothing is left of the difference
    :math:`\sum_{ij} E_{ij} \psi_{2,ij} - \mathrm{mean}^2`. With the roots :math:`\chi_i` of
    :math:`\psi_{2,ii}`, it is the sum of :math:`\chi^\top L^{-\top} Q L^{-1} \chi`, of
    :math:`(\chi^\top c)^2 - (\psi_1^\top c)^2`, and of what :math:`\psi_2` lacks of
    :math:`\chi \chi^\top`; the last two are as small as `v`.
    """

    psi: object  #: of the kernel
    Z: torch.Tensor  #: (M, n)
    L_inv: torch.Tensor  #: (M, M)
    Q: torch.Tensor  #: (D, M, M), covariances of the whitened inducing variables, less the prior's
    c: torch.Tensor  #: (M, D), ``L^{-T} q_mean``
    E: torch.Tensor  #: (D, M, M), ``L^{-T} (Q + q_mean q_mean^T) L^{-1}``

    @classmethod
    def of(cls, kernel, Z, q_mean, Q, jitter):
        """None for kernels without a closed form."""
        psi = psi_of(kernel)
        if psi is None:
            return None
        L_inv = _InverseFactor.apply(kernel(Z, Z), jitter)
        E = L_inv.T @ (Q + q_mean.T[:, :, None] * q_mean.T[:, None, :]) @ L_inv
        return cls(psi, Z, L_inv, Q, L_inv.T @ q_mean, E)

    def moments(self, m, v, W):
        """Mean and variance, (P, D), for inputs (P, n) and the linear mean function `W`, (n, D) or None.

        Report, equations 3.19 and 3.20, in terms of covariances, and with the factor of two that the
        latter lacks.
        """
        psi, c = self.psi(self.Z, m, v), self.c
        A = self.L_inv @ psi.root.T  # M, P
        mean, excess = psi.psi1 @ c, psi.excess @ c
        var = psi.variance + (self.Q @ A * A).sum(1).T + psi.contract(self.E)
        var = var + excess * (2.0 * mean + excess)  # of (mean + excess)^2 over mean^2
        if W is not None:
            var = var + v @ W.square() + 2.0 * psi.slopes(c, W)
            mean = mean + m @ W
        return mean, var


def match(layers, X, moments):
    """Moments of the last layer, by ``moments(i, layer, m, v, n_random)`` layer by layer."""
    last = len(layers) - 1

    def visit(i, layer, H):
        mean, var = moments(i, layer, *H, layers[i - 1].n_outputs if i else 0)
        var = var.clamp_min(_SMALLEST)
        return (mean, var) if i == last else torch.stack([mean, var])

    return layers.walk(torch.stack([X, torch.zeros_like(X)]), visit)


def matched_moments(layer, q, m, v, n_random):
    """Mean and variance of outputs for inputs ``N(m, diag(v))``, the first of them random."""
    matched = Matched.of(layer.kernel(), layer.Z, *q, layer.jitter)
    if matched is None:
        return moments_by_quadrature(lambda H: layer.moments(H, q), m, v, n_random)
    mean, var = matched.moments(m, v, layer.W)
    return mean, var + layer.noise()


class MatchedLayer(FormLayer):
    """A layer at rest that also takes random inputs."""

    def __init__(self, *args):
        super().__init__(*args)
        self._matched = Matched.of(self.kernel, self.Z, self.q_mean, self.excess(), self.jitter)

    def matched_moments(self, m, v, n_random):
        """As :func:`matched_moments`."""
        if self._matched is None:
            return moments_by_quadrature(self.moments, m, v, n_random)
        mean, var = self._matched.moments(m, v, self.W)
        return mean, var + self.noise()


def moments_by_quadrature(moments, m, v, n_random):
    """Mean and variance of a layer's outputs, by quadrature over its first `n_random` inputs."""
    nodes, log_weights = (
        torch.cartesian_prod(*[part] * n_random).view(-1, 1, n_random)  # K, 1, n_random
        for part in gauss_hermite(_NODES[n_random], m)
    )
    weights = log_weights.sum(-1, keepdim=True).exp()
    h = m[:, :n_random] + v[:, :n_random].sqrt() * nodes
    H = torch.cat([h, m[:, n_random:].expand(len(h), -1, -1)], -1)  # K, P, n
    mean, var = (part.view(len(h), len(m), -1) for part in moments(H.flatten(0, 1)))
    total = (weights * mean).sum(0)
    return total, (weights * (var + (mean - total).square())).sum(0)
