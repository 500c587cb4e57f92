"""Models of nearest-neighbor Gaussian processes."""

import math
from typing import NamedTuple

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors
from torch import nn

from ...gp.component import Trainable
from ...gp.frozen import IMPORTANCE_FRACTION
from ...gp.kernels.base import tensor_like
from ...gp.likelihoods import HeteroscedasticGaussian
from ...gp.priors import of_deviations
from ...linalg import cholesky
from ...random import gamma, normal
from ..gradient_model import GradientModel

_LOG_2PI = math.log(2.0 * math.pi)
_ROWS = 300  #: whose leave-one-out densities make one step; fewer if there are many outputs
_FEWEST_ROWS = 30
_IN_A_STEP = 500_000  #: elements of the covariance matrices of these
_AT_ONCE = (
    2_000_000  #: elements of the covariance matrices that are worked on together in prediction
)
_SEARCHES = (0, 10, 25, 50, 100, 200, 400, 800)  #: steps before which the metric follows the kernel
_START_COUNT = 10.0  #: the neighbors that the prior of the local scale is worth at first
_REACH = 20.0  #: of the grid of local scales, in logarithms, on both sides
_LEAST_DOF = 2.1  #: from neighbors; below 2 there is no variance
_FEWEST_SCALES = 64  #: points of this grid
_LEAST_VARIANCE = 1e-12
_LEAST_REST = 1e-12  #: of the weight of a unique input, without a row of it
_SPARE = 8  #: unique inputs beyond those that are needed, to tell ties
_TIE = 1e-9  #: relative difference of distances that is none
_SPREAD = 1.0  #: of the logarithms of hyperparameters, a priori
_DEVIATION = 0.3  #: of those of one column from the level of all columns
_NUGGET = 1e-10  #: of the kernel's variance, beside the noise


class _Rows(nn.Module):
    """The kernel, and the unique inputs that neighbors are looked for in.

    Training rows with the same inputs are one unique input, with their mean target and the sum of their
    weights.
    """

    def __init__(self, kernel, n_inputs, n_outputs):
        super().__init__()
        self.kernel = Trainable(kernel)
        for name, width in (("Z", (n_inputs,)), ("y", (n_outputs,)), ("weight", ())):
            self.register_buffer(name, torch.empty((0, *width), dtype=torch.float64))

    def hold(self, **rows):
        for name, values in rows.items():
            setattr(self, name, values.to(self.Z))


def _farther(distances):
    """Whether unique inputs are farther than those before, beyond rounding."""
    return np.diff(distances, axis=1) > _TIE * distances[:, 1:]


class _TrainingRows(NamedTuple):
    """Rows of a training, their unique inputs, and whether these hold no other target."""

    X: torch.Tensor
    y: torch.Tensor
    weight: torch.Tensor
    index: torch.Tensor
    alone: torch.Tensor


