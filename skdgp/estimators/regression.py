"""Base of regressors: targets, and predictions in their units."""

from functools import partial

import numpy as np
import torch
from scipy.stats import norm
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state

from .._scoring import check_alpha, check_coverage
from ..mixture.mapped import mean_before_map
from ..preprocessing.target_maps import NAMES, learn
from ._sklearn import StrOptions
from .arrays import as_numpy
from .prediction import Predictor
from .targets import as_numbers, warn_if_some_are_constant, warn_if_some_are_far

#: constraints of the parameter
TARGET_TRANSFORM = {"target_transform": [StrOptions({"auto", *NAMES}), None]}
_HEAVY = "heteroscedastic_student_t"  #: not for targets that would look like outliers


class RegressionMixin(MultiOutputMixin, RegressorMixin):
    """Predictions of real numbers and counts."""

    _y_checks = {"multi_output": True}  # whether they are numbers is seen later

    def _n_classes(self):
        return None

    def _auto_likelihood(self, scheme, data):
        name = scheme.auto_likelihood(None, self.n_layers)
        return "heteroscedastic" if name == _HEAVY and data.piles_up() else name

    def _target_maps(self, data, likelihood, source, others):
        """The maps that ``target_transform`` stands for.

        "auto" has none where a map could mean something else than the user, or where not all targets are
        known: with numbers in the target's units, or with chunks that are still to come.
        """
        name = self.target_transform
        if name is None or source is not None:
            if source is not None and name != "auto" and {name} != set(source._y_scaler.names):
                raise ValueError(
                    "A fitted estimator as init hands its scaling on, and the map of its targets: leave "
                    f"target_transform at 'auto'; got {name!r}."
                )
            return None
        if name == "auto":
            given = [getattr(likelihood, number) for number in likelihood._units]
            free = all(number is None for number in given) and likelihood.scales_target
            if not free or not self.standardize or others is None:
                return None
        elif not likelihood.scales_target:
            raise ValueError(
                f"target_transform={name!r} is for likelihoods of real numbers, and "
                f"{type(likelihood).__name__} is not one; leave it at 'auto'."
            )
        positive = np.all([(part.y > 0.0).all(0) for part in (data, *(others or ()))], axis=0)
        return learn(
            name,
            lambda rows: data.x_scaler.scaled(data.inputs[rows]),
            data.y,
            data.weights,
            positive,
        )

    @property
    def target_transform_(self):
        """Map of the targets before they were standardized: a name as in `target_transform`, or None.

        A list if there are several outputs.
        """
        names = self._y_scaler.names
        return names[0] if len(names) == 1 else names

    def _has_dispersion(self, plans):
        """Unless the size of the noise is given, or outputs would share what one of them needs."""
        return self._n_outputs == 1 and all(plan.likelihood.trainable for plan in plans)

    def _encode(self, y, reset, classes=None, rows=slice(None)):
        y = as_numbers(y)
        rows_given, y = np.arange(len(y)), y[rows]
        if reset:
            self._y_ndim = y.ndim
            self._n_outputs = 1 if y.ndim == 1 else y.shape[1]
            warn_if_some_are_constant(y.reshape(len(y), -1), self._target_names)
            warn_if_some_are_far(y.reshape(len(y), -1), rows_given[rows])
        elif (1 if y.ndim == 1 else y.shape[1]) != self._n_outputs:
            raise ValueError(
                f"y has {1 if y.ndim == 1 else y.shape[1]} outputs, but the model was fitted with "
                f"{self._n_outputs}."
            )
        return y.reshape(len(y), -1)

    def _check_likelihood(self, likelihood, y):
        likelihood.check_target(y)

    def score(self, X, y, sample_weight=None):
        """Coefficient of determination of the predicted means.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            How much each row counts.

        Returns
        -------
        score : float
        """
        return super().score(X, as_numpy(y), as_numpy(sample_weight))

    def predict(
        self,
        X,
        return_std=False,
        return_cov=False,
        latent=False,
        quantiles=None,
        decompose=False,
    ):
        """Predict the mean, and how far off it may be.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std : bool, default=False
            Whether to return standard deviations.
        return_cov : bool, default=False
            Whether to return the covariance of the rows. Its diagonal is exact. So are its correlations
            for members of the mixture with a closed form: shallow Gaussian processes with inducing inputs or on
            all rows, and ``inference="collapsed"``. Those of other members come from 512 function draws, and
            all of them if the target was transformed.
        latent : bool, default=False
            Predict the latent function, without the noise of the observations.
        quantiles : array-like of shape (n_quantiles,), optional
            Orders, between 0 and 1, of quantiles to return in the place of means, as
            :meth:`predict_quantiles` does: a pipeline hands them on.
        decompose : bool, default=False
            With `return_std`, return two standard deviations, by the function and by the noise. By the law of
            total variance their squares add up to that of the target: the variance of the mean of y
            given the function, and the expected variance of y given the function.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        std : ndarray of the shape of `mean`
            Only if `return_std` is True; with `decompose`, ``std_function, std_noise`` in its place.
        cov : ndarray of shape (n_samples, n_samples) or (n_samples, n_samples, n_outputs)
            Only if `return_cov` is True.
        """
        if decompose and (not return_std or return_cov or latent or quantiles is not None):
            raise ValueError(
                "decompose=True takes the standard deviation of y apart; it needs return_std=True, and no "
                "return_cov, latent or quantiles."
            )
        if quantiles is not None:
            if return_std or return_cov or latent:
                raise ValueError("quantiles are of the target, and come alone.")
            return self._quantiles(X, quantiles, "quantiles")
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        X = self._check_X(X)
        if decompose:
            return self._decomposed(X)
        mean, std = self._moments(X, latent)
        if return_std:
            return self._shaped(mean), self._shaped(std)
        if return_cov:
            return self._shaped(mean), self._covariance(X, std**2, latent)
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
        return self._shaped(self._moments(self._check_X(X), latent=False)[1] ** 2)

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
        return self._quantiles(X, alpha, "alpha")

    def _quantiles(self, X, orders, name):
        """Quantiles whose orders the user gave by an argument of this name."""
        X = self._check_X(X)
        orders = check_alpha(orders, name)
        q = np.moveaxis(self._predict_rows(X, "quantiles", alpha=orders), -1, 0)
        q = np.moveaxis(self._y_scaler.inverse(q), 0, -1)
        return q[:, 0] if self._y_ndim == 1 else q

    def _latent_quantiles(self, X, orders):
        """Quantiles of latent functions, as if these were Gaussian before the map of targets."""
        mean, var = self._predict_rows(X, "latent_moments", k=self._n_outputs)
        q = mean + np.sqrt(var) * norm.ppf(orders)[:, None, None]
        q = np.moveaxis(self._y_scaler.inverse(q), 0, -1)
        return q[:, 0] if self._y_ndim == 1 else q

    def _unmapped(self, X, z, latent=False):
        with self._threads(), torch.no_grad():
            predictor = Predictor(self.members_, self._x_scaler, self._prediction_device())
            return predictor.unmapped(X, z, self._y_scaler, latent)

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
        check_coverage(coverage)
        return self.predict_quantiles(X, [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)])

    def predict_cdf(self, X, y, complement=False):
        """Probability that the target is at most `y`, or larger.

        Either is exact where it is small, or, with noise whose size is a function of X, down to about 1e-10.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : float, or array-like of shape (n_samples,) or (n_samples, n_outputs)
            Thresholds, one for all rows or one for each.
        complement : bool, default=False
            Return ``P(target > y)`` in the place of ``P(target <= y)``.

        Returns
        -------
        probability : ndarray of shape (n_samples,) or (n_samples, n_outputs)

        Raises
        ------
        ValueError
            If there are not as many thresholds as rows or outputs, or some are not finite.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgp import SparseGPRegressor
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(6 * X[:, 0]))
        >>> bool(model.predict_cdf([[0.5]], 2.0, complement=True)[0] < 1e-6)
        True
        """
        X = self._check_X(X)
        y = np.asarray(as_numpy(y))
        if y.ndim == 0:
            shape = len(X) if self._y_ndim == 1 else (len(X), self._n_outputs)
            y = np.full(shape, y)
        y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
        check_consistent_length(X, y)
        z = self._y_scaler.standardized_thresholds(self._encode(y, reset=False))
        return self._shaped(self._predict_rows(X, "tail", z, above=bool(complement)))

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
        return log_density + self._y_scaler.log_jacobian(y)

    def sample_y(self, X, n_samples=1, random_state=0, latent=False):
        """Draw from the predictive distribution.

        Each draw is one function, evaluated at all rows. Layers with inducing inputs, and Gaussian processes
        on all rows or neighbors, have functions that are made by pathwise conditioning from 1,024 random
        features of the kernel, whatever the number of rows: their means and covariances over many draws are
        exact, the shape of their distribution is approximate. The noise of the target is exact.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
        n_samples : int, default=1
            Number of draws.
        random_state : int, RandomState instance or None, default=0
            An integer, as by default, gives the same draws in each call; None gives others.
        latent : bool, default=False
            Return the latent functions: the same function for the same `random_state`, whatever the
            rows, and without the noise of hidden layers, which is tiny unless it was asked for. Otherwise fresh
            noise is added to every row.

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
        """
        X = self._check_X(X)
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        y = self._draw(X, n_samples, seed, "function" if latent else "y", self._n_outputs)
        y = np.moveaxis(self._unmapped(X, y, latent), 0, -1)
        return y[:, 0] if self._y_ndim == 1 else y

    def _crps(self, X, y):
        """Continuous ranked probability score of each row and output, in the target's units."""
        X, y = self._check_X_y(X, y)
        if self._y_scaler.maps is not None:
            return self._shaped(self._predict_rows(X, "mapped_crps", y, scaler=self._y_scaler))
        scores = self._predict_rows(X, "crps", self._y_scaler.transform(y))
        return self._shaped(scores * self._y_scaler.scale)

    def _shaped(self, values):
        return values[:, 0] if self._y_ndim == 1 else values

    def _centers(self, X):
        """Predicted means (n, k), in units of the target."""
        return self._moments(X, latent=False)[0]

    def _draw_centers(self, X, n, seed):
        """Draws (n, n_rows, k) of the function whose mean is predicted, as :meth:`_centers`."""
        scaler = self._y_scaler
        mean = None if scaler.maps is None else partial(mean_before_map, scaler=scaler)
        draws = self._draw(X, n, seed, "mean_function", mean=mean)
        return draws * scaler.scale + scaler.center if mean is None else draws

    def _output_scales(self):
        """Half the distances (k,) of targets that are two standard deviations apart before they are mapped."""
        one = np.ones((1, self._n_outputs))
        return 0.5 * (self._y_scaler.inverse(one) - self._y_scaler.inverse(-one))[0]

    def _moments(self, X, latent):
        """Mean and standard deviation in the target's units, (n, k)."""
        if self._y_scaler.maps is not None:
            given = {"scaler": self._y_scaler, "latent": latent}
            return self._predict_rows(X, "mapped_moments", **given)
        if latent:
            mean, var = self._predict_rows(X, "latent_moments", k=self._n_outputs)
        else:
            mean, var = self._predict_rows(X, "moments")
        scale = self._y_scaler.scale
        return mean * scale + self._y_scaler.center, np.sqrt(var) * scale

    def _decomposed(self, X):
        """Mean, and standard deviations by the function and by the noise."""
        if self._y_scaler.maps is not None:
            given = "mapped_decomposed_moments"
            mean, *variances = self._predict_rows(X, given, scaler=self._y_scaler)
            return tuple(self._shaped(part) for part in (mean, *np.sqrt(variances)))
        mean, *variances = self._predict_rows(X, "decomposed_moments")
        parts = [np.sqrt(var) * self._y_scaler.scale for var in variances]
        mean = mean * self._y_scaler.scale + self._y_scaler.center
        return tuple(self._shaped(part) for part in (mean, *parts))

    def _covariance(self, X, var, latent):
        """Covariance of the rows, whose diagonal is the variance of the mixture."""
        k = self._n_outputs
        given = latent or all(member.likelihood.scales_target for member in self.members_)
        with self._threads(), torch.no_grad():
            predictor = Predictor(self.members_, self._x_scaler, self._prediction_device())
            if self._y_scaler.maps is not None:
                cov = predictor.mapped_covariance(X, np.sqrt(var), self._y_scaler, latent)
                return cov[..., 0] if self._y_ndim == 1 else cov
            if given:  # E[y | f] is f
                cov = predictor.covariance(X, k)
            else:
                cov = predictor.covariance_of_means(X)
        cov *= self._y_scaler.scale**2
        diagonal = np.einsum("iik->ik", cov)  # a view
        # of the variance, by the function
        explained = self._moments(X, latent=True)[1] ** 2 if given else diagonal.copy()
        scale = np.sqrt(np.minimum(explained, var) / np.maximum(diagonal, 1e-300))
        cov *= scale[:, None] * scale[None]
        diagonal[...] = var
        return cov[..., 0] if self._y_ndim == 1 else cov
