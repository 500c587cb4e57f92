"""Amounts whose expectations are known."""

import numpy as np


def drizzle(seed, n):
    """Amounts of which many are thousandths of the others, and how they are expected."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    size, wet = np.exp(1.5 * np.sin(3.0 * X[:, 0])), 1.0 / (1.0 + np.exp(1.0 - 2.0 * X[:, 1]))
    is_wet = rng.uniform(size=n) < wet
    y = np.where(is_wet, size, 1e-3) * rng.exponential(size=n)
    return X, y, wet * size + (1.0 - wet) * 1e-3
