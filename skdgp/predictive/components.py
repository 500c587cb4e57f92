"""Components of a mixture at some rows, in units of the standardized target.

Dispersion, and everything that sets rows apart from the training rows, act here and nowhere else.
"""

import math
from typing import NamedTuple

import numpy as np
import torch

from ..gp.likelihoods import Likelihood
from ..inference.posterior import Latent
from ..preprocessing.constant_columns import ConstantColumns
from ..preprocessing.scaling import Versions


class Rows(NamedTuple):
    """Scaled rows, and what sets them apart from training rows."""

    X: np.ndarray | torch.Tensor  #: (n, d), scaled
    columns: ConstantColumns | None = None  #: changes of columns that were constant in training
    versions: Versions | None = None  #: completions of rows with unknown cells
    by_codes: Versions | None = None  #: likewise, for models with effects of levels
    offset: np.ndarray | None = None  #: (n, 1), logarithms of exposures, added to functions
    noise: np.ndarray | None = None  #: (n, k), ratio of noise variances to those of the members

    @property
    def plain(self):
        """Whether `X` describes the rows completely."""
        others = self.versions, self.by_codes, self.offset, self.noise
        return not self.columns and all(other is None for other in others)

    @classmethod
    def of(cls, X, scaler, offset=None):
        """Scale rows (n, n_features) that are in the user's units: an array, or a tensor of numbers alone."""
        X = scaler.completed(X)
        columns = ConstantColumns(X, scaler)
        if isinstance(X, torch.Tensor):
            return cls(scaler.scaled(X), columns, offset=offset)
        noise = None if scaler.encoder is None else scaler.encoder.noise(X)
        versions = by_codes = scaler.versions(X)
        if len(scaler.codes):
            by_codes = scaler.versions(X, by_codes=True)
        return cls(scaler.transform(X), columns, versions, by_codes, offset, noise)

    def versions_for(self, member):
        """The versions that a member needs."""
        return self.by_codes if member.scheme.has_effects else self.versions


class Part(NamedTuple):
    """Components of a mixture that share a likelihood."""

    weights: torch.Tensor  #: (S, 1, 1)
    likelihood: Likelihood
    mean: torch.Tensor  #: (S, n, n_latents), of latent functions
    var: torch.Tensor  #: (S, n, n_latents)

    def function_means(self, k):
        """Moments (S, n, k) of the functions whose values are means of the targets, on their own scale."""
        mean = self.likelihood.on_link_scale(self.mean[..., :k])
        return mean, self.var[..., :k]


def components(member, rows, share, device, compact=False):
    """Return the components of a member whose weights add up to `share`.

    If `compact`, components that differ in their scale alone are one, where rows allow it.
    """
    posterior = member.posterior(device)
    X, versions = torch.as_tensor(rows.X, device=device), rows.versions_for(member)
    if compact and not rows.columns and versions is None and rows.noise is None:
        (log_weights, mean, var), likelihood = posterior.compact(X)
    else:
        log_weights, mean, var = latent(posterior, X, versions)
        likelihood = posterior.likelihood_of()
    log_weights = log_weights + math.log(share)
    if rows.offset is not None:
        mean = mean + torch.as_tensor(rows.offset).to(mean)
    likelihood = likelihood.for_prediction(len(mean))
    if rows.columns:
        latents = torch.arange(var.shape[-1], device=var.device)
        of_means = (latents < likelihood.n_means(len(latents))).to(var)
        more = torch.as_tensor(rows.columns.variances()).to(var)[:, None] * of_means
        var = var + posterior.inflation.to(var)[:, None, None] * more
    if rows.noise is not None:
        noise = torch.as_tensor(rows.noise).to(mean)
        likelihood, mean, var = likelihood.in_noise(noise, mean, var)
    if member.dispersion != 1.0:
        likelihood, mean, var = likelihood.dispersed(member.dispersion, mean, var)
    return Part(log_weights.exp()[:, None, None], likelihood, mean, var)


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
    """Mean and standard deviation, (m, k), of what unknown cells add to functions of the rows."""
    moments, X = [], X[versions.rows]
    versions = versions._replace(rows=slice(None))
    for one in (None, versions):
        log_weights, mean, var = latent(posterior, X, one)
        weights = log_weights.exp()[:, None, None]
        center = (weights * mean).sum(0)
        moments.append((center, (weights * (var + (mean - center).square())).sum(0)))
    (own, own_var), (center, var) = moments
    return center - own, (var - own_var).clamp_min(0.0).sqrt()
