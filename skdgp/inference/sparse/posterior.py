"""The frozen posteriors of shallow sparse GPs."""

import torch

from ...gp.frozen import FrozenLayer
from ..deep import DeepPosterior

AT_ONCE = 1_000_000  #: elements of a matrix with rows that are worked on together


class SolvedLayer(FrozenLayer):
    """A layer that predicts as its posterior was found.

    L-BFGS finds large variances of kernels for smooth targets, and kernel matrices that are singular
    up to rounding. Their factors give the same for all rows only by way of the same solves.
    """

    def process_moments(self, H):
        size = max(1, AT_ONCE // len(self.Z))
        parts = [self._of_some(part) for part in H.split(size)]
        return tuple(torch.cat(part) for part in zip(*parts))

    def _of_some(self, H):
        A, k_ff = self.whitened(H)
        left = (k_ff - A.square().sum(0)).clamp_min(0.0)
        var = [left + (R.T @ A).square().sum(0) for R in self.q_root]
        return A.T @ self.q_mean, torch.stack(var, 1)


class ShallowPosterior(DeepPosterior):
    """A single Gaussian for each row, by a :class:`FullBatchGP` whose posterior is solved."""

    def __init__(self, model):
        layers = model.layers.frozen(lambda layer: layer.frozen(SolvedLayer))
        super().__init__(model, torch.zeros(1, 0), layers)
