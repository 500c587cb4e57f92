import numpy as np
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import AEP, StructuredVI
from skdgp.inspection import CovarianceDisplay

pytestmark = pytest.mark.usefixtures("plt")

FEW = {"max_iter": 30, "n_inducing": 6, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(40, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(40)


def fitted(rows, coupling, likelihood="gaussian", **settings):
    scheme = StructuredVI(coupling, n_warmup=3)
    model = DeepGPRegressor(3, inference=scheme, likelihood=likelihood, **FEW, **settings)
    return model.fit(*rows)


@pytest.fixture(scope="module")
def model(rows):
    return fitted(rows, "stripes-and-arrow")


def test_covariance_of_the_inducing_outputs(model):
    display = CovarianceDisplay.from_estimator(model)
    assert display.labels == [
        "h0, layer 1", "h1, layer 1", "h0, layer 2", "h1, layer 2", "f0, layer 3",
    ]  # fmt: skip
    assert display.first_units == [0, 2, 4]
    module = model.members_[0].model("cpu")
    with torch.no_grad():
        v = module.q.frozen().sample(100_000, torch.Generator().manual_seed(0))[0] - module.q.mean
        u, unit = [], 0
        for layer in module.layers:
            K = layer.kernel()(layer.Z, layer.Z) + layer.jitter * torch.eye(6)
            L, Z = torch.linalg.cholesky(K), layer.Z - layer.Z.mean(0)
            order = torch.argsort(Z @ torch.linalg.svd(Z)[2][0])
            for _ in range(layer.n_outputs):
                u.append((v[:, unit] @ L.T)[:, order])
                unit += 1
        u = torch.stack(u, 1).flatten(1)
    second = u.T @ u / 100_000
    deviation = (u.square().T @ u.square() / 100_000 - second.square()).sqrt()
    z = (second - torch.as_tensor(display.covariance.reshape(30, 30))) / deviation * 100_000**0.5
    assert z.abs().max() < 5  # of 900
    diagonal = display.correlation.reshape(30, 30).diagonal()
    np.testing.assert_allclose(diagonal, 1.0)


@pytest.mark.parametrize("coupling", ["mean-field", "stripes-and-arrow", "full"])
def test_blocks_show_the_coupling(rows, coupling):
    strength = CovarianceDisplay.from_estimator(fitted(rows, coupling)).strength
    coupled = strength > 1e-12
    expected = {
        "mean-field": np.eye(5, dtype=bool),
        "stripes-and-arrow": np.array([
            [1, 0, 1, 0, 1], [0, 1, 0, 1, 1], [1, 0, 1, 0, 1], [0, 1, 0, 1, 1], [1, 1, 1, 1, 1],
        ], dtype=bool),
        "full": np.ones((5, 5), dtype=bool),
    }[coupling]  # fmt: skip
    np.testing.assert_array_equal(coupled, expected)


@pytest.mark.parametrize("inference", ["dsvi", "auto", "vfe"])
def test_models_without_coupling(rows, inference):
    n_layers = 1 if inference == "vfe" else 2
    model = DeepGPRegressor(n_layers, inference=inference, **FEW).fit(*rows)
    strength = CovarianceDisplay.from_estimator(model).strength
    assert (strength.diagonal() > 0.1).all()
    assert strength[~np.eye(len(strength), dtype=bool)].sum() == 0.0


def test_units_of_each_layer(rows):
    X, y = rows
    model = DeepGPRegressor(inference=AEP(), **FEW).fit(X, np.column_stack([y, X]))
    display = CovarianceDisplay.from_estimator(model)
    assert display.labels == [
        "h0, layer 1", "h1, layer 1", "f0, layer 2", "f1, layer 2", "f2, layer 2",
    ]  # fmt: skip
    assert display.first_units == [0, 2]
    for layer, start in zip(model.members_[0].model("cpu").layers, display.first_units):
        roots = layer.q.root.detach()
        Z = layer.Z.detach()
        for unit in range(layer.n_outputs):
            K = layer.kernel()(Z, Z).detach() + layer.jitter * torch.eye(6)
            order = torch.argsort((Z - Z.mean(0)) @ torch.linalg.svd(Z - Z.mean(0))[2][0])
            root = torch.linalg.cholesky(K) @ roots[unit]
            own = display.covariance[start + unit, :, start + unit]
            np.testing.assert_allclose(own, (root @ root.T)[order][:, order], atol=1e-9)


def test_plot(plt, model):
    display = CovarianceDisplay.from_estimator(model, name="a model")
    assert display.image_.get_array().shape == (30, 30)
    assert display.image_.get_clim() == (-1.0, 1.0)
    assert display.ax_.get_title() == "a model"
    assert display.colorbar_.ax.get_ylabel() == "correlation"
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == display.labels
    ax = plt.subplots()[1]
    other = CovarianceDisplay.from_estimator(model, kind="covariance", ax=ax, cmap="viridis")
    assert other.ax_ is ax and other.image_.get_cmap().name == "viridis"
    covariance = other.covariance.copy()
    for unit in range(5):
        covariance[unit, :, unit] = 0.0
    assert other.image_.get_clim()[1] == pytest.approx(np.abs(covariance).max())


def test_pipelines_and_classifiers(rows):
    X, y = rows
    scheme = StructuredVI(n_warmup=3)
    model = make_pipeline(StandardScaler(), DeepGPClassifier(inference=scheme, **FEW)).fit(X, y > 0)
    display = CovarianceDisplay.from_estimator(model)
    assert display.labels == ["h0, layer 1", "h1, layer 1", "f0, layer 2"]


def test_bad_arguments(model):
    with pytest.raises(ValueError, match="must be one of 'correlation', 'covariance'; got 'x'"):
        CovarianceDisplay.from_estimator(model, kind="x")
