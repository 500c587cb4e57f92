"""Psi statistics and moment-matched layers against quadrature."""

from functools import partial

import numpy as np
import pytest
import torch
from oracles import gradcheck

from skdgp.gp.kernels import Matern, SquaredExponential, as_kernel
from skdgp.gp.layer import SparseLayer
from skdgp.inference.aep import psi as psi_module
from skdgp.inference.aep.matching import (
    check_matching,
    matched_moments,
    moments_by_quadrature,
    psi_of,
)
from skdgp.quadrature import gauss_hermite

P, M, D = 4, 5, 3


def rows(n, seed=0):
    """Means and variances of random inputs."""
    rng = np.random.default_rng(seed)
    m, v = rng.standard_normal((P, n)), rng.uniform(0.1, 1.0, (P, n))
    return torch.as_tensor(m), torch.as_tensor(v)


def grid(m, v, n_nodes=60):
    """Gauss-Hermite nodes (K, P, 2) and weights (K, 1) for two random inputs."""
    nodes, log_weights = gauss_hermite(n_nodes, m)
    t = torch.cartesian_prod(nodes, nodes)
    weights = torch.cartesian_prod(log_weights, log_weights).sum(1).exp()
    return m + v.sqrt() * t[:, None], weights[:, None]


def make_layer(n=2, *, kernel=None, linear_mean=True, noise=0.01, seed=1):
    rng = np.random.default_rng(seed)
    if kernel is None:
        kernel = SquaredExponential(rng.uniform(0.5, 2.0, n), 1.3)
    layer = SparseLayer(as_kernel(kernel).bind(n), n, D, M, linear_mean=linear_mean, noise=noise)
    with torch.no_grad():
        parameters = [layer.Z, layer.q.mean] + ([layer.W] if linear_mean else [])
        for parameter in parameters:
            parameter.copy_(torch.as_tensor(rng.standard_normal(parameter.shape)))
        root = np.tril(0.3 * rng.standard_normal(layer.q.root.shape))
        layer.q.root.copy_(torch.as_tensor(root))
    return layer


def by_quadrature(layer, m, v):
    """Moments by the laws of total expectation and total variance."""
    H, weights = grid(m, v)
    mean, var = (part.view(len(H), P, D) for part in layer.moments(H.flatten(0, 1)))
    total = (weights[..., None] * mean).sum(0)
    return total, (weights[..., None] * (var + (mean - total).square())).sum(0)


