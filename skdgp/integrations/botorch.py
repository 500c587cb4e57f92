"""Fitted regressors as models of BoTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

try:
    from botorch.models.model import Model
    from botorch.posteriors import GPyTorchPosterior
    from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
    from linear_operator.operators import DenseLinearOperator
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "Models of BoTorch need BoTorch; install it with: pip install 'skdgp[botorch]'."
    ) from error
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..estimators.base import BaseDeepGP
from ..estimators.row_columns import reader_of_tensors
from ..linalg import cholesky
from ..predictive.gradients import check_gaussian, check_numeric
from ..predictive.joint import JointMoments

__all__ = ["JointModel", "as_model"]

_JITTER = 1e-9  #: of the prior variance of observations, beside their noise


class JointModel(Model):
    """The latent function of a fitted regressor as a Gaussian process of BoTorch; :func:`as_model` makes it.

    The mixture over members and their components has the mean and the covariances of one Gaussian. Observations
    that it is conditioned on are those of this Gaussian process, with the scaling, hyperparameters and local
    scales of the fit.
    """

    #: rows (..., n, d), targets (..., n, k) and variances of their noise
    _observed: tuple[torch.Tensor, ...] | None = None

    def __init__(self, moments: JointMoments, n_features: int, read: Callable[[Tensor], Tensor]):
        super().__init__()
        self._moments, self.n_features, self._read = moments, n_features, read
        self._outputs = list(range(moments.n_outputs))

    @property
    def num_outputs(self) -> int:
        """Number of outputs."""
        return len(self._outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch of models, such as that of fantasies."""
        if self._observed is None:
            return torch.Size()
        X, Y, _ = self._observed
        return torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2])

    def subset_output(self, idcs: list[int]) -> JointModel:
        """Keep some of the outputs.

        Parameters
        ----------
        idcs : list of int

        Returns
        -------
        model : JointModel
        """
        new = copy.copy(self)
        new._outputs = [self._outputs[i] for i in idcs]
        return new

    def _prior(self, X):
        """Mean (..., q, k) and covariances (..., k, q, q) before further observations."""
        mean, cov = self._moments(self._read(X.reshape(-1, *X.shape[-2:]).double()))
        return mean.view(*X.shape[:-2], *mean.shape[1:]), cov.view(*X.shape[:-2], *cov.shape[1:])

    def _noise(self, X):
        """Variances (..., q, k) of the noise that the fit has found."""
        noise = self._moments.noise(self._read(X.reshape(-1, *X.shape[-2:]).double()))
        return noise.view(*X.shape[:-2], *noise.shape[1:])

    def _given_observations(self, X):
        """Mean and covariances given the observations."""
        if self._observed is None:
            return self._prior(X)
        seen, Y, noise = self._observed
        shape, n = torch.broadcast_shapes(X.shape[:-2], self.batch_shape), seen.shape[-2]
        parts = [rows.expand(*shape, *rows.shape[-2:]) for rows in (seen, X)]
        mean, cov = self._prior(torch.cat(parts, -2))
        diagonal = torch.diagonal(cov[..., :n, :n], dim1=-2, dim2=-1)
        white = noise.mT + _JITTER * diagonal
        root = cholesky(cov[..., :n, :n] + torch.diag_embed(white), 0.0)
        A = torch.linalg.solve_triangular(root, cov[..., :n, n:], upper=False)
        error = (Y - mean[..., :n, :]).mT[..., None]  # ..., k, n, 1
        z = torch.linalg.solve_triangular(root, error, upper=False)
        return mean[..., n:, :] + (A.mT @ z)[..., 0].mT, cov[..., n:, n:] - A.mT @ A

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """Gaussian of the function at rows together.

        Parameters
        ----------
        X : tensor of shape (..., q, n_features)
            Rows in the units of the training inputs.
        output_indices : list of int, optional
            Some of the outputs.
        observation_noise : bool or tensor of shape (..., q, n_outputs), default=False
            Whether to add noise of the size that the fit has found, or the variance of the noise.
        posterior_transform : PosteriorTransform, optional

        Returns
        -------
        posterior : GPyTorchPosterior
            Differentiable in `X`.
        """
        if X.shape[-1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[-1]} columns, but the model was fitted with {self.n_features}."
            )
        which = self._outputs
        if output_indices is not None:
            which = [which[i] for i in output_indices]
        mean, cov = self._given_observations(X)
        mean, cov = mean[..., which], cov[..., which, :, :]
        if observation_noise is not False:
            noise = observation_noise
            if not isinstance(noise, Tensor):
                noise = self._noise(X)[..., which]
            cov = cov + torch.diag_embed(noise.to(cov).expand(mean.shape).mT)
        mean, cov = mean.to(X.dtype), cov.to(X.dtype)
        if len(which) == 1:
            normal = MultivariateNormal(mean[..., 0], DenseLinearOperator(cov[..., 0, :, :]))
        else:
            each = MultivariateNormal(mean.mT, DenseLinearOperator(cov))
            normal = MultitaskMultivariateNormal.from_batch_mvn(each, task_dim=-1)
        posterior = GPyTorchPosterior(normal)
        if posterior_transform is not None:
            return posterior_transform(posterior=posterior, X=X)
        return posterior

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> JointModel:
        """Condition the function on observations.

        Parameters
        ----------
        X : tensor of shape (..., n, n_features)
        Y : tensor of shape (..., n, n_outputs)
        **kwargs
            `noise` (..., n, n_outputs) are variances of the noise of the observations; by default they have
            the size that the fit has found.

        Returns
        -------
        model : JointModel
        """
        if self.num_outputs != self._moments.n_outputs:
            raise ValueError(
                "A model with some of the outputs cannot be conditioned; condition it before."
            )
        noise = kwargs.get("noise")
        X, Y = X.double(), Y.double()
        noise = self._noise(X) if noise is None else noise.double().expand_as(Y)
        new = copy.copy(self)
        new._observed = X, Y, noise
        if self._observed is not None:
            batch = torch.broadcast_shapes(self.batch_shape, X.shape[:-2], Y.shape[:-2])
            pairs = zip(self._observed, new._observed)
            new._observed = tuple(
                torch.cat([part.expand(*batch, *part.shape[-2:]) for part in pair], -2)
                for pair in pairs
            )
        return new

    def fantasize(
        self, X: Tensor, sampler: Any, observation_noise: Tensor | None = None, **kwargs: Any
    ) -> JointModel:
        """Condition the function on draws of observations.

        Parameters
        ----------
        X : tensor of shape (..., n, n_features)
        sampler : MCSampler
            Makes the draws.
        observation_noise : tensor of shape (..., n, n_outputs), optional
            Variance of the noise; by default of the size that the fit has found.
        **kwargs
            As for :meth:`condition_on_observations`.

        Returns
        -------
        model : JointModel
            A batch of models, one for each draw.
        """
        kwargs.pop("propagate_grads", None)
        if X.shape[-2] == 0:
            return copy.copy(self)
        noise = True if observation_noise is None else observation_noise
        Y = sampler(self.posterior(X, observation_noise=noise))
        if observation_noise is not None:
            kwargs["noise"] = observation_noise
        return self.condition_on_observations(X, Y, **kwargs)


