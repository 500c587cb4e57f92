"""Kernels as functions of a Gram matrix: what the kernel classes are made of there."""

import math

import torch
from torch.autograd.function import once_differentiable

from ..covariances import ArcCosineProfile

_NEAR_ONE = 1.0 - 1e-15  #: beyond, the slope of the angle is infinite


def diagonals(G, left, right):
    """Diagonals (..., P) and (..., n) that belong to rows and columns of `G`, and whether it is square."""
    if left is None:
        left = right = torch.diagonal(G, dim1=-2, dim2=-1)
        return left, right, True
    return left, right, False


def with_diagonal(K, diagonal):
    """`K` with another diagonal."""
    return torch.diagonal_scatter(K, diagonal.expand(K.shape[:-1]), dim1=-2, dim2=-1)


def squared_distances(G, left, right):
    """Squared distances ``G_ii - 2 G_ij + G_jj`` (Aitchison et al., 2021, eq. 17)."""
    return left[..., :, None] + right[..., None, :] - 2.0 * G


def arc_cosine(order, inner, left, right):
    r"""Arc-cosine kernels :math:`(|u| |v|)^n J_n(\theta) / \pi` (Cho and Saul, 2009, eqs. 1 to 6).

    Parameters
    ----------
    order : {0, 1, 2}
    inner : tensor of shape (..., P, n)
        Inner products.
    left, right : tensors of shape (..., P) and (..., n)
        Squared norms, positive.
    """
    norms = (left[..., :, None] * right[..., None, :]).sqrt()
    c = inner / norms
    if order == 0:
        return 1.0 - torch.arccos(c.clamp(-_NEAR_ONE, _NEAR_ONE)) / math.pi
    if order == 1:
        return norms * ArcCosineProfile.apply(c) / math.pi
    return norms.square() * _SecondProfile.apply(c) / math.pi


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
