"""What the tests of likelihoods share."""

from functools import partial

import numpy as np
import torch

tensor = partial(torch.tensor, dtype=torch.float64)


MOMENTS = [(0.4, 0.3), (-1.1, 0.05), (0.9, 0.8)]


ALPHAS = [0.3, 1.0, 1.7]


def moments_of(n_latents, n=3, seed=0):
    """Latent moments of shape (2, n, n_latents), as two draws for n rows."""
    rng = np.random.default_rng(seed)
    m = rng.standard_normal((2, n, n_latents))
    return torch.as_tensor(m), torch.as_tensor(rng.uniform(0.05, 0.8, m.shape))
