import math

import numpy as np
import pytest
from scipy import stats
from scipy.interpolate import RegularGridInterpolator
from scipy.linalg import cholesky, solve_triangular
from sklearn.utils._testing import assert_allclose

from skdgp.datasets import make_deep_gp, make_mountain_car, make_piecewise_linear, make_step
from skdgp.datasets.mountain_car import _values

MAKERS = {
    "step": make_step,
    "piecewise_linear": make_piecewise_linear,
    "deep_gp": lambda n_samples, **kwargs: make_deep_gp(
        n_samples, lengthscales=[3.0, 0.5], n_features=2, hidden_noise=0.1, **kwargs
    ),
    "mountain_car": make_mountain_car,
}


@pytest.mark.parametrize("name", MAKERS)
def test_random_state_determines_everything(name):
    make = MAKERS[name]
    X, y = make(30, noise=0.1, random_state=0)
    assert X.shape[0] == 30 and X.ndim == 2 and y.shape == (30,)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for same in (0, np.random.RandomState(0)):
        X_same, y_same = make(30, noise=0.1, random_state=same)
        np.testing.assert_array_equal(X_same, X)
        np.testing.assert_array_equal(y_same, y)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert not np.array_equal(make(30, noise=0.1, random_state=1)[1], y)


@pytest.mark.parametrize("name", MAKERS)
def test_noise_is_a_standard_deviation(name):
    make = MAKERS[name]
    n = 1000
    residual = make(n, noise=0.3, random_state=0)[1] - make(n, noise=0.0, random_state=0)[1]
    # mean and standard deviation within 4 standard errors, and no dependence between neighbors
    assert abs(residual.mean()) < 4.0 * 0.3 / math.sqrt(n)
    assert abs(residual.std() / 0.3 - 1.0) < 4.0 / math.sqrt(2.0 * n)
    assert abs(np.corrcoef(residual[1:], residual[:-1])[0, 1]) < 4.0 / math.sqrt(n)


@pytest.mark.parametrize("name", MAKERS)
def test_bad_arguments(name):
    make = MAKERS[name]
    with pytest.raises(ValueError, match="n_samples == 0, must be >= 1"):
        make(0)
    with pytest.raises(TypeError, match="n_samples must be an instance of int"):
        make(10.5)
    with pytest.raises(ValueError, match=r"noise == -1\.0, must be >= 0"):
        make(10, noise=-1.0)
    for noise in (np.nan, np.inf):
        with pytest.raises(ValueError, match=f"noise must be a finite number; got {noise}"):
            make(10, noise=noise)


def test_step():
    X, y = make_step(101, noise=0.0)
    assert_allclose(X[:, 0], np.linspace(-1.0, 1.0, 101))
    np.testing.assert_array_equal(y, np.repeat([-1.0, 1.0], [51, 50]))  # x = 0 is below the step


def test_default_noise_of_the_thesis():
    for make in (make_step, make_piecewise_linear):
        noisy, clean = make(4000, random_state=0)[1], make(4000, noise=0.0)[1]
        assert abs((noisy - clean).std() / 0.025 - 1.0) < 4.0 / math.sqrt(8000.0)


def test_piecewise_linear():
    X, y = make_piecewise_linear(5001, noise=0.0)  # steps of 0.001
    x = X[:, 0]
    assert (x[0], x[-1]) == (-3.0, 2.0)
    for at, before, after in ((-1.75, 1.75, 0.75), (-1.0, 1.5, 0.25), (0.5, -0.125, 2.125)):
        i = np.argmin(np.abs(x - at))
        assert_allclose(y[[i - 1, i + 1]], [before, after], atol=0.002)
    ends = [-3.01, -1.75, -1.0, 0.5, 2.01]
    for low, high, slope in zip(ends, ends[1:], [-1.0, 1.0, -0.25, 0.25]):
        inside = (x > low + 0.009) & (x < high - 0.009)
        assert_allclose(np.diff(y[inside]), 0.001 * slope, rtol=1e-6)


# Draws of a deep GP


def moment_z_scores(products, expected):
    """How far means of draws are from what they should be, in standard errors."""
    error = products.std(0) / math.sqrt(len(products))
    return np.abs(products.mean(0) - expected) / error


