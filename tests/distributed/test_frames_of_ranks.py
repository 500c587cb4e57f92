"""Frames that ranks have in parts are read as a single process reads all of them."""

from unittest import mock

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.pipeline import make_pipeline

from skdgp import DeepGPClassifier, DeepGPRegressor, distributed

pytestmark = pytest.mark.filterwarnings("ignore")
N, FIRST = 90, 36  #: rows, and those of the first rank
NEW = slice(0, 40)


def _frame(library="pandas"):
    """On the first rank, dates could have the day first, and some levels and words are missing."""
    rng = np.random.default_rng(0)
    day = pd.Series(pd.date_range("2024-01-01", periods=N))
    early = day.dt.day <= 12
    day = pd.concat([day[early], day[~early]], ignore_index=True)
    code = np.r_[rng.integers(0, 3, FIRST), rng.integers(0, 6, N - FIRST)]
    X = pd.DataFrame(
        {
            "x": rng.uniform(size=N),
            "region": pd.Categorical(code),
            "text": code.astype(str),
            "size": pd.Categorical(np.array(["S", "M", "L"])[code % 3], ["S", "M", "L"], True),
            "when": day.dt.strftime("%m/%d/%Y"),
            "zone": day.dt.tz_localize("America/New_York"),
            "gap": np.where(code > 3, np.nan, code),
            "word": np.where(np.arange(N) == N - 1, "?", rng.uniform(size=N).astype(str)),
        }
    )
    y = np.sin(6 * X["x"]) + rng.standard_normal(6)[code] + 0.1 * rng.standard_normal(N)
    if library == "polars":
        cells = X.drop(columns="size").astype({"region": str})
        columns = {name: cells[name].tolist() for name in cells}
        X = pl.DataFrame(columns).with_columns(pl.col("region").cast(pl.Categorical))
    return X, y.to_numpy()


def _model(cls=DeepGPRegressor, **params):
    settings = {"inference": "dsvi", "max_iter": 10, "n_inducing": 8, "random_state": 0}
    return cls(1, **{**settings, "n_threads": 1, **params})


def _of(rank, X):
    """The rows of a rank, with their own categories."""
    if isinstance(X, pl.DataFrame):
        return X[:FIRST] if rank == 0 else X[FIRST:]
    own = X[:FIRST] if rank == 0 else X[FIRST:]
    return own.assign(region=own["region"].cat.remove_unused_categories())


def _found(model, X):
    return model.column_kinds_, model._reader.levels, model.predict(X[NEW])


def _fitted(rank, library, cls, params):
    X, y = _frame(library)
    y = y if cls is DeepGPRegressor else (y > y.mean()).astype(int)
    own = y[:FIRST] if rank == 0 else y[FIRST:]
    return _found(distributed.fit(_model(cls, **params), _of(rank, X), own), X)


def _same(first, second, exact=True):
    assert first[:2] == second[:2]
    np.testing.assert_allclose(first[2], second[2], atol=0.0 if exact else 1e-8)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("cls", [DeepGPRegressor, DeepGPClassifier])
def test_ranks_read_frames_as_one_process_does(ranks, library, cls):
    X, y = _frame(library)
    y = y if cls is DeepGPRegressor else (y > y.mean()).astype(int)
    alone = _found(_model(cls).fit(X, y), X)
    kinds = alone[0]
    assert kinds["region"] == "category" and kinds["text"] == "number" and kinds["when"] == "date"
    first, second = ranks(_fitted, library, cls, {})
    _same(first, second)
    _same(first, alone, exact=False)


def test_the_default_and_named_categories(ranks):
    X, y = _frame()
    params = {"inference": "auto", "n_inducing": None, "categorical_features": ["text", "gap"]}
    alone = _found(_model(**params).fit(X, y), X)
    assert alone[0]["text"] == alone[0]["gap"] == "category"
    for found in ranks(_fitted, "pandas", DeepGPRegressor, params):
        _same(found, alone, exact=False)


def _with_own_rows(rank):
    X, y = _frame()
    own = y[:FIRST] if rank == 0 else y[FIRST:]
    model = _model(batch_size=N, max_iter=20)
    distributed.fit(model, _of(rank, X), own, shard="given")
    return _found(model, X)


