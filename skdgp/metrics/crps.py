"""Continuous ranked probability score of Gaussians and their mixtures."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erf
from sklearn.utils import check_array, gen_batches

from .._checks import (
    _average,
    _check_not_negative,
    _check_shape,
    _columns,
    _components,
    _same_shape,
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
        If shapes do not match, numbers are not finite, sample weights are negative or all zero, variances are
        negative, or `weights` are negative or do not sum to one.

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


def mixture_crps(y, weights, means, variances):
    """The score of mixtures (c, n, k) of Gaussians, for each element of `y` (n, k).

    See :func:`crps_gaussian_mixture`; weights need only broadcast against means.
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
