"""Means without standard deviations, which take less where members need no variances for them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdgp import DeepGPRegressor
from skdgp.inference import Exact, Vecchia
from skdgp.inference.rows.conditioned import ConditionedGP


def rows(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)


def fitted(X, y, **settings):
    settings = {"n_layers": 1, "inference": "exact", "max_iter": 3, "random_state": 0} | settings
    return DeepGPRegressor(**settings).fit(X, y)


def same(model, X, **settings):
    mean, std = model.predict(X, return_std=True, **settings)
    assert_allclose(model.predict(X, **settings), mean, rtol=1e-9, atol=1e-9 * np.abs(mean).max())
    assert (std > 0.0).all()


@pytest.mark.filterwarnings("ignore:Sampling ended", "ignore:The chains")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"likelihood": "gaussian"},
        {"inference": Exact(n_neighbors=4), "target_transform": "auto"},
        {"inference": Vecchia(n_neighbors=8)},
        {"inference": "ess", "max_iter": 20},
        {"n_layers": 2, "inference": "dsvi"},
    ],
)
def test_the_mean_alone_is_that_beside_the_deviation(settings):
    X, y = rows()
    same(fitted(X, y, **settings), rows(20, seed=1)[0])


def test_of_several_outputs():
    X, y = rows()
    same(fitted(X, np.stack([y, y**2, X[:, 2]], 1)), rows(20, seed=1)[0])


def test_of_several_members():
    X, y = rows(300)
    model = DeepGPRegressor(random_state=0, max_iter=3).fit(X, y)
    assert len(model.members_) > 1
    same(model, rows(50, seed=1)[0])


def test_of_positive_targets_that_are_mapped():
    X, y = rows()
    same(fitted(X, np.exp(3.0 * y), target_transform="log"), rows(20, seed=1)[0])


@pytest.mark.filterwarnings("ignore:Columns")
def test_of_rows_that_members_do_not_see_all_of():
    """Values of a column that was constant, and cells that are missing for the first time."""
    X, y = rows()
    model, (x, _) = fitted(np.hstack([X, np.ones((60, 1))]), y), rows(20, seed=1)
    new = np.hstack([x, np.full((20, 1), 2.0)])
    same(model, new)
    new = np.hstack([x, np.ones((20, 1))])
    new[3, 1] = np.nan
    same(model, new)


def test_the_mean_needs_no_solve(monkeypatch):
    X, y = rows()
    model, asked = fitted(X, y), []
    model.predict(X)
    moments = ConditionedGP.moments
    monkeypatch.setattr(
        ConditionedGP,
        "moments",
        lambda *args, **kwargs: asked.append(1) or moments(*args, **kwargs),
    )
    mean = model.predict(X)
    assert not asked
    assert_array_equal(model.predict(X, return_std=True)[1] > 0.0, True)
    assert asked
    assert_allclose(model.predict(X, latent=True), mean, rtol=1e-9)
