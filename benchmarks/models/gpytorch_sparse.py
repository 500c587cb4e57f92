"""GPyTorch's stochastic variational Gaussian process, one layer."""

from functools import partial

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import VariationalELBO
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from .. import scores
from .gpytorch_training import N_STEPS, minibatches, stepper, tensors
from .scaling import Standardized, centers


class Sparse(gpytorch.models.ApproximateGP):
    """Squared exponential with a lengthscale for each input."""

    def __init__(self, Z):
        q = CholeskyVariationalDistribution(len(Z))
        super().__init__(VariationalStrategy(self, Z, q))
        self.mean_module = ConstantMean()
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=Z.shape[1]))
        self.covar_module.outputscale = 1.0
        self.covar_module.base_kernel.lengthscale = 2.0

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def fit(X, y, seed, max_iter=None, *, n_inducing):
    """Train on standardized rows, with inducing inputs by k-means."""
    torch.manual_seed(seed)
    scaled = Standardized(X, y)
    Z, X, y = tensors(centers(scaled.X, n_inducing, seed), scaled.X, scaled.y)
    model, likelihood = Sparse(Z), GaussianLikelihood()
    likelihood.noise = 0.1
    step = stepper(model, likelihood, VariationalELBO(likelihood, model, len(X)))
    n_steps = max_iter or N_STEPS
    for batch in minibatches(X, y, n_steps, torch.Generator().manual_seed(seed)):
        step(*batch)
    model.eval()
    likelihood.eval()

    def predict(X):
        (X,) = tensors(scaled.inputs(X))
        with torch.no_grad():
            y = likelihood(model(X))
        return scaled.moments(y.mean.double().numpy()[None], y.variance.double().numpy()[None])

    return partial(scores.of_mixture, predict)
