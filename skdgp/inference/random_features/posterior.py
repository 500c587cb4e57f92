"""Predictions of deep Gaussian processes with random features."""

import torch

from ...random import latin_normal
from ..deep import DeepPosterior


class FeaturePosterior(DeepPosterior):
    """Components are draws of the hidden layers and, where these are resampled, of the frequencies.

    In this case the draws (S, sum of widths) have one more column, of a seed.
    """

    def __init__(self, model, draws):
        super().__init__(model, draws)
        self._xi = [None] * len(self.layers)
        if self.layers[0].resampled:
            sizes, seed = [layer.z.numel() for layer in self.layers], int(draws[0, -1])
            xi = torch.as_tensor(latin_normal(len(draws), sum(sizes), seed)).to(self._log_weights)
            parts = zip(self.layers, xi.split(sizes, 1))
            self._xi = [part.reshape(-1, *layer.z.shape) for layer, part in parts]

    def _of_layer(self, i, layer, H):
        return layer.moments(H, self._xi[i])

    def covariance(self, X):
        return None
