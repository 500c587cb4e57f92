"""Gaussian processes conditioned on all unique inputs: their posteriors, and their leave-one-out moments."""

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from ...gp.draws import prior_functions
from ...gp.kernels import Kernel
from ...gp.rows import leave_one_out
from ...linalg import at_once, cholesky, inverse_triangular, is_exporting, packed, rounding
from ...random import normal
from ..posterior import Functions
from .leave_one_out import LeaveOneOut, log_density
from .local_scale import ScaledPosterior
from .unique_inputs import Rest

_LEAST_VARIANCE = 1e-12
_AT_ONCE = 1_500_000  #: elements of a matrix with rows that are worked on together
JOINT_ROWS = 500  #: up to which a joint draw takes less than one of functions for all rows
_DEAR_ROWS = 500  #: rows from which on their covariance and its factor take 50 ms and more
_MOST_STORED = 10_000_000  #: elements of factors that go into files, 40 MB
_JITTER = 1e-13  #: of the prior variance, which rounding takes from a covariance given many rows


class ConditionedGP(NamedTuple):
    """A Gaussian process given all unique inputs; or J of them, which lead all shapes then."""

    kernel: Kernel
    inputs: Callable  #: maps rows to the inputs of the kernel
    H: torch.Tensor  #: (P, n_inputs), these at the unique inputs
    root: torch.Tensor  #: (k, P, P), Cholesky factors of their covariances, for each output
    a: torch.Tensor  #: (k, P), ``C^{-1} y``
    inverse: torch.Tensor | None = None  #: (k, P, P), of the factors, if products replace solves
    precision: torch.Tensor | None = None  #: (k, P), diagonals of ``C^{-1}``, where they are known

    def _solved(self, K):
        """Solve the factors for covariances (..., P, n)."""
        if self.inverse is not None:
            return self.inverse @ K[..., None, :, :]
        return torch.linalg.solve_triangular(self.root, K[..., None, :, :], upper=False)

    def joint(self, X):
        """Mean (k, B, q) and covariance (k, B, q, q) of groups of rows (B, q, n_features), for one process."""
        H, shape = self.inputs(X.flatten(0, 1)), X.shape[:2]
        K = self.kernel.between(self.H, H)  # P, n
        A = self._solved(K).unflatten(-1, shape).transpose(1, 2)  # k, B, P, q
        cov = self.kernel.of_groups(H.unflatten(0, shape)) - A.mT @ A
        return (self.a @ K).unflatten(1, shape), cov

    def moments(self, X):
        """Mean (k, n) and variance (k, n) of the function."""
        H = self.inputs(X)
        if self._is_one:
            return self._moments_of_one(H)
        K = self.kernel.between(self.H, H)  # P, n
        A = self._solved(K)
        squares = A.square() if A.requires_grad else A.square_()
        var = self.kernel.diag(H)[..., None, :] - squares.sum(-2)
        return self.a @ K, var.clamp_min(_LEAST_VARIANCE)

    def mean(self, X):
        """The mean of :meth:`moments`, which takes no solve."""
        H = self.inputs(X)
        if self._is_one:
            return self.a @ self._covariances_of(H).mT
        return self.a @ self.kernel.between(self.H, H)

    @property
    def _is_one(self):
        """Whether there is one process of one output."""
        return self.H.ndim == 2 and len(self.root) == 1

    def _covariances_of(self, H):
        """Covariances of rows, (n, P): LAPACK takes the transpose as it is."""
        return self.kernel.between(H, self.H).contiguous()

    def _moments_of_one(self, H):
        """Moments of one output, solved in place: copies of covariances take a fifth of the time."""
        K = self._covariances_of(H)
        if K.requires_grad or self.inverse is not None:
            var = self.kernel.diag(H) - self._solved(K.mT).square().sum(-2)
            return self.a @ K.mT, var.clamp_min(_LEAST_VARIANCE)
        mean, A = self.a @ K.mT, K.mT
        torch.linalg.solve_triangular(self.root[0], A, upper=False, out=A)
        var = self.kernel.diag(H) - K.square_().sum(-1)
        return mean, var.clamp_min_(_LEAST_VARIANCE)[None]

    def paths(self, n, generator, noise, n_features):
        """Rows to means (n_rows, k) and deviations (n, n_rows, k), by Wilson et al. (2020).

        `noise` are variances (k, P) of targets, or a factor (P, P) of the covariances of those of one output.
        """
        prior = prior_functions(self.kernel, n, len(self.a), generator, self.H, n_features)
        errors = normal((n, *self.a.T.shape), generator, self.H)
        correlated = len(noise) == len(self.H) > len(self.a)
        seen = prior(self.H) + (noise @ errors if correlated else errors * noise.T.sqrt())
        correction = torch.cholesky_solve(seen.permute(2, 1, 0), self.root).permute(2, 0, 1)

        def path(X):
            H = self.inputs(X)
            K = self.kernel(self.H, H)
            return (self.a @ K).T, prior(H) - (correction @ K).mT

        return path

    def draws(self, n, generator, X):
        """Draw jointly at the rows `X`: as :meth:`paths`, but a function of indices into them."""
        mean, covariance = (part[:, 0] for part in self.joint(X[None]))
        size = float(self.kernel.diag(self.inputs(X)).max())
        root = cholesky(covariance, _JITTER * size)
        errors = normal((n, len(mean), len(X), 1), generator, X)
        mean, deviation = mean.T, (root @ errors)[..., 0].mT
        return lambda where: (mean[where], deviation[:, where])

    def with_precision(self):
        """This process with the diagonals of the inverse covariances."""
        if self.precision is not None:
            return self
        return self._replace(precision=inverse_triangular(self.root).square().sum(-2))

    def extended(self, H, y, covariance):
        """The process given further unique inputs H (m, n_inputs), with targets `y` (k, m), too.

        Their covariances (k, m, m) have the noise. The cost is a square of the number of inputs, not a cube.
        """
        B, n, m = self.kernel(self.H, H), len(self.H), len(H)
        A = torch.linalg.solve_triangular(self.root, B.expand(len(self.root), n, m), upper=False)
        rest = covariance - A.mT @ A
        own = cholesky(rest, rounding(covariance))
        root = self.root.new_zeros(len(own), n + m, n + m)
        root[:, :n, :n], root[:, n:, :n], root[:, n:, n:] = self.root, A.mT, own
        A = torch.linalg.solve_triangular(self.root.mT, A, upper=True)  # C^{-1} B
        a = torch.cholesky_solve((y - self.a @ B)[..., None], own)
        a = torch.cat([self.a - (A @ a)[..., 0], a[..., 0]], 1)
        precision = None
        if self.precision is not None:
            own = inverse_triangular(own)
            more = (A @ own.mT).square().sum(-1), own.square().sum(-2)
            precision = torch.cat([self.precision + more[0], more[1]], 1)
        return ConditionedGP(
            self.kernel, self.inputs, torch.cat([self.H, H]), root, a, None, precision
        )

    def loo_moments(self, y, records):
        """Mean and variance of each target `y` (k, P) given other records; copies leave together."""
        mean, var = leave_one_out(y, self.a, self.with_precision().precision)
        roots = inverse_triangular(self.root) if records else None
        for copies in records:
            block = torch.linalg.inv(roots[..., copies].mT @ roots[..., copies])
            mean[:, copies] = y[:, copies] - (block @ self.a[:, copies, None])[..., 0]
            var[:, copies] = torch.diagonal(block, dim1=-2, dim2=-1)
        return mean, var

    def forward_moments(self, y, records):
        r"""Mean and variance of each target `y` (k, P) given the records before its own, which are in order.

        With the factor `L` of the covariance and :math:`z = L^{-1} y`, those of a record `B` are
        :math:`y_B - L_{BB} z_B` and :math:`L_{BB} L_{BB}^\top`. Of the first record, each target is given those
        before it.
        """
        z = torch.linalg.solve_triangular(self.root, y[..., None], upper=False)[..., 0]
        own = torch.diagonal(self.root, dim1=-2, dim2=-1)
        mean, var = y - own * z, own.square()
        for record in np.unique(records[records > records[0]]):
            B = slice(*np.searchsorted(records, [record, record + 1]))
            block = self.root[:, B, B]
            mean[:, B] = y[:, B] - (block @ z[:, B, None])[..., 0]
            var[:, B] = block.square().sum(-1)
        return mean, var


