"""Stochastic gradient Hamiltonian Monte Carlo against Gaussians that are known, and elliptical slices."""

import numpy as np
import pytest
import torch
from toys import (
    architecture,
    check_chains,
    check_resumed,
    everything,
    latents,
    run,
)

from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Bernoulli, Gaussian, HeteroscedasticGaussian, Softmax
from skdgp.inference.base import Architecture
from skdgp.inference.elliptical_slice import EllipticalSlice
from skdgp.inference.sghmc import SGHMC
from skdgp.inference.sghmc.dynamics import adaptive_step, fresh


def make(n=60, n_inducing=8, widths=(), likelihood=None, *, noise=0.05, y=None, k=1, seed=0, trainable=True,
         **settings):  # fmt: skip
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-2.0, 2.0, (n, 1)), 0)
    if y is None:
        y = np.sin(2.0 * X) + noise**0.5 * rng.standard_normal((n, k))
    kernel = SquaredExponential(0.7, trainable=trainable)
    likelihood = Gaussian(np.full(k, noise), trainable) if likelihood is None else likelihood
    shape = architecture(widths, likelihood.n_latents(k), n_inducing, kernel, n_features=1)
    scheme = SGHMC(**{"n_learn": 0, "spacing": 5, **settings})
    scheme.validate()
    model = scheme.build(shape, likelihood)
    with torch.no_grad():
        for layer in model.layers:
            layer.Z.copy_(torch.linspace(-2.0, 2.0, n_inducing)[:, None])
            if layer.W is not None:
                layer.W.fill_(1.0)
    return model, everything(X, y)


def exact(model, batch):
    """Mean and covariance of the inducing outputs of one layer."""
    _, A, variance = model.propagate(batch.X, [], [], [layer.whitening() for layer in model.layers])
    _, L, b = model.integrated(A, variance, batch)
    cov = torch.cholesky_inverse(L[0, 0]).detach()
    return (cov @ b[0, 0].detach())[:, 0], cov


def divergence(v, mean, cov):
    """KL divergence of the Gaussian with the moments of draws (S, M) from the exact one."""
    found, off = torch.cov(v.T), v.mean(0) - mean
    ratio = torch.linalg.solve(cov, found)
    quadratic = off @ torch.linalg.solve(cov, off)
    return 0.5 * float(ratio.trace() - len(mean) - torch.logdet(ratio) + quadratic)


def of_independent_draws(n, mean, cov, quantile):
    draws = torch.distributions.MultivariateNormal(mean, cov)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = [divergence(draws.sample((n,)), mean, cov) for _ in range(100)]
    return float(np.quantile(found, quantile))


@pytest.mark.parametrize("target", ["marginal", "variational"])
@pytest.mark.parametrize("last_layer", ["exact", "sampled"])
def test_one_layer_is_the_exact_gaussian(target, last_layer):
    settings = {"n_samples": 1000, "n_burn_in": 300, "spacing": 36} if last_layer == "sampled" else {
        "n_samples": 1000, "n_burn_in": 0, "spacing": 1}  # fmt: skip
    model, batch = make(target=target, last_layer=last_layer, n_chains=50, **settings)
    run(model, batch, settings["n_burn_in"] + 20 * settings["spacing"])
    assert model.finished
    assert model.integrates == (last_layer == "exact")
    mean, cov = exact(model, batch)
    found = divergence(model.states()["v0"][..., 0], mean, cov)
    assert found < 2.0 * of_independent_draws(1000, mean, cov, 0.5)


def test_published_constants_fail_where_the_prior_decides():
    # full gradients of the same target in closed form, with the published schedule
    model, batch = make()
    mean, cov = exact(model, batch)
    H, generator = torch.linalg.inv(cov), torch.Generator().manual_seed(0)
    v, n, kept = torch.zeros(8, 1).double(), len(batch.X), []
    state = fresh(v)
    for step in range(15_000):
        noise = torch.randn(8, 1, generator=generator, dtype=torch.float64)
        grad = (H @ (v[:, 0] - mean))[:, None] / n
        v, state = adaptive_step(v, state, grad, noise, n, 0.01, 0.05, step < 10_000)
        if step >= 10_000 and step % 50 == 49:
            kept.append(v[:, 0])
    found = divergence(torch.stack(kept), mean, cov)
    assert found > 2.0 * of_independent_draws(100, mean, cov, 0.95)
    published = SGHMC.published()
    assert published.max_iter(1000) == 15_000
    published.validate()


