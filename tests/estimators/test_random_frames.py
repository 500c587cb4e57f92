"""Random data frames: predictions are finite, or one sentence says what is wrong."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone

from skdgp import DeepGPRegressor
from skdgp.preprocessing.encoding import ColumnEncoder
from skdgp.preprocessing.frames import FrameReader

EXACT = DeepGPRegressor(1, inference="exact", kernel="squared_exponential", random_state=0)
EXACT.set_params(max_iter=10)
START = datetime.datetime(1969, 12, 30, 13, 30)
WORDS = ["", " ", "nan", "1", "01", "é", "a", "A", "a very long level", "True"]


def _instants(rng, n):
    return [START + datetime.timedelta(hours=int(h)) for h in rng.integers(0, 20000, n)]


VALUES = {
    "float": lambda rng, n: (rng.standard_normal(n) * 10.0 ** rng.integers(-200, 200)).tolist(),
    "int": lambda rng, n: rng.integers(-(2**62), 2**62, n).tolist(),
    "bool": lambda rng, n: (rng.random(n) < 0.5).tolist(),
    "words": lambda rng, n: rng.choice(WORDS, n).tolist(),
    "names": lambda rng, n: [f"level {i}" for i in rng.integers(0, 400, n)],
    "instant": _instants,
    "day": lambda rng, n: [one.date() for one in _instants(rng, n)],
    "time": lambda rng, n: [one.time() for one in _instants(rng, n)],
    "duration": lambda rng, n: [one - START for one in _instants(rng, n)],
    "numeral": lambda rng, n: [str(i) for i in rng.integers(0, 5, n)],
    "mixed": lambda rng, n: [[1, 2.5, "a", "b", True][i] for i in rng.integers(0, 5, n)],
    "huge": lambda rng, n: rng.choice([10**400, 2**1023, -(2**1023), 1], n).tolist(),
    "list": lambda rng, n: [[int(i)] for i in rng.integers(0, 3, n)],
    "iso": lambda rng, n: [str(one.date()) for one in _instants(rng, n)],
}
#: dtypes of pandas for the values
DTYPES = {
    "float": ["float64", "float32", "Float64", "object"],
    "int": ["int64", "Int64", "UInt8", "object", "category"],
    "bool": ["bool", "boolean", "object", "category"],
    "words": ["object", "str", "string", "category", "ordered"],
    "names": ["str", "category", "object"],
    "instant": ["datetime64[ns]", "datetime64[s]", "zone", "object", "category"],
    "day": ["object", "datetime64[ns]"],
    "time": ["object"],
    "duration": ["timedelta64[ns]", "object"],
    "numeral": ["str", "category"],
    "mixed": ["object", "category"],
    "iso": ["str", "category"],
    "huge": ["object"],
    "list": ["object"],
}
KINDS = [(values, dtype) for values, dtypes in DTYPES.items() for dtype in dtypes]
GAPS = ["none", "some", "all"]
shapes = st.lists(
    st.tuples(st.sampled_from(KINDS), st.sampled_from(GAPS), st.booleans()), min_size=1, max_size=4
)
seeds, rows = st.integers(0, 2**32 - 1), st.integers(3, 40)
library = st.sampled_from(["pandas", "polars"])


def cells_of(column, n, rng):
    (values, dtype), gaps, constant = column
    cells = VALUES[values](rng, n)
    cells = [cells[0]] * n if constant else cells
    if gaps != "none" and dtype not in ("int64", "bool", "UInt8"):
        missing = rng.random(n) < (0.3 if gaps == "some" else 1.1)
        cells = [None if gap else cell for cell, gap in zip(cells, missing)]
    return [abs(cell) % 256 for cell in cells] if dtype == "UInt8" else cells


def pandas_frame(columns, n, seed):
    rng, series = np.random.default_rng(seed), {}
    for j, column in enumerate(columns):
        dtype, cells = column[0][1], cells_of(column, n, rng)
        if dtype == "ordered":
            one = pd.Series(pd.Categorical(cells, categories=WORDS, ordered=True))
        elif dtype == "zone":
            one = pd.Series(cells, dtype="datetime64[us]").dt.tz_localize("UTC")
            one = one.dt.tz_convert("Europe/Vienna")
        elif dtype in ("float64", "float32"):
            large = np.finfo(dtype).max
            one = pd.Series(cells, dtype="float64").clip(-large, large).astype(dtype)
        else:
            one = pd.Series(cells, dtype="object").astype(dtype)
        series[f"c{j}"] = one
    return pd.DataFrame(series)


def frame_of(library, columns, n, seed):
    if library == "pandas":
        return pandas_frame(columns, n, seed)
    rng = np.random.default_rng(seed)
    cells = {f"c{j}": cells_of(one, n, rng) for j, one in enumerate(columns)}
    return pl.DataFrame(cells, strict=False)


def one_sentence(error):
    message = str(error)
    assert message.endswith(".") and "\n" not in message, message


def read(frame, new, extend, seed):
    rng = np.random.default_rng(seed)
    reader = FrameReader().fit(frame)
    table = reader.transform(frame)
    assert not np.isinf(table).any()
    targets, weights = rng.standard_normal((len(table), 1)), np.ones(len(table))
    encoder = ColumnEncoder().fit(table, targets, weights, reader.kinds, np.random.RandomState(0))
    assert np.isfinite(encoder.transform(table, encoder.folds)).all()
    assert np.isfinite(encoder.transform(table)).all()
    reader = reader.extended(new) if extend else reader
    table = reader.transform(new)
    if extend:
        targets, weights = rng.standard_normal((len(table), 1)), np.ones(len(table))
        encoder = encoder.with_levels(table, targets, weights)
    encoded = encoder.transform(table)
    assert np.isfinite(encoded).all()
    assert encoded.shape[1] == len(encoder.suffixes) == len(encoder.sources)
    versions, factor = encoder.versions(table)
    assert np.isfinite(versions).all() and (factor >= 1.0).all()
    return encoded


@settings(max_examples=180, deadline=None, derandomize=True)
@given(library, shapes, rows, seeds, st.booleans(), st.integers(0, 3))
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_tables_of_random_frames_are_finite(library, columns, n, seed, extend, turn):
    frame = frame_of(library, columns, n, seed)
    others = columns[turn:] + columns[:turn]  # other dtypes, too
    new = frame_of(library, others, 7, seed + 1)
    try:
        read(frame, new, extend, seed)
    except ValueError as error:
        one_sentence(error)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(library, shapes, rows, seeds)
@pytest.mark.filterwarnings("ignore")
def test_predictions_from_random_frames_are_finite(library, columns, n, seed):
    frame = frame_of(library, columns, n, seed)
    y = np.random.default_rng(seed).standard_normal(n)
    try:
        model = clone(EXACT).fit(frame, y)
        for rows in (frame, frame_of(library, columns, 7, seed + 1)):
            mean, std = model.predict(rows, return_std=True)
            assert np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0.0).all()
    except ValueError as error:
        one_sentence(error)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 40), rows, seeds)
def test_names_of_levels_do_not_matter(n_levels, n, seed):
    rng = np.random.default_rng(seed)
    codes, y = rng.integers(0, n_levels, n), rng.standard_normal((n, 1))
    size = np.where(rng.random(n) < 0.2, np.nan, rng.standard_normal(n))
    encoded = []
    for name in ("{:03d} of these", "x{:05d}"):
        kind = [name.format(code) for code in codes]
        frame = pd.DataFrame({"kind": kind, "size": size}).astype({"kind": "category"})
        reader = FrameReader().fit(frame)
        table = reader.transform(frame)
        encoder = ColumnEncoder().fit(table, y, np.ones(n), reader.kinds, np.random.RandomState(0))
        encoded.append(encoder.transform(table, encoder.folds))
    assert_allclose(encoded[0], encoded[1], rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-310, 1.0, 1e200, 1.7e308])
def test_gaps_are_filled_between_the_neighbors_at_every_scale(scale):
    rng = np.random.default_rng(0)
    table = rng.uniform(size=(24, 2))
    table[::5, 0] = np.nan
    y, kinds = rng.standard_normal((24, 1)), ["number", "number"]
    filled = []
    for factor in (1.0, scale):
        encoder = ColumnEncoder()
        encoder.fit(table * factor, y, np.ones(24), kinds, np.random.RandomState(0))
        filled.append(encoder.transform(table * factor) / factor)
    assert_allclose(filled[1], filled[0], rtol=1e-9)
