"""Deep Gaussian processes trained by draws from their hidden layers, and their posteriors."""

import contextlib

import torch

from ..gp.component import Trainable
from ..optim.gradient_steps import GradientSteps
from ..random import normal
from .base import Model
from .homoscedastic_warmup import HomoscedasticWarmup, without_scales
from .posterior import Functions, Latent, Posterior, equal_weights, frozen_parts


class DeepSparseGP(Model):
    """A deep Gaussian process whose expected log-likelihood is estimated by draws from the hidden layers.

    In the first `n_warmup` steps noise has the same size everywhere. In the first `n_shallow` ones
    hidden layers stay as they are, and hand on their mean functions.
    """

    _is_shallow = False  #: during such a step

    def __init__(
        self, architecture, likelihood, layers, n_draws=1, natural_step=0.1, n_warmup=0, n_shallow=0
    ):
        super().__init__(GradientSteps(natural_step))
        self.n_shallow = n_shallow
        self.n_draws = n_draws
        self.likelihood = Trainable(likelihood)
        self.layers = layers
        self.n_means = likelihood.n_means(architecture.n_latents)
        self.warmup = HomoscedasticWarmup(n_warmup)

    @torch.no_grad()
    def load_fewer_inputs(self, arrays, rng):
        super().load_fewer_inputs(arrays, rng)
        for i, layer in enumerate(self.layers[:-1]):
            n = 0 if layer.W is None else layer.n_outputs - arrays[f"layers.{i}.W"].shape[1]
            if n:  # units of their own, which hand new inputs on
                layer.W[-n:, -n:] = torch.eye(n).to(layer.W)

    def divergence(self):
        with self.averaged():
            return self.kl()

    def blocks(self):
        return [layer.q for layer in self.layers]

    def step(self, batch, generator, rate=1.0):
        self.warmup.start_step(self.layers[-1].q.mean[:, self.n_means :])
        before = self.steps.n_made
        with self._shallow_start() if before < self.n_shallow else contextlib.nullcontext():
            loss = super().step(batch, generator, rate)
        self.warmup.end_step(self.steps.n_made - before)
        return loss

    @contextlib.contextmanager
    def _shallow_start(self):
        """Hold hidden layers that are still where they started."""
        hidden = list(self.layers)[:-1]
        if any(layer.W is None or layer.q.mean.any() for layer in hidden):
            yield
            return
        held, self._is_shallow = [layer.q.held for layer in hidden], True
        for layer in hidden:
            layer.q.held = True
        try:
            yield
        finally:
            self._is_shallow = False
            for layer, before in zip(hidden, held):
                layer.q.held = before

    def _moments_of_shallow(self, i, layer, H):
        if i == len(self.layers) - 1:
            return layer.shared_moments(H)
        mean = layer.mean_function(H)
        return mean, torch.zeros_like(mean)

    def propagate(self, X, eps):
        """Moments of the last layer, see :meth:`Stack.moments <skdgp.gp.stack.Stack.moments>`."""
        mean, var = self.layers.moments(
            X, eps, self._moments_of_shallow if self._is_shallow else None
        )
        return without_scales(mean, var, self.n_means) if self.warmup.active else (mean, var)

    @torch.no_grad()
    def cover(self, X, n):
        parts = []

        def visit(i, layer, H):
            mean, B = layer.relocate(H, n)
            parts.append(B)
            return mean

        self.layers.walk(X, visit)
        self.carry(parts)

    def carry(self, parts):
        """Take the posterior over to other inducing inputs, see :meth:`SparseLayer.relocate`."""
        for layer, B in zip(self.layers, parts):
            layer.q.carry(B)

    def draw_eps(self, batch, generator):
        """Standard normal draws of a step, layer by layer."""
        shapes = [(self.n_draws, len(batch.X), width) for width in self.draw_widths()]
        return [batch.draw(lambda s: normal(s, generator, batch.X), shape) for shape in shapes]

    def expected_log_likelihood(self, batch, generator):
        return self.of_moments(batch, *self.propagate(batch.X, self.draw_eps(batch, generator)))

    def of_moments(self, batch, mean, var):
        """The estimate from moments (S, n, n_latents) of the last layer."""
        ell = self.likelihood().expected_log_prob(batch.y, mean, var)  # S, n
        return batch.scale / len(ell) * (batch.weight * ell).sum()

    def _frozen(self, draws, as_trained):
        return DeepPosterior(self, draws)

    @property
    def homoscedastic(self):
        return self.warmup.active

    @property
    def unfinished(self):
        return self.warmup.unfinished(self.warmup.lacks())


class DeepPosterior(Posterior):
    """The frozen posterior of a :class:`DeepSparseGP`, a mixture over draws of hidden layers."""

    _of_layer = None  #: moments of a layer, as for :meth:`~skdgp.gp.stack.Stack.moments`

    def __init__(self, model, draws, layers=None):
        draws, widths = torch.as_tensor(draws).to(model.layers[0].Z), model.draw_widths()
        super().__init__(*frozen_parts(model), equal_weights(len(draws), draws))
        eps = draws[:, : sum(widths)].split(widths, 1) if widths else ()
        self.eps = [e[:, None].clone() for e in eps]
        self.layers = model.layers.frozen() if layers is None else layers
        self.n_means = self.likelihood.n_means(self.layers[-1].n_outputs)
        self.homoscedastic = model.homoscedastic

    def latent(self, X):
        mean, var = self.layers.moments(X.to(torch.float64), self.eps, self._of_layer)
        if self.homoscedastic:
            mean, var = without_scales(mean, var, self.n_means)
        return Latent(self._log_weights, mean, var.expand_as(mean))

    def functions(self, n, generator, X=None):
        f = self.layers.functions(n, self._layer_functions(n, generator))

        def evaluate(X, noise=None):
            mean, deviation = f(X, noise)
            if self.homoscedastic:
                return without_scales(mean, deviation, self.n_means, floor=0.0)
            return mean, deviation

        return Functions(evaluate, self.inflation[:1].expand(n))

    def _layer_functions(self, n, generator):
        return [layer.functions(n, self.n_features, generator) for layer in self.layers]

    def covariance(self, X):
        return self.layers[0].covariance(X.to(torch.float64)) if len(self.layers) == 1 else None
