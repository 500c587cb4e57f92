"""Kernels of warped inputs."""

from functools import partial

import numpy as np
import pytest
import torch
from oracles import gradcheck, in_standard_errors
from scipy.integrate import quad

from skdgp import DeepGPRegressor
from skdgp.gp.component import Trainable
from skdgp.gp.kernels import Anova, Linear, Matern, SquaredExponential, Warped
from skdgp.model_selection import freeze_hyperparameters

SLOPE = [[0.3, 2.0, 0.7, 5.0], [1.0, 0.1, 1.5, 0.4]]
KNOTS = [[-1.0, 0.2, 0.9], [-0.5, 0.0, 0.0]]  # the second column has three pieces


def kernel(inner=None):
    inner = Matern(1.5, [0.7, 1.9]) + Linear(0.4) if inner is None else inner
    return Warped(inner, 4, SLOPE, KNOTS).bind(2)


def rows(n, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal((n, 2)))


def slope_at(column, u):
    """The piecewise constant function; knots belong to the piece on their left."""
    return SLOPE[column][int(np.searchsorted(KNOTS[column], u))]


@pytest.mark.parametrize("x", [-3.0, -0.7, -0.2, 0.1, 0.5, 2.0])
def test_inputs_are_integrals_of_slopes(x):
    warped = kernel().warp(torch.tensor([[x, x]], dtype=torch.float64))[0]
    for column in range(2):
        breaks = [k for k in KNOTS[column] if min(0.0, x) < k < max(0.0, x)]
        expected, _ = quad(partial(slope_at, column), 0.0, x, points=breaks or None)
        assert float(warped[column]) == pytest.approx(expected, abs=1e-9)


def test_covariances_are_those_of_warped_rows():
    X, Z, k = rows(7), rows(5, seed=1), kernel()
    inner = (Matern(1.5, [0.7, 1.9]) + Linear(0.4)).bind(2)
    expected = inner(k.warp(X), k.warp(Z))
    np.testing.assert_allclose(k(X, Z), expected)
    np.testing.assert_allclose(k.between(X[None], Z[None])[0], expected)
    np.testing.assert_allclose(k.diag(X), k(X, X).diagonal())
    np.testing.assert_allclose(k.within(X[None])[0], k(X, X))


def test_slopes_of_one_leave_inputs_as_they_are():
    X = rows(20)
    np.testing.assert_allclose(Warped(Matern(), 5).bind(2).warp(X), X, atol=1e-15)
    same = Warped(Matern(), 4, np.ones((2, 4)), KNOTS).bind(2)
    np.testing.assert_allclose(same.warp(X), X, atol=1e-15)


def test_gradients():
    X, Z = rows(4), rows(3, seed=1)
    trainable = Trainable(kernel(Anova(1.5, [0.7, 1.9], [0.3, 2.0])))
    assert "log_slope" in dict(trainable.named_parameters())
    gradcheck(trainable, lambda x, z: (trainable()(x, z), trainable().diag(x)), X, Z)


def test_random_features_have_the_covariances_of_the_kernel():
    X, k, n = rows(4), kernel(), 40
    phi = k.features((n, 500), 2, torch.Generator().manual_seed(0), X)
    F = phi(X.expand(n, 4, 2)).flatten(-2)
    assert in_standard_errors(F @ F.mT / 500, k(X, X)) < 4.5


def test_knots_are_quantiles_of_rows_that_count_as_often_as_their_weights():
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(60, 1)), rng.integers(1, 4, 60)
    one, other = (Warped(Matern(), 4).from_rows(*given)["knots"] for given in (
        (X, weights), (X.repeat(weights, 0), np.ones(weights.sum()))
    ))  # fmt: skip
    np.testing.assert_array_equal(one, other)
    repeated = np.sort(X.repeat(weights, 0)[:, 0])
    shares = np.searchsorted(repeated, one[0], "right") / len(repeated)
    np.testing.assert_allclose(shares, [0.25, 0.5, 0.75], atol=0.04)


