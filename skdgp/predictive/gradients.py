"""Gradients of predictions in the rows, in units of the target and of the inputs."""

import numpy as np
import torch

from .._threads import computing
from ..gp.likelihoods.base import GaussianMixture
from .mixture import rows_at_once

_FEWER = 4  #: times the memory of a prediction that one with gradients takes


def check_numeric(predictor, X=None):
    """Raise ValueError if predictions are no functions of numbers, or rows have gaps."""
    if predictor.x_scaler.encoder is not None:
        raise ValueError(
            "Gradients, modules and joint moments need numeric columns without gaps, but the model was fitted "
            "to categories, dates or missing values; encode and fill them before fit."
        )
    if X is not None and np.isnan(X).any():
        raise ValueError("X contains NaN, where there is no gradient; fill the cells.")


def check_gaussian(predictor, latent=False):
    """Raise ValueError if the target is no mixture of Gaussians in its own units."""
    names = [name for name in predictor.y_scaler.names if name]
    if names:
        raise ValueError(
            f"The target was transformed by {names[0]!r}, and is no mixture of Gaussians in its own units; set "
            "target_transform=None."
        )
    if latent:
        return
    if predictor.masses is not None:
        raise ValueError(
            f"Values of the target have a probability of their own ({predictor.masses.values.tolist()}), and "
            "no density; set likelihood='heteroscedastic', or latent=True."
        )
    for member in predictor.members:
        if not isinstance(member.likelihood, GaussianMixture):
            raise ValueError(
                f"Targets with {type(member.likelihood).__name__} are no mixture of Gaussians; set latent=True."
            )


def gradients(predictor, X, function, offset=None):
    """Gradients (n, k, n_features) of tensors (n, k) that a `function` has of a distribution, as arrays.

    Each result of the function has one. Rows `X` (n, n_features) are numbers in the user's units.
    """
    predictor = predictor.differentiable()
    size, results = max(1, rows_at_once(predictor.members, predictor.device) // _FEWER), []
    with computing(predictor.n_threads):
        for first in range(0, len(X), size):
            piece = slice(first, first + size)
            rows = torch.tensor(X[piece], dtype=torch.float64, device=predictor.device)
            own = {} if offset is None else {"offset": offset[piece]}
            values = function(predictor.at(rows.requires_grad_(True), **own))
            results.append([_gradient(value, rows) for value in values])
    return [np.concatenate(parts) for parts in zip(*results)]


def _gradient(values, rows):
    """Gradients of all columns of `values`, each of which belongs to the row of its number."""
    columns = [
        torch.autograd.grad(column.sum(), rows, retain_graph=True, materialize_grads=True)[0]
        for column in values.unbind(1)
    ]
    return torch.stack(columns, 1).numpy(force=True)
