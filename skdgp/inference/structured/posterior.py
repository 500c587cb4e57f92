"""The frozen posteriors of structured variational inference."""

import copy
import math
from functools import partial

import torch

from ...gp.frozen import FrozenLayer
from ..deep import DeepPosterior, without_scales
from ..posterior import Functions, Latent
from .inflation import NODES
from .products import forms
from .propagation import propagate


class _WhitenedLayer(FrozenLayer):
    """A layer at rest; `Q` is the excess covariance of its units by themselves."""

    def __init__(self, *args, Q):
        super().__init__(*args)
        self._Q = Q

    def whiten(self, K):
        return self.L_inv @ K

    def excess(self):
        return self._Q

    def process_moments(self, H):
        A, k_ff = self.whitened(H[None])
        linear, squares = forms(A, self.q_mean, self._Q)
        return linear[:, 0].T, (k_ff + squares[:, 0]).T


class StructuredPosterior(DeepPosterior):
    """Components are draws of the hidden layers and, with inflation, nodes of its factor."""

    def __init__(self, model, draws, as_trained=False):
        self._pattern, self._moments = model.q.patterns[model.q.active], model.q.moments()
        layers = model.layers.frozen(
            lambda layer: layer.frozen(partial(_WhitenedLayer, Q=layer.q.excess(self._moments)))
        )
        super().__init__(model, draws, layers)
        self._q = model.q.frozen()
        known = model.variance_inflation is not None and model.variance_inflation.known()
        self._inflate = (
            copy.deepcopy(model.variance_inflation) if known and not as_trained else None
        )
        if self._inflate is not None:
            S = len(self._log_weights)
            self.inflation = self._inflate.factors().repeat_interleave(S)
            self._log_weights = self._log_weights.repeat(len(NODES)) - math.log(len(NODES))

    def _of_draws(self, X):
        """Moments of the last layer for all draws, and the prior's variance, (s, n)."""
        rest = self._pattern, self._moments, X.to(torch.float64), self.eps
        mean, var, k_ff = propagate(self.layers, _WhitenedLayer.whitened, *rest)
        if self.homoscedastic:
            mean, var = without_scales(mean, var, self.n_means)
        return mean, var, k_ff

    def latent(self, X):
        mean, var, k_ff = self._of_draws(X)
        if self._inflate is not None:
            mean, var = self._inflate.mixture(mean, var, k_ff, self.n_means)
        return Latent(self._log_weights, mean, var)

    def _layer_functions(self, n, generator):
        v, center = (part.mT for part in self._q.sample(n, generator))  # n, M, T: all layers
        widths = [layer.n_outputs for layer in self.layers]
        return [
            layer.functions(n, self.n_features, generator, *parts)
            for layer, *parts in zip(self.layers, v.split(widths, -1), center.split(widths, -1))
        ]

    def functions(self, n, generator, X=None):
        f = super().functions(n, generator)
        if self._inflate is None:
            return f
        chosen = self._inflate.choice(n, generator)

        def evaluate(X, noise=None):
            center, a = self._inflate.centers_and_factors(*self._of_draws(X), self.n_means)
            mean, deviation = f.evaluate(X, noise)
            return center + a[chosen] * (mean - center), a[chosen] * deviation

        return Functions(evaluate, self._inflate.factors()[chosen])

    def covariance(self, X):
        covariance = super().covariance(X)
        if covariance is None or self._inflate is None:
            return covariance
        k_ff = self.layers[0].kernel.diag(X.to(torch.float64))
        return self._inflate.covariance(covariance, k_ff, self.n_means)
