"""Moments of rows given their nearest unique inputs, by small covariance matrices."""

from typing import NamedTuple

import torch

from ...gp.kernels import Kernel
from ...linalg import Whitened, is_exporting, plain_whitened, whitened
from .full_scale import FullScale, weights_of_neighbors
from .unique_inputs import Rest

_LEAST_VARIANCE = 1e-12
_SEVERAL = 2  #: outputs, beyond which it pays to look for those that are alike
_NUGGET = 1e-10  #: of the kernel's variance, beside the noise


class NearRows(NamedTuple):
    """A Gaussian process conditioned on some unique inputs alone."""

    kernel: Kernel
    Z: torch.Tensor  #: (P, n_features), unique inputs
    y: torch.Tensor  #: (P, n_outputs)
    weight: torch.Tensor  #: (P,)
    observed: object  #: observation model of the targets, see :class:`GaussianTargets`
    smooth: FullScale | None = None  #: explains long distances, of one output

    def say(self, X, nearest):
        """Condition rows on their neighbors, of indices (n, k), for unit scale.

        Means and deviations of targets that count once; Cholesky factors of the covariances of the
        neighbors and, last, the row; and whitened targets of the neighbors.
        """
        mean, sd, L, z, loadings = self._parts(X, nearest, (self.y[nearest], self.weight[nearest]))
        if loadings is not None:
            sd = (sd.square() + self._far(loadings)).sqrt()
        return mean, sd, L, z

    def _parts(self, X, nearest, held, inducing_mean=None, noise_of_row=1.0):
        """As :meth:`say` without what inducing variables add to variances, and loadings on them, if any.

        The neighbors `held` have other targets and weights than those at hand, inducing variables another
        mean (n, m), and rows `noise_of_row` (n, 1) times the noise of one that counts once.
        """
        points = torch.cat([self.Z[nearest], X[:, None]], 1)
        y, noise = self.observed.targets(*held)
        own = noise_of_row * self.observed.noise.expand(X.shape[0], -1)
        K, F, far = self.kernel.within(points)[:, None], None, None
        if self.smooth is not None:
            mean = (
                self.smooth.mean.expand(X.shape[0], -1) if inducing_mean is None else inducing_mean
            )
            F = self.smooth.near(nearest, X)
            far = F @ mean[..., None]
            K, y = K - (F @ F.mT)[:, None], y - far[:, :-1]
        # with a free scale only the ratio of noise and kernel counts, and may vanish
        noise = torch.cat([noise, own[..., None]], -1)
        noise = noise + _NUGGET * torch.diagonal(K, dim1=-2, dim2=-1)
        K, y = K + torch.diag_embed(noise), y.mT
        if is_exporting():
            L, z = plain_whitened(K, y)
        else:
            L, z = Whitened.apply(K, y, _LEAST_VARIANCE)
        mean = (L[..., -1, :-1] * z).sum(-1)
        if F is None:
            return mean, L[..., -1, -1], L, z, None
        return mean + far[:, -1], L[..., -1, -1], L, z, self.loadings(F, L[:, 0])

    def far(self, F, L):
        """Mean and variance (n, 1) by the inducing variables, from features and factors (n, k + 1, ...)."""
        return F[:, -1] @ self.smooth.mean[:, None], self._far(self.loadings(F, L))

    def _far(self, loadings):
        """Variances (n, 1) by the inducing variables."""
        return (loadings @ self.smooth.root).square().sum(-1, keepdim=True)

    def loadings(self, F, L):
        """Features (n, m) of rows less those that their neighbors stand for."""
        return F[:, -1] - (weights_of_neighbors(L)[:, None] @ F[:, :-1])[:, 0]

    def without(self, rows, chosen, search):
        """Targets, means, deviations and `z` of training rows, each given other rows."""
        X, y, nearest = rows.X[chosen], rows.y[chosen], search.of_rows(rows, chosen)
        rest = Rest.of(rows, chosen, self.y, self.weight)
        # a unique input that holds other targets stays, without one count of the row
        own = torch.as_tensor(nearest, device=X.device) == rest.unique[:, None]
        weight = torch.where(own, rest.weight[:, None], self.weight[nearest])
        held = torch.where(own[..., None], rest.y[:, None], self.y[nearest]), weight
        if self.smooth is None:
            mean, sd, _, z, _ = self._parts(X, nearest, held, None, rest.noise)
            return y, mean, sd, z
        smooth, (shift, more) = self.smooth, self.smooth.observations.without(rest)
        mean, sd, _, z, loadings = self._parts(
            X, nearest, held, smooth.mean + shift @ smooth.root.T, rest.noise
        )
        far = (loadings @ smooth.root)[:, None]  # n, 1, m
        var = far.square().sum(-1) + (far @ more).square().sum(-1)
        return y, mean, (sd.square() + var).sqrt(), z