def test_coordinates_are_those_of_the_exact_precision():
    model, batch = make(last_layer="sampled", n_burn_in=10**6)
    run(model, batch, 1)
    generator, F = torch.Generator().manual_seed(1), 0.0
    for _ in range(60):
        model._n_looks = 0  # which makes the next look the only one
        model._inform(batch, generator)
        F = F + model._memory["0.fisher"][0] / 60
    _, cov = exact(model, batch)
    exact_F = torch.linalg.inv(cov) - torch.eye(8)
    # squares of scores have relative deviations of 1.4; there are 60 looks of four chains at each row
    np.testing.assert_allclose(F.diagonal(), exact_F.diagonal(), rtol=4.0 * (2.0 / 240.0) ** 0.5)


def test_minibatches_have_their_noise_taken_off():
    model, batch = make(
        last_layer="sampled", n_chains=60, n_samples=1200, n_burn_in=300, spacing=20
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(300 + 400):
        i = torch.randperm(60, generator=generator)[:20]
        part = batch._replace(X=batch.X[i], y=batch.y[i], weight=batch.weight[i], scale=3.0)
        model.step(part, generator)
    mean, cov = exact(model, batch)
    v, root = model.states()["v0"][..., 0] - mean, torch.linalg.cholesky(cov)
    whitened = torch.linalg.solve_triangular(root, v.T, upper=False)
    # without the correction, 1.18 by the formula of the stationary law at s^2 = 3
    assert float(whitened.square().mean()) == pytest.approx(1.0, abs=0.08)


def test_two_layers_agree_with_elliptical_slices():
    # inducing inputs at all rows in the first layer and a dense grid in the second make both the same model
    n = 8
    model, batch = make(n, n, (1,), n_chains=50, n_samples=50 * 15, n_burn_in=200, spacing=20)
    with torch.no_grad():
        model.layers[0].Z.copy_(batch.X)
        last = model.layers[1]
        last.Z = torch.nn.Parameter(torch.linspace(-5.0, 5.0, 24).double()[:, None])
    run(model, batch, 200 + 15 * 20)
    v = model.states()["v0"]
    shape = Architecture(1, (1,), 1, 0, [k.kernel.component for k in model.layers], True, False)
    scheme = EllipticalSlice(1, "fixed", n_chains=50, n_samples=50 * 30, n_burn_in=60, spacing=4)
    slices = scheme.build(shape, Gaussian(np.array([0.05])))
    slices.start(batch.X.numpy(), np.ones(n), None)
    run(slices, batch, 180)
    w = slices.states()["v"]
    for a, b in ((v, w), (v.square(), w.square()), (v[:, :-1] * v[:, 1:], w[:, :-1] * w[:, 1:])):
        means = [x[..., 0].unflatten(0, (50, -1)).mean(1) for x in (a, b)]  # of each chain
        error = sum(m.var(0) / 50 for m in means).sqrt()
        assert float(((means[0].mean(0) - means[1].mean(0)) / error).abs().max()) < 4.0


def test_draws_of_hidden_noise_come_closer_to_the_likelihood():
    # Jensen: the logarithm of a mean over more draws is larger on average
    found = []
    for n_draws in (1, 20):
        model, batch = make(20, 4, (1,), n_hidden_draws=n_draws, n_burn_in=10**6)
        run(model, batch, 1)
        assert model.integrates == (n_draws == 1)
        model.integrates = False
        v = [torch.zeros(4, 4, 1).double()] * 2
        R = [layer.whitening() for layer in model.layers]
        g = torch.Generator().manual_seed(0)
        values = [model.log_target(batch, v, model._draw_eps(batch, g), R) for _ in range(20)]
        found.append(torch.stack(values).mean())
    assert found[1] > found[0]


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (Bernoulli(), "two"),
        (Softmax(), "three"),
        (HeteroscedasticGaussian(np.array([0.05])), None),
    ],
    ids=["probit", "softmax", "heteroscedastic"],
)
def test_other_likelihoods(likelihood, y):
    X = np.sort(np.random.default_rng(0).uniform(-2.0, 2.0, (40, 1)), 0)
    targets = {"two": X > 0.0, "three": np.digitize(X, [-0.7, 0.7]), None: None}[y]
    k = 3 if y == "three" else 1
    targets = None if targets is None else targets.astype(float)
    model, batch = make(
        40, 6, (1,), likelihood, y=targets, k=k, n_learn=30, n_burn_in=60, n_samples=20, spacing=4,
        n_chains=2,
    )  # fmt: skip
    if y == "three":
        batch = batch._replace(y=batch.y[:, :1])
    run(model, batch, 130)
    assert model.finished
    posterior = model.posterior(model.draws(1, 0))
    mean = posterior.latent(batch.X).mean
    assert torch.isfinite(mean).all()
    if y == "two":
        assert float(mean[:, -1].mean() - mean[:, 0].mean()) > 1.0
    if y == "three":
        assert mean.mean(0)[[0, 20, -1]].argmax(1).tolist() == [0, 1, 2]


