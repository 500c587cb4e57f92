"""Base of regressors: targets, and predictions in their units."""

from functools import partial

import numpy as np
from scipy.stats import norm
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array, check_consistent_length, check_random_state

from .._scoring import check_alpha, check_coverage
from ..predictive.transformed import mean_before_map
from ..preprocessing.target_maps import NAMES
from ._sklearn import StrOptions
from .arrays import as_numpy
from .targets import as_numbers, target_maps, warn_if_some_are_constant, warn_if_some_are_far

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

    _target_maps = target_maps

    @property
    def target_transform_(self):
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

    def score(self, X, y, sample_weight=None, *, exposure=None):
        """Coefficient of determination of the predicted means.

        Parameters
        ----------
        X, exposure
            As for :meth:`predict`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.
        sample_weight : array-like of shape (n_samples,), optional
            How much each row counts.

        Returns
        -------
        score : float
        """
        predicted = self.predict(X, exposure=exposure)
        return r2_score(as_numpy(y), predicted, sample_weight=as_numpy(sample_weight))

    def predict(
        self,
        X,
        return_std=False,
        return_cov=False,
        latent=False,
        quantiles=None,
        decompose=False,
        exposure=None,
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
        exposure : array-like of shape (n_samples,), optional
            Of counts: predict those of so much time, area or number of people; one of each by
            default. Latent functions are logarithms of rates and have none.

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
            return self._quantiles(X, quantiles, "quantiles", exposure)
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        X = self._check_X(X)
        offset = self._offset(X, exposure)
        if decompose:
            return self._decomposed(X, offset)
        if not (return_std or return_cov or latent) and self._atoms is None:
            return self._shaped(self._predict_rows(X, "target_mean", offset=offset))
        mean, std = self._moments(X, latent, offset)
        if return_cov:
            return self._shaped(mean), self._covariance(X, std, latent, offset)
        return (self._shaped(mean), self._shaped(std)) if return_std else self._shaped(mean)

    def predict_var(self, X, *, exposure=None):
        """Predict the variance of the target.

        Parameters
        ----------
        X, exposure
            As for :meth:`predict`.

        Returns
        -------
        var : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        X = self._check_X(X)
        return self._shaped(self._moments(X, False, self._offset(X, exposure))[1] ** 2)

    def predict_quantiles(self, X, alpha=(0.05, 0.95), *, exposure=None):
        """Predict quantiles of the target.

        Parameters
        ----------
        X, exposure
            As for :meth:`predict`.
        alpha : float or array-like of floats in (0, 1)
            Orders of the quantiles.

        Returns
        -------
        quantiles : ndarray of shape (n_samples, n_alpha) or (n_samples, n_outputs, n_alpha)
        """
        return self._quantiles(X, alpha, "alpha", exposure)

    def _quantiles(self, X, orders, name, exposure):
        """Quantiles whose orders the user gave by an argument of this name."""
        X = self._check_X(X)
        orders, offset = check_alpha(orders, name), self._offset(X, exposure)
        if self._atoms is None:
            q = self._predict_rows(X, "quantiles", alpha=orders, offset=offset)
        else:
            below = [self._tail(X, np.full((len(X), 1), value)) for value in self._atoms.values]
            orders, atoms = self._atoms.orders(X, orders, np.hstack(below))
            q = self._predict_rows(X, "quantiles", orders)
        q = np.moveaxis(self._y_scaler.inverse(np.moveaxis(q, -1, 0)), 0, -1)
        if self._atoms is not None:
            q = np.where(np.isnan(atoms), q[:, 0], atoms)[:, None]
        return self._shaped(q)

    def _latent_quantiles(self, X, orders):
        """Quantiles of latent functions, as if these were Gaussian before the map of targets."""
        mean, var = self._predict_rows(X, "latent_moments", k=self._n_outputs)
        q = mean + np.sqrt(var) * norm.ppf(orders)[:, None, None]
        return self._shaped(np.moveaxis(self._y_scaler.inverse(q), 0, -1))

    def predict_interval(self, X, coverage=0.9, *, exposure=None):
        """Predict central intervals of the target.

        Parameters
        ----------
        X, exposure
            As for :meth:`predict`.
        coverage : float in (0, 1)
            Probability that the target lies inside.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper ends.
        """
        check_coverage(coverage)
        ends = [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)]
        return self.predict_quantiles(X, ends, exposure=exposure)

    def predict_cdf(self, X, y, complement=False, *, exposure=None):
        """Probability that the target is at most `y`, or larger.

        Either is exact where it is small, or, with noise whose size is a function of X, down to about 1e-10.

        Parameters
        ----------
        X, exposure
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
        X = self._check_X(X)
        y = np.asarray(as_numpy(y))
        if y.ndim == 0:
            shape = len(X) if self._y_ndim == 1 else (len(X), self._n_outputs)
            y = np.full(shape, y)
        y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
        check_consistent_length(X, y)
        y, above = self._encode(y, reset=False), bool(complement)
        tail = self._tail(X, y, above, self._offset(X, exposure))
        return self._shaped(tail if self._atoms is None else self._atoms.tail(X, y, tail, above))

    def _tail(self, X, y, above=False, offset=None):
        """Probabilities (n, k) that the mixture gives to more than `y`, or to less."""
        z = self._y_scaler.standardized_thresholds(y)
        return self._predict_rows(X, "tail", z, above=above, offset=offset)

    def log_predictive_density(self, X, y, *, exposure=None):
        """Log-density of the target at each row, in the target's units; all outputs together.

        Parameters
        ----------
        X, exposure
            As for :meth:`predict`.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
        """
        X, y = self._check_X_y(X, y)
        z, offset = self._y_scaler.transform(y), self._offset(X, exposure)
        log_density = self._predict_rows(X, "log_density", z, offset=offset)
        log_density = log_density + self._y_scaler.log_jacobian(y)
        return log_density if self._atoms is None else self._atoms.log_density(X, y, log_density)

    def sample_y(self, X, n_samples=1, random_state=0, latent=False, *, exposure=None):
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
        exposure : array-like of shape (n_samples,), optional
            As for :meth:`predict`.

        Returns
        -------
        y : ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
        """
        X = self._check_X(X)
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        offset = None if latent else self._offset(X, exposure)
        what = "function" if latent else "y"
        y = self._draw(X, n_samples, seed, what, self._n_outputs, offset=offset)
        with self._predictor() as predictor:
            y = predictor.unmapped(X, y, latent)
        if self._atoms is not None and not latent:
            y = self._atoms.sample(X, y, seed)
        return self._shaped(np.moveaxis(y, 0, -1))

    def _crps(self, X, y, exposure=None):
        """Continuous ranked probability score of each row and output, in the target's units."""
        X, y = self._check_X_y(X, y)
        offset = self._offset(X, exposure)

        def crps(y):
            return self._predict_rows(X, "target_crps", y, offset=offset)

        return self._shaped(crps(y) if self._atoms is None else self._atoms.crps(X, y, crps))

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
        draws = draws * scaler.scale + scaler.center if mean is None else draws
        return draws if self._atoms is None else self._atoms.centers(X, draws, seed)

    def _output_scales(self):
        """Half the distances (k,) of targets that are two standard deviations apart before they are mapped."""
        one = np.ones((1, self._n_outputs))
        return 0.5 * (self._y_scaler.inverse(one) - self._y_scaler.inverse(-one))[0]

    def _moments(self, X, latent, offset=None, atoms=True):
        """Mean and standard deviation in the target's units, (n, k); of the mixture alone without `atoms`."""
        offset = None if latent else offset
        mean, std = self._predict_rows(X, "target_moments", latent=latent, offset=offset)
        atoms = None if latent or not atoms else self._atoms
        return (mean, std) if atoms is None else atoms.moments(X, mean, std)

    def _covariance(self, X, std, latent, offset):
        """Covariance of the rows, whose standard deviations are `std` (n, k)."""
        atoms = None if latent else self._atoms
        of_mixture = std if atoms is None else self._moments(X, False, atoms=False)[1]
        with self._predictor() as predictor:
            cov = predictor.covariance(X, of_mixture, latent, offset)
        if atoms is not None:
            cov = atoms.covariance(X, cov[..., 0], np.square(std[:, 0]))[..., None]
        return cov[..., 0] if self._y_ndim == 1 else cov

    def _decomposed(self, X, offset):
        """Mean, and standard deviations by the function and by the noise."""
        parts = self._predict_rows(X, "target_decomposed_moments", offset=offset)
        if self._atoms is not None:
            parts = self._atoms.decomposed(X, *parts)
        return tuple(self._shaped(part) for part in parts)
