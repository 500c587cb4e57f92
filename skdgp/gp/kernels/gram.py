"""Kernels as functions of a Gram matrix: what the kernel classes are made of there."""

import math

import torch
from torch.autograd.function import once_differentiable

_NEAR_ONE = 1.0 - 1e-15  #: beyond, the slope of the angle is infinite


def diagonals(G, left, right):
    """Diagonals (..., P) and (..., n) that belong to rows and columns of `G`, and whether it is square."""
    if left is None:
        left = right = torch.diagonal(G, dim1=-2, dim2=-1)
        return left, right, True
    return left, right, False


def with_diagonal(K, diagonal):
    """`K` with another diagonal."""
    itself = torch.eye(K.shape[-1], dtype=torch.bool, device=K.device)
    return torch.where(itself, diagonal.expand(K.shape[:-1])[..., None], K)


def squared_distances(G, left, right):
    """Squared distances ``G_ii - 2 G_ij + G_jj`` (Aitchison et al., 2021, eq. 17)."""
    return (left[..., :, None] + right[..., None, :]).sub_(G, alpha=2.0).clamp_min_(0.0)


class GramRadial(torch.autograd.Function):
    """``variance * profile(squared distance / lengthscale^2)``, by one pass each way."""

    @staticmethod
    def forward(ctx, G, left, right, lengthscale, variance, kernel):
        r2 = squared_distances(G, left, right).mul_(lengthscale**-2.0)
        K = kernel.write_profile(r2, torch.empty_like(r2) if kernel.distances_count else r2)
        K = K.mul_(variance)
        ctx.kernel = kernel
        ctx.save_for_backward(G, left, right, lengthscale, variance, K, r2)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx, dK):
        G, left, right, lengthscale, variance, K, r2 = ctx.saved_tensors
        T = dK * K
        d_variance = T.sum() / variance
        T = ctx.kernel.scale_by_slope(T, r2)
        slope = ctx.kernel.slope_factor * lengthscale**-2.0
        of_left, of_right = T.sum(-1), T.sum(-2)
        total = (of_left * left).sum() + (of_right * right).sum() - 2.0 * torch.sum(T * G)
        d_lengthscale = -2.0 * slope / lengthscale * total
        dG = T.mul_(-2.0 * slope)
        return dG, slope * of_left, slope * of_right, d_lengthscale, d_variance, None


def arc_cosine(order, inner, left, right):
    """Arc-cosine kernels from inner products and squared norms (Cho and Saul, 2009)."""
    if order == 1:
        return _FirstOrder.apply(inner, left, right)
    norms = (left[..., :, None] * right[..., None, :]).sqrt()
    c = inner / norms
    if order == 0:
        return 1.0 - torch.arccos(c.clamp(-_NEAR_ONE, _NEAR_ONE)) / math.pi
    return norms.square() * _SecondProfile.apply(c) / math.pi


class _FirstOrder(torch.autograd.Function):
    """``|u| |v| (sin(t) + (pi - t) cos(t)) / pi``, whose slope in the inner product is ``(pi - t) / pi``."""

    @staticmethod
    def forward(ctx, inner, left, right):
        norms = left.sqrt()[..., :, None] * right.sqrt()[..., None, :]
        c = (inner / norms).clamp_(-1.0, 1.0)
        complement = torch.arccos(-c).mul_(1.0 / math.pi)
        sine = torch.sqrt_((1.0 - c).mul_(1.0 + c)).mul_(norms).mul_(1.0 / math.pi)
        ctx.save_for_backward(left, right, complement, sine)
        return torch.addcmul(sine, complement, c.mul_(norms))

    @staticmethod
    @once_differentiable
    def backward(ctx, dK):
        left, right, complement, sine = ctx.saved_tensors
        T = dK * sine
        return dK * complement, 0.5 * T.sum(-1) / left, 0.5 * T.sum(-2) / right


class _SecondProfile(torch.autograd.Function):
    """``3 sin(t) cos(t) + (pi - t) (1 + 2 c^2)`` of ``c = cos(t)``; its slope is four times order one."""

    @staticmethod
    def forward(ctx, c):
        c = c.clamp(-1.0, 1.0)
        complement, sine = torch.arccos(-c), torch.sqrt((1.0 - c) * (1.0 + c))
        ctx.save_for_backward(sine + complement * c)
        return 3.0 * sine * c + complement * (1.0 + 2.0 * c * c)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return 4.0 * g * ctx.saved_tensors[0]
