import numpy as np
import pytest


@pytest.fixture(scope="module")
def data():
    """A noisy sine with a second input that means nothing, far from zero."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(80, 2))
    return X, 50.0 + 10.0 * np.sin(2.0 * X[:, 0]) + rng.standard_normal(80)
