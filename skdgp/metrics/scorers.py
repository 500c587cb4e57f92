"""Scorers for model selection: of a fitted estimator and rows; greater is better."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from .._checks import _average
from .._scoring import (
    _log_density,
    _normal,
    _predict_interval,
    _predict_quantiles,
    requesting,
    take_apart_to_score,
)
from .crps import crps_gaussian
from .scores import (
    calibration_error,
    coverage_score,
    interval_score,
    negative_log_predictive_density,
    pinball_loss,
)

_DECILES = tuple(i / 10 for i in range(1, 10))


@requesting
def log_predictive_density_scorer(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    **given: Any,
) -> float:
    """Mean log-density of the target, or mean log-probability of the label.

    Like all scorers here it takes searches and pipelines apart, and reads ``predict(X,
    return_std=True)`` as a Gaussian for regressors that have nothing better.

    Parameters
    ----------
    estimator : estimator
        Fitted. An estimator of skdgp, another regressor with ``predict(X, return_std=True)``, or a
        pipeline or search around one of these.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.
    **given : dict
        What the predictions of the estimator take, as the `exposure` of counts.

    Returns
    -------
    score : float
        In nats per row, several outputs together. Greater is better.

    Raises
    ------
    TypeError
        If the estimator predicts no distribution of the target.
    ValueError
        If a standard deviation is zero, so that there is no density, or a search keeps no best estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import BayesianRidge
    >>> from sklearn.model_selection import cross_val_score
    >>> from skdgp.metrics import log_predictive_density_scorer
    >>> X, y = load_diabetes(return_X_y=True)
    >>> scores = cross_val_score(BayesianRidge(), X, y, scoring=log_predictive_density_scorer)
    >>> round(float(scores.mean()), 1)
    -5.4
    """
    estimator, X = take_apart_to_score(estimator, X, given)
    log_density = _log_density(estimator, X, y, given)
    return -negative_log_predictive_density(log_density, sample_weight=sample_weight)


@requesting
def crps_scorer(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    **given: Any,
) -> float:
    """Negative continuous ranked probability score.

    Exact for Gaussian predictions and for mixtures of at most 128 Gaussians; otherwise integrated
    numerically, to a relative error below 1e-4.

    Parameters
    ----------
    estimator, X, y, sample_weight, **given: Any
        As for :func:`log_predictive_density_scorer`.

    Returns
    -------
    score : float
        In the unit of the target. Greater is better.

    Raises
    ------
    TypeError, ValueError
        As for :func:`log_predictive_density_scorer`.

    See Also
    --------
    crps_gaussian_mixture : The score as a function of arrays.
    """
    estimator, X = take_apart_to_score(estimator, X, given)
    if hasattr(estimator, "_crps"):
        return -_average(estimator._crps(X, y, **given), sample_weight)
    return -crps_gaussian(y, **_normal(estimator, X, given), sample_weight=sample_weight)


@requesting
def pinball_scorer(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    alpha: ArrayLike = _DECILES,
    **given: Any,
) -> float:
    """Negative pinball loss of the nine deciles, or of other quantiles.

    Parameters
    ----------
    estimator, X, y, sample_weight, **given: Any
        As for :func:`log_predictive_density_scorer`.
    alpha : tuple of floats in (0, 1)
        Orders of the quantiles. ``functools.partial(pinball_scorer, alpha=(0.9,))`` makes a scorer
        of others.

    Returns
    -------
    score : float
        In the unit of the target. Greater is better.

    Raises
    ------
    TypeError, ValueError
        As for :func:`log_predictive_density_scorer`, and if orders are not between 0 and 1.

    See Also
    --------
    pinball_loss : The loss as a function of arrays.
    """
    estimator, X = take_apart_to_score(estimator, X, given)
    quantiles = _predict_quantiles(estimator, X, alpha, given)
    return -pinball_loss(y, quantiles, alpha, sample_weight=sample_weight)


@requesting
def interval_score_scorer(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    coverage: float = 0.9,
    **given: Any,
) -> float:
    """Negative interval score of central intervals.

    Parameters
    ----------
    estimator, X, y, sample_weight, **given: Any
        As for :func:`log_predictive_density_scorer`.
    coverage : float in (0, 1), default=0.9
        Probability that a target lies inside. ``functools.partial(interval_score_scorer,
        coverage=0.5)`` makes a scorer of other intervals.

    Returns
    -------
    score : float
        In the unit of the target. Greater is better.

    Raises
    ------
    TypeError, ValueError
        As for :func:`log_predictive_density_scorer`, and if `coverage` is not between 0 and 1.

    See Also
    --------
    interval_score : The score as a function of arrays.
    """
    estimator, X = take_apart_to_score(estimator, X, given)
    lower, upper = _predict_interval(estimator, X, coverage, given)
    return -interval_score(y, lower, upper, coverage, sample_weight=sample_weight)


@requesting
def coverage_scorer(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    coverage: float = 0.9,
    **given: Any,
) -> float:
    """Negative distance of the empirical coverage of central intervals from the nominal one.

    Parameters
    ----------
    estimator, X, y, sample_weight, **given: Any
        As for :func:`log_predictive_density_scorer`.
    coverage : float in (0, 1), default=0.9
        Probability that a target lies inside. ``functools.partial(coverage_scorer, coverage=0.5)``
        makes a scorer of other intervals.

    Returns
    -------
    score : float
        Between -1 and 0. Greater is better.

    Raises
    ------
    TypeError, ValueError
        As for :func:`log_predictive_density_scorer`, and if `coverage` is not between 0 and 1.

    See Also
    --------
    coverage_score : The coverage itself.
    calibration_scorer : The same for many intervals.
    """
    estimator, X = take_apart_to_score(estimator, X, given)
    lower, upper = _predict_interval(estimator, X, coverage, given)
    return -abs(coverage_score(y, lower, upper, sample_weight=sample_weight) - coverage)


@requesting
def calibration_scorer(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    **given: Any,
) -> float:
    """Negative calibration error of the central intervals of coverage 0.1, 0.2, ..., 0.9.

    Parameters
    ----------
    estimator, X, y, sample_weight, **given: Any
        As for :func:`log_predictive_density_scorer`.

    Returns
    -------
    score : float
        Between -1 and 0. Greater is better.

    Raises
    ------
    TypeError, ValueError
        As for :func:`log_predictive_density_scorer`.

    See Also
    --------
    calibration_error : The error as a function of arrays.
    """
    alpha = np.delete(np.arange(1, 20), 9) / 20.0  # the median bounds no interval
    estimator, X = take_apart_to_score(estimator, X, given)
    quantiles = _predict_quantiles(estimator, X, alpha, given)
    return -calibration_error(y, quantiles, alpha, sample_weight=sample_weight)
