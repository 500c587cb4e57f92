"""Lengthscales of fitted models, in units of the columns of X."""

from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..gp.kernels import OnColumns, Warped
from .summary import input_names

_STEP = 1e-4  #: standard deviations, over which the slope of a warp is measured


def lengthscales(estimator: BaseEstimator) -> Any:
    """Lengthscales of the models, in units of the columns of X.

    They are those of the first layer, and of samplers their posterior means. Where inputs are warped, they hold
    at the mean of the column.

    Returns
    -------
    lengthscales : pandas.DataFrame
        A row for each input: a column of X, or one of the numbers that stand for a date or a category. A column
        for each model or, if its kernel is made of several with lengthscales, for each of them. Models whose
        kernel has none, as ``"linear"``, have no column. NaN where a kernel does not look at an input, or the
        input was constant in training.

    Raises
    ------
    AttributeError
        If pandas is not installed.
    """
    check_is_fitted(estimator)
    if estimator._lengthscales is not None:
        return estimator._lengthscales
    try:
        import pandas
    except ImportError as error:  # not of another kind: `dir` asks whether there is the attribute
        raise AttributeError("lengthscales_ is a data frame; install pandas.") from error
    scaler, names = estimator._x_scaler, input_names(estimator)
    found: dict[str, np.ndarray] = {}
    sources = np.arange(len(scaler.constants)) if scaler.encoder is None else scaler.encoder.sources
    suffixes = [""] * len(sources) if scaler.encoder is None else scaler.encoder.suffixes
    levels = scaler.columns[np.asarray(scaler.codes, dtype=int)]  # which have no distances
    inputs, unit = 0 if scaler.blank else len(scaler.columns), _units(scaler)
    for member in estimator.members_:
        for name, values in _of_member(member, max(1, inputs)):
            column = np.full(len(sources), np.nan)
            column[scaler.columns[:inputs]] = values[:inputs] * unit[:inputs]
            found[_unused(name, found)] = column
    index = [names[j] + suffix for j, suffix in zip(sources, suffixes)]
    return pandas.DataFrame(found, index=index).drop([index[j] for j in levels])


def _units(scaler):
    """Changes of inputs that change scaled ones by one, at their means."""
    center = torch.zeros(1, len(scaler.constants), dtype=torch.float64)
    center[:, scaler.columns] = torch.as_tensor(scaler.center)
    step = torch.zeros_like(center)
    step[:, scaler.columns] = _STEP * torch.as_tensor(scaler.scale)
    ends = (scaler.scaled(part)[0].numpy() for part in (center + step, center - step))
    return 2.0 * _STEP * scaler.scale / np.where(scaler.blank, 1.0, np.subtract(*ends))


def _of_member(member, n_features):
    """Names, and lengthscales (n_features,) in units of scaled inputs, of parts of the first kernel."""
    name, kernels = type(member.scheme).__name__, member.kernels_[0]
    if not isinstance(kernels, list):
        return _named(name, kernels, n_features)
    units = [_named(f"{name}, unit {i}", one, n_features) for i, one in enumerate(kernels, 1)]
    return [part for unit in units for part in unit]


def _named(name, kernel, n_features):
    parts = list(_parts(kernel, n_features))
    return [(name if len(parts) == 1 else f"{name}, {kind}", values) for kind, values in parts]


def _parts(kernel, n_features):
    """Class names and lengthscales of the kernel, or of those that it is made of."""
    if isinstance(kernel, OnColumns):
        for kind, values in _parts(kernel.kernel, len(kernel.columns)):
            whole = np.full(n_features, np.nan)
            whole[np.asarray(kernel.columns)] = values
            yield kind, whole
    elif isinstance(kernel, Warped):
        step = torch.full((1, n_features), _STEP, dtype=torch.float64)
        slope = (kernel.warp(step) - kernel.warp(-step))[0].numpy() / (2.0 * _STEP)
        for kind, values in _parts(kernel.kernel, n_features):
            yield kind, values / slope
    elif kernel._parts:
        for part in kernel._parts:
            yield from _parts(getattr(kernel, part), n_features)
    elif "lengthscale" in kernel._of_inputs:
        yield type(kernel).__name__, np.broadcast_to(kernel.lengthscale, n_features)


def _unused(name, names):
    """The name, with a number if it is taken."""
    taken = sum(one == name or one.startswith(f"{name} (") for one in names)
    return f"{name} ({taken + 1})" if taken else name
