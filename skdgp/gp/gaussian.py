"""Gaussian posteriors over whitened variables: inducing ones, weights, frequencies."""

import math

import numpy as np
import torch
from torch import nn

from ..linalg import add_diagonal, cholesky, root_of_inverse, rounding
from ..random import normal


def sample(mean, root, n, generator):
    """Draws (n, M, D) of Gaussians with means (M, D) and roots (D, M, M) or (1, M, M)."""
    xi = normal((n, mean.shape[1], len(mean), 1), generator, root)
    return mean + (root @ xi)[..., 0].mT


class GaussianBlock(nn.Module):
    """``q(v_d) = N(mean_d, root_d root_d^T)`` for each output `d`, against the prior ``N(0, I)``.

    The root is lower triangular, every step keeps it so, and it starts at `scale` times the
    identity. If the block takes no `natural` steps, mean and root belong to the optimizer.
    """

    roles = {"root": "posterior_root"}

    def __init__(self, n_inducing, n_outputs, scale=1.0, natural=False, shared=False):
        super().__init__()
        self.natural = natural
        self.held = False  #: whether steps leave the block as it is
        self.n_sharing = n_outputs if shared else 1
        self._scale = scale
        root = scale * torch.eye(n_inducing, dtype=torch.float64)
        root = root.repeat(1 if shared else n_outputs, 1, 1)
        self.mean = nn.Parameter(
            torch.zeros(n_inducing, n_outputs, dtype=torch.float64), not natural
        )
        self.root = nn.Parameter(root, not natural)
        self._precision = None, None

    @torch.no_grad()
    def restart(self):
        """Become what it was before the first step."""
        self.mean.zero_()
        self.root.zero_().diagonal(dim1=-2, dim2=-1).fill_(self._scale)

    def to_dtype(self, dtype):
        """Keep the roots in this precision."""
        self.root.data = self.root.data.to(dtype)

    def moments(self, dtype=torch.float64):
        """Mean (M, D), and the difference of the covariance to the prior's (as `root`).

        In training, unless the block is held, both are leaves of the graph. The gradients that they
        collect go to :meth:`natural_step` or :meth:`set_gradients`.
        """
        with torch.no_grad():
            root = self.root if self.natural else self.root.to(dtype)
            excess = torch.bmm(root, root.mT) - torch.eye(root.shape[-1]).to(root)
        if self.held or not torch.is_grad_enabled():
            return self.mean, excess
        self._leaves = self.mean.detach().requires_grad_(), excess.requires_grad_()
        return self._leaves

    @torch.no_grad()
    def kl(self):
        """Kullback-Leibler divergence from the prior, summed over outputs."""
        mean, root = self.mean, self.root
        log_det = torch.diagonal(root, dim1=-2, dim2=-1).abs().log().sum()
        of_root = torch.linalg.vector_norm(root).square().sub(log_det, alpha=2.0)
        of_mean = mean.square().sum().sub(mean.numel())
        return 0.5 * of_mean.add(of_root, alpha=self.n_sharing)

    def collected(self):
        """Tensors that are sums over the rows of a step, from which the gradients of this block follow."""
        return [leaf.grad for leaf in self._leaves]

    def collect(self, sums):
        """Take the next ones of such tensors of another process."""
        with torch.enable_grad():
            self.moments()  # new leaves
        for leaf in self._leaves:
            leaf.grad = next(sums).to(leaf)

    def collected_gradients(self, scale=1.0):
        """Return the gradients of the leaves, times `scale`, in float64."""
        return tuple(scale * leaf.grad.double() for leaf in self._leaves)

    @torch.no_grad()
    def set_gradients(self, scale):
        """Set the collected gradients for the optimizer, plus `scale` times that of :meth:`kl`."""
        mean, root = self.mean, self.root
        g_mean, g_cov = (leaf.grad for leaf in self._leaves)
        mean.grad = g_mean.add_(mean, alpha=scale)
        if root.grad is None:
            root.grad = torch.empty_like(root)
        scale = scale * self.n_sharing
        g_cov = g_cov.to(root.dtype)
        grad = torch.baddbmm(root, g_cov, root, alpha=2.0, beta=scale, out=root.grad).tril_()
        diagonal = torch.diagonal(root, dim1=-2, dim2=-1)
        torch.diagonal(grad, dim1=-2, dim2=-1).sub_(scale / diagonal)

    @torch.no_grad()
    def natural_step(self, gradients, gamma):
        """One natural step (Salimbeni et al., 2018); False if the covariance is not positive."""
        g_mean, g_cov = gradients
        P = self.precision()
        if P is None:
            P = torch.cholesky_inverse(self.root)
        # P_new = (1 - gamma) P + gamma (I - 2 G) for the symmetric part G of the gradient, and so
        # P_new mean_new = (1 - gamma) P mean + gamma (g - 2 G mean) = P_new mean + gamma (g - mean)
        P_new = torch.lerp(P, -(g_cov + g_cov.mT), gamma)
        P_new.diagonal(dim1=-2, dim2=-1).add_(gamma)
        root = root_of_inverse(P_new)
        if root is None:
            return False
        delta = (g_mean - self.mean).T[..., None]  # D, M, 1
        mean = self.mean.add((root @ (root.mT @ delta))[..., 0].T, alpha=gamma)
        if not math.isfinite(mean.sum()):  # which it is only if the root is
            return False
        self.root.copy_(root)
        self.mean.copy_(mean)
        self.set_precision(P_new)
        return True

    @torch.no_grad()
    def carry(self, B):
        """Become the posterior of ``B v`` plus what the prior has beyond it."""
        mean, root = (B @ self.mean.mT[..., None])[..., 0].mT, B @ self.root.double()
        beyond = add_diagonal(root @ root.mT - B @ B.mT, 1.0)
        root = cholesky(beyond, rounding(beyond)).to(self.root.dtype)
        self.mean = nn.Parameter(mean, self.mean.requires_grad)
        self.root, self._precision = nn.Parameter(root, self.root.requires_grad), (None, None)

    def sample(self, n, generator):
        """Draws of shape (n, M, D)."""
        return sample(self.mean, self.root.double(), n, generator)

    def root_from(self, roots):
        """Roots of this shape from those of another posterior, which shares them among outputs or does not."""
        n = len(self.root)
        if len(roots) == 1:
            return np.repeat(roots, n, axis=0)
        if n == 1:
            roots = roots.astype(np.float64)
            return np.linalg.cholesky(np.mean(roots @ roots.mT, axis=0))[None]
        return roots

    def precision(self):
        """Precision after the last natural step; None if the root has been overwritten since."""
        P, version = self._precision
        return P if version == (self.root.data_ptr(), self.root._version) else None

    def set_precision(self, P):
        """Remember the precision that belongs to the present root."""
        self._precision = P, (self.root.data_ptr(), self.root._version)


