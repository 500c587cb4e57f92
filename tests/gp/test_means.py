import numpy as np
import pytest

from skdgp.gp.inducing import linear_map


def rows(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(("n_inputs", "n_outputs"), [(3, 3), (3, 5), (1, 4)])
def test_equal_or_wider_layers_pass_their_inputs_on(n_inputs, n_outputs):
    A = rows(10, n_inputs)
    expected = np.hstack([A, np.zeros((10, n_outputs - n_inputs))])
    np.testing.assert_array_equal(A @ linear_map(A, n_outputs), expected)


def test_narrower_layers_keep_the_principal_directions_of_uncentered_rows():
    A = rows(50, 4) * [3.0, 1.0, 0.3, 0.1] + [0.0, 2.0, 0.0, 0.0]
    W = linear_map(A, 2)
    np.testing.assert_allclose(W.T @ W, np.eye(2), atol=1e-12)
    vectors = np.linalg.eigh(A.T @ A)[1][:, -2:]
    np.testing.assert_allclose(W @ W.T, vectors @ vectors.T, atol=1e-12)
    # the first column belongs to the largest singular value
    norms = np.linalg.norm(A @ W, axis=0)
    assert norms[0] > norms[1]


def test_signs_are_such_that_the_largest_entry_of_a_column_is_positive():
    W = linear_map(rows(50, 4), 3)
    assert (W[np.abs(W).argmax(0), np.arange(3)] > 0).all()
    np.testing.assert_allclose(linear_map(-rows(50, 4), 3), W, atol=1e-12)


def test_weights_count_rows():
    A, weights = rows(20, 4), np.arange(20) % 4
    repeated = linear_map(np.repeat(A, weights, axis=0), 2)
    np.testing.assert_allclose(linear_map(A, 2, weights.astype(float)), repeated, atol=1e-12)
    assert np.abs(linear_map(A, 2) - repeated).max() > 0.01


def test_fewer_rows_than_outputs():
    A = rows(2, 5)
    W = linear_map(A, 3)
    assert W.shape == (5, 3)
    np.testing.assert_allclose(A @ W @ W.T, A, atol=1e-12)
    np.testing.assert_array_equal(W[:, 2], 0.0)
