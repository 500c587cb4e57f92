"""AEP behind the estimators."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdgp import DeepGPRegressor
from skdgp.inference import AEP

FEW = {"max_iter": 30, "n_inducing": 10, "random_state": 0}


@pytest.mark.parametrize(
    ("n_layers", "settings"), [(1, {}), (2, {"alpha": 0.3, "prediction": "sampling"}), (5, {})]
)
def test_it_learns_at_every_depth(wave, n_layers, settings):
    settings = {"max_iter": 120, "n_layers": n_layers, "inference": AEP(**settings)}
    model = DeepGPRegressor(**{**FEW, **settings}).fit(*wave)
    assert model.score(*wave) > 0.9
    mean, std = model.predict(wave[0], return_std=True)
    assert np.isfinite(mean).all() and (std > 0.0).all()
    assert np.mean(np.abs(wave[1] - mean) < 2.0 * std) > 0.8


def test_there_is_no_lower_bound(wave):
    model = DeepGPRegressor(inference="dsvi", **FEW).fit(*wave)
    assert np.isfinite(model.lower_bound_)
    model.set_params(inference="aep").fit(*wave)
    assert not hasattr(model, "lower_bound_")
    model.set_params(inference="aep", warm_start=False)
    model.partial_fit(*wave)
    assert not hasattr(model, "lower_bound_")


def test_the_kind_of_prediction_is_part_of_the_model(wave):
    X, y = wave
    settings = {**FEW, "n_predict_draws": 16}
    gaussian, mixture = (
        DeepGPRegressor(inference=AEP(prediction=prediction), **settings).fit(X, y)
        for prediction in ("moment-matching", "sampling")
    )
    assert gaussian.members_[0].draws.shape == (1, 0)
    assert mixture.members_[0].draws.shape == (16, 2)
    # training is the same, and so are the first moments
    assert_array_equal(gaussian.loss_curve_, mixture.loss_curve_)
    assert_allclose(gaussian.predict(X), mixture.predict(X), atol=0.02)


def test_kernels_without_closed_forms(wave):
    X, y = np.hstack([wave[0], wave[0] ** 2]), wave[1]
    settings = {**FEW, "kernel": "matern52", "max_iter": 60, "learning_rate": 0.05}
    settings["inference"] = "aep"
    model = DeepGPRegressor(width=2, **settings).fit(*wave)
    assert model.score(*wave) > 0.7
    with pytest.raises(ValueError, match="Matern has no closed form for uncertain inputs"):
        DeepGPRegressor(width=3, **settings).fit(X, y)
    kernels = ["matern52", "squared_exponential"]  # what the first layer sees is certain
    DeepGPRegressor(width=3, **{**settings, "kernel": kernels}).fit(X, y)