def test_knots_between_values_of_columns_with_few_of_them():
    X = np.stack([[0.0, 1.0, 2.0, 5.0], [0.0, 0.0, 0.0, 1.0], np.full(4, 7.0)], 1)
    knots = Warped(Matern(), 4).from_rows(X, np.ones(4))["knots"]
    np.testing.assert_array_equal(knots, [[1.0, 2.0, 2.0], [0.0] * 3, [7.0] * 3])


def test_a_step_is_worth_more_to_a_kernel_whose_inputs_bend():
    """By the marginal likelihood, on equal terms: the same kernel, noise and search."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (150, 2))
    y = (X[:, 0] > 0.3) + 0.3 * X[:, 1] + 0.05 * rng.normal(size=150)
    found = {}
    for name, inner in {"plain": Matern(), "warped": Warped(Matern())}.items():
        settings = {"inference": "exact", "likelihood": "gaussian", "random_state": 0}
        model = DeepGPRegressor(1, kernel=inner, **settings).fit(X, y)
        found[name] = -len(X) * model.loss_curve_[-1]  # with the priors of all slopes
    assert found["warped"] > found["plain"] + 15.0
    slopes = model.kernels_[0].slope[0]
    steepest = int(np.argmax(slopes))
    knots = np.concatenate([[-np.inf], model.kernels_[0].knots[0], [np.inf]])
    at_step = model._x_scaler.transform(np.array([[0.3, 0.0]]))[0, 0]
    assert knots[steepest] <= at_step <= knots[steepest + 1]


@pytest.mark.parametrize("inference", ["vecchia", "vfe", "dsvi", "ess", "collapsed", "structured"])
def test_schemes_learn_slopes(inference):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    y = (X[:, 0] > 0.5) + 0.1 * X[:, 1]
    n_layers = 2 if inference in ("collapsed", "structured") else 1
    given = Warped(Matern(), 4) if n_layers == 1 else [Warped(Matern(), 4), SquaredExponential()]
    model = DeepGPRegressor(n_layers, inference=inference, kernel=given, max_iter=5, random_state=0)
    model.fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    fitted = model.kernels_[0] if inference != "ess" else model.members_[0].kernels_[0]
    assert fitted.knots.any()  # of the training rows
    assert inference in ("ess", "collapsed") or (fitted.slope != 1.0).any()


def test_given_knots_and_slopes_stay():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0])
    given = Warped(Matern(), 4, SLOPE, KNOTS, trainable=False)
    settings = {"inference": "exact", "likelihood": "gaussian", "random_state": 0, "max_iter": 3}
    model = DeepGPRegressor(1, kernel=given, **settings).fit(X, y)
    np.testing.assert_allclose(model.kernels_[0].slope, SLOPE)
    np.testing.assert_array_equal(model.kernels_[0].knots, KNOTS)
    other = DeepGPRegressor(1, kernel=Warped(Matern(), 4), **settings).fit(X, y)
    frozen = DeepGPRegressor(**freeze_hyperparameters(other), inference="exact", random_state=0)
    np.testing.assert_allclose(frozen.fit(X, y).predict(X), other.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (Warped(Matern(), 1), "n_pieces of Warped must be at least 2"),
        (Warped(Matern(), 3, slope=[[1.0, 2.0]]), r"slope of Warped has shape \(1, 2\)"),
        (Warped(Matern(), 3, knots=[[1.0]]), r"knots of Warped has shape \(1, 1\)"),
    ],
)
def test_settings_that_make_no_sense(given, why):
    with pytest.raises(ValueError, match=why):
        given.bind(1)


def test_new_columns_and_chosen_ones():
    k = kernel()
    more = k.with_inputs(3)
    X = torch.cat([rows(5), torch.ones(5, 1).double()], 1)
    np.testing.assert_allclose(more.warp(X)[:, :2], k.warp(X[:, :2]))
    np.testing.assert_allclose(more.warp(X)[:, 2], 1.0)
    chosen = Warped(Matern(), 4, SLOPE, KNOTS).of_columns([1], 2).bind(1)
    np.testing.assert_allclose(chosen.warp(X[:, 1:2])[:, 0], k.warp(X[:, :2])[:, 1])
