"""The frozen posteriors of shallow sparse GPs."""

import torch

from ...gp.draws import N_FEATURES
from ...gp.frozen import FrozenLayer
from ..posterior import Functions, Latent, Posterior, frozen_parts

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


class ShallowPosterior(Posterior):
    """A single Gaussian for each row, by a :class:`FullBatchGP` whose posterior is solved."""

    n_features = N_FEATURES

    def __init__(self, model):
        like = model.layers[0].Z
        super().__init__(*frozen_parts(model), inflation=like.new_ones(1))
        self.layers = model.layers.frozen(lambda layer: layer.frozen(SolvedLayer))
        self._log_weights = like.new_zeros(1)

    def latent(self, X):
        mean, var = self.layers[0].moments(X.to(torch.float64))
        return Latent(self._log_weights, mean[None], var.clamp_min(1e-12)[None])

    def functions(self, n, generator, X=None):
        f = self.layers[0].functions(n, self.n_features, generator)
        return Functions(self.layers.functions(n, [f]), self.inflation.expand(n))

    def covariance(self, X):
        return self.layers[0].covariance(X.to(torch.float64))
