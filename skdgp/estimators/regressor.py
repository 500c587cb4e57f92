"""Deep Gaussian process regression."""

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state

from ..gp.likelihoods import REGRESSION
from .base import BaseDeepGP

_COVARIANCE_DRAWS = 512


class DeepGPRegressor(MultiOutputMixin, RegressorMixin, BaseDeepGP):
    _likelihoods = REGRESSION
    _y_checks = {"multi_output": True, "y_numeric": True}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        likelihood = self.likelihood
        tags.target_tags.positive_only = likelihood == "poisson" or isinstance(likelihood, REGRESSION["poisson"])
        return tags

    def _n_classes(self):
        return None

    def _encode(self, y, weights, reset):
        if reset:
            self._y_ndim = y.ndim
            self._n_outputs = 1 if y.ndim == 1 else y.shape[1]
        elif (1 if y.ndim == 1 else y.shape[1]) != self._n_outputs:
            raise ValueError(f"y has {1 if y.ndim == 1 else y.shape[1]} outputs, but the model was fitted with "
                             f"{self._n_outputs}.")
        return y.reshape(len(y), -1)

    def _check_likelihood(self, likelihood, y):
        likelihood.check_target(y)

    def partial_fit(self, X, y, sample_weight=None):
        """Make one pass over a chunk of rows.

        Scaling, inducing inputs and starting values come from the first call; the bound counts all rows seen
        so far. What earlier chunks taught fades as later ones come, because only the present chunk is looked at.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self : estimator
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X, return_std=False, return_cov=False, latent=False):
        """Predict the mean, and how far off it may be.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether to return standard deviations.
        return_cov : bool, default=False
            Whether to return the covariance of the rows. Its correlations are those of 512 function draws, its
            diagonal is the exact variance.
        latent : bool, default=False
            Predict the latent function, without the noise of the observations.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        std : ndarray of the shape of `mean`
            Only if `return_std` is True.
        cov : ndarray of shape (n_samples, n_samples) or (n_samples, n_samples, n_outputs)
            Only if `return_cov` is True.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        X = self._check_X(X)
        mean, var = self._moments(X, latent)
        if return_std:
            return self._shaped(mean), self._shaped(np.sqrt(var))
        if return_cov:
            return self._shaped(mean), self._covariance(X, var, latent)
        return self._shaped(mean)

    def predict_var(self, X):
        """Predict the variance of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        var : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self._shaped(self._moments(self._check_X(X), latent=False)[1])

    def predict_quantiles(self, X, alpha=(0.05, 0.95)):
        """Predict quantiles of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        alpha : float or array-like of floats in (0, 1)
            Orders of the quantiles.

        Returns
        -------
        quantiles : ndarray of shape (n_samples, n_alpha) or (n_samples, n_outputs, n_alpha)
        """
        X = self._check_X(X)
        alpha = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
        if alpha.ndim != 1 or not ((alpha > 0.0) & (alpha < 1.0)).all():
            raise ValueError(f"alpha must hold numbers between 0 and 1; got {alpha}.")
        q = self._predict_rows(X, "quantiles", alpha=alpha)
        q = q * self._y_scaler.scale[:, None] + self._y_scaler.center[:, None]
        return q[:, 0] if self._y_ndim == 1 else q

    def predict_interval(self, X, coverage=0.9):
        """Predict central intervals of the target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        coverage : float in (0, 1)
            Probability that the target lies inside.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper ends.
        """
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage must lie between 0 and 1; got {coverage!r}.")
        return self.predict_quantiles(X, [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)])

    def log_predictive_density(self, X, y):
        """Log-density of the target at each row, in the target's units; all outputs together.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
        """
        X, y = self._check_X_y(X, y)
        log_density = self._predict_rows(X, "log_density", self._y_scaler.transform(y))
        return log_density - np.log(self._y_scaler.scale).sum()

    def sample_y(self, X, n_samples=1, random_state=0, latent=False):
        """Draw from the predictive distribution.

        Each draw is one function, evaluated at all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
        latent : bool, default=False
            Return the latent functions: the same function for the same `random_state`, whatever the rows. Otherwise
            fresh noise is added to every row.

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
        """
        X = self._check_X(X)
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        y = self._draw(X, n_samples, seed, "latent" if latent else "y")[..., :self._n_outputs]
        y = np.moveaxis(y * self._y_scaler.scale + self._y_scaler.center, 0, -1)
        return y[:, 0] if self._y_ndim == 1 else y

    def _shaped(self, values):
        return values[:, 0] if self._y_ndim == 1 else values

    def _moments(self, X, latent):
        """Mean and variance in the target's units, (n, k)."""
        if latent:
            mean, var = self._predict_rows(X, "latent_moments", k=self._n_outputs)
        else:
            mean, var = self._predict_rows(X, "moments")
        scale = self._y_scaler.scale
        return mean * scale + self._y_scaler.center, var * scale**2

    def _covariance(self, X, var, latent):
        """Covariance of the rows: correlations from function draws, variances from the mixture."""
        draws = self._draw(X, _COVARIANCE_DRAWS, 0, "latent" if latent else "mean", n_features=512)
        draws = draws[..., :self._n_outputs] * self._y_scaler.scale
        draws = draws - draws.mean(0)
        cov = np.einsum("sik,sjk->ijk", draws, draws) / len(draws)
        diagonal = np.einsum("iik->ik", cov)  # a view
        explained = diagonal.copy()  # of the variance, by the function
        if latent or all(member.likelihood.scales_target for member in self.members_):  # E[y | f] is f
            explained = self._moments(X, latent=True)[1]
        scale = np.sqrt(np.minimum(explained, var) / np.maximum(diagonal, 1e-300))
        cov *= scale[:, None] * scale[None]
        diagonal[...] = var
        return cov[..., 0] if self._y_ndim == 1 else cov
