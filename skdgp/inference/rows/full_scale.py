"""Full-scale approximation: inducing points for long distances, near rows for the rest."""

from typing import NamedTuple

import numpy as np
import torch

from ...gp.inducing import centers
from ...gp.kernels import Kernel
from ...linalg import at_once, cholesky, is_exporting, plain_back_substituted
from .inducing_left_out import Observations, PrecisionOfCopies
from .unique_inputs import NeighborSearch

#: rounding: of the mean variance at the inducing inputs; what it takes away, near rows explain
_JITTER = 1e-6
_AT_ONCE = 2_000_000  #: memory: elements of features that are gathered together
_FIRST = 256  #: time: unique inputs whose predecessors are compared one by one
#: time: of the number of inputs among which the next ones look: at least 3/4 of all before them
_GROWTH = 1.3
_CENTER_ROWS = 10_000  #: time: among which k-means looks for centers


class FullScale(NamedTuple):
    r"""Inducing variables of a Gaussian process, given all rows.

    A covariance is the sum :math:`\phi(x)^\top \phi(x') + k_s(x, x')` with
    :math:`\phi(x) = L^{-1} k(Z, x)` and :math:`k(Z, Z) = L L^\top` (Sang and Huang, 2012). The inducing
    variables explain the first part, and near rows the second one (Gyger et al., 2025).

    """

    kernel: Kernel
    Z: torch.Tensor  #: (m, n_features), inducing inputs
    L: torch.Tensor  #: (m, m)
    known: torch.Tensor  #: (P, m), features of the unique inputs
    mean: torch.Tensor  #: (m,), of the inducing variables, which are standard normal a priori
    root: torch.Tensor  #: (m, m), of their posterior covariance
    observations: Observations | None = None  #: of the unique inputs, with training rows
    inverse: torch.Tensor | None = None  #: (m, m), of `L`, if products replace solves

    @classmethod
    def of(cls, kernel, Z, X, mean=None, root=None):
        """The inducing variables at `Z` of a process at the unique inputs `X`; a priori, without moments."""
        K = kernel(Z, Z)
        L = cholesky(K, _JITTER * float(torch.diagonal(K).mean()))
        if mean is None:
            mean, root = Z.new_zeros(len(Z)), torch.eye(len(Z)).to(Z)
        prior = cls(kernel, Z, L, None, mean, root)
        return prior._replace(known=prior.features(X))

    def features(self, X):
        """``L^{-1} k(Z, x)`` of rows (n, n_features), shape (n, m)."""
        K = self.kernel(self.Z, X)
        if self.inverse is not None:
            return (self.inverse @ K).T
        return torch.linalg.solve_triangular(self.L, K, upper=False).T

    def near(self, nearest, X, out=None):
        """Features (n, k + 1, m) of the neighbors (n, k) of rows and, last, of the rows (n, n_features).

        They are written over `out`: fresh memory is slow at first touch.
        """
        nearest = torch.as_tensor(nearest, device=X.device)
        index = torch.nn.functional.pad(nearest, (0, 1))  # any, for a row itself
        own = self.features(X)
        if own.requires_grad or is_exporting():
            return torch.cat([self.known[nearest], own[:, None]], 1)
        F = self.known.new_empty(*index.shape, self.known.shape[1]) if out is None else out
        torch.index_select(self.known, 0, index.flatten(), out=F.view(-1, F.shape[-1]))
        F[:, -1] = own
        return F

    def given(self, near, metric, n_neighbors, records):
        """The inducing variables given all unique inputs, which may be left out by their `records`.

        The residual of the inducing variables has the likelihood of Vecchia (1988): a unique input is
        predicted from near ones that come before it in a random order. With rows of conditional means
        subtracted and scaled to unit variance, the residual has the precision ``W^T W``.
        """
        y, noise = near.observed.targets(near.y[None], near.weight[None])
        y, noise = y[0, :, 0], noise[0, 0]
        known = torch.cat([self.known, y[:, None]], 1)  # features and targets
        precision, total = torch.eye(len(self.Z)).to(y), y.new_zeros(len(self.Z))
        of_known, of_each = torch.zeros_like(known), torch.zeros_like(y)
        copies = PrecisionOfCopies(records)
        for which, W in self._whitening(near, noise, metric, n_neighbors):
            whitened = (W[:, None] @ known[which])[:, 0]
            precision.addmm_(whitened[:, :-1].T, whitened[:, :-1])
            total.addmv_(whitened[:, :-1].T, whitened[:, -1])
            back = W[..., None] * whitened[:, None]
            of_known.index_add_(0, which.flatten(), back.flatten(0, 1))
            of_each.index_add_(0, which.flatten(), W.square().flatten())
            copies.add(which, W)
        L = cholesky(precision)
        mean = torch.cholesky_solve(total[:, None], L)[:, 0]
        root = torch.linalg.solve_triangular(L, torch.eye(len(L)).to(L), upper=False).T
        least = 1.0 / (near.kernel.diag(near.Z) + noise)
        observations = Observations.of(mean, root, of_known, of_each, least, noise, copies)
        return self._replace(mean=mean, root=root, observations=observations)

    def _whitening(self, near, noise, metric, n_neighbors):
        """Pieces of the sparse root `W` of the residual's precision: columns (n, k + 1) and values."""
        order = np.random.default_rng(0).permutation(len(near.Z))
        before = _predecessors(near.Z[order], metric, n_neighbors)
        missing = torch.as_tensor(np.pad(before < 0, ((0, 0), (0, 1)))).to(noise.device)
        order = torch.as_tensor(order, device=noise.device)
        which = torch.cat([order[before.clip(0)], order[:, None]], 1)
        jitter = 1e-4 * _JITTER * float(noise.mean())
        size = max(1, at_once(_AT_ONCE, noise.device) // (which.shape[1] * len(self.Z)))
        for rows, absent in zip(which.split(size), missing.split(size)):
            present = (~absent).to(noise)
            F = self.known[rows] * present[..., None]
            K = near.kernel.within(near.Z[rows]) * present[:, :, None] * present[:, None]
            white = torch.where(absent, 1.0, noise[rows])
            L = cholesky(K - F @ F.mT + torch.diag_embed(white), jitter)
            own = torch.ones_like(L[:, -1, -1:])
            yield rows, torch.cat([-weights_of_neighbors(L), own], 1) / L[:, -1, -1:]


def weights_of_neighbors(L):
    """Weights (..., k) of the neighbors in the mean of a row, from a factor whose last row is the row's."""
    if is_exporting():
        return plain_back_substituted(L[..., :-1, :-1], L[..., -1, :-1])
    own = L[..., -1, :-1, None]
    return torch.linalg.solve_triangular(L[..., :-1, :-1].mT, own, upper=True)[..., 0]


def inducing_inputs(Z, weight, metric, n_inducing):
    """Centers of unique inputs in units of `metric`."""
    rng = np.random.RandomState(0)
    rows = rng.permutation(len(Z))[:_CENTER_ROWS]
    points, share = (Z[rows].numpy(force=True) / metric, weight[rows].numpy(force=True))
    found = centers(points, share, n_inducing, "kmeans", rng) * metric
    return torch.as_tensor(found).to(Z)


def _predecessors(X, metric, n_neighbors):
    """Near rows among those before each row, shape (n, k), with -1 where there are fewer."""
    n, k = len(X), min(n_neighbors, len(X) - 1)
    found = np.full((n, k), -1)
    points = X.numpy(force=True) / metric
    first = min(n, max(_FIRST, k + 1))
    distances = np.square(points[:first, None] - points[None, :first]).sum(-1)
    distances[np.triu_indices(first)] = np.inf
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
    known = np.isfinite(np.take_along_axis(distances, nearest, 1))
    found[:first, : nearest.shape[1]] = np.where(known, nearest, -1)
    start = first
    while start < n:
        end = min(n, int(_GROWTH * start) + 1)
        found[start:end] = NeighborSearch(X[:start], metric, k)(X[start:end])
        start = end
    return found
