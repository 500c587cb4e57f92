"""Exposures of counts: from arrays, or from a column of X that the parameter `exposure` names."""

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from .._arrays import as_numpy, check_no_dates
from .._warnings import warn
from .group_codes import as_levels, with_groups
from .row_columns import values


def fitted_exposure(estimator, X, exposure, reset):
    """The exposure of rows to learn from, and a record of whether there is one.

    Raises
    ------
    ValueError
        If it is given twice, or not at all where the first rows had one.
    """
    if exposure is not None and "exposure" in estimator._row_positions:
        raise ValueError("exposure is given twice, as an array and as a column of X; give one.")
    exposure = _given(estimator, X, exposure)
    if reset:
        estimator._exposed = exposure is not None
    elif estimator._exposed and exposure is None:
        raise ValueError(
            "The first rows had an exposure, and these have none; give exposure here, too."
        )
    return None if exposure is None else log_exposure(exposure, len(X))


def exposed_rows(model, X, exposure, missing="warn", groups=None):
    """Validated inputs, and offsets (n, 1) of latent functions for exposures; None without these.

    Inputs have codes of `groups` behind them if these are given. If an exposure is `missing` that ``fit`` had,
    there is a warning, an error ("raise"), or neither ("ignore").
    """
    check_is_fitted(model)
    rows = model._check_X(X)
    exposure = _given(model, as_numpy(X), exposure)
    if exposure is None and missing != "ignore":
        check_exposed(model, missing)
    elif np.ndim(exposure) == 0 and exposure is not None:
        exposure = np.full(len(rows), exposure)
    offset = log_exposure(exposure, len(rows))
    check_has_rate(model.members_[0].likelihood, offset)
    if groups is not None:
        rows = with_groups(model, rows, as_levels(groups, len(rows)))
    return rows, offset


def check_exposed(model, missing="raise"):
    """Warn or raise ValueError if counts of a model had an exposure, which now is missing."""
    if not getattr(model, "_exposed", False) or "exposure" in model._row_positions:
        return
    if missing == "raise":
        raise ValueError(
            "The model was fitted with an exposure, and scores of counts need that of their rows: give "
            "exposure here, too, or let the parameter name its column of X, as exposure='months'."
        )
    warn(
        "The model was fitted with an exposure, and predictions without one are for an exposure of 1; give "
        "exposure=1 if that is meant.",
        UserWarning,
    )


def _given(estimator, X, exposure):
    position = estimator._row_positions.get("exposure")
    return exposure if exposure is not None or position is None else values(X, position)


def log_exposure(exposure, n_rows):
    """Logarithms (n_rows, 1) of exposures; None if there are none.

    Raises
    ------
    ValueError
        If they are no exposures.
    """
    if exposure is None:
        return None
    exposure = as_numpy(exposure)
    check_no_dates(exposure, "exposure")
    exposure = check_array(
        exposure,
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


def check_has_rate(likelihood, log_exposure):
    """Raise ValueError if there are exposures, and the likelihood has no rate."""
    if log_exposure is not None and not likelihood.discrete:
        raise ValueError(
            "exposure is for likelihood='poisson' or 'negative_binomial', whose rates are per unit of it; "
            f"{type(likelihood).__name__} has no rate, so leave exposure out."
        )
