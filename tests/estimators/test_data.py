"""Training data: merging, splitting, minibatches."""

import tracemalloc

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from skdgp.fitting import table as module
from skdgp.fitting.minibatches import Minibatches
from skdgp.fitting.table import Table


def make(n=30, n_features=2, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n, n_features)), rng.normal(size=(n, 1))
    data = Table(X, y, rng.integers(1, 4, n).astype(float))
    return data.scale(True, True, np.random.RandomState(0))


def rows_of(data):
    return np.column_stack([data.X, data.y, data.weights])


def sorted_rows(table):
    return table[np.lexsort(table.T)]


# Merging


def test_merged_sums_weights():
    X = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 2.0]])
    y = np.array([[5.0], [6.0], [5.0], [7.0]])
    merged = Table(X, y, np.array([1.0, 2.0, 4.0, 8.0])).merged()
    expected = [[1.0, 2.0, 5.0, 5.0], [1.0, 2.0, 7.0, 8.0], [3.0, 4.0, 6.0, 2.0]]
    assert_array_equal(sorted_rows(rows_of(merged)), sorted_rows(np.array(expected)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_merged_does_not_depend_on_order_or_repetition(dtype):
    rng = np.random.default_rng(0)
    X, y = rng.integers(-3, 3, size=(40, 3)).astype(dtype), rng.integers(0, 2, size=(40, 1))
    order = rng.permutation(40)
    weights = rng.integers(1, 4, 40)
    first = Table(X, y, weights.astype(float)).merged()
    second = Table(X[order], y[order], weights[order].astype(float)).merged()
    repeated = (np.repeat(part, weights, axis=0) for part in (X, y))
    third = Table(*repeated, np.ones(weights.sum())).merged()
    assert_array_equal(rows_of(first), rows_of(second))
    assert_array_equal(rows_of(first), rows_of(third))
    assert first.X.dtype == dtype
    assert len(np.unique(np.column_stack([X, y]), axis=0)) == len(first)


def test_merged_keeps_the_order_of_values():
    """So that other units of the inputs lead to the same fit."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    first = Table(X, y, np.ones(40)).merged()
    second = Table(3.7 * X + 1e3, y, np.ones(40)).merged()
    assert_array_equal(first.y, second.y)


def test_merged_has_one_zero_and_leaves_large_data_alone(monkeypatch):
    merged = Table(np.array([[0.0], [-0.0]]), np.zeros((2, 1)), np.ones(2)).merged()
    assert len(merged) == 1 and merged.weights.tolist() == [2.0]
    monkeypatch.setattr(module, "_MERGE", 10)
    data = Table(np.zeros((6, 1)), np.zeros((6, 1)), np.ones(6))
    assert data.merged() is data


# Splitting and sampling


@pytest.mark.parametrize(("n", "fraction", "held"), [(30, 0.1, 3), (2, 0.01, 1), (3, 0.99, 2)])
def test_split(n, fraction, held):
    data = make(n)
    kept, out = data.split(fraction, np.random.RandomState(0))
    assert len(out) == held and len(kept) == n - held
    found = sorted_rows(np.vstack([rows_of(kept), rows_of(out)]))
    assert_array_equal(found, sorted_rows(rows_of(data)))
    other = data.split(fraction, np.random.RandomState(1))[1]
    assert n < 30 or not np.array_equal(out.y, other.y)


def test_split_shares_out_counts():
    """As it would share out so many rows, where inputs have other targets or rows are many."""
    X, y = np.array([0.0, 1.0, 1.0, 2.0])[:, None], np.array([0.0, 1.0, 2.0, 3.0])[:, None]
    weights = np.array([300.0, 8.0, 93.0, 1.0])
    data = Table(X, y, weights)
    held = np.zeros(4)
    for seed in range(200):
        kept, out = data.split(0.1, np.random.RandomState(seed))
        for part in (kept, out):
            assert (part.weights % 1.0 == 0.0).all() and (part.weights > 0.0).all()
        assert kept.weights.sum() == 362.0 and out.weights.sum() == 40.0
        held[out.y[:, 0].astype(int)] += out.weights
    # hypergeometric: mean 40 w / 402
    share = weights / 402.0
    error = np.sqrt(40.0 * share * (1.0 - share) * (362.0 / 401.0) / 200.0)
    assert (np.abs(held / 200.0 - 40.0 * share) < 4.0 * error).all()


@pytest.mark.parametrize(
    ("targets", "weights"),
    [
        (np.zeros(20), np.full(20, 3.0)),  # copies
        (np.zeros(20), np.linspace(0.5, 3.0, 20)),  # fractions of rows
        (np.arange(4.0), np.full(4, 1e13)),  # counts that no memory holds
    ],
)
def test_split_keeps_weights_together(targets, weights):
    data = Table(np.arange(float(len(weights)))[:, None], targets[:, None], weights)
    kept, out = data.split(0.25, np.random.RandomState(0))
    assert 3 * len(out) == len(kept)
    assert_array_equal(np.sort(np.concatenate([kept.weights, out.weights])), weights)


@pytest.mark.parametrize(
    ("y", "weights", "expected"),
    [
        (np.arange(100.0), np.ones(100), False),
        (np.arange(100.0) % 2, np.ones(100), True),
        (np.maximum(np.arange(100.0) - 12.0, 0.0), np.ones(100), True),
        (-np.maximum(np.arange(100.0) - 12.0, 0.0), np.ones(100), True),
        (np.maximum(np.arange(100.0) - 5.0, 0.0), np.ones(100), False),
        (np.abs(np.arange(100.0) - 50.0) // 40.0 - 1.0, np.ones(100), True),
        (np.r_[np.zeros(50), np.arange(-25.0, 25.0)], np.ones(100), False),  # in the middle
        (np.arange(100.0), np.r_[20.0, np.ones(99)], True),  # weights are counts
        (np.arange(8.0), np.ones(8), False),
    ],
)
def test_targets_that_pile_up_at_an_end(y, weights, expected):
    other = np.random.default_rng(0).standard_normal(len(y))
    for columns in ((y,), (other, y)):
        assert Table(y[:, None], np.column_stack(columns), weights).piles_up() == expected


def test_sample():
    data = make(30)
    X, y, weights = data.sample(100, np.random.RandomState(0))
    assert_array_equal(X, data.x_scaler.transform(data.X))
    assert_array_equal(y, data.y_scaler.transform(data.y))
    assert_array_equal(weights, data.weights)
    X, _, _ = data.sample(12, np.random.RandomState(0))
    assert len(np.unique(X, axis=0)) == 12


def test_scaling_from_elsewhere():
    data, other = make(30), make(20, seed=1)
    other.scale_as(data.x_scaler, data.y_scaler)
    expected = (other.y - data.y_scaler.center) / data.y_scaler.scale
    assert_array_equal(other.take(slice(None))[1], expected)


# Minibatches


def batches(data, size, seed=0, dtype=torch.float64, **kwargs):
    return Minibatches(data, size, seed, dtype, torch.device("cpu"), **kwargs)


@pytest.fixture(params=["kept", "read"])
def way(request, monkeypatch):
    """Rows that are scaled once and kept, or read for every batch."""
    if request.param == "read":
        monkeypatch.setattr(module, "PRELOAD", 0)
    return request.param


def test_tables_are_scaled_without_copies():
    """In less than half of its size, beside the tensors."""
    data, size = make(1_200_000, 10), 1_200_000 * 10 * 8
    expected = data.take(slice(None))
    tracemalloc.start()
    try:
        rows = batches(data, 1_200_000)
        assert tracemalloc.get_traced_memory()[1] < size / 2
    finally:
        tracemalloc.stop()
    for part, right in zip(rows.batch(0)[:3], expected):
        assert_array_equal(part.numpy(), right)


def test_an_epoch_sees_every_row_once(way):
    data = make(30)
    rows = batches(data, 6)
    assert rows.n_batches == 5 and rows.batch_size == 6
    for epoch in range(2):
        seen = np.concatenate([rows.batch(5 * epoch + i).y.numpy() for i in range(5)])
        assert_allclose(np.sort(seen, 0), np.sort(data.y_scaler.transform(data.y), 0))
    first, second = (rows.batch(step).y.numpy() for step in (0, 5))
    assert not np.array_equal(np.sort(first, 0), np.sort(second, 0))


def test_rows_belong_together(way):
    data = make(30)
    X, y, weights = data.take(slice(None))
    batch = batches(data, 7).batch(11)
    for x, target, weight in zip(batch.X.numpy(), batch.y.numpy(), batch.weight.numpy()):
        i = np.flatnonzero(y[:, 0] == target[0])[0]
        assert_array_equal(x, X[i])
        assert weight == weights[i]


def test_a_batch_depends_on_seed_and_step_alone(way):
    data = make(30)
    forward, backward = batches(data, 6), batches(data, 6)
    expected = [forward.batch(step) for step in range(12)]
    for step in reversed(range(12)):
        for first, second in zip(expected[step], backward.batch(step)):
            assert np.array_equal(first, second)
    assert not np.array_equal(batches(data, 6, seed=1).batch(0).y, expected[0].y)


def test_kept_and_read_rows_are_the_same(monkeypatch):
    data = make(30)
    kept = batches(data, 6).batch(8)
    monkeypatch.setattr(module, "PRELOAD", 0)
    read = batches(data, 6).batch(8)
    order = [np.argsort(batch.y.numpy()[:, 0]) for batch in (kept, read)]
    for first, second in zip(kept[:3], read[:3]):  # as sets of rows
        assert_array_equal(first[order[0]], second[order[1]])
    assert kept.scale == read.scale and kept.total == read.total


@pytest.mark.parametrize("size", [1, 5, 6, 30])
def test_sums_over_batches_are_unbiased(way, size):
    """The mean over an epoch of scaled, weighted sums is the sum over all rows."""
    data = make(30)
    rows = batches(data, size)
    drawn = [rows.batch(step) for step in range(30 // size)]
    sums = [float(batch.scale * batch.weight @ batch.y[:, 0] ** 2) for batch in drawn]
    expected = data.weights @ data.y_scaler.transform(data.y)[:, 0] ** 2
    assert_allclose(np.mean(sums), expected, rtol=1e-9)
    assert all(rows.batch(step).total == data.weights.sum() for step in range(3))


def test_full_batches_come_in_order():
    data = make(30)
    rows = batches(data, 1000)
    assert rows.batch_size == 30 and rows.n_batches == 1
    for step in (0, 1, 7):
        assert_array_equal(rows.batch(step).y, data.y_scaler.transform(data.y))
        assert rows.batch(step).scale == 1.0


def test_total_from_elsewhere(way):
    data = make(30)
    rows = batches(data, 6, total=3.0 * data.weights.sum())
    batch = rows.batch(0)
    assert batch.total == 3.0 * data.weights.sum()
    assert_allclose(batch.scale, 3.0 * 30 / 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtypes(way, dtype):
    batch = batches(make(30), 6, dtype=dtype).batch(0)
    assert batch.X.dtype == dtype and batch.y.dtype == batch.weight.dtype == torch.float64


def test_read_only_memory_map_is_not_changed(tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(module, "PRELOAD", 0)
    values = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.save(tmp_path / "X.npy", values)
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    data = Table(X, values[:, :1].astype(float), np.ones(40))
    data.scale(True, True, np.random.RandomState(0))
    batch = batches(data, 10).batch(0)
    batch.X.mul_(0.0)
    batch.weight.mul_(0.0)
    assert_array_equal(X, values)
    assert_array_equal(data.weights, 1.0)
    assert not recwarn.list
