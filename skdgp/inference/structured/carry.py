"""The posterior of all layers together at other inducing inputs."""

import torch
from torch import nn

from ...linalg import cholesky, rounding


@torch.no_grad()
def carry(q, parts):
    """Become the posterior of other variables, as :meth:`GaussianBlock.carry` does for one layer.

    Covariances keep their pattern. What the factor has no blocks for, between outputs given hidden
    units, is left out. Each layer has a part (1, M_new, M).
    """
    T, M = q.mean.shape
    final = q.patterns[q.coupling]
    B = torch.cat(
        [part.expand(width, -1, -1) for part, width in zip(parts, (*final.widths, final.n_outputs))]
    )
    n, (i, j) = B.shape[1], (torch.as_tensor(index) for index in (q.slots >= 0).nonzero())
    slots = torch.as_tensor(q.slots)[i, j]
    root = q.root.new_zeros(T, T, M, M)
    root[i, j] = q.root[slots]
    root = (B @ root.transpose(1, 2).reshape(T, M, T * M)).reshape(T * n, T * M)
    cov = (root @ root.mT).view(T, n, T, n)
    units = torch.arange(T)
    cov[units, :, units] += torch.eye(n).to(B) - B @ B.mT
    cov = cov.view(T * n, T * n)
    root = cholesky(cov, rounding(cov)).view(T, n, T, n).transpose(1, 2)
    blocks = q.root.new_zeros(len(q.root), n, n)
    blocks[slots] = root[i, j]
    q.mean = nn.Parameter((B @ q.mean[..., None])[..., 0], q.mean.requires_grad)
    q.root = nn.Parameter(blocks, q.root.requires_grad)
