"""GPyTorch's deep Gaussian process, with good starting values and with the documented ones.

The good ones: inducing inputs by k-means, the identity as the mean of the hidden units (kept, which
is better than to train it), lengthscales 2, hidden variances 0.1 with posterior roots of 1e-3, noise 0.1. The
documentation's example starts from random inducing inputs and one random linear mean that all
hidden units share.
"""

from functools import partial

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
)
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from .. import scores
from .gpytorch_training import DTYPE, N_STEPS, minibatches, stepper, tensors
from .scaling import Standardized, centers

N_INDUCING = 100
N_PREDICT_DRAWS = 100
_ROWS_AT_ONCE = 1000


class Layer(DeepGPLayer):
    """One layer; each output has its own kernel and inducing inputs.

    Parameters
    ----------
    Z : tensor of shape (M, n_inputs) or (n_outputs, M, n_inputs)
    n_outputs : int or None
        None for a single output that is the last.
    mean : gpytorch.means.Mean
    """

    def __init__(self, Z, n_outputs, mean):
        batch = torch.Size([] if n_outputs is None else [n_outputs])
        Z = Z.expand(*batch, *Z.shape[-2:]).clone()
        q = CholeskyVariationalDistribution(Z.shape[-2], batch_shape=batch)
        super().__init__(VariationalStrategy(self, Z, q), Z.shape[-1], n_outputs)
        self.mean_module = mean
        kernel = RBFKernel(ard_num_dims=Z.shape[-1], batch_shape=batch)
        self.covar_module = ScaleKernel(kernel, batch_shape=batch)

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def start(self, variance, root):
        """Set starting values of the kernel, and of the roots of the posterior."""
        self.covar_module.outputscale = variance
        self.covar_module.base_kernel.lengthscale = 2.0
        q = self.variational_strategy._variational_distribution
        q.chol_variational_covar.data.mul_(root)
        self.variational_strategy.variational_params_initialized.fill_(1)  # else it starts anew


class Deep(DeepGP):
    """Layers of equal width, and the last one.

    Parameters
    ----------
    Z : tensor of shape (M, n_features)
    widths : sequence of int
    n_outputs : int or None
        None for a vector of targets.
    documented : bool
        Whether to start as the documentation's example does.
    classes : bool
        Whether the targets are 0 and 1, with a probit link.
    """

    def __init__(self, Z, widths, n_outputs=None, documented=False, classes=False):
        super().__init__()
        layers = []
        for width in widths:
            if documented:
                layers.append(Layer(torch.randn(width, *Z.shape).to(Z), width, _mean(Z, None)))
                Z = torch.empty(len(Z), width).to(Z)
                continue
            directions = _directions(Z, width)
            layer = Layer(Z, width, _mean(Z, directions))
            layer.start(0.1, 1e-3)
            layers.append(layer)
            Z = Z @ directions
        if documented:
            Z = torch.randn(*Z.shape).to(Z)
        last = Layer(
            Z, n_outputs, ConstantMean(batch_shape=torch.Size([n_outputs] if n_outputs else []))
        )
        if not documented:
            last.start(1.0, 1.0)
        self.layers = torch.nn.ModuleList([*layers, last])
        if classes:
            self.likelihood = BernoulliLikelihood()
        elif n_outputs is None:
            self.likelihood = GaussianLikelihood()
        else:
            self.likelihood = MultitaskGaussianLikelihood(n_outputs, has_task_noise=False)
        if not documented and not classes:
            self.likelihood.noise = 0.1
        self.to(Z)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def _directions(Z, width):
    """The identity, padded with zeros, or the principal directions if there are fewer outputs."""
    if width >= Z.shape[1]:
        return torch.eye(Z.shape[1], width).to(Z)
    return torch.linalg.svd(Z - Z.mean(0), full_matrices=False)[2][:width].T


def _mean(Z, directions):
    """A fixed linear mean for each unit with these directions, or a random one for all to train."""
    if directions is None:
        return LinearMean(Z.shape[1])
    mean = LinearMean(Z.shape[1], batch_shape=torch.Size([directions.shape[1]]))
    mean.weights.data.copy_(directions.T[..., None])
    mean.bias.data.zero_()
    return mean.requires_grad_(False)


def step_function(model, n_rows):
    """A function that makes one step of training."""
    bound = DeepApproximateMLL(VariationalELBO(model.likelihood, model, n_rows))
    return stepper(model, model.likelihood, bound)


def predict(model, X, n_draws=N_PREDICT_DRAWS):
    """Means and variances of the target, arrays of shape (n_draws, n)."""
    model.eval()
    parts = []
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(n_draws):
        for rows in X.split(_ROWS_AT_ONCE):
            y = model.likelihood(model(rows))
            parts.append((y.mean.double().numpy(), y.variance.double().numpy()))
    return tuple(np.concatenate(part, 1) for part in zip(*parts))


def predict_class(model, X, n_draws=N_PREDICT_DRAWS):
    """Probability of the class 1, an array of shape (n,)."""
    model.eval()
    parts = []
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(n_draws):
        for rows in X.split(_ROWS_AT_ONCE):
            parts.append(model.likelihood(model(rows)).probs.double().mean(0).numpy())
    return np.concatenate(parts)


def start(X, seed, documented=False, dtype=DTYPE, classes=False):
    """A model for standardized rows, two layers deep."""
    torch.manual_seed(seed)
    (Z,) = tensors(centers(X, N_INDUCING, seed), dtype=dtype)
    return Deep(Z, [X.shape[1]], documented=documented, classes=classes)


def train(model, X, y, seed, n_steps):
    """Make all steps; yields the number of steps after each of them."""
    X, y = tensors(X, y, dtype=next(model.parameters()).dtype)
    step = step_function(model, len(X))
    batches = minibatches(X, y, n_steps, torch.Generator().manual_seed(seed))
    for i, batch in enumerate(batches, 1):
        step(*batch)
        yield i
        if not model.training:  # it has predicted in between
            model.train()


def predictor(model, scaled, n_draws=N_PREDICT_DRAWS):
    """A function from raw rows to means and variances in the target's units."""

    def predict_raw(X):
        (X,) = tensors(scaled.inputs(X), dtype=next(model.parameters()).dtype)
        return scaled.moments(*predict(model, X, n_draws))

    return predict_raw


def fit(X, y, seed, max_iter=None, *, documented=False):
    """Train on standardized rows."""
    scaled = Standardized(X, y)
    model = start(scaled.X, seed, documented)
    for _ in train(model, scaled.X, scaled.y, seed, max_iter or N_STEPS):
        pass
    return partial(scores.of_mixture, predictor(model, scaled))
