"""Components of the mixture at some rows: dispersion, and what sets rows apart from training, act here."""

import math
from typing import NamedTuple

import numpy as np
import torch

from ..inference.posterior import Latent
from ..preprocessing.constant_columns import ConstantColumns
from ..preprocessing.scaling import Versions


class Rows(NamedTuple):
    """Rows as members see them, and what members do not see of them."""

    X: np.ndarray  #: (n, d), scaled
    columns: ConstantColumns | None = None  #: that were constant in training
    versions: Versions | None = None  #: of rows with unknown cells
    offset: np.ndarray | None = None  #: (n, 1), logarithms of exposures, added to functions
    noise: np.ndarray | None = None  #: (n, k), variances of the noise over those of members

    @property
    def plain(self):
        """Whether nothing about the rows is left out of `X`."""
        others = self.versions, self.offset, self.noise
        return not self.columns and all(other is None for other in others)

    @classmethod
    def seen(cls, X, scaler, offset=None):
        """Rows (n, n_features) in the user's units, by the scaler of inputs."""
        noise = None if scaler.encoder is None else scaler.encoder.noise(X)
        return cls(
            scaler.transform(X), ConstantColumns(X, scaler), scaler.versions(X), offset, noise
        )


def component(member, rows, total, device, compact=False):
    """Weights (S, 1, 1), likelihood and latent moments (S, n, k) of the components of a member.

    If `compact`, components that differ in their scale alone are one, where rows allow it.
    """
    posterior = member.posterior(device)
    X = torch.as_tensor(rows.X, device=device)
    if compact and not rows.columns and rows.versions is None and rows.noise is None:
        (log_weights, mean, var), likelihood = posterior.compact(X)
    else:
        log_weights, mean, var = latent(posterior, X, rows.versions)
        likelihood = posterior.likelihood_of()
    log_weights = log_weights + math.log(member.mixture_weight / total)
    if rows.offset is not None:
        mean = mean + torch.as_tensor(rows.offset).to(mean)
    likelihood = likelihood.for_prediction(len(mean))
    if rows.columns:
        latents = torch.arange(var.shape[-1], device=var.device)
        of_means = (latents < likelihood.n_means(len(latents))).to(var)
        more = torch.as_tensor(rows.columns.variances()).to(var)[:, None] * of_means
        var = var + posterior.inflation.to(var)[:, None, None] * more
    if rows.noise is not None:
        likelihood, mean, var = likelihood.in_noise(torch.as_tensor(rows.noise).to(mean), mean, var)
    return log_weights.exp()[:, None, None], dispersed(likelihood, member.dispersion), mean, var


# Rows with unknown cells


def latent(posterior, X, versions) -> Latent:
    """Latent functions of rows; each component has the mean and variance of its mixture over the versions."""
    found = posterior.latent(X)
    if versions is None:
        return found
    m, K, d = versions.X.shape
    each = posterior.latent(torch.as_tensor(versions.X.reshape(m * K, d), device=X.device))
    mean, var = (part.unflatten(1, (m, K)) for part in (each.mean, each.var))  # C, m, K, k
    factor = torch.as_tensor(versions.factor).to(mean)[:, None]
    means, variances = found.mean.clone(), found.var.clone()
    means[:, versions.rows] = mean.mean(2)
    variances[:, versions.rows] = var.mean(2) + factor * mean.var(2, correction=0)
    return Latent(found.log_weights, means, variances)


def effects(posterior, X, versions):
    """Mean and standard deviation, (m, k), of what versions add to functions of the rows."""
    moments, X = [], X[versions.rows]
    versions = versions._replace(rows=slice(None))
    for one in (None, versions):
        log_weights, mean, var = latent(posterior, X, one)
        weights = log_weights.exp()[:, None, None]
        center = (weights * mean).sum(0)
        moments.append((center, (weights * (var + (mean - center).square())).sum(0)))
    (own, own_var), (center, var) = moments
    return center - own, (var - own_var).clamp_min(0.0).sqrt()


# Dispersion: predictions that are narrower, or wider, than a model says


def dispersed(likelihood, dispersion):
    """The likelihood of a member whose components have `dispersion` times their standard deviations."""
    return likelihood if dispersion == 1.0 else DispersedLikelihood(likelihood, dispersion)


def dispersion_of(likelihood):
    """The dispersion of a member, from what :func:`dispersed` made of its likelihood."""
    return likelihood.dispersion if isinstance(likelihood, DispersedLikelihood) else 1.0


class DispersedLikelihood:
    """A likelihood that multiplies deviations from the means of its components by `dispersion`."""

    discrete = False

    def __init__(self, likelihood, dispersion):
        self.likelihood, self.dispersion = likelihood, dispersion

    def _before(self, y, f):
        """Undo the dispersion of `y` about its mean, the first latents of `f`."""
        f = f[..., : y.shape[-1]]
        return f + (y - f) / self.dispersion

    def of_rows(self, rows):
        return DispersedLikelihood(self.likelihood.of_rows(rows), self.dispersion)

    def log_partition(self, y, m, v):
        volume = y.shape[-1] * math.log(self.dispersion)
        return self.likelihood.log_partition(self._before(y, m), m, v) - volume

    def expected_log_prob(self, y, m, v):
        """That of the model: its lower bound is no matter of the mixture."""
        return self.likelihood.expected_log_prob(y, m, v)

    def components(self, m, v):
        components = self.likelihood.components(m, v)
        if components is None:
            return None
        log_weights, means, variances = components
        return log_weights, means, self.dispersion**2 * variances

    def moments(self, m, v):
        mean, var = self.likelihood.moments(m, v)
        return mean, self.dispersion**2 * var

    def variance_of_mean(self, m, v):
        return self.dispersion**2 * self.likelihood.variance_of_mean(m, v)

    def cdf(self, y, m, v):
        return self.likelihood.cdf(self._before(y, m), m, v)

    def tail(self, y, m, v, above):
        return self.likelihood.tail(self._before(y, m), m, v, above)

    def sample(self, f, generator):
        y = self.likelihood.sample(f, generator)
        f = f[..., : y.shape[-1]]
        return f + self.dispersion * (y - f)
