"""Elliptical slices against quadrature, limits, symmetries, and draws of the joint distribution."""

import copy

import numpy as np
import pytest
import torch
from oracles import condition
from toys import (
    architecture,
    check_chains,
    check_resumed,
    everything,
    latents,
    posterior,
    run,
)

from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Bernoulli, Gaussian
from skdgp.inference.elliptical_slice import EllipticalSlice
from skdgp.model_selection.posteriors import free_energy
from skdgp.random import normal


def make(X, y, widths=(1,), likelihood=None, *, lengthscale=1.0, linear_mean=False, connected=False,
         n_latents=None, **settings):  # fmt: skip
    batch = everything(X, y)
    k = batch.y.shape[1]
    likelihood = Gaussian(np.full(k, 0.1)) if likelihood is None else likelihood
    kernel, rest = SquaredExponential(lengthscale), {"linear_mean": linear_mean}
    shape = architecture(
        widths, n_latents or k, 0, kernel, n_features=batch.X.shape[1], connected=connected, **rest
    )
    settings = {"n_tempering": 1, "hyperparameters": "fixed", **settings}
    model = EllipticalSlice(**settings).build(shape, likelihood)
    model.start(batch.X.numpy(), np.ones(len(X)), None)
    return model, batch


def z_scores(draws, expected):
    """Deviations of means from what is expected, in standard errors, from (chains, draws) of each chain."""
    means = np.asarray(draws).mean(1)
    return (means.mean(0) - expected) / (means.std(0, ddof=1) / np.sqrt(len(means)))


def two_points():
    """Two rows of a two-layer model; log-likelihoods and moments by quadrature over hidden values."""
    X, y = np.array([[-0.4], [0.5]]), np.array([[1.2], [-0.7]])
    settings = {"n_chains": 100, "n_samples": 100 * 50, "n_burn_in": 40, "spacing": 1}
    model, batch = make(X, y, least_power=0.02, n_tempering=4, **settings)
    model.hold(batch)
    t = np.linspace(-6.0, 6.0, 401)
    V = torch.as_tensor(np.stack(np.meshgrid(t, t, indexing="ij"), -1).reshape(-1, 2, 1))
    kernels, likelihood = model.logarithms.components(torch.zeros(0))
    (F,) = model.propagate(V, kernels)
    ell = model.log_likelihood(F, kernels[-1], likelihood).numpy()
    log_weights = ell - 0.5 * V.square().sum((1, 2)).numpy() + 2.0 * np.log(t[1] - t[0])
    log_z = np.logaddexp.reduce(log_weights) - np.log(2.0 * np.pi)
    f1, f2 = F[:, 0, 0].numpy(), F[:, 1, 0].numpy()
    functions = np.stack([f1**2, f1 * f2, (f1 - f2) ** 2, ell], -1)
    weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
    return model, batch, weights @ functions, log_z


def test_posterior_and_marginal_likelihood_of_two_points():
    model, batch, expected, log_z = two_points()
    run(model, batch, 90)
    v = torch.stack(model.kept["v"], 1)
    kernels, _ = model.logarithms.components(torch.zeros(0))
    (F,) = model.propagate(v.flatten(0, 1), kernels)
    f1, f2 = F[:, 0, 0].view(100, -1), F[:, 1, 0].view(100, -1)
    ell = torch.stack(model.kept["log_lik"], 1)[..., 0]
    z = z_scores(torch.stack([f1**2, f1 * f2, (f1 - f2) ** 2, ell], -1), expected)
    assert np.abs(z).max() < 3.5
    posterior = model.posterior(model.draws(1, 0))
    levels, powers = posterior.log_likelihoods.numpy(), posterior.powers.numpy()
    estimate, error = free_energy(levels, powers)
    assert abs(estimate - log_z) < 3.5 * error
    assert error < 0.03


