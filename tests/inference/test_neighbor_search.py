"""The search for near unique inputs against a comparison of all pairs."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from skdgp.inference.rows import unique_inputs
from skdgp.inference.rows.unique_inputs import NeighborSearch


def nearest(Z, X, metric, k):
    """Indices of the nearest of all pairs, the nearest last, and their distances."""
    distances = np.linalg.norm((X[:, None] - Z) / metric, axis=-1)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k][:, ::-1]
    return order, np.take_along_axis(distances, order, 1)


def rows(n, d, seed):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=(n, d)))


@pytest.mark.parametrize("spread", ["alike", "few count"])
@pytest.mark.parametrize("d", [1, 3, 9, 12, 20, 40])
def test_nearest_of_all_pairs(d, spread):
    metric = np.ones(d) if spread == "alike" else np.geomspace(1.0, 1e3, d)
    metric = np.random.default_rng(2).permutation(metric)
    Z, X = rows(300, d, 0), rows(50, d, 1)
    expected, _ = nearest(Z.numpy(), X.numpy(), metric, 10)
    np.testing.assert_array_equal(NeighborSearch(Z, metric, 10)(X), expected)


@pytest.mark.parametrize(
    ("d", "metric", "brute"), [(20, 1.0, True), (20, 0.1, False), (8, 1.0, False)]
)
def test_trees_serve_where_few_columns_count(d, metric, brute, monkeypatch):
    """Also where there are many columns, of which most have little of the variance."""
    calls = []

    class Counted(NearestNeighbors):
        def kneighbors(self, *args, **kwargs):
            calls.append(len(args[0]))
            return super().kneighbors(*args, **kwargs)

    monkeypatch.setattr(unique_inputs, "NearestNeighbors", Counted)
    metrics = np.full(d, 1.0)
    metrics[:4] = metric
    NeighborSearch(rows(100, d, 0), metrics, 5)(rows(7, d, 1))
    assert bool(calls) == brute


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_comparisons_by_products_are_ranked_by_differences(shift):
    """Products of far values round: in the order, differences of near rows decide."""
    d = 12
    Z = rows(1, d, 0) + 1e-4 * rows(200, d, 1)
    X = Z[:20] + 1e-6 * rows(20, d, 2)
    Z, X = Z + shift, X + shift
    metric = np.ones(d)
    expected, distances = nearest(Z.numpy(), X.numpy(), metric, 199)
    found = NeighborSearch(Z, metric, 199)(X)
    reached = np.linalg.norm((X[:, None] - Z[found]).numpy(), axis=-1)
    np.testing.assert_allclose(reached, distances, rtol=1e-12)
    np.testing.assert_array_equal(found[:, -1], expected[:, -1])


@pytest.mark.parametrize("d", [2, 12])
def test_of_equal_distances_the_first(d):
    Z = torch.zeros(40, d, dtype=torch.float64)
    Z[:, 0] = torch.arange(40) // 8  # eight at each distance
    Z[:, 1:] = (
        3.0 * torch.cat([torch.eye(d - 1).double(), -torch.eye(d - 1).double()]).repeat(40, 1)[:40]
    )
    X = torch.zeros(1, d, dtype=torch.float64)
    expected, _ = nearest(Z.numpy(), X.numpy(), np.ones(d), 5)
    np.testing.assert_array_equal(NeighborSearch(Z, np.ones(d), 5)(X), expected)
