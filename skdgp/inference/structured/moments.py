"""Blocks of the covariance of a coupled Gaussian at rows, and their gradients."""

import itertools
from typing import NamedTuple

import numpy as np
import torch

from .pattern import Pattern


class Factor(NamedTuple):
    """The free blocks of a lower triangular factor, or of its gradient, chain by chain."""

    pattern: Pattern
    roots: list  #: (w, n M, n M) for each chain
    arrows: list  #: (K, w, M, n M) for each chain; empty without an arrow
    outputs: torch.Tensor  #: (K, M, M)

    def add_hidden(self, x, total):
        """Add the product with `x` (..., T, M) to `total`, but for the part that outputs have alone."""
        for c, (gps, _) in enumerate(self.pattern.chains):
            of_chain = x[..., gps, :].flatten(-2)[..., None]  # ..., w, n M, 1
            total[..., gps, :] += (self.roots[c] @ of_chain).view(*x.shape[:-2], *gps.shape, -1)
            if self.pattern.arrow:
                shared = self.arrows[c] @ of_chain[..., None, :, :, :]  # ..., K, w, M, 1
                total[..., self.pattern.outputs, :] += shared[..., 0].sum(-2)


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


def blocks_of(matrices, M):
    """Matrices (..., n M, m M) as a view of their blocks (..., n, m, M, M)."""
    *lead, n, m = matrices.shape
    return matrices.view(*lead, n // M, M, m // M, M).transpose(-3, -2)


def moments_of(factor, mean, dtype):
    """The moments of the Gaussian whose covariance has this factor."""
    pattern, M, squares, crosses = factor.pattern, mean.shape[1], [], {}
    bounds = [*pattern.first, len(mean)]
    means = [mean[i:j].mT.clone() for i, j in itertools.pairwise(bounds)]
    covariances = [_lower_products(root, M) for root in factor.roots]  # (w, n, n, M, M) views
    for layer, parts in enumerate(pattern.parts):
        ties, diagonal = [], factor.outputs.new_empty(pattern.widths[layer], M, M)
        for part in parts:
            S, chain = covariances[part.chain], pattern.chains[part.chain]
            diagonal[part.units] = _on_diagonal(S, part.at)
            tie = S[:, *part.pairs].flatten(0, 1)
            ties.append(0.5 * (tie + tie.mT))  # both units meet the same rows
            for earlier in chain.before(layer):
                block = S[:, part.at, chain.at(earlier)].permute(2, 1, 0, 3, 4)  # u_j, u_i, w
                crosses[layer, part.chain, earlier] = block.to(dtype, copy=True).contiguous()
        squares.append(_less_identity(diagonal, ties, dtype))
    last, outputs = len(pattern.widths), factor.outputs @ factor.outputs.mT
    a, b = np.tril_indices(pattern.n_outputs)
    shared = torch.zeros_like(outputs[a])
    for c, arrow in enumerate(factor.arrows):
        shared += (arrow[a] @ arrow[b].mT).sum(1)
        S = blocks_of(arrow @ factor.roots[c].mT, M)[:, :, 0].permute(2, 0, 1, 3, 4)  # n, K, w
        for earlier in pattern.chains[c].before(last):
            block = S[pattern.chains[c].at(earlier)]
            crosses[last, c, earlier] = block.to(dtype, copy=True).contiguous()
    if pattern.shares:
        squares.append(_less_identity(outputs, [0.5 * (shared + shared.mT)], dtype))
    else:
        squares.append(_less_identity(outputs + shared if pattern.arrow else outputs, [], dtype))
    return Moments(means, squares, crosses)


def _on_diagonal(blocks, at):
    """The blocks (w, u, M, M) of the units `at` positions of a chain."""
    return torch.diagonal(blocks[:, at, at], dim1=1, dim2=2).movedim(-1, 1)


def _less_identity(diagonal, ties, dtype):
    diagonal.diagonal(dim1=-2, dim2=-1).sub_(1.0)
    return torch.cat([diagonal, *ties]).to(dtype)


def _lower_products(root, M):
    """Blocks (w, n, n, M, M) on and below the diagonal of ``R R^T``."""
    S = torch.empty_like(root)
    for i in range(0, root.shape[-1], M):  # one column of blocks
        k = i + M
        S[:, i:, i:k] = root[:, i:, :k] @ root[:, i:k, :k].mT
    return blocks_of(S, M)


def columns(left, right, M):
    """Blocks on and below the diagonal of ``left @ right``, for a lower triangular `right`."""
    out = torch.zeros_like(right)
    for k in range(0, right.shape[-1], M):
        out[:, k:, k : k + M] = left[:, k:, k:] @ right[:, k:, k : k + M]
    return out


def pull_back(leaves, factor):
    """Gradients with respect to the factor from those that the moments have collected.

    For ``S = C C^T`` they are ``H C``, where `H` holds the gradient of each block on both sides of
    the diagonal, and twice that of the blocks on it.
    """
    pattern, dtype, M = factor.pattern, factor.outputs.dtype, factor.outputs.shape[-1]
    H = [torch.zeros_like(root) for root in factor.roots]
    blocks = [blocks_of(h, M) for h in H]
    for squares, parts in zip(leaves.squares, pattern.parts):
        g = squares.grad.to(dtype)
        for part in parts:
            (a, b), of_chain = part.pairs, blocks[part.chain]
            _on_diagonal(of_chain, part.at).copy_(2.0 * g[part.units])
            pairs = g[part.which].view(len(of_chain), len(a), M, M)
            of_chain[:, a, b], of_chain[:, b, a] = pairs, pairs.mT
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
        g, chain = cross.grad.to(dtype), pattern.chains[c]
        before = chain.at(earlier)
        if layer < last:
            at, g = chain.at(layer), g.permute(2, 1, 0, 3, 4)  # w, u_i, u_j
            blocks[c][:, at, before] = g
            blocks[c][:, before, at] = g.transpose(1, 2).mT
        else:
            blocks_of(G_arrows[c], M)[:, :, 0, before] = g.permute(1, 2, 0, 3, 4)
    roots, arrows = [], []
    for c, root in enumerate(factor.roots):
        d = columns(H[c], root, M)
        if pattern.arrow:
            d += (G_arrows[c].mT @ factor.arrows[c]).sum(0)
            shared = torch.einsum("abmn,bwnk->awmk", G_shared, factor.arrows[c])
            arrows.append(G_arrows[c] @ root + shared)
        roots.append(d)
    return Factor(pattern, roots, arrows, G_outputs @ factor.outputs)
