"""A layer whose units have kernels and inducing inputs of their own."""

import torch
from torch import nn

from ...gp.component import Trainable
from ...gp.layer import SparseLayer, sparse_moments
from .matching import matched_moments, moments_by_quadrature


class _Kernels(nn.ModuleList):
    """The kernels of a layer's units."""

    def forward(self):
        return [unit() for unit in self]

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

    def _units(self, q):
        """Kernel, inducing inputs, mean and covariance of each unit."""
        q_mean, Q = q
        for d, kernel in enumerate(self.kernel()):
            yield kernel, self.Z[d], q_mean[:, d : d + 1], Q[d : d + 1]

    def shared_moments(self, H, q=None):
        q = self.q.moments(H.dtype) if q is None else q
        parts = [
            sparse_moments(kernel, Z, H, q_mean, Q, self.jitter)
            for kernel, Z, q_mean, Q in self._units(q)
        ]
        mean, var = (torch.cat(part, 1) for part in zip(*parts))
        return self._outputs(H, mean, var)

    def covariance(self, H):
        parts = [
            sparse_covariance(kernel, Z, H, Q, self.jitter)
            for kernel, Z, _, Q in self._units(self.q.moments())
        ]
        return torch.cat(parts)

    def matched_moments(self, m, v, q, n_random):
        if self.kernel()[0].psi is None:
            return moments_by_quadrature(lambda H: self.moments(H, q), m, v, n_random)
        parts = []
        for d, (kernel, Z, q_mean, Q) in enumerate(self._units(q)):
            W = None if self.W is None else self.W[:, d : d + 1]
            parts.append(matched_moments(kernel, Z, m, v, q_mean, Q, W, self.jitter))
        mean, var = (torch.cat(part, 1) for part in zip(*parts))
        return mean, var + self.noise()

    def function(self, n_functions, n_features, generator):
        v = self.q.sample(n_functions, generator).split(1, -1)
        units = [
            draw_functions(
                kernel, Z, 1, lambda v=v: v, self.jitter, n_functions, n_features, generator
            )
            for kernel, Z, v in zip(self.kernel(), self.Z, v)
        ]
        return lambda H: torch.cat([unit(H) for unit in units], -1) + self.mean_function(H)
