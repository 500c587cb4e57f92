"""Rows with gaps and complete ones are covered alike, under noise of every kind."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdgp import DeepGPRegressor

SETTINGS = {"random_state": 0, "max_iter": 200}
MODELS = {
    "linear": DeepGPRegressor(1, inference="exact", kernel="linear", random_state=0),
    "exact": DeepGPRegressor(1, inference="exact", random_state=0),
    "vecchia": DeepGPRegressor(1, inference="vecchia", random_state=0),
    "shallow": DeepGPRegressor(1, inference="dsvi", likelihood="heteroscedastic", **SETTINGS),
    "deep": DeepGPRegressor(inference="dsvi", **SETTINGS),
    "rff": DeepGPRegressor(inference="rff", **SETTINGS),
}


def table(n, rng):
    X = rng.standard_normal((n, 2))
    return X, X @ [1.0, 0.8] + 0.3 * rng.standard_normal(n)


@pytest.fixture(scope="module")
def rows():
    """Training rows of which 30 % lack the column that tells most, and new ones with and without it."""
    rng = np.random.default_rng(0)
    (X, y), (complete, targets) = table(600, rng), table(600, rng)
    X[rng.random(600) < 0.3, 0] = np.nan
    incomplete = complete.copy()
    incomplete[:, 0] = np.nan
    return X, y, complete, incomplete, targets


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_both_kinds_of_rows_are_covered(name, rows):
    """By 90 % intervals; the standard error of a coverage is .012, and twice that with what was learned.

    The model is linear and Gaussian: the standard deviations are .3 and (1 + .09)^1/2.
    """
    X, y, *new, targets = rows
    model = MODELS[name].fit(X, y)
    for some, right in zip(new, (0.3, np.sqrt(1.09))):
        low, high = model.predict_interval(some, 0.9).T
        assert 0.85 < ((low < targets) & (targets < high)).mean() < 0.95
        std = model.predict(some, return_std=True)[1]
        assert_allclose(
            np.sqrt(np.square(std).mean()), right, rtol=0.12 if name in ("linear", "exact") else 0.2
        )
    loaded = pickle.loads(pickle.dumps(model))
    assert_allclose(
        loaded.predict(new[1], return_std=True)[1], model.predict(new[1], return_std=True)[1]
    )


@pytest.mark.filterwarnings("ignore")
def test_draws_have_the_same_noise(rows):
    """Of 4,000 draws, squared deviations have a standard error of 2 to 3 %."""
    X, y, complete, incomplete, _ = rows
    model = MODELS["linear"].fit(X, y)
    for some in (complete[:20], incomplete[:20]):
        _, std = model.predict(some, return_std=True)
        assert_allclose(model.sample_y(some, 4000, random_state=0).std(-1), std, rtol=0.08)


def test_constant_noise_has_the_whole_ratio(rows):
    """Up to the uncertainty of the function, .4 % of the variance of the noise."""
    X, y, *new, _ = rows
    model = DeepGPRegressor(
        1, inference="exact", kernel="linear", likelihood="gaussian", random_state=0
    ).fit(X, y)
    found = [np.square(model.predict(some, return_std=True)[1]).mean() for some in new]
    expected = [model._x_scaler.encoder.noise(some).mean() for some in new]
    assert_allclose(found[1] / found[0], expected[1] / expected[0], rtol=0.05)
