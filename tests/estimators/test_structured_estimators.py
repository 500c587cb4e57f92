"""Structured posteriors behind the estimators."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.inference import StructuredVI
from skdgp.inspection import LayersDisplay
from skdgp.training import init

SMALL = SquaredExponential(variance=0.7)
FEW = {"n_layers": 3, "max_iter": 12, "n_inducing": 8, "n_predict_draws": 8, "random_state": 0}


def regressor(coupling="full", likelihood="gaussian", **settings):
    scheme = StructuredVI(coupling, n_warmup=3)
    return DeepGPRegressor(inference=scheme, likelihood=likelihood, **{**FEW, **settings})


def test_it_learns(wave):
    X, y = wave
    single = regressor(dtype="float32", max_iter=100).fit(X, y)
    assert single.score(X, y) > 0.9 and single.predict(X).dtype == np.float64
    model = regressor("stripes-and-arrow", max_iter=150).fit(X, y)
    assert model.score(X, y) > 0.9
    assert np.isfinite(model.lower_bound_)
    mean, std = model.predict(X, return_std=True)
    _, cov = model.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(np.sqrt(cov.diagonal()), std[:5], rtol=1e-6)
    apart = np.concatenate([model.predict(X[:7]), model.predict(X[7:])])
    np.testing.assert_allclose(apart, mean, atol=1e-7)
    lower, upper = model.predict_interval(X, 0.95).T
    assert np.mean((lower <= y) & (y <= upper)) > 0.85
    pytest.importorskip("matplotlib").use("agg")
    assert len(LayersDisplay.from_estimator(model, X).axes_) == 3


def test_by_name_and_by_parameter():
    model = DeepGPRegressor(inference="structured", **FEW)
    assert model.set_params(inference__coupling="full").inference.coupling == "full"


def test_a_warm_start_keeps_the_coupling(wave):
    X, y = wave
    model = regressor(warm_start=True, max_iter=60).fit(X, y)
    bound = model.lower_bound_
    model.set_params(max_iter=1, learning_rate=1e-6)  # natural steps start small
    before = model.members_[0].arrays["q.root"]
    assert np.abs(before[5:]).max() > 0.01
    model.fit(X, y)
    np.testing.assert_allclose(model.members_[0].arrays["q.root"], before, atol=2e-3)
    assert model.lower_bound_ == pytest.approx(bound, abs=0.5)


def test_several_targets_and_unequal_widths(wave):
    X, y = wave
    Y = np.column_stack([y, 5.0 - 2.0 * y])
    settings = {"n_layers": 4, "width": [3, 1, 2], "input_connected": True, "max_iter": 100}
    model = regressor("full", **settings).fit(X, Y)
    assert model.predict(X).shape == (60, 2) and model.score(X, Y) > 0.7
    assert model.sample_y(X, 5).shape == (60, 2, 5)
    assert np.isfinite(model.log_predictive_density(X, Y)).all()


@pytest.mark.parametrize("likelihood", ["auto", "poisson"])
def test_likelihoods(wave, likelihood):
    X, y = wave
    y = np.round(np.exp(y)) if likelihood == "poisson" else y
    model = regressor(likelihood=likelihood, max_iter=60).fit(X, y)
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert model.log_predictive_density(X, y).mean() > -2.0


def largest_coupling(model):
    arrays = model.members_[0].arrays
    return np.abs(arrays["q.root"][len(arrays["q.mean"]) :]).max(initial=0.0)


def test_short_fits_and_chunks_add_up(wave):
    """The first steps are those of all fits, also if models are saved in between."""
    X, y = wave
    settings = {"likelihood": "heteroscedastic", "n_layers": 2, "width": 2}
    model = regressor(warm_start=True, max_iter=2, **settings)
    for n_steps in (2, 4, 6):  # until the last coupling
        with pytest.warns(ConvergenceWarning, match=rf"Training ended after {n_steps} steps"):
            model.fit(X, y)
    model.fit(X, y).fit(X, y)
    chunks = regressor(batch_size=30, **settings)
    for _ in range(4):
        chunks = pickle.loads(pickle.dumps(chunks.partial_fit(X, y)))
    for each in (model, chunks):
        assert largest_coupling(each) > 0.0
        assert each.members_[0].arrays["q.mean"][-1].any()
    coupled = regressor("stripes-and-arrow", n_layers=1, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        coupled.fit(X, y)  # one layer has nothing to couple


@pytest.mark.parametrize(
    ("poorer", "way"), [("mean-field", "warm start"), ("stripes-and-arrow", "init")]
)
def test_a_richer_coupling_goes_on_with_a_simpler_one(wave, poorer, way):
    X, y = wave
    model = regressor(poorer, max_iter=100).fit(X, y)
    bound, before = model.lower_bound_, largest_coupling(model)
    if way == "init":
        richer = regressor("full", init=model, max_iter=1, learning_rate=1e-6)
    else:
        short = {"max_iter": 1, "learning_rate": 1e-6}
        richer = model.set_params(warm_start=True, inference__coupling="full", **short)
    richer.fit(X, y)
    assert len(richer.members_[0].arrays["q.root"]) == 5 + 10  # blocks of all pairs of five units
    assert largest_coupling(richer) == pytest.approx(before, abs=2e-3)
    assert richer.lower_bound_ == pytest.approx(bound, abs=0.5)
    richer.set_params(max_iter=60, learning_rate=None).fit(X, y)
    assert richer.lower_bound_ > bound and largest_coupling(richer) > 0.0


def test_warm_starts_with_another_scheme(wave):
    X, y = wave
    model = regressor(warm_start=True, max_iter=100).fit(X, y)
    bound = model.lower_bound_
    model.set_params(max_iter=1, inference__n_draws=3, inference__natural_step=0.01).fit(X, y)
    assert model.lower_bound_ == pytest.approx(bound, abs=1.0)
    assert model.members_[0].scheme.n_draws == 3
    before = model.predict(X)
    for change in ({"inference__coupling": "mean-field"}, {"inference": "dsvi"}):
        with pytest.raises(ValueError, match="warm_start=True goes on with the model of the last"):
            copy.deepcopy(model).set_params(**change).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)


def test_covariances_have_no_part_in_the_noise_of_hidden_layers(wave):
    """It is another one for every row, and adds to variances alone."""
    X, y = wave
    scheme = StructuredVI("full", n_warmup=3, inner_noise=0.1)
    settings = {**FEW, "n_layers": 2, "learning_rate": 1e-5, "n_predict_draws": 256}
    model = DeepGPRegressor(inference=scheme, likelihood="gaussian", **settings).fit(X, y)
    of_latents, of_targets = (
        model.predict(X[:4], return_cov=True, latent=latent)[1] for latent in (True, False)
    )
    apart = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(of_latents[apart], of_targets[apart], atol=0.03 * of_latents.max())
    functions = np.cov(model.sample_y(X[:4], 1000, latent=True))
    assert np.all(functions.diagonal() < 0.9 * of_latents.diagonal())


def test_noise_does_not_explain_what_is_found_later(monkeypatch):
    """From lengthscales that are too long, as starts compared by leave-one-out rarely are."""
    monkeypatch.setattr(init, "shorten_lengthscales", lambda *args: None)
    x = np.random.default_rng(0).uniform(-3.0, 3.0, size=(30, 1))
    settings = {"n_layers": 2, "max_iter": 500, "random_state": 0}
    scores = []
    for n_warmup in (0, 50):
        scheme = StructuredVI(n_warmup=n_warmup)
        model = DeepGPRegressor(inference=scheme, **settings).fit(x, np.sin(5.0 * x[:, 0]))
        scores.append(model.score(x, np.sin(5.0 * x[:, 0])))
    assert scores[0] < 0.3 and scores[1] > 0.7


@pytest.mark.parametrize(
    ("settings", "variances"),
    [
        ({}, [0.3, 0.3, 1.0]),
        ({"kernel": "matern32"}, [0.3, 0.3, 1.0]),
        ({"kernel": ["matern32", SMALL, "matern32"]}, [0.3, 0.7, 1.0]),
        ({"kernel": SMALL}, [0.7, 0.7, 0.7]),
        ({"mean": "zero"}, [1.0, 1.0, 1.0]),  # nothing but the kernels makes outputs differ
    ],
)
def test_hidden_kernels_that_are_names_start_small(wave, settings, variances):
    X, y = wave
    scheme = StructuredVI(inner_variance=0.3)
    settings = {**FEW, "max_iter": 1, "learning_rate": 1e-9, **settings}
    model = DeepGPRegressor(inference=scheme, **settings).fit(X, y)
    np.testing.assert_allclose([k.variance for k in model.kernels_], variances, rtol=1e-6)


def test_steps_are_larger_with_many_rows():
    assert StructuredVI().learning_rate(4000) == 0.01
    assert StructuredVI().learning_rate(4001) == 0.03
