"""Inducing inputs: linear maps of them, and others under the same posterior process, against formulas."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from skdgp.gp.inducing import linear_map, relocated, spread_out
from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import AEP, DSVI, StructuredVI
from skdgp.inference.base import Architecture


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


# Relocation


def model_of(scheme, widths=(2,), M=8, n_latents=1, connected=False):
    """A deep model with a posterior that is not the prior."""
    rng = np.random.default_rng(0)
    inputs = [2] + [w + 2 * connected for w in widths]
    kernels = [as_kernel("squared_exponential").bind(n) for n in inputs]
    shape = Architecture(2, widths, n_latents, M, kernels, True, connected)
    bound = Gaussian().bind(np.ones((3, n_latents)), np.ones(3), np.ones(n_latents))
    model = scheme.build(shape, bound)
    state = model.state()
    for name, value in state.items():
        noise = 0.3 * rng.standard_normal(value.shape)
        if name.endswith("root"):
            lower = np.tril(noise) if "layers" in name else noise
            if name == "q.root":  # the first blocks are those on the diagonal
                T = len(state["q.mean"])
                lower[:T] = np.tril(noise[:T])
            state[name] = 0.7 * value + lower
        elif name.endswith(("mean", "Z")):
            state[name] = value + 3.0 * noise
        elif name.endswith("W"):
            state[name] = value + noise
    model.load_state(state)
    return model


def moments(model, X):
    draws = torch.as_tensor(model.draws(16, 0))
    latent = model.posterior(draws).latent(X)
    return latent.mean, latent.var


def test_spread_out_is_pivoted_cholesky():
    rng = np.random.default_rng(0)
    A = torch.tensor(rng.standard_normal((12, 12)))
    K = A @ A.T
    chosen = spread_out(K, 5, 1)
    assert chosen[0] == 0 and len(set(chosen)) == 5
    for i in range(1, 5):  # by brute force
        before = chosen[:i]
        given = K - K[:, before] @ torch.linalg.solve(K[before][:, before], K[before])
        assert int(torch.diagonal(given).argmax()) == chosen[i]


def test_points_of_no_variance_are_not_chosen_twice():
    chosen = spread_out(torch.ones(4, 4, dtype=torch.float64), 4)
    assert sorted(chosen) == [0, 1, 2, 3]


def test_relation_to_the_present_variables():
    """By the covariance matrices of the prior alone."""
    rng = np.random.default_rng(0)
    Z, H = (torch.tensor(rng.standard_normal((n, 2))) for n in (6, 9))
    kernel = as_kernel("matern52").bind(2)
    new, B = relocated(kernel, Z, H, 7, 1e-6)
    assert torch.equal(new[:6], Z)  # all stay if there are to be more
    L, L_new = (torch.linalg.cholesky(kernel(A, A) + 1e-6 * torch.eye(len(A))) for A in (Z, new))
    cross = kernel(new, Z)
    cross[:6] += 1e-6 * torch.eye(6)
    expected = torch.linalg.solve(L_new, cross @ torch.linalg.inv(L).T)
    assert_allclose(B, expected, atol=1e-8)
    assert_allclose(B[:6], torch.eye(6), atol=1e-8)


@pytest.mark.parametrize(
    "scheme",
    [
        DSVI(),
        DSVI(shared_covariance=False),
        AEP(),
        AEP(prediction="sampling"),
        StructuredVI(coupling="stripes-and-arrow"),
        StructuredVI(coupling="full"),
        StructuredVI(coupling="mean-field"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("connected", [False, True])
def test_more_inducing_inputs_change_nothing(scheme, connected):
    """The process at any row is what it was, layer by layer, to the jitter."""
    rng = np.random.default_rng(1)
    X = torch.tensor(rng.standard_normal((20, 2)))
    model = model_of(scheme, connected=connected)
    before = moments(model, X)
    model.cover(torch.tensor(rng.standard_normal((30, 2)) + 3.0), 14)
    assert model.layers[0].Z.shape[-2] == 14
    for ours, theirs in zip(moments(model, X), before):
        assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_inducing_inputs_go_where_rows_are():
    """What the others know is left behind; the process stays the same where there is enough of both."""
    rng = np.random.default_rng(1)
    model = model_of(DSVI(), (), M=25)
    near, far = (torch.tensor(rng.uniform(-1.0, 1.0, (40, 2)) + shift) for shift in (0.0, 9.0))
    with torch.no_grad():
        model.layers[0].Z.copy_(near[:25])
    before = moments(model, near)
    model.cover(far, 25)
    Z = model.layers[0].Z.detach()
    moved = int((Z[:, 0] > 5.0).sum())
    assert 5 <= moved <= 20
    for ours, theirs in zip(moments(model, near), before):
        assert_allclose(ours, theirs, atol=0.02)
