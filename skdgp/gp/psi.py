"""Expectations of the squared exponential kernel under Gaussian inputs (psi statistics).

The matrix of second moments of a row has as many entries as there are pairs of inducing inputs; it
is only ever needed in sums over these pairs, and only exists for a few rows at a time.
"""

import torch
from torch.autograd.function import once_differentiable

_AT_ONCE = 2**18  #: exponentials at a time, few enough for the cache


class _ExpContraction(torch.autograd.Function):
    """``sum_r exp((F H)_pr) E_dr`` for F (P, k), H (k, R) and E (D, R); shape (P, D).

    The exponentials are computed again on the way back, so that memory does not grow with P R.
    """

    @staticmethod
    def forward(ctx, F, H, E):
        ctx.save_for_backward(F, H, E)
        return torch.cat([S @ E.T for _, S in _exponentials(F, H)])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        F, H, E = ctx.saved_tensors
        dF, dH, dE = torch.empty_like(F), torch.zeros_like(H), torch.zeros_like(E)
        for rows, S in _exponentials(F, H):
            dE.addmm_(g[rows].T, S)
            S.mul_(g[rows] @ E)
            torch.mm(S, H.T, out=dF[rows])
            dH.addmm_(F[rows].T, S)
        return dF, dH, dE


def _exponentials(F, H):
    size = max(1, _AT_ONCE // H.shape[1])
    space = F.new_empty(min(size, len(F)), H.shape[1])
    for first in range(0, len(F), size):
        rows = slice(first, min(first + size, len(F)))
        yield rows, torch.mm(F[rows], H, out=space[: rows.stop - first]).exp_()


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
    """

    def __init__(self, Z, m, v, lengthscale, variance):
        center = Z.detach().mean(0)  # squares are multiplied out below, so make them small
        self.Z, self.m, self.v = Z - center, m - center, v
        self.variance, self.l2 = variance, lengthscale.square().expand(Z.shape[1])
        w = 1.0 / (self.l2 + v)
        scale = 0.5 * (self.l2 * w).log().sum(1) + variance.log()
        F = [w * self.m, -0.5 * w, (scale - 0.5 * (w * self.m.square()).sum(1))[:, None]]
        H = [self.Z, self.Z.square(), torch.ones_like(self.Z[:, :1])]
        self.psi1 = (torch.cat(F, 1) @ torch.cat(H, 1).T).exp()

    def contract(self, E):
        r"""Sums over the second moments :math:`\psi_2 = \mathrm{E}\, k(h_p, z_i) k(h_p, z_j)`.

        Parameters
        ----------
        E : tensor of shape (D, M, M)
            Symmetric.

        Returns
        -------
        sums : tensor of shape (P, D)
            :math:`\sum_{ij} E_{dij} \psi_{2,pij}`, at a cost of P M^2 D.
        """
        i, j = torch.tril_indices(len(self.Z), len(self.Z), device=self.Z.device)
        middle, apart = 0.5 * (self.Z[i] + self.Z[j]), self.Z[i] - self.Z[j]
        apart = (apart.square() / (4.0 * self.l2)).sum(1, keepdim=True)
        w = 1.0 / (self.l2 + 2.0 * self.v)
        scale = 0.5 * (self.l2 * w).log().sum(1) + 2.0 * self.variance.log()
        scale = (scale - (w * self.m.square()).sum(1))[:, None]
        F = torch.cat([2.0 * w * self.m, -w, scale, torch.ones_like(scale)], 1)
        H = torch.cat([middle, middle.square(), torch.ones_like(apart), -apart], 1).T.contiguous()
        both = 2.0 - (i == j).to(E.dtype)  # every pair stands for (i, j) and (j, i)
        return _ExpContraction.apply(F, H, E[:, i, j] * both)

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
