"""The frozen posteriors of approximate expectation propagation by moment matching."""

from functools import partial

import torch

from ...random import normal
from ..posterior import Functions, Latent
from ..sparse_model import DeepPosterior
from .matching import MatchedUnits, frozen_moments

_SMALLEST = 1e-10  #: bound on variances, which are differences
#: Deep functions that tell how rows covary: those of one block of draws, whose errors differ from block to
#: block, and those of a covariance, whose correlations have a standard error of .02.
_BASIS, _MANY = 32, 2048
_AT_ONCE = 32  #: of them, for memory's sake


def match(first, others, X, input_connected):
    """Moments of the last layer, (n, n_latents), with every layer's outputs taken for Gaussian.

    Parameters
    ----------
    first : callable
        Mean and variance of the first layer's outputs at rows.
    others : list of callable
        Those of the other layers, from mean and variance of their inputs and how many of these are random.
    X : tensor of shape (n, n_features)
    input_connected : bool
    """
    mean, var = first(X)
    for moments in others:
        width, var = mean.shape[1], var.clamp_min(_SMALLEST)
        if input_connected:
            mean, var = torch.cat([mean, X], 1), torch.cat([var, torch.zeros_like(X)], 1)
        mean, var = moments(mean, var, width)
    return mean, var.clamp_min(_SMALLEST)


class MatchedPosterior(DeepPosterior):
    """A single Gaussian for each row, whose moments are propagated through the layers.

    Deep functions of the layers' posteriors have other distributions than these Gaussians, several modes for
    instance. So draws are Gaussian processes with the mean and variance of :meth:`latent` and, between rows,
    the correlations of a sample of deep functions: what is drawn for a row is what is predicted for it.

    Parameters
    ----------
    model : DeepPowerEP
    """

    def __init__(self, model):
        layers = [layer.frozen(MatchedUnits) for layer in model.layers]
        super().__init__(model, torch.zeros(1, sum(model.draw_widths())), layers)

    @torch.no_grad()
    def latent(self, X):
        first, *others = self.layers
        others = [partial(frozen_moments, layer) for layer in others]
        mean, var = match(first.moments, others, X.to(torch.float64), self.input_connected)
        return Latent(self._log_weights, mean[None], var[None])

    @torch.no_grad()
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

    @torch.no_grad()
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
