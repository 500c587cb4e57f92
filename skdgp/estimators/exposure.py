"""Exposures of counts."""

import numpy as np
from sklearn.utils import check_array

from .arrays import as_numpy


def log_exposure(exposure, n_rows):
    """Logarithms (n_rows, 1) of exposures; None if there are none.

    Raises ValueError if there are not as many as rows, or some are not positive and finite.
    """
    if exposure is None:
        return None
    exposure = check_array(
        as_numpy(exposure),
        ensure_2d=False,
        dtype=np.float64,
        ensure_all_finite=False,
        input_name="exposure",
    )
    if exposure.shape not in ((n_rows,), (n_rows, 1)):
        raise ValueError(
            f"exposure must have one number for each of the {n_rows} rows; got shape {exposure.shape}."
        )
    exposure = exposure.reshape(-1, 1)
    bad = ~((exposure > 0.0) & np.isfinite(exposure))
    if bad.any():
        raise ValueError(
            f"exposure must be positive and finite, but is {exposure[bad][0]:g} in row "
            f"{np.flatnonzero(bad)[0]}; leave out rows that were not observed."
        )
    return np.log(exposure)


def exposure_of(model, exposure, n_rows):
    """Logarithms (n_rows, 1) of exposures for a fitted estimator; None if there are none."""
    offset = log_exposure(exposure, n_rows)
    check_has_rate(model.members_[0].likelihood, offset)
    return offset


def check_has_rate(likelihood, log_exposure):
    """Raise ValueError if there are exposures, and the likelihood has no rate."""
    if log_exposure is not None and not likelihood.discrete:
        raise ValueError(
            "exposure is for likelihood='poisson' or 'negative_binomial', whose rates are per unit of it; "
            f"{type(likelihood).__name__} has no rate, so leave exposure out."
        )
