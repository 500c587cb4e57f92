"""Exact Gaussian processes of some hundred rows, by which choices are made before training."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from ..gp.component import Trainable
from ..gp.priors import SPREAD
from ..gp.rows import FEW_ROWS
from ..linalg import LOG_2PI, LogNormal
from ..optim.lbfgs import STEPS, minimize, of_parameters

FEWEST = 20  #: rows, or distinct targets, below which nothing is chosen
_NOISE = 0.1  #: variance of the noise at the start, relative to that of the target


def some_rows(n, most=FEW_ROWS):
    """Positions of at most so many of `n` rows, which are in an order that depends on their values alone."""
    return np.sort(np.random.default_rng(0).permutation(n)[:most])


class FewRows(nn.Module):
    """Base class of marginal likelihoods that are maximized over a kernel, its noise, and what a subclass adds.

    The logarithms of kernel and noise have normal priors around their starts. Several targets share them, and
    count as one. Rows count `weights` (n,) times.
    """

    def __init__(self, kernel, weights):
        super().__init__()
        self.kernel, self.weights = Trainable(kernel), weights
        self.log_noise = nn.Parameter(weights.new_tensor(math.log(_NOISE)))

    def _open(self):
        self._start = self._with_prior().detach().clone()
        #: what is minimized, and its gradient
        self.evaluate = of_parameters(self._loss, list(self.parameters()))

    def _with_prior(self):
        """The vector of hyperparameters with normal priors."""
        return parameters_to_vector([self.log_noise, *self.kernel.parameters()])

    def _loss(self):
        raise NotImplementedError

    def _covariance(self, X):
        return self.kernel()(X, X) + torch.diag(self.log_noise.exp() / self.weights)

    def _negative_log_density(self, X, y):
        """Minus the log density of targets `y` (n, k), and of hyperparameters a priori."""
        deviations = (self._with_prior() - self._start) / SPREAD
        log_density = LogNormal.apply(y.T, self._covariance(X)[None]) / y.shape[1]
        return 0.5 * deviations.square().sum() - log_density - 0.5 * len(X) * LOG_2PI

    def minimize(self, n_steps=STEPS):
        """Minimize the loss; returns it. Raises LinAlgError where a covariance matrix is singular."""
        return minimize(self.evaluate, list(self.parameters()), n_steps, 1e-5).f
