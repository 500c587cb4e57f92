"""Levels with few training rows: what these say of them, and how little that is."""

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose

from skdgp import DeepGPRegressor
from skdgp.inference.rows.level_neighbors import LevelNeighbors
from skdgp.preprocessing.columns import Levels

SIZES = np.r_[np.full(40, 1), np.full(8, 60)]
MODELS = {
    "linear": DeepGPRegressor(1, inference="exact", kernel="linear", random_state=0),
    "dsvi": DeepGPRegressor(inference="dsvi", max_iter=200, random_state=0),
}


def rows(rng, effects, levels):
    x = rng.uniform(size=len(levels))
    y = effects[levels] + np.sin(6.0 * x) + 0.1 * rng.standard_normal(len(levels))
    return pd.DataFrame({"x": x, "shop": [f"shop {i}" for i in levels]}), y


def test_rows_of_rare_levels_are_those_of_a_mixed_model():
    """Given one or two rows of a level, its effect is known to .0995 and .0705."""
    sizes = np.r_[np.full(25, 1), np.full(25, 2), np.full(8, 60)]
    rng = np.random.default_rng(1)
    effects = rng.standard_normal(len(sizes) + 20)
    model = DeepGPRegressor(1, inference="exact", random_state=0)
    model.fit(*rows(rng, effects, np.repeat(np.arange(len(sizes)), sizes)))
    for n, expected in ((1, 0.141), (2, 0.123)):
        X, y = rows(rng, effects, np.repeat(np.flatnonzero(sizes == n), 10))
        mean, std = model.predict(X, return_std=True)
        assert np.sqrt(np.mean((y - mean) ** 2)) < 1.4 * expected
        assert 0.8 * expected < np.sqrt(np.mean(std**2)) < 1.3 * expected
    X, y = rows(rng, effects, np.repeat(len(sizes) + np.arange(20), 10))
    with pytest.warns(UserWarning, match="has not seen"):
        low, high = model.predict_interval(X, 0.9).T
    assert ((low < y) & (y < high)).mean() > 0.8  # 20 effects: the standard error is .07
    assert 0.75 < np.mean(high - low) / 3.29 < 1.3


def test_neighbors_have_their_effects():
    """Errors are .141 where all else is known, .68 and more by positions."""
    rng = np.random.default_rng(0)
    effects = rng.standard_normal(len(SIZES))
    model = DeepGPRegressor(1, inference="vecchia", random_state=0)
    model.fit(*rows(rng, effects, np.repeat(np.arange(len(SIZES)), SIZES)))
    X, y = rows(rng, effects, np.repeat(np.flatnonzero(SIZES == 1), 20))
    assert np.sqrt(np.mean((y - model.predict(X)) ** 2)) < 0.3
    low, high = model.predict_interval(X, 0.9).T
    assert ((low < y) & (y < high)).mean() > 0.85
    draws = model.sample_y(X, 500, latent=True, random_state=0)
    mean, std = model.predict(X, return_std=True, latent=True)
    assert_allclose(draws.mean(1), mean, atol=0.25 * std.max())


def test_rows_of_a_level_are_among_its_neighbors():
    rng = np.random.default_rng(0)
    Z = torch.tensor(np.column_stack([rng.uniform(size=60), np.zeros(60)]))
    Z[:6, 1] = torch.tensor([1.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    search = LevelNeighbors(Z, np.array([1.0, np.inf]), 8, [[1]])
    of_level, common, unseen = search(torch.tensor([[0.5, 1.0], [0.5, 0.0], [0.5, 9.0]]))
    assert set(of_level) >= {0, 1}
    assert not set(of_level) & {2, 3, 4, 5}
    nearest = 6 + np.abs(Z[6:, 0] - 0.5).argsort()[:8].numpy()
    assert set(common) == set(unseen) == set(nearest)
    assert set(of_level[-4:]) == set(nearest[:4])
    around = 6 + np.abs(Z[6:, :1] - Z[:2, 0]).argsort(0)[:2].numpy().ravel()
    assert set(of_level) <= {0, 1, *nearest, *around}
    (left,) = search(Z[:1], np.array([0]), np.arange(60))
    assert 0 not in left
    assert 1 in left


def test_several_columns_have_effects_of_their_own():
    rng = np.random.default_rng(0)
    sizes = np.r_[np.full(30, 1), np.full(6, 40)]
    level = np.repeat(np.arange(36), sizes)
    effects, others = rng.standard_normal((2, 36))
    other = rng.permutation(level)
    y = effects[level] + others[other] + 0.1 * rng.standard_normal(len(level))
    X = pd.DataFrame({"a": level, "b": other}).astype(str).add("-")
    model = DeepGPRegressor(1, inference="exact", random_state=0).fit(X, y)
    new = np.repeat(np.arange(30), 6), np.tile(np.arange(30, 36), 30)  # rare a, common b
    mean = model.predict(pd.DataFrame({"a": new[0], "b": new[1]}).astype(str).add("-"))
    single = other[level < 30] >= 30  # whose other effect is known
    known = np.isin(new[0], level[level < 30][single])
    error = (mean - effects[new[0]] - others[new[1]])[known]
    assert np.sqrt(np.mean(error**2)) < 0.2


def test_few_rare_levels_are_positions_alone():
    """Two rare levels do not tell a variance; and nothing changes without rare ones."""
    rng = np.random.default_rng(0)
    for n_rare in (0, 2, 3):
        sizes = np.r_[np.full(n_rare, 1), np.full(4, 20)]
        X, y = rows(rng, rng.standard_normal(8), np.repeat(np.arange(len(sizes)), sizes))
        model = DeepGPRegressor(1, inference="exact", max_iter=2, random_state=0).fit(X, y)
        assert len(model._x_scaler.codes) == (n_rare == 3)


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
    found, _ = column.uncertain(np.array([0.0, 55.0, 60.0, np.nan]))
    assert_allclose(found, [0.0, 0.5, 0.0, 0.0], rtol=0.05)
    assert column.unknown(np.array([0.0, 55.0])).tolist() == [False, True]


def test_rows_of_new_levels_are_learned_from():
    """Each new level by its own rows, and others not by these."""
    rng = np.random.default_rng(2)
    effects = np.r_[rng.standard_normal(len(SIZES)), 3.0, -3.0]
    X, y = rows(rng, effects, np.repeat(np.arange(len(SIZES)), SIZES))
    model = DeepGPRegressor(1, inference="exact", max_iter=15, random_state=0).fit(X, y)
    given = model.condition_on(*rows(rng, effects, np.repeat(len(SIZES) + np.arange(2), 3)))
    X, y = rows(rng, effects, len(SIZES) + np.arange(2))
    assert_allclose(given.predict(X), y, atol=0.5)
    other = X.assign(shop="another")
    with pytest.warns(UserWarning, match="has not seen"):
        before = model.predict(other)
    with pytest.warns(UserWarning, match="has not seen"):
        assert_allclose(given.predict(other), before, atol=0.5)