class DiagonalBlock(nn.Module):
    """A matrix of independent Gaussians ``N(mean, exp(rho))`` against the prior ``N(0, 1)``."""

    natural = held = False

    def __init__(self, n_rows, n_columns, variance=1.0):
        super().__init__()
        shape = n_rows, n_columns
        self.mean = nn.Parameter(torch.zeros(shape, dtype=torch.float64))
        self.rho = nn.Parameter(torch.full(shape, math.log(variance), dtype=torch.float64))

    def to_dtype(self, dtype):
        """Keep the parameters in this precision."""
        for parameter in (self.mean, self.rho):
            parameter.data = parameter.data.to(dtype)

    def moments(self, dtype=torch.float64):
        """Means and variances, as leaves of the graph in training; see :class:`GaussianBlock`."""
        with torch.no_grad():
            mean, var = self.mean.to(dtype), self.rho.to(dtype).exp()
        if torch.is_grad_enabled() and not self.held:
            self._leaves = mean, var = mean.detach().requires_grad_(), var.requires_grad_()
        return mean, var

    collected, collect = GaussianBlock.collected, GaussianBlock.collect

    @torch.no_grad()
    def kl(self):
        """Kullback-Leibler divergence from the prior."""
        terms = self.mean.square() + self.rho.exp() - self.rho - 1.0
        return 0.5 * terms.sum(dtype=torch.float64)

    @torch.no_grad()
    def set_gradients(self, scale):
        """Set the gradients for the optimizer; see :meth:`GaussianBlock.set_gradients`."""
        (_, var), (g_mean, g_var) = self._leaves, (leaf.grad for leaf in self._leaves)
        self.mean.grad = g_mean.add_(self.mean, alpha=scale)
        self.rho.grad = g_var.add_(0.5 * scale).mul_(var).sub_(0.5 * scale)

    def sample(self, n, generator):
        """Draws of shape (n, n_rows, n_columns)."""
        mean, var = self.mean.double(), self.rho.double().exp()
        return mean + var.sqrt() * normal((n, *mean.shape), generator, mean)

    def precision(self):
        """Nothing that :meth:`kl` would not know from the parameters."""
        return None
