"""Scores of several outputs together, from draws."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist
from sklearn.utils import check_array

from .._checks import _average


def energy_score(
    y_true: ArrayLike, y_samples: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    r"""Energy score of draws of several outputs, the continuous ranked probability score of vectors.

    .. math:: S(P; y) = E \lVert Y - y \rVert - \tfrac12 E \lVert Y - Y' \rVert

    for independent draws :math:`Y, Y'` of the predictive distribution ([1]_, equation 22). It is smallest in
    expectation for the true distribution, and estimated without bias. Divide outputs of different units by
    their scales first.

    Parameters
    ----------
    y_true : array-like of shape (n_samples, n_outputs)
        What happened.
    y_samples : array-like of shape (n_samples, n_outputs, n_draws)
        Draws, two at least, as :meth:`skdgp.DeepGPRegressor.sample_y` returns them. Of one output at
        several rows, pass ``y[None], samples[None]``.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows.

    Returns
    -------
    score : float
        Mean over rows, in the unit of the target; smaller is better.

    Raises
    ------
    ValueError
        If shapes do not match, numbers are not finite, or weights are negative or all zero.

    See Also
    --------
    variogram_score : Sees wrong correlations better.

    References
    ----------
    .. [1] T. Gneiting and A. Raftery (2007). Strictly proper scoring rules, prediction, and
       estimation. Journal of the American Statistical Association 102.

    Examples
    --------
    >>> from skdgp.metrics import energy_score
    >>> energy_score([[0.0, 0.0]], [[[3.0, 0.0], [4.0, 0.0]]])
    0.0
    """
    y_true, y_samples = _joint(y_true, y_samples)
    to_target = np.linalg.norm(y_samples - y_true[..., None], axis=1).mean(1)
    apart = np.array([pdist(draws.T).mean() for draws in y_samples])
    return _average((to_target - 0.5 * apart)[:, None], sample_weight)


def variogram_score(
    y_true: ArrayLike,
    y_samples: ArrayLike,
    p: float = 0.5,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Variogram score of draws of several outputs, which sees how they depend on each other.

    .. math:: S(P; y) = \sum_{i \ne j} \left( |y_i - y_j|^p - E |Y_i - Y_j|^p \right)^2

    of order :math:`p` ([1]_, equation 7). It is smallest in expectation for the true distribution, and for
    others with the same differences of outputs, too.

    Parameters
    ----------
    y_true, y_samples, sample_weight
        As for :func:`energy_score`, of two outputs at least.
    p : float, default=0.5
        Order, larger than 0; small ones hardly mind outliers.

    Returns
    -------
    score : float
        Mean over rows; at least 0, and smaller is better.

    Raises
    ------
    ValueError
        As of :func:`energy_score`, or if there is one output, or `p` is not positive.

    References
    ----------
    .. [1] M. Scheuerer and T. Hamill (2015). Variogram-based proper scoring rules for probabilistic forecasts
       of multivariate quantities. Monthly Weather Review 143.

    Examples
    --------
    >>> from skdgp.metrics import variogram_score
    >>> variogram_score([[0.0, 4.0]], [[[0.0, 0.0], [1.0, 1.0]]])
    2.0
    """
    y_true, y_samples = _joint(y_true, y_samples)
    if y_true.shape[1] < 2:
        raise ValueError("variogram_score compares outputs with each other, and there is one.")
    if not p > 0.0:
        raise ValueError(f"p must be larger than 0; got {p!r}.")

    def differences(y):
        return np.abs(y[:, :, None] - y[:, None]) ** p

    expected = [differences(draws.T).mean(0) for draws in y_samples]
    errors = np.square(differences(y_true) - expected).sum((1, 2))
    return _average(errors[:, None], sample_weight)


def _joint(y_true, y_samples):
    """Checked targets (n, k) and draws (n, k, n_draws)."""
    y_true = check_array(y_true, dtype=np.float64, input_name="y_true")
    y_samples = check_array(y_samples, dtype=np.float64, allow_nd=True, input_name="y_samples")
    if y_samples.ndim != 3 or y_samples.shape[:2] != y_true.shape or y_samples.shape[2] < 2:
        raise ValueError(
            f"y_samples must have shape {(*y_true.shape, 'n_draws')}, with two draws at least; got "
            f"{y_samples.shape}."
        )
    return y_true, y_samples
