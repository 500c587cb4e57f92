"""Predictions of deep Gaussian processes with random features."""

import math

import torch

from ...gp.frozen import compose
from ...random import latin_normal
from ..posterior import Functions, Latent, Posterior
from .propagation import propagate


class FeaturePosterior(Posterior):
    """Components are draws of the hidden layers and, where these are resampled, of the frequencies.

    Parameters
    ----------
    model : DeepRandomFeatures
    draws : tensor of shape (S, sum of widths), with a column of a seed if frequencies are resampled
    """

    def __init__(self, model, draws):
        self._layers = [layer.frozen() for layer in model.layers]
        like = self._layers[0].z
        draws = torch.as_tensor(draws).to(like)
        super().__init__(
            model.likelihood.fitted(),
            [layer.kernel.fitted() for layer in model.layers],
            [layer.Z.numpy() for layer in model.layers],
            like.new_ones(len(draws)),
        )
        self.input_connected = model.input_connected
        widths = [layer.n_outputs for layer in self._layers[:-1]]
        eps = draws[:, : sum(widths)].split(widths, 1) if widths else []
        self._eps, self._xi = [e[:, None] for e in eps], [None] * len(self._layers)
        if self._layers[0].resampled:
            sizes, seed = [layer.z.numel() for layer in self._layers], int(draws[0, -1])
            xi = torch.as_tensor(latin_normal(len(draws), sum(sizes), seed)).to(like)
            parts = zip(self._layers, xi.split(sizes, 1))
            self._xi = [part.reshape(-1, *layer.z.shape) for layer, part in parts]
        self._log_weights = like.new_full((len(draws),), -math.log(len(draws)))

    @torch.no_grad()
    def latent(self, X):
        moments = propagate(
            self._layers, X.to(torch.float64), self._eps, self._xi, self.input_connected
        )
        return Latent(self._log_weights, *moments)

    @torch.no_grad()
    def functions(self, n, generator, X=None):
        layers = [layer.functions(n, 0, generator) for layer in self._layers]
        f = compose(layers, [None] * (len(layers) - 1), n, self.input_connected)
        return Functions(f, self._log_weights.new_ones(n))
