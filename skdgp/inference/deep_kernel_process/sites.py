"""Posteriors of functions at the inducing points, given their kernel."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from .process import LEAST, Product, factorize
from .wishart import log_det


class _Marginals(torch.autograd.Function):
    """Moments (S, n, k) of latent functions, as :meth:`Whitened.moments`, with a third of its products.

    Variances are ``K_tt - K_ti Q K_it``, and the gradient in ``K_it`` needs ``Q K_it`` again. The explicit
    `Q` costs digits, of which predictions need all and steps do not.
    """

    @staticmethod
    def forward(ctx, J, J_q, m, K_it, K_tt):
        R, v, K = J_q @ J[:, None], J.mT @ m, K_it[:, None]
        QK = ((J.mT @ J)[:, None] - R.mT @ R) @ K
        squares, rest = (K * QK).sum(-2), (1.0 - LEAST) * K_tt[:, None]
        ctx.save_for_backward(J, J_q, m, K_it, R, v, QK, squares < rest)
        return K_it.mT @ v, (K_tt[:, None] - torch.minimum(squares, rest)).mT

    @staticmethod
    @once_differentiable
    def backward(ctx, g_mean, g_var):
        J, J_q, m, K_it, R, v, QK, is_open = ctx.saved_tensors
        g_tt = g_var.mT
        of_squares = torch.where(is_open, -g_tt, 0.0)[..., None, :]
        g_K = v @ g_mean.mT + 2.0 * (QK * of_squares).sum(1)
        g_Q = (K_it[:, None] * of_squares) @ K_it[:, None].mT
        JQ, RQ, g_v = J[:, None] @ g_Q, 2.0 * R @ g_Q, K_it @ g_mean
        g_J = (2.0 * JQ - J_q.mT @ RQ).sum(1) + m @ g_v.mT
        g_tt = torch.where(is_open, g_tt, LEAST * g_tt).sum(1)
        return g_J, -RQ @ J[:, None].mT, J @ g_v, g_K, g_tt


class Sites(nn.Module):
    r"""Posterior of functions at the inducing points, given their kernel, by pseudo-observations.

    :math:`q(u_d | K) \propto N(u_d; 0, K) \exp(h_d^T u_d - u_d^T \Lambda_d u_d / 2)` for each
    latent function `d` (Ober and Aitchison, 2021), with h (P, k) and Lambda (k, P, P). It takes
    natural-gradient steps: for one `K`, these lead to the best `h` and :math:`\Lambda`; for random
    ones, to what these are in the mean.
    """

    natural, held, _sums = True, False, None

    def __init__(self, n_inducing, n_latents):
        super().__init__()
        zeros = torch.zeros(n_latents, n_inducing, n_inducing, dtype=torch.float64)
        self.h = nn.Parameter(zeros[0, :, :1].repeat(1, n_latents), False)
        self.Lambda = nn.Parameter(zeros, False)

    def kl(self):
        """Nothing: what depends on the kernel is part of the bound."""
        return 0.0

    def precision(self):
        return None

    def collect(self, w, mean, var):
        """Remember rows, whose moments collect gradients of the expected log-likelihood."""
        mean.retain_grad(), var.retain_grad()
        self._rows, self._sums = (w, mean, var), None

    @torch.no_grad()
    def collected(self):
        """As :meth:`GaussianBlock.collected <skdgp.gp.gaussian.GaussianBlock.collected>`."""
        if self._sums is None:
            w, mean, var = self._rows  # w (S, P, n): weights of u in the rows' means
            self._rows = None
            # where a likelihood is not log-concave, covariances are those of its concave part
            beta = (2.0 * var.grad).clamp_min(0.0)
            h = (w @ (beta * mean - mean.grad)).sum(0)  # P, k
            w = w.transpose(0, 1).flatten(1)  # P, S n
            self._sums = h, torch.stack([(w * b) @ w.T for b in beta.flatten(0, 1).T])
        return self._sums

    def collected_gradients(self, scale):
        """The natural parameters to which a step of size one leads; `scale` is negative."""
        return tuple(-scale * part for part in self.collected())

    @torch.no_grad()
    def natural_step(self, targets, gamma):
        """Go a part of the way; False, and nothing has changed, if that is not finite."""
        new = [torch.lerp(now, to, gamma) for now, to in zip((self.h, self.Lambda), targets)]
        if not all(bool(torch.isfinite(part).all()) for part in new):
            return False
        self.h.copy_(new[0]), self.Lambda.copy_(new[1])
        return True


@dataclass
class Whitened:
    """``q(w_d) = N(mean_d, precision_d^{-1})`` for ``u = L w``; see :class:`Sites`."""

    mean: torch.Tensor  #: (S, P, k)
    J: torch.Tensor  #: (S, k, P, P), inverse Cholesky factors of the precisions
    kl: torch.Tensor  #: (S,)

    @classmethod
    def of(cls, L, h, Lambda):
        """For kernels ``L L^T`` (S, P, P), pseudo-observations (P, k) and precisions (k, P, P)."""
        B = L.mT[:, None] @ Lambda @ L[:, None]  # S, k, P, P
        B = B + torch.eye(B.shape[-1], dtype=B.dtype, device=B.device)
        L_B, J = factorize(0.5 * (B + B.mT), 0.0)[2:]
        mean = J.mT @ (J @ (L.mT @ h).mT[..., None])  # S, k, P, 1
        squares = mean.square().sum((-1, -2)) + J.square().sum((-1, -2)) - B.shape[-1]
        kl = (0.5 * squares + log_det(L_B)).sum(-1)
        return cls(mean[..., 0].mT, J, kl)

    def moments(self, A, s):
        """Moments (S, n, k) at rows with ``A = J K_it`` and conditional variances `s`."""
        var = Product.apply(self.J, A[:, None])[1] + s[:, None]
        return A.mT @ self.mean, var.mT

    def of_step(self, J, K_it, K_tt):
        """:meth:`moments` at rows for steps of training, by fewer products with less digits."""
        return _Marginals.apply(J, self.J, self.mean, K_it, K_tt)

    def sample(self, xi):
        """Draws of `w` (S, P, k) from normal variables."""
        return self.mean + (self.J.mT @ xi.mT[..., None])[..., 0].mT
