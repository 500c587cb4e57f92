"""One layer of Gaussian processes that are known at rows."""

import torch
from torch import nn

from .component import Trainable


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
