"""One layer of sparse Gaussian processes that share a kernel and inducing inputs."""

import math

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from ..linalg import (
    cholesky,
    current_workspace,
    gradient_of_gram,
    inverse_triangular,
    sum_of_products,
    symmetric_products,
    triangular_product,
)
from .covariances import RadialCovariances
from .frozen import FormLayer
from .gaussian import GaussianBlock
from .inducing import relocated
from .kernels import Stationary
from .kernels.base import tensor_like
from .stack import Layer

LEAST_VARIANCE = 1e-10  #: of rows given the inducing outputs


class _SparseMoments(torch.autograd.Function):
    r"""Mean and variance of the outputs from the kernel matrices and q(v).

    With :math:`A = L^{-1} K_{uf}` and :math:`Q_d = S_d - I`,
    :math:`m_d = A^T \mu_d` and :math:`v_d = k_{ff} + \mathrm{diag}(A^T Q_d A)`.

    The products :math:`Q_d A` are kept: two large products per output serve value and gradient, of which one
    is symmetric. The gradient of :math:`K_{uu}` needs :math:`dA\, A^T`, which follows from the gradients of
    q(v) by products of size M: it is :math:`2 \sum_d Q_d\, dQ_d + \mu\, d\mu^T`.
    The factor of `K_uu`, its inverse and their gradients have the dtype of `K_uu`. Everything with rows has
    the dtype of `K_uf`. So has :math:`dA\, A^T`, which starts from numbers that were rounded to it.
    """

    @staticmethod
    def forward(ctx, K_uu, K_uf, k_ff, q_mean, Q, jitter):
        (D, M, _), P, dtype = Q.shape, K_uf.shape[1], K_uf.dtype
        space = current_workspace()
        L_inv = inverse_triangular(cholesky(K_uu, jitter))
        R, m, Q = L_inv.to(dtype), q_mean.to(dtype), Q.to(dtype)
        A, QA = space.take((M, P), K_uf), space.take((D, M, P), K_uf)
        triangular_product(R, K_uf, A)
        torch.mm(Q.view(D * M, M), A, out=QA.view(D * M, P))
        # not by way of save_for_backward, which takes longer than their products: nobody writes into them
        ctx.small, ctx.large, ctx.space = (L_inv, R, m, Q), (A, QA), space
        return (m.T @ A).T, sum_of_products(QA, A, 1, space).add_(k_ff).T

    @staticmethod
    @once_differentiable
    def backward(ctx, g_mean, g_var):
        dK_uu, dK_uf, *of_q = _SparseMoments.of_matrices(ctx, g_mean, g_var)
        return dK_uu, dK_uf, g_var.sum(1), *of_q, None

    @staticmethod
    def of_matrices(ctx, g_mean, g_var):
        """Gradients of K_uu, K_uf, q_mean and Q, the latter in the precision of `K_uf`."""
        (L_inv, R, m, Q), (A, QA), space = ctx.small, ctx.large, ctx.space
        D, M, P = QA.shape
        g_mean, g_var = g_mean.T.contiguous(), g_var.T.contiguous()  # D, P
        dA = sum_of_products(QA, g_var[:, None], 0, space, out=space.take((M, P), A))
        QA = space.give(QA)
        dA.addmm_(m, g_mean, beta=2.0)
        dm = (g_mean @ A.T).T  # faster than A @ g_mean.T
        weighted = torch.mul(A, g_var[:, None], out=space.take((D, M, P), A))
        dQ = symmetric_products(weighted, A)
        dK_uf = triangular_product(R, dA, torch.empty_like(dA), transposed=True)
        if 2 * D * M < P:
            T = torch.addmm(m @ dm.T, Q.view(D * M, M).T, dQ.view(D * M, M), alpha=2.0)
        else:
            T = dA @ A.T
        dK_uu = gradient_of_gram(L_inv, T.to(L_inv.dtype))
        space.give(weighted), space.give(dA)
        ctx.large = space.give(A), QA
        return dK_uu, dK_uf, dm, dQ


class _RadialMoments(torch.autograd.Function):
    """:class:`_SparseMoments` of kernels of the scaled distance, from inputs and hyperparameters."""

    @staticmethod
    def forward(ctx, Z, H, lengthscale, variance, q_mean, Q, kernel, jitter):
        ctx.covariances = K = RadialCovariances(kernel, Z, H, lengthscale, variance)
        return _SparseMoments.forward(ctx, K.K_uu, K.K_uf, variance, q_mean, Q, jitter)

    @staticmethod
    @once_differentiable
    def backward(ctx, g_mean, g_var):
        dK_uu, dK_uf, *of_q = _SparseMoments.of_matrices(ctx, g_mean, g_var)
        K, of_rows = ctx.covariances, ctx.needs_input_grad[1]
        dZ, dH, d_lengthscale, d_variance = K.backward(dK_uu, dK_uf, of_rows)
        return dZ, dH, d_lengthscale, d_variance + g_var.sum(), *of_q, None, None


