"""Deep Gaussian processes with sparse layers: what several schemes train."""

import math

import numpy as np
import torch
from torch import nn

from ..gp.component import Trainable
from ..gp.draws import N_FEATURES
from ..gp.frozen import compose
from ..gp.layer import SparseLayer
from ..random import normal, sobol_normal
from .gradient_model import GradientModel
from .homoscedastic_warmup import HomoscedasticWarmup, without_scales
from .posterior import Functions, Latent, Posterior, frozen_parts

_FLOOR = 1e-12  #: least variance


def make_layers(architecture, make=SparseLayer, inner=None, last=None):
    """The layers of a model.

    Parameters
    ----------
    architecture : Architecture
    make : callable
        What makes a layer.
    inner, last : callable, optional
        The settings of hidden layers, and of the last one, from their number.

    Returns
    -------
    layers : nn.ModuleList
    """
    outputs = (*architecture.widths, architecture.n_latents)
    layers = nn.ModuleList()
    for i, (kernel, n_inputs) in enumerate(zip(architecture.kernels, architecture.layer_inputs())):
        hidden = i < len(architecture.widths)
        settings = inner if hidden else last
        layers.append(
            make(
                kernel,
                n_inputs,
                outputs[i],
                architecture.n_inducing,
                linear_mean=architecture.linear_mean and hidden,
                **(settings(i) if settings else {}),
            )
        )
    return layers


def propagate(layers, X, eps, input_connected):
    """Moments of the last layer given the draws of the hidden ones (Salimbeni and Deisenroth, 2017).

    Parameters
    ----------
    layers : sequence of SparseLayer or FrozenLayer
    X : tensor of shape (n, n_features)
    eps : list of tensors of shape (S, n, width) or (S, 1, width)
        Standard normal draws for the hidden layers.
    input_connected : bool

    Returns
    -------
    mean, var : tensors of shape (S, n, n_latents); S is 1 without hidden layers
    """
    H, S, last = X, 1, len(layers) - 1
    for i, layer in enumerate(layers):
        if i and input_connected:
            H = torch.cat([H, X.expand(S, *X.shape)], -1)
        mean, var = layer.shared_moments(H.reshape(-1, H.shape[-1]))
        mean = mean.reshape(-1, len(X), layer.n_outputs)
        var = var.reshape(-1, len(X), var.shape[1]).clamp_min(_FLOOR)
        if i < last:
            H, S = torch.addcmul(mean, var.sqrt(), eps[i]), len(eps[i])  # S, n, width
    return mean, var


class DeepSparseGP(GradientModel):
    """A deep Gaussian process whose layers are sparse, trained by draws from the hidden ones.

    Parameters
    ----------
    architecture : Architecture
    likelihood : Likelihood
    layers : nn.ModuleList
    n_draws : int
        Draws for each row and step.
    natural_step : float
    n_warmup : int
        Steps in which noise has the same size everywhere.
    """

    def __init__(self, architecture, likelihood, layers, n_draws=1, natural_step=0.1, n_warmup=0):
        super().__init__(natural_step=natural_step)
        self.n_draws = n_draws
        self.input_connected = architecture.input_connected
        self.likelihood = Trainable(likelihood)
        self.layers = layers
        self.n_means = likelihood.n_means(architecture.n_latents)
        self.warmup = HomoscedasticWarmup(n_warmup)

    def blocks(self):
        return [layer.q for layer in self.layers]

    def step(self, batch, generator, rate=1.0):
        self.warmup.start_step(self.layers[-1].q.mean[:, self.n_means :])
        before = self._n_steps
        loss = super().step(batch, generator, rate)
        self.warmup.n_made += self._n_steps - before
        return loss

    def propagate(self, X, eps):
        """Moments of the last layer, see :func:`propagate`."""
        mean, var = propagate(self.layers, X, eps, self.input_connected)
        return without_scales(mean, var, self.n_means) if self.warmup.active else (mean, var)

    @torch.no_grad()
    def cover(self, X, n):
        H, parts = X, []
        for layer in self.layers:
            mean, B = layer.relocate(H, n)
            parts.append(B)
            H = torch.cat([mean, X], -1) if self.input_connected else mean
        self.carry(parts)

    def carry(self, parts):
        """Take the posterior over to other inducing inputs, see :meth:`SparseLayer.relocate`."""
        for layer, B in zip(self.layers, parts):
            layer.q.carry(B)

    def draw_widths(self):
        """Dimensions of the draws that propagation needs, layer by layer."""
        return [layer.n_outputs for layer in self.layers][:-1]

    def expected_log_likelihood(self, batch, generator):
        eps = [
            normal((self.n_draws, len(batch.X), width), generator, batch.X)
            for width in self.draw_widths()
        ]
        mean, var = self.propagate(batch.X, eps)
        ell = self.likelihood().expected_log_prob(batch.y, mean, var)  # S, n
        return batch.scale / len(ell) * (batch.weight * ell).sum()

    def draws(self, n, seed):
        widths = self.draw_widths()
        return sobol_normal(n, sum(widths), seed) if widths else np.zeros((1, 0))

    def _frozen(self, draws, as_trained):
        return DeepPosterior(self, draws)

    @property
    def unfinished(self):
        return self.warmup.unfinished(self.warmup.lacks())

    def state(self):
        return {**super().state(), **self.warmup.state()}

    def load_state(self, arrays):
        arrays = dict(arrays)
        self.warmup.load(arrays)
        super().load_state(arrays)


class DeepPosterior(Posterior):
    """The frozen posterior of a :class:`DeepSparseGP`, a mixture over draws from the hidden layers.

    Parameters
    ----------
    model : DeepSparseGP
    draws : tensor of shape (S, sum of widths)
        Standard normal deviations of the hidden layers.
    """

    n_features = N_FEATURES

    def __init__(self, model, draws, layers=None):
        like = model.layers[0].Z
        draws = torch.as_tensor(draws).to(like)
        widths = model.draw_widths()
        self.eps = [e[:, None].clone() for e in draws.split(widths, 1)] if widths else []
        C = len(draws) if widths else 1
        super().__init__(*frozen_parts(model), inflation=like.new_ones(C))
        self.layers = [layer.frozen() for layer in model.layers] if layers is None else layers
        self.input_connected, self.n_means = model.input_connected, model.n_means
        self.homoscedastic = model.warmup.active
        self._log_weights = like.new_full((C,), -math.log(C))

    @torch.no_grad()
    def latent(self, X):
        mean, var = propagate(self.layers, X.to(torch.float64), self.eps, self.input_connected)
        if self.homoscedastic:
            mean, var = without_scales(mean, var, self.n_means)
        return Latent(self._log_weights, mean, var)

    @torch.no_grad()
    def functions(self, n, generator, X=None):
        layers = self._layer_functions(n, generator)
        noises = [layer.noise() for layer in self.layers[:-1]]
        f = compose(layers, noises, n, self.input_connected)

        def evaluate(X, noise=None):
            mean, deviation = f(X, noise)
            if self.homoscedastic:
                return without_scales(mean, deviation, self.n_means, floor=0.0)
            return mean, deviation

        return Functions(evaluate, self.inflation[:1].expand(n))

    def _layer_functions(self, n, generator):
        return [layer.functions(n, self.n_features, generator) for layer in self.layers]

    @torch.no_grad()
    def covariance(self, X):
        return self.layers[0].covariance(X.to(torch.float64)) if len(self.layers) == 1 else None