@pytest.mark.parametrize(
    "case",
    [
        "two units, hyperparameters", "three layers", "linear means, connected", "classes",
        "neighbors, hyperparameters", "neighbors, three layers",
    ],
)  # fmt: skip
def test_joint_draws_keep_the_prior(case):
    # Geweke (2004): states from the prior, targets given them, and steps given the targets: still the prior
    X = np.array([[-1.0], [0.2], [0.9]])
    settings = {
        "two units, hyperparameters": {"widths": (2,), "hyperparameters": "sample"},
        "three layers": {"widths": (1, 2)},
        "linear means, connected": {"widths": (1, 1), "linear_mean": True, "connected": True},
        "classes": {"widths": (1,), "likelihood": Bernoulli()},
        "neighbors, hyperparameters": {"hyperparameters": "sample", "n_neighbors": 1},
        "neighbors, three layers": {"widths": (1, 2), "n_neighbors": 1},
    }[case]
    model, batch = make(X, np.zeros((3, 1)), n_chains=1, n_burn_in=10**6, **settings)
    generator, hyper = torch.Generator().manual_seed(3), model.logarithms
    model.step(batch, generator)  # takes the rows
    found = []
    for _ in range(100):
        v, phi = model._prior(1, generator)
        kernels, likelihood = hyper.components(phi[0])
        F = model.propagate(v, kernels)[-1]
        if case == "classes":
            y = likelihood.sample(F, generator)[0]
        elif case.startswith("neighbors"):
            root = model.observed_root(F, kernels[-1], likelihood)[:, 0]
            y = root.product(normal((1, 3, 1), generator, F))[0]
        else:
            H = model.beside(F, len(model.widths))[0]
            E = kernels[-1](H, H) + torch.as_tensor(likelihood.variance) * torch.eye(3)
            y = torch.linalg.cholesky(E) @ normal((3, 1), generator, E)
        model._set_rows((model.rows[0], y, batch.weight))
        states = {"v": v, "phi": phi, "log_lik": model.evaluate(v, phi)}
        model.chains = {name: x[:, None] for name, x in states.items()}
        for _ in range(2):
            model.step(batch, generator)
        phi = (model.chains["phi"][0, 0] - hyper.center) / hyper.spread
        found.append(torch.cat([model.chains["v"].flatten(), phi]))
    x = torch.stack(found)
    moments = torch.cat([x, x.square() - 1.0, x[:, :-1] * x[:, 1:]], 1).numpy()
    z = moments.mean(0) / (moments.std(0) / np.sqrt(len(moments)))
    assert np.abs(z).max() < 4.0  # of some thirty


def test_signs_and_rotations():
    rng = np.random.default_rng(0)
    model, batch = make(rng.standard_normal((5, 2)), rng.standard_normal((5, 1)), widths=(3,))
    model.hold(batch)
    V, phi = torch.as_tensor(rng.standard_normal((1, 5, 3))), torch.zeros(1, 0)
    Q = torch.as_tensor(np.linalg.qr(rng.standard_normal((3, 3)))[0])
    value = model.evaluate(V, phi)
    np.testing.assert_allclose(model.evaluate(V @ Q, phi), value, rtol=1e-12)
    with torch.no_grad():
        model.kernels[1].log_lengthscale.copy_(torch.tensor([0.0, 1.0, 2.0]))
    model.logarithms.refresh()
    value = model.evaluate(V, phi)
    sign = torch.tensor([-1.0, 1.0, -1.0])
    np.testing.assert_allclose(model.evaluate(V * sign, phi), value, rtol=1e-12)
    assert abs(float(model.evaluate(V @ Q, phi) - value)) > 0.01


def test_flips_change_signs_of_columns_only():
    model, batch = make(np.arange(4.0)[:, None], np.ones((4, 1)), widths=(3,), n_chains=50)
    model.hold(batch)
    v = torch.randn(50, 4, 3, generator=torch.Generator().manual_seed(0)).double()
    ratio = model._flip(v, torch.Generator().manual_seed(1)) / v
    assert (ratio == ratio[:, :1]).all()
    assert ((ratio[:, 0] == -1.0).sum(1) == 1).all()


def test_constant_hidden_layer():
    y = np.array([[0.3], [-1.0], [0.4]])
    model, batch = make(np.arange(3.0)[:, None], y, lengthscale=1e7)
    model.hold(batch)
    with torch.no_grad():
        model.kernels[1].log_lengthscale.zero_()
    V = torch.tensor([0.7, 0.0, 0.0]).double().view(1, 3, 1)
    cov = np.ones((3, 3)) + 0.1 * np.eye(3)
    a = np.linalg.solve(cov, y)
    expected = -0.5 * (y * a).sum() - 0.5 * np.linalg.slogdet(2.0 * np.pi * cov)[1]
    assert float(model.evaluate(V, torch.zeros(1, 0))) == pytest.approx(expected, abs=1e-5)