def test_rows_that_stay_on_their_ranks(ranks):
    """Full batches, without draws: those of a single process."""
    X, y = _frame()
    alone = _found(_model(batch_size=N, max_iter=20).fit(X, y), X)
    first, second = ranks(_with_own_rows)
    _same(first, second)
    assert first[:2] == alone[:2]
    assert np.abs(first[2] - alone[2]).max() < 0.1 * y.std()


def test_samples_of_rows_have_all_levels():
    X, y = _frame()
    table = distributed.fitting.Table.of(X)
    with (
        mock.patch.object(distributed.fitting, "_SHARED_ROWS", (20, 20)),
        mock.patch.object(distributed.fitting.dist, "get_rank", return_value=0),
    ):
        rows, *_ = distributed.fitting._some_rows([table, y, None, None], N, by_class=False)
    assert len(rows) < N
    some = [column.levels() for column in rows.columns]
    for column, levels in zip(table.columns, some):
        if column.name in ("region", "text", "size"):
            assert levels == column.levels()
        if column.name in ("x", "zone"):
            assert {levels[0], levels[-1]} == {column.levels()[0], column.levels()[-1]}


def _chunks(rank):
    X, y = _frame()
    model, after = _model(), slice(60, N)
    for rows in (slice(0, 60), after):
        bounds = range(*rows.indices(N))[rank::2]
        distributed.partial_fit(model, X.iloc[list(bounds)], y[list(bounds)])
    return _found(model, X)


def test_chunks_bring_new_levels_on_each_rank(ranks):
    X, y = _frame()
    alone = _model()
    for rows in (range(0, 60), range(60, N)):
        order = [*rows[0::2], *rows[1::2]]
        alone.partial_fit(X.iloc[order], y[order])
    first, second = ranks(_chunks)
    _same(first, second)
    _same(first, _found(alone, X), exact=False)


def _refused(rank, change):
    X, y = _frame()
    own = _of(rank, X)
    if rank == 1:
        changes = {
            "order": lambda: own[list(own.columns)[::-1]],
            "less": lambda: own.drop(columns="gap"),
            "array": lambda: own[["x", "gap"]].to_numpy(),
            "kind": lambda: own.assign(zone=np.arange(len(own))),
            "zone": lambda: own.assign(zone=own["zone"].dt.tz_localize(None)),
            "levels": lambda: own.assign(size=own["size"].cat.reorder_categories(list("LMS"))),
        }
        own = changes.get(change, lambda: own)()
    y, model = y[:FIRST] if rank == 0 else y[FIRST:], _model()
    if change == "shape" and rank == 1:
        y = np.column_stack([y, y])
    elif change == "labels":
        model, y = DeepGPClassifier(random_state=0), (y > 0.0).astype(int)
        y = np.array(["no", "yes"])[y] if rank == 1 else y
    elif change == "pipeline":
        model = make_pipeline(model)
    distributed.fit(model, own, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("order", r"rank 0 has \['x', .*, rank 1 has \['word', .* the same columns in the same"),
        ("less", r"columns of X differ: rank 0 has .*'gap', 'word'\], rank 1 has \["),
        ("array", r"rank 1 has an array of shape \(n, 2\)"),
        (
            "kind",
            r"Column 'zone' of X does not hold the same on all ranks \(dates with a time zone",
        ),
        ("zone", r"Column 'zone' of X does not hold the same on all ranks \(dates and dates with"),
        ("levels", "Column 'size' of X does not hold the same on all ranks"),
        ("shape", r"rank 0 has numbers of shape \(n,\), rank 1 has numbers of shape \(n, 2\)"),
        ("labels", r"rank 0 has numbers of shape \(n,\), rank 1 has text"),
        ("pipeline", "An estimator of skdgp is needed; got Pipeline"),
    ],
)
def test_columns_of_other_ranks_are_an_error_on_all(ranks, change, message):
    for error in ranks(_refused, change):
        assert isinstance(error, ValueError)
        with pytest.raises(ValueError, match=message):
            raise error


def _without_rows(rank):
    X, y = _frame()
    rows = slice(0, 0) if rank == 0 else slice(None)
    return _found(distributed.fit(_model(), X[rows], y[rows]), X)


def test_a_rank_without_rows(ranks):
    X, y = _frame()
    for found in ranks(_without_rows):
        _same(found, _found(_model().fit(X, y), X), exact=False)
