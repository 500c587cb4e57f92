"""Columns that are warped."""

import pickle
import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal
from sklearn.utils._param_validation import InvalidParameterError

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.inference import DSVI
from skdgp.preprocessing.warping import (
    Warp,
    _MarginalLikelihood,
    curvature,
    skewness,
    unwarped,
    warped,
)

CURVES = torch.tensor([-5.0, -1.0, -1e-3, 1e-3, 0.5, 4.0], dtype=torch.float64)


@pytest.fixture(scope="module")
def logarithmic():
    """The first of three columns matters by its logarithm, the second directly, the third not."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.exp(rng.uniform(0.0, 4.0, 300)), rng.uniform(size=(300, 2))])
    y = np.sin(2.0 * np.log(X[:, 0])) + X[:, 1] + 0.1 * rng.standard_normal(300)
    return X, y


@pytest.fixture(scope="module")
def default(logarithmic):
    return DeepGPRegressor(max_iter=2, random_state=0).fit(*logarithmic)


def standardized(X, y):
    y = y.reshape(len(y), -1)
    return (X - X.mean(0)) / X.std(0), (y - y.mean(0)) / y.std(0), np.ones(len(y))


def test_a_bent_column_is_the_logarithm_that_keeps_the_ends():
    u = torch.linspace(0.0, 1.0, 11, dtype=torch.float64)[:, None]
    w = warped(u, CURVES)
    np.testing.assert_allclose(
        w, np.log1p(np.expm1(CURVES.numpy()) * u.numpy()) / CURVES.numpy(), atol=1e-12
    )
    np.testing.assert_allclose(w[[0, -1]], np.repeat([[0.0], [1.0]], len(CURVES), 1), atol=1e-12)
    np.testing.assert_allclose(1.0 - w, warped(1.0 - u, -CURVES), atol=1e-12)


def test_beyond_the_ends_a_bent_column_goes_on_straight():
    for end, beyond in ((0.0, -3.0), (1.0, 4.0)):
        u = torch.full((1, len(CURVES)), end, dtype=torch.float64, requires_grad=True)
        w = warped(u, CURVES)
        (slope,) = torch.autograd.grad(w.sum(), u)
        far = warped(torch.full_like(u, beyond), CURVES)
        np.testing.assert_allclose(
            far.detach(), (w + slope * (beyond - end)).detach(), rtol=1e-9, atol=1e-9
        )
        middle = 2.0 * torch.sinh(0.5 * CURVES) / CURVES  # geometric mean of both slopes
        np.testing.assert_allclose(slope[0], middle * torch.exp((0.5 - end) * CURVES), rtol=1e-9)


def test_almost_straight_columns_join_the_straight_ones_smoothly():
    u = torch.linspace(-1.0, 2.0, 13, dtype=torch.float64)[:, None]
    for s in (0.0, 0.9e-4, -0.9e-4):
        below = warped(u, torch.tensor([s], dtype=torch.float64))
        above = warped(u, torch.tensor([1.1e-4 if s >= 0.0 else -1.1e-4], dtype=torch.float64))
        np.testing.assert_allclose(below, above, atol=3e-4)
    np.testing.assert_array_equal(warped(u, torch.zeros(1, dtype=torch.float64)), u)


def test_bends_are_undone():
    u = torch.linspace(-2.0, 3.0, 26, dtype=torch.float64)[:, None]
    np.testing.assert_allclose(unwarped(warped(u, CURVES), CURVES), u.expand(-1, 6), atol=1e-9)


def test_the_evidence_is_that_of_a_gaussian_process_and_its_gradient_is_right():
    rng = np.random.default_rng(1)
    u, size, weights = rng.uniform(size=(15, 2)), np.array([3.0, 2.0]), rng.uniform(1.0, 3.0, 15)
    y = rng.standard_normal((15, 2))
    marginal = _MarginalLikelihood(
        *(torch.tensor(part) for part in (u, size, y, weights)), columns=[1]
    )
    names = [name for name, _ in marginal.named_parameters()]
    start = torch.cat([p.detach().flatten() for p in marginal.parameters()])
    x = start + 0.3 * torch.as_tensor(rng.standard_normal(len(start)))

    value, gradient = marginal.evaluate(x)

    numbers = dict(zip(names, marginal.parameters()))
    s = numbers["curve"].detach().numpy()
    X = np.column_stack([u[:, 0], np.log1p(np.expm1(s[0]) * u[:, 1]) / s[0]]) * size
    kernel = marginal.kernel.fitted()
    r2 = (((X[:, None] - X) / kernel.lengthscale) ** 2).sum(-1)
    K = kernel.variance * (1.0 + r2 / (2.0 * kernel.alpha)) ** -kernel.alpha
    K += np.diag(numbers["log_noise"].exp().item() / weights)
    densities = [multivariate_normal(np.zeros(15), K).logpdf(column) for column in y.T]
    others = (x - start)[[i for i, name in enumerate(_of_each(marginal)) if name != "curve"]]
    expected = -np.mean(densities) - 7.5 * np.log(2.0 * np.pi)
    expected += 0.5 * float((others / 2.0).square().sum()) + 3.0 * np.sqrt(s**2 + 0.01).sum()
    assert value == pytest.approx(expected, rel=1e-10)
    numeric = approx_fprime(x.numpy(), lambda v: marginal.evaluate(torch.as_tensor(v))[0], 1e-6)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-4)


def _of_each(module):
    return [name for name, p in module.named_parameters() for _ in range(p.numel())]


def test_a_column_that_matters_by_its_logarithm_is_found(logarithmic):
    X, y, weights = standardized(*logarithmic)
    curve = curvature(X, y, weights)
    assert curve[0] == pytest.approx(4.0, abs=1.0)  # the range is a factor of e^4
    assert (np.abs(curve[1:]) < 1.0).all()
    np.testing.assert_allclose(curvature(-X, y, weights), -curve, atol=0.05)  # the other way


@pytest.mark.parametrize("target", ["plane", "wave", "noise", "growing noise"])
def test_columns_without_gain_are_not_warped(target):
    rng = np.random.default_rng(2)
    X, noise = rng.uniform(size=(200, 3)), rng.standard_normal(200)
    y = {
        "plane": X.sum(1) + 0.1 * noise,
        "wave": np.sin(6.0 * X[:, 0]) + 0.1 * noise,
        "noise": noise,
        "growing noise": np.sin(6.0 * X[:, 1]) + 2.0 * X[:, 0] ** 4 * noise,
    }[target]
    assert Warp.learn(*standardized(X, y)) is None


def test_no_column_is_bent_far_beyond_what_its_skewness_asks_for(logarithmic):
    X, _, weights = standardized(*logarithmic)
    u = (X - X.min(0)) / np.ptp(X, axis=0)
    w = warped(torch.tensor(np.median(u, axis=0))[None], torch.tensor(skewness(u, weights)))
    assert float(w[0, 0]) == pytest.approx(0.5, abs=0.01)  # an even number of rows: lower median
    u = np.random.default_rng(4).uniform(size=(300, 1)) ** 2
    u = (u - u.min()) / np.ptp(u)
    wiggles = np.sin(5.0 * np.log(u + 0.01))  # ask for much more
    asked = skewness(u, weights)
    assert 1.0 < asked[0] < 2.0
    assert curvature(u, wiggles, weights)[0] == pytest.approx(1.5 * asked[0])


def test_no_column_is_bent_against_its_skewness():
    """Most values are small, and the target moves where they are large."""
    rng = np.random.default_rng(0)
    u = rng.uniform(size=(400, 1)) ** 3
    y = np.sin(12.0 * np.expm1(4.0 * u) / np.expm1(4.0)) + 0.05 * rng.standard_normal((400, 1))
    assert skewness(u, np.ones(400))[0] > 1.0
    np.testing.assert_array_equal(curvature(u, y, np.ones(400)), 0.0)


def test_a_constant_column_beside_a_skewed_one_stays():
    x = np.exp(np.random.default_rng(0).uniform(0.0, 4.0, 200))
    X, y = np.column_stack([np.ones(200), x]), np.sin(2.0 * np.log(x))[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        curve = curvature(X, y, np.ones(200))
    assert curve[0] == 0.0 and curve[1] > 2.0


def test_a_row_that_counts_twice_is_two_rows(logarithmic):
    X, _, _ = standardized(*logarithmic)
    weights = 1.0 + (np.arange(len(X)) % 2)
    rows = np.repeat(np.arange(len(X)), weights.astype(int))
    u = (X - X.min(0)) / np.ptp(X, axis=0)
    np.testing.assert_array_equal(skewness(u, weights), skewness(u[rows], np.ones(len(rows))))


def test_few_rows_bend_nothing(logarithmic):
    X, y = logarithmic
    assert Warp.learn(*standardized(X[:15], y[:15])) is None


def test_bent_rows_are_standardized_and_come_back(logarithmic):
    X, y, weights = standardized(*logarithmic)
    warp = Warp.learn(X, y, weights)
    X = torch.tensor(X)
    W = warp.transform(X).numpy()
    assert list(warp.columns) == [0]
    assert W[:, 0].mean() == pytest.approx(0.0, abs=1e-12)
    assert W[:, 0].std() == pytest.approx(1.0)
    np.testing.assert_array_equal(W[:, 1:], X[:, 1:])
    far = 10.0 * X
    np.testing.assert_allclose(warp.inverse_transform(warp.transform(far)), far, rtol=1e-9)


def test_predictions_are_better_where_a_column_matters_by_its_logarithm(logarithmic):
    X, y = logarithmic
    densities = {}
    for standardize in (True, "warp"):
        model = DeepGPRegressor(
            1, inference="exact", kernel="matern32", standardize=standardize, random_state=0
        )
        model.fit(X[:80], y[:80])
        densities[standardize] = model.log_predictive_density(X[80:], y[80:]).mean()
    assert densities["warp"] > densities[True] + 0.1


def test_the_default_warps_and_reports_it(logarithmic, default):
    (X, y), model = logarithmic, default
    assert model.warp_[0] > 3.0
    np.testing.assert_array_equal(model.warp_[1:], 0.0)
    scaled = X * [1e3, -1.0, 1.0] + [0.0, 5.0, 1e4]
    units = DeepGPRegressor(inference="dsvi", max_iter=2, random_state=0).fit(scaled, y)
    np.testing.assert_allclose(units.warp_, model.warp_, rtol=1e-3)
    single = DeepGPRegressor(1, inference="vfe", standardize="warp", max_iter=5).fit(X, y)
    first = single.inducing_inputs_[0][:, 0]  # in the units of the column
    assert ((first > 0.0) & (first < 60.0)).all()
    far = [[1e9, 0.0, 0.0], [-1e9, 0.0, 0.0]]
    assert np.isfinite(model.predict(far, return_std=True)).all()
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))


@pytest.mark.parametrize(
    "settings",
    [
        {"standardize": True, "inference": "dsvi"},  # which bends otherwise, as the mixture does
        {"standardize": False, "inference": "dsvi"},
        {"inference": "exact", "n_layers": 1},
        {"inference": "aep"},
        {"kernel": ["squared_exponential", "matern32"]},
    ],
)
def test_nothing_is_bent_unless_kernel_and_scheme_are_left_open(logarithmic, settings):
    model = DeepGPRegressor(max_iter=2, random_state=0, **settings).fit(*logarithmic)
    np.testing.assert_array_equal(model.warp_, np.zeros(3))


def test_a_single_deep_model_bends_as_the_mixture_does(logarithmic, default):
    for inference in (DSVI(n_draws=2), "structured"):
        single = DeepGPRegressor(inference=inference, max_iter=2, random_state=0).fit(*logarithmic)
        np.testing.assert_array_equal(single.warp_, default.warp_)


def test_classifiers_and_chunks_bend_if_asked(logarithmic):
    X, y = logarithmic
    X = np.column_stack([np.ones(300), X])  # dropped, and counted
    settings = {"inference": "dsvi", "standardize": "warp", "max_iter": 2, "random_state": 0}
    model = DeepGPRegressor(**settings).fit(X, y)
    assert model.warp_[1] > 3.0 and model.warp_.shape == (4,)
    chunks = DeepGPRegressor(**settings).partial_fit(X, y).partial_fit(X, y)
    np.testing.assert_array_equal(chunks.warp_, model.warp_)
    assert DeepGPClassifier(**settings).fit(X, y > np.median(y)).warp_[1] > 2.0


def test_a_warm_start_and_a_donor_keep_the_bends(logarithmic):
    X, y = logarithmic
    model = DeepGPRegressor(
        inference="dsvi",
        standardize="warp",
        n_inducing=20,
        max_iter=2,
        warm_start=True,
        random_state=0,
    )
    first = model.fit(X, y).warp_
    np.testing.assert_array_equal(model.fit(X[:50], y[:50]).warp_, first)
    heir = DeepGPRegressor(inference="dsvi", init=model, n_inducing=20, max_iter=2).fit(
        X[:50], y[:50]
    )
    np.testing.assert_array_equal(heir.warp_, first)


def test_sparse_gaussian_processes_do_not_bend(logarithmic):
    with pytest.raises(InvalidParameterError, match="standardize"):
        SparseGPRegressor(standardize="warp").fit(*logarithmic)
