"""Fits in which the rows of a rank stay where they are."""

import tempfile
from unittest import mock

import numpy as np
import pytest

from skdgp import DeepGPClassifier, DeepGPRegressor, distributed
from skdgp.fitting import member_fit as fitting
from skdgp.inference import AEP, SGHMC, GlobalInducing

pytestmark = pytest.mark.filterwarnings("ignore")


def _data():
    rng = np.random.RandomState(1)
    X = rng.randn(60, 2)
    return X, np.sin(2 * X[:, 0]) * X[:, 1], rng.randint(1, 4, 60).astype(float)


def _model(**params):
    settings = {"max_iter": 20, "batch_size": 60, "random_state": 0, "n_inducing": 8}
    return DeepGPRegressor(**{**settings, "n_predict_draws": 4, "standardize": True, **params})


def _fitted(rank, bounds, params):
    X, y, w = _data()
    rows = slice(bounds[rank], bounds[rank + 1])
    model = _model(**params)
    distributed.fit(model, X[rows], y[rows], w[rows], shard="given")
    return np.append(
        model.predict(X), model.lower_bound_ if hasattr(model, "lower_bound_") else 0.0
    )


@pytest.mark.parametrize("params", [{"inference": AEP()}, {"inference": "dsvi", "n_layers": 1}])
@pytest.mark.parametrize("bounds", [(0, 20, 60), (0, 0, 60)])
def test_full_batches_are_those_of_one_process(ranks, params, bounds):
    """Without draws for rows, whose order differs, nothing is random."""
    X, y, w = _data()
    alone = _model(**params).fit(X, y, w)
    first, second = ranks(_fitted, bounds, params)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first[:-1], alone.predict(X), atol=1e-8)


@pytest.mark.parametrize("scheme", ["dsvi", "rff", SGHMC(n_samples=8), GlobalInducing()])
def test_minibatches_of_unequal_shards(ranks, scheme):
    params = {"inference": scheme, "batch_size": 16}
    params |= {"n_inducing": None} if scheme == "rff" else {}
    first, second = ranks(_fitted, (0, 2, 60), params)
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()


def _estimates(rank, bounds):
    """What weighted sums over the rows of single steps come to, over one epoch."""
    sums, train = [], fitting.Trainer.train

    def record(trainer):
        for step in range(60):
            batch = trainer.rows.batch(step)
            sums.append(float(batch.scale * (batch.weight * batch.y[:, 0]).sum()))
        return train(trainer)

    with mock.patch.object(fitting.Trainer, "train", record):
        _fitted(rank, bounds, {"inference": "dsvi", "batch_size": 6, "max_iter": 1})
    return sums


def test_steps_are_unbiased(ranks):
    """Each row of a shard is in as many steps of an epoch as any other; ten and two rows here, of six."""
    _, y, w = _data()
    y = (y - np.average(y, weights=w)) / np.sqrt(np.cov(y, aweights=w, ddof=0))
    sums = np.sum(ranks(_estimates, (0, 10, 60)), 0)
    np.testing.assert_allclose(sums.mean(), w @ y, atol=1e-8)


def _sampled(rank):
    rng = np.random.RandomState(rank)
    X, y = rng.randn(500, 3), np.zeros(500)
    X[7, 1], y[11] = 50.0 * (rank + 1), rank + 1.0  # rare classes
    model = DeepGPClassifier(inference="dsvi", n_inducing=5, max_iter=5, random_state=0)
    with mock.patch.object(distributed.fitting, "_SHARED_ROWS", (100, 100)):
        distributed.fit(model, X, y, shard="given")
    return model.classes_, model._n_rows, model._x_scaler.center


def test_a_sample_of_all_rows_sets_the_scaling(ranks):
    first, second = ranks(_sampled)
    np.testing.assert_array_equal(first[0], [0.0, 1.0, 2.0])
    assert first[1] == pytest.approx(1000.0)
    np.testing.assert_array_equal(first[2], second[2])
    assert np.abs(first[2]).max() < 0.5


@pytest.mark.parametrize(
    ("params", "shard", "message"),
    [
        ({"inference": "auto"}, "given", "trains one model: set inference"),
        ({"inference": "dsvi", "early_stopping": True}, "given", "early_stopping=True needs"),
        ({"inference": "dsvi"}, "mine", "shard must be 'auto' or 'given'"),
    ],
)
def test_settings_that_are_refused(params, shard, message):
    with pytest.raises(ValueError, match=message):
        distributed.fitting._checked(_model(**params), *_data(), shard=shard)


@pytest.fixture
def files(tmp_path):
    """Two files, and the numbers in their columns a and b."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    names, rng = [tmp_path / "a.parquet", tmp_path / "b.parquet"], np.random.RandomState(0)
    X, y = rng.randn(7, 2), rng.randn(7)
    for file, rows in zip(names, (slice(0, 3), slice(3, 7))):
        parquet.write_table(pa.table({"a": X[rows, 0], "y": y[rows], "b": X[rows, 1]}), file)
    dates = pa.table({"a": [1.0], "y": [2.0], "b": [np.datetime64("2024-01-01", "us")]})
    parquet.write_table(dates, tmp_path / "dates.parquet")
    parquet.write_table(pa.table({"a": [1.0], "y": [2.0]}), tmp_path / "less.parquet")
    return names, X, y


def test_parquet_becomes_memory_maps(files):
    names, X, y = files
    found = distributed.read_parquet(names, "y", np.float64)
    assert all(isinstance(part, np.memmap) for part in found)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], y)


def test_parquet_spills_where_it_is_told_to(files, tmp_path):
    """The folder of tempfile is not asked."""
    names, X, _ = files
    with mock.patch.object(tempfile, "gettempdir", side_effect=AssertionError):
        found, _ = distributed.read_parquet(names, "y", np.float64, temp_folder=tmp_path)
    np.testing.assert_array_equal(found, X)
    with pytest.raises(OSError, match="no_such_folder"):
        distributed.read_parquet(names, "y", temp_folder=tmp_path / "no_such_folder")
    few = mock.Mock(free=100)
    with mock.patch.object(distributed.parquet.shutil, "disk_usage", return_value=few):
        with pytest.raises(OSError, match=r"The rows need 0\.0 GB, and temp_folder has"):
            distributed.read_parquet(names, "y", temp_folder=tmp_path)


def test_parquet_files_of_other_columns_are_named(files, tmp_path):
    names, *_ = files
    with pytest.raises(
        ValueError, match=r"Column 'b' of .*dates.parquet holds no numbers but time"
    ):
        distributed.read_parquet([*names, tmp_path / "dates.parquet"], "y")
    with pytest.raises(ValueError, match=r"less.parquet has no column 'b'"):
        distributed.read_parquet([*names, tmp_path / "less.parquet"], "y")
