"""Predictive distributions as users see them."""

from __future__ import annotations

from functools import cached_property
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array, check_consistent_length, check_random_state, check_scalar

from .._arrays import as_numbers, as_numpy
from .._checks import check_alpha, check_coverage
from .predictor import Predictor


class PredictiveDistribution:
    """Predictive distribution of a numeric target at n rows.

    ``predict_dist`` of a regressor returns it. All results are arrays in units of the target, with rows
    first. Those of one output have no axis for outputs if the training targets had none. Nothing is
    computed before it is asked for, and a refit of the estimator does not change it.

    Slices are distributions of some of the rows: ``dist[:10]``.

    Attributes
    ----------
    mean : ndarray of shape (n,) or (n, n_outputs)
        Means.
    std, var : ndarray of shape (n,) or (n, n_outputs)
        Standard deviations and variances, noise included.
    latent : PredictiveDistribution
        Distribution of the latent functions, without noise. Functions of counts are logarithms of rates.

    See Also
    --------
    skdgp.DeepGPRegressor.predict_dist : Makes it.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import SparseGPRegressor
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = SparseGPRegressor(random_state=0).fit(X, np.sin(6 * X[:, 0]))
    >>> dist = model.predict_dist([[0.2], [0.5]])
    >>> dist.mean.shape, dist.interval(coverage=0.9).shape, len(dist[:1])
    ((2,), (2, 2), 1)
    >>> bool(abs(dist.cdf(dist.quantile(0.25)[:, 0]) - 0.25).max() < 1e-6)
    True
    """

    def __init__(
        self,
        predictor: Predictor,
        X: np.ndarray,
        offset: np.ndarray | None = None,
        flat: bool = True,
        of_function: bool = False,
    ):
        self._predictor, self._X, self._offset = predictor, X, offset
        self._flat, self._of_function = flat, of_function

    def __len__(self) -> int:
        return len(self._X)

    def __getitem__(self, rows) -> PredictiveDistribution:
        if isinstance(rows, Integral):
            rows = [rows]
        offset = None if self._offset is None else self._offset[rows]
        return PredictiveDistribution(
            self._predictor, self._X[rows], offset, self._flat, self._of_function
        )

    def __repr__(self):
        of = "latent functions" if self._of_function else "the target"
        return f"PredictiveDistribution of {of} at {len(self)} rows"

    def _over(self, function, *others):
        if self._of_function:
            return self._predictor.over(self._X, function, *others, at=self._predictor.latent_at)
        return self._predictor.over(self._X, function, *others, offset=self._offset)

    def _shaped(self, values):
        return values[:, 0] if self._flat else values

    def _targets(self, y, everywhere=False):
        """Targets (n, k); one number stands for all rows if it may be `everywhere` the same."""
        y = np.asarray(as_numpy(y))
        if everywhere and y.ndim == 0:
            y = np.full(len(self) if self._flat else (len(self), self._predictor.n_outputs), y)
        y = as_numbers(check_array(y, ensure_2d=False, dtype=None, input_name="y"))
        check_consistent_length(self._X, y)
        n_outputs = 1 if y.ndim == 1 else y.shape[1]
        if n_outputs != self._predictor.n_outputs:
            raise ValueError(
                f"y has {n_outputs} outputs, but the model was fitted with {self._predictor.n_outputs}."
            )
        return y.reshape(len(y), -1)

    @cached_property
    def _moments(self):
        return self._over(lambda d: d.moments())

    @cached_property
    def mean(self) -> np.ndarray:
        if "_moments" in vars(self):
            return self._shaped(self._moments[0])
        return self._shaped(self._over(lambda d: d.mean()))

    @property
    def std(self) -> np.ndarray:
        return self._shaped(self._moments[1])

    @property
    def var(self) -> np.ndarray:
        return np.square(self.std)

    @property
    def latent(self) -> PredictiveDistribution:
        return PredictiveDistribution(self._predictor, self._X, None, self._flat, True)

    def decompose(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the standard deviations by the function and by the noise.

        By the law of total variance, their squares add up to the variance: the variance of the mean of y
        given the function, and the expected variance of y given the function.

        Returns
        -------
        std_function, std_noise : ndarray of shape (n,) or (n, n_outputs)
        """
        _, function, noise = self._over(lambda d: d.decomposed_moments())
        return self._shaped(function), self._shaped(noise)

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """Probability of at most `y`.

        Parameters
        ----------
        y : float, or array-like of shape (n,) or (n, n_outputs)
            Thresholds, one for all rows or one for each.

        Returns
        -------
        probability : ndarray of shape (n,) or (n, n_outputs)
            Small ones are exact to a relative error, with noise whose size is a function of X down to
            about 1e-10.
        """
        return self._shaped(self._over(lambda d, y: d.tail(y, False), self._targets(y, True)))

    def sf(self, y: ArrayLike) -> np.ndarray:
        """Probability of more than `y`; parameters and precision as of :meth:`cdf`."""
        return self._shaped(self._over(lambda d, y: d.tail(y, True), self._targets(y, True)))

    def quantile(self, alpha: float | ArrayLike = (0.05, 0.95)) -> np.ndarray:
        """Quantiles.

        Parameters
        ----------
        alpha : float or array-like of shape (n_alpha,), default=(0.05, 0.95)
            Orders between 0 and 1.

        Returns
        -------
        quantiles : ndarray of shape (n, n_alpha) or (n, n_outputs, n_alpha)
        """
        alpha = check_alpha(alpha)
        return self._shaped(self._over(lambda d: d.quantiles(alpha)))

    def interval(self, coverage: float = 0.9) -> np.ndarray:
        """Central intervals.

        Parameters
        ----------
        coverage : float, default=0.9
            Probability, between 0 and 1, that the target lies inside.

        Returns
        -------
        interval : ndarray of shape (n, 2) or (n, n_outputs, 2)
            Lower and upper ends.
        """
        check_coverage(coverage)
        return self.quantile([0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)])

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """Log-densities of targets, or log-probabilities of counts.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs)

        Returns
        -------
        log_prob : ndarray of shape (n,)
            All outputs of a row together.
        """
        return self._over(lambda d, y: d.log_prob(y), self._targets(y))

    def crps(self, y: ArrayLike) -> np.ndarray:
        """Continuous ranked probability score of targets, in their units; lower is better.

        Parameters
        ----------
        y : array-like of shape (n,) or (n, n_outputs)

        Returns
        -------
        scores : ndarray of shape (n,) or (n, n_outputs)
        """
        return self._shaped(self._over(lambda d, y: d.crps(y), self._targets(y)))

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0
    ) -> np.ndarray:
        """Draw functions, and targets around these.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=0
            An integer gives the same draws in each call.

        Returns
        -------
        samples : ndarray of shape (n, n_samples) or (n, n_outputs, n_samples)
            Each sample is one function at all rows. Latent functions are the same functions for the same
            `random_state`, whatever the rows; targets have fresh noise in every row.
        """
        n = int(check_scalar(n_samples, "n_samples", Integral, min_val=1))
        seed = int(check_random_state(random_state).randint(2**31 - 2))
        draws = self._predictor.sample(self._X, n, seed, self._of_function, self._offset)
        return self._shaped(np.moveaxis(draws, 0, -1))

    def covariance(self) -> np.ndarray:
        """Covariances of the rows.

        Their diagonal is :attr:`var`. Correlations are exact for members with a closed form; those of others
        come from 512 function draws, as all of them do if the target was transformed.

        Returns
        -------
        covariance : ndarray of shape (n, n) or (n, n, n_outputs)
        """
        cov = self._predictor.covariance(self._X, self._of_function, self._offset)
        return cov[..., 0] if self._flat else cov
