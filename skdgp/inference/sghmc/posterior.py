"""Predictions of a deep Gaussian process from states of chains."""

import math

import torch

from ...gp.draws import N_FEATURES
from ...gp.frozen import compose
from ...linalg import inverse_triangular
from ..chains import pick_states
from ..posterior import Functions, Latent, Posterior, frozen_parts
from .layer import LEAST_VARIANCE

_AT_ONCE = 4_000_000  #: numbers of projections


class SampledPosterior(Posterior):
    """A mixture with one component for each state of the chains.

    Parameters
    ----------
    model : SampledDeepGP
    v : list of tensors of shape (S, M, D_l)
        Whitened inducing outputs of each state.
    draws : tensor of shape (at least S, n_hidden)
        The noise of hidden units, one draw for each state, shared by all rows.
    """

    n_features = N_FEATURES

    @torch.no_grad()
    def __init__(self, model, v, draws):
        S = len(v[0])
        super().__init__(*frozen_parts(model), v[0].new_ones(S))
        self.n_chains, self.input_connected = model.n_chains, model.input_connected
        self._layers, self._v = [layer.frozen() for layer in model.layers], v
        self._whitenings = [inverse_triangular(layer.units[0].L) for layer in self._layers]
        eps = torch.as_tensor(draws)[:S].to(v[0])
        self._eps = eps.split([layer.n_outputs for layer in self._layers[:-1]], 1)
        self._log_weights = v[0].new_full((S,), -math.log(S))

    @torch.no_grad()
    def latent(self, X):
        X, S = X.to(torch.float64), len(self._log_weights)
        size = max(1, _AT_ONCE // (max(1, len(X)) * self._v[0].shape[1]))
        moments = (self._moments(X, slice(s, s + size)) for s in range(0, S, size))
        mean, var = (torch.cat(part) for part in zip(*moments))
        return Latent(self._log_weights, mean, var)

    def _moments(self, X, states):
        H = X[None]
        for i, (layer, v) in enumerate(zip(self._layers, self._v)):
            if i and self.input_connected:
                H = torch.cat([H, X.expand(len(H), *X.shape)], -1)
            unit, rows = layer.units[0], H.flatten(0, 1)
            A = self._whitenings[i] @ unit.kernel(unit.Z, rows)  # M, states or 1 times rows
            var = (unit.kernel.diag(rows) - A.square().sum(0)).clamp_min(LEAST_VARIANCE)
            A, var = A.view(len(A), *H.shape[:2]).transpose(0, 1), var.view(*H.shape[:2], 1)
            mean = (v[states].mT @ A).mT + layer.mean_function(H)
            if i < len(self._eps):
                H = mean + var.sqrt() * self._eps[i][states, None]
        return mean, var.expand_as(mean)

    @torch.no_grad()
    def functions(self, n, generator, X=None):
        """By pathwise conditioning on the inducing outputs of some states."""
        states = pick_states(len(self._log_weights), n, generator)
        layers = [
            layer.functions(n, self.n_features, generator, v[states], v[states])
            for layer, v in zip(self._layers, self._v)
        ]
        f = compose(layers, [None] * (len(layers) - 1), n, self.input_connected)
        return Functions(f, self._log_weights.new_ones(n))
