"""Deep Gaussian processes trained by draws from their hidden layers, and their posteriors."""

import torch
from torch import nn

from ..gp.component import Trainable
from ..optim.gradient_steps import GradientSteps
from ..random import normal
from .base import Model
from .posterior import Functions, Latent, Posterior, equal_weights, frozen_parts

_FLOOR = 1e-12  #: variance of a latent function that is held at its mean


def without_scales(mean, var, n_means, floor=_FLOOR):
    """Moments of latent functions, (..., n_latents), in which scales of the noise stay at zero."""
    mean = torch.cat([mean[..., :n_means], torch.zeros_like(mean[..., n_means:])], -1)
    return mean, torch.cat([var[..., :n_means], torch.full_like(var[..., n_means:], floor)], -1)


class HomoscedasticWarmup(nn.Module):
    """First `n_steps` in which latent functions that are scales of the noise stay at zero.

    Otherwise varying noise explains variation that kernels do not explain yet, and they never do.
    Scales from an earlier fit, or from another model, are not reset.
    """

    roles = {"progress": "progress"}

    def __init__(self, n_steps):
        super().__init__()
        self.n_steps = n_steps
        self.register_buffer("progress", torch.zeros(2, dtype=torch.int64))

    @property
    def n_made(self):
        return int(self.progress[0])

    @property
    def active(self):
        return bool(self.progress[1])

    def start_step(self, log_scales):
        """Before each step, with the posterior means of the scales at the inducing inputs."""
        if self.active or self.n_made < self.n_steps:
            early = self.n_made < self.n_steps and log_scales.numel() > 0
            self.progress[1] = early and not log_scales.any()

    def end_step(self, accepted):
        """After each step."""
        self.progress[0] += accepted

    def unfinished(self, *lacks):
        """A sentence for the user on the restrictions that the first steps have not lifted, or None."""
        lacks = [*lacks, *["noise has the same size everywhere"] * self.active]
        if not lacks:
            return None
        return (
            f"Training ended after {self.n_made} steps, the first ones, and {' and '.join(lacks)}; make "
            f"max_iter or max_time larger, or n_warmup of the scheme smaller than {self.n_steps}."
        )


class DeepSparseGP(Model):
    """A deep Gaussian process whose expected log-likelihood is estimated by draws from the hidden layers.

    In the first `n_warmup` steps noise has the same size everywhere. After `n_restart` of them hidden layers
    that have vanished start again.
    """

    moves_inducing_inputs = True

    def __init__(
        self, architecture, likelihood, layers, n_draws=1, natural_step=0.1, n_warmup=0, n_restart=0
    ):
        super().__init__(GradientSteps(natural_step))
        self.n_restart = n_restart
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
        return [part.q for layer in self.layers for part in layer.parts()]

    def step(self, batch, generator, rate=1.0):
        self.warmup.start_step(self.layers[-1].q.mean[:, self.n_means :])
        before = self.steps.n_made
        if before == self.n_restart > 0 and self.layers.vanished():
            self._restart()
        loss = super().step(batch, generator, rate)
        self.warmup.end_step(self.steps.n_made - before)
        return loss

    def _restart(self):
        """Let hidden layers start again, around what the last one has learned, from their inducing inputs."""
        hidden = list(self.layers)[:-1]
        for layer in hidden:
            layer.restart()
        self.steps.restart(self, [p for layer in hidden for p in layer.parameters()])

    def propagate(self, X, eps):
        """Moments of the last layer, see :meth:`Stack.moments <skdgp.gp.stack.Stack.moments>`."""
        mean, var = self.layers.moments(X, eps)
        return without_scales(mean, var, self.n_means) if self.warmup.active else (mean, var)

    @torch.no_grad()
    def cover(self, X, n):
        """Choose `n` inducing inputs of each layer among the present ones and some rows.

        The posterior process is carried over.
        """
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
            layer.carry(B)

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
        return self.warmup.unfinished()


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

    def joint_given_draws(self, X):
        last, shape = len(self.layers) - 1, X.shape[:2]
        if self._of_layer is not None or type(self).latent is not DeepPosterior.latent:
            return None

        def visit(i, layer, H):
            mean, var = layer.shared_moments(H)
            if i < last:
                return torch.addcmul(mean, var.clamp_min(0.0).sqrt(), self.eps[i])
            groups = H.unflatten(1, shape).flatten(0, 1)
            return mean, layer.covariance_of_groups(groups).unflatten(1, (len(H), shape[0]))

        mean, cov = self.layers.walk(X.flatten(0, 1).double(), visit)  # S, n, k and k, S, B, q, q
        return self._log_weights.exp(), mean.unflatten(1, shape), cov.mean(1)

    def covariance_of_groups(self, X):
        if type(self).covariance is not DeepPosterior.covariance or len(self.layers) > 1:
            return super().covariance_of_groups(X)
        return self.layers[0].covariance_of_groups(X.to(torch.float64))
