"""Warnings of dates: rows of training in their order, and rows to predict that are later than all of these."""

import numpy as np

from .._warnings import warn
from .times import length_of

_ORDERED_ROWS = 50  #: and more, of which an order of dates is no chance
_ALIKE = 0.5  #: correlation of targets that follow each other
_MOSTLY = 0.5  #: share of the rows
_ROUNDING = 1e-9  #: of a time, relative to the span


def latest(estimator, kinds, X):
    """For each column of dates, and that of time, the largest number that predictions are meant for.

    It is the last training row's, and of the column of time later by the horizon.
    """
    found, time = {}, estimator._row_positions.get("time")
    for j in {*_dates(kinds), time} - {None}:
        values = X[:, j][~np.isnan(X[:, j])]
        if not len(values):
            continue
        found[j], span = float(values.max()), float(np.ptp(values))
        if j == time:
            has_unit = kinds is not None and kinds[j] != "number"
            found[j] += length_of(estimator.horizon, has_unit, span) + _ROUNDING * span
    return found


def warn_if_in_order(estimator, kinds, X, y):
    """Warn of targets that are alike where dates follow each other, if no time was given."""
    dates = _dates(kinds) if "time" in estimator.get_params(deep=False) else []
    if not dates or len(X) < _ORDERED_ROWS:
        return
    steps = np.diff(y[:, 0] - y[:, 0].mean())
    variance = np.var(y[:, 0])
    likeness = 1.0 - 0.5 * np.mean(steps**2) / variance if variance > 0.0 else 0.0
    if likeness < _ALIKE:
        return
    for j in dates:
        if (np.diff(X[:, j]) > 0.0).all():
            name = _name(estimator, j)
            warn(
                f"Rows are in the order of the dates in {name}, and targets are like those before them. If "
                f"predictions are for later dates, error bars are too short: set time={name}. If they are not, "
                "shuffle the rows.",
                UserWarning,
            )
            return


def warn_if_later(estimator, X):
    """Warn if most rows are later than predictions are meant for, see :func:`latest`."""
    for j, most in estimator._latest.items():
        share = np.mean(X[:, j] > most) if len(X) else 0.0
        if share > _MOSTLY:
            name = _name(estimator, j)
            if j == estimator._row_positions.get("time"):
                far, cure = "lie farther ahead than the horizon", "fit with a longer horizon"
            else:
                far, cure = "are later than all training rows", f"fit with time={name}"
            warn(
                f"{share:.0%} of the rows {far} by {name}, and error bars are not made for that; {cure}.",
                UserWarning,
            )


def _dates(kinds):
    """Positions of the columns of dates."""
    return [] if kinds is None else [j for j, kind in enumerate(kinds) if kind == "date"]


def _name(estimator, j):
    names = vars(estimator).get("feature_names_in_")
    return repr(j if names is None else str(names[j]))
