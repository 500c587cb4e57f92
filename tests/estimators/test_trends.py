"""Trends beyond the data: kernels that go on in straight lines do."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.gp.kernels import ArcCosine, Linear, Matern, SquaredExponential, as_kernel
from skdgp.gp.likelihoods import Gaussian

N, NOISE = 60, 0.1
NEW = np.array([[15.0], [30.0], [100.0], [-50.0]])


def line(scale=lambda u: 10.0 * u):
    rng = np.random.default_rng(0)
    X = scale(np.linspace(0.0, 1.0, N))[:, None]
    return X, 2.0 * X[:, 0] + NOISE * rng.standard_normal(N)


def closed_form(X, y, new):
    """Bayesian linear regression with a wide prior of intercept and slope."""
    F, P = (np.column_stack([np.ones(len(x)), x]) for x in (X, new))
    return P @ np.linalg.solve(F.T @ F / NOISE**2 + np.eye(2) / 100.0, F.T @ y / NOISE**2)


def model_of(inference, **settings):
    if inference == "sparse":
        settings.pop("inference", None)
        return SparseGPRegressor(10, random_state=0, **settings)
    return DeepGPRegressor(1, inference=inference, random_state=0, **settings)


@pytest.mark.parametrize("kernel", ["linear", Linear()])
@pytest.mark.parametrize(
    "inference",
    [
        "exact",
        "vecchia",
        "dsvi",
        "structured",
        "aep",
        "nngp",
        "diwp",
        "collapsed",
        "sparse",
        "auto",
    ],
)
def test_a_line_under_a_linear_kernel(inference, kernel):
    X, y = line()
    steps = {} if inference in ("exact", "vecchia", "nngp", "sparse", "auto") else {"max_iter": 150}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Some values of X are far")
        model = model_of(inference, kernel=kernel, **steps).fit(X, y)
    expected = closed_form(X, y, NEW)
    assert_allclose(model.predict(NEW), expected, rtol=0.05)


@pytest.mark.parametrize(
    "scale", [lambda u: 10.0 * u, lambda u: np.exp(4.0 * u), lambda u: 50.0 * u]
)
def test_skewed_and_large_inputs_stay_straight(scale):
    X, y = line(scale)
    noise = Gaussian(NOISE**2, trainable=False)
    model = model_of("exact", kernel=Linear(), likelihood=noise, target_transform=None).fit(X, y)
    new = X.max() * np.array([[1.5], [10.0]])
    assert_allclose(model.predict(new), 2.0 * new[:, 0], rtol=0.02)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Linear(), True),
        (ArcCosine(), True),
        (ArcCosine(order=0), False),
        (SquaredExponential(), False),
        (Matern() + Linear(), True),
        (Linear() * Linear(), True),
        (Linear() * Matern(), False),
        ("linear", True),
        ("anova", False),
    ],
)
def test_which_kernels_go_on(kernel, expected):
    assert as_kernel(kernel).extrapolates is expected
    X, y = line()
    model = model_of("exact", kernel=kernel, max_iter=2).fit(X, y)
    far = model._x_scaler.transform(np.array([[1e4]]))[0, 0]
    linear = (1e4 - model._x_scaler.center[0]) / model._x_scaler.scale[0]
    assert bool(np.isclose(far, linear)) is expected


def test_outliers_are_bent_with_a_word():
    """A code among the values of a column would else decide the line."""
    X, y = line()
    X, y = np.vstack([X, np.full((3, 1), -999.0)]), np.append(y, np.full(3, 5.0))
    with pytest.warns(UserWarning, match=r"no kernel is linear: 'x0' beyond -\d+\S* and \d+"):
        model = model_of("exact", kernel="linear").fit(X, y)
    plain = np.polyval(np.polyfit(X[:, 0], y, 1), X[:N, 0])  # about the mean of y
    assert np.abs(model.predict(X[:N]) - y[:N]).mean() < np.abs(plain - y[:N]).mean()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model_of("exact", kernel="matern32", max_iter=3).fit(X, y)


def test_chunks_go_on():
    X, y = line()
    model = model_of("dsvi", kernel="linear").partial_fit(X, y)
    for _ in range(3):
        model.partial_fit(X + 10.0, y + 20.0)
    assert_allclose(model.predict(NEW), 2.0 * NEW[:, 0], rtol=0.1)
