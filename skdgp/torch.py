"""Fitted estimators as modules of torch."""

from __future__ import annotations

import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from .estimators.base import BaseDeepGP
from .estimators.row_columns import reader_of_tensors
from .linalg import is_exporting
from .predictive.gradients import check_gaussian, check_numeric

__all__ = ["PredictiveModule", "as_module"]


class PredictiveModule(nn.Module):
    """The predictive distribution of a fitted estimator, differentiable in the rows.

    :func:`as_module` makes it. It holds no parameters, and a later fit of the estimator does not change it.
    """

    def __init__(self, estimator: BaseDeepGP, latent: bool = False):
        super().__init__()
        self._predictor = estimator._predictor().differentiable()
        self.latent = latent
        self.n_features = estimator.n_features_in_
        self._flat = getattr(estimator, "_y_ndim", 2) == 1
        self._read = reader_of_tensors(estimator)

    def extra_repr(self) -> str:
        return f"n_features={self.n_features}, latent={self.latent}"

    def forward(self, X: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Predict rows.

        Parameters
        ----------
        X : tensor of shape (..., n_features)
            Rows in the units of the training inputs.

        Returns
        -------
        log_weights, means, variances : tensors of shape (n_components, ...) or (n_components, ..., n_outputs)
            Of regressors: the Gaussian components of the target, or of the latent function, in units of the
            target. There is an axis of outputs if the training targets had one.
        log_proba : tensor of shape (..., n_classes)
            Of classifiers: logarithms of the probabilities of the classes.
        """
        if X.shape[-1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[-1]} columns, but the model was fitted with {self.n_features}."
            )
        rows, shape = X.reshape(-1, self.n_features).double(), X.shape[:-1]
        if not is_exporting() and not rows.isfinite().all():
            raise ValueError("X has values that are not finite, for which there is no gradient.")
        rows, predictor = self._read(rows), self._predictor
        if predictor.is_class:
            log_proba = predictor.at(rows).log_probabilities()
            return log_proba.reshape(*shape, *log_proba.shape[1:])
        at = predictor.latent_at if self.latent else predictor.at
        weights, means, variances = at(rows).gaussians().components()
        parts = (weights.log(), means, variances)
        parts = [part.reshape(part.shape[0], *shape, *part.shape[2:]) for part in parts]
        return tuple(part[..., 0] if self._flat else part for part in parts)


def as_module(estimator: BaseDeepGP, latent: bool = False) -> PredictiveModule:
    """Make a module of torch from a fitted estimator.

    Its results are those of ``predict``, with gradients in the rows. ``torch.export.export`` makes a program of
    it, and ``torch.onnx.export`` an ONNX file. Where ``fit`` was given an array of groups, rows are of a new
    one.

    Parameters
    ----------
    estimator : DeepGPRegressor, DeepGPClassifier, SparseGPRegressor or SparseGPClassifier
        Fitted to numeric columns without gaps.
    latent : bool, default=False
        Of regressors: the distribution of the latent function, without noise.

    Returns
    -------
    module : PredictiveModule
        Maps rows (..., n_features) to the logarithms of the weights, the means and the variances of the
        components of the predictive distribution, or to log-probabilities of classes.

    Raises
    ------
    ValueError
        If columns hold categories, dates or gaps, if the target was mapped or has values with a
        probability of their own, or if the distribution of the target is no mixture of Gaussians.

    Examples
    --------
    >>> import torch
    >>> from skdgp import SparseGPRegressor
    >>> from skdgp.torch import as_module
    >>> X = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X, torch.sin(6 * X[:, 0]))
    >>> rows = torch.tensor([[0.2], [0.5]], dtype=torch.float64, requires_grad=True)
    >>> log_weights, means, variances = as_module(model)(rows)
    >>> mean = (log_weights.exp() * means).sum(0)
    >>> (slope,) = torch.autograd.grad(mean.sum(), rows)
    >>> slope.shape
    torch.Size([2, 1])
    """
    if not isinstance(estimator, BaseDeepGP):
        raise TypeError(
            f"as_module needs an estimator of skdgp, fitted to rows as the module is to get them; got "
            f"{estimator!r}."
        )
    check_is_fitted(estimator)
    predictor = estimator._predictor()
    check_numeric(predictor)
    if not predictor.is_class:
        check_gaussian(predictor, latent)
    return PredictiveModule(estimator, latent)
