"""The Gaussian over whitened inducing variables."""

import torch
from torch import nn

from ..linalg import root_of_inverse


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
        Lower triangular.
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
        root = self.root.tril()
        mean, cov = self.mean, root @ root.mT
        if self.natural and torch.is_grad_enabled():
            self._leaves = mean, cov = mean.detach().requires_grad_(), cov.detach().requires_grad_()
        return mean, cov

    def kl(self):
        """Kullback-Leibler divergence from the prior, summed over outputs."""
        root = self.root.tril()
        log_det = torch.diagonal(root, dim1=-2, dim2=-1).abs().log().sum()
        return 0.5 * (self.mean.square().sum() + root.square().sum() - self.mean.numel()) - log_det

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
        P = torch.cholesky_inverse(self.root.tril())
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
