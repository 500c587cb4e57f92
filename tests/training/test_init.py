"""Starting values: inducing inputs and mean functions."""

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_info

from skdgp import DeepGPRegressor
from skdgp.gp.inducing import linear_map
from skdgp.gp.kernels import Linear, Matern, SquaredExponential
from skdgp.training.init import METHODS, centers, start


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((200, 3)) * [3.0, 1.0, 0.1]


def state(seed=0):
    return np.random.RandomState(seed)


# Centers


@pytest.mark.parametrize("method", METHODS)
def test_centers(rows, method, no_global_randomness):
    Z = centers(rows, np.ones(200), 20, method, state())
    assert Z.shape == (20, 3) and len(np.unique(Z, axis=0)) == 20
    assert_array_equal(Z, centers(rows, np.ones(200), 20, method, state()))
    assert not np.array_equal(Z, centers(rows, np.ones(200), 20, method, state(1)))


def test_random_centers_are_rows(rows):
    Z = centers(rows, np.ones(200), 20, "random", state())
    assert_array_equal(cdist(Z, rows).min(1), 0.0)


def test_kmeans_centers_represent_the_rows(rows):
    """They leave a smaller error than random rows, and each is the mean of the rows next to it."""
    means, random = (centers(rows, np.ones(200), 20, method, state()) for method in METHODS)
    errors = [np.square(cdist(rows, Z).min(1)).sum() for Z in (means, random)]
    assert errors[0] < 0.8 * errors[1]
    nearest = cdist(rows, means).argmin(1)
    averages = np.stack([rows[nearest == i].mean(0) for i in range(20)])
    # thirty iterations, or none that changes anything
    assert np.abs(averages - means).max() < 0.2


def test_weights_draw_centers(rows):
    weights = np.ones(200)
    weights[:20] = 1e9
    Z = centers(rows, weights, 20, "random", state())
    assert_array_equal(np.sort(Z, 0), np.sort(rows[:20], 0))
    Z = centers(rows, weights, 20, "kmeans", state())
    assert np.sort(cdist(Z, rows[:20]).min(1))[:15].max() < 1e-3  # the heavy rows have their own


def test_weights_are_counts(rows):
    """For k-means, two rows at one place and a row of weight two pull alike."""
    Z = centers(rows[:4], np.array([1.0, 1.0, 6.0, 1.0]), 1, "kmeans", state())
    assert_allclose(Z, [np.average(rows[:4], axis=0, weights=[1, 1, 6, 1])])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [1, 2, 20])
def test_fewer_rows_than_centers(rows, method, n):
    Z = centers(rows[:n], np.ones(n), 20, method, state())
    assert Z.shape == (20, 3) and np.isfinite(Z).all()
    assert_array_equal(Z[:n], rows[:n])
    assert len(np.unique(Z, axis=0)) == 20


