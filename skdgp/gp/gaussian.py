"""The Gaussian over whitened inducing variables."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from ..linalg import root_of_inverse


class _Covariance(torch.autograd.Function):
    """``root root^T``, with the gradient of a function of symmetric matrices, kept lower triangular."""

    @staticmethod
    def forward(ctx, root):
        ctx.save_for_backward(root)
        return root @ root.mT

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        (root,) = ctx.saved_tensors
        return (2.0 * G @ root).tril_()


class GaussianBlock(nn.Module):
    """``q(v_d) = N(mean_d, root_d root_d^T)`` for each output `d`, against the prior ``N(0, I)``.

    Parameters
    ----------
    n_inducing, n_outputs : int
    scale : float
        The roots start at this multiple of the identity.
    natural : bool
        Whether the block takes natural-gradient steps. If not, mean and root belong to the optimizer.

    Attributes
    ----------
    mean : tensor of shape (M, D)
    root : tensor of shape (D, M, M)
        Lower triangular; every step keeps it so.
    """

    def __init__(self, n_inducing, n_outputs, scale=1.0, natural=False):
        super().__init__()
        self.natural = natural
        root = scale * torch.eye(n_inducing, dtype=torch.float64).repeat(n_outputs, 1, 1)
        self.mean = nn.Parameter(torch.zeros(n_inducing, n_outputs, dtype=torch.float64), not natural)
        self.root = nn.Parameter(root, not natural)

    def moments(self):
        """Mean (M, D) and covariance (D, M, M).

        Those of a natural block are leaves of the graph: the gradients that they collect are what
        :meth:`natural_step` takes.
        """
        if not self.natural:
            return self.mean, _Covariance.apply(self.root)
        mean, cov = self.mean, self.root @ self.root.mT
        if torch.is_grad_enabled():
            self._leaves = mean, cov = mean.detach().requires_grad_(), cov.detach().requires_grad_()
        return mean, cov

    @torch.no_grad()
    def kl(self):
        """Kullback-Leibler divergence from the prior, summed over outputs."""
        log_det = torch.diagonal(self.root, dim1=-2, dim2=-1).abs().log().sum()
        return 0.5 * (self.mean.square().sum() + self.root.square().sum() - self.mean.numel()) - log_det

    @torch.no_grad()
    def add_kl_gradient(self, scale):
        """Add `scale` times the gradient of :meth:`kl` to what a backward pass has left."""
        self.mean.grad.add_(self.mean, alpha=scale)
        self.root.grad.add_(self.root, alpha=scale)
        diagonal = torch.diagonal(self.root, dim1=-2, dim2=-1)
        torch.diagonal(self.root.grad, dim1=-2, dim2=-1).sub_(scale / diagonal)

    def natural_gradients(self, scale=1.0):
        """Gradients with respect to mean and covariance, collected by the last backward pass."""
        return tuple(scale * leaf.grad for leaf in self._leaves)

    @torch.no_grad()
    def natural_step(self, gradients, gamma):
        """One step of size `gamma` in the natural parameters (Salimbeni et al., 2018).

        Parameters
        ----------
        gradients : pair of tensors
            Gradients of the expected log-likelihood alone, with respect to mean (M, D) and covariance
            (D, M, M); the divergence from the prior is dealt with in closed form.
        gamma : float in (0, 1]
            1 jumps to the optimum if the likelihood is Gaussian.

        Returns
        -------
        accepted : bool
            False, and nothing has changed, if the new covariance would not be positive definite.
        """
        g_mean, g_cov = gradients
        g_cov = g_cov + g_cov.mT  # 2 G, symmetric
        mean = self.mean.T[..., None]  # D, M, 1
        P = torch.cholesky_inverse(self.root)
        eye = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
        P_new = (1.0 - gamma) * P + gamma * (eye - g_cov)
        h = (1.0 - gamma) * P @ mean + gamma * (g_mean.T[..., None] - g_cov @ mean)
        root = root_of_inverse(P_new)
        if root is None:
            return False
        mean = (root @ (root.mT @ h))[..., 0].T
        if not (torch.isfinite(root).all() and torch.isfinite(mean).all()):
            return False
        self.root.copy_(root)
        self.mean.copy_(mean)
        return True
