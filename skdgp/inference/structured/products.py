"""Products of whitened kernel rows and blocks of a covariance, and what follows from them.

Rows come last: ``A`` is (M, s, n) for `n` rows and `s` draws of each, with one draw if a layer
sees the data themselves. Backward passes are written out; the large products are two for a
quadratic form, the second of which is symmetric, and three for a bilinear one.
"""

import torch
from torch.autograd.function import once_differentiable

from ...linalg import (
    cholesky,
    current_workspace,
    gradient_of_gram,
    inverse_triangular,
    sum_of_products,
    symmetric_products,
    triangular_product,
)


class _Whiten(torch.autograd.Function):
    """``L^{-1} K_uf`` with the Cholesky factor of `K_uu`, which stays in double precision."""

    @staticmethod
    def forward(ctx, K_uu, K_uf, jitter):
        L_inv = inverse_triangular(cholesky(K_uu, jitter))
        A = triangular_product(L_inv.to(K_uf.dtype), K_uf, torch.empty_like(K_uf))
        ctx.save_for_backward(L_inv, A)
        return A

    @staticmethod
    @once_differentiable
    def backward(ctx, dA):
        L_inv, A = ctx.saved_tensors
        dK_uu = gradient_of_gram(L_inv, (dA @ A.T).to(L_inv.dtype))
        dK_uf = triangular_product(L_inv.to(A.dtype), dA, torch.empty_like(dA), transposed=True)
        return dK_uu, dK_uf, None


class _Forms(torch.autograd.Function):
    """``m_d^T a`` and ``a^T Q_q a`` for all columns `a` of A (M, P), m (M, D) and symmetric Q (q, M, M)."""

    @staticmethod
    def forward(ctx, A, m, Q):
        (q, M, _), P = Q.shape, A.shape[1]
        space = current_workspace()
        QA = torch.mm(Q.view(q * M, M), A, out=space.take((q, M, P), A).view(q * M, P))
        QA = QA.view(q, M, P)
        ctx.save_for_backward(A, m)
        ctx.QA, ctx.space = QA, space
        return m.T @ A, sum_of_products(QA, A, 1, space)

    @staticmethod
    @once_differentiable
    def backward(ctx, g_linear, g):
        (A, m), QA, space = ctx.saved_tensors, ctx.QA, ctx.space
        dA = sum_of_products(QA, g[:, None], 0, space).addmm_(m, g_linear, beta=2.0)
        ctx.QA = space.give(QA)
        weighted = torch.mul(A, g[:, None], out=space.take(tuple(QA.shape), A))
        dQ = symmetric_products(weighted, A)
        space.give(weighted)
        return dA, (g_linear @ A.T).T, dQ


class _Bilinear(torch.autograd.Function):
    """``a^T T_q b`` (q, S, n) for the columns `a` of A (M, S, n) and `b` of B (M, S or 1, n)."""

    @staticmethod
    def forward(ctx, A, B, T):
        (q, M, _), (_, s, n) = T.shape, B.shape
        space = current_workspace()
        TB = space.take((q, M, s, n), A)
        torch.mm(T.view(q * M, M), B.view(M, s * n), out=TB.view(q * M, s * n))
        ctx.save_for_backward(A, B, T)
        ctx.TB, ctx.space = TB, space
        return sum_of_products(TB, A, 1, space)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (A, B, T), TB, space = ctx.saved_tensors, ctx.TB, ctx.space
        (q, M, _), (_, S, n), s = T.shape, A.shape, B.shape[1]
        dA = sum_of_products(TB, g[:, None], 0, space)
        ctx.TB = space.give(TB)
        weighted = torch.mul(A, g[:, None], out=space.take((q, M, S, n), A))
        W = weighted if s == S else weighted.sum(2, keepdim=True)
        W = W.view(q * M, s * n)
        dT = (W @ B.view(M, s * n).T).view(q, M, M)
        dB = (T.view(q * M, M).T @ W).view(M, s, n)
        space.give(weighted)
        return dA, dB, dT


class _Substitute(torch.autograd.Function):
    """``Lam^{-1} c`` by forward substitution, for Lam (p, p, ...) and c (p, u, ...)."""

    @staticmethod
    def forward(ctx, Lam, c):
        y = c.clone()
        for k in range(len(y)):
            y[k] /= Lam[k, k]
            if k + 1 < len(y):
                y[k + 1 :] -= Lam[k + 1 :, k, None] * y[k]
        ctx.save_for_backward(Lam, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        Lam, y = ctx.saved_tensors
        g, dLam = g.clone(), torch.zeros_like(Lam)
        for k in reversed(range(len(y))):
            g[k] /= Lam[k, k]
            if k:
                g[:k] -= Lam[k, :k, None] * g[k]
            dLam[k, : k + 1] = -(g[k] * y[: k + 1]).sum(1)
        return dLam, g


class _SmallCholesky(torch.autograd.Function):
    """Cholesky factor of the lower triangle of E (u, u, ...); pivots are at least `floor`."""

    @staticmethod
    def forward(ctx, E, floor):
        R, u = E.clone(), len(E)
        raised = []
        for j in range(u):
            raised.append(R[j, j] < floor)
            R[j, j] = R[j, j].clamp_min(floor).sqrt()
            R[:j, j] = 0.0
            R[j + 1 :, j] /= R[j, j]
            column = R[j + 1 :, j]
            R[j + 1 :, j + 1 :] -= column[:, None] * column
        ctx.save_for_backward(R, torch.stack(raised))
        return R

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        R, raised = ctx.saved_tensors
        dE = torch.zeros_like(R)
        for j in reversed(range(len(R))):
            column, rest = R[j + 1 :, j], dE[j + 1 :, j + 1 :]
            twice = (rest * column).sum(1) + (rest * column[:, None]).sum(0)
            d_column = g[j + 1 :, j] - twice
            dE[j + 1 :, j] = d_column / R[j, j]
            pivot = 0.5 * (g[j, j] - (d_column * column).sum(0) / R[j, j]) / R[j, j]
            dE[j, j] = pivot.masked_fill(raised[j], 0.0)
        return dE, None


def forms(A, m, Q):
    """``m_d^T a`` (D, s, n) and ``a^T Q_q a`` (q, s, n) for the columns `a` of A (M, s, n)."""
    M, s, n = A.shape
    A = A.reshape(M, s * n)
    if torch.is_grad_enabled():
        linear, quadratic = _Forms.apply(A, m, Q)
    else:
        linear, quadratic = m.T @ A, torch.stack([(Q_q @ A).mul_(A).sum(0) for Q_q in Q])
    return linear.view(-1, s, n), quadratic.view(-1, s, n)


def bilinear(A, B, T):
    """``a^T T b`` for the columns of A (M, S, n) and B (M, S or 1, n); shape of T's first, S, n."""
    M, s, n = B.shape
    blocks = T.reshape(-1, M, M)
    if torch.is_grad_enabled():
        forms = _Bilinear.apply(A, B, blocks)
    else:
        B = B.reshape(M, s * n)
        forms = torch.stack([((T_q @ B).view(M, s, n) * A).sum(0) for T_q in blocks])
    return forms.view(*T.shape[:-2], *A.shape[1:])


whiten = _Whiten.apply
substitute = _Substitute.apply
small_cholesky = _SmallCholesky.apply
