"""Draws from the predictive mixture: every draw picks its member first."""

import numpy as np
import torch

from ..random import RowNoise
from .components import effects

_BLOCK = 16  #: functions with one generator: the first draws are the same, however many follow
_AT_ONCE = 8_000_000  #: numbers of the features of some rows


def draw(members, rows, n, seed, what, device, mean=None):
    """Draws (n, n_rows, k) from the mixture at some `rows`, in units of the standardized target.

    The members alternate at random: the first draws do not depend on how many follow. `what` is one of

    - "function" and "mean_function": latent functions, on the link scale, without the noise of hidden layers,
      and the mean of the target (or probabilities of classes) given these;
    - "latent" and "mean": the same with that noise, which belongs to the row;
    - "y": targets, where all noise is fresh.

    `mean` is a function of a likelihood and its latent functions, if that of the likelihood will not do.
    """
    X = torch.as_tensor(rows.X, device=device)
    total = np.cumsum([member.mixture_weight for member in members])
    chosen = np.searchsorted(total, np.random.default_rng(seed).random(n) * total[-1], side="right")
    chosen, result = np.minimum(chosen, len(members) - 1), None
    for i in np.unique(chosen):
        member, mine = members[i], np.flatnonzero(chosen == i)
        posterior, unknown = member.posterior(device), None
        versions = rows.versions_for(member)
        if versions is not None:
            unknown = versions.rows, *effects(posterior, X, versions)
        for block in range(-(-len(mine) // _BLOCK)):
            places = mine[block * _BLOCK : (block + 1) * _BLOCK]
            own_seed = int(np.random.SeedSequence([seed, int(i), block]).generate_state(1)[0] >> 1)
            values = _block(posterior, member, rows, X, unknown, own_seed, what, mean)
            values = values[: len(places)].cpu().numpy()
            if result is None:
                result = np.empty((n, *values.shape[1:]))
            result[places] = values
    return result


def _block(posterior, member, rows, X, unknown, seed, what, conditional_mean):
    """A block of draws from one member."""
    generator, noise = (torch.Generator().manual_seed(s) for s in (seed, seed + 1))
    fresh, dispersion = what == "y", member.dispersion
    f = posterior.functions(_BLOCK, generator, X if fresh else None)
    learned, parts = posterior.likelihood_of(f.components), []
    size = max(1, _AT_ONCE // (_BLOCK * 1024))
    for start, x in zip(range(0, len(X), size), X.split(size)):
        piece = slice(start, start + len(x))
        own = noise if fresh else None
        if what in ("latent", "mean"):
            own = RowNoise(x.cpu().numpy(), seed)
        mean, deviation = f(x, own)
        k = learned.n_means(mean.shape[-1])
        if dispersion != 1.0:  # where functions are means of the target
            deviation = torch.cat([dispersion * deviation[..., :k], deviation[..., k:]], -1)
        values, likelihood = mean + deviation, learned
        if rows.columns:
            changes = torch.as_tensor(rows.columns.draws(_BLOCK, k, seed, piece)).to(values)
            factor = dispersion * f.inflation.to(values).sqrt()[:, None, None]
            values = torch.cat([values[..., :k] + factor * changes, values[..., k:]], -1)
        if unknown is not None:
            values = _with_unknown(values, start, x, unknown, seed, dispersion)
        if rows.offset is not None:
            values = values + torch.as_tensor(rows.offset[piece]).to(values)
        if rows.noise is not None:
            factor = torch.as_tensor(rows.noise[piece]).to(mean)
            likelihood, values, _ = learned.in_noise(factor, values, torch.zeros_like(values))
        if dispersion != 1.0:
            zeros = torch.zeros_like(values)
            likelihood, values, _ = likelihood.dispersed(dispersion, values, zeros)
        if what in ("mean", "mean_function"):
            of_mean = conditional_mean or (lambda likelihood, f: likelihood.conditional_mean(f))
            values = of_mean(likelihood, values)
        elif fresh:
            values = likelihood.sample(values, noise)
        else:
            values = likelihood.on_link_scale(values)
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
