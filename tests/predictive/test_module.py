"""Modules, exported programs and gradients agree with predict, for every scheme."""

import functools

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose

from skdgp import DeepGPClassifier, DeepGPRegressor, linalg
from skdgp.inference import Vecchia
from skdgp.torch import as_module

SHALLOW = {"exact", "vecchia", "vfe", "pep"}
SCHEMES = [
    *("auto", "dsvi", "structured", "aep", "rff", "sghmc", "ess", "nngp", "diwp", "global"),
    *("collapsed", "exact", "vecchia", "vfe", "pep", "full_scale"),
]
UNITS = np.array([1.0, 100.0, 1e-3])
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:Columns 2 of X were constant"),
]


def table():
    """Rows in several units with a constant column, and targets."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(40, 3)) * UNITS
    y = np.sin(6.0 * X[:, 0]) + X[:, 1] / 100.0 + 0.2 * rng.standard_normal(40)
    return np.insert(X, 2, 7.0, axis=1), y


def rows():
    """Rows inside and outside of the range of training, some far away and one with a new constant."""
    rng = np.random.default_rng(1)
    Z = np.insert(rng.uniform(-0.5, 1.5, (7, 3)) * UNITS, 2, 7.0, axis=1)
    Z[1, 1], Z[2, 2] = 4000.0, 8.0
    return Z


@functools.cache
def fitted(scheme, kind=DeepGPRegressor, **settings):
    X, y = table()
    n_layers = 1 if scheme in {*SHALLOW, "full_scale"} else 2
    if scheme == "full_scale":
        scheme = Vecchia(n_neighbors=8, start="subset", full_scale=10)
    settings = {"max_iter": 15, "n_predict_draws": 8, "random_state": 0, **settings}
    model = kind(n_layers, inference=scheme, **settings)
    if kind is DeepGPClassifier:
        y = (y > 1.0).astype(int) + (y > 0.2)
    return model.fit(X, y)


def moments(log_weights, means, variances):
    """Mean and deviation of mixtures, as arrays."""
    log_w, m, v = (np.asarray(part) for part in (log_weights, means, variances))
    w = np.exp(log_w)
    mean = (w * m).sum(0)
    return mean, np.sqrt((w * (v + (m - mean) ** 2)).sum(0))


def program(module):
    """The exported program for any number of rows."""
    n = {0: torch.export.Dim("n", min=2)}
    return torch.export.export(module, (torch.tensor(rows()),), dynamic_shapes=(n,), strict=False)


def check_gradients(model, predict, found, Z):
    """Gradients (n, ..., d) against central differences of the functions that `predict` returns."""
    steps = 1e-5 * np.insert(UNITS, 2, 0.0)
    for d in np.flatnonzero(steps):
        e = steps[d] * np.eye(len(steps))[d]
        for value, above, below in zip(found, predict(Z + e), predict(Z - e)):
            difference = (above - below) / 2e-5
            own = value[..., d] * steps[d] / 1e-5
            assert_allclose(own, difference, atol=1e-6 * (1.0 + abs(difference).max()))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_components(scheme):
    model, Z = fitted(scheme), rows()
    for latent in (False, True):
        module = as_module(model, latent)
        expected = model.predict(Z, return_std=True, latent=latent)
        components = module(torch.tensor(Z))
        assert_allclose(components[0].exp().sum(0), 1.0)
        assert_allclose(moments(*components), expected, rtol=1e-6, atol=1e-9)
        batched = module(torch.tensor(np.stack([Z, Z[::-1]])))
        assert_allclose(batched[1][:, 0], components[1], rtol=1e-6, atol=1e-9)
        assert batched[2].shape == (len(batched[0]), 2, 7)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients(scheme):
    model, Z = fitted(scheme), rows()

    def predict(Z):
        return model.predict(Z, return_std=True)

    found = model.predict_gradient(Z, return_std=True)
    check_gradients(model, predict, found, Z)
    assert_allclose(model.predict_gradient(Z), found[0])
    assert found[0].shape == Z.shape and np.all(found[0][:, 2] == 0.0)
    X = torch.tensor(Z, requires_grad=True)
    log_weights, means, _ = as_module(model)(X)
    (by_module,) = torch.autograd.grad((log_weights.exp() * means).sum(), X)
    assert_allclose(by_module, found[0], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_exported_programs(scheme):
    model, Z = fitted(scheme), rows()
    exported = program(as_module(model)).module()
    for some in (Z, Z[:3]):
        found = moments(*exported(torch.tensor(some)))
        assert_allclose(found, model.predict(some, return_std=True), rtol=1e-6, atol=1e-9)


ONNX = ["exact", "dsvi", "vfe", "rff", "vecchia", "auto"]


@pytest.mark.parametrize("scheme", [*ONNX, "arc_cosine", "own noise"])
def test_onnx(scheme, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    noise = {} if scheme in SHALLOW else {"likelihood": "gaussian"}
    if scheme == "arc_cosine":
        scheme, noise = "exact", {"kernel": "arc_cosine"}
    elif scheme == "own noise":
        scheme, noise = "rff", {}
    model, Z = fitted(scheme, **noise), rows()
    torch.onnx.export(program(as_module(model)), dynamo=True, verbose=False).save(tmp_path / "m")
    session = onnxruntime.InferenceSession(tmp_path / "m", providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: Z[:5]})
    assert_allclose(moments(*found), model.predict(Z[:5], return_std=True), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("scheme", ["auto", "dsvi", "vecchia"])
def test_classes(scheme):
    model, Z = fitted(scheme, DeepGPClassifier), rows()
    module = as_module(model)
    assert_allclose(module(torch.tensor(Z)).exp(), model.predict_proba(Z), atol=1e-9)
    if scheme != "auto":  # which has these members
        exported = program(module).module()
        assert_allclose(exported(torch.tensor(Z)), module(torch.tensor(Z)), atol=1e-6)

    def predict(Z):
        return model.predict_proba(Z, return_std=True)

    found = model.predict_gradient(Z, return_std=True)
    assert found[0].shape == (7, 3, 4)
    check_gradients(model, predict, found, Z)
    assert_allclose(model.predict_gradient(Z), found[0], atol=1e-9)


def test_arc_cosines_of_programs(monkeypatch):
    x = torch.linspace(-1.0, 1.0, 2001, dtype=torch.float64)
    monkeypatch.setattr(linalg, "is_exporting", lambda: True)
    assert_allclose(linalg.arccos(x), np.arccos(x.numpy()), rtol=0, atol=2e-15)


def test_programs_of_new_groups_and_single_rows():
    X, y = table()
    model = DeepGPRegressor(1, inference="exact", max_iter=5, random_state=0)
    module = as_module(model.fit(X, y, groups=np.arange(40) % 8))
    for some in (X, X[:3]):
        found = program(module).module()(torch.tensor(some))
        assert_allclose(moments(*found), model.predict(some, return_std=True), rtol=1e-6)
    assert_allclose(module(torch.tensor(X[0]))[1], module(torch.tensor(X[:1]))[1][:, 0])


def test_two_classes():
    X, y = table()
    model = DeepGPClassifier(inference="dsvi", max_iter=15, random_state=0).fit(X, y > 1.0)
    module = as_module(model)
    assert_allclose(program(module).module()(torch.tensor(X)).exp(), model.predict_proba(X))


@pytest.mark.parametrize("name", ["log", "yeo-johnson", "logit", "exponential-normal"])
def test_gradients_through_maps(name):
    X, y = table()
    y = 1.0 / (1.0 + np.exp(-y))
    model = DeepGPRegressor(1, inference="exact", target_transform=name, max_iter=15).fit(X, y)

    def predict(Z):
        return model.predict(Z, return_std=True)

    check_gradients(model, predict, model.predict_gradient(rows(), return_std=True), rows())
    with pytest.raises(ValueError, match="target_transform=None"):
        as_module(model)


def test_gradients_of_several_outputs_and_of_counts():
    X, y = table()
    both = DeepGPRegressor(1, inference="exact", max_iter=15).fit(X, np.column_stack([y, -2.0 * y]))
    gradient = both.predict_gradient(rows())
    assert gradient.shape == (7, 2, 4)
    check_gradients(both, lambda Z: (both.predict(Z),), (gradient,), rows())
    found = as_module(both)(torch.tensor(rows()))
    assert_allclose(moments(*found), both.predict(rows(), return_std=True), rtol=1e-6)
    counts = DeepGPRegressor(1, inference="dsvi", likelihood="poisson", max_iter=15, random_state=0)
    counts.fit(X, np.floor(np.exp(y)))
    once, twice = counts.predict_gradient(X), counts.predict_gradient(X, exposure=np.full(40, 2.0))
    assert_allclose(twice, 2.0 * once)
    check_gradients(counts, lambda Z: (counts.predict(Z),), (once,), X)
    with pytest.raises(ValueError, match=r"Poisson are no mixture.*latent=True"):
        as_module(counts)
    found = as_module(counts, latent=True)(torch.tensor(X))
    assert_allclose(moments(*found)[0], counts.predict(X, latent=True))


def test_gradients_with_point_masses():
    X, y = table()
    X, y = np.tile(X, (3, 1)), np.tile(y, 3)
    model = DeepGPRegressor(1, max_iter=15, random_state=0).fit(X, np.maximum(y, 0.3))
    assert len(model.atoms_) == 1
    Z = rows()
    check_gradients(model, lambda Z: (model.predict(Z),), (model.predict_gradient(Z),), Z)
    with pytest.raises(ValueError, match="probability of their own"):
        as_module(model)


def test_what_has_no_gradient():
    X, y = table()
    frame = pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(np.where(y > 1.0, "u", "v"))})
    model = DeepGPRegressor(1, inference="exact", max_iter=5).fit(frame, y)
    for act in (as_module, lambda m: m.predict_gradient(frame)):
        with pytest.raises(ValueError, match="numeric columns without gaps"):
            act(model)
    model = fitted("exact")
    gaps = np.where(np.arange(4) == 1, np.nan, rows())
    with pytest.raises(ValueError, match="NaN"):
        model.predict_gradient(gaps)
    module = as_module(model)
    with pytest.raises(ValueError, match="not finite"):
        module(torch.tensor(gaps))
    with pytest.raises(ValueError, match="3 columns, but the model was fitted with 4"):
        module(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="estimator of skdgp"):
        as_module("exact")


def test_a_module_does_not_change_with_the_estimator():
    X, y = table()
    model = DeepGPRegressor(1, inference="exact", max_iter=5).fit(X, y)
    module, Z = as_module(model), torch.tensor(rows())
    before = module(Z)
    model.fit(X, -y)
    for part, again in zip(before, module(Z)):
        assert_allclose(part, again)
    assert sum(p.numel() for p in module.parameters()) == 0
    single = module(Z.float())
    assert single[1].dtype == torch.float64
