"""Draws from the predictive mixture: every draw picks its member first."""

import numpy as np
import torch

from ..random import RowNoise
from .dispersion import dispersed
from .versions import effects

_BLOCK = 16  #: functions with one generator: the first draws are the same, however many follow
_AT_ONCE = 8_000_000  #: numbers of the features of some rows


def draw(
    members, X, n, seed, what, device, constant_columns,
    versions=None, mean=None, offset=None, noise=None,
):  # fmt: skip
    """Draws (n, n_rows, k) from the mixture of some members, in units of the standardized target.

    The members alternate at random, so that each part of the draws is a sample of the mixture, and
    the first draws do not depend on how many follow. `what` is one of

    - "function" and "mean_function": latent functions without the noise of hidden layers, and the
      mean of the target (or probabilities of classes) given these;
    - "latent" and "mean": the same with that noise, which belongs to the row;
    - "y": targets, where all noise is fresh.

    `X` (n_rows, d) are scaled rows, and `constant_columns`, `versions`, `offset` and `noise` as of
    :class:`~skdgp.mixture.predictive.Predictive`. `mean` is a function of a likelihood and its
    latent functions, if the mean of the target is not that of the likelihood.
    """
    X = torch.as_tensor(X, device=device)
    total = np.cumsum([member.mixture_weight for member in members])
    chosen = np.searchsorted(total, np.random.default_rng(seed).random(n) * total[-1], side="right")
    chosen, result = np.minimum(chosen, len(members) - 1), None
    for i in np.unique(chosen):
        mine = np.flatnonzero(chosen == i)
        unknown = None
        if versions is not None:
            unknown = versions.rows, *effects(members[i].posterior(device), X, versions)
        for block in range(-(-len(mine) // _BLOCK)):
            places = mine[block * _BLOCK : (block + 1) * _BLOCK]
            own_seed = int(np.random.SeedSequence([seed, int(i), block]).generate_state(1)[0] >> 1)
            given = constant_columns, unknown, mean, offset, noise
            values = _block(members[i], X, own_seed, what, device, *given)
            values = values[: len(places)].cpu().numpy()
            if result is None:
                result = np.empty((n, *values.shape[1:]))
            result[places] = values
    return result


def _block(
    member, X, seed, what, device, constant_columns, unknown, conditional_mean, offset, row_noise
):
    """A block of draws from one member."""
    posterior = member.posterior(device)
    generator, noise = (torch.Generator().manual_seed(s) for s in (seed, seed + 1))
    fresh = what == "y"
    f = posterior.functions(_BLOCK, generator, X if fresh else None)
    learned, parts = posterior.likelihood_of(f.components), []
    size = max(1, _AT_ONCE // (_BLOCK * 1024))
    for start, x in zip(range(0, len(X), size), X.split(size)):
        own = None
        if what in ("latent", "mean"):
            own = RowNoise(x.cpu().numpy(), seed)
        elif fresh:
            own = noise
        mean, deviation = f(x, own)
        likelihood = learned
        values = _dispersed(mean, deviation, member.dispersion, likelihood)
        if constant_columns:
            k, rows = likelihood.n_means(values.shape[-1]), slice(start, start + len(x))
            changes = torch.as_tensor(constant_columns.draws(_BLOCK, k, seed, rows)).to(values)
            factor = member.dispersion * f.inflation.to(values).sqrt()[:, None, None]
            values = torch.cat([values[..., :k] + factor * changes, values[..., k:]], -1)
        if unknown is not None:
            values = _with_unknown(values, start, x, unknown, seed, member.dispersion)
        if offset is not None:
            values = values + torch.as_tensor(offset[start : start + len(x)]).to(values)
        if row_noise is not None:
            factor = torch.as_tensor(row_noise[start : start + len(x)]).to(mean)
            likelihood, values, _ = learned.in_noise(factor, values, torch.zeros_like(values))
        if what in ("mean", "mean_function"):
            if conditional_mean is None:
                values = likelihood.conditional_mean(values)
            else:
                values = conditional_mean(dispersed(likelihood, member.dispersion), values)
        if fresh:
            values = dispersed(likelihood, member.dispersion).sample(values, noise)
        parts.append(values)
    return torch.cat(parts, 1)


def _with_unknown(values, start, x, unknown, seed, dispersion):
    """Functions at rows from `start` on, with what unknown cells add: the same wherever a row appears."""
    rows, mean, deviation = unknown
    mine = np.flatnonzero((rows >= start) & (rows < start + len(x)))
    rows = torch.as_tensor(rows[mine] - start, device=x.device)
    mean, deviation = mean[mine], dispersion * deviation[mine]
    noise = RowNoise(x[rows].cpu().numpy(), seed + 1).draw((len(values), *mean.shape))
    values[:, rows] += mean + deviation * torch.as_tensor(noise).to(mean)
    return values


def _dispersed(mean, deviation, factor, likelihood):
    """Functions whose deviations from their means are scaled, where they are means of the target."""
    if factor == 1.0:
        return mean + deviation
    k = likelihood.n_means(mean.shape[-1])
    return mean + torch.cat([factor * deviation[..., :k], deviation[..., k:]], -1)
