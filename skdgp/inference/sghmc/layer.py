"""A sparse layer whose whitened inducing outputs are given."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from ...gp.component import Trainable
from ...gp.frozen import FrozenLayer, FrozenUnits
from ...linalg import cholesky, inverse_triangular

LEAST_VARIANCE = 1e-10  #: of rows given the inducing outputs


class SampledLayer(nn.Module):
    """Gaussian processes of rows given their values ``u = L v`` at inducing inputs.

    Parameters
    ----------
    kernel : Kernel
        Bound to the number of inputs.
    n_inputs, n_outputs, n_inducing : int
    linear_mean : bool
        Whether the outputs have the mean ``h W`` with a fixed matrix `W`, or zero.
    jitter : float
    """

    q = None  #: no Gaussian posterior, which a start could set

    def __init__(self, kernel, n_inputs, n_outputs, n_inducing, linear_mean, jitter=1e-6):
        super().__init__()
        self.n_outputs, self.jitter = n_outputs, jitter
        self.kernel = Trainable(kernel)
        self.Z = nn.Parameter(torch.zeros(n_inducing, n_inputs, dtype=torch.float64))
        W = torch.zeros(n_inputs, n_outputs, dtype=torch.float64) if linear_mean else None
        self.register_buffer("W", W)

    def mean_function(self, H):
        return 0.0 if self.W is None else H @ self.W.to(H.dtype)

    def whitening(self):
        """The inverse of the Cholesky factor of the inducing inputs' covariance."""
        return inverse_triangular(cholesky(self.kernel()(self.Z, self.Z), self.jitter))

    def frozen(self):
        """The layer at rest, without inducing outputs: each state has its own."""
        Z, W = self.Z.detach().clone(), None if self.W is None else self.W.clone()
        nothing = Z.new_zeros(len(Z), self.n_outputs)
        units = FrozenUnits(self.kernel.frozen(), Z, nothing, None, self.jitter)
        return FrozenLayer([units], W, Z.new_zeros(()))

    def project(self, H, whitening):
        """Whitened projections ``A = L^{-1} k(Z, h)``, and what they leave of the variances.

        Parameters
        ----------
        H : tensor of shape (C, B, n_inputs)
        whitening : tensor of shape (M, M)

        Returns
        -------
        A : tensor of shape (C, M, B)
        variance : tensor of shape (C, B)
        """
        rows, kernel = H.reshape(-1, H.shape[-1]), self.kernel()
        A = whitening.to(H.dtype) @ kernel(self.Z.to(H.dtype), rows)
        variance = (kernel.diag(rows) - A.square().sum(0)).clamp_min(LEAST_VARIANCE)
        return A.view(len(A), *H.shape[:2]).transpose(0, 1), variance.view(H.shape[:2])


class Gram(torch.autograd.Function):
    """``P P^T``, whose way back is one product."""

    @staticmethod
    def forward(ctx, P):
        ctx.save_for_backward(P)
        return P @ P.mT

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        return (G + G.mT) @ ctx.saved_tensors[0]
