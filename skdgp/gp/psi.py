"""Expectations of the squared exponential kernel under Gaussian inputs (psi statistics).

The matrix of second moments of a row has as many entries as there are pairs of inducing inputs; it
is only ever needed in sums over these pairs, and only exists for one inducing input and the others
before it at a time. The weights of such sums can be large and cancel, so that the sums are taken of
differences as small as the variances of the inputs.
"""

import torch
from torch.autograd.function import once_differentiable

_AT_ONCE = 2**18  #: exponentials at a time, few enough for the cache


class _PairSums(torch.autograd.Function):
    """``2 sum_{j < i} E_dij R_ip R_jp expm1((A_i W)_jp)``, of shape (D, P).

    For W (n, P), A (M, M, n), R (M, P) and E (D, M, M). The exponentials are computed again on the
    way back, so that memory does not grow with P M^2.
    """

    @staticmethod
    def forward(ctx, W, A, R, E):
        ctx.save_for_backward(W, A, R, E)
        sums = W.new_zeros(len(E), W.shape[1])
        for i, rows, S in _exponentials(W, A):
            S.mul_(R[:i, rows])
            sums[:, rows].addcmul_(R[i, rows], E[:, i, :i] @ S, value=2.0)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        W, A, R, E = ctx.saved_tensors
        dW, dA, dR, dE = (torch.zeros_like(given) for given in ctx.saved_tensors)
        g = 2.0 * g
        for i, rows, S in _exponentials(W, A):
            A_i, E_i, R_j, g_i = A[i, :i], E[:, i, :i], R[:i, rows], g[:, rows] * R[i, rows]
            G = E_i.T @ g_i
            dR[:i, rows].addcmul_(G, S)
            S.mul_(R_j)
            dE[:, i, :i].addmm_(g_i, S.T)
            dR[i, rows].add_((g[:, rows] * (E_i @ S)).sum(0))
            S.add_(R_j).mul_(G)
            dW[:, rows].addmm_(A_i.T, S)
            dA[i, :i].addmm_(S, W[:, rows].T)
        return dW, dA, dR, dE


def _exponentials(W, A):
    """An inducing input `i`, some rows, and ``expm1(A_i W)`` for all inputs before `i`."""
    M, size = len(A), max(1, _AT_ONCE // len(A))
    space = W.new_empty(M * min(size, W.shape[1]))
    for first in range(0, W.shape[1], size):
        rows = slice(first, min(first + size, W.shape[1]))
        for i in range(1, M):
            S = space[: i * (rows.stop - first)].view(i, -1)
            yield i, rows, torch.mm(A[i, :i], W[:, rows], out=S).expm1_()


class SquaredExponentialPsi:
    r"""Psi statistics for inputs :math:`h_p \sim N(m_p, \mathrm{diag}\, v_p)`.

    Parameters
    ----------
    Z : tensor of shape (M, n)
        Inducing inputs.
    m, v : tensors of shape (P, n)
    lengthscale : tensor of shape (n,) or ()
    variance : tensor of shape ()

    Attributes
    ----------
    psi1 : tensor of shape (P, M)
        :math:`\mathrm{E}\, k(h_p, z_i)`.
    root : tensor of shape (P, M)
        Root :math:`\chi_{pi}` of :math:`\psi_{2,pii} = \mathrm{E}\, k(h_p, z_i)^2`.
    excess : tensor of shape (P, M)
        ``root - psi1``, without a difference.
    """

    def __init__(self, Z, m, v, lengthscale, variance):
        center = Z.detach().mean(0)  # squares are multiplied out below, so make them small
        self.Z, self.m, self.v = Z - center, m - center, v
        self.variance, self.l2 = variance, lengthscale.square().expand(Z.shape[1])
        l2 = self.l2
        one, two = l2 + v, l2 + 2.0 * v
        self._slope = v / (l2 * two)
        self.root = self._exponents(1.0 / two, (l2 / two).log(), variance.log()).exp()
        ratio = self._exponents(v / (one * two), -(v * self._slope).log1p(), 0.0)  # not positive
        self.excess = -self.root * ratio.expm1()
        self.psi1 = self.root - self.excess

    def _exponents(self, w, logs, constant):
        """``constant + sum_q (logs / 4 - w (m - z)^2 / 2)``, of shape (P, M)."""
        constant = constant + (0.25 * logs - 0.5 * w * self.m.square()).sum(1, keepdim=True)
        F = torch.cat([w * self.m, -0.5 * w, constant], 1)
        return (torch.cat([self.Z, self.Z.square(), torch.ones_like(self.Z[:, :1])], 1) @ F.T).T

    def contract(self, E):
        r"""Sums over what the second moments :math:`\psi_2` lack of the products of their roots.

        In :math:`\psi_{2,pij} = \chi_{pi} \chi_{pj} \exp(-y_{pij})`, the exponent
        :math:`y_{pij} = \sum_q v_{pq} (z_{iq} - z_{jq})^2 / (2 \ell_q^2 (\ell_q^2 + 2 v_{pq}))` is
        as small as the variances.

        Parameters
        ----------
        E : tensor of shape (D, M, M)
            Symmetric.

        Returns
        -------
        sums : tensor of shape (P, D)
            :math:`\sum_{ij} E_{dij} (\psi_{2,pij} - \chi_{pi} \chi_{pj})`, at a cost of P M^2 D.
        """
        apart = (self.Z[:, None] - self.Z).square()
        return _PairSums.apply((-0.5 * self._slope).T.contiguous(), apart, self.root.T, E).T

    def slopes(self, c, W):
        r"""Covariance of a linear map and a function in the span of the kernel.

        Parameters
        ----------
        c : tensor of shape (M, D)
        W : tensor of shape (n, D)

        Returns
        -------
        covariance : tensor of shape (P, D)
            Of :math:`h^\top w_d` and :math:`\sum_i c_{id} k(h, z_i)` (report, equation 3.23, less
            the product of the means).
        """
        weighted = (c[:, None] * self.Z[..., None]).flatten(1)  # M, n D
        moved = (self.psi1 @ weighted).view(-1, *W.shape)  # P, n, D
        moved = moved - self.m[..., None] * (self.psi1 @ c)[:, None]
        return (moved * W * (self.v / (self.l2 + self.v))[..., None]).sum(1)