class NeighborGP(GradientModel):
    """The model that :class:`Vecchia` builds.

    Its hyperparameters have log-normal priors around their starts. Of what the kernel has for each column, the
    level, that is the mean of the logarithms, has such a prior, and the deviations from it have Cauchy
    priors: many columns cannot overfit few rows, and yet some may matter much more than all others.
    """

    takes_averages = False  # the search for neighbors follows the hyperparameters of single steps
    _deviation = _DEVIATION  #: None leaves normal priors to all

    def __init__(self, architecture, likelihood, scheme):
        super().__init__()
        self.n_neighbors = scheme.n_neighbors
        self.likelihood = Trainable(likelihood)
        self.has_local_scale = isinstance(likelihood, HeteroscedasticGaussian)
        n_outputs = architecture.n_latents // (2 if self.has_local_scale else 1)
        rows = _Rows(architecture.kernels[-1], architecture.n_features, n_outputs)
        self.layers = nn.ModuleList([rows])
        if self.has_local_scale:
            count = torch.tensor(_START_COUNT, dtype=torch.float64)
            self.log_count = nn.Parameter(count.log())
            self.log_odds = nn.Parameter(torch.zeros_like(count))
        self._metric = None  # lengthscales of the last search tree
        self._tree = None
        self._training_rows = None
        self._medians = [number.detach().clone() for number in NeighborGP._hyperparameters(self)]

    def _hyperparameters(self):
        """All that have a prior; those of the kernel come first."""
        scale = [self.log_count, self.log_odds] if self.has_local_scale else []
        return [*self.rows.kernel.parameters(), *self.likelihood.parameters(), *scale]

    def _negative_log_prior(self, spread):
        """Of `_hyperparameters()`, up to a constant; levels are around `_medians`."""
        deviations, negative_log_prior = self._deviations_from_center(), 0.0
        if not deviations:
            return negative_log_prior
        for i, _ in enumerate(self.rows.kernel.parameters() if self._deviation else ()):
            negative_log_prior = negative_log_prior + of_deviations(deviations[i], self._deviation)
            deviations[i] = deviations[i].mean(0, keepdim=True)
        return negative_log_prior + 0.5 * (torch.cat(deviations) / spread).square().sum()

    def _deviations_from_center(self):
        """How far `_hyperparameters()` are from `_medians`."""
        return [
            (number - median.to(number)).flatten()
            for number, median in zip(self._hyperparameters(), self._medians)
        ]

    @property
    def rows(self):
        """The last layer, which holds the training rows."""
        return self.layers[-1]

    def _hand_on(self):
        """A function that maps rows to what the last layer sees of them, for the present hyperparameters."""
        return lambda X: X

    def _inputs(self, X):
        return self._hand_on()(X)

    def start(self, X, weights, rng):
        pass  # rows are taken from the first batch

    def blocks(self):
        return []

    def divergence(self):
        return None

    def _search(self, metric):
        """Look for neighbors among the rows at hand, in units of `metric`."""
        rows = self._inputs(self.rows.Z).numpy(force=True) / metric
        self._metric, self._tree = metric, NearestNeighbors().fit(rows)

    def _metric_now(self):
        """Lengthscales of the kernel, as far as it has any."""
        with torch.no_grad():
            metric = torch.as_tensor(self.rows.kernel().metric)
            n_inputs = self._inputs(self.rows.Z[:1]).shape[1:]
            return np.broadcast_to(metric.cpu().numpy(), n_inputs).copy()

    def neighbors(self, X, excluded=None):
        """Indices of the nearest rows, the nearest last.

        Parameters
        ----------
        X : tensor of shape (n, n_features)
        excluded : ndarray of shape (n,), optional
            A unique input that is not to be a neighbor, or -1.

        Returns
        -------
        indices : ndarray of shape (n, k)
        """
        n_unique = len(self.rows.Z)
        fewer = excluded is not None and (excluded >= 0).any()
        k = min(self.n_neighbors, n_unique - fewer)
        if k <= 0 or len(X) == 0:
            return np.zeros((len(X), 0), dtype=np.int64)
        if self._tree is None:
            self._search(self._metric)
        points = self._inputs(X).numpy(force=True) / self._metric
        n_found = min(k + fewer + 1, n_unique)
        distances, found = self._tree.kneighbors(points, n_found)
        tied = ~_farther(distances)[:, k - 1 :].all(1)
        if (
            tied.any()
        ):  # of unique inputs as far as each other the first ones, whatever rounding says
            distances, more = self._tree.kneighbors(points[tied], min(n_found + _SPARE, n_unique))
            rank = np.pad(np.cumsum(_farther(distances), 1), ((0, 0), (1, 0)))
            order = np.lexsort((more, rank))[:, :n_found]
            found[tied] = np.take_along_axis(more, order, 1)
        if fewer:  # sorted to the end; without it, the farthest goes
            order = np.argsort(found == excluded[:, None], axis=1, kind="stable")
            found = np.take_along_axis(found, order, 1)
        return found[:, :k][:, ::-1].copy()

    def _noise(self, weight):
        """Variances, shape (n, n_outputs, P), of rows that count `weight` times."""
        rows = self.rows
        variance = tensor_like(self.likelihood().variance, rows.Z).expand(rows.y.shape[1])
        return variance[:, None] / weight[:, None]

    def _seen(self, y, weight):
        """What a GP sees of unique inputs: targets (n, P, n_outputs) and variances (n, n_outputs, P)."""
        return y, self._noise(weight)

    def _own_noise(self, like):
        """Variances of the noise of a row that counts once, shape (n_outputs,)."""
        return self._noise(like.new_ones(1))[..., 0]

    def _given_neighbors(self, X, nearest, held=None):
        """What the neighbors say of rows, for unit scale.

        Parameters
        ----------
        X : tensor of shape (n, n_features)
        nearest : ndarray of shape (n, k)
        held : pair of tensors of shape (n, k, n_outputs) and (n, k), optional
            Targets and weights of the neighbors, if not all that their unique inputs hold.

        Returns
        -------
        mean, sd : tensors of shape (n, n_outputs)
            Of targets that count once.
        L : tensor of shape (n, n_outputs, k + 1, k + 1)
            Cholesky factors of the covariances of the neighbors and, last, the row.
        z : tensor of shape (n, n_outputs, k)
            Whitened targets of the neighbors.
        """
        rows = self.rows
        points = torch.cat([rows.Z[nearest], X[:, None]], 1)
        y, noise = self._seen(*((rows.y[nearest], rows.weight[nearest]) if held is None else held))
        own = self._own_noise(y).expand(len(X), -1)
        K = rows.kernel().within(points)[:, None]
        # with a free scale only the ratio of noise and kernel counts, and may vanish
        noise = torch.cat([noise, own[..., None]], -1)
        noise = noise + _NUGGET * torch.diagonal(K, dim1=-2, dim2=-1)
        L = cholesky(K + torch.diag_embed(noise), _LEAST_VARIANCE)
        z = self._whitened(L, y.mT)
        return (L[..., -1, :-1] * z).sum(-1), L[..., -1, -1], L, z

    @staticmethod
    def _whitened(L, y):
        """Values at the neighbors, shape (..., k), as standard normal ones."""
        return torch.linalg.solve_triangular(L[..., :-1, :-1], y[..., None], upper=False)[..., 0]

    def _counts(self):
        """What the prior of the local scale counts, and each neighbor."""
        least = min(1.0, _LEAST_DOF / max(self._k(), 1))
        return self.log_count.exp(), least + (1.0 - least) * torch.sigmoid(self.log_odds)

    def _dof(self, k=None):
        """Degrees of freedom given `k` neighbors, or those of predictions; None if all have one scale."""
        if not self.has_local_scale:
            return None
        prior, each = self._counts()
        return prior + each * (self._k() if k is None else k)

    def _squared_scale(self, z):
        """Estimate of the squared scale, from whitened neighbors (..., k)."""
        prior, each = self._counts()
        return (prior + each * z.square().sum(-1)) / self._dof(z.shape[-1])

    def expected_log_likelihood(self, batch, generator):
        """Estimate of the sum of the log-densities of rows given their neighbors, with a prior.

        The log-density of the hyperparameters a priori counts once, however many rows are drawn.
        """
        self._hold(batch)
        if self._metric is None or self._n_steps in _SEARCHES:
            self._search(self._metric_now())
        n = len(batch.X)
        few = max(_FEWEST_ROWS, min(_ROWS, _IN_A_STEP // self._size_of_row()))
        chosen = torch.randperm(n, generator=generator, device=generator.device)[:few]
        chosen = chosen.numpy(force=True)
        ell = sum(
            self._training_rows.weight[rows] @ self._log_density(*self._without(rows))
            for rows in (chosen[group] for group in self._alike(chosen))
        )
        return n / len(chosen) * ell - self._negative_log_prior(_SPREAD)

    def _hold(self, batch):
        """Gather the rows of a training in unique inputs."""
        if self._training_rows is not None:
            return
        X, y, weight = (part.to(self.rows.Z) for part in (batch.X, batch.y, batch.weight))
        Z, index = torch.unique(X, dim=0, return_inverse=True)
        if len(Z) == len(X):  # in their own order
            Z, index = X, torch.arange(len(X), device=X.device)
        total = weight.new_zeros(len(Z)).index_add(0, index, weight)
        sums = y.new_zeros(len(Z), y.shape[1]).index_add(0, index, weight[:, None] * y)
        self.rows.hold(Z=Z, y=sums / total[:, None], weight=total)
        any_y = torch.zeros_like(sums)
        any_y[index] = y  # of one of the rows
        differ = (any_y[index] != y).any(1).to(weight)
        alone = (weight.new_zeros(len(Z)).index_add(0, index, differ) == 0.0)[index]
        self._training_rows, self._tree = _TrainingRows(X, y, weight, index, alone), None

    def _alike(self, chosen):
        """Indices into `chosen`, in groups with as many neighbors for each: all inputs, or all but one."""
        alone = self._training_rows.alone[chosen].numpy(force=True)
        if len(self.rows.Z) > self.n_neighbors or alone.all() or not alone.any():
            return [np.arange(len(chosen))]
        return [np.flatnonzero(alone), np.flatnonzero(~alone)]

    def _without(self, chosen):
        """Each chosen row given all others that are near.

        Returns
        -------
        y, mean, sd : tensors of shape (n, n_outputs)
        z : tensor of shape (n, n_outputs, k)
            As from :meth:`_given_neighbors`.
        """
        rows = self.rows
        X, y, weight, index, alone = (part[chosen] for part in self._training_rows)
        nearest = self.neighbors(X, torch.where(alone, index, -1).numpy(force=True))
        # a unique input that holds other targets stays, without one count of the row
        own = torch.as_tensor(nearest, device=X.device) == index[:, None]
        own = own * weight.clamp_max(1.0)[:, None]
        total, y_near = rows.weight[nearest], rows.y[nearest]
        rest = (total - own).clamp_min(_LEAST_REST * total)
        y_near = y_near + (own / rest)[..., None] * (y_near - y[:, None])
        mean, sd, _, z = self._given_neighbors(X, nearest, (y_near, rest))
        return y, mean, sd, z

    def _log_density(self, y, mean, sd, z):
        """Log-density of rows, given what :meth:`_without` says of them; all outputs together.

        With a local scale that of a multivariate t distribution: the unknown scale is over its
        estimate by one factor for all outputs.
        """
        dof, k = self._dof(z.shape[-1]), y.shape[-1]
        error, ell = (y - mean).square() / sd.square(), -sd.log()
        if dof is None:
            return (ell - 0.5 * (_LOG_2PI + error)).sum(-1)
        scale = self._squared_scale(z)
        ell = (ell - 0.5 * (scale.log() + (dof * math.pi).log())).sum(-1)
        ell = ell + torch.lgamma(0.5 * (dof + k)) - torch.lgamma(0.5 * dof)
        return ell - 0.5 * (dof + k) * torch.log1p((error / (scale * dof)).sum(-1))

    @torch.no_grad()
    def loo_log_density(self, batch, rows, dispersions=None):
        self._hold(batch)
        dispersions = None if dispersions is None else torch.as_tensor(dispersions).to(batch.y)
        groups, densities = self._alike(rows), []
        for group in groups:
            for piece in np.array_split(rows[group], -(-len(group) // self._at_once())):
                y, mean, sd, z = self._without(piece)
                if dispersions is not None:
                    sd = dispersions.view(-1, *(1,) * sd.ndim) * sd
                densities.append(self._log_density(y, mean, sd, z))
        back = np.argsort(np.concatenate(groups))
        return torch.cat(densities, -1).numpy(force=True)[..., back]

    def draws(self, n, seed):
        """Squared scales over their estimate, on a grid of logarithms; equal for all rows."""
        if self._dof() is None:
            return np.zeros((1, 0))
        return np.linspace(-1.0, 1.0, max(n, _FEWEST_SCALES))[:, None]

    def needed(self, draws, mixture_weight):
        return draws

    def _mixing(self, draws):
        """The squared scale over its estimate at the grid, and its logarithmic weights.

        For precisions l ~ Gamma(dof / 2, dof / 2), the trapezoidal rule in log(l) converges
        exponentially. The points are dense where the distribution is, and go on to where far
        outliers are explained.
        """
        half = 0.5 * self._dof()
        spread = half.rsqrt()  # of log(l)
        u = torch.asinh(_REACH / spread) * draws[:, 0]
        log_l = half.log() + spread * torch.sinh(u)
        return half / log_l.exp(), half * log_l - log_l.exp() + torch.cosh(u).log()

    def mixture_weights(self, draws):
        if self._dof() is None:
            return super().mixture_weights(draws)
        with torch.no_grad():
            return torch.softmax(self._mixing(draws)[1], 0)

    def _size_of_row(self):
        """Size of the covariance matrices of a row and its neighbors."""
        return (self.n_neighbors + 1) ** 2 * self.rows.y.shape[1]

    def _at_once(self):
        return max(1, _AT_ONCE // self._size_of_row())

    def _pieces(self, X):
        """Chunks of rows, and their neighbors."""
        size = self._at_once()
        for i in range(0, len(X), size):
            yield slice(i, i + size), self.neighbors(X[i : i + size])

    @torch.no_grad()
    def predictive(self, X, draws):
        mixing = None if self._dof() is None else self._mixing(draws)[0][:, None, None]
        moments = [self._moments(X[piece], nearest, mixing) for piece, nearest in self._pieces(X)]
        means, variances = zip(*moments)
        return torch.cat(means, 1), torch.cat(variances, 1)

    def _moments(self, X, nearest, mixing):
        mean, sd, _, z = self._given_neighbors(X, nearest)
        var = sd.square() - self._own_noise(sd)
        var = var.clamp_min(_LEAST_VARIANCE)
        if mixing is None:
            return mean[None], var[None]
        scale = mixing * self._squared_scale(z)  # n_draws, n, n_outputs
        mean = torch.cat([mean.expand_as(scale), scale.log()], -1)
        return mean, torch.cat([var * scale, torch.zeros_like(scale)], -1)

    def _prior(self, n, generator, n_features):
        """`n` functions from the prior, by random features: rows to (n, rows, n_outputs)."""
        rows = self.rows
        shape, kernel = (n, n_features), rows.kernel()
        inputs = self._hand_on()
        n_inputs = inputs(rows.Z[:1]).shape[1]
        phi = kernel.features(shape, n_inputs, generator, rows.Z, IMPORTANCE_FRACTION)
        like = phi(rows.Z.new_zeros(1, 1, n_inputs))
        shape = (n, n_features * like.shape[-1], rows.y.shape[1])
        w = normal(shape, generator, rows.Z) / math.sqrt(n_features)
        return lambda X: torch.cat(
            [phi(H.expand(n, *H.shape)).flatten(-2) @ w for H in inputs(X).split(64)], 1
        )

    def _errors(self, n, generator):
        """Noise of the unique inputs, shape (n, P, n_outputs)."""
        rows = self.rows
        errors = normal((n, *rows.y.shape), generator, rows.Z)
        return errors * self._seen(rows.y[None], rows.weight[None])[1][0].T.sqrt()

    def _mixing_of(self, n, generator):
        """For each function, what the estimates of the squared scales are divided by."""
        dof = self._dof()
        if dof is None:
            return None
        return gamma(0.5 * dof, (n, 1, 1), generator, self.rows.Z) / (0.5 * dof)

    def _path(self, mean, deviation):
        """Latent functions from what neighbors say of rows, and by how much a draw differs."""
        return mean + deviation

    def functions(self, n, generator, n_features, dispersion=1.0):
        """Draws by pathwise conditioning on the neighbors of each row (Wilson et al., 2020)."""
        rows = self.rows
        with torch.no_grad():
            prior = self._prior(n, generator, n_features)
            errors = self._errors(n, generator)
            mixing = self._mixing_of(n, generator)

        @torch.no_grad()
        def f(X, noise=None):
            values = []
            for piece, nearest in self._pieces(X):
                used, inverse = np.unique(nearest, return_inverse=True)
                seen = prior(rows.Z[used]) + errors[:, used]  # n, used, n_outputs
                seen = seen[:, inverse.reshape(nearest.shape)].mT  # n, rows, n_outputs, k
                mean, _, L, z = self._given_neighbors(X[piece], nearest)
                guess = L[..., -1, :-1] * self._whitened(L.expand(n, *L.shape), seen)
                deviation = dispersion * (prior(X[piece]) - guess.sum(-1))
                if mixing is None:
                    values.append(self._path(mean, deviation))
                    continue
                scale = self._squared_scale(z) / mixing
                path = mean + scale.sqrt() * deviation
                values.append(torch.cat([path, scale.log()], -1))
            return torch.cat(values, 1)

        return f

    def _k(self):
        return min(self.n_neighbors, len(self.rows.Z))

    def state(self):
        metric = np.ones(1) if self._metric is None else self._metric
        return {**super().state(), "metric": metric}

    def load_state(self, arrays):
        arrays = dict(arrays)
        self._metric, self._tree, self._training_rows = arrays.pop("metric"), None, None
        last = f"layers.{len(self.layers) - 1}."
        rows = {name: torch.tensor(arrays[last + name]) for name in ("Z", "y", "weight")}
        self.rows.hold(**rows)
        super().load_state(arrays)
