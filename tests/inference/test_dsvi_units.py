"""Hidden units with kernels and inducing inputs of their own."""

import numpy as np
import pytest
import torch
from oracles import check_gradients, of_mixture
from toys import (
    bound,
    check_progress,
    check_resumed,
    everything,
    latents,
    posterior,
    seeded,
    toy,
)

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import Matern, SquaredExponential
from skdgp.inference import DSVI
from skdgp.inspection import CovarianceDisplay, LayersDisplay, diagnose
from skdgp.model_selection import freeze_hyperparameters

OWN = DSVI(shared_kernel=False)


@pytest.fixture
def make_units(make_model):
    """A model whose units differ in everything, of two hidden units in each layer."""

    def make(widths=(2,), seed=1, **settings):
        model = make_model(2, widths, scheme=OWN, random_q=False, **settings)
        rng = np.random.default_rng(seed)
        with torch.no_grad():
            for layer in model.layers:
                for part in layer.parts():
                    for parameter in part.parameters():
                        noise = 0.2 * torch.as_tensor(rng.standard_normal(parameter.shape))
                        parameter.add_(noise.tril() if parameter is part.q.root else noise)
                    part.Z.mul_(5.0)
        return model

    return make


def test_equal_units_have_the_bound_of_a_shared_kernel(make_model):
    """Separate covariances and copies of the kernel are the published model, with its gradients."""
    X, y = toy(20)
    batch, shared = everything(X, y), make_model(2, (3,), unit_scales=False)
    own = make_model(2, (3,), scheme=OWN, random_q=False)
    hidden, given = own.layers[0], shared.layers[0]
    with torch.no_grad():
        own.layers[1].load_state_dict(shared.layers[1].state_dict())
        hidden.W.copy_(given.W), hidden.log_noise.copy_(given.log_noise)
        for d, unit in enumerate(hidden.units):
            unit.Z.copy_(given.Z), unit.kernel.load_state_dict(given.kernel.state_dict())
            (
                unit.q.mean.copy_(given.q.mean[:, d : d + 1]),
                unit.q.root.copy_(given.q.root[d : d + 1]),
            )
    own.likelihood.load_state_dict(shared.likelihood.state_dict())
    assert bound(own, batch) == pytest.approx(bound(shared, batch), rel=1e-12)
    for model in (own, shared):
        model.expected_log_likelihood(batch, seeded()).backward()
    for name, parameter in given.named_parameters():
        if not name.startswith("q.") and name != "log_noise":
            total = sum(unit.get_parameter(name).grad for unit in hidden.units)
            torch.testing.assert_close(total, parameter.grad)
    torch.testing.assert_close(hidden.log_noise.grad, given.log_noise.grad)
    for mine, of_all in zip(latents(own, X), latents(shared, X)):
        torch.testing.assert_close(mine, of_all, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kernel", [SquaredExponential(), Matern(2.5)])
def test_each_unit_is_conditioned_on_inducing_outputs_of_its_own(make_units, kernel):
    layer, X = make_units(kernel=kernel).layers[0], toy(7)[0]
    for found in (layer.moments(X), layer.frozen().moments(X)):
        for d, unit in enumerate(layer.units):
            k, Z = unit.kernel(), unit.Z
            with torch.no_grad():
                K = k(Z, Z) + unit.jitter * torch.eye(len(Z)).double()
                L, B = torch.linalg.cholesky(K), k(X, Z) @ torch.linalg.inv(K)
                mean = X @ layer.W[:, d] + B @ L @ unit.q.mean[:, 0]
                S = L @ unit.q.root[0] @ unit.q.root[0].T @ L.T
                var = k.diag(X) + ((B @ (S - K)) * B).sum(1) + layer.noise()
            torch.testing.assert_close(found[0][:, d], mean, rtol=1e-9, atol=1e-9)
            torch.testing.assert_close(found[1][:, d], var, rtol=1e-9, atol=1e-9)
    assert (
        layer.units[0].kernel().lengthscale - layer.units[1].kernel().lengthscale
    ).abs().min() > 0.01


def test_gradients(make_units):
    X, y = toy(12)
    batch, model = everything(X, y), make_units()
    model.expected_log_likelihood(batch, seeded()).backward()
    named = [(n, p) for n, p in model.layers[0].named_parameters() if ".q." not in n]
    assert len(named) == 2 * 3 + 1  # lengthscales, variance and inducing inputs of units, noise
    check_gradients(lambda: model.expected_log_likelihood(batch, seeded()), named)


@pytest.mark.parametrize("settings", [{}, {"natural_gradient": "all"}, {"n_restart": 3}])
def test_steps_raise_the_bound_and_resume_bit_for_bit(make_model, settings):
    X, y = toy(40)
    batch, scheme = everything(X, y), DSVI(shared_kernel=False, **settings)

    def make():
        model = make_model(2, (2,), scheme=scheme, random_q=False)
        model.start(X.numpy(), np.ones(40), np.random.RandomState(0))
        return model

    check_progress(make(), batch, 60, 1.0)
    check_resumed(make, batch, 6, [2, 5])


def test_functions_have_the_moments_of_the_posterior(make_units):
    X, model = toy(4)[0], make_units()
    of_model = posterior(model, 64)
    _, mean, var = of_model.latent(X)
    draws = sum(of_model.functions(4000, seeded())(X))
    # hidden noise is that of rows, and small; random features stand for the prior
    assert of_mixture(draws, mean, var) < 5


def test_more_inducing_inputs_carry_the_posterior_over(make_units):
    X, model = toy(30)[0], make_units((2, 2))
    before = latents(model, X)
    model.cover(X, 12)
    assert [unit.n_inducing for unit in model.layers[0].units] == [12, 12]
    for old, new in zip(before, latents(model, X)):
        torch.testing.assert_close(old, new, rtol=1e-3, atol=1e-3)


# The estimator


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2]
    scheme = DSVI(shared_kernel=False, inner_variance=0.1)
    model = DeepGPRegressor(inference=scheme, n_inducing=20, max_iter=200, random_state=0)
    return model.fit(X, y), X, y