def test_rows_that_count_twice():
    X, y = np.array([[0.0], [1.0], [1.0]]), np.array([[0.5], [-0.3], [-0.3]])
    model, batch = make(X, y, widths=())
    other, _ = make(X, y, widths=())
    model.hold(batch)
    weight = torch.tensor([1.0, 2.0]).double()
    other.hold(batch._replace(X=batch.X[:2], y=batch.y[:2], weight=weight, total=3.0))
    nothing = torch.zeros(1, 2, 0), torch.zeros(1, 0)
    np.testing.assert_allclose(other.evaluate(*nothing), model.evaluate(*nothing), rtol=1e-9)


def test_exact_process_without_hidden_layers():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((6, 2)), rng.standard_normal((6, 2))
    model, batch = make(X, y, widths=(), n_samples=4)
    run(model, batch, 8)
    x, kernel = rng.standard_normal((3, 2)), SquaredExponential(np.ones(2))
    mean, var = latents(model, torch.as_tensor(x))
    expected = condition(lambda *A: kernel(*map(torch.as_tensor, A)).numpy(), X, y, x, 0.1)
    np.testing.assert_allclose(mean[0], expected[0], atol=1e-10)
    np.testing.assert_allclose(var[-1].T, np.tile(np.diag(expected[1]), (2, 1)), atol=1e-10)


@pytest.mark.parametrize("kind", ["regression", "classes"])
def test_predictions_of_rows_and_functions(kind):
    rng = np.random.default_rng(2)
    X = rng.uniform(-2.0, 2.0, (8, 1))
    y = np.sin(2.0 * X) if kind == "regression" else (X > 0.0).astype(float)
    settings = {"hyperparameters": "sample", "n_tempering": 2, "n_samples": 16, "n_chains": 2}
    likelihood = None if kind == "regression" else Bernoulli()
    model, batch = make(X, y, (1,), likelihood, n_burn_in=20, spacing=2, **settings)
    run(model, batch, 40)
    assert model.finished
    Xs = torch.linspace(-2.5, 2.5, 4).double()[:, None]
    _, mean = check_chains(model, Xs, 16, 96)
    again = copy.deepcopy(model)
    again.load_state(model.state())
    np.testing.assert_allclose(latents(again, Xs, 64)[0], mean, rtol=1e-12)


def test_functions_have_the_moments_of_one_state():
    # one state, and no hidden layer: functions are those of an exact process
    X, y = np.array([[-1.0], [0.0], [1.0]]), np.array([[0.5], [-0.3], [0.4]])
    model, batch = make(X, y, widths=(), n_samples=1, n_chains=1)
    run(model, batch, 4)
    frozen, Xs = posterior(model), torch.tensor([[-0.5], [2.0]]).double()
    latent = frozen.latent(Xs)
    frozen.n_features = 200
    mean, deviation = frozen.functions(1000, torch.Generator().manual_seed(0))(Xs)
    np.testing.assert_allclose(mean, latent.mean.expand(1000, -1, -1), atol=1e-10)
    se = (2.0 / 1000.0) ** 0.5
    np.testing.assert_allclose(deviation.square().mean(0), latent.var[0], rtol=4.0 * se + 0.02)


def test_a_killed_chain_goes_on_exactly():
    X, y = np.linspace(-1.0, 1.0, 6)[:, None], np.ones((6, 1))
    settings = {"hyperparameters": "sample", "n_tempering": 3, "n_samples": 8, "n_burn_in": 4,
                "spacing": 2, "n_chains": 2}  # fmt: skip
    check_resumed(lambda: make(X, y, **settings)[0], everything(X, y), 12, [7])


def test_what_has_been_sampled_predicts():
    model, batch = make(np.zeros((2, 1)), np.ones((2, 1)), n_samples=40, n_burn_in=2, spacing=1)
    with pytest.raises(ValueError, match="no step of a chain"):
        model.posterior(model.draws(1, 0))
    run(model, batch, 1)
    assert len(model.posterior(model.draws(1, 0)).latent(batch.X).mean) == 4
    assert "burn-in" in model.unfinished
    run(model, batch, 3)
    assert len(model.posterior(model.draws(1, 0)).latent(batch.X).mean) == 8
    assert "8 of 40" in model.unfinished


def test_bad_input():
    model, batch = make(np.zeros((501, 1)), np.zeros((501, 1)))
    with pytest.raises(ValueError, match="at most 500"):
        model.step(batch, torch.Generator())
    with pytest.raises(ValueError, match="all rows"):
        model.step(batch._replace(scale=2.0), torch.Generator())
