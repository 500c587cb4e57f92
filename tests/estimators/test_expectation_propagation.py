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


def repeated_rows(n=60, seed=0, times=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=n)
    return np.tile(X, (times, 1)), np.tile(y, times)


@pytest.fixture(scope="module")
def full_power():
    """Models of rows that come twice, by power 1: as they come, and as published."""
    settings = {**FEW, "n_inducing": 40, "max_iter": 600, "learning_rate": 0.02, "width": 2}

    def fit(**power):
        inference = AEP(alpha=1.0, **power)
        return DeepGPRegressor(likelihood="gaussian", inference=inference, **settings).fit(
            *repeated_rows()
        )

    return fit(), fit(learning_alpha=1.0)


def test_full_power_keeps_the_noise_where_rows_repeat(full_power):
    """The noise has a deviation of .5, of which repeated targets hide a part."""
    safe, published = (float(model.likelihood_.variance[0]) ** 0.5 for model in full_power)
    assert 0.15 < safe < 0.6
    assert published < 0.01
    X, y = repeated_rows(500, seed=1, times=1)
    safe, published = (model.log_predictive_density(X, y).mean() for model in full_power)
    assert safe > -2.0
    assert published < -5.0


@pytest.mark.filterwarnings("ignore")
def test_hyperparameters_rest_in_the_last_third(wave):
    settings = {**FEW, "max_iter": 60, "tol": 0.0, "early_stopping": False}

    def fit(**power):
        return DeepGPRegressor(inference=AEP(**power), **settings).fit(*wave)

    def numbers(model):
        found = [kernel.get_params() for kernel in model.kernels_]
        return [np.ravel(k[name]) for k in found for name in ("lengthscale", "variance")]

    whole, rested = fit(alpha=1.0), fit(alpha=1.0, n_learn=0)
    start = DeepGPRegressor(inference=AEP(), **{**settings, "max_iter": 1}).fit(*wave)
    assert any(np.any(a != b) for a, b in zip(numbers(whole), numbers(rested)))
    for a, b in zip(numbers(rested), numbers(start)):
        assert_allclose(a, b, rtol=0.2)  # but for the one step of the latter
    assert rested.loss_curve_[-1] < rested.loss_curve_[0]
    half = fit(alpha=0.5)
    for a, b in zip(half.loss_curve_[:40], whole.loss_curve_[:40]):
        assert a == b  # the power is the same so far
    assert half.loss_curve_[40:] != whole.loss_curve_[40:]
