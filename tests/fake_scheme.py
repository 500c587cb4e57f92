"""Schemes with a closed form and nothing to learn: what is around members is tested in milliseconds."""

import math
from numbers import Real
from typing import Annotated

import numpy as np
import torch
from sklearn.utils._param_validation import Interval

from skdgp import DeepGPRegressor
from skdgp.fitting.member import Plan
from skdgp.gp.component import Trainable
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference.base import POSITIVE, Model, Scheme
from skdgp.inference.posterior import Functions, Latent, Posterior


class Constant(Scheme):
    """Targets around the mean of all rows, with their variance, and exact leave-one-out densities.

    The mean is off by `offset` standard deviations, and deviations are multiplied by `factor`. A step takes
    all rows, and the first one is enough.
    """

    takes_chunks = False
    leaves_one_out = True
    fewer_draws = False
    offset: Annotated[float, Interval(Real, None, None, closed="neither")] = 0.0
    factor: Annotated[float, POSITIVE] = 1.0

    def max_iter(self, n_rows):
        return 2

    def batch_size(self, n_rows):
        return n_rows

    def n_inducing(self, n_rows, n_classes=None):
        return 1

    def build(self, architecture, likelihood):
        return ConstantModel(architecture, likelihood, self)


class Running(Constant):
    """As :class:`Constant`, of the rows in the minibatches so far, without leave-one-out densities."""

    uses = frozenset({"batch_size"})
    takes_chunks = True
    leaves_one_out = False

    def batch_size(self, n_rows):
        return 10


class ConstantModel(Model):
    """Weights, and sums of targets and of their squares."""

    roles = {"sums": "posterior"}

    def __init__(self, architecture, likelihood, scheme):
        super().__init__()
        self.scheme, self.architecture = scheme, architecture
        self.is_full_batch = scheme.leaves_one_out
        self.layers = ()
        self.likelihood = Trainable(likelihood).requires_grad_(False)
        self.register_buffer("sums", torch.zeros(3, architecture.n_latents, dtype=torch.float64))
        self.n_steps, self.targets = 0, None

    def start(self, X, weights, rng, method="kmeans"):
        pass

    def hold(self, batch):
        self.targets = batch.y.double()

    def step(self, batch, generator, rate=1.0):
        if self.is_full_batch:
            self.hold(batch)
            self.sums.zero_()
        y, weight = batch.y.double(), batch.weight[:, None].double()
        self.sums += torch.stack([(weight * y**p).sum(0) for p in range(3)])
        self.n_steps += 1
        return 1.0 / self.n_steps

    def training_state(self):
        return {"n_steps": np.array(self.n_steps)}

    def load_training_state(self, arrays):
        self.n_steps = int(arrays["n_steps"]) if arrays else 0

    def posterior(self, draws, as_trained=False):
        return ConstantPosterior(self)


def moments(sums):
    """Mean and variance (k,) of targets, at least .01, from the sums of a model."""
    n, total, squares = sums
    n = n.clamp_min(1e-9)  # before the first step
    mean = total / n
    return mean, (squares / n - mean.square()).clamp_min(0.01)


class ConstantPosterior(Posterior):
    """The same for all rows; the latent function is known, and all is noise."""

    def __init__(self, model):
        self._scheme, self._sums, self._targets = model.scheme, model.sums.clone(), model.targets
        self._mean, var = self._predicted(self._sums)
        shape = model.architecture
        no_inputs = np.zeros((0, shape.n_features))
        super().__init__(Gaussian(var.numpy(force=True)), shape.kernels, [no_inputs])

    def _predicted(self, sums):
        mean, var = moments(sums)
        return mean + self._scheme.offset * var.sqrt(), self._scheme.factor**2 * var

    def latent(self, X):
        mean = self._mean.expand(1, len(X), -1)
        return Latent(self._log_weights, mean, torch.zeros_like(mean))

    def covariance(self, X):
        return X.new_zeros(len(self._mean), len(X), len(X))

    def functions(self, n, generator, X=None):
        def evaluate(X, noise=None):
            mean = self._mean.expand(n, len(X), -1)
            return mean, torch.zeros_like(mean)

        return Functions(evaluate, torch.ones(n))

    def left_out(self, rows, dispersions=None):
        if self._targets is None:
            return None, None
        y = self._targets[np.asarray(rows)]
        left = self._sums[:, None] - torch.stack([y**p for p in range(3)])
        mean, var = self._predicted(left)
        scales = torch.as_tensor(1.0 if dispersions is None else dispersions, dtype=y.dtype)
        var = scales.reshape(-1, 1, 1).square() * var
        density = -0.5 * ((y - mean).square() / var + var.log() + math.log(2.0 * math.pi)).sum(-1)
        return (density[0] if dispersions is None else density).numpy(), (y - mean).numpy()

    def loo_log_density(self, rows, dispersions=None):
        return self.left_out(rows, dispersions)[0]


def mixture_of(monkeypatch, *schemes):
    """Let ``DeepGPRegressor()`` be a mixture of these schemes."""

    def recipe(estimator, plan, data, seconds):
        return [Plan(scheme, Gaussian(), kernel="linear") for scheme in schemes]

    monkeypatch.setattr(DeepGPRegressor, "_recipe", recipe)
