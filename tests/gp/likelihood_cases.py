"""What the tests of likelihoods share."""

import math
from functools import partial

import numpy as np
import torch
from scipy import stats

tensor = partial(torch.tensor, dtype=torch.float64)


MOMENTS = [(0.4, 0.3), (-1.1, 0.05), (0.9, 0.8)]


ALPHAS = [0.3, 1.0, 1.7]


def expectation(g, m, v):
    """``E g(f)`` for ``f ~ N(m, v)`` by equal steps, whose error vanishes exponentially for smooth `g`."""
    z, step = np.linspace(-12.0, 12.0, 4001, retstep=True)
    return float(g(m + math.sqrt(v) * z) @ stats.norm.pdf(z)) * step


def moments_of(n_latents, n=3, seed=0):
    """Latent moments of shape (2, n, n_latents), as two draws for n rows."""
    rng = np.random.default_rng(seed)
    m = rng.standard_normal((2, n, n_latents))
    return torch.as_tensor(m), torch.as_tensor(rng.uniform(0.05, 0.8, m.shape))
