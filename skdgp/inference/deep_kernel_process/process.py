"""Gram matrices of inducing points and rows on their way through the layers."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from ...linalg import inverse_triangular
from .wishart import inverse_wishart_kl, inverse_wishart_root, log_det

#: White noise of every kernel that is factorized, relative to the mean of its diagonal.
JITTER = 1e-6
_ESCALATION = (1.0, 10.0, 100.0, 1e3, 1e4)
_LEAST = 1e-10  #: conditional variances of rows, relative to their variance


def diagonal(K):
    """Diagonals of matrices."""
    return torch.diagonal(K, dim1=-2, dim2=-1)


class _Product(torch.autograd.Function):
    """``A B`` and the squared norms of its columns; the way back takes one pass over the product."""

    @staticmethod
    def forward(ctx, A, B):
        C = A @ B
        ctx.save_for_backward(A, B, C)
        return C, (C * C).sum(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx, g, of_squares):
        A, B, C = ctx.saved_tensors
        g = torch.addcmul(g, C, of_squares[..., None, :], value=2.0)
        return (g @ B.mT).sum_to_size(A.shape), (A.mT @ g).sum_to_size(B.shape)


class _Factors(torch.autograd.Function):
    """Cholesky factor, its inverse, and whether there is none; the way back has products only."""

    @staticmethod
    def forward(ctx, K):
        L, info = torch.linalg.cholesky_ex(K)
        failed = bool(info.any())
        J = L if failed else inverse_triangular(L)
        ctx.save_for_backward(L, J)
        return L, J.clone() if failed else J, failed

    @staticmethod
    @once_differentiable
    def backward(ctx, g_L, g_J, _):
        L, J = ctx.saved_tensors
        T = (L.mT @ g_L - g_J @ J.mT).tril()
        diagonal(T).mul_(0.5)
        T = J.mT @ (T @ J)
        return 0.5 * (T + T.mT)


class _AddScaled(torch.autograd.Function):
    """``A + eps * r``, with a factor for each column."""

    @staticmethod
    def forward(ctx, A, eps, r):
        ctx.save_for_backward(eps)
        return torch.addcmul(A, eps, r[..., None, :])

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g, None, (g * ctx.saved_tensors[0]).sum(-2)


@dataclass
class Level:
    """What a layer knows of the inducing points; rows need nothing else.

    Attributes
    ----------
    kernel : Kernel
    d : tensor of shape (S, P)
        Diagonal of the Gram matrix below.
    white : tensor of shape (S,)
        White noise of the kernel.
    L, J : tensors of shape (S, P, P), or None
        Cholesky factor of ``K_ii``, with white noise, and its inverse; None where nothing is random.
    C, W : tensors of shape (S, P, P), or None
        Cholesky factor of the Gram matrix that was drawn, and ``C^T J^T``.
    delta : tensor, or None
    """

    kernel: object
    d: torch.Tensor
    white: torch.Tensor
    L: torch.Tensor = None
    J: torch.Tensor = None
    C: torch.Tensor = None
    W: torch.Tensor = None
    delta: torch.Tensor = None

    @classmethod
    def of(cls, kernel, G, jitter):
        """The level above the Gram matrices `G`, and its ``K_ii``."""
        K, white, L, J = factorize(kernel.from_gram(G), jitter)
        return cls(kernel, diagonal(G), white, L, J), K

    def covariances(self, G_it, G_tt):
        """``K_it`` (S, P, n) and the diagonal of ``K_tt`` (S, n)."""
        K_it = self.kernel.from_gram(G_it, self.d, G_tt)
        return K_it, self.kernel.diag_from_gram(G_tt) + self.white[..., None]

    def schur(self, K_it, K_tt):
        """``J K_it``, and what the inducing points leave open of the variances of rows."""
        A, squares = _Product.apply(self.J, K_it)
        return A, torch.maximum(K_tt - squares, _LEAST * K_tt)

    def draw_inducing(self, K, delta, gamma, V, n, c2):
        """Draw the Gram matrix of the inducing points (Aitchison et al., 2021, eq. 21).

        Returns
        -------
        kl : tensor of shape (S,)
            Divergence of its distribution from the prior.
        """
        p = K.shape[-1]
        L_q = factorize(delta * K + V @ V.mT, 0.0)[2]
        kl = inverse_wishart_kl(
            L_q, delta + gamma + p + 1.0, delta.sqrt() * self.L, delta + p + 1.0
        )
        self.condition_on(inverse_wishart_root(L_q, n, c2), delta)
        return kl

    def condition_on(self, C, delta):
        """Take ``C C^T`` as the Gram matrix of the inducing points."""
        self.C, self.W, self.delta = C, C.mT @ self.J.mT, delta

    def draw_rows(self, K_it, K_tt, eps, c2):
        """Draw Gram matrices of rows given those of inducing points, row by row (ibid., eqs. 30 to 34).

        A row is a block of its own, so that its chi-square variables have ``delta + P + 2`` degrees of
        freedom however many rows there are.

        Parameters
        ----------
        K_it, K_tt : tensors of shape (S, P, n) and (S, n)
        eps, c2 : tensors that broadcast to these shapes
        """
        A, s = self.schur(K_it, K_tt)
        g = s / c2
        U, squares = _Product.apply(self.W, _AddScaled.apply(A, eps, g.sqrt()))
        return self.C @ U, self.delta * g + squares


def factorize(K, jitter):
    """`K` with white noise, the white noise, the Cholesky factor, and its inverse.

    White noise is relative to the mean of the diagonal; if the factorization fails, there is more.
    """
    size = diagonal(K).mean(-1) if jitter else K.new_zeros(K.shape[:-2])
    for factor in _ESCALATION if jitter else (1.0,):
        white = factor * jitter * size
        full = K + torch.diag_embed(white[..., None].expand(K.shape[:-1])) if jitter else K
        L, J, failed = _Factors.apply(full)
        if not failed:
            return full, white, L, J
    raise torch.linalg.LinAlgError(
        "A kernel matrix of inducing points is not positive definite; fewer inducing points, or a smaller "
        "learning_rate, may help."
    )


@dataclass
class Path:
    """One draw, or S draws at once, of everything that all rows share.

    Attributes
    ----------
    F : tensor of shape (P, n_features), or (S, P, n_features)
        Inducing inputs, in the metric, over the root of the number of features.
    metric : tensor of shape (S, n_features, n_features), or None
    levels : list of Level
    kl : tensor of shape (S,)
    """

    F: torch.Tensor
    metric: torch.Tensor
    levels: list = field(default_factory=list)
    kl: torch.Tensor = 0.0

    def map(self, X):
        """Rows as features whose inner products are the first Gram matrix, (S, n, n_features)."""
        F = X if self.metric is None else X @ self.metric
        return (F if F.ndim == 3 else F[None]) / X.shape[-1] ** 0.5

    def rows(self, X, noise):
        """Covariances with the inducing points, and variances, for the kernel of the last layer.

        Parameters
        ----------
        X : tensor of shape (n, n_features)
        noise : callable
            ``noise(i, level, n)`` gives `eps` and `c2` of :meth:`Level.draw_rows`.
        """
        F = self.map(X)
        G_it, G_tt = self.F @ F.mT, F.square().sum(-1)
        for i, level in enumerate(self.levels):
            K_it, K_tt = level.covariances(G_it, G_tt)
            if level is self.levels[-1]:
                return K_it, K_tt
            G_it, G_tt = K_it, K_tt
            if level.C is not None:
                G_it, G_tt = level.draw_rows(K_it, K_tt, *noise(i, level, len(X)))


def draw_metric(delta, gamma, V, n, c2):
    """Root of a draw of the input metric, and the divergence of its distribution from the prior."""
    p, eye = len(V), torch.eye(len(V), dtype=V.dtype, device=V.device)
    L_q = torch.linalg.cholesky(delta * eye + V @ V.mT)
    kl = inverse_wishart_kl(L_q, delta + gamma + p + 1.0, delta.sqrt() * eye, delta + p + 1.0)
    return inverse_wishart_root(L_q, n, c2), kl


class Sites(nn.Module):
    r"""Posterior of functions at the inducing points, given their kernel, by pseudo-observations.

    :math:`q(u_d | K) \propto N(u_d; 0, K) \exp(h_d^T u_d - u_d^T \Lambda_d u_d / 2)` for each latent
    function `d` (Ober and Aitchison, 2021). It takes natural-gradient steps: for one `K`, these lead to the
    best `h` and :math:`\Lambda`; for random ones, to what these are in the mean.

    Attributes
    ----------
    h : tensor of shape (P, k)
    precision : tensor of shape (k, P, P)
    """

    natural, held = True, False

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

    def collect(self, J, A, mean, var):
        """Remember rows, whose moments collect gradients of the expected log-likelihood."""
        mean.retain_grad(), var.retain_grad()
        self._rows = (J.mT @ A).detach(), mean, var

    @torch.no_grad()
    def collected_gradients(self, scale):
        """The natural parameters to which a step of size one leads."""
        (w, mean, var), self._rows = self._rows, None  # S, P, n: weights of u in the rows' means
        # where a likelihood is not log-concave, covariances are those of its concave part
        beta = (-2.0 * scale * var.grad).clamp_min(0.0)
        h = (w @ (scale * mean.grad + beta * mean)).sum(0)  # P, k
        w = w.transpose(0, 1).flatten(1)  # P, S n
        return h, torch.stack([(w * b) @ w.T for b in beta.flatten(0, 1).T])

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
    """``q(w_d) = N(mean_d, precision_d^{-1})`` for ``u = L w``; see :class:`Sites`.

    Attributes
    ----------
    mean : tensor of shape (S, P, k)
    J : tensor of shape (S, k, P, P)
        Inverse Cholesky factors of the precisions.
    kl : tensor of shape (S,)
    """

    mean: torch.Tensor
    J: torch.Tensor
    kl: torch.Tensor

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
        var = _Product.apply(self.J, A[:, None])[1] + s[:, None]
        return A.mT @ self.mean, var.mT

    def sample(self, xi):
        """Draws of `w` (S, P, k) from normal variables."""
        return self.mean + (self.J.mT @ xi.mT[..., None])[..., 0].mT