def drawn(n, n_samples, seed, **settings):
    rng = np.random.RandomState(seed)
    return np.array([make_deep_gp(n_samples, random_state=rng, **settings)[1] for _ in range(n)])


def test_covariance_of_one_layer():
    draws = drawn(4000, 5, 0, lengthscales=[2.0], variance=1.7, noise=0.3)
    x = np.linspace(0.0, 10.0, 5)
    K = 1.7 * np.exp(-0.5 * ((x[:, None] - x) / 2.0) ** 2) + 0.09 * np.eye(5)
    # 5 means and 15 covariances
    assert (np.abs(draws.mean(0)) / np.sqrt(np.diag(K) / 4000) < 4.5).all()
    assert (moment_z_scores(draws[:, :, None] * draws[:, None], K) < 4.5).all()


def test_covariance_of_two_layers():
    # differences of hidden outputs are N(0, s), s = 2 (v - k_1 + noise^2), so that
    # E exp(-d^2 / (2 l^2)) = (1 + s / l^2)^(-width / 2)
    settings = {"lengthscales": [3.0, 0.8], "width": 2, "variance": 1.5, "interval": (-2.0, 2.0)}
    draws = drawn(6000, 4, 1, hidden_noise=0.4, noise=0.2, **settings)
    x = np.linspace(-2.0, 2.0, 4)
    s = 2.0 * (1.5 - 1.5 * np.exp(-0.5 * ((x[:, None] - x) / 3.0) ** 2) + 0.16)
    K = 1.5 * (1.0 + s / 0.64) ** (-2 / 2)
    np.fill_diagonal(K, 1.5 + 0.04)
    assert (moment_z_scores(draws[:, :, None] * draws[:, None], K) < 4.5).all()
    far = 1.5 * (1.0 + s / 0.64) ** (-1 / 2)  # what width=1 would give
    assert moment_z_scores(draws[:, :, None] * draws[:, None], far).max() > 10.0


def test_layers_follow_their_conditional_distribution():
    lengthscales = [[4.0, 8.0], [0.7, 2.0, 1.0], 1.5]
    settings = {"width": [3, 1], "hidden_noise": 0.2, "noise": 0.1, "n_features": 2}
    settings |= {"lengthscales": lengthscales, "return_hidden": True}
    n, chi2, n_whitened = 80, 0.0, 0
    for seed in range(5):
        X, y, hidden = make_deep_gp(n, random_state=seed, **settings)
        assert X.shape == (n, 2) and [h.shape for h in hidden] == [(n, 3), (n, 1)]
        assert X.min() >= 0.0 and X.max() <= 10.0
        layers = [X, *hidden, y[:, None]]
        for below, above, scale, std in zip(layers, layers[1:], lengthscales, [0.2, 0.2, 0.1]):
            z = np.asarray(below) / scale
            K = np.exp(-0.5 * ((z[:, None] - z) ** 2).sum(-1)) + std**2 * np.eye(n)
            white = solve_triangular(cholesky(K, lower=True), above, lower=True)
            chi2, n_whitened = chi2 + (white**2).sum(), n_whitened + white.size
            # whitened outputs of one layer are independent too
            assert np.abs(np.corrcoef(white.T) - np.eye(above.shape[1])).max() < 4.5 / math.sqrt(n)
    assert 1e-4 < stats.chi2.cdf(chi2, n_whitened) < 1.0 - 1e-4


def test_smooth_functions_stay_smooth():
    # a jitter of 1e-8 on the covariance would show as 1e-4 * sqrt(20) in third differences
    _, y = make_deep_gp(400, lengthscales=[5.0], noise=0.0, random_state=0)
    assert np.abs(np.diff(y, 3)).max() < 2e-5
    assert y.std() > 0.01


def test_rows_repeat_where_the_hidden_layer_does():
    # no noise: the target is a function of the hidden layer alone
    settings = {"lengthscales": [1.0, 0.5], "noise": 0.0, "return_hidden": True}
    _, y, (h,) = make_deep_gp(300, random_state=3, **settings)
    order = np.argsort(h[:, 0])
    gaps = np.diff(h[order, 0])
    close = gaps < 1e-3
    assert close.sum() > 20
    assert np.abs(np.diff(y[order]))[close].max() < 0.02  # slopes are about 1 / 0.5


