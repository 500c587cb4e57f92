"""The frozen posteriors of approximate expectation propagation by moment matching."""

import torch

from ...random import normal
from ..deep import DeepPosterior
from ..posterior import Functions, Latent
from .matching import MatchedLayer, match

#: Deep functions for the covariance of rows: those of one block of draws, whose errors differ from block to
#: block, and those of a covariance, whose correlations have a standard error of .02.
_BASIS, _MANY = 32, 2048
_AT_ONCE = 32  #: of them, for memory's sake


class MatchedPosterior(DeepPosterior):
    """A single Gaussian for each row, whose moments are propagated through the layers.

    Deep functions of the layers' posteriors have other distributions than these Gaussians, several
    modes for instance. So draws are Gaussian processes with the mean and variance of :meth:`latent`
    and, between rows, the correlations of a sample of deep functions: draws for a row have its
    predictive distribution.
    """

    def __init__(self, model):
        layers = model.layers.frozen(lambda layer: layer.frozen(MatchedLayer))
        super().__init__(model, torch.zeros(1, sum(model.draw_widths())), layers)

    def latent(self, X):
        def moments(i, layer, m, v, n_random):
            return layer.matched_moments(m, v, n_random) if i else layer.moments(m)

        mean, var = match(self.layers, X.to(torch.float64), moments)
        return Latent(self._log_weights, mean[None], var[None])

    def functions(self, n, generator, X=None):
        if len(self.layers) == 1:
            return super().functions(n, generator)
        parts = self._deep(_BASIS, generator)
        xi = normal((n, _BASIS, self.layers[-1].n_outputs), generator, self.inflation)

        def evaluate(X, noise=None):
            mean, basis = self._basis(parts, X, noise)
            deviation = torch.einsum("nsk,srk->nrk", xi, basis)
            return mean.expand_as(deviation), deviation

        return Functions(evaluate, self.inflation.expand(n))

    def covariance(self, X):
        if len(self.layers) == 1:
            return super().covariance(X)
        parts = self._deep(_MANY, torch.Generator().manual_seed(0))
        _, basis = self._basis(parts, X.to(torch.float64), None)
        return torch.einsum("sik,sjk->kij", basis, basis)

    def _deep(self, n, generator):
        deep = super().functions
        return [deep(_AT_ONCE, generator) for _ in range(n // _AT_ONCE)]

    def _basis(self, parts, X, noise):
        """Means, and deviations of deep functions (n, n_rows, k) whose squares add up to variances."""
        _, mean, var = self.latent(X)
        basis = torch.cat([sum(f.evaluate(X, noise)) for f in parts])
        basis = basis - basis.mean(0)
        return mean, basis * (var[0] / basis.square().sum(0).clamp_min(1e-300)).sqrt()
