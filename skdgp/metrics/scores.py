"""Scores of predictive distributions, as functions of arrays."""

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import mean_pinball_loss
from sklearn.utils import check_array

from .._checks import _average, _interval, _quantiles, _weights, check_coverage


def pinball_loss(
    y_true: ArrayLike,
    y_quantiles: ArrayLike,
    alpha: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Pinball loss of several quantiles, the mean of scikit-learn's over their orders.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        What happened.
    y_quantiles : array-like of shape (n_samples, n_alpha) or (n_samples, n_outputs, n_alpha)
        What was predicted, as :meth:`skdgp.DeepGPRegressor.predict_quantiles` returns it.
    alpha : array-like of shape (n_alpha,)
        Orders of the quantiles, between 0 and 1.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.

    Returns
    -------
    loss : float
        Mean over rows, outputs and orders, in the unit of the target; at least 0, and smaller is
        better. Over many orders, equally spaced, it tends to half the continuous ranked probability
        score.

    Raises
    ------
    ValueError
        If shapes do not match, numbers are not finite, weights are negative or all zero, or orders are
        not between 0 and 1.

    See Also
    --------
    sklearn.metrics.mean_pinball_loss : The loss of one quantile.

    Examples
    --------
    >>> from skdgp.metrics import pinball_loss
    >>> pinball_loss([1.0, 2.0], [[0.0, 1.5], [1.0, 2.5]], alpha=[0.1, 0.9])
    0.075...
    """
    y_true, y_quantiles, alpha = _quantiles(y_true, y_quantiles, alpha)
    weights = _weights(sample_weight, y_true)
    losses = [
        mean_pinball_loss(y_true, y_quantiles[..., i], alpha=a, sample_weight=weights)
        for i, a in enumerate(alpha)
    ]
    return float(np.mean(losses))


def interval_score(
    y_true: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    coverage: float,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Interval score: the width of central intervals, and a penalty for what they miss.

    .. math:: S(l, u; y) = (u - l) + \frac{2}{1 - c} \left( (l - y)_+ + (y - u)_+ \right)

    for intervals of coverage :math:`c` ([1]_, equation 43). It is smallest in expectation for the
    true quantiles.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        What happened.
    lower, upper : array-likes of the shape of `y_true`
        Ends of the predicted intervals.
    coverage : float in (0, 1)
        Probability that a target lies inside.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.

    Returns
    -------
    score : float
        Mean over rows and outputs, in the unit of the target; at least 0, and smaller is better.

    Raises
    ------
    ValueError
        If shapes do not match, numbers are not finite, weights are negative or all zero, or
        intervals end before they begin, or `coverage` is not between 0 and 1.

    References
    ----------
    .. [1] T. Gneiting and A. Raftery (2007). Strictly proper scoring rules, prediction, and
       estimation. Journal of the American Statistical Association 102.

    Examples
    --------
    >>> from skdgp.metrics import interval_score
    >>> interval_score([0.0, 1.5], lower=[-1.0, -1.0], upper=[1.0, 1.0], coverage=0.9)
    7.0...
    """
    check_coverage(coverage)
    y_true, lower, upper = _interval(y_true, lower, upper)
    missed = np.maximum(lower - y_true, 0.0) + np.maximum(y_true - upper, 0.0)
    return _average(upper - lower + 2.0 / (1.0 - coverage) * missed, sample_weight)


def coverage_score(
    y_true: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Share of targets that lie inside predicted intervals, their ends included.

    No proper score: intervals that are wide enough cover everything. Compare it with the coverage
    that was asked for.

    Parameters
    ----------
    y_true, lower, upper, sample_weight
        As for :func:`interval_score`.

    Returns
    -------
    coverage : float
        Mean over rows and outputs, between 0 and 1.

    Raises
    ------
    ValueError
        As for :func:`interval_score`.

    Examples
    --------
    >>> from skdgp.metrics import coverage_score
    >>> coverage_score([0.0, 1.5, 0.5], lower=[-1.0, -1.0, -1.0], upper=[1.0, 1.0, 1.0])
    0.666...
    """
    y_true, lower, upper = _interval(y_true, lower, upper)
    return _average((lower <= y_true) & (y_true <= upper), sample_weight)


def calibration_error(
    y_true: ArrayLike,
    y_quantiles: ArrayLike,
    alpha: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Distance between the nominal and the empirical coverage of central intervals.

    The quantiles of the orders `a` and `1 - a` bound an interval of nominal coverage `1 - 2 a`. The
    error is the mean over these intervals, and over outputs, of the absolute difference to the
    share of targets inside. Like coverage it does not measure sharpness [1]_; intervals for
    counts cover more than they should.

    Parameters
    ----------
    y_true, y_quantiles, sample_weight
        As for :func:`pinball_loss`.
    alpha : array-like of shape (n_alpha,)
        Orders of the quantiles, between 0 and 1; with each `a` also `1 - a`. The median is ignored.

    Returns
    -------
    error : float
        Between 0 and 1, and smaller is better. For calibrated predictions of `n` rows, chance makes
        it about ``0.3 / sqrt(n)``.

    Raises
    ------
    ValueError
        As for :func:`pinball_loss`, and if orders are no pairs of `a` and `1 - a`.

    References
    ----------
    .. [1] T. Gneiting, F. Balabdaoui and A. Raftery (2007). Probabilistic forecasts, calibration
       and sharpness. Journal of the Royal Statistical Society B 69.

    Examples
    --------
    >>> from skdgp.metrics import calibration_error
    >>> calibration_error([0.0, 2.0], [[-1.0, 1.0], [-1.0, 1.0]], alpha=[0.1, 0.9])
    0.3...
    """
    y_true, y_quantiles, alpha = _quantiles(y_true, y_quantiles, alpha)
    order = np.argsort(alpha)
    alpha, y_quantiles = alpha[order], y_quantiles[..., order]
    n_pairs = len(alpha) // 2
    if n_pairs == 0 or not np.allclose(alpha + alpha[::-1], 1.0):
        raise ValueError(f"alpha must hold pairs of the form a and 1 - a; got {alpha}.")
    errors = []
    for i in range(n_pairs):
        inside = (y_quantiles[..., i] <= y_true) & (y_true <= y_quantiles[..., -1 - i])
        covered = np.average(inside, axis=0, weights=_weights(sample_weight, y_true))
        errors.append(np.abs(covered - (alpha[-1 - i] - alpha[i])))
    return float(np.mean(errors))


def negative_log_predictive_density(
    log_density: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean negative log-density of what happened, the logarithmic score.

    Parameters
    ----------
    log_density : array-like of shape (n_samples,)
        Natural logarithm of the predicted density at each row's target, as
        :meth:`skdgp.DeepGPRegressor.log_predictive_density` returns it.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.

    Returns
    -------
    score : float
        In nats per row, and smaller is better. Targets in units `a` times smaller add ``log(a)``
        for each output.

    Raises
    ------
    ValueError
        If shapes do not match, numbers are not finite, or weights are negative or all zero.

    Examples
    --------
    >>> from skdgp.metrics import negative_log_predictive_density
    >>> negative_log_predictive_density([-1.0, -2.0])
    1.5
    """
    log_density = check_array(
        log_density, ensure_2d=False, dtype=np.float64, input_name="log_density"
    )
    if log_density.ndim != 1:
        raise ValueError(
            f"log_density must have shape (n_samples,); got {log_density.shape}. The density of "
            "several outputs is one number for each row."
        )
    return -_average(log_density[:, None], sample_weight)
