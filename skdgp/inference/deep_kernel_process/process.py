"""Gram matrices of inducing points and rows on their way through the layers."""

from dataclasses import dataclass, field

import torch
from torch.autograd.function import once_differentiable

from ...linalg import inverse_triangular, is_exporting
from ..batch import whole
from .wishart import kl_of_degrees, log_det

#: White noise of every kernel that is factorized, relative to the mean of its diagonal.
JITTER = 1e-6
_ESCALATION = (1.0, 10.0, 100.0, 1e3, 1e4)
_SAME = 1e-10  #: squared distances of rows that may be the same, relative to their squared norms
LEAST = 1e-10  #: conditional variances of rows, relative to their variance
_INDEFINITE = (
    "A kernel matrix of inducing points is not positive definite; fewer inducing points, or a smaller "
    "learning_rate, may help."
)


def diagonal(K):
    """Diagonals of matrices."""
    return torch.diagonal(K, dim1=-2, dim2=-1)


@torch.no_grad()
def equal_rows(F, H, G, d, e):
    """Which rows of `F` (P, D) and `H` (n, D) are the same, as a mask (P, n); None if there are none.

    Rough kernels turn rounding errors of the distances of such rows into errors of the size of their root, and
    several layers into roots of roots. `G` (P, n) are inner products, `d` and `e` squared norms.
    """
    squares = d[:, None] + e
    near = squares - 2.0 * G <= _SAME * squares
    if is_exporting():
        return near & (F[:, None] == H).all(-1)
    i, j = near.nonzero(as_tuple=True)
    same = (F[i] == H[j]).all(-1)
    if not same.any():
        return None
    near[i, j] = same
    return near


def among(same, K, variances):
    """Covariances `K` (..., P, n) of rows, with the `variances` (..., n) where `same` is true."""
    return K if same is None else torch.where(same, variances[..., None, :], K)


def composed(kernels, F, G):
    """A composition of kernels at rows (n, d), of which `G` (..., n, n) are the inner products."""
    inner = G.view(G.shape[-2:])
    same = equal_rows(F, F, inner, diagonal(inner), diagonal(inner))
    for kernel in kernels:
        G = kernel.from_gram(G)
        G = among(same, G, diagonal(G))
    return G


class Product(torch.autograd.Function):
    """``A B`` and the squared norms of its columns; the way back takes one pass over the product."""

    @staticmethod
    def forward(ctx, A, B):
        C = A @ B
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(A, B, C)
        return C, (C * C).sum(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx, g, of_squares):
        A, B, C = ctx.saved_tensors
        if of_squares is not None:
            of_squares = 2.0 * of_squares[..., None, :]
            g = C * of_squares if g is None else torch.addcmul(g, C, of_squares)
        if g is None:
            return None, None
        return (g @ B.mT).sum_to_size(A.shape), (A.mT @ g).sum_to_size(B.shape)


class _Factors(torch.autograd.Function):
    """Cholesky factor, its inverse, and whether there is none; the way back has products only."""

    @staticmethod
    def forward(ctx, K):
        L, info = torch.linalg.cholesky_ex(K)
        failed = bool(info.any())
        J = L if failed else inverse_triangular(L)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(L, J)
        return L, J.clone() if failed else J, failed

    @staticmethod
    @once_differentiable
    def backward(ctx, g_L, g_J, _):
        L, J = ctx.saved_tensors
        parts = [L.mT @ g_L] if g_L is not None else []
        parts += [-g_J @ J.mT] if g_J is not None else []
        if not parts:
            return None
        T = sum(parts).tril()
        diagonal(T).mul_(0.5)
        T = J.mT @ (T @ J)
        return 0.5 * (T + T.mT)


