"""Base of regressors: targets, and predictions in their units."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score

from .._arrays import as_numbers, as_numpy
from .._checks import check_alpha, check_asked
from ..fitting.target_maps import NAMES
from ..predictive import PredictiveDistribution
from . import derivatives, given_rows
from ._sklearn import StrOptions
from .exposures import check_exposed, exposed_rows
from .targets import warn_if_some_are_constant, warn_if_some_are_far

#: constraints of the parameter
TARGET_TRANSFORM = {"target_transform": [StrOptions({"auto", *NAMES}), None]}
_HEAVY = "heteroscedastic_student_t"  #: not for targets that would look like outliers


class RegressionMixin(MultiOutputMixin, RegressorMixin):
    """Predictions of real numbers and counts."""

    _y_checks: ClassVar[dict[str, bool]] = {
        "multi_output": True
    }  # whether they are numbers is seen later

    # groups of a search are for its folds; those to predict are new there
    __metadata_request__predict = {"groups": False}
    __metadata_request__score = {"groups": False}
    _takes_missing = False  #: whether some outputs of a row may be missing in training

    condition_on = given_rows.condition_on
    loo_predict = given_rows.loo_predict
    loo_log_density = given_rows.loo_log_density
    predict_gradient = derivatives.predict_gradient

    def _n_classes(self):
        return None

    def _auto_likelihood(self, scheme, data):
        if self._known_noise is not None:
            return "gaussian"
        name = scheme.auto_likelihood(None, self.n_layers)
        return "heteroscedastic" if name == _HEAVY and data.piles_up() else name

    @property
    def target_transform_(self) -> str | list[str | None] | None:
        """Map of the targets: a name as in `target_transform`, or None; a list if there are several."""
        names = self._y_scaler.names
        return names[0] if len(names) == 1 else names

    def _encode(self, y, reset, classes=None, rows=slice(None)):
        y = as_numbers(y)
        numbers, table = np.arange(len(y))[rows], y[rows]
        table = table.reshape(len(table), -1)
        n_outputs = 1 if y.ndim == 1 else y.shape[1]
        if reset:
            self._y_ndim, self._n_outputs = y.ndim, n_outputs
            warn_if_some_are_constant(table, self._target_names)
            warn_if_some_are_far(table, numbers)
        elif n_outputs != self._n_outputs:
            raise ValueError(
                f"y has {n_outputs} outputs, but the model was fitted with {self._n_outputs}."
            )
        return table

    def _check_likelihood(self, likelihood, y):
        likelihood.check_target(y)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> float:
        """Coefficient of determination of the predicted means.

        Parameters
        ----------
        X, exposure, groups
            As for :meth:`predict`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            How much each row counts.

        Returns
        -------
        score : float

        Raises
        ------
        ValueError
            If ``fit`` had an exposure and there is none.
        """
        self._check_given({"exposure": exposure})
        predicted = self.predict(X, exposure=exposure, groups=groups)
        return r2_score(as_numpy(y), predicted, sample_weight=as_numpy(sample_weight))

    def _check_given(self, given):
        """Raise ValueError if scores need more than is given."""
        if given.get("exposure") is None:
            check_exposed(self)

    def predict_dist(
        self, X: ArrayLike, *, exposure: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> PredictiveDistribution:
        """Predict the distribution of the target.

        Parameters
        ----------
        X, exposure, groups
            As for :meth:`predict`.

        Returns
        -------
        dist : PredictiveDistribution
            Means, deviations, probabilities, quantiles, densities, scores and draws.

        Examples
        --------
        >>> import numpy as np
        >>> from skdgp import SparseGPRegressor
        >>> X = np.linspace(0, 1, 30)[:, None]
        >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(6 * X[:, 0]))
        >>> dist = model.predict_dist([[0.5]])
        >>> bool(dist.interval(0.5)[0, 0] < dist.mean[0] < dist.interval(0.5)[0, 1])
        True
        """
        return self._distribution(X, exposure, groups)

    def _distribution(self, X, exposure, groups, missing="warn"):
        X, offset = exposed_rows(self, X, exposure, missing, groups)
        return PredictiveDistribution(self._predictor(), X, offset, flat=self._y_ndim == 1)

    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        latent: bool = False,
        quantiles: ArrayLike | None = None,
        decompose: bool = False,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Any:
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
        exposure : float or array-like of shape (n_samples,), optional
            Of counts: predict those of so much time, area or number of people. By default it is in the column
            that the parameter `exposure` names, else 1. Latent functions are logarithms of rates and have
            none.
        groups : array-like of shape (n_samples,), optional
            The group of each row, if ``fit`` had an array of them. Rows of known groups are predicted with
            their effects. Error bars of new groups, and without `groups`, are as wide as groups differ.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        std : ndarray of the shape of `mean`
            Only if `return_std` is True; with `decompose`, ``std_function, std_noise`` in its place.
        cov : ndarray of shape (n_samples, n_samples) or (n_samples, n_samples, n_outputs)
            Only if `return_cov` is True.
        """
        check_asked(return_std, return_cov, latent, quantiles, decompose)
        if quantiles is not None:
            quantiles = check_alpha(quantiles, "quantiles")
        dist = self._distribution(X, exposure, groups, "ignore" if latent else "warn")
        dist = dist.latent if latent else dist
        if quantiles is not None:
            return dist.quantile(quantiles)
        if decompose:
            return dist.mean, *dist.decompose()
        if return_cov:
            return dist.mean, dist.covariance()
        if return_std:
            std = dist.std  # first: it gives the mean, too
            return dist.mean, std
        return dist.mean

    def predict_var(
        self, X: ArrayLike, *, exposure: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> np.ndarray:
        """Predict the variance of the target.

        Parameters
        ----------
        X, exposure, groups
            As for :meth:`predict`.

        Returns
        -------
        var : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self.predict_dist(X, exposure=exposure, groups=groups).var

    def predict_quantiles(
        self,
        X: ArrayLike,
        alpha: ArrayLike = (0.05, 0.95),
        *,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Predict quantiles of the target.

        Parameters
        ----------
        X, exposure, groups
            As for :meth:`predict`.
        alpha : float or array-like of floats in (0, 1)
            Orders of the quantiles.

        Returns
        -------
        quantiles : ndarray of shape (n_samples, n_alpha) or (n_samples, n_outputs, n_alpha)
        """
        return self.predict_dist(X, exposure=exposure, groups=groups).quantile(alpha)

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float = 0.9,
        *,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Predict central intervals of the target.

        Parameters
        ----------
        X, exposure, groups
            As for :meth:`predict`.
        coverage : float in (0, 1)
            Probability that the target lies inside.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper ends.
        """
        return self.predict_dist(X, exposure=exposure, groups=groups).interval(coverage)

    def predict_cdf(
        self,
        X: ArrayLike,
        y: ArrayLike,
        complement: bool = False,
        *,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Probability that the target is at most `y`, or larger.

        Either is exact where it is small, or, with noise whose size is a function of X, down to about 1e-10.

        Parameters
        ----------
        X, exposure, groups
            As for :meth:`predict`.
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
        dist = self.predict_dist(X, exposure=exposure, groups=groups)
        return dist.sf(y) if complement else dist.cdf(y)

    def log_predictive_density(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Log-density of the target at each row, in the target's units; all outputs together.

        Parameters
        ----------
        X, exposure, groups
            As for :meth:`predict`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)

        Raises
        ------
        ValueError
            If ``fit`` had an exposure and there is none.
        """
        dist = self._distribution(X, exposure, groups, "raise")
        self._check_y(X, y)
        return dist.log_prob(y)

    def sample_y(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: int | np.random.RandomState | None = 0,
        latent: bool = False,
        *,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray:
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
        exposure, groups : array-likes of shape (n_samples,), optional
            As for :meth:`predict`.

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
        """
        dist = self._distribution(X, exposure, groups, "ignore" if latent else "warn")
        return (dist.latent if latent else dist).sample(n_samples, random_state)

    def _crps(self, X, y, exposure=None, groups=None):
        """Continuous ranked probability score of each row and output, in the target's units."""
        dist = self._distribution(X, exposure, groups, "raise")
        self._check_y(X, y)
        return dist.crps(y)

    def _centers(self, X):
        """Predicted means (n, k) of checked rows, in units of the target."""
        return self._predictor().over(X, lambda d: d.mean())

    def _output_scales(self):
        """Half the distances (k,) of targets that are two standard deviations apart before they are mapped."""
        one = np.ones((1, self._n_outputs))
        return 0.5 * (self._y_scaler.inverse(one) - self._y_scaler.inverse(-one))[0]
