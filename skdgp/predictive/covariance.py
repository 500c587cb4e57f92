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


def latent_covariance(members, X, scaler, device, k):
    """Covariances (n, n, k) of latents, for a standardized target: closed forms where there are some."""
    rows = Rows.of(X, scaler)
    x = torch.as_tensor(rows.X, device=device)
    total = sum(member.mixture_weight for member in members)
    weights, means, within = [], [], 0.0
    for i, member in enumerate(members):
        weight, posterior = member.mixture_weight / total, member.posterior(device)
        cov = posterior.covariance(x)
        if cov is None:
            draws = draw([member], rows, N_DRAWS, i, "latent", device)[..., :k]
            own, cov = (torch.as_tensor(part, device=x.device) for part in covariance_of(draws))
            weights.append(x.new_full((1,), weight)), means.append(own[None])
            within = within + weight * cov.permute(2, 0, 1)
            continue
        log_weights, mean, _ = posterior.latent(x)
        shares = log_weights.exp()
        cov = cov[:k]
        if rows.columns:
            changes = torch.as_tensor(rows.columns.covariance()).to(cov)
            cov = cov + (shares @ posterior.inflation.to(shares)) * changes
        if rows.versions is not None:  # equal rows have the same unknown cells, as in draws
            center, deviation = (part[:, :k] for part in effects(posterior, x, rows.versions))
            unknown = rows.versions.rows
            _, which = x[unknown].unique(dim=0, return_inverse=True)
            products = torch.einsum("ik,jk->kij", deviation, deviation)
            mean, cov = mean.clone(), cov.clone()
            mean[:, unknown, :k] += center
            cov[:, unknown[:, None], unknown] += products * (which[:, None] == which)
        mean = posterior.likelihood_of().on_link_scale(mean[..., :k])
        within = within + weight * member.dispersion**2 * cov
        weights.append(weight * shares), means.append(mean)
    weights, means = torch.cat(weights), torch.cat(means)  # of all components
    off = means - torch.einsum("s,sik->ik", weights, means)
    between = torch.einsum("sik,sjk->kij", weights[:, None, None] * off, off)
    return (within + between).permute(1, 2, 0).numpy(force=True)