def test_units_learn_different_lengthscales(fitted):
    model, X, y = fitted
    units, last = model.kernels_
    lengthscales = np.log([unit.lengthscale for unit in units])
    assert len(units) == 3 and np.ptp(lengthscales, axis=0).max() > 0.1
    assert last.lengthscale.shape == (3,)
    assert [Z.shape for Z in model.inducing_inputs_] == [(60, 3), (20, 3)]
    assert model.score(X, y) > 0.9


def test_displays_and_diagnosis(fitted):
    plt = pytest.importorskip("matplotlib.pyplot")
    model, X, y = fitted
    (report,) = diagnose(model, X, y).reports
    found = {finding.name for finding in report.findings}
    assert {"clumped inducing inputs", "inflated posterior variance"} <= found
    shown = CovarianceDisplay.from_estimator(model)
    assert shown.covariance.shape == (5, 20, 5, 20)  # hidden units, the function, the size of noise
    for unit, part in enumerate(model.members_[0].model().layers[0].units):
        K = part.kernel()(part.Z, part.Z).detach() + part.jitter * torch.eye(20)
        expected = torch.linalg.cholesky(K) @ part.q.root[0].detach()
        expected = torch.linalg.eigvalsh(expected @ expected.T)
        found = np.linalg.eigvalsh(shown.covariance[unit, :, unit])
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)
    layers = LayersDisplay.from_estimator(model, X, random_state=0).layers
    plt.close("all")
    assert layers[0].inducing_mean.shape == (60, 3)


def test_fits_go_on_with_more_rows_and_columns(fitted):
    _, X, y = fitted
    model = DeepGPRegressor(inference=OWN, n_inducing=20, max_iter=50, random_state=0)
    model.partial_fit(X * [1.0, 1.0, 0.0], y).partial_fit(X, y)
    assert len(model.kernels_[0]) == 3 and np.isfinite(model.predict(X)).all()


def test_what_needs_one_kernel_says_so(fitted):
    model, X, y = fitted
    with pytest.raises(ValueError, match="a kernel for each hidden unit"):
        freeze_hyperparameters(model)
    with pytest.raises(ValueError, match="shared_kernel=True"):
        DeepGPRegressor(inference=OWN, init="greedy", max_iter=2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="must be an estimator whose first model"):
        DeepGPRegressor(inference="dsvi", init=model, max_iter=2, random_state=0).fit(X, y)
