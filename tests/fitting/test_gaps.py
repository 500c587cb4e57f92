"""Rows with gaps and complete ones are covered alike, where the noise has learned gaps by itself."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdgp import DeepGPRegressor
from skdgp.fitting import gaps

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
    """By 90 % intervals; the standard error of a coverage is .012, and twice that with what was learned."""
    X, y, *new, targets = rows
    model = MODELS[name].fit(X, y)
    for some in new:
        low, high = model.predict_interval(some, 0.9).T
        assert 0.82 < ((low < targets) & (targets < high)).mean() < 0.95
    (member,) = model.members_
    power, factor = member.gaps
    assert 0.3 < power.item() < 1.0 and 0.5 < factor.item() < 1.5
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
    assert model.members_[0].gaps is None
    found = [np.square(model.predict(some, return_std=True)[1]).mean() for some in new]
    expected = [model._x_scaler.encoder.noise(some).mean() for some in new]
    assert_allclose(found[1] / found[0], expected[1] / expected[0], rtol=0.05)


def test_the_power_is_that_of_the_errors(rows, monkeypatch):
    """A member with variances that gaps have not changed has the power 1, one that knows them has 0."""
    X, y, *_ = rows
    model = DeepGPRegressor(1, inference="dsvi", likelihood="heteroscedastic", **SETTINGS)
    model = model.set_params(max_iter=1).fit(X, y)
    member, encoder = model.members_[0], model._x_scaler.encoder
    ratio = encoder.noise(X)
    rng = np.random.default_rng(1)

    class Rows:
        def __init__(self):
            self.X, self.x_scaler = X, model._x_scaler

        def __len__(self):
            return len(X)

        def part(self, rows):
            return self

        def take(self, rows):
            return X, np.sqrt(ratio) * rng.standard_normal(ratio.shape), np.ones(len(X))

    for learned in (0.0, 0.5, 1.0):
        moments = np.zeros_like(ratio), ratio**learned
        monkeypatch.setattr(gaps, "_moments", lambda *_, found=moments: found)
        power, factor = gaps.learn_gaps(member, Rows(), "cpu").gaps
        assert_allclose(power, 1.0 - learned, atol=0.1)
        assert_allclose((factor * ratio ** (power + learned)).mean(), (ratio**learned).mean())
