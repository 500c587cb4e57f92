"""Columns that are constant in the first chunks of ``partial_fit`` and vary later are learned."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.fitting.partial_fit import _with_inputs
from skdgp.inference import NNGP, RandomFeatures

SETTINGS = {
    "dsvi": {"inference": "dsvi", "n_inducing": 20},
    "shallow": {"inference": "dsvi", "n_inducing": 20, "n_layers": 1, "kernel": "anova"},
    "connected": {"inference": "dsvi", "n_inducing": 20, "input_connected": True},
    "structured": {"inference": "structured", "n_inducing": 20},
    "aep": {"inference": "aep", "n_inducing": 15},
    "rff": {"inference": "rff"},
    "resampled": {"inference": RandomFeatures(50, frequencies="resampled")},
    "diwp": {"inference": "diwp", "n_inducing": 20},
    "nngp": {"inference": NNGP(exact=False), "n_inducing": 20},
    "global": {"inference": "global", "n_inducing": 20},
}


def chunk(varies, n=150, seed=0):
    """Rows whose middle column is 7 before it varies, and then decides most."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 3))
    y = 2.0 * X[:, 1] * varies + 0.3 * X[:, 0]
    X[:, 1] = 7.0 + 40.0 * X[:, 1] * varies
    return X, y + 0.05 * rng.standard_normal(n)


def learned(model, as_target=lambda y: y, n_chunks=6):
    """Chunks without the column's values, then with them; no warning may say that it is lost."""
    first = {"classes": [False, True]} if isinstance(model, DeepGPClassifier) else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Columns")
        for i in range(n_chunks):
            X, y = chunk(i > 0, seed=i)
            model.partial_fit(X, as_target(y), **({} if i else first))
    return model


@pytest.mark.parametrize("name", SETTINGS)
def test_a_column_is_learned_once_it_varies(name):
    model = learned(DeepGPRegressor(random_state=0, **SETTINGS[name]))
    X, y = chunk(True, seed=99)
    assert model.score(X, y) > 0.75  # without the column 0.02
    assert model.feature_importances_[1] > 0.5
    if model.inducing_inputs_:
        assert model.inducing_inputs_[0].shape[1] == 3


@pytest.mark.parametrize("name", ["dsvi", "rff", "diwp"])
def test_classifiers_learn_it_too(name):
    model = learned(DeepGPClassifier(random_state=0, **SETTINGS[name]), lambda y: y > 0.0)
    X, y = chunk(True, seed=99)
    assert model.score(X, y > 0.0) > 0.85  # without the column 0.56


@pytest.mark.parametrize("name", SETTINGS)
def test_a_column_that_stays_constant_changes_no_number(name):
    with_it, without = (DeepGPRegressor(random_state=0, max_iter=5, **SETTINGS[name]) for _ in "ab")
    for seed in range(2):
        X, y = chunk(False, n=40, seed=seed)
        with_it.partial_fit(X, y)
        without.partial_fit(X[:, [0, 2]], y)
    assert_array_equal(with_it.predict(X), without.predict(X[:, [0, 2]]))


@pytest.mark.parametrize("name", ["dsvi", "shallow", "connected", "structured", "aep", "rff"])
def test_new_inputs_change_no_prediction_of_rows_before(name):
    X, y = chunk(False, n=40)
    model = DeepGPRegressor(random_state=0, **SETTINGS[name]).partial_fit(X, y)
    expected = model.predict(X, return_std=True)
    scaler = model._x_scaler.with_changed(*(part[:40] for part in (chunk(True)[0], np.ones(40))))
    member, n_more = _with_inputs(model.members_[0], len(scaler.columns))
    assert n_more == 1
    model.members_, model._x_scaler = [member], scaler
    found = model.predict(X, return_std=True)
    # a new hidden unit has noise of its own: measured .0018 of the standard deviation
    tolerance = 0.005 * expected[1].min() if name in ("dsvi", "aep") else 0.0
    assert_allclose(found, expected, rtol=1e-8, atol=tolerance)


def test_after_fit_and_where_nothing_varied_and_in_frames():
    rows = [chunk(i > 0, seed=i) for i in range(6)]
    blank = np.tile(rows[0][0][:1], (50, 1))
    frames = [pd.DataFrame(X, columns=list("abc")).assign(d="x") for X, _ in rows]
    for frame in frames[2:]:
        frame["d"] = np.where(frame["b"] > 7.0, "x", "y")
    streams = {
        "fit": [rows[0], *rows[1:]],
        "blank": [(blank, rows[0][1][:50]), *rows[1:]],
        "frame": [(frame, y) for frame, (_, y) in zip(frames, rows)],
    }
    for name, (first, *others) in streams.items():
        model = DeepGPRegressor(inference="dsvi", n_inducing=20, random_state=0, max_iter=100)
        model = model.fit(*first) if name == "fit" else model.partial_fit(*first)
        for part in others:
            model.partial_fit(*part)
        assert model.score(*others[-1]) > 0.8, name
