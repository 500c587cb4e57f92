"""Sobol indices against closed forms, of functions that stand in for a model and of models."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import qmc

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inspection import sobol_indices

ISHIGAMI = np.pi * np.array([[-1.0, 1.0]] * 3)
COEFFICIENTS = np.array([0.0, 1.0, 4.5, 9.0])


def ishigami(X):
    return np.sin(X[:, 0]) * (1.0 + 0.1 * X[:, 2] ** 4) + 7.0 * np.sin(X[:, 1]) ** 2


def indices_of_ishigami():
    parts = np.array(
        [
            0.5 * (1.0 + 0.1 * np.pi**4 / 5.0) ** 2,
            49.0 / 8.0,
            8.0 * 0.01 * np.pi**8 / 225.0,
        ]
    )
    share = parts / parts.sum()  # of x0, of x1, and of x0 and x2 together
    return np.array([share[0], share[1], 0.0]), np.array([share[0] + share[2], share[1], share[2]])


def g_function(X):
    return np.prod((np.abs(4.0 * X - 2.0) + COEFFICIENTS) / (1.0 + COEFFICIENTS), 1)


def indices_of_g():
    own = 1.0 / (3.0 * (1.0 + COEFFICIENTS) ** 2)
    total = np.prod(1.0 + own)
    return own / (total - 1.0), own * total / (1.0 + own) / (total - 1.0)


CASES = [
    (ishigami, ISHIGAMI, indices_of_ishigami()),
    (g_function, np.array([[0.0, 1.0]] * 4), indices_of_g()),
]


def model_of(function, bounds, n, seed=0):
    low, high = bounds.T
    points = qmc.Sobol(len(bounds), rng=np.random.default_rng(seed)).random(n)
    X = low + (high - low) * points
    return DeepGPRegressor(1, inference="exact", random_state=0).fit(X, function(X))


@pytest.mark.parametrize(("function", "bounds", "expected"), CASES)
def test_functions_that_are_known(function, bounds, expected, monkeypatch):
    """All draws are the function: what is left is the error of the sums."""
    model = model_of(function, bounds, 16)
    monkeypatch.setattr(model, "_centers", lambda X: function(X)[:, None], raising=False)
    draws = lambda X, n, seed: np.tile(function(X)[:, None], (n, 1, 1))  # noqa: E731
    monkeypatch.setattr(model, "_draw_centers", draws, raising=False)
    found = sobol_indices(model, bounds, n_points=2**14)
    assert_allclose(found.first, expected[0], atol=0.005)
    assert_allclose(found.total, expected[1], atol=0.005)
    for interval, value in (
        (found.first_interval, found.first),
        (found.total_interval, found.total),
    ):
        assert_allclose(interval, np.stack([value, value], 1), atol=1e-12)


def test_models_of_few_runs():
    """Within .02 of the truth, and four of five error bars hold it, over all indices of both functions."""
    inside = []
    for function, bounds, (first, total) in CASES:
        found = sobol_indices(model_of(function, bounds, 128), bounds)
        assert_allclose(found.first, first, atol=0.02)
        assert_allclose(found.total, total, atol=0.02)
        for (low, high), true in ((found.first_interval.T, first), (found.total_interval.T, total)):
            inside += ((low <= true) & (true <= high)).tolist()
    assert np.mean(inside) >= 0.8


def test_bars_are_wide_where_runs_are_few():
    few, many = (sobol_indices(model_of(ishigami, ISHIGAMI, n), ISHIGAMI) for n in (32, 128))
    width = [np.diff(found.total_interval, axis=1).mean() for found in (few, many)]
    assert width[0] > 2.0 * width[1]


def test_several_outputs():
    X = np.random.default_rng(0).uniform(size=(40, 2))
    model = DeepGPRegressor(1, inference="exact", random_state=0)
    model.fit(X, np.column_stack([X[:, 0], X @ [1.0, 1.0]]))
    found = sobol_indices(model, [[0, 1], [0, 1]], n_points=256, n_draws=8)
    assert found.first_interval.shape == (2, 2, 2)
    assert_allclose(found.first, [[1.0, 0.5], [0.0, 0.5]], atol=0.02)


def test_bad_input():
    X = np.random.default_rng(0).uniform(size=(20, 2))
    model = DeepGPRegressor(1, inference="exact", max_iter=2).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"shape \(2, 2\)"):
        sobol_indices(model, [[0, 1]])
    with pytest.raises(ValueError, match="those of column 1 are not"):
        sobol_indices(model, [[0, 1], [1, 1]])
    classifier = DeepGPClassifier(1, inference="vecchia", max_iter=2).fit(X, X[:, 0] > 0.5)
    with pytest.raises(ValueError, match="for regressors"):
        sobol_indices(classifier, [[0, 1], [0, 1]])


@pytest.mark.filterwarnings("error")
def test_columns_without_a_box_and_functions_without_variance():
    X = np.random.default_rng(0).uniform(size=(20, 2))
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = DeepGPRegressor(1, inference="exact", max_iter=2)
    box, few = [[0, 1], [0, 1]], {"n_points": 64, "n_draws": 4}
    indices = sobol_indices(model.fit(frame, X[:, 0]), box, **few)
    assert indices.names == ["a", "b"]
    model.fit(frame.assign(b=np.where(X[:, 1] > 0.5, "u", "v")), X[:, 0])
    with pytest.raises(ValueError, match=r"columns \['b'\] are others"):
        sobol_indices(model, box, **few)
    model.set_params(groups="b").fit(frame.round({"b": 1}), X[:, 0])
    with pytest.raises(ValueError, match=r"columns \['b'\] are others"):
        sobol_indices(model, box, **few)
    model.set_params(groups=None).fit(X, np.full(20, 3.0))
    assert_allclose(sobol_indices(model, box, **few).first, 0.0)
    with pytest.raises(ValueError, match="n_points == 0, must be >= 1"):
        sobol_indices(model, box, n_points=0)