def test_learning_maximizes_the_marginal_likelihood_of_one_layer():
    # with the last layer integrated out there is nothing else to do
    model, batch = make(
        n_learn=400, n_burn_in=0, n_samples=4, spacing=1, noise=0.05, target="variational"
    )
    with torch.no_grad():
        model.likelihood.assign(variance=0.5)
    run(model, batch, 404)
    for p in model.parameters():
        p.requires_grad_(True)
    whitenings = [layer.whitening() for layer in model.layers]
    _, A, variance = model.propagate(batch.X, [], [], whitenings)
    value = model.integrated(A, variance, batch)[0].sum()
    names, parameters = zip(*model.named_parameters())
    slopes = dict(zip(names, torch.autograd.grad(value, parameters)))
    for name in names:
        if "log_" in name:
            assert float(slopes[name].abs().max()) < 0.3, name


def test_learned_inducing_inputs_keep_the_deviations_of_the_exact_process():
    model, batch = make(30, 30, trainable=False, noise=0.1, n_learn=400, n_burn_in=0, n_samples=4)
    with torch.no_grad():
        model.layers[0].Z.copy_(batch.X)
    run(model, batch, 401)
    _, cov = exact(model, batch)
    Xs = torch.linspace(-1.9, 1.9, 39).double()[:, None]
    A, variance = model.layers[0].project(Xs[None], model.layers[0].whitening())
    sd = (variance[0] + (A[0] * (cov @ A[0])).sum(0)).sqrt().detach()
    kernel = SquaredExponential(np.array([0.7]))
    K = kernel(batch.X, Xs)
    E = kernel(batch.X, batch.X) + 0.1 * torch.eye(30)
    ratio = sd / (1.0 - (K * torch.linalg.solve(E, K)).sum(0)).sqrt()
    assert 0.8 < float(ratio.min()) and float(ratio.max()) < 1.2


@pytest.mark.parametrize("scheme", [SGHMC(), SGHMC.published()], ids=["default", "published"])
def test_a_killed_chain_goes_on_exactly(scheme):
    settings = {**scheme.get_params(), "n_learn": 6, "n_burn_in": 4, "spacing": 2, "n_samples": 8}
    batch = make(12, 4, (1,), **settings)[1]
    check_resumed(lambda: make(12, 4, (1,), **settings)[0], batch, 16, [3, 8, 13])


def test_predictions_of_rows_and_functions():
    model, batch = make(30, 6, (2,), n_burn_in=50, n_samples=40, spacing=5, n_learn=20)
    run(model, batch, 20 + 50 + 50)
    Xs = torch.linspace(-2.5, 2.5, 5).double()[:, None]
    frozen, mean = check_chains(model, Xs, 40, 400)
    before = mean.clone()
    run(model, batch, 3)  # what is trained on does not change what was handed out
    np.testing.assert_array_equal(frozen.latent(Xs).mean, before)
    assert frozen.covariance(Xs) is None


def test_what_has_been_sampled_predicts():
    model, batch = make(20, 4, (1,), n_learn=5, n_burn_in=5, n_samples=40, spacing=1)
    run(model, batch, 3)
    assert len(latents(model, batch.X)[0]) == 4
    assert "burn-in" in model.unfinished
    run(model, batch, 9)
    assert len(latents(model, batch.X)[0]) == 8
    assert "8 of 40" in model.unfinished


def test_settings_that_depend_on_the_number_of_steps():
    scheme = SGHMC(n_samples=100).for_data(100, None, 1000)
    assert (scheme.n_learn, scheme.n_burn_in, scheme.spacing) == (400, 100, 20)


def test_rows_that_count_twice():
    model, batch = make(20, 4, (1,), n_burn_in=100)
    run(model, batch, 1)
    twice = batch._replace(**{k: torch.cat([getattr(batch, k)] * 2) for k in ("X", "y", "weight")})
    v, R = [torch.ones(4, 4, 1).double()], [layer.whitening() for layer in model.layers]
    eps = model._draw_eps(batch, torch.Generator().manual_seed(0))
    heavy = model.log_target(batch._replace(weight=2.0 * batch.weight), v, eps, R)
    both = model.log_target(twice, v, [torch.cat([e, e], 1) for e in eps], R)
    np.testing.assert_allclose(heavy.detach(), both.detach(), rtol=1e-10)
