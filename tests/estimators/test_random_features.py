"""Random features inside the estimators: what every scheme promises, without inducing inputs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.gp.likelihoods import HeteroscedasticStudentT
from skdgp.inference import RandomFeatures
from skdgp.inspection import LayersDisplay


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(60, 2))
    return X, 50.0 + 10.0 * np.sin(2.0 * X[:, 0]) + rng.standard_normal(60)


def make(frequencies="fixed", kind=DeepGPRegressor, scheme=None, **changes):
    scheme = RandomFeatures(n_features=8, frequencies=frequencies, **(scheme or {}))
    settings = {"max_iter": 70, "batch_size": 20, "n_predict_draws": 8, "random_state": 0}
    return kind(inference=scheme, **{**settings, **changes})


def test_the_name_stands_for_the_defaults(data):
    model = DeepGPRegressor(inference="rff", max_iter=5, random_state=0).fit(*data)
    assert isinstance(model.members_[0].scheme, RandomFeatures)
    assert isinstance(model.likelihood_, HeteroscedasticStudentT)
    assert model.members_[0].arrays["layers.0.z"].shape == (2, 60)  # no more than rows
    scheme = RandomFeatures(n_features=100)
    model.set_params(inference=scheme).fit(*data)
    assert model.members_[0].arrays["layers.0.z"].shape == (2, 100)


def test_function_draws_have_the_moments_of_the_predictions(data):
    model = make(n_predict_draws=1024).fit(*data)
    X = data[0][:5]
    mean, std = model.predict(X, return_std=True, latent=True)
    draws = model.sample_y(X, 4000, latent=True)
    assert (np.abs(draws.mean(1) - mean) < 5.0 * std / np.sqrt(4000)).all()
    assert_allclose(draws.std(1), std, rtol=0.08)


def test_what_there_is_to_read(data):
    model = make(kernel="matern52", likelihood="gaussian", n_layers=3).fit(*data)
    assert [type(kernel).__name__ for kernel in model.kernels_] == ["Matern"] * 3
    assert all(np.isfinite(kernel.lengthscale).all() for kernel in model.kernels_)
    assert [Z.shape for Z in model.inducing_inputs_] == [(0, 2)] * 3
    assert 0.1 < model.likelihood_.variance[0] < 30.0
    assert np.isfinite(model.lower_bound_)
    display = LayersDisplay.from_estimator(model, data[0], feature=0, n_functions=2)
    assert len(display.axes_) == 3


@pytest.mark.parametrize("argument", [{"n_inducing": 10}, {"init": "random"}])
def test_arguments_that_mean_nothing(data, argument):
    with pytest.raises(ValueError, match="means nothing to RandomFeatures"):
        make(**argument).fit(*data)


def test_kernels_without_features(data):
    with pytest.raises(ValueError, match="does not know RationalQuadratic kernels; those"):
        make(kernel="rational_quadratic").fit(*data)


def test_warm_start_goes_on(data):
    model = make(warm_start=True, likelihood="gaussian").fit(*data)
    first = model.lower_bound_
    z = model.members_[0].arrays["layers.0.z"]
    model.fit(*data)
    assert model.lower_bound_ > first
    assert_array_equal(model.members_[0].arrays["layers.0.z"], z)


def test_chunks(data):
    X, y = data
    model = make(likelihood="gaussian", n_layers=1, batch_size=10)
    for _ in range(5):
        for rows in np.split(np.arange(60), 2):
            # five passes in which a row counts once
            model.partial_fit(X[rows], y[rows], sample_weight=np.full(30, 0.2))
    assert model._n_rows == pytest.approx(6.0)  # of the last chunk
    assert model._stream["n_rows"] == pytest.approx(60.0)
    assert model.n_iter_ == 30
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize(
    ("frequencies", "n_classes"), [("fixed", 3), ("variational", 2), ("resampled", 3)]
)
def test_classes(data, frequencies, n_classes):
    X = data[0]
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.5][: n_classes - 1])]
    model = make(frequencies, DeepGPClassifier, max_iter=150).fit(X, labels)
    assert model.score(X, labels) > 0.9
    proba = model.predict_proba(X)
    assert_allclose(proba.sum(1), 1.0)
    assert_array_equal(model.classes_[proba.argmax(1)], model.predict(X))


def test_single_precision_is_enough(data):
    X, y = data
    # with one layer, nothing is drawn in the precision of the rows
    double, single = (
        make(dtype=dtype, likelihood="gaussian", n_layers=1).fit(X, y)
        for dtype in ("float64", "float32")
    )
    assert_allclose(single.predict(X), double.predict(X), atol=0.01)
    assert single.predict(X).dtype == np.float64
