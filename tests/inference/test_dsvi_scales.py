"""Hidden units with variances of their own, and hidden layers that start again."""

import numpy as np
import pytest
import torch
from oracles import check_gradients, of_mixture
from toys import check_progress, check_resumed, everything, posterior, run, seeded, toy

from skdgp import DeepGPRegressor
from skdgp.inference import DSVI
from skdgp.inspection import CovarianceDisplay
from skdgp.model_selection import freeze_hyperparameters

LOG_SCALES = torch.tensor([-0.7, 0.4, 0.0], dtype=torch.float64)


@pytest.fixture
def scaled(make_model):
    """A model of two layers whose three hidden units have different scales."""
    model = make_model(2, (3,), scheme=DSVI(shared_covariance=False, unit_scales=True))
    with torch.no_grad():
        model.layers[0].log_scale.copy_(LOG_SCALES)
    return model


@torch.no_grad()
def test_a_scale_is_a_kernel_of_another_variance(scaled, make_model):
    """In whitened variables, a unit is one of a layer whose kernel has its variance."""
    X, layer = toy(9)[0], scaled.layers[0]
    for d, log_scale in enumerate(LOG_SCALES):
        other = make_model(2, (3,), scheme=DSVI(shared_covariance=False))
        plain = other.layers[0]
        assert plain.log_scale is None
        plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "log_scale"})
        plain.kernel.log_variance.add_(2.0 * log_scale)
        plain.jitter = layer.jitter * float(torch.exp(2.0 * log_scale))
        for found, expected in ((layer, plain), (layer.frozen(), plain.frozen())):
            for a, b in zip(found.moments(X), expected.moments(X)):
                torch.testing.assert_close(a[:, d], b[:, d], rtol=1e-9, atol=1e-9)
        a, b = (part.frozen().covariance(X)[d] for part in (layer, plain))
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_gradients_and_draws_of_functions(scaled):
    X, y = toy(12)
    batch = everything(X, y)
    scaled.expected_log_likelihood(batch, seeded()).backward()
    named = [(n, p) for n, p in scaled.layers[0].named_parameters() if "q." not in n]
    assert "log_scale" in dict(named)
    check_gradients(lambda: scaled.expected_log_likelihood(batch, seeded()), named)
    of_model = posterior(scaled, 64)
    _, mean, var = of_model.latent(X[:4])
    assert of_mixture(sum(of_model.functions(4000, seeded())(X[:4])), mean, var) < 5


def test_layers_that_have_them(make_model):
    def scales(widths, **settings):
        layers = make_model(
            2, widths, scheme=DSVI(**{"unit_scales": True, **settings}), random_q=False
        ).layers
        return [part.scales() is not None for layer in layers for part in layer.parts()]

    assert scales((2, 3)) == [True, True, False]
    assert scales((1,)) == [False, False]  # which the kernel's variance is
    assert scales((2,), unit_scales=False) == [False, False]
    assert scales((2,), shared_kernel=False) == [False, False, False]


@pytest.mark.parametrize("natural_gradient", ["last", "all"])
def test_steps_raise_the_bound_and_resume_bit_for_bit(make_model, natural_gradient):
    X, y = toy(40)
    batch, scheme = (
        everything(X, y),
        DSVI(unit_scales=True, natural_gradient=natural_gradient, n_restart=3),
    )

    def make():
        model = make_model(2, (2,), scheme=scheme, random_q=False)
        model.start(X.numpy(), np.ones(40), np.random.RandomState(0))
        with torch.no_grad():
            model.layers[0].kernel.log_variance.fill_(-20.0)  # starts again after three steps
        return model

    check_progress(make(), batch, 60, 1.0)
    check_resumed(make, batch, 6, [2, 3, 5])


# Starting again


@pytest.mark.parametrize("n_gone", [0, 1, 2])
def test_hidden_layers_start_again_if_all_units_have_vanished(make_model, n_gone):
    X, y = toy(20)
    batch, scheme = everything(X, y), DSVI(unit_scales=True, n_restart=4)
    model = make_model(2, (2,), scheme=scheme, random_q=False)
    model.start(X.numpy(), np.ones(20), np.random.RandomState(0))
    run(model, batch, 4)
    hidden, last = model.layers
    with torch.no_grad():
        hidden.log_scale[:n_gone] = -12.0
        hidden.q.mean.fill_(3.0)
    assert model.layers.vanished() == (n_gone == 2)
    Z, before = hidden.Z.detach().clone(), last.q.mean.detach().clone()
    run(model, batch, 1)
    if n_gone == 2:  # one step from the start
        start = hidden.kernel.component
        np.testing.assert_allclose(hidden.kernel().variance.detach(), start.variance, rtol=0.1)
        np.testing.assert_allclose(
            hidden.kernel().lengthscale.detach(), start.lengthscale, rtol=0.1
        )
        assert hidden.log_scale.abs().max() < 0.1 and hidden.q.mean.abs().max() < 0.02
    else:
        assert float(hidden.log_scale.detach()[0]) == pytest.approx(-12.0 * n_gone, abs=0.5)
        assert (hidden.q.mean - 3.0).abs().max() < 0.02
    assert 0.0 < (hidden.Z - Z).abs().max() < 0.02  # inducing inputs stay
    assert (last.q.mean - before).abs().max() < 0.5  # and so does the last layer
    optimizer = model.steps._adam(model)
    steps = {id(p): int(slot["step"]) for p, slot in zip(optimizer._parameters, optimizer.slots)}
    assert {steps[id(p)] for p in hidden.parameters()} == {1 if n_gone == 2 else 5}
    assert steps[id(last.Z)] == 5


