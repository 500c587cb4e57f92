"""Rows as users give them become the table that a fit takes."""

import numpy as np
from sklearn.utils import check_array, check_consistent_length

from .._arrays import as_numbers, as_numpy
from ..fitting.table import Table, some_rows
from ._sklearn import check_sample_weight
from .arrays import check_inputs
from .exposures import fitted_exposure
from .group_codes import are_behind, as_levels, check_groups, with_groups
from .known_noise import precisions
from .later_rows import in_order, is_time, latest, warn_of_order
from .row_columns import positions
from .summary import names_of_targets
from .targets import check_size, without_missing


def read_rows(
    estimator,
    X,
    y,
    sample_weight,
    exposure,
    reset,
    extend=False,
    classes=None,
    left_out=None,
    noise_variance=None,
    groups=None,
):
    """The rows of positive weight, with targets as likelihoods see them; and all, validated."""
    X = as_numpy(X)
    if reset:
        estimator._target_names = names_of_targets(y)
        estimator._row_positions = positions(estimator, X)
        vars(estimator).pop("_groups", None)  # those of another fit
    offset = fitted_exposure(estimator, X, exposure, reset)
    given, y = X, as_numpy(y)
    missing = None
    if estimator._takes_missing:
        y, missing = without_missing(y, 2 if reset else 0)
    X, y = check_inputs(estimator, X, y, reset, extend, **estimator._y_checks)
    if missing is not None:
        y = np.where(missing, np.nan, as_numbers(y))
    weights, rows = np.broadcast_to(1.0, len(X)), slice(None)  # which take no memory
    if sample_weight is not None:
        weights = check_sample_weight(as_numpy(sample_weight), X)
        rows = rows if weights.all() else np.flatnonzero(weights > 0)
    reader = estimator._reader
    kinds = None if reader is None or reader.plain else reader.kinds
    targets = estimator._encode(y, reset, classes, rows)
    check_size(targets)
    offset = offset if offset is None else offset[rows]
    targets_are_numbers = estimator._n_classes() is None  # of classes, models know no groups
    some, left = some_rows(X, rows), {}
    if left_out is not None:
        told = left_out.is_given(estimator)
        dates = None if told else in_order(estimator, kinds, some, targets)
        if reset and dates is not None and is_time(estimator, kinds, some, dates):
            estimator._row_positions["time"] = dates
        left = left_out.numbers(estimator, given, rows)
        estimator._latest = latest(estimator, kinds, some)
        if dates is not None and not left:
            warn_of_order(estimator, dates)
        groups = left_out.groups if targets_are_numbers else None
        if not reset and targets_are_numbers:
            check_groups(estimator, groups)
    groups = None if groups is None else np.array(as_levels(groups, len(X)), dtype=object)[rows]
    some = with_groups(estimator, some, groups, learns=extend or left_out is not None)
    behind = are_behind(estimator)
    kinds = [*kinds, "number"] if behind and kinds is not None else kinds
    precision = precisions(estimator, noise_variance, len(X), reset)
    table = Table(some, targets, weights[rows], kinds, offset, **left)
    table.group = X.shape[1] if behind else estimator._row_positions.get("groups")
    table.precision = precision if precision is None else precision[rows]
    return table, X, y


def raw_arguments(X, y, sample_weight, exposure, noise_variance):
    """Rows as ``fit`` was given them, for callbacks."""
    given = {"sample_weight": sample_weight, "exposure": exposure, "noise_variance": noise_variance}
    metadata = {name: value for name, value in given.items() if value is not None}
    return {"X": X, "y": y, "metadata": metadata or None}


def held_out_rows(estimator, X_val, y_val, sample_weight_val, exposure_val):
    """The table of the rows that ``fit`` was given beside its own; None without them."""
    given = X_val, y_val, sample_weight_val, exposure_val
    if all(part is None for part in given):
        return None
    if X_val is None or y_val is None:
        others = "sample_weight_val and exposure_val only with both"
        raise ValueError(f"X_val and y_val must be given together, and {others}.")
    try:
        table = estimator._rows(*given, reset=False)[0]
        if np.isnan(table.y).any():
            raise ValueError("Input y contains NaN: leave out rows without all their targets.")
        return table
    except ValueError as error:
        names = "(X_val, y_val, sample_weight_val, exposure_val)"
        raise ValueError(f"Held-out rows {names}: {error}") from error


def read_targets(estimator, X, y):
    """Targets (n, k) of rows that are predicted, as likelihoods see them."""
    y = check_array(as_numpy(y), ensure_2d=False, dtype=None, input_name="y")
    check_consistent_length(X, y)
    y = estimator._encode(y, reset=False)
    estimator._check_likelihood(estimator.members_[0].likelihood, y)
    return y
