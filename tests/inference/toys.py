"""Rows and generators that tests of several schemes use."""

import numpy as np
import torch


def toy(n, n_features=2, k=1, seed=0):
    """Inputs (n, n_features) and targets (n, k) of a wave in the first input, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, n_features))
    y = np.sin(2.0 * X[:, :1]) + 0.3 * rng.standard_normal((n, k))
    return torch.as_tensor(X), torch.as_tensor(y)


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


def posterior(model, n=8, seed=0):
    return model.posterior(torch.as_tensor(model.draws(n, seed)))


def latents(model, X, n=8, seed=0):
    """Mean and variance of each component."""
    return posterior(model, n, seed).latent(X)[1:]


def draw_functions(model, n, generator, n_features):
    """Functions of rows, with fewer features than predictions have."""
    of_model = posterior(model)
    of_model.n_features = n_features
    f = of_model.functions(n, generator)
    return lambda X, noise=None: sum(f(X, noise))