@pytest.mark.parametrize(
    ("lengthscales", "settings", "match"),
    [
        (5.0, {}, r"one entry for each layer; got 5\.0"),
        (None, {}, r"one entry for each layer; got None"),
        ([], {}, "one entry for each layer"),
        ([[1.0, 2.0]], {}, "one for each of the 1 inputs of its layer"),
        ([1.0, -1.0], {}, "must be a positive number"),
        ([1.0], {"hidden_noise": np.nan}, "hidden_noise must be a finite number; got nan"),
        ([1.0, 1.0], {"width": [2, 2]}, "one for each of the 1 hidden layers"),
        ([1.0], {"variance": 0}, "variance == 0, must be > 0"),
        ([1.0], {"interval": (1.0, 1.0)}, "increasing pair"),
    ],
)
def test_arguments_of_deep_gp(lengthscales, settings, match):
    with pytest.raises(ValueError, match=match):
        make_deep_gp(10, lengthscales=lengthscales, **settings)


# Mountain car


def drive(x, v, a):
    """The car of Sutton and Barto, written down once more."""
    v = min(max(v + 0.001 * a - 0.0025 * math.cos(3.0 * x), -0.07), 0.07)
    x = min(max(x + v, -1.2), 0.5)
    return (x, 0.0) if x == -1.2 else (x, v)


@pytest.fixture(scope="module")
def value():
    axes = np.linspace(-1.2, 0.5, 200), np.linspace(-0.07, 0.07, 200)
    interpolator = RegularGridInterpolator(axes, _values(200))

    def value(states):
        states = np.atleast_2d(states)
        return np.where(states[:, 0] < 0.5, interpolator(states), 0.0)

    return value


def test_values_are_a_fixed_point(value):
    axes = np.linspace(-1.2, 0.5, 200), np.linspace(-0.07, 0.07, 200)
    rng = np.random.default_rng(0)
    for i, j in rng.integers(0, 199, (400, 2)):
        state = axes[0][i], axes[1][j]
        best = max(value(drive(*state, a))[0] for a in (-1, 0, 1))
        assert value(state)[0] == pytest.approx(best - 1.0, abs=1e-7)


def test_values_near_the_goal_count_steps():
    # against all sequences of actions, from states that need at most six steps
    X, y = make_mountain_car(3000, random_state=0)
    near = np.flatnonzero(y > -5.0)
    exact = []
    for i in near:
        states, steps = {tuple(X[i])}, 0
        while max(x for x, _ in states) < 0.5 and steps < 8:
            states, steps = {drive(*state, a) for state in states for a in (-1, 0, 1)}, steps + 1
        exact.append(-steps)
    assert len(near) > 100
    # interpolation smooths the whole steps, by less than one everywhere
    difference = y[near] - exact
    assert np.abs(difference).max() < 1.0 and abs(difference.mean()) < 0.1


def test_greedy_driving_takes_as_long_as_promised(value):
    X, y = make_mountain_car(40, random_state=1)
    steps = []
    for x, v in X:
        n = 0
        while x < 0.5 and n < 200:
            moves = [drive(x, v, a) for a in (-1, 0, 1)]
            (x, v), n = moves[int(np.argmax(value(moves)))], n + 1
        steps.append(n)
    assert max(steps) < 200
    difference = np.abs(y + steps)  # large only next to cliffs
    assert np.median(difference) < 1.0 and difference.mean() < 3.0


def test_mountain_car_has_cliffs(value):
    X, y = make_mountain_car(2000, random_state=2)
    assert (X.min(0) >= [-1.2, -0.07]).all() and (X.max(0) <= [0.5, 0.07]).all()
    assert stats.kstest(X[:, 0], stats.uniform(-1.2, 1.7).cdf).pvalue > 1e-4
    assert stats.kstest(X[:, 1], stats.uniform(-0.07, 0.14).cdf).pvalue > 1e-4
    assert_allclose(value(X), y)
    assert -112.0 < y.min() < -100.0 and y.max() <= -1.0 + 1e-9
    # with just enough speed the car makes it at once; with less it needs another swing
    speed = np.linspace(0.0, 0.07, 400)
    along = value(np.column_stack([np.full(400, -0.2), speed]))
    assert (along[15:] - along[:-15]).max() > 20.0