def sparse_moments(kernel, Z, H, q_mean, Q, jitter):
    """Mean and variance, (P, D), of outputs without mean function and noise."""
    if isinstance(kernel, Stationary) and kernel.is_radial:
        hyperparameters = tensor_like(kernel.lengthscale, Z), tensor_like(kernel.variance, Z)
        return _RadialMoments.apply(Z, H, *hyperparameters, q_mean, Q, kernel, jitter)
    K_uf, k_ff = kernel(Z.to(H.dtype), H), kernel.diag(H)
    return _SparseMoments.apply(kernel(Z, Z), K_uf, k_ff, q_mean, Q, jitter)


def noise_parameter(noise):
    """The logarithm of a variance as a parameter, or None for 0."""
    if noise == 0.0:
        return None
    return nn.Parameter(torch.tensor(math.log(noise), dtype=torch.float64))


class SparseLayer(Layer):
    """Gaussian processes with a common kernel, common inducing inputs and one q(v) for each output.

    With `linear_mean` the outputs have the mean ``h W`` with a fixed matrix `W`. With `scales`, each process is
    multiplied by a number of its own, which starts at 1. A variance that starts at
    `noise` is added to each output, and not to the inducing outputs; 0 stands for none. The
    :class:`GaussianBlock` of the layer starts with roots of `scale` times the identity, takes `natural`
    steps, and may have one covariance that all outputs share. A posterior `q` from elsewhere has `mean` and,
    for what needs them, `root`, or None, and `moments`.
    """

    roles = {**Layer.roles, "Z": "inducing_input", "log_noise": "noise", "log_scale": "scale"}

    def __init__(
        self,
        kernel,
        n_inputs,
        n_outputs,
        n_inducing,
        linear_mean=False,
        noise=0.0,
        scale=1.0,
        natural=False,
        shared=False,
        jitter=1e-6,
        q=None,
        scales=False,
    ):
        super().__init__(kernel, n_inputs, n_outputs, linear_mean)
        self.jitter = jitter
        self.Z = nn.Parameter(torch.zeros(n_inducing, n_inputs, dtype=torch.float64))
        self.q = GaussianBlock(n_inducing, n_outputs, scale, natural, shared) if q is None else q
        self.log_noise = noise_parameter(noise)
        scale = nn.Parameter(torch.zeros(n_outputs, dtype=torch.float64)) if scales else None
        self.register_parameter("log_scale", scale)

    def noise(self):
        return 0.0 if self.log_noise is None else torch.exp(self.log_noise)

    def scales(self):
        return None if self.log_scale is None else torch.exp(self.log_scale)

    @property
    def n_inducing(self):
        return len(self.Z)

    @torch.no_grad()
    def restart(self):
        """Give kernel, scales and posterior the values that they had before the first step."""
        self.kernel.restart()
        self.q.restart()
        if self.log_scale is not None:
            self.log_scale.zero_()

    def deviations(self):
        """Prior deviations (n_outputs,) of the processes, at the inducing inputs in the mean."""
        deviation = self.kernel().diag(self.Z).mean().sqrt()
        scales = self.scales()
        return deviation.expand(self.n_outputs) if scales is None else deviation * scales

    @torch.no_grad()
    def relocate(self, H, n):
        """Move inducing inputs; return the mean at the rows, and the matrix that carries `q`."""
        M, D = len(self.q.mean), self.n_outputs
        mean, _ = self.moments(H, (self.q.mean, H.new_zeros(D, M, M)))
        Z, B = relocated(self.kernel(), self.Z, H, n, self.jitter)
        self.Z = nn.Parameter(Z, self.Z.requires_grad)
        return mean, B[None]

    def carry(self, B):
        """Take the posterior over to other inducing inputs, by the matrix of :meth:`relocate`."""
        self.q.carry(B)

    def process_moments(self, H, q=None):
        q = self.q.moments(H.dtype) if q is None else q
        return self.scaled(*sparse_moments(self.kernel(), self.Z, H, *q, self.jitter))

    def whitening(self):
        """Inverse of the Cholesky factor of the inducing inputs' covariance."""
        return inverse_triangular(cholesky(self.kernel()(self.Z, self.Z), self.jitter))

    def project(self, H, whitening):
        """Projections ``A = L^{-1} k(Z, h)``, (C, M, B), and the variances that remain, (C, B)."""
        rows, kernel = H.flatten(0, 1), self.kernel()
        A = whitening.to(H.dtype) @ kernel(self.Z.to(H.dtype), rows)
        variance = (kernel.diag(rows) - A.square().sum(0)).clamp_min(LEAST_VARIANCE)
        return A.view(len(A), *H.shape[:2]).transpose(0, 1), variance.view(H.shape[:2])

    @torch.no_grad()
    def frozen(self, make=FormLayer):
        """The layer as it is now, for predictions: in float64, and with tensors of its own."""
        mean, root = self.q.mean.double().clone(), self.q.root
        root = None if root is None else root.double().clone()
        W = None if self.W is None else self.W.clone()
        noise = torch.as_tensor(self.noise()).to(self.Z)
        given = self.kernel.frozen(), self.Z.clone(), mean, root, self.jitter, W, noise
        return make(*given, self.scales())
