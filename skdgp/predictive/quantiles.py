"""Quantiles of mixtures of Gaussians."""

import numpy as np
import torch

from ..linalg import at_once

_MOST_STEPS = 200  #: a bisection takes 60
#: of the last step of Halley's method, in standard deviations and in shares of a tail; its error is the cube
_STEP, _NEAR = 1e-5, 1e-6
_ROUNDING = 1e-13  #: relative; no bracket is worth making smaller
#: weight, relative to the rarest of the tails, of components that may be left out
_NEGLIGIBLE = 1e-13
_IN_CACHE = 120_000  #: numbers that are looked at together


def quantiles(alpha, weights, means, variances):
    """Quantiles of the orders `alpha` (n_alpha,) or (n, n_alpha) of mixtures (c, n), shape (n, n_alpha)."""
    alpha = torch.as_tensor(np.asarray(alpha)).to(means)
    rarest = float(torch.minimum(alpha, 1.0 - alpha).min())
    alpha = alpha.expand(means.shape[1], -1)
    kept = torch.nonzero(weights.amax(1) > _NEGLIGIBLE * rarest)[:, 0]
    weights, means, variances = (part[kept] for part in (weights, means, variances))
    size = max(1, at_once(_IN_CACHE, means.device) // len(means))
    pieces = zip(alpha.split(size), *(part.split(size, 1) for part in (weights, means, variances)))
    return torch.cat([_of_some(*piece) for piece in pieces])


def _of_some(alpha, weights, means, variances):
    mean = (weights * means).sum(0)
    std = (weights * (variances + (means - mean).square())).sum(0).sqrt()
    factors = (2.0 * variances).rsqrt()
    parts = 0.5 * weights, means.contiguous(), factors, 0.5 * weights * factors
    return torch.stack([_quantile(p, *parts, mean, std) for p in alpha.unbind(1)], 1)


def _quantile(p, half_weights, means, factors, slopes, mean, std):
    """By Halley's method on normal scores, and bisection where it would not get there.

    The score ``ndtri(F(x))`` of a single Gaussian is linear in `x`, and that of a mixture nearly so.
    """
    # Cantelli's inequality brackets every quantile
    low = mean - std * (((1.0 - p) / p).sqrt() * 1.001 + 1e-6)
    high = mean + std * ((p / (1.0 - p)).sqrt() * 1.001 + 1e-6)
    target, rarer = torch.special.ndtri(p), torch.minimum(p, 1.0 - p)
    x, half = mean + target * std, half_weights.sum(0)
    x, last = torch.minimum(torch.maximum(x, low), high), torch.full_like(mean, torch.inf)
    found, left = torch.empty_like(mean), torch.arange(len(mean), device=mean.device)
    for _ in range(_MOST_STEPS):
        z = (x - means).mul_(factors)
        below = half + torch.erf(z).mul_(half_weights).sum(0)
        densities = z.square().neg_().exp_().mul_(slopes)
        slope, bend = densities.sum(0), densities.mul_(z).mul_(factors).sum(0)
        low, high = torch.where(below <= p, x, low), torch.where(below >= p, x, high)
        score = torch.special.ndtri(below)
        rise = 8.0**0.5 * slope * torch.exp(0.5 * score.square())  # of the score
        step = (target - score) / rise
        step = step / (1.0 + step * (0.5 * score * rise - bend / slope)).clamp(0.5, 2.0)
        middle, new = 0.5 * (low + high), x + step
        # also where a step is no number, and where steps hardly get shorter
        by_step = (low <= new) & (new <= high) & (step.abs() <= 0.5 * last)
        new = torch.where(by_step, new, middle)
        rounding = _ROUNDING * (1.0 + x.abs())
        last = torch.where(by_step, step.abs(), high - low)
        near = by_step & ((below - p).abs() <= _NEAR * rarer + 1e-15)
        done = last <= torch.where(near, torch.maximum(_STEP * std, rounding), rounding)
        found[left[done]] = new[done]
        x, n_left = new, int((~done).sum())
        if n_left == 0:
            return found
        if 2 * n_left > len(x):
            continue
        rest = torch.nonzero(~done)[:, 0]
        left, low, high, x, last, std, half, p, target, rarer = (
            part[rest] for part in (left, low, high, x, last, std, half, p, target, rarer)
        )
        half_weights, means, factors, slopes = (
            part[:, rest] for part in (half_weights, means, factors, slopes)
        )
    found[left] = x
    return found
