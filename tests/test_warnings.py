"""Warnings are reported where the user's code called."""

import inspect
import warnings

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPRegressor


def line():
    return inspect.currentframe().f_back.f_lineno


@pytest.fixture
def data(rng=np.random.default_rng(0)):
    X = np.column_stack([rng.standard_normal(12), np.ones(12)])
    return X, X[:, 0]


@pytest.fixture
def model():
    return DeepGPRegressor(inference="dsvi", max_iter=1000, max_time=1e-6, random_state=0)


def test_fit(model, data):
    with pytest.warns(match="max_time") as caught:
        here = line() + 1
        model.fit(*data)
    assert {(w.filename, w.lineno) for w in caught} == {(__file__, here)}


def test_pipeline_and_search(model, data):
    pipeline = make_pipeline(StandardScaler(), model)
    with pytest.warns(match="max_time") as caught:
        first = line() + 1
        pipeline.fit(*data)
        second = line() + 1
        cross_val_score(pipeline, *data, cv=2)
    assert {(w.filename, w.lineno) for w in caught} == {(__file__, first), (__file__, second)}


def test_prediction(model, data):
    X, _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(*data)
    with pytest.warns(match="were constant in fit") as caught:
        here = line() + 1
        model.predict(X + 1.0)
    assert [(w.filename, w.lineno) for w in caught] == [(__file__, here)]
