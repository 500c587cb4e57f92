"""Deterministic runs are interpolated, with a local scale, by noise='none'."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import qmc

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import HeteroscedasticGaussian

FUNCTIONS = {
    "two bumps": lambda u: 8.0 * (u[:, 0] - 0.25) * np.exp(-((8.0 * u - 2.0) ** 2).sum(1)),
    "cliff": lambda u: np.sin(3.0 * u[:, 0]) + 2.0 * (u[:, 1] > 0.3 + 0.5 * u[:, 0] ** 2),
    "narrow well": lambda u: u[:, 0] - 3.0 * np.exp(-200.0 * ((u - 0.7) ** 2).sum(1)),
    "smooth": lambda u: 1e3 * np.sin(5.0 * u[:, 0]) + 7e3 * u[:, 1] ** 2,
    "amounts": lambda u: np.exp(3.0 * u[:, 0] + np.sin(4.0 * u[:, 1])),
}


def runs(name, n=20, seed=0):
    X = qmc.LatinHypercube(2, rng=np.random.default_rng(seed)).random(n)
    return X, FUNCTIONS[name](X)


def fitted(name, **settings):
    return DeepGPRegressor(random_state=0, noise="none", **settings).fit(*runs(name))


@pytest.mark.parametrize("settings", [{}, {"inference": "vecchia", "n_layers": 1}])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_runs_are_interpolated(name, settings):
    X, y = runs(name)
    model = fitted(name, **settings)
    mean, std = model.predict(X, return_std=True)
    assert np.abs(mean - y).max() < 1e-3 * y.std()
    assert std.max() < 1e-3 * y.std()
    low, high = model.predict_interval(X, 0.9).T
    slack = 1e-6 * y.std()
    assert ((low - slack <= y) & (y <= high + slack)).mean() >= 0.9
    new = runs(name, seed=1)[0]
    assert model.predict(new, return_std=True)[1].max() > 1e-3 * y.std()


@pytest.mark.parametrize("inference", ["auto", "exact", "vecchia"])
def test_near_runs_of_steps_and_of_categories_are_interpolated(inference):
    """Matrices of near runs are nearly singular, and positions of levels are those of predictions."""
    rng = np.random.default_rng(0)
    model = DeepGPRegressor(1, inference=inference, noise="none", random_state=0)
    x = rng.uniform(size=(40, 1))
    steps = np.round(9.0 * x[:, 0])
    frame = pd.DataFrame({"x": x[:, 0], "kind": rng.choice(["u", "v", "w"], 40)})
    frame.loc[:7, "kind"] = [f"rare {i}" for i in range(8)]
    of_kind = (
        np.sin(4.0 * x[:, 0]) + (frame["kind"] == "u") + rng.normal(size=40) * (frame.index < 8)
    )
    for X, y in ((x, steps), (frame, of_kind.to_numpy())):
        mean, std = model.fit(X, y).predict(X, return_std=True)
        assert np.abs(mean - y).max() < 1e-3 * y.std()
        assert std.max() < 1e-3 * y.std()


def test_local_scale_stays():
    """At the foot of a cliff error bars are wider than as far from runs of a plane."""
    model = fitted("cliff")
    assert model.members_[0].posterior()._scale is not None
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 1))
    model = DeepGPRegressor(1, inference="exact", noise="none", random_state=0)
    model.fit(X, np.where(X[:, 0] > 0.9, 1.0, np.sin(X[:, 0])))
    x = np.sort(X[:, 0])
    middle = 0.5 * (x[1:] + x[:-1])
    std = model.predict(middle[:, None], return_std=True)[1]
    assert std[middle > 0.85].max() > 30.0 * np.median(std[middle < 0.6])


def test_closed_form():
    """Means are those of a Gaussian process without noise."""
    X, y = runs("smooth")
    kernel = SquaredExponential(lengthscale=[0.3, 0.5], variance=4.0, trainable=False)
    settings = {"kernel": kernel, "standardize": False, "target_transform": None}
    y = y / y.std()
    model = DeepGPRegressor(1, inference="exact", noise="none", **settings).fit(X, y)

    def k(A, B):
        return 4.0 * np.exp(-0.5 * np.square((A[:, None] - B) / [0.3, 0.5]).sum(2))

    new = runs("smooth", seed=1)[0]
    expected = k(new, X) @ np.linalg.solve(k(X, X) + 1e-10 * np.eye(len(X)), y)
    assert_allclose(model.predict(new), expected, atol=1e-4)


def test_more_runs_are_interpolated_too():
    X, y = runs("cliff", 30)
    model = fitted("cliff").condition_on(X, y)
    assert np.abs(model.predict(X) - y).max() < 1e-3 * y.std()


def test_several_outputs_and_bad_input():
    X, y = runs("smooth")
    both = np.column_stack([y, -2.0 * y])
    model = DeepGPRegressor(noise="none", random_state=0).fit(X, both)
    assert_allclose(model.predict(X), both, atol=1e-3 * y.std())
    for settings in ({"inference": "dsvi"}, {"likelihood": "gaussian"}):
        with pytest.raises(ValueError, match="noise='none' needs"):
            DeepGPRegressor(noise="none", **settings).fit(X, y)
    with pytest.raises(ValueError, match="noise"):
        DeepGPRegressor(noise="small").fit(X, y)


def test_fixed_variances_may_be_small():
    """As by scikit-learn's alpha."""
    X, y = runs("smooth")
    variance = 1e-9 * y.var()
    frozen = HeteroscedasticGaussian(variance, trainable=False)
    model = DeepGPRegressor(1, inference="exact", likelihood=frozen, random_state=0).fit(X, y)
    assert_allclose(model.likelihood_.variance, variance)
    assert np.abs(model.predict(X) - y).max() < 1e-3 * y.std()


def test_smooth_and_rough_models_are_weighted():
    """By runs that are left out: a smooth function is predicted better than by the kernel of exact models."""
    X, y = runs("smooth", 30)
    new = np.random.default_rng(1).random((200, 2))
    truth = FUNCTIONS["smooth"](new)
    both = [
        DeepGPRegressor(noise="none", random_state=0, **settings).fit(X, y)
        for settings in ({}, {"inference": "exact", "n_layers": 1})
    ]
    assert [len(model.members_) for model in both] == [3, 1]
    errors = [np.sqrt(np.mean((model.predict(new) - truth) ** 2)) for model in both]
    assert errors[0] < 0.5 * errors[1]
    densities = [model.log_predictive_density(new, truth).mean() for model in both]
    assert densities[0] > densities[1] + 0.5
