"""Rows and generators that tests of several schemes use."""

import numpy as np
import torch

from skdgp.inference.batch import Batch


def toy(n, n_features=2, k=1, seed=0):
    """Inputs (n, n_features) and targets (n, k) of a wave in the first input, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, n_features))
    y = np.sin(2.0 * X[:, :1]) + 0.3 * rng.standard_normal((n, k))
    return torch.as_tensor(X), torch.as_tensor(y)


def rows(n=40, k=1, seed=0):
    """The same as arrays, with a wave of its own for each target."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    y = np.column_stack([np.sin(2.0 * X[:, 0] + i) for i in range(k)])
    return X, y + 0.3 * rng.normal(size=(n, k))


def everything(X, y, weight=None):
    """A batch of all rows."""
    weight = np.ones(len(X)) if weight is None else weight
    X, y, weight = (torch.tensor(a, dtype=torch.float64) for a in (X, y, weight))
    return Batch(X, y, weight, 1.0, float(weight.sum()))


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
