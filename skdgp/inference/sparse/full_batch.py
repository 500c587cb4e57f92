"""Shallow sparse GPs that look at all rows at once."""

import torch

from ...gp.component import Trainable
from ...gp.frozen import FrozenLayer
from ...gp.layer import SparseLayer
from ...gp.priors import of_deviations
from ...linalg import (
    add_diagonal,
    cholesky,
    gradient_of_gram,
    inverse_triangular,
    pieces,
    root_of_inverse,
    rounding,
)
from ...optim.quasi_newton import QuasiNewtonSteps, backward
from ..base import Model
from ..deep import DeepPosterior

_JITTER = 1e-10  #: of K_uu at first; factorizations that fail get more
AT_ONCE = 1_000_000  #: elements of a matrix with rows that are worked on together
_KEPT = 5_000_000  #: elements of such a matrix that are kept for the gradients


class FullBatchGP(Model):
    """A shallow sparse GP whose kernel and likelihood hyperparameters are found by L-BFGS.

    For each trial of these hyperparameters the posterior of the whitened inducing variables is the best one.
    Rows are gone through in chunks, once for sums that the lower bound needs, and once for its gradients,
    so that memory does not grow with their number.

    A subclass gives :meth:`natural_parameters`, too.
    """

    is_full_batch = True

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(QuasiNewtonSteps(scheme.tol))
        self.likelihood = Trainable(likelihood)
        self.layers = architecture.stack(SparseLayer, lambda i: {"natural": True})
        self.layers[0].Z.requires_grad_(bool(scheme.train_inducing))
        self.layers[0].jitter = _JITTER
        self._deviation = scheme.deviation
        self._rows = None  # those whose posterior was found

    def objective(self, batch):
        """The lower bound and, if it has priors, the kernel's log prior density, up to a constant."""
        value = self.lower_bound(batch)
        if self._deviation is None:
            return value
        for one in self.layers[0].kernel.hyperparameters():
            if one.prior is not None:
                continue
            negative_log_prior = of_deviations(one.parameter, self._deviation)
            backward((negative_log_prior, -torch.ones_like(negative_log_prior)))
            value -= float(negative_log_prior.detach())
        return value

    def natural_parameters(self, batch):
        """Precisions (k, M, M) of the best posterior, and these times means, (k, M, 1)."""
        raise NotImplementedError

    def pieces(self, X, L):
        """Chunks of rows with K_uf, k_ff and, outside of any graph, ``A = L^{-1} K_uf``."""
        layer = self.layers[0]
        size = max(1, AT_ONCE // len(layer.Z))
        for i in range(0, len(X), size):
            rows, kernel = slice(i, i + size), layer.kernel()
            K_uf, k_ff = kernel(layer.Z, X[rows].double()), kernel.diag(X[rows].double())
            A = torch.linalg.solve_triangular(L, K_uf.detach(), upper=False)
            yield rows, K_uf, k_ff, A

    def passes(self, X, L):
        """A function that gives the pieces anew, or those of the first time if they are few."""
        if len(X) * len(L) > _KEPT:
            return lambda: self.pieces(X, L)
        kept = list(self.pieces(X, L))
        return lambda: kept

    def variational_gradients(self, passes, K_uu, L, mu, P_inv, row_gradients, T):
        """Add the gradients of ``sum_n ell_n(m_n, v_n) - KL`` at a fixed whitened posterior.

        With ``m_k = A^T mu_k`` and ``v_k = k_ff + diag(A^T (P_k^{-1} - I) A)``, and the derivatives
        `g_m`, `g_v` of ell (k, n), which ``row_gradients(slice, A)`` gives,
        ``dA = sum_k mu_k g_m,k^T + 2 (P_k^{-1} - I) A diag(g_v,k)``. `T` is ``dA A^T``.
        """
        L_inv = inverse_triangular(L)
        V = 2.0 * L_inv.T @ add_diagonal(P_inv, -1.0)  # k, M, M
        nu = (L_inv.T @ mu)[..., 0].T  # M, k
        for rows, K_uf, k_ff, A in passes():
            g_m, g_v = row_gradients(rows, A)
            dK_uf = nu @ g_m
            for V_k, g_vk in zip(V, g_v):
                dK_uf.addmm_(V_k, A * g_vk)
            backward((K_uf, dK_uf), (k_ff, g_v.sum(0)))
        backward((K_uu, gradient_of_gram(L_inv, T)))

    @torch.no_grad()
    def _solve(self):
        """Set the posterior to the best one for the present hyperparameters."""
        if self.unsolved is None:
            return
        P, h = self.natural_parameters(self.unsolved)
        root, q = root_of_inverse(P), self.layers[0].q
        if root is None:  # numbers of very different size
            root = root_of_inverse(add_diagonal(P, 1e3 * rounding(P)))
        q.root.copy_(root)
        q.mean.copy_((root @ (root.mT @ h))[..., 0].T)
        # only now: an interrupt leaves them for the next call
        self._rows, self.unsolved = self.unsolved, None

    def divergence(self):
        self._solve()
        return self.layers[0].q.kl()

    def hold(self, batch):
        if self._rows is None:
            self._rows = batch

    def _frozen(self, draws, as_trained):
        return ShallowPosterior(self)

    def load_state(self, arrays):
        super().load_state(arrays)
        self.unsolved = self._rows = None


def solve_posterior(P, h):
    """Root of `P`, mean ``P^{-1} h`` and, summed over latent functions, ``log |P|``."""
    try:
        L_P = cholesky(P)
    except torch.linalg.LinAlgError:
        L_P = cholesky(P, rounding(P))
    log_det = 2.0 * torch.diagonal(L_P, dim1=-2, dim2=-1).log().sum()
    return L_P, torch.cholesky_solve(h, L_P), log_det


class SolvedLayer(FrozenLayer):
    """A layer that predicts as its posterior was found.

    L-BFGS finds large variances of kernels for smooth targets, and kernel matrices that are singular
    up to rounding. Their factors give the same for all rows only by way of the same solves.
    """

    def process_moments(self, H):
        size = max(1, AT_ONCE // len(self.Z))
        parts = [self._of_some(part) for part in pieces(H, size)]
        return tuple(torch.cat(part) for part in zip(*parts))

    def _of_some(self, H):
        A, k_ff = self.whitened(H)
        left = (k_ff - A.square().sum(0)).clamp_min(0.0)
        var = [left + (R.T @ A).square().sum(0) for R in self.q_root]
        return A.T @ self.q_mean, torch.stack(var, 1)


class ShallowPosterior(DeepPosterior):
    """A single Gaussian for each row, by a :class:`FullBatchGP` whose posterior is solved."""

    def __init__(self, model):
        layers = model.layers.frozen(lambda layer: layer.frozen(SolvedLayer))
        super().__init__(model, torch.zeros(1, 0), layers)