def test_what_cannot_vanish(make_model):
    assert not make_model(2, (), scheme=DSVI(), random_q=False).layers.vanished()
    for settings in ({"linear_mean": False}, {"kernel": "linear"}):
        model = make_model(2, (2,), scheme=DSVI(), random_q=False, **settings)
        with torch.no_grad():
            model.layers[0].kernel.log_variance.fill_(-30.0)
        assert not model.layers.vanished()


# The estimator

SCALED = DSVI(unit_scales=True, inner_variance=1e-3, n_restart=8)
FEW = {"likelihood": "gaussian", "target_transform": None, "random_state": 0}


def uneven(n=250, seed=0):
    """A smooth function of three columns, and small steps along two others."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 5))
    X[:, 3], X[:, 4] = rng.integers(0, 4, n), rng.integers(0, 5, n)
    a, b = np.array([0.0, 1.0, -1.0, 0.5]), np.array([0.0, 1.0, -0.5, 0.8, -1.0])
    steps = a[X[:, 3].astype(int)] + b[X[:, 4].astype(int)] * X[:, 1]
    y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 0] * X[:, 1] + 0.08 * steps
    return X, y + 0.02 * rng.standard_normal(n)


def test_depth_gains():
    """With one variance for all units the hidden layer vanishes, and two layers have the bound of one."""
    X, y = uneven()
    settings = {**FEW, "n_inducing": 40, "max_iter": 600}
    X_new, y_new = uneven(500, seed=1)

    def fit(n_layers, **scheme):
        model = DeepGPRegressor(n_layers, inference=DSVI(**scheme), **settings).fit(X, y)
        return model.lower_bound_ / len(y), model.log_predictive_density(X_new, y_new).mean()

    shallow, deep = fit(1), fit(2, unit_scales=True, inner_variance=1e-3, n_restart=120)
    common = fit(2)
    assert deep[0] > shallow[0] + 0.2
    assert deep[1] > shallow[1] + 0.2
    assert common[0] == pytest.approx(shallow[0], abs=0.02)


@pytest.fixture(scope="module")
def fitted():
    X, y = uneven(60)
    settings = {**FEW, "n_inducing": 10, "max_iter": 40}
    return DeepGPRegressor(inference=SCALED, **settings).fit(X, y), settings, X, y


def test_what_other_models_cannot_be_given(fitted):
    model, settings, X, y = fitted
    with pytest.raises(ValueError, match="a variance for each hidden unit"):
        freeze_hyperparameters(model)
    plain = DeepGPRegressor(inference="dsvi", **settings).fit(X, y)
    assert "kernel" in freeze_hyperparameters(plain)
    freeze_hyperparameters(DeepGPRegressor(inference=SCALED, width=1, **settings).fit(X, y))


def test_states_go_to_models_without_scales_and_back(fitted):
    """Hidden units have the same means there; what is handed on is a step from where it was."""
    model, settings, X, y = fitted
    few = {**settings, "max_iter": 1, "learning_rate": 1e-6}
    for scheme in (DSVI(natural_step=1e-6), DSVI(unit_scales=True, natural_step=1e-6)):
        other = DeepGPRegressor(inference=scheme, init=model, **few).fit(X, y)
        (given,), (own,) = (m.members_[0].model().layers[:1] for m in (model, other))
        H = torch.as_tensor(np.random.default_rng(0).standard_normal((20, 5)))
        with torch.no_grad():
            torch.testing.assert_close(own.moments(H)[0], given.moments(H)[0], rtol=1e-3, atol=1e-4)
    plain = DeepGPRegressor(inference="dsvi", **settings).fit(X, y)
    back = DeepGPRegressor(inference=SCALED, init=plain, **few).fit(X, y)
    assert np.abs(back.predict(X) - plain.predict(X)).max() < 0.2 * y.std()


def test_displays_and_new_columns(fitted):
    plt = pytest.importorskip("matplotlib.pyplot")
    model, settings, X, y = fitted
    shown = CovarianceDisplay.from_estimator(model)
    plt.close("all")
    layer = model.members_[0].model().layers[0]
    with torch.no_grad():
        L = torch.linalg.cholesky(layer.kernel()(layer.Z, layer.Z) + layer.jitter * torch.eye(10))
        root = layer.scales()[2] * (L @ layer.q.root[0])
    found = np.linalg.eigvalsh(shown.covariance[2, :, 2])
    np.testing.assert_allclose(found, torch.linalg.eigvalsh(root @ root.T), rtol=1e-6, atol=1e-12)
    grown = DeepGPRegressor(inference=SCALED, **settings)
    grown.partial_fit(X * [1.0, 1.0, 1.0, 1.0, 0.0], y).partial_fit(X, y)
    assert grown.members_[0].arrays["layers.0.log_scale"].shape == (5,)
    assert np.isfinite(grown.predict(X)).all()