class ConditionedLeaveOneOut(LeaveOneOut):
    """Leave-one-out densities of the rows of `layer`, for J states of the hyperparameters.

    `noise` (k,) is the variance of a row that counts once. Each unique input given all other records has
    `mean` and, noise included, `var` (J, k, P), and the standardized error `z` (J, k, P). What is `white` in
    the covariance of unique inputs beside the noise is none of the predictions.
    """

    def __init__(self, gps, rows, layer, noise, search, white=0.0):
        super().__init__(rows, search)
        self._layer, self._noise = layer, noise
        y = layer.y.mT
        if rows.forward:
            found = [gp.forward_moments(y, rows.records) for gp in gps]
        else:
            several = np.flatnonzero(np.bincount(rows.records) > 1)
            copies = [np.flatnonzero(rows.records == record) for record in several]
            found = [gp.loo_moments(y, copies) for gp in gps]
        mean, var = map(torch.stack, zip(*found))
        self.mean, self.var, self.z = mean, var - white, (y - mean) / var.sqrt()

    def without(self, chosen):
        """Shapes are (n, k), (J, n, k) and, of errors, (J, n, k, m)."""
        layer = self._layer
        rest = Rest.of(self.rows, chosen, layer.y, layer.weight)
        alone, index = rest.alone[:, None], rest.unique
        mean, var = (moment[..., index].mT for moment in (self.mean, self.var))  # J, n, k
        var = (var - self._noise / rest.total[:, None]).clamp_min(_LEAST_VARIANCE)
        # a unique input that holds other targets stays, without one count of the row
        weight = torch.where(alone, 0.0, rest.weight[:, None])
        error = torch.where(alone, 0.0, rest.y - mean)
        gain = weight * var / (self._noise + weight * var)
        nearest = self.search.of_rows(self.rows, chosen)
        own = torch.as_tensor(nearest, device=index.device) == index[:, None]
        z_own = error / (var + self._noise / weight).sqrt()
        z = torch.where(own[:, None], z_own[..., None], near_errors(self.z, nearest))
        sd = (var * (1.0 - gain) + rest.noise * self._noise).sqrt()
        return self.rows.y[chosen], mean + gain * error, sd, z

    def density(self, local_scale, y, mean, sd, z):
        of_each = log_density(local_scale, y, mean, sd, z)
        return torch.logsumexp(of_each, -2) - math.log(len(self.z))


