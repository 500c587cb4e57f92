import numpy as np
import pytest
import torch
from scipy.special import factorial2

from skdgp.quadrature import gauss_hermite, normal_nodes

pytestmark = pytest.mark.usefixtures("no_global_randomness")

LIKE = torch.empty(0, dtype=torch.float64)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_gauss_hermite_is_exact_up_to_degree_2n_minus_1(n):
    nodes, log_weights = gauss_hermite(n, LIKE)
    assert nodes.shape == log_weights.shape == (n,)
    for degree in range(2 * n):
        expected = 0.0 if degree % 2 else float(factorial2(degree - 1)) if degree else 1.0
        terms = log_weights.exp() * nodes**degree
        np.testing.assert_allclose(terms.sum(), expected, atol=1e-11 * terms.abs().sum())


@pytest.mark.parametrize("n", [40, 100, 350])
def test_gauss_hermite_of_many_nodes_is_finite_but_for_weights_that_underflow(n):
    nodes, log_weights = gauss_hermite(n, LIKE)
    assert torch.isfinite(nodes).all()
    assert not torch.isnan(log_weights).any()
    np.testing.assert_allclose((log_weights.exp() * nodes**2).sum(), 1.0, rtol=1e-10)
    characteristic = (log_weights.exp() * (2.0 * nodes).cos()).sum()
    np.testing.assert_allclose(characteristic, np.exp(-2.0), rtol=1e-12)


def test_dtype_follows_the_given_tensor_and_nodes_are_the_same_at_every_call():
    for nodes, log_weights in (gauss_hermite(5, LIKE.float()), normal_nodes(2, 32, LIKE.float())):
        assert nodes.dtype == log_weights.dtype == torch.float32
    assert torch.equal(normal_nodes(7, 64, LIKE)[0], normal_nodes(7, 64, LIKE)[0])


@pytest.mark.parametrize(
    ("dim", "budget", "n"),
    [(1, 2, 2), (1, 5, 5), (2, 25, 25), (2, 24, 16), (2, 35, 25), (3, 125, 125), (3, 8000, 8000),
     (3, 124, 64), (10, 32, 32), (10, 100, 64)],
)  # fmt: skip
def test_normal_nodes_keep_to_the_budget(dim, budget, n):
    nodes, log_weights = normal_nodes(dim, budget, LIKE)
    assert nodes.shape == (n, dim)
    assert log_weights.shape == (n,)
    np.testing.assert_allclose(log_weights.exp().sum(), 1.0, rtol=1e-12)


@pytest.mark.parametrize(("budget", "values_per_axis"), [(125, 5), (124, 64)])
def test_a_grid_has_five_nodes_an_axis_or_gives_way_to_a_sequence(budget, values_per_axis):
    nodes, _ = normal_nodes(3, budget, LIKE)
    assert [len(axis.unique()) for axis in nodes.T] == [values_per_axis] * 3


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_grid_is_exact_for_products_of_powers(dim):
    nodes, log_weights = normal_nodes(dim, 6**dim, LIKE)
    powers = torch.tensor([4, 2, 6])[:dim]
    expected = np.prod([factorial2(p - 1) for p in powers.tolist()])
    found = log_weights.exp() @ (nodes**powers).prod(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_sequence_for_many_dimensions_integrates_better_than_independent_draws():
    nodes, log_weights = normal_nodes(10, 1024, LIKE)
    weights = log_weights.exp()
    # independent draws would have standard errors of 0.031 and 0.044
    assert (weights @ nodes).abs().max() < 0.005
    assert (weights @ nodes**2 - 1.0).abs().max() < 0.02