@torch.no_grad()
@pytest.mark.parametrize("ard", [True, False])
def test_psi_statistics_are_expectations(ard):
    (m, v), rng = rows(2), np.random.default_rng(3)
    lengthscale = np.array([0.7, 1.9]) if ard else np.array(1.1)
    kernel = SquaredExponential(lengthscale, 0.8, ard=ard)
    Z = torch.as_tensor(rng.standard_normal((M, 2)))
    A = torch.as_tensor(rng.standard_normal((D, M, M)))
    W, c = (torch.as_tensor(rng.standard_normal(shape)) for shape in ((2, D), (M, D)))
    psi, (H, weights) = psi_of(kernel)(Z, m, v), grid(m, v)
    K = kernel(H.flatten(0, 1), Z).view(len(H), P, M)
    torch.testing.assert_close(psi.psi1, (weights[..., None] * K).sum(0), rtol=1e-12, atol=1e-13)
    E = A + A.mT
    expected = (weights[..., None] * torch.einsum("kpi,dij,kpj->kpd", K, E, K)).sum(0)
    actual = psi.contract(E) + torch.einsum("pi,dij,pj->pd", psi.root, E, psi.root)
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-12)
    covariance = (weights[..., None] * (H @ W) * (K @ c)).sum(0) - (m @ W) * (psi.psi1 @ c)
    torch.testing.assert_close(psi.slopes(c, W), covariance, rtol=1e-11, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("linear_mean", [True, False])
def test_matched_moments_are_those_of_the_outputs(linear_mean):
    layer, (m, v) = make_layer(linear_mean=linear_mean), rows(2)
    mean, var = matched_moments(layer, layer.q.moments(), m, v, 2)
    expected = by_quadrature(layer, m, v)
    torch.testing.assert_close(mean, expected[0], rtol=0.0, atol=1e-7)
    torch.testing.assert_close(var, expected[1], rtol=0.0, atol=1e-7)


@torch.no_grad()
def test_certain_inputs_give_the_deterministic_layer():
    layer, (m, v) = make_layer(), rows(2)
    mean, var = matched_moments(layer, layer.q.moments(), m, torch.zeros_like(v), 2)
    expected = layer.moments(m)
    torch.testing.assert_close(mean, expected[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(var, expected[1], rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_inputs_far_from_the_origin_lose_no_digits():
    layer, (m, v) = make_layer(), rows(2)
    _, var = matched_moments(layer, layer.q.moments(), m, v, 2)
    layer.Z += 1e4
    _, moved = matched_moments(layer, layer.q.moments(), m + 1e4, v, 2)
    torch.testing.assert_close(moved, var, rtol=1e-8, atol=0.0)


def test_moments_by_quadrature_where_there_is_a_closed_form():
    layer, (m, v) = make_layer(3), rows(3)
    v = 0.1 * v
    v[:, 2] = 0.0  # the last input is certain
    with torch.no_grad():
        q = layer.q.moments()
        mean, var = matched_moments(layer, q, m, v, 2)
        actual = moments_by_quadrature(lambda H: layer.moments(H, q), m, v, 2)
    torch.testing.assert_close(actual[0], mean, rtol=0.0, atol=1e-7)
    torch.testing.assert_close(actual[1], var, rtol=0.0, atol=1e-6)


@torch.no_grad()
def test_other_kernels_by_quadrature():
    layer, (m, v) = make_layer(kernel=Matern(2.5)), rows(2)
    v = 0.1 * v
    mean, var = matched_moments(layer, layer.q.moments(), m, v, 2)
    expected = by_quadrature(layer, m, v)
    torch.testing.assert_close(mean, expected[0], rtol=0.0, atol=1e-4)
    torch.testing.assert_close(var, expected[1], rtol=0.0, atol=1e-4)


def test_kernels_without_a_closed_form_are_refused():
    for width in (1, 2, 7):
        check_matching(SquaredExponential().bind(width), width)
    check_matching(Matern().bind(2), 2)
    with pytest.raises(ValueError, match=r"Matern has no closed form .* 'squared_exponential', or"):
        check_matching(Matern().bind(3), 3)


def test_gradients_equal_finite_differences():
    layer, (m, v) = make_layer(), rows(2)
    layer.jitter = 0.1  # a well-conditioned problem

    def moments(m, v, q_mean, Q):
        return matched_moments(layer, (q_mean, 0.5 * (Q + Q.mT)), m, v, 2)

    trained = {"Z", "kernel.log_lengthscale", "kernel.log_variance"}
    gradcheck(layer, moments, m, v, *layer.q.moments(), of=lambda name: name in trained)


@pytest.mark.parametrize(
    ("name", "value"),
    [("_AT_ONCE", 1), ("_AT_ONCE", 9), ("_KEPT", 0), ("_KEPT", 8 * 12)],  # the last: i = 1, 2 of 4
)
def test_pieces_make_no_difference(name, value, monkeypatch):
    layer, (m, v) = make_layer(), rows(2)

    def gradients():
        layer.zero_grad()
        q = tuple(part.detach() for part in layer.q.moments())
        mean, var = matched_moments(layer, q, m, v, 2)
        (mean.sin() + var.cos()).sum().backward()
        return [p.grad for p in layer.parameters() if p.grad is not None]

    whole = gradients()
    monkeypatch.setattr(psi_module, name, value)
    torch.testing.assert_close(gradients(), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("room", [0, 7, 2**20])
def test_memory_of_second_moments_is_bounded(room, monkeypatch):
    """They exist for two rows of one inducing input of five at a time, and where there is room."""
    largest, kept = [], []
    terms_of = psi_module._Terms.of

    def watched(self, *tensors):
        kept.append(len(self.kept))
        for i, T in terms_of(self, *tensors):
            largest.append(T.numel())
            yield i, T

    monkeypatch.setattr(psi_module._Terms, "of", watched)
    monkeypatch.setattr(psi_module, "_AT_ONCE", 10)
    monkeypatch.setattr(psi_module, "_KEPT", 8 * room)
    layer, (m, v) = make_layer(), rows(2)
    n_pairs = len(m) * 5 * 4 // 2
    _, var = matched_moments(layer, tuple(p.detach() for p in layer.q.moments()), m, v, 2)
    n_pieces = len(kept)
    var.sum().backward()
    assert max(largest) <= 10 and sum(largest) == 2 * n_pairs  # forth and back
    assert sum(kept[:n_pieces]) == min(room // n_pieces * n_pieces, n_pairs)
    with torch.no_grad():
        del kept[:]
        matched_moments(layer, layer.q.moments(), m, v, 2)
    assert not any(kept)


@torch.no_grad()
@pytest.mark.parametrize("share", [1e-12, 1e-4, 1.0, 1e4, 1e8])
@pytest.mark.parametrize("distance", [0.0, 1.0, 30.0, 1e4])
def test_psi_statistics_of_any_size(share, distance):
    """Variances from nothing to much more than squared lengthscales, rows near and far."""
    mpmath = pytest.importorskip("mpmath")
    lengthscale, Z = 0.5, torch.linspace(-1.0, 1.0, 4, dtype=torch.float64)[:, None]
    m = torch.tensor([[distance * lengthscale]], dtype=torch.float64)
    v = torch.full_like(m, share * lengthscale**2)
    psi = psi_of(SquaredExponential(lengthscale, 1.3).bind(1))(Z, m, v)
    pairs = torch.eye(16, dtype=torch.float64).view(16, 4, 4)
    sums = psi.contract(0.5 * (pairs + pairs.mT))[0].view(4, 4)
    with mpmath.workdps(60):
        l2, m, v = (mpmath.mpf(float(x)) for x in (lengthscale**2, m, v))
        z = [mpmath.mpf(float(x)) for x in Z]
        variance = mpmath.mpf(1.3)

        def psi2(a, b):
            exponent = (a - b) ** 2 / (4 * l2) + (m - (a + b) / 2) ** 2 / (l2 + 2 * v)
            return variance**2 * mpmath.sqrt(l2 / (l2 + 2 * v)) * mpmath.exp(-exponent)

        root = [mpmath.sqrt(psi2(a, a)) for a in z]
        psi1 = [
            variance * mpmath.sqrt(l2 / (l2 + v)) * mpmath.exp(-((m - a) ** 2) / (2 * (l2 + v)))
            for a in z
        ]
        excess = [r - p for r, p in zip(root, psi1)]
        missing = [[psi2(a, b) - r * s for b, s in zip(z, root)] for a, r in zip(z, root)]
    close = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-15 * min(share, 1.0))
    close(psi.root[0], np.array(root, dtype=float))
    close(psi.excess[0], np.array(excess, dtype=float))
    close(sums, np.array(missing, dtype=float))
    close(psi.psi1[0], np.array(psi1, dtype=float), atol=1e-15)


def smooth_posterior(lengthscale=3.0, noise=1e-2):
    """A layer with many inducing inputs to a lengthscale, and q(v) of a sine that is well known."""
    kernel = SquaredExponential(lengthscale).bind(1)
    layer = SparseLayer(kernel, 1, 1, 100, linear_mean=True)
    with torch.no_grad():
        layer.Z.copy_(torch.linspace(-2.0, 2.0, 100, dtype=torch.float64)[:, None])
        layer.W.fill_(0.7)
        Z = layer.Z.view(100, 1)
        X = torch.linspace(-2.0, 2.0, 400, dtype=torch.float64)[:, None]
        L = torch.linalg.cholesky(kernel(Z, Z) + layer.jitter * torch.eye(100, dtype=torch.float64))
        A = torch.linalg.solve_triangular(L, kernel(Z, X), upper=False) / noise
        S = torch.linalg.inv(torch.eye(100, dtype=torch.float64) + A @ A.T)
        S = 0.5 * (S + S.T)
        q_mean = S @ A @ (3.0 * X).sin() / noise
    m = torch.linspace(-2.1, 2.1, 30, dtype=torch.float64)[:, None]
    return layer, m, (q_mean, (S - torch.eye(100, dtype=torch.float64))[None])


@pytest.mark.parametrize("v", [1e-10, 1e-5, 1e-2])
def test_variances_where_large_terms_cancel(v):
    layer, m, q = smooth_posterior()
    m, v = m.requires_grad_(), torch.full_like(m, v).requires_grad_()
    nodes, log_weights = gauss_hermite(60, m.detach())
    H = m + v.sqrt() * nodes.view(-1, 1, 1)
    mean, var = (part.view(len(H), len(m)) for part in layer.moments(H.flatten(0, 1), q))
    weights = log_weights.exp().view(-1, 1)
    total = (weights * mean).sum(0)
    expected = (weights * (var + (mean - total).square())).sum(0)
    mean, var = matched_moments(layer, q, m, v, 1)
    torch.testing.assert_close(mean[:, 0], total, rtol=0.0, atol=1e-8)
    torch.testing.assert_close(var[:, 0], expected, rtol=1e-4, atol=0.0)
    expected, actual = (torch.autograd.grad(x.sum(), m)[0] for x in (expected, var))
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@torch.no_grad()
def test_rows_do_not_depend_on_their_company():
    layer, m, q = smooth_posterior()
    v = torch.full_like(m, 1e-6)
    together = matched_moments(layer, q, m, v, 1)
    alone = [matched_moments(layer, q, *row, 1) for row in zip(m.split(1), v.split(1))]
    for all_at_once, parts in zip(together, zip(*alone)):
        torch.testing.assert_close(torch.cat(parts), all_at_once, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("v", [0.0, 1e-3, 1e4])
def test_rows_without_neighbors_have_the_moments_of_the_prior(v):
    layer, _ = make_layer(), rows(2)
    m = torch.tensor([[1e3, -1e3], [1e8, 0.0]], dtype=torch.float64, requires_grad=True)
    v = torch.tensor([[v, 0.0]] * 2, dtype=torch.float64, requires_grad=True)
    q = tuple(part.detach() for part in layer.q.moments())
    mean, var = matched_moments(layer, q, m, v, 2)
    expected = layer.kernel().variance + layer.noise() + v @ layer.W.square()
    torch.testing.assert_close(mean, m @ layer.W, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(var, expected, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad((mean + var).sum(), [m, v, layer.Z])
    assert all(torch.isfinite(g).all() for g in gradients)
