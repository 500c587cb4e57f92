"""The posteriors of models that predict rows from their nearest unique inputs."""

import copy

import numpy as np
import torch

from ...gp.draws import prior_functions
from ...linalg import at_once, inverse_triangular, is_exporting, pieces, whitened
from ...random import normal
from ..posterior import Functions
from ..rows.full_scale import weights_of_neighbors
from ..rows.leave_one_out import LeaveOneOut
from ..rows.local_scale import ScaledPosterior
from ..rows.near_rows import FrozenRows, size_of_row

_AT_ONCE = 2_000_000  #: elements of covariance matrices that are worked on together
_MOST_NEIGHBORS = 3000  #: unique inputs among which covariances are in closed form
_TO_PREDICT = 1_000_000  #: likewise, where they are copied once more


class NeighborPosterior(ScaledPosterior):
    """The posterior of models that predict rows from their nearest unique inputs."""

    def __init__(self, model, draws, near, search, loo):
        self._near, self._search, self._frozen = near, search, FrozenRows(near)
        super().__init__(model, draws, loo)

    def differentiable(self):
        smooth = self._near.smooth
        if smooth is None:
            return self
        new = copy.copy(self)
        new._near = self._near._replace(
            smooth=smooth._replace(inverse=inverse_triangular(smooth.L))
        )
        return new

    def _pieces(self, X):
        """Chunks of rows, and their neighbors."""
        size = rows_at_once(self._near, self._search.n_neighbors, _TO_PREDICT)
        for piece in pieces(X, size):
            yield piece, self._search(piece)

    def _of_states(self, X):
        room = None
        for rows, nearest in self._pieces(X):
            if rows.requires_grad or is_exporting():
                mean, sd, _, z = self._near.say(rows, nearest)
            else:
                room = self._frozen.room(*nearest.shape) if room is None else room
                mean, sd, z = self._frozen.moments(rows, nearest, room)
            found = self._near.observed.latents(mean, sd.square())
            found = found if self._scale is None else (*found, self._scale.squared(z))
            yield tuple(part[None] for part in found)

    def covariance(self, X):
        found = self.joint(X[None])
        return None if found is None else found[2][:, 0]

    def joint(self, groups):
        """Moments of draws, with the covariances of the prior, less what neighbors of both rows explain."""
        near, shape, X = self._near, groups.shape[:2], groups.flatten(0, 1)
        nearest, means = self._search(X), []
        used, inverse = np.unique(nearest, return_inverse=True)
        if len(used) > _MOST_NEIGHBORS or shape[1] > _MOST_NEIGHBORS:
            return None
        scales, parts, far, size = [], [], [], rows_at_once(near, self._search.n_neighbors)
        for i in range(0, len(X), size):
            some, of_some = X[i : i + size], nearest[i : i + size]
            mean, sd, L, z = near.say(some, of_some)
            means.append(near.observed.latents(mean, sd.square())[0])
            parts.append(weights_of_neighbors(L))
            if near.smooth is not None:
                far.append(near.loadings(near.smooth.near(of_some, some), L[:, 0]))
            if self._scale is not None:
                scales.append(self._scale.squared(z))
        places = torch.as_tensor(inverse.reshape(nearest.shape), device=X.device)
        weights = torch.cat(parts).transpose(0, 1)  # n_outputs, n, k
        W = weights.new_zeros(*weights.shape[:2], len(used))
        W = W.scatter(2, places.expand_as(weights), weights).unflatten(1, shape)  # k, B, q, used
        Z, noise = near.Z[used], near.observed.targets(near.y[None, used], near.weight[None, used])
        seen = near.kernel(Z, Z) + torch.diag_embed(noise[1][0])
        cross = W @ near.kernel(Z, X).unflatten(1, shape).transpose(0, 1)
        cov = near.kernel.of_groups(groups) - cross - cross.mT + W @ seen[:, None] @ W.mT
        if far:
            far = torch.cat(far).unflatten(0, shape)
            after = far @ near.smooth.root
            cov = cov + after @ after.mT - far @ far.mT
        if scales:
            root = self._scale.roots(torch.cat(scales)).T.unflatten(1, shape)[..., None]
            cov = root * cov * root.mT
        return X.new_ones(1), torch.cat(means).unflatten(0, shape)[None], cov

    @torch.no_grad()
    def functions(self, n, generator, X=None):
        """By pathwise conditioning on the neighbors of each row (Wilson et al., 2020)."""
        near, scale = self._near, self._scale
        n_outputs = near.y.shape[1]
        prior = prior_functions(near.kernel, n, n_outputs, generator, near.Z, self.n_features)
        noise = near.observed.targets(near.y[None], near.weight[None])[1][0].T
        errors = normal((n, *near.y.shape), generator, near.Z) * noise.sqrt()
        if near.smooth is not None:
            m = len(near.smooth.Z)
            # inducing variables of the prior functions, and deviations of theirs from the posterior mean
            given = torch.linalg.solve_triangular(
                near.smooth.L, prior(near.smooth.Z)[..., 0].T, upper=False
            )
            drawn = near.smooth.root @ normal((m, n), generator, near.Z)
        mixing = None if scale is None else scale.draws(n, generator, near.Z)

        def evaluate(X, noise=None):
            return tuple(
                torch.cat(part, 1) for part in zip(*(draw(*piece) for piece in self._pieces(X)))
            )

        def draw(X, nearest):
            used, inverse = np.unique(nearest, return_inverse=True)
            seen = prior(near.Z[used]) + errors[:, used]  # n, used, n_outputs
            seen = seen[:, inverse.reshape(nearest.shape)].mT  # n, rows, n_outputs, k
            mean, _, L, z = near.say(X, nearest)
            guess = L[..., -1, :-1] * whitened(L.expand(n, *L.shape), seen)
            deviation = prior(X) - guess.sum(-1)
            if near.smooth is not None:
                loadings = near.loadings(near.smooth.near(nearest, X), L[:, 0])
                deviation = deviation + (loadings @ (drawn - given)).T[..., None]
            mean, deviation = near.observed.values(mean.expand_as(deviation), deviation)
            if scale is None:
                return mean, deviation
            return scale.scaled(mean, deviation, self._scale.squared(z) * mixing)

        return Functions(evaluate, near.Z.new_ones(n))


class NearLeaveOneOut(LeaveOneOut):
    """Leave-one-out densities of rows given the neighbors that are left, by a `density` of their moments."""

    def __init__(self, rows, search, near, density):
        super().__init__(rows, search, rows_at_once(near, search.n_neighbors))
        self._near, self.density = near, density

    def without(self, chosen):
        return self._near.without(self.rows, chosen, self.search)


def rows_at_once(near, n_neighbors, most=None):
    """Rows that are predicted together."""
    size = size_of_row(near.y.shape[1], n_neighbors)
    if near.smooth is not None:
        size += (n_neighbors + 1) * len(near.smooth.Z)
    return max(1, at_once(most or _AT_ONCE, near.y.device) // size)
