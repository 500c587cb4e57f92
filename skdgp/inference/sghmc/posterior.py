"""Predictions of a deep Gaussian process from states of chains."""

import copy

import torch

from ...gp.layer import draw_functions
from ...linalg import cholesky
from ..chains import Latent, pick_states
from .layer import LEAST_VARIANCE

_AT_ONCE = 4_000_000  #: numbers of a projection
_N_FEATURES = 1024  #: random features of a function


class SampledPosterior:
    """A mixture with one component for each state of the chains; nothing changes after it is made.

    Parameters
    ----------
    layers : sequence of SampledLayer
    likelihood : Likelihood
        With fitted values.
    v : list of tensors of shape (S, M, D_l)
        Whitened inducing outputs of each state.
    draws : tensor of shape (S, n_hidden)
        The noise of hidden units, one draw for each state, shared by all rows.
    input_connected : bool
    n_chains : int
        How many chains the states are of; those of a chain follow each other.
    """

    @torch.no_grad()
    def __init__(self, layers, likelihood, v, draws, input_connected, n_chains):
        self.n_chains = n_chains
        self.likelihood, self.input_connected = likelihood, input_connected
        self.kernels = [layer.kernel.fitted() for layer in layers]
        self._Z = [layer.Z.detach().clone() for layer in layers]
        self.inducing_inputs = [Z.cpu().numpy() for Z in self._Z]
        self._layers = [copy.deepcopy(layer).requires_grad_(False) for layer in layers]
        self._whitenings = [layer.whitening() for layer in self._layers]
        self._v = v
        draws = torch.as_tensor(draws).to(v[0])
        self._eps = draws.split([layer.n_outputs for layer in layers[:-1]], 1)
        self.inflation = torch.ones(len(v[0]), dtype=torch.float64)

    @torch.no_grad()
    def latent(self, X):
        """Moments of the latent functions under each state; rows do not see each other."""
        X, S = torch.as_tensor(X).to(self._v[0]), len(self._v[0])
        mean = X.new_empty(S, len(X), self._v[-1].shape[-1])
        var = torch.empty_like(mean)
        n_rows = max(1, min(len(X), _AT_ONCE // len(self._Z[0])))
        n_states = max(1, _AT_ONCE // (n_rows * len(self._Z[0])))
        for rows in _pieces(len(X), n_rows):
            for states in _pieces(S, n_states):
                mean[states, rows], var[states, rows] = self._moments(X[rows], states)
        log_weights = torch.full((S,), 1.0 / S, dtype=torch.float64).log()
        return Latent(log_weights, mean, var)

    def _moments(self, X, states):
        H = X[None]
        for i, layer in enumerate(self._layers):
            H = self._beside(H, X, i)
            A, variance = layer.project(H, self._whitenings[i])
            mean = (self._v[i][states].mT @ A).mT + layer.mean_function(H)
            if i < len(self._eps):
                H = mean + variance.sqrt()[..., None] * self._eps[i][states, None]
        return mean, variance[..., None].clamp_min(LEAST_VARIANCE)

    def _beside(self, H, X, i):
        """Inputs of layer `i`: outputs of the layer before, and the rows where they are connected."""
        if i == 0 or not self.input_connected:
            return H
        return torch.cat([H, X.expand(len(H), *X.shape[-2:])], -1)

    @torch.no_grad()
    def functions(self, n, generator):
        """Draws of functions: states, and draws of all layers given them (Wilson et al., 2020)."""
        states = pick_states(len(self._v[0]), n, generator)
        paths = []
        for kernel, layer, Z, v in zip(self.kernels, self._layers, self._Z, self._v):
            v = v[states]
            path = draw_functions(
                kernel, Z, layer.n_outputs, lambda v=v: v, layer.jitter, n, _N_FEATURES, generator
            )
            paths.append(path)
        root = cholesky(self.kernels[-1](self._Z[-1], self._Z[-1]), self._layers[-1].jitter)
        weights = torch.linalg.solve_triangular(root.T, self._v[-1][states], upper=True)

        @torch.no_grad()
        def f(X, noise=None):
            X = torch.as_tensor(X).to(weights)
            H = X.expand(n, *X.shape)
            for i, (path, layer) in enumerate(zip(paths, self._layers)):
                H = self._beside(H, X, i)
                value = path(H) + layer.mean_function(H)
                if i < len(self._eps):
                    H = value
            kernel, Z = self.kernels[-1], self._Z[-1]
            K = kernel(H.flatten(0, 1), Z).view(*H.shape[:2], -1)
            mean = K @ weights
            return mean, value - mean

        return f

    def covariance(self, X):
        """None: there is no closed form."""

    def loo_log_density(self, rows, dispersions=None):
        """None: no cheap exact form."""


def _pieces(n, size):
    return [slice(i, i + size) for i in range(0, n, size)]
