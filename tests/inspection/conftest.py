import sys

import numpy as np
import pytest

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import DSVI

FEW = {
    "max_iter": 20,
    "learning_rate": 0.05,
    "n_inducing": 10,
    "random_state": 0,
}


@pytest.fixture
def plt():
    """Pyplot without a screen; all figures are closed in the end."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


@pytest.fixture
def no_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.fixture(scope="package")
def data():
    """Inputs whose medians are far from their means, and a target in units of its own."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(0.0, 10.0, 70), rng.exponential(0.2, 70) ** 2 + 3.0])
    y = 500.0 + 100.0 * np.sin(X[:, 0]) + 400.0 * (X[:, 1] - 3.0) + 20.0 * rng.standard_normal(70)
    return X, y


@pytest.fixture(scope="package")
def regressor(data):
    """A regressor whose hidden layer is uncertain, so that its predictions are no Gaussians."""
    scheme = DSVI(inner_scale=0.5, inner_noise=0.0)
    return DeepGPRegressor(inference=scheme, n_predict_draws=8, **FEW).fit(*data)


@pytest.fixture(scope="package")
def joint_regressor(data):
    X, y = data
    return DeepGPRegressor(n_predict_draws=8, **FEW).fit(X, np.column_stack([y, 3.0 - y / 1e3]))


@pytest.fixture(scope="package")
def poisson(data):
    X, y = data
    return DeepGPRegressor(likelihood="poisson", **FEW).fit(X, np.floor(np.abs(y) / 100.0))


@pytest.fixture(scope="package")
def classifier(data):
    X, y = data
    labels = np.array(["low", "mid", "high"])[np.digitize(y, [450.0, 550.0])]
    return DeepGPClassifier(**FEW).fit(X, labels)
