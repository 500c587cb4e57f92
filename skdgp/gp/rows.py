"""Gaussian processes that are known at rows: a layer, marginal likelihood and leave-one-out moments."""

import numpy as np
import torch

from ..linalg import LOG_2PI, LogNormal
from .stack import Layer


def log_marginal_likelihood(y, K, noise, weight, white=0.0):
    """Log marginal likelihood of rows, of which one of weight w stands for w rows with its target.

    `noise` (k, 1) is the variance of a row that counts once, and `white` is added to the diagonal.
    """
    value = LogNormal.apply(y, K + torch.diag_embed(noise / weight + white))
    # of the rows that a row stands for, all but their mean
    return value - 0.5 * (weight.log() + (weight - 1.0) * (LOG_2PI + noise.log())).sum()


def leave_one_out(y, a, precision):
    """Moments of each target given all others (Rasmussen and Williams, 2006, eqs. 5.10 to 5.12)."""
    var = 1.0 / precision
    return y - a * var, var


FEW_ROWS = 250  #: rows by which choices are made before training, in tenths of a second
#: rounding: unit of inputs in which functions do not change, whose true one is infinite
_FLAT = 1e12


class RowsLayer(Layer):
    """Gaussian processes with a common kernel, and the rows at which they are known."""

    roles = {**Layer.roles, "Z": "rows", "y": "rows", "weight": "rows"}

    def __init__(self, kernel, n_inputs, n_outputs, n_inducing=0, linear_mean=False):
        super().__init__(kernel, n_inputs, n_outputs, linear_mean)
        for name, width in (("Z", (n_inputs,)), ("y", (n_outputs,)), ("weight", ())):
            self.register_buffer(name, torch.empty((0, *width), dtype=torch.float64))

    def hold(self, **rows):
        for name, values in rows.items():
            # products round by the order in memory: that of a model that is loaded
            setattr(self, name, values.to(self.Z).contiguous())

    def differ(self, arrays, prefix):
        """Whether a state holds other rows."""
        rows = {name: torch.tensor(arrays[prefix + name]) for name in ("Z", "y", "weight")}
        return any(not torch.equal(getattr(self, name).cpu(), rows[name]) for name in rows)

    @torch.no_grad()
    def metric(self, n_inputs):
        """Units in which near rows are alike: lengthscales of the kernel, as far as it has any."""
        metric = torch.as_tensor(self.kernel().metric).cpu().numpy()
        return np.minimum(np.broadcast_to(metric, n_inputs), _FLAT)
