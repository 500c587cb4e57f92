"""Scores of predictive distributions, as functions of arrays."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf
from sklearn.metrics import mean_pinball_loss
from sklearn.utils import check_array, gen_batches

from .._scoring import (
    _average,
    _check_not_negative,
    _check_shape,
    _columns,
    _components,
    _interval,
    _quantiles,
    _same_shape,
    _weights,
    check_coverage,
)

_PAIRS_AT_ONCE = 1_000_000  #: pairs of components and rows that are in memory together


def crps_gaussian(
    y_true: ArrayLike, mean: ArrayLike, std: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Continuous ranked probability score of Gaussian predictions.

    The score of a distribution function :math:`F` is

    .. math:: \mathrm{CRPS}(F, y) = \int (F(x) - 1[x \ge y])^2 \, dx

    with the closed form of [1]_ for a Gaussian. It has the unit of the target, is smallest in
    expectation for the true distribution, and is the absolute error where `std` is zero.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        What happened.
    mean, std : array-likes of the shape of `y_true`
        What was predicted.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.

    Returns
    -------
    score : float
        Mean over rows and outputs; at least 0, and smaller is better.

    Raises
    ------
    ValueError
        If shapes do not match, numbers are not finite, weights are negative or all zero, or `std` is
        negative.

    References
    ----------
    .. [1] T. Gneiting, A. Raftery, A. Westveld and T. Goldman (2005). Calibrated probabilistic
       forecasting using ensemble model output statistics and minimum CRPS estimation. Monthly
       Weather Review 133, equation 5.

    Examples
    --------
    >>> from skdgp.metrics import crps_gaussian
    >>> crps_gaussian([0.0, 1.0], [0.0, 0.0], [1.0, 1.0])
    0.418...
    """
    y_true, mean, std = _same_shape(y_true, mean=mean, std=std)
    _check_not_negative(std, "std")
    values = mixture_crps(y_true, np.ones((1, 1, 1)), mean[None], np.square(std)[None])
    return _average(values, sample_weight)


def crps_gaussian_mixture(
    y_true: ArrayLike,
    means: ArrayLike,
    variances: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Continuous ranked probability score of mixtures of Gaussians.

    With :math:`A(m, v) = E|X|` for :math:`X \sim N(m, v)`, the score of the mixture
    :math:`\sum_i w_i N(m_i, v_i)` is [1]_

    .. math:: \mathrm{CRPS} = \sum_i w_i A(y - m_i, v_i)
        - \tfrac{1}{2} \sum_{ij} w_i w_j A(m_i - m_j, v_i + v_j) .

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        What happened.
    means, variances : array-likes of shape (n_components, n_samples[, n_outputs])
        Components of the predictions, output by output.
    weights : array-like of shape (n_components,) or of the shape of `means`, optional
        Shares of the components, which sum to one; equal ones by default.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.

    Returns
    -------
    score : float
        Mean over rows and outputs, in the unit of the target; at least 0, and smaller is better.

    Raises
    ------
    ValueError
        If shapes do not match, numbers are not finite, or weights are negative or all zero,
        or variances are negative, or `weights` are negative or do not sum to one.

    References
    ----------
    .. [1] E. Grimit, T. Gneiting, V. Berrocal and N. Johnson (2006). The continuous ranked
       probability score for circular variables and its application to mesoscale forecast ensemble
       verification. Quarterly Journal of the Royal Meteorological Society 132.

    Examples
    --------
    >>> from skdgp.metrics import crps_gaussian_mixture
    >>> crps_gaussian_mixture([0.9], means=[[-1.0], [1.0]], variances=[[0.01], [0.01]])
    0.480...
    """
    y_true = _columns(y_true, "y_true")
    means, variances = _components(means, "means"), _components(variances, "variances")
    _check_shape("means", means, (len(means), *y_true.shape))
    _check_shape("variances", variances, means.shape)
    _check_not_negative(variances, "variances")
    if weights is None:
        weights = np.full(len(means), 1.0 / len(means))
    weights = check_array(
        weights, ensure_2d=False, allow_nd=True, dtype=np.float64, input_name="weights"
    )
    weights = weights[:, None, None] if weights.ndim == 1 else _components(weights, "weights")
    if weights.shape[1:] != (1, 1):
        _check_shape("weights", weights, means.shape)
    elif len(weights) != len(means):
        raise ValueError(f"There are {len(weights)} weights, but {len(means)} components.")
    if (weights < 0.0).any() or not np.allclose(weights.sum(0), 1.0, atol=1e-6):
        raise ValueError("weights must not be negative, and sum to one over the components.")
    values = np.empty(y_true.shape)
    weights = np.broadcast_to(weights, means.shape)
    for rows in gen_batches(len(y_true), max(1, _PAIRS_AT_ONCE // means[:, 0].size)):
        part = (weights[:, rows], means[:, rows], variances[:, rows])
        values[rows] = mixture_crps(y_true[rows], *part)
    return _average(values, sample_weight)


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
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        What happened.
    lower, upper : array-likes of the shape of `y_true`
        Ends of the predicted intervals.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.

    Returns
    -------
    coverage : float
        Mean over rows and outputs, between 0 and 1.

    Raises
    ------
    ValueError
        If shapes do not match, numbers are not finite, weights are negative or all zero, or
        intervals end before they begin.

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
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        What happened.
    y_quantiles : array-like of shape (n_samples, n_alpha) or (n_samples, n_outputs, n_alpha)
        What was predicted, as :meth:`skdgp.DeepGPRegressor.predict_quantiles` returns it.
    alpha : array-like of shape (n_alpha,)
        Orders of the quantiles, between 0 and 1; with each `a` also `1 - a`. The median is ignored.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.

    Returns
    -------
    error : float
        Between 0 and 1, and smaller is better. For calibrated predictions of `n` rows, chance makes
        it about ``0.3 / sqrt(n)``.

    Raises
    ------
    ValueError
        If shapes do not match, numbers are not finite, weights are negative or all zero, or orders are
        not between 0 and 1 or no pairs of `a` and `1 - a`.

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


def mixture_crps(y, weights, means, variances):
    """The score of mixtures of Gaussians, element by element; see :func:`crps_gaussian_mixture`.

    Parameters
    ----------
    y : ndarray of shape (n, k)
    weights : ndarray that broadcasts against `means`
    means, variances : ndarrays of shape (c, n, k)

    Returns
    -------
    scores : ndarray of shape (n, k)
    """
    weights = np.broadcast_to(weights, means.shape)
    scores = (weights * _mean_size(y - means, variances)).sum(0)
    scores -= (np.square(weights) * np.sqrt(variances / np.pi)).sum(0)  # half of A(0, 2 v)
    for i in range(len(means) - 1):
        rest = slice(i + 1, None)
        size = _mean_size(means[i] - means[rest], variances[i] + variances[rest])
        scores -= weights[i] * (weights[rest] * size).sum(0)
    return np.maximum(scores, 0.0)


def _mean_size(mean, variance):
    """E|X| for X ~ N(mean, variance)."""
    std = np.sqrt(variance)
    with np.errstate(over="ignore"):
        z = mean / np.maximum(std, 1e-300)
        return mean * erf(np.sqrt(0.5) * z) + np.sqrt(2.0 / np.pi) * std * np.exp(-0.5 * z * z)
