"""Warnings are reported where the user's code called."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPRegressor


@pytest.fixture
def data():
    X = np.column_stack([np.linspace(-1.0, 1.0, 12), np.ones(12)])
    return X, X[:, 0]


@pytest.fixture
def model():
    return DeepGPRegressor(inference="dsvi", max_iter=1000, max_time=1e-6, random_state=0)


def places(caught):
    return {(warning.filename, warning.lineno) for warning in caught}


def line_of(text):
    """Where a line of this file begins that holds the text."""
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if line.strip() == text)
    return __file__, number


def test_fits(model, data):
    with pytest.warns(match="max_time") as caught:
        model.fit(*data)
    assert places(caught) == {line_of("model.fit(*data)")}
    pipeline = make_pipeline(StandardScaler(), model)
    with pytest.warns(match="max_time") as caught:
        pipeline.fit(*data)
    assert places(caught) == {line_of("pipeline.fit(*data)")}
    with pytest.warns(match="max_time") as caught:
        cross_val_score(model, *data, cv=2)
    assert places(caught) == {line_of("cross_val_score(model, *data, cv=2)")}


@pytest.mark.filterwarnings("ignore:Training stopped")
def test_prediction(model, data):
    fitted = clone(model).fit(*data)
    with pytest.warns(match="were constant in fit") as caught:
        fitted.predict(data[0] + 1.0)
    assert places(caught) == {line_of("fitted.predict(data[0] + 1.0)")}
