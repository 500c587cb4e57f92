"""GPyTorch's deep Gaussian process, without hidden layers the sparse one: Adam on minibatches of the bound.

It has good starting values: inducing inputs by k-means, the identity as the mean of the hidden
units (kept, which is better than to train it), lengthscales 2, hidden variances 0.1 with posterior roots of
1e-3, noise 0.1. Its documentation's example starts from random inducing inputs and one random linear mean
that all hidden units share, and is far worse.
"""

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from benchmarks.models import Standardized, centers

N_STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 1000, 0.01
DTYPE = torch.float32  #: GPyTorch's own default
N_PREDICT_DRAWS = 100
_ROWS_AT_ONCE = 1000


class Layer(DeepGPLayer):
    """One layer; each output has its own kernel and inducing inputs, which start at Z (M, n_inputs).

    If they are `shared`, all outputs have the same.
    """

    def __init__(self, Z, n_outputs, mean, shared=False):
        batch = torch.Size([] if n_outputs is None else [n_outputs])
        own = torch.Size([1] * len(batch)) if shared else batch
        Z = Z.expand(*own, *Z.shape[-2:]).clone()
        q = CholeskyVariationalDistribution(Z.shape[-2], batch_shape=batch)
        super().__init__(VariationalStrategy(self, Z, q), Z.shape[-1], n_outputs)
        self.mean_module = mean
        kernel = RBFKernel(ard_num_dims=Z.shape[-1], batch_shape=own)
        self.covar_module = ScaleKernel(kernel, batch_shape=own)

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
    """Hidden layers of the given widths, and the last one; `n_outputs` is None for a vector of targets."""

    def __init__(self, Z, widths, n_outputs=None, shared=False):
        super().__init__()
        layers = []
        for width in widths:
            directions = _directions(Z, width)
            mean = LinearMean(Z.shape[1], batch_shape=torch.Size([width]))
            mean.weights.data.copy_(directions.T[..., None])
            mean.bias.data.zero_()
            layers.append(Layer(Z, width, mean.requires_grad_(False), shared))
            layers[-1].start(0.1, 1e-3)
            Z = Z @ directions
        shape = torch.Size([n_outputs] if n_outputs else [])
        layers.append(Layer(Z, n_outputs, ConstantMean(batch_shape=shape)))
        layers[-1].start(1.0, 1.0)
        self.layers = torch.nn.ModuleList(layers)
        self.likelihood = GaussianLikelihood()
        if n_outputs is not None:
            self.likelihood = MultitaskGaussianLikelihood(n_outputs, has_task_noise=False)
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


def step_function(model, n_rows):
    """A function of a batch that makes one step of Adam; it draws once for each row."""
    bound = DeepApproximateMLL(VariationalELBO(model.likelihood, model, n_rows))
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=LEARNING_RATE)

    def step(X, y):
        with gpytorch.settings.num_likelihood_samples(1):
            optimizer.zero_grad()
            loss = -bound(model(X), y)
            loss.backward()
            optimizer.step()

    return step


def start(X, seed, n_hidden=1, n_inducing=100, dtype=DTYPE, shared=False):
    """A model for standardized rows; hidden layers are as wide as these."""
    torch.manual_seed(seed)
    Z = torch.as_tensor(centers(X, n_inducing, seed), dtype=dtype)
    return Deep(Z, n_hidden * [X.shape[1]], shared=shared)


def train(model, X, y, seed, n_steps):
    """Make all steps. Every pass visits rows in a new order, and leaves out those that fill no batch."""
    X, y = (torch.as_tensor(part, dtype=next(model.parameters()).dtype) for part in (X, y))
    step, size = step_function(model, len(X)), min(BATCH_SIZE, len(X))
    generator, batches = torch.Generator().manual_seed(seed), []
    for _ in range(n_steps):
        if not batches:
            order = torch.randperm(len(X), generator=generator)
            batches = list(order[: len(X) // size * size].split(size))
        rows = batches.pop(0)
        step(X[rows], y[rows])


def moments(model, X, n_draws=N_PREDICT_DRAWS):
    """Means and variances of the target, arrays of shape (n_draws, n)."""
    model.eval()
    X, parts = torch.as_tensor(X, dtype=next(model.parameters()).dtype), []
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(n_draws):
        for rows in X.split(_ROWS_AT_ONCE):
            y = model.likelihood(model(rows))
            parts.append([part.double().numpy() for part in (y.mean, y.variance)])
    return tuple(np.concatenate(part, 1) for part in zip(*parts))


def fit(X, y, seed, max_iter=None, n_hidden=1, **settings):
    """Train a model; a function from rows to a distribution."""
    scaled = Standardized(X, y)
    model = start(scaled.X, seed, n_hidden, **settings)
    train(model, scaled.X, scaled.y, seed, max_iter or N_STEPS)
    n_draws = N_PREDICT_DRAWS if n_hidden else 1  # without hidden layers all are the same
    return lambda X: scaled.mixture(*moments(model, scaled.inputs(X), n_draws))
