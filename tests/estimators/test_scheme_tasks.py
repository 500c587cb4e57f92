"""Classes, chunks, function draws and messages: what models of all schemes are asked for."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import (
    AEP,
    NNGP,
    SGHMC,
    DeepInverseWishart,
    EllipticalSlice,
    GlobalInducing,
    RandomFeatures,
    StructuredVI,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

COUPLED = StructuredVI("full", n_warmup=3)
FEATURES = RandomFeatures(8)


def make(inference, n_layers=2, kind=DeepGPRegressor, **settings):
    settings = {"max_iter": 12, "n_predict_draws": 8, "random_state": 0, **settings}
    return kind(n_layers, inference=inference, **settings)


@pytest.mark.parametrize(
    ("scheme", "n_classes", "settings", "least"),
    [
        (StructuredVI("mean-field", n_warmup=3), 2, {"n_layers": 3, "n_inducing": 8}, 0.9),
        (StructuredVI("stripes-and-arrow", n_warmup=3), 3, {"n_layers": 3, "n_inducing": 8}, 0.9),
        (FEATURES, 3, {"batch_size": 20, "max_iter": 150}, 0.9),
        (RandomFeatures(8, "variational"), 2, {"batch_size": 20, "max_iter": 150}, 0.9),
        (RandomFeatures(8, "resampled"), 3, {"batch_size": 20, "max_iter": 150}, 0.9),
        (DeepInverseWishart(), 3, {"max_iter": 40, "n_inducing": 8}, 0.85),
        (NNGP(exact=False), 2, {"max_iter": 40, "n_inducing": 8, "likelihood": "probit"}, 0.85),
        (GlobalInducing(), 3, {"max_iter": 40, "n_inducing": 8}, 0.85),
        (AEP(), 3, {"n_inducing": 10, "learning_rate": 0.05}, 0.9),
        (AEP(0.5), 2, {"n_inducing": 10, "learning_rate": 0.05}, 0.9),
        (SGHMC(n_chains=2, n_samples=8), 3, {"max_iter": 40}, 0.6),
        (EllipticalSlice(2, n_chains=2, n_samples=8), 3, {"max_iter": 40}, 0.6),
    ],
    ids=str,
)
def test_classes(data, scheme, n_classes, settings, least):
    X = data[0]
    labels = np.array(["a", "b", "c"])[np.digitize(X[:, 0], [-0.5, 0.7][: n_classes - 1])]
    model = make(scheme, kind=DeepGPClassifier, **{"max_iter": 100, **settings}).fit(X, labels)
    assert model.score(X, labels) > least
    proba = model.predict_proba(X)
    assert_allclose(proba.sum(1), 1.0, rtol=1e-12)
    assert_array_equal(model.classes_[proba.argmax(1)], model.predict(X))
    assert set(model.sample_y(X, 2).ravel()) <= set(labels)
    if isinstance(scheme, AEP):  # in closed form
        assert repr(model.likelihood_).startswith("RobustMax" if n_classes == 3 else "Bernoulli")
        assert n_classes == 3 or model.likelihood_.link == "probit"


@pytest.mark.parametrize(
    ("model", "n_passes", "least"),
    [
        (make(COUPLED, 3, likelihood="gaussian", n_inducing=8, batch_size=10), 15, 0.5),
        (make(FEATURES, 1, likelihood="gaussian", batch_size=10), 5, 0.8),
        (make(DeepInverseWishart(), n_inducing=8, batch_size=10), 6, 0.5),
        (make(NNGP(exact=False), n_inducing=8, batch_size=10), 6, 0.5),
    ],
)
def test_chunks(data, model, n_passes, least):
    """In all passes together a row counts once."""
    X, y = data
    for _ in range(n_passes):
        for rows in np.split(np.arange(80), 2):
            model.partial_fit(X[rows], y[rows], sample_weight=np.full(40, 1.0 / n_passes))
    assert model._n_rows == pytest.approx(40.0 / n_passes)  # of the last chunk
    assert model._stream["n_rows"] == pytest.approx(80.0)
    assert model.n_iter_ == 8 * n_passes
    assert model.score(X, y) > least


@pytest.mark.parametrize(
    ("model", "rtol"),
    [
        (make(FEATURES, batch_size=20, max_iter=70), 0.08),
        # hidden noise, left out of functions, is small
        (make(COUPLED, 3, likelihood="gaussian", n_inducing=8, max_iter=60), 0.15),
    ],
)
def test_function_draws_have_the_moments_of_the_predictions(data, model, rtol):
    X = data[0][:5]
    model.set_params(n_predict_draws=1024).fit(*data)
    mean, std = model.predict(X, return_std=True, latent=True)
    draws = model.sample_y(X, 4000, latent=True)
    assert (np.abs(draws.mean(1) - mean) < 5.0 * std / np.sqrt(4000)).all()
    assert_allclose(draws.std(1), std, rtol=rtol)


@pytest.mark.parametrize(
    ("inference", "settings", "match"),
    [
        (FEATURES, {"n_inducing": 10}, "n_inducing means nothing to RandomFeatures"),
        (FEATURES, {"init": "random"}, "init means nothing to RandomFeatures"),
        (
            FEATURES,
            {"kernel": "rational_quadratic"},
            "no random features of RationalQuadratic kernels",
        ),
        ("diwp", {"width": 3}, "width means nothing to DeepInverseWishart"),
        ("nngp", {"mean": "zero"}, "mean means nothing to NNGP"),
        ("diwp", {"input_connected": True}, "input_connected means nothing"),
        ("global", {"input_connected": True}, "input_connected means nothing to GlobalInducing"),
        ("exact", {"n_layers": 1, "width": 3}, "width means nothing to Exact"),
        ("diwp", {"kernel": "anova"}, "Anova is not a function of inner products"),
        ("nngp", {"batch_size": 20}, "needs all rows in every step"),
        (NNGP(exact=True), {"likelihood": "student_t"}, "is for Gaussian noise"),
        ("aep", {"dtype": "float32"}, "dtype means nothing to AEP; leave it at 'auto'"),
        (AEP(alpha=2), {}, r"alpha of AEP must be a float in the range \(0.0, 1.0\]; got 2"),
        (StructuredVI("nothing"), {}, "coupling of StructuredVI must be a str among"),
        (StructuredVI(np.array(["full"] * 2)), {}, "coupling of StructuredVI must be a str among"),
        ("sghmc", {"init": "greedy"}, "has none for each alone"),
    ],
    ids=str,
)
def test_settings_that_mean_nothing(data, inference, settings, match):
    with pytest.raises(ValueError, match=match):
        make(inference, **settings).fit(*data)
