"""Random features inside the estimators: what every scheme promises, without inducing inputs."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skdgp import DeepGPRegressor
from skdgp.gp.likelihoods import HeteroscedasticStudentT
from skdgp.inference import RandomFeatures
from skdgp.inspection import LayersDisplay


def make(frequencies="fixed", kind=DeepGPRegressor, scheme=None, **changes):
    scheme = RandomFeatures(n_features=8, frequencies=frequencies, **(scheme or {}))
    settings = {"max_iter": 70, "batch_size": 20, "n_predict_draws": 8, "random_state": 0}
    return kind(inference=scheme, **{**settings, **changes})


def test_the_name_stands_for_the_defaults(data):
    model = DeepGPRegressor(inference="rff", max_iter=5, random_state=0).fit(*data)
    assert isinstance(model.members_[0].scheme, RandomFeatures)
    assert isinstance(model.likelihood_, HeteroscedasticStudentT)
    assert model.members_[0].arrays["layers.0.z"].shape == (2, 80)  # no more than rows
    scheme = RandomFeatures(n_features=100)
    model.set_params(inference=scheme).fit(*data)
    assert model.members_[0].arrays["layers.0.z"].shape == (2, 100)


def test_what_there_is_to_read(data):
    model = make(kernel="matern52", likelihood="gaussian", n_layers=3).fit(*data)
    assert [type(kernel).__name__ for kernel in model.kernels_] == ["Matern"] * 3
    assert all(np.isfinite(kernel.lengthscale).all() for kernel in model.kernels_)
    assert [Z.shape for Z in model.inducing_inputs_] == [(0, 2)] * 3
    assert 0.1 < model.likelihood_.variance[0] < 30.0
    assert np.isfinite(model.lower_bound_)
    display = LayersDisplay.from_estimator(model, data[0], feature=0, n_functions=2)
    assert len(display.axes_) == 3


def test_warm_start_goes_on(data):
    model = make(warm_start=True, likelihood="gaussian").fit(*data)
    first = model.lower_bound_
    z = model.members_[0].arrays["layers.0.z"]
    model.fit(*data)
    assert model.lower_bound_ > first
    assert_array_equal(model.members_[0].arrays["layers.0.z"], z)


def test_single_precision_is_enough(data):
    X, y = data
    # with one layer, nothing is drawn in the precision of the rows
    double, single = (
        make(dtype=dtype, likelihood="gaussian", n_layers=1).fit(X, y)
        for dtype in ("float64", "float32")
    )
    assert_allclose(single.predict(X), double.predict(X), atol=0.01)
    assert single.predict(X).dtype == np.float64
