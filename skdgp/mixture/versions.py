"""Rows with unknown cells: unseen levels and cells that were never missing in training."""

import torch

from ..inference.posterior import Latent


def latent(posterior, X, versions) -> Latent:
    """Latent functions of rows `X`; those of rows with unknown cells average over `versions`.

    Each component stays a Gaussian, with the mean and variance of its mixture over the versions.
    """
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