class GaussianTargets:
    """Targets with Gaussian noise, of the variances (n_outputs,) of targets that count once."""

    def __init__(self, variance):
        self.noise = variance

    def targets(self, y, weight):
        """Observations (n, P, n_outputs) of the process, and their variances (n, n_outputs, P)."""
        return y, self.noise[:, None] / weight[:, None]

    def latents(self, mean, var):
        """Moments of the latent functions from those of the process."""
        return mean, (var - self.noise).clamp_min(_LEAST_VARIANCE)

    def values(self, mean, deviation):
        """Means and deviations of draws of the latent functions from those of the process."""
        return mean, deviation


class FrozenRows:
    """The moments of :meth:`NearRows.say` for a process that no longer changes, at less cost.

    Some outputs have the most frequent target and noise at all neighbors, such as classes without a
    neighbor. They share the factor of one output, solved for unit targets.
    """

    @torch.no_grad()
    def __init__(self, near):
        self._near, (P, k) = near, near.y.shape
        y, noise = near.observed.targets(near.y[None], near.weight[None])
        y, noise = y[0].T, noise[0].expand(k, P)
        if near.smooth is not None:
            y = y - near.smooth.known @ near.smooth.mean
        self._y, self._noise = y.flatten(), noise.flatten()  # one output after the other
        self._is_usual = None
        if k > _SEVERAL and P:
            self._usual = y.mode(1).values
            usual = (y == self._usual[:, None]) & (noise == noise.flatten().mode().values)
            self._is_usual = usual.T.contiguous()

    def room(self, n, k):
        """Memory that pieces of at most `n` rows with `k` neighbors may share, or None."""
        known = None if self._near.smooth is None else self._near.smooth.known
        return None if known is None else known.new_empty(n, k + 1, known.shape[1])

    @torch.no_grad()
    def moments(self, X, nearest, room=None):
        """Mean, sd and z as from :meth:`NearRows.say`, for indices (n, k) of neighbors."""
        near, (n, k), n_outputs = self._near, nearest.shape, self._near.y.shape[1]
        nearest = torch.as_tensor(nearest, device=X.device)
        K, F = near.kernel.within(torch.cat([near.Z[nearest], X[:, None]], 1)), None
        if near.smooth is not None:
            F = near.smooth.near(nearest, X, None if room is None else room[:n])
            K = torch.baddbmm(K, F, F.mT, alpha=-1.0)
        own, place, index = near.observed.noise, None, nearest
        if n_outputs > 1:
            needed = nearest.new_ones(n, n_outputs, dtype=torch.bool)
            if self._is_usual is not None and k:
                usual = self._is_usual[nearest].all(1)
                first = usual.int().argmax(1)[:, None]
                needed = (~usual).scatter_(1, first, True)
            rows, outputs = needed.nonzero(as_tuple=True)
            index = outputs[:, None] * len(near.y) + nearest[rows]
            K, own = K[rows], own[outputs]
        y, noise = self._y[index], self._noise[index]
        if n_outputs > 1 and self._is_usual is not None and k:
            place = torch.empty_like(usual, dtype=torch.long)
            place[rows, outputs] = torch.arange(len(rows), device=X.device)
            place = torch.where(usual, place.gather(1, first), place)
            level = torch.where(usual, self._usual, 1.0)
            y = torch.where(usual[rows, outputs, None], 1.0, y)
        diagonal = torch.diagonal(K, dim1=-2, dim2=-1)
        # with a free scale only the ratio of noise and kernel counts, and may vanish
        diagonal.mul_(1.0 + _NUGGET).add_(_LEAST_VARIANCE)
        diagonal[:, :k] += noise
        diagonal[:, k] += own
        L, info = torch.linalg.cholesky_ex(K.mT)  # symmetric: so no transpose is copied
        z = whitened(L, y)
        mean, sd = (L[:, -1, :k] * z).sum(-1), L[:, -1, -1]
        if F is not None:
            more, far = near.far(F, L)
            mean, sd = mean + more[:, 0], (sd.square() + far[:, 0]).sqrt()
        if place is None:
            found = mean.view(n, n_outputs), sd.view(n, n_outputs), z.view(n, n_outputs, k)
        else:
            found = level * mean[place], sd[place], level[..., None] * z[place]
        if info.any():  # only these rows: others are not to depend on them
            failed = info.nonzero()[:, 0]
            failed = (failed if n_outputs == 1 else rows[failed]).unique()
            mean, sd, _, z = near.say(X[failed], nearest[failed])
            for part, again in zip(found, (mean, sd, z)):
                part[failed] = again
        return found


def size_of_row(n_outputs, n_neighbors):
    """Size of the covariance matrices of a row and its neighbors."""
    return (n_neighbors + 1) ** 2 * n_outputs
