"""Checks of arguments and averages, for distributions, metrics and scorers."""

from numbers import Real

import numpy as np
from sklearn.utils import check_array, check_consistent_length


def _columns(values, name):
    """As floats of shape (n_samples, n_outputs)."""
    values = check_array(values, ensure_2d=False, dtype=np.float64, input_name=name)
    return values[:, None] if values.ndim == 1 else values


def _components(values, name):
    """As floats of shape (n_components, n_samples, n_outputs)."""
    values = check_array(values, allow_nd=True, dtype=np.float64, input_name=name)
    return values[:, :, None] if values.ndim == 2 else values


def _same_shape(y_true, **others):
    y_true = _columns(y_true, "y_true")
    columns = [_columns(values, name) for name, values in others.items()]
    check_consistent_length(y_true, *columns)
    for name, values in zip(others, columns):
        if values.shape != y_true.shape:
            raise ValueError(
                f"y_true and {name} have different number of output "
                f"({y_true.shape[1]}!={values.shape[1]})"
            )
    return y_true, *columns


def _interval(y_true, lower, upper):
    y_true, lower, upper = _same_shape(y_true, lower=lower, upper=upper)
    if (lower > upper).any():
        raise ValueError("Some intervals end before they begin: lower is larger than upper.")
    return y_true, lower, upper


def _quantiles(y_true, y_quantiles, alpha):
    y_true = _columns(y_true, "y_true")
    alpha = check_alpha(alpha)
    y_quantiles = check_array(
        y_quantiles, allow_nd=True, dtype=np.float64, input_name="y_quantiles"
    )
    if y_quantiles.ndim == 2:
        y_quantiles = y_quantiles[:, None]
    check_consistent_length(y_true, y_quantiles)
    _check_shape("y_quantiles", y_quantiles, (*y_true.shape, len(alpha)))
    return y_true, y_quantiles, alpha


def _check_shape(name, values, shape):
    if values.shape != shape:
        raise ValueError(
            f"{name} has shape {values.shape}, but shape {shape} was expected from the other arguments."
        )


def _check_not_negative(values, name):
    if (values < 0.0).any():
        raise ValueError(f"Negative values in data passed to {name}.")


def check_alpha(alpha, name="alpha") -> np.ndarray:
    """Orders of quantiles (n_alpha,); ValueError if there are none, or not all between 0 and 1."""
    alpha = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    if alpha.ndim != 1 or alpha.size == 0 or not ((alpha > 0.0) & (alpha < 1.0)).all():
        raise ValueError(f"{name} must hold numbers between 0 and 1, as .95 for 95 %; got {alpha}.")
    return alpha


def check_coverage(coverage) -> None:
    """Raise ValueError unless the coverage of an interval is between 0 and 1."""
    if not isinstance(coverage, Real) or not 0.0 < float(coverage) < 1.0:
        raise ValueError(f"coverage must lie between 0 and 1; got {coverage!r}.")


def check_asked(return_std, return_cov, latent, quantiles, decompose):
    """Raise unless ``predict`` is asked for one kind of result, see :meth:`DeepGPRegressor.predict`."""
    if decompose and (not return_std or return_cov or latent or quantiles is not None):
        raise ValueError(
            "decompose=True takes the standard deviation of y apart; it needs return_std=True, and no "
            "return_cov, latent or quantiles."
        )
    if quantiles is not None and (return_std or return_cov or latent):
        raise ValueError(
            "quantiles cannot be combined with return_std, return_cov or latent; ask for them alone."
        )
    if return_std and return_cov:
        raise RuntimeError("At most one of return_std or return_cov can be requested.")


def _weights(sample_weight, y):
    """Weights of the rows, or None."""
    if sample_weight is None:
        return None
    weights = check_array(
        sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        ensure_non_negative=True,
        input_name="sample_weight",
    )
    if weights.ndim != 1:
        raise ValueError("Sample weights must be 1D array or scalar")
    check_consistent_length(y, weights)
    if not weights.any():
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weights


def _average(values, sample_weight):
    """Weighted mean over rows, mean over outputs."""
    values = values.reshape(len(values), -1).mean(1)
    return float(np.average(values, weights=_weights(sample_weight, values)))
