"""Factors of the covariances of all rows: dense ones, and sparse ones of Vecchia's approximation."""

import numpy as np
import torch

from ...gp.kernels import Stationary
from ..rows.near_rows import size_of_row

_AT_ONCE = 500_000  #: elements of small covariance matrices that stay in the cache together


class Dense:
    """Cholesky factors, NaN where there are none, of S states, or one that all share."""

    def __init__(self, L):
        self.L = L

    @classmethod
    def of(cls, kernel, H, noise):
        """Factorize the covariances of a kernel at hidden values, with noise (S or 1, k, N)."""
        K = gram(kernel, H)[:, None]
        n, k = noise.shape[:2]
        K = K.repeat(1, k, 1, 1) if k > 1 or n > len(K) else K
        K.diagonal(dim1=-2, dim2=-1).add_(noise)
        return cls(_factors(K))

    def __getitem__(self, i):
        return Dense(self.L[i])

    def __len__(self):
        return len(self.L)

    def product(self, v):
        """``L v``, for v (S, N, H)."""
        # a factor that all states share meets them in one product
        return self.L @ v if len(self.L) == len(v) > 1 else (v.mT @ self.L[0].T).mT

    def whiten(self, off):
        """``L^{-1} off``."""
        return torch.linalg.solve_triangular(self.L, off, upper=False)

    def log_det(self):
        return self.L.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class Near:
    """Factors whose inverses are sparse: weights of a row's conditioning set, and its deviation."""

    def __init__(self, b, sd, sets):
        self.b, self.sd, self.sets = b, sd, sets

    def __getitem__(self, i):
        return Near(self.b[i], self.sd[i], self.sets)

    def __len__(self):
        return len(self.b)

    def product(self, v):
        F = self.sd[..., None] * v
        for rows, near in self.sets.levels:  # rows of one level do not depend on each other
            F[..., rows, :] += (self.b[..., rows, :, None] * F[..., near, :]).sum(-2)
        return F

    def whiten(self, off):
        guess = torch.zeros_like(off[..., :1, :])
        for b, near in zip(self.b.unbind(-1), self.sets.index.unbind(-1)):
            guess = guess + b[..., None] * off[..., near, :]
        return (off - guess) / self.sd[..., None]

    def log_det(self):
        return self.sd.log().sum(-1)


class ConditioningSets:
    """Conditioning set of each row: the nearest ones before it (Vecchia, 1988)."""

    def __init__(self, points, n_neighbors, like):
        N, m = len(points), min(n_neighbors, len(points) - 1)
        index, level = np.zeros((N, m), dtype=np.int64), np.zeros(N, dtype=np.int64)
        for i in range(1, N):
            n = min(i, m)
            near = np.argpartition(_squares(points[:i], points[i]), n - 1)[:n]
            index[i, :n], level[i] = near, level[near].max() + 1
        levels = (np.flatnonzero(level == n) for n in range(1, level.max() + 1))
        self.index, *rows = (torch.as_tensor(a, device=like.device) for a in (index, *levels))
        self.levels = [(part, self.index[part]) for part in rows]

    def of(self, kernel, H, noise):
        """Factors for kernels at hidden values (S or 1, N, d) with `noise` (S or 1, k, N)."""
        N, m = self.index.shape
        own = torch.arange(N, device=H.device)
        groups = torch.cat([self.index, own[:, None]], 1)
        there = torch.arange(m + 1, device=H.device) < own[:, None]
        there[:, m] = True
        n_states = max(len(H), len(noise))
        size = max(1, _AT_ONCE // (size_of_row(noise.shape[1], m) * n_states))
        weights, deviations, H = [], [], H.transpose(0, 1)
        for part, here in zip(groups.split(size), there.split(size)):
            # rows come first, so that hyperparameters of the states meet them
            K = gram(kernel, H[part].transpose(1, 2))[:, :, None]
            K = K + torch.diag_embed(noise[..., part].permute(2, 0, 1, 3))
            if not here.all():
                pairs = (here[:, :, None] & here[:, None])[:, None, None]
                K = torch.where(pairs, K, torch.eye(m + 1).to(K))
            L = _factors(K)
            row, L, sd = L[..., -1:, :-1], L[..., :-1, :-1], L[..., -1, -1]
            b = torch.linalg.solve_triangular(L, row, upper=False, left=False)
            weights.append(b[..., 0, :])
            deviations.append(sd)
        b, sd = torch.cat(weights).movedim(0, -2), torch.cat(deviations).movedim(0, -1)
        return Near(b.contiguous(), sd.contiguous(), self)


def maximin_order(points):
    """Indices of rows, each as far as can be from those before; the first is in the middle."""
    order = [int(_squares(points, points.mean(0)).argmin())]
    nearest = np.full(len(points), np.inf)
    for _ in range(len(points) - 1):
        nearest = np.minimum(nearest, _squares(points, points[order[-1]]))
        nearest[order[-1]] = -1.0
        order.append(int(nearest.argmax()))
    return np.array(order)


def _squares(points, point):
    return np.square(points - point).sum(1)


def gram(kernel, H):
    """Covariances (..., N, N) of rows (..., N, d), for kernels whose numbers may differ between states."""
    if not isinstance(kernel, Stationary):
        return kernel.within(H)
    H = H / kernel.lengthscale
    if H.shape[-1] == 1:  # the usual case has a shorter way
        r2 = (H - H.mT).square_()
    else:
        r2 = torch.cdist(H, H, compute_mode="donot_use_mm_for_euclid_dist").square_()
    return kernel.write_profile(r2, r2).mul_(kernel.variance)


def _factors(K):
    """Cholesky factors, NaN where factorization failed."""
    L, info = torch.linalg.cholesky_ex(K)
    if info.any():
        L = torch.where((info > 0)[..., None, None], torch.nan, L)
    return L
