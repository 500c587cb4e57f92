"""Expectations of the squared exponential kernel under Gaussian inputs (psi statistics).

The matrix of second moments of a row has as many entries as there are pairs of inducing inputs; it
is only ever needed in sums over these pairs, and only exists for one inducing input and the others
before it at a time, but for some megabytes that are kept for the gradient. The weights of such sums
can be large and cancel, so that the sums are taken of differences as small as the variances of the
inputs.
"""

import torch
from sklearn.utils import gen_batches
from torch.autograd.function import once_differentiable

from ...linalg import at_once, is_exporting

_AT_ONCE = 2**18  #: exponentials at a time, few enough for the cache
_KEPT = 2**24  #: bytes of them that are kept for the way back


class _PairSums(torch.autograd.Function):
    """``2 sum_{j < i} E_dij R_ip R_jp expm1((A_i W)_jp)``, (D, P), in memory that `keep` limits."""

    @staticmethod
    def forward(ctx, W, A, log_R, R, E, keep):
        ctx.save_for_backward(W, A, R, E)
        ctx.terms = _Terms(W, len(A), keep if any(ctx.needs_input_grad) else 0)
        ctx.parts = W.new_zeros(len(A), len(E), W.shape[1])  # sums over j without R_ip
        for i, T in ctx.terms.of(W, A, R):
            torch.mm(E[:, i, :i], T, out=ctx.parts[i])
        return 2.0 * (R[:, None] * ctx.parts).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        W, A, R, E = ctx.saved_tensors
        dW, dA, dE = (torch.zeros_like(given) for given in (W, A, E))
        g = 2.0 * g * R[:, None]  # M, D, P
        d_log_R = (g * ctx.parts).sum(1)
        G_space, B_space = ctx.terms.space(W), ctx.terms.space(W)
        for i, T in ctx.terms.of(W, A, R):
            G, B = (space[: T.numel()].view_as(T) for space in (G_space, B_space))
            torch.mm(E[:, i, :i].T, g[i], out=G)
            d_log_R[:i].addcmul_(G, T)
            torch.add(T, R[:i], out=B).mul_(G)
            dW.addmm_(A[i, :i].T, B)
            torch.mm(B, W.T, out=dA[i, :i])
            dE[:, i, :i] = g[i] @ T.T
        return dW, dA, d_log_R, None, dE, None


class _Terms:
    """``R_jp expm1((A_i W)_jp)`` for an input `i` and all `j` before it, kept if there is room."""

    def __init__(self, W, n_inputs, keep):
        self.n_inputs, self.n_rows = n_inputs, W.shape[1]
        pairs = n_inputs * (n_inputs - 1) // 2
        self.kept = W.new_empty(min(keep, pairs * self.n_rows))
        self.computed = False

    def space(self, like):
        """Room for the largest of them."""
        return like.new_empty(self.n_inputs * self.n_rows)

    def of(self, W, A, R):
        space, end = self.space(W), 0
        for i in range(1, self.n_inputs):
            size = i * self.n_rows
            end += size
            room = end <= len(self.kept)
            T = (self.kept[end - size : end] if room else space[:size]).view(i, -1)
            if not (room and self.computed):
                torch.mm(A[i, :i], W, out=T).expm1_().mul_(R[:i])
            yield i, T
        self.computed = True


class SquaredExponentialPsi:
    """Psi statistics for inducing inputs Z (M, n) and inputs ``h_p ~ N(m_p, diag(v_p))``, (P, n).

    `root`, of the means of squares, is more than `psi1`, the means, by `excess`, without a
    subtraction.
    """

    def __init__(self, Z, m, v, lengthscale, variance):
        center = Z.detach().mean(0)  # squares are multiplied out below, so make them small
        self.Z, self.m, self.v = Z - center, m - center, v
        self.variance, self.l2 = variance, lengthscale.square().expand(Z.shape[1])
        l2 = self.l2
        one, two = l2 + v, l2 + 2.0 * v
        self._slope = v / (l2 * two)
        self._log_root = self._exponents(1.0 / two, (l2 / two).log(), variance.log())
        self.root = self._log_root.exp()
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
        as small as the variances. For symmetric E (D, M, M) the result (P, D) is
        :math:`\sum_{ij} E_{dij} (\psi_{2,pij} - \chi_{pi} \chi_{pj})`, at a cost of P M^2 D.
        """
        apart = (self.Z[:, None] - self.Z).square()
        if is_exporting():
            return self._plain_contract(E, apart)
        W, log_R, R = (-0.5 * self._slope).T, self._log_root.T, self.root.T
        pieces = list(gen_batches(len(self.m), max(1, at_once(_AT_ONCE, W.device) // len(self.Z))))
        keep = at_once(_KEPT, W.device) // (len(pieces) * W.element_size())
        sums = [
            _PairSums.apply(W[:, rows].contiguous(), apart, log_R[:, rows], R[:, rows], E, keep)
            for rows in pieces
        ]
        return torch.cat(sums, 1).T

    def _plain_contract(self, E, apart):
        """Contract by plain operations, for exported programs."""
        W, R = -0.5 * self._slope, self.root  # P, n and P, M
        terms = (
            R[:, i, None] * ((R[:, :i] * torch.expm1(W @ apart[i, :i].T)) @ E[:, i, :i].T)
            for i in range(1, len(apart))
        )
        return 2.0 * sum(terms)

    def slopes(self, c, W):
        """Covariance (P, D) of the linear map W (n, D) and ``sum_i c_id k(h, z_i)``, c (M, D)."""
        weighted = (c[:, None] * self.Z[..., None]).flatten(1)  # M, n D
        moved = (self.psi1 @ weighted).view(-1, *W.shape)  # P, n, D
        moved = moved - self.m[..., None] * (self.psi1 @ c)[:, None]
        return (moved * W * (self.v / (self.l2 + self.v))[..., None]).sum(1)
