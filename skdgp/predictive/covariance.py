"""Covariances of rows."""

import numpy as np
import torch

from .components import Rows, effects
from .functions import draw

N_DRAWS = 512  #: function draws for covariances without a closed form: correlations to .04


def covariance_of(draws):
    """Mean (n, k) and covariances (n, n, k) of draws (n_draws, n, k)."""
    mean = draws.mean(0)
    off = draws - mean
    return mean, np.einsum("sik,sjk->ijk", off, off) / len(draws)


def with_diagonal(cov, var, explained):
    """Covariances (n, n, k) with the correlations of `cov`, deviations `explained`, and the diagonal `var`."""
    diagonal = np.einsum("iik->ik", cov)  # a view
    scale = np.sqrt(np.minimum(explained, var) / np.maximum(diagonal, 1e-300))
    cov = cov * (scale[:, None] * scale[None])
    np.einsum("iik->ik", cov)[...] = var
    return cov


def latent_moments(members, rows, shape, k, device, by_draws):
    """Moments of latents within `shape` = (B, q) groups of rows, for a standardized target.

    The mean is (B, q, k), the covariances are (B, k, q, q), by closed forms where there are some;
    ``by_draws(number, member)`` gives both for other members.
    """
    X = torch.as_tensor(rows.X, device=device)
    groups = X.unflatten(0, shape)
    total = sum(member.mixture_weight for member in members)
    weights, means, within = [], [], 0.0
    for i, member in enumerate(members):
        weight, posterior = member.mixture_weight / total, member.posterior(device)
        found = posterior.joint(groups)
        if found is None:
            mean, cov = by_draws(i, member)
            weights.append(X.new_full((1,), weight)), means.append(mean[None])
            within = within + weight * cov
            continue
        shares, mean, cov = found
        mean, cov = mean[..., :k], cov[:k].transpose(0, 1)
        if rows.columns:
            changes = _within_groups(torch.as_tensor(rows.columns.covariance()).to(cov), shape)
            cov = cov + posterior.mean_inflation() * changes[:, None]
        versions = rows.versions_for(member)
        if versions is not None:  # of a single group
            mean, cov = _with_unknown(posterior, X, versions, mean, cov)
        mean = posterior.likelihood_of().on_link_scale(mean)
        within = within + weight * member.dispersion**2 * cov
        weights.append(weight * shares), means.append(mean)
    weights, means = torch.cat(weights), torch.cat(means)  # of all components
    center = torch.einsum("s,sbqk->bqk", weights, means)
    off = means - center
    between = torch.einsum("s,sbik,sbjk->bkij", weights, off, off)
    return center, within + between


def _within_groups(cov, shape):
    """The blocks (B, q, q) on the diagonal of a matrix."""
    return torch.diagonal(cov.view(*shape, *shape), dim1=0, dim2=2).movedim(-1, 0)


def _with_unknown(posterior, X, versions, mean, cov):
    """Moments with what unknown cells add; equal rows have the same unknown cells, as in draws."""
    k, unknown = mean.shape[-1], versions.rows
    center, deviation = (part[:, :k] for part in effects(posterior, X, versions))
    _, which = X[unknown].unique(dim=0, return_inverse=True)
    products = torch.einsum("ik,jk->kij", deviation, deviation)
    mean, cov = mean.clone(), cov.clone()
    mean[:, 0, unknown] += center
    cov[0, :, unknown[:, None], unknown] += products * (which[:, None] == which)
    return mean, cov


def latent_covariance(members, X, scaler, device, k):
    """Covariances (n, n, k) of latents, for a standardized target."""
    rows = Rows.of(X, scaler)

    def by_draws(i, member):
        draws = draw([member], rows, N_DRAWS, i, "latent", device)[..., :k]
        mean, cov = (torch.as_tensor(part, device=device) for part in covariance_of(draws))
        return mean[None], cov.permute(2, 0, 1)[None]

    _, cov = latent_moments(members, rows, (1, len(X)), k, device, by_draws)
    return cov[0].permute(1, 2, 0).numpy(force=True)