class _Inducing(torch.autograd.Function):
    """A draw from the posterior of an inverse Wishart layer at the inducing points.

    From `K` and its inverse Cholesky factor `J` (None for the identity): the Cholesky factor `C` of the draw;
    ``C^T J^T`` and ``C C^T``; and the divergence from the prior.
    """

    @staticmethod
    def forward(ctx, K, J, delta, gamma, V, n, c2):
        p, nu_p, nu_q = K.shape[-1], float(delta) + K.shape[-1] + 1.0, float(gamma)
        nu_q += nu_p
        L, info = torch.linalg.cholesky_ex(delta * K + V @ V.mT)
        if info.any():
            raise torch.linalg.LinAlgError(_INDEFINITE)
        J_q = inverse_triangular(L)
        R, M = J_q @ V, n.tril(-1)
        diagonal(M).copy_(c2.sqrt())
        C = torch.linalg.solve_triangular(M, L.expand_as(M), upper=False, left=False)
        log_det_ratio = log_det(L) - 0.5 * p * delta.log()
        if J is not None:
            log_det_ratio = log_det_ratio + log_det(J)
        squares = R.square().sum((-1, -2))
        value, of_q, of_p = kl_of_degrees(nu_q, nu_p, p)
        ctx.slopes = nu_p, nu_q, of_q, of_p
        ctx.save_for_backward(K, J, delta, V, C, M, J_q, R, log_det_ratio, squares)
        ctx.set_materialize_grads(False)
        kl = (nu_p * log_det_ratio - 0.5 * nu_q * squares + value).expand(M.shape[:-2]).clone()
        return C, None if J is None else (J @ C).mT, None if J is None else C @ C.mT, kl

    @staticmethod
    @once_differentiable
    def backward(ctx, g_C, g_W, g_G, g_kl):
        K, J, delta, V, C, M, J_q, R, log_det_ratio, squares = ctx.saved_tensors
        (nu_p, nu_q, of_q, of_p), p = ctx.slopes, K.shape[-1]
        g_kl = C.new_zeros(()) if g_kl is None else g_kl
        parts = [] if g_C is None else [g_C]
        parts += [] if g_W is None else [J.mT @ g_W.mT]
        parts += [] if g_G is None else [(g_G + g_G.mT) @ C]
        of_matrix = 0.5 * nu_q * g_kl[..., None, None]
        H, g_c2 = of_matrix * (R @ R.mT), None
        if parts:
            T = torch.linalg.solve_triangular(
                M.mT, C.mT @ sum(parts).tril(), upper=True, left=False
            )
            g_c2 = -0.5 * diagonal(T) / diagonal(M)
            T = (M.mT @ T).tril()
            diagonal(T).mul_(0.5)
            H = H + T
        diagonal(H).add_(0.5 * nu_p * g_kl[..., None])
        H = J_q.mT @ (H @ J_q)
        H = 0.5 * (H + H.mT)  # gradient of delta K + V V^T
        g_V = (2.0 * H @ V - 2.0 * of_matrix * (J_q.mT @ R)).sum_to_size(V.shape)
        g_gamma = of_q - 0.5 * squares
        g_delta = (H * K).sum() + (
            g_kl * (g_gamma + of_p + log_det_ratio - 0.5 * nu_p * p / delta)
        ).sum()
        g_J = None
        if J is not None:
            g_J = torch.zeros_like(C) if g_W is None else g_W.mT @ C.mT
            diagonal(g_J).add_(nu_p * g_kl[..., None] / diagonal(J))
            g_J = g_J.sum_to_size(J.shape)
        g_K = (delta * H).sum_to_size(K.shape)
        return g_K, g_J, g_delta, (g_kl * g_gamma).sum(), g_V, None, g_c2


class _Rows(torch.autograd.Function):
    """A draw for rows, see :meth:`Level.draw_rows`."""

    @staticmethod
    def forward(ctx, J, W, C, K_it, K_tt, eps, c2, delta):
        A = J @ K_it
        s, least = K_tt - (A * A).sum(-2), LEAST * K_tt
        g = torch.maximum(s, least) / c2
        Y = torch.addcmul(A, eps, g.sqrt()[..., None, :])
        U = W @ Y
        ctx.save_for_backward(J, W, C, K_it, K_tt, eps, c2, delta, A, s > least, g, Y, U)
        return C @ U, torch.addcmul((U * U).sum(-2), g, delta)

    @staticmethod
    @once_differentiable
    def backward(ctx, g_it, g_tt):
        J, W, C, K_it, K_tt, eps, c2, delta, A, is_open, g, Y, U = ctx.saved_tensors
        g_U = torch.addcmul(C.mT @ g_it, U, 2.0 * g_tt[..., None, :])
        g_A = W.mT @ g_U
        g_g = 0.5 * (g_A * eps).sum(-2) / g.sqrt() + delta * g_tt
        g_s = g_g / c2
        of_squares = torch.where(is_open, -2.0 * g_s, 0.0)
        g_A = g_A.addcmul_(A, of_squares[..., None, :])
        gradients = (
            g_A @ K_it.mT,
            g_U @ Y.mT,
            g_it @ U.mT,
            J.mT @ g_A,
            torch.where(is_open, g_s, LEAST * g_s),
            None,
            -g_s * g,
            (g * g_tt).sum(),
        )
        like = (J, W, C, K_it, K_tt, eps, c2, delta)
        return tuple(g if g is None else g.sum_to_size(x.shape) for g, x in zip(gradients, like))