def as_model(estimator: BaseDeepGP) -> JointModel:
    """Make a model of BoTorch from a fitted regressor.

    Its posterior is joint over rows, in the user's units, batched and differentiable. Mean and covariances are
    those of the mixture that predicts. Covariances are in closed form for exact, nearest-neighbor, collapsed
    and shallow sparse models, and for ``"dsvi"`` given the draws of hidden layers; for others correlations are
    those of 128 function draws.

    Parameters
    ----------
    estimator : DeepGPRegressor or SparseGPRegressor
        Fitted to numeric columns without gaps, with ``target_transform=None``.

    Returns
    -------
    model : JointModel

    Raises
    ------
    ValueError
        If columns hold categories, dates or gaps, or the target was transformed.

    References
    ----------
    M. Balandat et al. (2020). BoTorch: a framework for efficient Monte-Carlo Bayesian optimization. Advances in
    Neural Information Processing Systems 33.

    Examples
    --------
    >>> import torch
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.integrations.botorch import as_model
    >>> X = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    >>> regressor = DeepGPRegressor(1, inference="exact", target_transform=None, random_state=0)
    >>> model = as_model(regressor.fit(X, torch.sin(6 * X[:, 0])))
    >>> model.posterior(torch.rand(5, 2, 1)).mean.shape
    torch.Size([5, 2, 1])
    """
    if not (isinstance(estimator, BaseDeepGP) and is_regressor(estimator)):
        raise TypeError(f"as_model needs a regressor of skdgp; got {estimator!r}.")
    check_is_fitted(estimator)
    predictor = estimator._predictor()
    check_numeric(predictor)
    check_gaussian(predictor, latent=True)
    read = reader_of_tensors(estimator)
    return JointModel(JointMoments(predictor), estimator.n_features_in_, read)
