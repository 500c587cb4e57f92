"""GPyTorch's deep Gaussian process, and its sparse one: Adam on minibatches of the bound.

The deep one has good starting values: inducing inputs by k-means, the identity as the mean of the hidden
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

from .models import Standardized, centers

N_STEPS, BATCH_SIZE, LEARNING_RATE = 2000, 1000, 0.01
DTYPE = torch.float32  #: GPyTorch's own default
N_INDUCING = 100
N_PREDICT_DRAWS = 100
_ROWS_AT_ONCE = 1000


def tensors(*arrays, dtype=DTYPE):
    """Arrays as tensors of the precision in which GPyTorch works by default."""
    return [torch.as_tensor(array, dtype=dtype) for array in arrays]


class Layer(DeepGPLayer):
    """One layer; each output has its own kernel and inducing inputs, which start at Z (M, n_inputs)."""

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
    """Layers of the given widths, and the last one; `n_outputs` is None for a vector of targets."""

    def __init__(self, Z, widths, n_outputs=None):
        super().__init__()
        layers = []
        for width in widths:
            directions = _directions(Z, width)
            mean = LinearMean(Z.shape[1], batch_shape=torch.Size([width]))
            mean.weights.data.copy_(directions.T[..., None])
            mean.bias.data.zero_()
            layers.append(Layer(Z, width, mean.requires_grad_(False)))
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


class Sparse(gpytorch.models.ApproximateGP):
    """One layer: squared exponential with a lengthscale for each input."""

    def __init__(self, Z):
        q = CholeskyVariationalDistribution(len(Z))
        super().__init__(VariationalStrategy(self, Z, q))
        self.mean_module = ConstantMean()
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=Z.shape[1]))
        self.covar_module.outputscale = 1.0
        self.covar_module.base_kernel.lengthscale = 2.0
        self.likelihood = GaussianLikelihood()
        self.likelihood.noise = 0.1

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def step_function(model, n_rows):
    """A function of a batch that makes one step of Adam; it draws once for each row."""
    bound = VariationalELBO(model.likelihood, model, n_rows)
    if isinstance(model, Deep):
        bound = DeepApproximateMLL(bound)
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


def train(model, X, y, seed, n_steps=N_STEPS):
    """Make all steps; yields the number of steps after each. Every pass visits rows in a new order."""
    X, y = tensors(X, y, dtype=next(model.parameters()).dtype)
    step, size = step_function(model, len(X)), min(BATCH_SIZE, len(X))
    generator, made = torch.Generator().manual_seed(seed), 0
    while True:
        for rows in torch.randperm(len(X), generator=generator).split(size):
            if made == n_steps:
                return
            if len(rows) == size:
                step(X[rows], y[rows])
                made += 1
                yield made
                if not model.training:  # it has predicted in between
                    model.train()


def moments(model, X, n_draws=N_PREDICT_DRAWS):
    """Means and variances of the target, arrays of shape (n_draws, n); (1, n) of the sparse one."""
    model.eval()
    (X,), parts = tensors(X, dtype=next(model.parameters()).dtype), []
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(n_draws):
        for rows in X.split(_ROWS_AT_ONCE):
            y = model.likelihood(model(rows))
            parts.append([np.atleast_2d(part.double().numpy()) for part in (y.mean, y.variance)])
    return tuple(np.concatenate(part, 1) for part in zip(*parts))


def start_deep(X, seed, dtype=DTYPE):
    """A model for standardized rows, two layers deep."""
    torch.manual_seed(seed)
    (Z,) = tensors(centers(X, N_INDUCING, seed), dtype=dtype)
    return Deep(Z, [X.shape[1]])


def fit_deep(X, y, seed, max_iter=None):
    """Train the deep model on standardized rows; a function from rows to a distribution."""
    scaled = Standardized(X, y)
    return _fit(start_deep(scaled.X, seed), scaled, seed, max_iter)


def fit_sparse(X, y, seed, max_iter=None, *, n_inducing):
    """The same for the sparse one, with inducing inputs by k-means."""
    torch.manual_seed(seed)
    scaled = Standardized(X, y)
    return _fit(Sparse(*tensors(centers(scaled.X, n_inducing, seed))), scaled, seed, max_iter)


def _fit(model, scaled, seed, max_iter):
    for _ in train(model, scaled.X, scaled.y, seed, max_iter or N_STEPS):
        pass
    return lambda X: scaled.mixture(*moments(model, scaled.inputs(X)))
