"""Psi statistics and moment-matched layers against quadrature."""

import numpy as np
import pytest
import torch

from skdgp.gp import psi as psi_module
from skdgp.gp.kernels import Matern, SquaredExponential, as_kernel
from skdgp.gp.layer import SparseLayer
from skdgp.gp.matching import check_matching, moments_by_quadrature
from skdgp.gp.separate import SeparateLayer
from skdgp.quadrature import gauss_hermite

pytestmark = pytest.mark.usefixtures("no_global_randomness")

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


def make_layer(n=2, *, kernel=None, kind=SparseLayer, linear_mean=True, noise=0.01, seed=1):
    rng = np.random.default_rng(seed)
    if kernel is None:
        kernel = SquaredExponential(rng.uniform(0.5, 2.0, n), 1.3)
    layer = kind(as_kernel(kernel).bind(n), n, D, M, linear_mean=linear_mean, noise=noise)
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
    psi, (H, weights) = kernel.psi(Z, m, v), grid(m, v)
    K = kernel(H.flatten(0, 1), Z).view(len(H), P, M)
    torch.testing.assert_close(psi.psi1, (weights[..., None] * K).sum(0), rtol=1e-12, atol=1e-13)
    E = A + A.mT
    expected = (weights[..., None] * torch.einsum("kpi,dij,kpj->kpd", K, E, K)).sum(0)
    torch.testing.assert_close(psi.contract(E), expected, rtol=1e-11, atol=1e-12)
    covariance = (weights[..., None] * (H @ W) * (K @ c)).sum(0) - (m @ W) * (psi.psi1 @ c)
    torch.testing.assert_close(psi.slopes(c, W), covariance, rtol=1e-11, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("linear_mean", [True, False])
@pytest.mark.parametrize("kind", [SparseLayer, SeparateLayer])
def test_matched_moments_are_those_of_the_outputs(kind, linear_mean):
    layer, (m, v) = make_layer(kind=kind, linear_mean=linear_mean), rows(2)
    if kind is SeparateLayer:
        layer.kernel[1].assign(lengthscale=[0.8, 3.0], variance=0.5)
    mean, var = layer.matched_moments(m, v, layer.q.moments(), 2)
    expected = by_quadrature(layer, m, v)
    torch.testing.assert_close(mean, expected[0], rtol=0.0, atol=1e-7)
    torch.testing.assert_close(var, expected[1], rtol=0.0, atol=1e-7)


@torch.no_grad()
def test_certain_inputs_give_the_deterministic_layer():
    layer, (m, v) = make_layer(), rows(2)
    mean, var = layer.matched_moments(m, torch.zeros_like(v), layer.q.moments(), 2)
    expected = layer.moments(m)
    torch.testing.assert_close(mean, expected[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(var, expected[1], rtol=1e-10, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("kind", [SparseLayer, SeparateLayer])
def test_inputs_far_from_the_origin_lose_no_digits(kind):
    layer, (m, v) = make_layer(kind=kind), rows(2)
    _, var = layer.matched_moments(m, v, layer.q.moments(), 2)
    layer.Z += 1e4
    _, moved = layer.matched_moments(m + 1e4, v, layer.q.moments(), 2)
    torch.testing.assert_close(moved, var, rtol=1e-8, atol=0.0)


def test_moments_by_quadrature_where_there_is_a_closed_form():
    layer, (m, v) = make_layer(3), rows(3)
    v = 0.1 * v
    v[:, 2] = 0.0  # the last input is certain
    with torch.no_grad():
        q = layer.q.moments()
        mean, var = layer.matched_moments(m, v, q, 2)
        actual = moments_by_quadrature(lambda H: layer.moments(H, q), m, v, 2)
    torch.testing.assert_close(actual[0], mean, rtol=0.0, atol=1e-7)
    torch.testing.assert_close(actual[1], var, rtol=0.0, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("kind", [SparseLayer, SeparateLayer])
def test_other_kernels_by_quadrature(kind):
    layer, (m, v) = make_layer(kernel=Matern(2.5), kind=kind), rows(2)
    v = 0.1 * v
    mean, var = layer.matched_moments(m, v, layer.q.moments(), 2)
    expected = by_quadrature(layer, m, v)
    torch.testing.assert_close(mean, expected[0], rtol=0.0, atol=1e-4)
    torch.testing.assert_close(var, expected[1], rtol=0.0, atol=1e-4)


def test_kernels_without_a_closed_form_say_so():
    for width in (1, 2, 7):
        check_matching(SquaredExponential().bind(width), width)
    check_matching(Matern().bind(2), 2)
    with pytest.raises(ValueError, match=r"Matern has no closed form .* 'squared_exponential', or"):
        check_matching(Matern().bind(3), 3)


def test_gradients_equal_finite_differences():
    layer, (m, v) = make_layer(), rows(2)
    layer.jitter = 0.1  # a well-conditioned problem
    given = [layer.Z, layer.kernel.log_lengthscale, layer.kernel.log_variance, m, v]
    given += [part.detach() for part in layer.q.moments()]

    def moments(Z, log_lengthscale, log_variance, m, v, q_mean, Q):
        values = {"Z": Z, "kernel.log_lengthscale": log_lengthscale}
        values["kernel.log_variance"] = log_variance
        values = {f"layer.{name}": value for name, value in values.items()}
        return torch.func.functional_call(_Matched(layer), values, (m, v, q_mean, Q))

    given = [x.detach().clone().requires_grad_() for x in given]
    assert torch.autograd.gradcheck(lambda *x: moments(*x[:-1], 0.5 * (x[-1] + x[-1].mT)), given)


class _Matched(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, m, v, q_mean, Q):
        return self.layer.matched_moments(m, v, (q_mean, Q), 2)


def test_pieces_make_no_difference(monkeypatch):
    layer, (m, v) = make_layer(), rows(2)

    def gradients():
        layer.zero_grad()
        q = tuple(part.detach() for part in layer.q.moments())
        mean, var = layer.matched_moments(m, v, q, 2)
        (mean.sin() + var.cos()).sum().backward()
        return [p.grad for p in layer.parameters() if p.grad is not None]

    whole = gradients()
    monkeypatch.setattr(psi_module, "_AT_ONCE", 1)  # row by row
    torch.testing.assert_close(gradients(), whole, rtol=1e-12, atol=1e-12)


def test_second_moments_exist_for_a_few_rows_at_a_time(monkeypatch):
    largest = []
    exponentials = psi_module._exponentials

    def watched(F, H):
        for chunk, S in exponentials(F, H):
            largest.append(S.numel())
            yield chunk, S

    monkeypatch.setattr(psi_module, "_exponentials", watched)
    monkeypatch.setattr(psi_module, "_AT_ONCE", 30)
    layer, (m, v) = make_layer(), rows(2)
    _, var = layer.matched_moments(m, v, tuple(p.detach() for p in layer.q.moments()), 2)
    var.sum().backward()
    assert len(largest) == 4 and max(largest) <= 30  # two rows of 15 pairs, forth and back
