"""Simulators of several fidelities."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from scipy.stats import norm
from sklearn.base import clone
from sklearn.linear_model import BayesianRidge

from skdgp import DeepGPRegressor, MultiFidelityRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.gp.priors import Fixed

GRID = np.linspace(0.0, 1.0, 300)


def perdikaris(x, level):
    cheap = np.sin(8.0 * np.pi * x)
    return np.where(level == 0, cheap, (x - 2.0**0.5) * cheap**2)


def forrester(x, level):
    dear = (6.0 * x - 2.0) ** 2 * np.sin(12.0 * x - 4.0)
    return np.where(level == 1, dear, 0.5 * dear + 10.0 * (x - 0.5) - 5.0)


CASES = {
    "perdikaris": (perdikaris, np.linspace(0.0, 1.0, 50), np.linspace(0.0, 1.0, 14), 0.05),
    "forrester": (forrester, np.linspace(0.0, 1.0, 11), np.array([0.0, 0.4, 0.6, 1.0]), 0.15),
}


@pytest.fixture(scope="module", params=CASES)
def fitted(request):
    function, cheap, dear, limit = CASES[request.param]
    x, level = np.r_[cheap, dear], np.repeat([0, 1], [len(cheap), len(dear)])
    X = np.column_stack([x, level])
    model = MultiFidelityRegressor(random_state=0).fit(X, function(x, level))
    return model, function, dear, limit


def test_functions_of_the_literature(fitted):
    """RMSE in standard deviations; alone, high fidelities are far behind."""
    model, function, dear, limit = fitted
    X, truth = np.column_stack([GRID, np.ones(300)]), function(GRID, 1)
    error = np.sqrt(np.mean((model.predict(X) - truth) ** 2)) / truth.std()
    alone = DeepGPRegressor(noise="none", random_state=0).fit(dear[:, None], function(dear, 1))
    of_alone = np.sqrt(np.mean((alone.predict(GRID[:, None]) - truth) ** 2)) / truth.std()
    assert error < limit and error < 0.2 * of_alone
    low, high = model.predict_interval(X, 0.9).T
    assert np.mean((low <= truth) & (truth <= high)) > 0.8
    cheap = model.predict(np.column_stack([GRID, np.zeros(300)]))
    assert np.abs(cheap - function(GRID, 0)).max() < 0.2 * function(GRID, 0).std()


def test_moments_intervals_and_densities_belong_together(fitted):
    model = fitted[0]
    X = np.column_stack([GRID[::75], np.arange(4) % 2])
    mean, std = model.predict(X, return_std=True)
    y = np.linspace(-1.0, 1.0, 801) * 8.0 * std[:, None] + mean[:, None]
    density = np.exp(model.log_predictive_density(np.repeat(X, 801, 0), y.ravel())).reshape(4, 801)
    assert_allclose(np.trapezoid(density, y), 1.0, rtol=1e-3)
    assert_allclose(np.trapezoid(density * y, y), mean, atol=1e-2 * std.max())
    for row, density_of, (low, high) in zip(y, density, model.predict_interval(X, 0.8)):
        inside = (row >= low) & (row <= high)
        assert_allclose(np.trapezoid(density_of[inside], row[inside]), 0.8, atol=0.02)


def test_the_uncertainty_of_cheaper_outputs_is_carried():
    """Against Monte Carlo over the cheaper output, with models that are given."""
    rng = np.random.default_rng(0)
    x = np.r_[rng.random(6), rng.random(9)]
    level = np.repeat([0, 1], [6, 9])
    y = np.where(level == 0, np.sin(5.0 * x), np.sin(5.0 * x) ** 2)
    base = DeepGPRegressor(
        1, inference="exact", standardize=False, target_transform=None,
        kernel=SquaredExponential(Fixed(0.3), Fixed(1.0)), likelihood=Gaussian(Fixed(1e-2)),
    )  # fmt: skip
    model = MultiFidelityRegressor(base, n_draws=1024).fit(np.column_stack([x, level]), y)
    new = np.array([[0.05], [0.95]])
    mean, std = model.predict(np.column_stack([new, [1, 1]]), return_std=True)
    cheap, dear = model.estimators_
    f, sd = cheap.predict(new, return_std=True, latent=True)
    assert sd.max() > 0.1
    draws = f + sd * norm.ppf((np.arange(4000) + 0.5) / 4000)[:, None]
    rows = np.column_stack([np.tile(new[:, 0], 4000), draws.ravel()])
    m, s = (part.reshape(4000, 2) for part in dear.predict(rows, return_std=True))
    assert_allclose(mean, m.mean(0), atol=2e-3)
    assert_allclose(std, np.sqrt((s**2).mean(0) + m.var(0)), atol=4e-3)


def test_frames_three_levels_and_order():
    rng = np.random.default_rng(0)
    a, level = rng.random(45), np.repeat(["coarse", "fine", "exact"], 15)
    y = np.sin(5.0 * a) + (level == "fine") * a + (level == "exact") * np.sin(5.0 * a) ** 2
    frame = pd.DataFrame({"mesh": level, "a": a, "b": rng.random(45)})
    order = ["coarse", "fine", "exact"]
    model = MultiFidelityRegressor(fidelity="mesh", levels=order, random_state=0)
    mean = clone(model).fit(frame, y).predict(frame)
    assert np.abs(mean - y).max() < 0.1
    numbers = np.column_stack([a, frame["b"], np.repeat([1, 2, 3], 15)])
    other = MultiFidelityRegressor(random_state=0).fit(numbers, y)
    assert_allclose(other.predict(numbers), mean, atol=1e-8)
    assert other.levels_ == [1, 2, 3] and len(other.estimators_) == 3
    assert_allclose(other.predict(numbers[::-1]), other.predict(numbers)[::-1], atol=1e-9)


def test_bad_input():
    X = np.column_stack([np.arange(8.0), np.arange(8) % 2])
    y = np.arange(8.0)
    model = MultiFidelityRegressor(DeepGPRegressor(1, inference="exact", max_iter=1)).fit(X, y)
    with pytest.raises(ValueError, match=r"not 2\.0"):
        model.predict([[0.0, 2.0]])
    with pytest.raises(ValueError, match="is no column"):
        MultiFidelityRegressor(fidelity="level").fit(X, y)
    with pytest.raises(ValueError, match="is no column"):
        MultiFidelityRegressor(fidelity=2).fit(X, y)
    with pytest.raises(ValueError, match="but the column of the fidelity holds"):
        MultiFidelityRegressor(levels=[0, 1, 2]).fit(X, y)
    frame = pd.DataFrame({"a": y, "level": list("abababab")})
    with pytest.raises(ValueError, match="holds no numbers"):
        MultiFidelityRegressor(fidelity="level").fit(frame, y)
    with pytest.raises(TypeError, match="latent"):
        MultiFidelityRegressor(BayesianRidge()).fit(X, y)


SOON = DeepGPRegressor(1, inference="exact", max_iter=1)


@pytest.mark.parametrize("settings", [{"n_draws": 0}, {"fidelity": 1.0}, {"levels": 2}])
def test_parameters_are_checked(settings):
    with pytest.raises(ValueError, match=f"The '{next(iter(settings))}' parameter"):
        MultiFidelityRegressor(SOON, **settings).fit([[0.0, 0.0], [1.0, 1.0]], [0.0, 1.0])


@pytest.mark.parametrize("n_dear", [1, 6])
def test_constant_cheaper_outputs(n_dear):
    """They tell nothing of the dearer simulator, and one run of this tells little."""
    x = np.r_[np.linspace(0.0, 1.0, 8), np.linspace(0.0, 1.0, n_dear)]
    level = np.repeat([0, 1], [8, n_dear])
    y = np.where(level == 1, np.sin(3.0 * x), 1.0)
    X = np.column_stack([x, level])
    model = MultiFidelityRegressor(random_state=0).fit(X, y)
    assert_allclose(model.predict(X), y, atol=0.05)


def test_a_fit_that_fails_leaves_the_last_one():
    X = np.column_stack([np.arange(8.0), np.arange(8) % 2])
    model = MultiFidelityRegressor(SOON).fit(X, X[:, 0])
    before = model.predict(X)
    with pytest.raises(ValueError, match="missing values"):
        model.fit(np.column_stack([X, np.full(8, np.nan)]), X[:, 0])
    assert model.n_features_in_ == 2
    assert_allclose(model.predict(X), before, rtol=0.0)


def test_a_cheap_simulator_with_one_input_is_an_error():
    x = np.r_[0.5, 0.5, np.linspace(0.0, 1.0, 9)]
    y, level = np.sin(5.0 * x), np.repeat([0, 1], [2, 9])
    frame = pd.DataFrame({"x": x, "level": level})
    for rows in (slice(None), slice(1, None)):
        for X in (frame[rows], frame[rows].to_numpy()):
            with pytest.raises(ValueError, match=r"level 0.* has run at a single input"):
                MultiFidelityRegressor().fit(X, y[rows])
    alone = MultiFidelityRegressor(random_state=0).fit([[0.5, 1]], [2.0])  # the dearest
    mean, std = alone.predict([[0.7, 1]], return_std=True)
    assert mean[0] == pytest.approx(2.0) and std[0] > 1.0


def test_names_of_columns():
    """Numbers are names of columns, too, and the added column has one of its own."""
    level = np.arange(8) % 2
    for names in ([0, 1], ["cheaper output", "level"]):
        frame = pd.DataFrame(dict(zip(names, [np.arange(8.0), level])))
        mean = MultiFidelityRegressor(SOON).fit(frame, np.arange(8.0)).predict(frame)
        expected = MultiFidelityRegressor(SOON).fit(frame.to_numpy(), np.arange(8.0))
        assert_allclose(mean, expected.predict(frame.to_numpy()), atol=1e-9)


def test_inputs_that_are_no_tables():
    model = MultiFidelityRegressor(SOON)
    with pytest.raises(ValueError, match="Expected 2D array"):
        model.fit(np.arange(3.0), np.arange(3.0))
    with pytest.raises(TypeError, match="Sparse data"):
        model.fit(csr_array(np.eye(3)), np.arange(3.0))
    frame = pd.DataFrame({"a": np.arange(4.0), "level": pd.array([0, 1, None, 1], dtype="Int64")})
    with pytest.raises(ValueError, match="missing values"):
        MultiFidelityRegressor(SOON, fidelity="level").fit(frame, np.arange(4.0))
