"""Levels with one training row: error bars know that their positions are hardly known."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skdgp import DeepGPRegressor
from skdgp.preprocessing.columns import Levels

SIZES = np.r_[np.full(40, 1), np.full(8, 60)]
MODELS = {
    "linear": DeepGPRegressor(1, inference="exact", kernel="linear", random_state=0),
    "exact": DeepGPRegressor(1, inference="exact", random_state=0),
    "vecchia": DeepGPRegressor(1, inference="vecchia", random_state=0),
    "dsvi": DeepGPRegressor(inference="dsvi", max_iter=200, random_state=0),
}


def rows(rng, effects, levels):
    x = rng.uniform(size=len(levels))
    y = effects[levels] + np.sin(6.0 * x) + 0.1 * rng.standard_normal(len(levels))
    return pd.DataFrame({"x": x, "shop": [f"shop {i}" for i in levels]}), y


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_their_intervals_hold_the_targets(name):
    """Of 120 levels in three tables, so that the standard error of the coverage is about .04."""
    inside = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        effects = rng.standard_normal(len(SIZES))
        model = MODELS[name].fit(*rows(rng, effects, np.repeat(np.arange(len(SIZES)), SIZES)))
        X, y = rows(rng, effects, np.repeat(np.flatnonzero(SIZES == 1), 20))
        low, high = model.predict_interval(X, 0.9).T
        inside.append(((low < y) & (y < high)).mean())
    assert np.mean(inside) > 0.78


def test_the_deviation_is_that_of_one_row():
    """The deviation within levels, of pairs of rows; common levels have none, and unseen ones not this one."""
    rng = np.random.default_rng(0)
    codes = np.r_[np.repeat(np.arange(50.0), 40), np.arange(50.0, 60.0)]
    effects = rng.standard_normal(60)
    y = (effects[codes.astype(int)] + 0.5 * rng.standard_normal(len(codes)))[:, None]
    folds, weights = np.arange(len(codes)) % 5, np.ones(len(codes))
    column = Levels().fit(codes, y, weights, folds)
    found = column.uncertain(np.array([0.0, 55.0, 60.0, np.nan]))
    assert_allclose(found, [0.0, 0.5, 0.0, 0.0], rtol=0.05)
    assert column.unknown(np.array([0.0, 55.0])).tolist() == [False, True]