@pytest.mark.parametrize("method", METHODS)
def test_repeated_rows(rows, method):
    """Rows that differ in the target alone are one place."""
    repeated = np.tile(rows[:7], (30, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = centers(repeated, np.ones(210), 20, method, state())
    assert Z.shape == (20, 3)
    assert len(np.unique(Z.round(9), axis=0)) == 20
    assert cdist(rows[:7], Z).min(1).max() < 1e-9  # every place has a center


@pytest.mark.parametrize("method", METHODS)
def test_repeated_rows_in_a_fit(rows, method):
    X = np.tile(rows[:7], (30, 1))
    model = DeepGPRegressor(n_inducing=20, init=method, max_iter=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, np.arange(210.0))
    assert np.isfinite(model.predict(X)).all()


def test_threads_do_not_change_centers(rows, watch):
    """k-means runs in one thread, for sums over several are not reproducible."""
    seen = []
    watch(KMeans, "fit", lambda *_, **__: seen.extend(threadpool_info()))
    centers(rows, np.ones(200), 20, "kmeans", state())
    assert {pool["num_threads"] for pool in seen} == {1}


# Layers


@pytest.mark.parametrize("widths", [(), (3,), (2,), (5,), (5, 2), (2, 4), (1, 1)])
def test_start(make_model, rows, widths):
    """Inducing inputs of all layers, by the mean functions of the report's equation 3.12."""
    model = make_model(n_features=3, widths=widths, n_inducing=20, random_q=False)
    start(model, rows, np.ones(200), "kmeans", state())
    Z, A = centers(rows, np.ones(200), 20, "kmeans", state()), rows
    for layer, width in zip(model.layers, widths):
        W = linear_map(A, width)
        assert_allclose(layer.Z.detach().numpy(), Z, atol=1e-12)
        assert_allclose(layer.W.numpy(), W, atol=1e-12)
        Z, A = Z @ W, A @ W
    assert_allclose(model.layers[-1].Z.detach().numpy(), Z, atol=1e-12)
    assert model.layers[-1].W is None


def test_start_with_connected_inputs(make_model, rows):
    """Later layers see the inputs too: their places are pairs, and the mean ignores the inputs."""
    model = make_model(
        n_features=3, widths=(2, 2), n_inducing=20, input_connected=True, random_q=False
    )
    start(model, rows, np.ones(200), "kmeans", state())
    first, second, third = (layer.Z.detach().numpy() for layer in model.layers)
    W = linear_map(rows, 2)
    assert_allclose(second, np.hstack([first @ W, first]), atol=1e-12)
    assert_allclose(third, np.hstack([first @ W, first]), atol=1e-12)  # the identity in between
    assert_allclose(model.layers[1].W.numpy(), np.vstack([np.eye(2), np.zeros((3, 2))]))


def test_start_with_zero_means(make_model, rows):
    model = make_model(n_features=3, widths=(2,), n_inducing=20, linear_mean=False)
    start(model, rows, np.ones(200), "kmeans", state())
    first, second = (layer.Z.detach().numpy() for layer in model.layers)
    assert all(layer.W is None for layer in model.layers)
    assert_allclose(second, first @ linear_map(rows, 2), atol=1e-12)


def test_mean_function_keeps_the_principal_directions(rows):
    """Two of three directions leave what the third one explains."""
    W = linear_map(rows, 2)
    assert_allclose(W.T @ W, np.eye(2), atol=1e-12)
    singular_values = np.linalg.svd(rows, compute_uv=False)
    rest = rows - rows @ W @ W.T
    assert_allclose(np.square(rest).sum(), singular_values[2] ** 2)
    weights = np.random.default_rng(0).integers(1, 5, 200)
    repeated = np.repeat(rows, weights, axis=0)
    assert_allclose(linear_map(rows, 2, weights), linear_map(repeated, 2), atol=1e-9)


def test_at_the_start_the_model_is_the_mean_function(make_model, rows):
    """Hidden layers are close to deterministic, so a deep model starts as a shallow one."""
    model = make_model(n_features=3, widths=(3, 3), n_inducing=20, random_q=False)
    start(model, rows, np.ones(200), "kmeans", state())
    with torch.no_grad():
        for layer in model.layers[:-1]:
            mean, _ = layer.moments(torch.as_tensor(rows))
            assert_allclose(mean.numpy(), rows, atol=1e-9)


def test_an_estimator_with_other_kernels_is_no_start():
    X = np.linspace(0.0, 1.0, 20)[:, None]
    y = np.sin(6.0 * X[:, 0])
    settings = {"inference": "dsvi", "n_inducing": 5, "max_iter": 2, "random_state": 0}
    first = DeepGPRegressor(**settings).fit(X, y)
    pair = SquaredExponential() + Linear()
    added = DeepGPRegressor(kernel=pair, **settings).fit(X, y)
    rough = DeepGPRegressor(kernel="matern52", **settings).fit(X, y)
    for kernel, given in (("matern32", first), ("matern32", rough), (Matern() + Linear(), added)):
        with pytest.raises(ValueError, match=r"has the same kernels; they are .*Matern"):
            DeepGPRegressor(kernel=kernel, init=given, **settings).fit(X, y)
    DeepGPRegressor(kernel=pair, init=added, **settings).fit(X, y)
