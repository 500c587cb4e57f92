"""Fits on the emulated GPU and on the CPU, whose predictions must agree: ``python scenarios.py GROUPS``."""

import pickle
import sys
import warnings
from pathlib import Path

import emulated
import numpy as np
import torch

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.gp.kernels import Anova, ArcCosine, Linear, RationalQuadratic
from skdgp.inference import (
    AEP,
    SCHEMES,
    SGHMC,
    EllipticalSlice,
    RandomFeatures,
    StructuredVI,
    Vecchia,
)
from skdgp.inspection import diagnose

sys.path.append(str(Path(__file__).parents[1]))
from cheap import search_little

FEW = {"max_iter": 3, "n_predict_draws": 8, "random_state": 0}
SHALLOW = ("vecchia", "exact", "vfe", "pep")
rng = np.random.default_rng(0)
X = np.column_stack([rng.uniform(-2.0, 2.0, (50, 3)), np.ones(50)])
X_TEST = np.column_stack([rng.uniform(-2.0, 2.0, (6, 3)), [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]])
y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] ** 2 + 0.1 * rng.standard_normal(50)
CLASSES = np.digitize(y, np.quantile(y, [0.3, 0.7]))
COUNTS = rng.poisson(np.exp(y))


def of_regressor(model):
    """What a regressor predicts."""
    target = np.abs(np.round(X_TEST[:, 0]))
    return [
        *model.predict(X_TEST, return_std=True, latent=True),
        model.predict_quantiles(X_TEST, [0.1, 0.5]),
        model.log_predictive_density(X_TEST, target),
        model.sample_y(X_TEST, 2),
        model.sample_y(X_TEST, 2, latent=True),
        model.score(X_TEST, target),
    ]


def of_classifier(model):
    """What a classifier predicts."""
    return [model.predict_log_proba(X_TEST), model.sample_y(X_TEST, 2)]


def regressor(device, target=y, inference="dsvi", n_layers=None, **settings):
    if n_layers is None:
        n_layers = 1 if inference in SHALLOW else 2
    if inference != "auto":  # maps of targets are chosen on the CPU
        settings = {"target_transform": None, **settings}
    model = DeepGPRegressor(n_layers, inference=inference, device=device, **{**FEW, **settings})
    return model.fit(X, target)


def classifier(device, target=CLASSES, **settings):
    return DeepGPClassifier(device=device, **{**FEW, **settings}).fit(X, target)


def schemes(device):
    """Every scheme, and some likelihoods and kernels."""
    special = {
        "structured": StructuredVI("full", n_warmup=1, n_inflation_splits=2),
        "aep": AEP(prediction="sampling"),
        "rff": RandomFeatures(n_features=8, frequencies="resampled"),
        "sghmc": SGHMC(n_chains=2, n_samples=4),
        "ess": EllipticalSlice(2, n_chains=2, n_samples=2),
    }
    for name in SCHEMES:
        few = {} if name in ("rff", "vecchia", "exact", "ess") else {"n_inducing": 6}
        model = regressor(device, inference=special.get(name, name), **few)
        yield of_regressor(model)
        if name in ("dsvi", "vfe"):  # from draws, and in closed form
            yield list(model.predict(X_TEST, return_cov=True))
    model = regressor(device, inference=Vecchia(8, "subset", 6), n_layers=1)
    yield of_regressor(model)
    yield list(model.predict(X_TEST, return_cov=True))
    kernels = [Anova() + Linear(), ArcCosine(), RationalQuadratic() * Linear()]
    for kernel, likelihood in zip(kernels, ("gaussian", "student_t", "poisson")):
        few = {"kernel": kernel, "likelihood": likelihood, "n_inducing": 6}
        yield of_regressor(regressor(device, COUNTS, **few))
    several = np.column_stack([y, X[:, 2]])
    several = regressor(device, several, n_inducing=6, target_transform="auto")
    yield list(several.predict(X_TEST, return_std=True))


def mixtures(device):
    """What the defaults stand for."""
    model = regressor(device, inference="auto")
    diagnose(model, X, y)
    yield of_regressor(model)
    yield of_classifier(classifier(device, early_stopping=True))
    yield of_regressor(SparseGPRegressor(6, max_iter=5, random_state=0, device=device).fit(X, y))
    yield of_classifier(
        SparseGPClassifier(6, max_iter=5, random_state=0, device=device).fit(X, CLASSES)
    )


def states(device):
    """Models that go on, and models that move."""
    yield of_regressor(regressor(device, init="greedy", n_inducing=6, early_stopping=True))
    model = regressor(device, n_inducing=6, warm_start=True)
    yield of_regressor(model.fit(X, y))
    model = DeepGPRegressor(inference="dsvi", n_inducing=6, device=device, **FEW)
    for rows in (slice(25), slice(25, 50)):
        model.partial_fit(X[rows], y[rows])
    yield of_regressor(model)
    model = DeepGPRegressor(inference="dsvi", n_inducing=6, device=device, **FEW)
    model.fit(*(torch.as_tensor(part, device=device) for part in (X, y)))
    test = torch.as_tensor(X_TEST, device=device)
    yield [model.predict(test), model.score(test, test[:, 0])]
    for inference in ("collapsed", "dsvi"):
        model = pickle.dumps(regressor(device, inference=inference))
        emulated.present = device == "cpu"  # a machine without a GPU
        try:
            model = pickle.loads(model)
            yield of_regressor(model)
        finally:
            emulated.present = True
        model = pickle.loads(pickle.dumps(model))
        yield [model.predict(X_TEST)]


def numerics(device):
    """Kernel matrices that take more jitter, and distances that norms do not tell."""
    for inference, factor in (("vfe", 1e5), ("pep", 1e4)):
        settings = {"kernel": "linear", "standardize": False, "n_inducing": 10, "max_iter": 10}
        model = DeepGPRegressor(1, inference=inference, device=device, random_state=0, **settings)
        model.fit(factor * X, y)
        yield [model.score(factor * X, y)]
    far = X.copy()
    far[0, 0] = 1e9
    model = DeepGPRegressor(
        1,
        inference="vfe",
        standardize=False,
        n_inducing=20,
        max_iter=10,
        device=device,
        random_state=0,
    )
    yield [model.fit(far, y).score(far, y)]


def what_raises():
    """The emulation refuses what a GPU would."""
    here, there = torch.ones(2), torch.ones(2, device="cuda")
    for wrong in (
        lambda: here + there,
        lambda: there.numpy(),
        lambda: np.asarray(there),
        lambda: torch.randn(2, device="cuda", generator=torch.Generator()),
    ):
        try:
            wrong()
        except (RuntimeError, TypeError):
            continue
        raise AssertionError("The emulation bears what a GPU would not.")


def main(groups):
    """Compare all predictions of some groups."""
    warnings.simplefilter("ignore")
    search_little()
    emulated.install()
    what_raises()
    for group in groups:
        scenario = globals()[group]
        emulated.seen.clear()
        both = zip(scenario("cuda"), list(scenario("cpu")), strict=True)
        for i, (own, expected) in enumerate(both):
            for a, b in zip(own, expected, strict=True):
                assert np.isfinite(b).all()
                error = f"{group}, model {i}"
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=error)
        assert len(emulated.seen) > 30, emulated.seen


if __name__ == "__main__":
    main(sys.argv[1:])
