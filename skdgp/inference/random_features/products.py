"""Products of random features with weights, with the gradients that autograd finds slowly."""

import torch
from torch.autograd.function import once_differentiable

from ...linalg import current_workspace, gram, is_exporting


class CosSin(torch.autograd.Function):
    """``[cos A, sin A]``; the gradient needs no further cosines."""

    @staticmethod
    def forward(ctx, A):
        R = A.shape[-1]
        out = A.new_empty((*A.shape[:-1], 2 * R))
        torch.cos(A, out=out[..., :R])
        torch.sin(A, out=out[..., R:])
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        R = g.shape[-1] // 2
        cos, sin = ctx.saved_tensors[0].split(R, -1)
        return (g[..., R:] * cos).addcmul_(g[..., :R], sin, value=-1.0)


def cos_sin(A):
    """``[cos A, sin A]``."""
    return torch.cat([A.cos(), A.sin()], -1) if is_exporting() else CosSin.apply(A)


def local_moments(Phi, mean, var):
    """Means and variances of ``Phi w`` for independent weights."""
    if is_exporting():
        return Phi @ mean, Phi.square() @ var
    return LocalMoments.apply(Phi, mean, var)


class LocalMoments(torch.autograd.Function):
    """Means and variances of ``Phi w`` for independent weights: ``Phi m`` and ``Phi^2 v``."""

    @staticmethod
    def forward(ctx, Phi, mean, var):
        squares = torch.mul(Phi, Phi, out=current_workspace().take(tuple(Phi.shape), Phi))
        ctx.save_for_backward(Phi, mean, var)
        ctx.squares, ctx.space = squares, current_workspace()
        return Phi @ mean, squares @ var

    @staticmethod
    @once_differentiable
    def backward(ctx, g_mean, g_var):
        (Phi, mean, var), squares = ctx.saved_tensors, ctx.squares
        d_var = squares.mT @ g_var
        dPhi = g_mean @ mean.mT
        d_squares = ctx.space.take(tuple(Phi.shape), Phi)
        dPhi.addcmul_(torch.matmul(g_var, var.mT, out=d_squares), Phi, value=2.0)
        d_mean = Phi.mT @ g_mean
        ctx.space.give(d_squares)
        ctx.squares = ctx.space.give(squares)
        return dPhi, _summed(d_mean), _summed(d_var)


class CosSinMoments(torch.autograd.Function):
    """:class:`LocalMoments` of ``[cos A, sin A]``, for ``sin^2 = 1 - cos^2`` with half the squares.

    The products have a long and a short side; with the short side first they are up to five times
    as fast.
    """

    @staticmethod
    def forward(ctx, A, mean, var):
        space, R = current_workspace(), A.shape[-1]
        flat = A.reshape(-1, R)
        Phi = space.take((len(flat), 2 * R), A)
        cos, sin = Phi.split(R, -1)
        torch.cos(flat, out=cos)
        torch.sin(flat, out=sin)
        squares = torch.mul(cos, cos, out=space.take((len(flat), R), A))
        ctx.save_for_backward(mean, var)
        ctx.large, ctx.space = (Phi, squares), space
        shape = *A.shape[:-1], mean.shape[-1]
        moments = (mean.T @ Phi.T).T, ((var[:R] - var[R:]).T @ squares.T).T + var[R:].sum(0)
        if not any(ctx.needs_input_grad):
            ctx.large = space.give(Phi), space.give(squares)
        return tuple(m.reshape(shape) for m in moments)

    @staticmethod
    @once_differentiable
    def backward(ctx, g_mean, g_var):
        (mean, var), (Phi, squares), space = ctx.saved_tensors, ctx.large, ctx.space
        shape, R = g_mean.shape, squares.shape[-1]
        g_mean, g_var = g_mean.reshape(-1, shape[-1]), g_var.reshape(-1, shape[-1])
        d_mean = (g_mean.T @ Phi).T
        d_cos = (g_var.T @ squares).T
        d_var = torch.cat([d_cos, g_var.sum(0) - d_cos])
        cos, sin = Phi.split(R, -1)
        dPhi = torch.mm(g_mean, mean.T, out=space.take(tuple(Phi.shape), Phi))
        d_squares = space.take(tuple(squares.shape), Phi)
        torch.mm(g_var, (var[:R] - var[R:]).T, out=d_squares)
        dPhi[:, :R].addcmul_(d_squares, cos, value=2.0)
        dA = (dPhi[:, R:] * cos).addcmul_(dPhi[:, :R], sin, value=-1.0)
        space.give(dPhi), space.give(d_squares)
        ctx.large = space.give(Phi), space.give(squares)
        return dA.reshape(*shape[:-1], R), d_mean, d_var


def cos_sin_moments(A, mean, var):
    """:func:`local_moments` of :func:`cos_sin`."""
    if is_exporting():
        return local_moments(cos_sin(A), mean, var)
    return CosSinMoments.apply(A, mean, var)


def quadratic_forms(Phi, Q):
    """``phi_p^T Q_d phi_p`` for all rows of Phi (P, M) and symmetric matrices Q (D, M, M): (P, D)."""
    if is_exporting():
        return ((Phi @ Q) * Phi).sum(-1).T
    return QuadraticForms.apply(Phi, Q)


def _summed(G):
    """Gradients of one matrix from those of several draws."""
    return G.sum(0) if G.ndim == 3 else G


class QuadraticForms(torch.autograd.Function):
    """``phi_p^T Q_d phi_p`` for all rows of Phi (P, M) and symmetric matrices Q (D, M, M): (P, D).

    The gradient of `Q` becomes a precision, and is summed in float64 whatever the dtype of Phi.
    """

    @staticmethod
    def forward(ctx, Phi, Q):
        space = current_workspace()
        PhiQ = torch.matmul(Phi, Q.to(Phi.dtype), out=space.take((len(Q), *Phi.shape), Phi))
        ctx.save_for_backward(Phi)
        ctx.PhiQ, ctx.space = PhiQ, space
        return torch.linalg.vecdot(PhiQ, Phi).T

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (Phi,), PhiQ, space = ctx.saved_tensors, ctx.PhiQ, ctx.space
        g = g.T[..., None]  # D, P, 1
        dQ = gram(Phi.double().T, g[..., 0].double())
        weighted = torch.mul(PhiQ, 2.0 * g, out=space.take(tuple(PhiQ.shape), PhiQ))
        dPhi = weighted.sum(0)
        space.give(weighted)
        ctx.PhiQ = space.give(PhiQ)
        return dPhi, dQ
