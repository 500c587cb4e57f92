"""Base class of posteriors, the predictions of trained models."""

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from ..gp.draws import N_FEATURES


class Latent(NamedTuple):
    """The latent functions at some rows, as a mixture of C Gaussians."""

    log_weights: torch.Tensor  #: (C,), of the components; their exponentials add up to one
    mean: torch.Tensor  #: (C, n, k)
    var: torch.Tensor  #: (C, n, k)

    @classmethod
    def of_pieces(cls, log_weights, moments):
        """That of all rows, from pairs of mean and variance for pieces of them."""
        moments = list(moments)
        if len(moments) == 1:
            return cls(log_weights, *moments[0])
        return cls(log_weights, *(torch.cat(part, 1) for part in zip(*moments)))


class Functions(NamedTuple):
    """Draws of the latent functions, each the same function over all rows ever asked for.

    ``evaluate(X, noise=None)`` maps (n_rows, n_features) to a mean and a deviation, both of shape
    (n, n_rows, k), whose sum is the draw; the mean is that of the last layer given the hidden layers of
    the draw. With a generator or `RowNoise` as `noise`, the noise of hidden layers is drawn afresh for
    every row; without it, there is none.
    """

    evaluate: Callable
    inflation: torch.Tensor  #: (n,), extrapolation variance inflation of the component drawn from
    components: torch.Tensor | None = None  #: (n,), where each has a likelihood of its own

    def __call__(self, X, noise=None):
        return self.evaluate(X, noise)


class Posterior:
    """The frozen posterior of the latent functions of a trained model.

    All that does not depend on new rows is computed once, when it is made, and nothing changes afterwards, so
    that threads can share it. Callers that need no gradients in the rows disable them. A subclass gives
    :meth:`latent` and :meth:`functions`, and other methods where they have a result.

    Likelihood and kernels have fitted hyperparameters, in units of the standardized inputs and target.
    `inflation` (C,) is the factor of the variance of effects that no training row determines, for each
    component of :meth:`latent`.
    """

    layers = ()  #: at rest, of models with inducing inputs
    n_chains = 0  #: whose states the components are, chain after chain; 0 if they are no states
    delta = None  #: (n_layers,), closeness of Gram matrices to a fixed function of the one below
    #: (C, d) by name: those of chains that sample them, in standardized units
    hyperparameters: ClassVar[dict[str, torch.Tensor]] = {}

    n_features = N_FEATURES  #: random features of a draw of functions

    def __init__(self, likelihood, kernels=(), inducing_inputs=(), log_weights=None):
        self.likelihood = likelihood
        self.kernels = list(kernels)
        self.inducing_inputs = list(inducing_inputs)
        self._log_weights = torch.zeros(1) if log_weights is None else log_weights
        self.inflation = torch.ones_like(self._log_weights)

    def likelihood_of(self, components=slice(None)):
        """The likelihood of some components; hyperparameters are (C, 1, k) if each has its own."""
        return self.likelihood

    def latent(self, X: torch.Tensor) -> Latent:
        """The latent functions at rows (n, n_features); each is independent of the other rows of the call."""
        raise NotImplementedError

    def compact(self, X: torch.Tensor):
        """:meth:`latent` and a likelihood, with fewer components where these differ in their scale alone."""
        return self.latent(X), self.likelihood_of()

    def differentiable(self):
        """This posterior with matrices in the place of solves, for gradients in rows and for programs."""
        return self

    def target_mean(self, X: torch.Tensor) -> torch.Tensor | None:
        """Mean (n, k) of the standardized target; None unless it takes less than :meth:`compact`."""
        return None

    def functions(self, n: int, generator: torch.Generator, X=None) -> Functions:
        """`n` draws of the latent functions, perhaps for the rows `X` alone."""
        raise NotImplementedError

    def covariance(self, X: torch.Tensor) -> torch.Tensor | None:
        """Covariances (k, n, n) of rows, at least of the latents that are means of the target.

        Of a mixture, the mean of those of its components. None without a closed form.
        """
        return None

    def joint(self, X: torch.Tensor) -> tuple | None:
        """Moments within groups of rows (B, q, n_features); None without a closed form of covariances.

        Returns
        -------
        weights : tensor of shape (C,)
            Of components, perhaps fewer than those of :meth:`latent`.
        means : tensor of shape (C, B, q, k)
        covariance : tensor of shape (k, B, q, q)
            As of :meth:`covariance`.
        """
        covariance = self.covariance_of_groups(X)
        if covariance is None:
            return None
        log_weights, mean, _ = self.latent(X.flatten(0, 1))
        return log_weights.exp(), mean.unflatten(1, X.shape[:2]), covariance

    def joint_given_draws(self, X: torch.Tensor) -> tuple | None:
        """:meth:`joint` for draws of the hidden layers that rows share, if that is in closed form."""
        return None

    def covariance_of_groups(self, X: torch.Tensor) -> torch.Tensor | None:
        """:meth:`covariance` within groups of rows (B, q, n_features), shape (k, B, q, q)."""
        covariances = (self.covariance(rows) for rows in X)
        found = [each for each in covariances if each is not None]
        return torch.stack(found, 1) if found else None

    def mean_inflation(self):
        """Mean of `inflation` over components."""
        return self._log_weights.exp() @ self.inflation.to(self._log_weights)

    def solution(self) -> dict:
        """Arrays that take long to compute from the state of the model, for a copy in another process."""
        return {}

    def loo_log_density(self, rows: np.ndarray, dispersions=None) -> np.ndarray | None:
        """Log densities of training rows, each given all others; None where that is not cheap.

        In units of the standardized target, (n_rows,). With factors `dispersions` of the standard
        deviations of predictions, the shape is (n_dispersions, n_rows).
        """
        return None

    def left_out(self, rows: np.ndarray, dispersions=None) -> tuple:
        """:meth:`loo_log_density`, and errors (n_rows, k) of means given all other rows, or None."""
        return self.loo_log_density(rows, dispersions), None


def equal_weights(n, like):
    """Logarithms of the weights of `n` components."""
    return like.new_full((n,), -math.log(n))


def frozen_parts(model):
    """Likelihood, kernels and inducing inputs of a model, for its posterior."""
    return (
        model.likelihood.fitted(),
        [layer.kernel.fitted() for layer in model.layers],
        [layer.Z.detach().cpu().numpy().copy() for layer in model.layers],
    )
