"""Lengthscales in units of the columns of X."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.gp.kernels import Linear, Matern, OnColumns, SquaredExponential

UNITS = np.array([1.0, 50.0])


@pytest.fixture(scope="module")
def rows():
    """Draws of a Gaussian process with lengthscales .2 and 20 in these units."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 2)) * UNITS
    scaled = X / [0.2, 20.0]
    K = np.exp(-0.5 * np.square(scaled[:, None] - scaled).sum(2)) + 1e-4 * np.eye(len(X))
    return X, np.linalg.cholesky(K) @ rng.standard_normal(len(X))


@pytest.mark.parametrize("inference", ["exact", "vecchia", "vfe", "nngp"])
def test_they_are_the_generating_ones(rows, inference):
    """Within a factor of 1.5, for a hundred and fifty rows with next to no noise."""
    X, y = rows
    settings = {"n_layers": 1, "kernel": "squared_exponential", "target_transform": None}
    model = DeepGPRegressor(inference=inference, max_iter=150, random_state=0, **settings)
    found = model.fit(X, y).lengthscales_
    assert list(found.index) == ["x0", "x1"] and found.shape == (2, 1)
    limit = np.log(1.5) if inference != "nngp" else np.log(3.0)  # one lengthscale of two columns
    assert np.abs(np.log(found.iloc[:, 0] / [0.2, 20.0])).max() < limit


def test_units_of_fixed_ones(rows):
    """A fixed lengthscale, in standard deviations of the columns."""
    X, y = rows
    kernel = SquaredExponential([0.5, 2.0], trainable=False)
    model = DeepGPRegressor(1, kernel=kernel, inference="exact", max_iter=1).fit(X, y)
    assert_allclose(model.lengthscales_["Exact"], np.array([0.5, 2.0]) * X.std(0))


def test_parts_of_a_kernel_and_columns_that_they_do_not_see(rows):
    X, y = rows
    X = pd.DataFrame({"a": X[:, 0], "constant": 1.0, "b": X[:, 1]})
    kernel = (
        Matern(trainable=False)
        + OnColumns(Matern(lengthscale=1.0, trainable=False), [2])
        + Linear()
    )
    found = DeepGPRegressor(1, kernel=kernel, inference="exact", max_iter=1).fit(X, y).lengthscales_
    assert list(found.columns) == ["Exact, Matern", "Exact, Matern (2)"]
    sd = X["b"].std(ddof=0)
    assert_allclose(found["Exact, Matern"], [2**0.5 * X["a"].std(ddof=0), np.nan, 2**0.5 * sd])
    assert_allclose(found["Exact, Matern (2)"], [np.nan, np.nan, sd])
    linear = DeepGPRegressor(1, kernel="linear", inference="exact", max_iter=1).fit(X, y)
    assert linear.lengthscales_.shape == (3, 0)


def test_default_classes_dates_and_deep_models(rows):
    X, y = rows
    frame = pd.DataFrame(
        {"day": pd.date_range("2024-01-01", periods=60), "kind": np.tile(["a", "b", "c"], 20)}
    )
    model = DeepGPRegressor(max_iter=2, budget="small", random_state=0).fit(frame, y[:60])
    found = model.lengthscales_
    assert "day" in found.index and "kind" in found.index
    assert found.shape[1] >= len(model.members_) and (found.to_numpy() > 0.0).all()
    other = frame["day"].to_frame().assign(kind=X[:60, 1])
    deep = SparseGPRegressor(max_iter=2, n_inducing=5).fit(other.assign(day=X[:60, 0]), y[:60])
    assert list(deep.lengthscales_.index) == ["day", "kind"]
    classes = DeepGPClassifier(1, inference="exact", max_iter=2, random_state=0)
    assert classes.fit(X[:60], y[:60] > 0.0).lengthscales_.shape == (2, 1)
