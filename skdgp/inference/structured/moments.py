"""Blocks of the covariance of a coupled Gaussian at rows, and their gradients."""

import itertools
from typing import NamedTuple

import numpy as np
import torch


class Factor(NamedTuple):
    """The free blocks of a factor, or of its gradient, chain by chain."""

    roots: list  #: (w, n M, n M) for each chain
    arrows: list  #: (K, w, M, n M) for each chain; empty without an arrow
    outputs: torch.Tensor  #: (K, M, M)


class Moments(NamedTuple):
    """Means, and those blocks of the covariance that rows meet."""

    means: list  #: (M, D) for each layer
    #: (q, M, M) for each layer: its units, less the identity, then pairs of units; for several
    #: outputs with an arrow what each has by itself, then all that pairs share through hidden units
    squares: list
    crosses: dict  #: (u_j, u_i, w, M, M) by layer, chain and earlier layer

    def leaves(self):
        """All tensors."""
        return [*self.means, *self.squares, *self.crosses.values()]


def moments_of(factor, pattern, mean, dtype):
    """The moments of the Gaussian whose covariance has this factor."""
    M = mean.shape[1]
    bounds = [*pattern.first, len(mean)]
    means = [mean[i:j].mT.clone() for i, j in itertools.pairwise(bounds)]
    covariances = [_lower_products(root, M) for root in factor.roots]  # (w, n, n, M, M) views
    squares, crosses = [], {}
    for layer in range(len(pattern.widths)):
        parts, diagonal = [], factor.outputs.new_empty(pattern.widths[layer], M, M)
        for c, units, at, pairs, _ in pattern.within(layer):
            S = covariances[c]
            p = np.arange(at.start, at.stop)
            diagonal[units] = S[:, p, p]
            tie = S[pairs].flatten(0, 1)
            parts.append(0.5 * (tie + tie.mT))  # both units meet the same rows
            chain = pattern.chains[c]
            for earlier in chain.layers[: chain.layers.index(layer)]:
                block = S[:, at, pattern.places(c, earlier)]  # w, u_i, u_j, M, M
                crosses[layer, c, earlier] = (
                    block.permute(2, 1, 0, 3, 4).to(dtype, copy=True).contiguous()
                )
        squares.append(_less_identity(diagonal, parts, dtype))
    last, outputs = len(pattern.widths), factor.outputs @ factor.outputs.mT
    a, b = np.tril_indices(pattern.n_outputs)
    shared = torch.zeros_like(outputs[a])
    for c, arrow in enumerate(factor.arrows):
        K, w, _, nM = arrow.shape
        shared += (arrow[a] @ arrow[b].mT).sum(1)
        S = (arrow @ factor.roots[c].mT).view(K, w, M, nM // M, M).permute(3, 0, 1, 2, 4)
        for earlier in pattern.chains[c].layers:
            block = S[pattern.places(c, earlier)]  # u_j, K, w, M, M
            crosses[last, c, earlier] = block.to(dtype, copy=True).contiguous()
    if pattern.shares:
        squares.append(_less_identity(outputs, [0.5 * (shared + shared.mT)], dtype))
    else:
        outputs = outputs + shared if pattern.arrow else outputs
        squares.append(_less_identity(outputs, [], dtype))
    return Moments(means, squares, crosses)


def _less_identity(diagonal, parts, dtype):
    diagonal.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    return torch.cat([diagonal, *parts]).to(dtype)


def _lower_products(root, M):
    """Blocks on and below the diagonal of ``R R^T``, as a view of shape (w, n, n, M, M)."""
    w, nM, _ = root.shape
    S = torch.empty_like(root)
    for i in range(0, nM, M):  # one column of blocks
        k = i + M
        S[:, i:, i:k] = root[:, i:, :k] @ root[:, i:k, :k].mT
    return S.view(w, nM // M, M, nM // M, M).permute(0, 1, 3, 2, 4)


def columns(left, right, M):
    """Blocks on and below the diagonal of ``left @ right``, for a lower triangular `right`."""
    out = torch.zeros_like(right)
    for k in range(0, right.shape[-1], M):
        out[:, k:, k : k + M] = left[:, k:, k:] @ right[:, k:, k : k + M]
    return out


def pull_back(leaves, factor, pattern):
    """Gradients with respect to the factor from those that the moments have collected.

    For ``S = C C^T`` they are ``H C``, where `H` holds the gradient of each block on both sides of
    the diagonal, and twice that of the blocks on it.
    """
    dtype, M = factor.outputs.dtype, factor.outputs.shape[-1]
    H = []
    for root in factor.roots:
        w, nM, _ = root.shape
        H.append(root.new_zeros(w, nM // M, M, nM // M, M))
    views = [h.permute(0, 1, 3, 2, 4) for h in H]
    for layer, squares in enumerate(leaves.squares[:-1]):
        g = squares.grad.to(dtype)
        for c, units, at, (w, a, b), which in pattern.within(layer):
            p = np.arange(at.start, at.stop)
            views[c][:, p, p] = 2.0 * g[units]
            pairs = g[which].view(*np.broadcast_shapes(w.shape, a.shape), M, M)
            views[c][w, a, b] = pairs
            views[c][w, b, a] = pairs.mT
    last, K, g = len(pattern.widths), pattern.n_outputs, leaves.squares[-1].grad.to(dtype)
    G_outputs, G_shared = 2.0 * g[:K], g.new_zeros(K, K, M, M)
    if pattern.shares:
        a, b = np.tril_indices(K)
        G_shared[a, b] += g[K:]
        G_shared[b, a] += g[K:].mT
    else:
        G_shared[range(K), range(K)] = G_outputs
    G_arrows = [torch.zeros_like(arrow) for arrow in factor.arrows]
    for (layer, c, earlier), cross in leaves.crosses.items():
        g, before = cross.grad.to(dtype), pattern.places(c, earlier)
        if layer < last:
            at, g = pattern.places(c, layer), g.permute(2, 1, 0, 3, 4)  # w, u_i, u_j
            views[c][:, at, before] = g
            views[c][:, before, at] = g.transpose(1, 2).mT
        else:
            K, w, _, nM = G_arrows[c].shape
            G_arrows[c].view(K, w, M, nM // M, M)[:, :, :, before] = g.permute(1, 2, 3, 0, 4)
    roots, arrows = [], []
    for c, root in enumerate(factor.roots):
        d = columns(H[c].view(root.shape), root, M)
        if pattern.arrow:
            d += (G_arrows[c].mT @ factor.arrows[c]).sum(0)
            shared = torch.einsum("abmn,bwnk->awmk", G_shared, factor.arrows[c])
            arrows.append(G_arrows[c] @ root + shared)
        roots.append(d)
    return Factor(roots, arrows, G_outputs @ factor.outputs)
