"""Gaussian processes that are known at rows: a layer, marginal likelihood and leave-one-out moments."""

import numpy as np
import torch
from torch import nn

from ..linalg import LOG_2PI, LogNormal
from .component import Trainable


def log_marginal_likelihood(y, K, noise, weight, white=0.0):
    """Log marginal likelihood of rows, of which one of weight w stands for w rows with its target.

    Parameters
    ----------
    y : tensor of shape (k, n)
    K : tensor of shape (n, n)
        Covariance of the function.
    noise : tensor of shape (k, 1)
        Variance of a row that counts once.
    weight : tensor of shape (n,)
    white : tensor of shape (n,), or float
        Added to the diagonal.

    Returns
    -------
    value : tensor of shape ()
    """
    value = LogNormal.apply(y, K + torch.diag_embed(noise / weight + white))
    # of the rows that a row stands for, all but their mean
    return value - 0.5 * (weight.log() + (weight - 1.0) * (LOG_2PI + noise.log())).sum()


def leave_one_out(y, a, precision):
    """Mean and variance of each target given all others, noise included.

    Rasmussen and Williams (2006), equations 5.10 to 5.12.

    Parameters
    ----------
    y, a : tensors of shape (..., n)
        Targets, and ``C^{-1} y`` for their covariance matrix C.
    precision : tensor of shape (..., n)
        Diagonal of ``C^{-1}``.
    """
    var = 1.0 / precision
    return y - a * var, var


class RowsLayer(nn.Module):
    """Gaussian processes with a common kernel, and the rows at which they are known.

    Parameters
    ----------
    kernel : Kernel
        Bound to the number of inputs.
    n_inputs, n_outputs : int
    n_inducing : int
        Unused: all rows take the place of inducing points.
    linear_mean : bool
        Whether the outputs have the mean ``h W`` with a fixed matrix `W`, or zero.

    Attributes
    ----------
    Z : tensor of shape (P, n_inputs)
        Inputs of the rows; none before :meth:`hold`.
    y : tensor of shape (P, n_outputs)
    weight : tensor of shape (P,)
    """

    roles = {"W": "mean", "Z": "rows", "y": "rows", "weight": "rows"}

    def __init__(self, kernel, n_inputs, n_outputs, n_inducing=0, linear_mean=False):
        super().__init__()
        self.n_outputs, self.n_inducing = n_outputs, 0
        self.kernel = Trainable(kernel)
        W = torch.zeros(n_inputs, n_outputs, dtype=torch.float64) if linear_mean else None
        self.register_buffer("W", W)
        for name, width in (("Z", (n_inputs,)), ("y", (n_outputs,)), ("weight", ())):
            self.register_buffer(name, torch.empty((0, *width), dtype=torch.float64))

    def mean_function(self, H):
        return 0.0 if self.W is None else H @ self.W

    def start(self, Z, W, rng):
        """Take a mean function, as :class:`~skdgp.gp.layer.SparseLayer`."""
        if self.W is not None and W is not None:
            self.W[: len(W)].copy_(W)

    def hold(self, **rows):
        for name, values in rows.items():
            setattr(self, name, values.to(self.Z))

    def differ(self, arrays, prefix):
        """Whether a state holds other rows."""
        rows = {name: torch.tensor(arrays[prefix + name]) for name in ("Z", "y", "weight")}
        return any(not torch.equal(getattr(self, name).cpu(), rows[name]) for name in rows)

    @torch.no_grad()
    def metric(self, n_inputs):
        """Units in which near rows are alike: lengthscales of the kernel, as far as it has any."""
        metric = torch.as_tensor(self.kernel().metric).cpu().numpy()
        return np.broadcast_to(metric, n_inputs).copy()
