"""A layer whose units have kernels and inducing inputs of their own."""

import torch
from torch import nn

from ...gp.component import Trainable
from ...gp.layer import SparseLayer, sparse_moments


class _Kernels(nn.ModuleList):
    """The kernels of a layer's units."""

    def fitted(self):
        return [unit.fitted() for unit in self]


class SeparateLayer(SparseLayer):
    """Gaussian processes with a kernel, inducing inputs and a q(v) for each output.

    Parameters
    ----------
    kernel, n_inputs, n_outputs, n_inducing, **settings
        As for :class:`~skdgp.gp.layer.SparseLayer`; all units start with the same kernel. Their
        posterior covariances cannot be shared.

    Attributes
    ----------
    Z : tensor of shape (n_outputs, M, n_inputs)
    """

    def __init__(self, kernel, n_inputs, n_outputs, n_inducing, **settings):
        super().__init__(kernel, n_inputs, n_outputs, n_inducing, **settings)
        self.kernel = _Kernels(Trainable(kernel) for _ in range(n_outputs))
        self.Z = nn.Parameter(torch.zeros(n_outputs, n_inducing, n_inputs, dtype=torch.float64))

    def units(self):
        return [(kernel, self.Z[d], slice(d, d + 1)) for d, kernel in enumerate(self.kernel)]

    def shared_moments(self, H, q=None):
        q_mean, Q = self.q.moments(H.dtype) if q is None else q
        parts = [
            sparse_moments(kernel(), Z, H, q_mean[:, d], Q[d], self.jitter)
            for kernel, Z, d in self.units()
        ]
        return self._outputs(H, *(torch.cat(part, 1) for part in zip(*parts)))
