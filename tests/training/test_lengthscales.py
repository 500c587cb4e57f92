"""Functions of many periods are no noise: starts of lengthscales, and warnings where none helps."""

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from skdgp import DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.gp.kernels import Linear, SquaredExponential, as_kernel
from skdgp.gp.layer import SparseLayer
from skdgp.gp.likelihoods import Gaussian
from skdgp.inspection import PathologyWarning
from skdgp.training.lengthscales import shorten_lengthscales


def sine(n, periods, n_columns=1, column=0):
    """Rows on which a sine of one column has so many periods, and others nothing to say."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.permutation(np.linspace(0.0, 1.0, n)) for _ in range(n_columns)], 1)
    return X, np.sin(2.0 * np.pi * periods * X[:, column])


def started(X, y, kernel="squared_exponential"):
    """Lengthscales that a layer starts with, relative to those of the kernel."""
    d = X.shape[1]
    layer = SparseLayer(as_kernel(kernel).bind(d), d, 1, 10)
    X = (X - X.mean(0)) / X.std(0)
    shorten_lengthscales(layer, Gaussian(), X, y[:, None], np.ones(len(y)))
    return layer.kernel.fitted().lengthscale / np.sqrt(d)


@pytest.mark.parametrize(("n", "periods"), [(120, 10), (300, 30)])
@pytest.mark.parametrize("method", ["vfe", "fitc"])
def test_many_periods_are_learned(n, periods, method):
    X, y = sine(n, periods)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SparseGPRegressor(n_inducing=4 * periods, method=method, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.98


def test_many_periods_of_classes():
    X, y = sine(150, 10)
    model = SparseGPClassifier(n_inducing=60, random_state=0).fit(X, y > 0.0)
    assert model.score(X, y > 0.0) > 0.95


@pytest.mark.parametrize(("column", "n_layers"), [(0, 1), (1, 1), (0, 2)])
def test_many_periods_of_one_column(column, n_layers):
    """Also by minibatches and behind a hidden layer, which starts as the identity."""
    X, y = sine(250, 10, n_layers % 2 + 1, column)
    settings = {"inference": "dsvi", "n_inducing": 60, "likelihood": "gaussian"}
    model = DeepGPRegressor(n_layers, max_iter=100, random_state=0, **settings).fit(X, y)
    assert model.score(X, y) > 0.9


def test_many_periods_of_a_kernel_of_one_column():
    X, y = sine(250, 10, 2, 1)
    kernel = SquaredExponential(on=[1]) + Linear(on=[0])
    settings = {"kernel": kernel, "n_inducing": 60, "likelihood": "gaussian", "random_state": 0}
    model = DeepGPRegressor(1, inference="vfe", max_iter=60, **settings).fit(X, y)
    assert model.score(X, y) > 0.9
    settings |= {"inference": "dsvi", "init": "greedy", "n_inducing": 10}
    DeepGPRegressor(2, max_iter=2, **settings).fit(X, y)


def test_only_what_is_better_by_far_changes_a_start():
    X, wiggles = sine(300, 10, 2)
    rng = np.random.default_rng(1)
    for y in (np.sin(3.0 * X[:, 0]), rng.standard_normal(300), np.ones(300), X @ [1.0, -1.0]):
        assert_allclose(started(X, y), 1.0)
    short, long = started(X, wiggles)
    assert short < 0.2 and long > 1.0  # the other column is left aside
    assert_allclose(started(X[:, [0] * 11], wiggles), 1.0)  # rows are too few for so many columns


def test_state_of_other_hyperparameters_stays():
    X, y = sine(200, 10)
    layer = SparseLayer(as_kernel("squared_exponential").bind(1), 1, 1, 10)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    shorten_lengthscales(layer, Gaussian(), X, y[:, None], np.ones(200))
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name]) == ("log_lengthscale" not in name)


def test_flat_lines_are_warned_of():
    """Inducing points are too few for the function: the search ends after some steps, with a word."""
    X, y = sine(300, 20)
    with pytest.warns(PathologyWarning, match="too few inducing points"):
        model = SparseGPRegressor(n_inducing=5, random_state=0).fit(X, y)
    assert model.n_iter_ < 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SparseGPRegressor(n_inducing=5, max_iter=2, random_state=0).fit(X, y)  # as asked for
