"""Noise whose variances are known, row by row."""

import numpy as np
from sklearn.utils import check_array, check_consistent_length

from .._arrays import as_numpy, check_no_dates
from ..gp.likelihoods import Gaussian, HeteroscedasticGaussian


def precisions(estimator, noise_variance, n_rows, reset):
    """Precisions (n_rows,) of rows over that of the mean variance, which the estimator keeps; None if unknown.

    Raises
    ------
    ValueError
        If variances are not positive and one for each row, or the estimator cannot use them.
    """
    if reset:
        estimator._known_noise = None
    if noise_variance is None:
        return None
    if estimator._n_classes() is not None:
        raise ValueError("noise_variance is for numbers, and classes have none; leave it out.")
    check_no_dates(noise_variance, "noise_variance")
    variance = check_array(
        as_numpy(noise_variance), ensure_2d=False, dtype=np.float64, input_name="noise_variance"
    )
    if variance.ndim != 1:
        raise ValueError(
            f"noise_variance needs one number for each row; got shape {variance.shape}."
        )
    check_consistent_length(np.empty(n_rows), variance)
    if not (variance > 0.0).all():
        raise ValueError(
            f"noise_variance must be positive, but is {variance.min():g} in row {variance.argmin()}; for runs "
            "without noise set noise='none'."
        )
    if reset:
        estimator._known_noise = float(variance.mean())
    elif estimator._known_noise is None:
        raise ValueError(
            "The first rows had no noise_variance; leave it out, or fit all rows anew."
        )
    return estimator._known_noise / variance


def with_known_noise(estimator, likelihood):
    """The likelihood with the mean variance, if variances are known.

    Raises
    ------
    ValueError
        If other settings do not allow it.
    """
    variance = estimator._known_noise
    if variance is None:
        return likelihood
    if getattr(estimator, "noise", "auto") != "auto":
        raise ValueError("noise='none' and noise_variance are both given; give one.")
    if getattr(estimator, "target_transform", None) not in ("auto", None):
        raise ValueError(
            "noise_variance is in squared units of the target, which a map bends; set target_transform=None."
        )
    if type(likelihood) not in (Gaussian, HeteroscedasticGaussian):
        raise ValueError(
            "noise_variance needs Gaussian noise; set likelihood to 'auto', 'gaussian' or 'heteroscedastic'."
        )
    return type(likelihood)(variance, trainable=False)
