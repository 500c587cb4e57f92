"""Predictor of a fitted estimator: members, scalings and point masses."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from .._threads import computing
from ..gp.likelihoods.base import GaussianMixture as GaussianLikelihoods
from .affine import Affine
from .base import Distribution
from .categorical import Categorical
from .components import Rows
from .covariance import N_DRAWS, covariance_of, latent_covariance, with_diagonal
from .functions import draw
from .mixture import Mixture, rows_at_once
from .noise import mean_given_function
from .point_masses import PointMasses, WithPointMasses
from .transformed import Transformed


@dataclass(frozen=True)
class Predictor:
    """Predictions for rows (n, n_features) in the user's units, as the estimator has checked them."""

    members: list
    x_scaler: object
    y_scaler: object
    device: str
    n_threads: int = 1
    is_class: bool = False
    masses: PointMasses | None = None

    def differentiable(self):
        """Return a predictor whose operations have fast gradients."""
        device = self.device
        members = [m.holding(m.posterior(device).differentiable(), device) for m in self.members]
        return replace(self, members=members)

    @contextlib.contextmanager
    def computing(self):
        """Limit the threads, and disable gradients."""
        with computing(self.n_threads), torch.no_grad():
            yield

    def mixture(self, X, offset=None) -> Mixture:
        """The mixture of the members at some rows, in standardized units."""
        return Mixture(self.members, Rows.of(X, self.x_scaler, offset), self.device)

    def at(self, X, offset=None) -> Distribution:
        """Distribution of the target at some rows, in its units; of some thousand rows at most."""
        mixture = self.mixture(X, offset)
        if self.is_class:
            return Categorical(mixture)
        found = self._in_units(mixture)
        if self.masses is not None:
            found = WithPointMasses(found, self.masses, self._of_masses.at(X))
        return found

    def latent_at(self, X) -> Distribution:
        """Distribution of the latent functions at some rows, in units of the target where it has them."""
        return self._in_units(self.mixture(X).latent(self.n_outputs))

    def _in_units(self, distribution):
        if self.y_scaler.maps is not None:
            return Transformed(distribution, self.y_scaler)
        return Affine(distribution, self.y_scaler.center, self.y_scaler.scale)

    @property
    def _of_masses(self):
        """The predictor of point masses, and of all other targets as a last class."""
        return replace(self.masses.classes.predictor(True, self.n_threads), device=self.device)

    @property
    def n_outputs(self):
        return len(self.y_scaler.scale)

    @property
    def is_linear(self):
        """Whether the mean of the target given the function is the function."""
        kinds = (type(member.likelihood) for member in self.members)
        is_mean = GaussianLikelihoods.conditional_mean
        return self.y_scaler.maps is None and all(
            kind.conditional_mean is is_mean for kind in kinds
        )

    def over(self, X, function: Callable, *others, offset=None, at=None):
        """Return a function of distributions, and of rows of `others`, as arrays for all rows.

        Some rows are worked on at a time. `at` is :meth:`at` or another method that makes distributions.
        """
        results: list[np.ndarray] = []
        size, several = rows_at_once(self.members, self.device), False
        at = at or partial(self.at)
        with self.computing():
            for first in range(0, len(X), size):
                piece = slice(first, first + size)
                own = {} if offset is None else {"offset": offset[piece]}
                found = function(at(X[piece], **own), *(other[piece] for other in others))
                several = isinstance(found, tuple)
                parts = [
                    part.numpy(force=True) if isinstance(part, torch.Tensor) else part
                    for part in (found if several else (found,))
                ]
                # arrays made beforehand: small ones amid large ones that come and go waste memory
                results = results or [np.empty((len(X), *part.shape[1:])) for part in parts]
                for result, part in zip(results, parts):
                    result[piece] = part
        return tuple(results) if several else results[0]

    # Joint over rows

    def draw(self, X, n, seed, what, offset=None, mean=None):
        """Draws (n, n_rows, k) in standardized units, see :func:`~skdgp.predictive.functions.draw`."""
        with self.computing():
            rows = Rows.of(X, self.x_scaler, offset)
            return draw(self.members, rows, n, seed, what, self.device, mean)

    def sample(self, X, n, seed, latent=False, offset=None):
        """Draws (n, n_rows, k) of targets, or of latent functions, in units of the target."""
        what = "function" if latent else "y"
        draws = self.draw(X, n, seed, what, offset)[..., : self.n_outputs]
        y = self._outside(X, draws, latent)
        if self.masses is None or latent:
            return y
        p = self._of_masses.over(X, lambda d: d.probabilities())[:, :-1]
        u = np.random.default_rng([seed, 1]).random((n, len(X)))
        which = (u[..., None] > np.cumsum(p, 1)).sum(2)
        values = np.append(self.masses.values, np.nan)[which]
        return np.where(np.isnan(values), y[..., 0], values)[..., None]

    def _outside(self, X, z, latent):
        """Targets of standardized ones (..., n, k), which end where distributions of means do."""
        scaler = self.y_scaler
        if scaler.maps is not None:
            outside = (z < scaler.low) | (z > scaler.high)
            some = outside.any((*range(z.ndim - 2), -1))
            if some.any():
                at = self.latent_at if latent else lambda X: self._in_units(self.mixture(X))
                low, high = self.over(X[some], lambda d: d.ends(), at=at)
                z[..., some, :] = np.clip(z[..., some, :], low, high)
        return scaler.inverse(z)

    def draw_means(self, X, n, seed):
        """Draws (n, n_rows, k) of the function whose mean is predicted, in units of the target."""
        scaler = self.y_scaler
        of_map = None if scaler.maps is None else partial(mean_given_function, scaler=scaler)
        draws = self.draw(X, n, seed, "mean_function", mean=of_map)
        if of_map is None and not self.is_class:
            draws = draws * scaler.scale + scaler.center
        if self.masses is None:
            return draws
        p = self._of_masses.draw_means(X, n, seed)
        return p[..., -1:] * draws + (p[..., :-1] @ self.masses.values)[..., None]

    def covariance(self, X, latent=False, offset=None):
        """Covariances (n, n, k) of targets, or of latent functions, in units of the target."""
        scaler, k = self.y_scaler, self.n_outputs
        at = self.latent_at if latent else lambda X, **own: self._in_units(self.mixture(X, **own))
        _, std = self.over(X, lambda d: d.moments(), offset=offset, at=at)
        if scaler.maps is not None:  # correlations are those of draws
            draws = self.draw(X, N_DRAWS, 0, "latent" if latent else "y")[..., :k]
            cov = covariance_of(self._outside(X, draws, latent) / np.maximum(std, 1e-300))[1]
            explained = std**2
        elif latent or self.is_linear:
            with self.computing():
                cov = latent_covariance(self.members, X, self.x_scaler, self.device, k)
            explained = self.over(X, lambda d: d.moments()[1], at=self.latent_at) ** 2
            cov *= scaler.scale**2
        else:
            cov = covariance_of(self.draw(X, N_DRAWS, 0, "mean", offset))[1] * scaler.scale**2
            explained = np.einsum("iik->ik", cov)
        cov = with_diagonal(cov, std**2, explained)
        if self.masses is not None and not latent:
            q = self.over(X, lambda d: d.probabilities()[1], offset=offset)
            cov = (q * q.T)[..., None] * cov
            std = self.over(X, lambda d: d.moments()[1], offset=offset)
            np.einsum("iik->ik", cov)[...] = std**2
        return cov
