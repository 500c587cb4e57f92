"""Predictions of a deep Gaussian process from states of chains."""

import torch

from ...gp.frozen import FrozenLayer
from ...gp.layer import LEAST_VARIANCE
from ...linalg import is_exporting
from ..chains import pick_states
from ..posterior import Functions, Latent, Posterior, equal_weights, frozen_parts

_AT_ONCE = 4_000_000  #: numbers of projections


class SampledPosterior(Posterior):
    """A mixture of states of the chains, each with inducing outputs and noise of hidden units."""

    @torch.no_grad()
    def __init__(self, model, v, draws):
        S = len(v[0])
        super().__init__(*frozen_parts(model), equal_weights(S, v[0]))
        self.n_chains, self._v = model.n_chains, v
        self._layers = model.layers.frozen(lambda layer: layer.frozen(FrozenLayer))
        eps = torch.as_tensor(draws)[:S].to(v[0])
        self._eps = eps.split([layer.n_outputs for layer in self._layers[:-1]], 1)

    def latent(self, X):
        X, S = X.to(torch.float64), len(self._log_weights)
        if is_exporting():
            return Latent(self._log_weights, *self._moments(X, slice(None)))
        size = max(1, _AT_ONCE // (max(1, len(X)) * self._v[0].shape[1]))
        moments = (self._moments(X, slice(s, s + size)) for s in range(0, S, size))
        mean, var = (torch.cat(part) for part in zip(*moments))
        return Latent(self._log_weights, mean, var)

    def _moments(self, X, states):
        def moments(i, layer, H):
            A, k_ff = layer.whitened(H)  # M, states or 1, rows
            var = (k_ff - A.square().sum(0)).clamp_min(LEAST_VARIANCE)
            mean = (self._v[i][states].mT @ A.transpose(0, 1)).mT + layer.mean_function(H)
            return mean, var[..., None]

        eps = [e[states, None] for e in self._eps]
        mean, var = self._layers.moments(X[None], eps, moments)
        return mean, var.expand_as(mean)

    def functions(self, n, generator, X=None):
        """By pathwise conditioning on the inducing outputs of some states."""
        states = pick_states(len(self._log_weights), n, generator)
        layers = [
            layer.functions(n, self.n_features, generator, v[states], v[states])
            for layer, v in zip(self._layers, self._v)
        ]
        return Functions(self._layers.functions(n, layers), self._log_weights.new_ones(n))