@dataclass
class Level:
    """State of a layer at the inducing points; factors are None if nothing is random."""

    kernel: object
    d: torch.Tensor  #: (S, P), diagonal of the Gram matrix below
    white: torch.Tensor  #: (S,), white noise of the kernel
    L: torch.Tensor | None = None  #: (S, P, P), Cholesky factor of ``K_ii``, with white noise
    J: torch.Tensor | None = None  #: its inverse
    C: torch.Tensor | None = None  #: (S, P, P), Cholesky factor of the Gram matrix that was drawn
    W: torch.Tensor | None = None  #: ``C^T J^T``
    delta: torch.Tensor | None = None

    @classmethod
    def factorized(cls, kernel, G, K, jitter):
        """The level above the Gram matrices `G`, and its ``K_ii``, for a given kernel matrix `K`."""
        K, white, L, J = factorize(K, jitter)
        return cls(kernel, diagonal(G), white, L, J), K

    def covariances(self, G_it, G_tt, same=None):
        """``K_it`` (S, P, n) and the diagonal of ``K_tt`` (S, n); `same` as from :func:`equal_rows`."""
        K_it, K_tt = self.kernel.from_gram(G_it, self.d, G_tt), self.kernel.diag_from_gram(G_tt)
        return among(same, K_it, K_tt), K_tt + self.white[..., None]

    def schur(self, K_it, K_tt):
        """``J K_it``, and the variances of rows given the inducing points."""
        A, squares = Product.apply(self.J, K_it)
        return A, torch.maximum(K_tt - squares, LEAST * K_tt)

    def draw_inducing(self, K, delta, gamma, V, n, c2):
        """Draw Gram matrices of inducing points (Aitchison et al., 2021, eq. 21), and divergences."""
        self.C, self.W, G, kl = _Inducing.apply(K, self.J, delta, gamma, V, n, c2)
        self.delta = delta
        return G, kl

    def draw_rows(self, K_it, K_tt, eps, c2):
        """Draw rows given inducing points, each as a block of its own (ibid., eqs. 30 to 34)."""
        return _Rows.apply(self.J, self.W, self.C, K_it, K_tt, eps, c2, self.delta)


def factorize(K, jitter):
    """`K` with white noise, more if it fails, the white noise, the factor, and its inverse."""
    size = diagonal(K).mean(-1) if jitter else K.new_zeros(K.shape[:-2])
    for factor in _ESCALATION if jitter else (1.0,):
        white = factor * jitter * size
        full = K + torch.diag_embed(white[..., None].expand(K.shape[:-1])) if jitter else K
        L, J, failed = _Factors.apply(full)
        if not failed:
            return full, white, L, J
    raise torch.linalg.LinAlgError(_INDEFINITE)


@dataclass
class Path:
    """One draw, or S draws at once, of everything that all rows share."""

    F: torch.Tensor  #: (..., P, d), inducing inputs in the metric, over the root of their number
    metric: torch.Tensor | None  #: (S, d, d)
    levels: list = field(default_factory=list)
    kl: torch.Tensor | float = 0.0  #: (S,)

    def map(self, X):
        """Rows as features whose inner products are the first Gram matrix, (S, n, d)."""
        F = X if self.metric is None else X @ self.metric
        return (F if F.ndim == 3 else F[None]) / X.shape[-1] ** 0.5

    def same(self, F, G_it, G_tt):
        """Which rows are inducing points, see :func:`equal_rows`; None if Gram matrices are random."""
        if self.metric is not None:
            return None
        return equal_rows(self.F[0], F[0], G_it[0], self.F[0].square().sum(-1), G_tt[0])

    def noise(self, base, n, draw=whole):
        """Draw the noise of `n` rows in each random layer; `draw` makes the part that belongs to rows."""
        found = []
        for level in (level for level in self.levels if level.C is not None):
            P, like = level.L.shape[-1], level.L
            eps = draw(lambda shape, like=like: base.normal(shape, like), (P, n), -1)
            dof = level.delta + P + 2.0
            found.append((eps, draw(lambda shape, dof=dof: base.chi2(dof, shape), (n,), -1)))
        return found

    def rows(self, X, noise):
        """Covariances of rows with the inducing points, and variances, for the last kernel."""
        F = self.map(X)
        G_it, G_tt = self.F @ F.mT, F.square().sum(-1)
        same = self.same(F, G_it, G_tt)
        for i, level in enumerate(self.levels):
            K_it, K_tt = level.covariances(G_it, G_tt, same)
            if level is self.levels[-1]:
                return K_it, K_tt
            G_it, G_tt = K_it, K_tt
            if level.C is not None:
                G_it, G_tt = level.draw_rows(K_it, K_tt, *noise[i])


def draw_metric(delta, gamma, V, n, c2):
    """Root of a draw of the input metric, and the divergence of its distribution from the prior."""
    eye = torch.eye(len(V), dtype=V.dtype, device=V.device)
    C, *_, kl = _Inducing.apply(eye, None, delta, gamma, V, n, c2)
    return C, kl