def near_errors(z, nearest):
    """Standardized errors of unique inputs (n, m), shape (J, n, k, m)."""
    return z[..., torch.as_tensor(nearest, device=z.device)].transpose(1, 2)


def positions(rows, given):
    """Return the indices of rows among given ones, or raise ValueError."""
    same = (rows[:, None] == given).all(-1)
    if not same.any(1).all():
        raise ValueError("functions were drawn for given rows, and are asked for others.")
    return same.int().argmax(1)


class ConditionedPosterior(ScaledPosterior):
    """A mixture, with equal weights, of J processes given all rows, with a local scale of each."""

    def __init__(self, model, draws, gps, together, noise, nearest, loo):
        self.gps, self._together, self._noise = gps, together, noise
        self._z, self._nearest = model.z, nearest
        super().__init__(model, draws, loo, len(gps))

    def differentiable(self):
        new, inverse = copy.copy(self), inverse_triangular(self._together.root)
        new._together = self._together._replace(inverse=inverse)
        each = inverse if inverse.ndim > 3 else inverse[None]  # one for each state
        new.gps = [gp._replace(inverse=part) for gp, part in zip(self.gps, each)]
        return new

    def _pieces(self, X):
        if is_exporting():
            return [X]
        size = max(1, at_once(_AT_ONCE, X.device) // (len(self._noise.T) * len(self.gps)))
        return [X] if len(X) <= size else X.chunk(-(-len(X) // size))  # all alike

    def _of_states(self, X):
        """Means, variances and squared scales (J, n, k) of pieces of rows."""
        for rows in self._pieces(X):
            mean, var = (moment.mT for moment in self._together.moments(rows))
            mean, var = mean.view(-1, *mean.shape[-2:]), var.view(-1, *var.shape[-2:])
            yield (mean, var) if self._scale is None else (mean, var, self._squared(rows))

    def target_mean(self, X):
        means = torch.cat([self._together.mean(rows).mT for rows in self._pieces(X)], -2)
        return means.view(-1, *means.shape[-2:]).mean(0)

    def _squared(self, X):
        """Estimates of the squared scales of rows, (J, n, k)."""
        return self._scale.squared(near_errors(self._z, self._nearest(X)))

    def covariance(self, X):
        return self.joint(X[None])[2][:, 0]

    def joint(self, X):
        roots, means, total, n = [1.0] * len(self.gps), [], 0.0, len(self.gps)
        if self._scale is not None:
            pieces = self._pieces(X.flatten(0, 1))
            scales = torch.cat([self._squared(piece) for piece in pieces], 1)
            roots = self._scale.roots(scales).mT.unflatten(-1, X.shape[:2])
            roots = roots[..., None]  # J, k, B, q, 1
        for gp, root in zip(self.gps, roots):
            mean, cov = gp.joint(X)
            means.append(mean.movedim(0, -1))
            total = total + (root * cov).mT * root
        return X.new_full((n,), 1.0 / n), torch.stack(means), total / n

    @torch.no_grad()
    def functions(self, n, generator, X=None):
        """By pathwise conditioning or, for few given rows, by a joint draw."""
        states = torch.zeros(n, dtype=torch.long)
        if len(self.gps) > 1:
            states = torch.randint(len(self.gps), (n,), generator=generator)
        given = None
        if X is not None and len(X) <= JOINT_ROWS:
            given = torch.unique(X, dim=0)
        draws = []
        for j in states.unique().tolist():
            mine, gp = torch.nonzero(states == j)[:, 0], self.gps[j]
            if given is None:
                draws.append((mine, gp.paths(len(mine), generator, self._noise, self.n_features)))
            else:
                draws.append((mine, gp.draws(len(mine), generator, given)))
        mixing = None if self._scale is None else self._scale.draws(n, generator, self._z)

        def evaluate(Y, noise=None):
            parts = []
            for rows in self._pieces(Y):
                where = rows if given is None else positions(rows, given)
                mean, deviation = rows.new_empty(2, n, len(rows), len(self._noise))
                for mine, draw in draws:
                    mean[mine], deviation[mine] = draw(where)
                if mixing is not None:
                    squared = self._squared(rows)[states] * mixing
                    mean, deviation = self._scale.scaled(mean, deviation, squared)
                parts.append((mean, deviation))
            return tuple(torch.cat(part, 1) for part in zip(*parts))

        return Functions(evaluate, self._noise.new_ones(n))

    def solution(self):
        root, a = (part.numpy(force=True) for part in (self._together.root, self._together.a))
        if root.shape[-1] < _DEAR_ROWS or root.size > _MOST_STORED:
            return {}
        return {
            "root": packed(root.reshape(-1, *root.shape[-3:])),
            "a": a.reshape(-1, *a.shape[-2:]),
        }
