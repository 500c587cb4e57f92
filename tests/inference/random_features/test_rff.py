"""Random features: limits, identities, gradients and steps."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import toys
from oracles import check_gradients, in_standard_errors, of_mixture
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from torch.distributions import MultivariateNormal, Normal, kl_divergence
from toys import (
    architecture,
    check_progress,
    check_settings,
    draw_functions,
    everything,
    jump_to_optimum,
    latents,
    run,
    seeded,
    toy,
)

from skdgp.gp.gaussian import DiagonalBlock
from skdgp.gp.kernels import Linear, SquaredExponential
from skdgp.gp.likelihoods import Bernoulli, Gaussian, HeteroscedasticGaussian, Softmax, StudentT
from skdgp.inference import RandomFeatures
from skdgp.inference.random_features import rff
from skdgp.inference.random_features.features import draw_frequencies
from skdgp.inference.random_features.products import (
    CosSin,
    CosSinMoments,
    LocalMoments,
    QuadraticForms,
)
from skdgp.linalg import workspace
from skdgp.optim.gradient_steps import SLOW
from skdgp.random import normal

NOISE = 0.1
bound = partial(toys.bound, averaged=False)
FREQUENCIES = ("fixed", "variational", "resampled")
tensor = partial(torch.tensor, dtype=torch.float64)


def data(n=12, n_features=2, seed=0):
    return toy(n, n_features, seed=seed)


def make(
    widths=(),
    n_features=8,
    *,
    kernel="squared_exponential",
    likelihood=None,
    n_latents=1,
    linear_mean=True,
    connected=False,
    random_q=False,
    seed=0,
    **settings,
):
    """A model of two inputs; with `random_q`, posteriors have no special values."""
    likelihood = Gaussian(np.full(n_latents, NOISE)) if likelihood is None else likelihood
    shape = {"linear_mean": linear_mean, "connected": connected}
    shape = architecture(widths, n_latents, n_features, kernel, **shape)
    model = RandomFeatures(**settings).build(shape, likelihood)
    rng = np.random.RandomState(seed)
    model.start(rng.standard_normal((30, 2)), np.ones(30), rng)
    if random_q:
        generator = seeded(seed)
        with torch.no_grad():
            for block in model.blocks():
                block.mean.add_(normal(block.mean.shape, generator, block.mean))
                if isinstance(block, DiagonalBlock):
                    block.rho.copy_(0.3 * normal(block.rho.shape, generator, block.rho) - 2.0)
                else:
                    root = 0.2 * normal(block.root.shape, generator, block.root).tril()
                    block.root.copy_(root + 0.5 * torch.eye(root.shape[-1]))
    return model


def features(layer, *arrays):
    """Features of rows, in units of the kernel's deviation."""
    with torch.no_grad():
        found = [layer.basis(None, X)(X) for X in arrays]
        return [c2.sqrt() * Phi for Phi, c2 in found]


# One layer


def test_one_layer_is_bayesian_linear_regression():
    X, y = data()
    model = make()
    batch = everything(X, y)
    jump_to_optimum(model, batch, seeded())
    X_new = data(5, seed=1)[0]
    Phi, Phi_new = features(model.layers[0], X, X_new)
    C = Phi @ Phi.T + NOISE * torch.eye(len(X)).double()
    evidence = MultivariateNormal(torch.zeros(len(X)).double(), C).log_prob(y[:, 0])
    assert abs(bound(model, batch) - float(evidence)) < 1e-8
    K = Phi_new @ Phi.T
    mean, var = latents(model, X_new)
    torch.testing.assert_close(mean[0], K @ torch.linalg.solve(C, y))
    cov = Phi_new @ Phi_new.T - K @ torch.linalg.solve(C, K.T)
    torch.testing.assert_close(var[0, :, 0], cov.diagonal())
    # and draws of functions have the covariances of all rows
    f = draw_functions(model, 40_000, seeded())(X_new)[..., 0]
    np.testing.assert_allclose(f.T.cov(), cov, atol=4 * 1.5 * float(cov.max()) / 200)
    np.testing.assert_allclose(f.mean(0), mean[0, :, 0], atol=4 * float(cov.max()) ** 0.5 / 200)


def test_many_features_are_the_exact_gp():
    """Item 18, in the space of functions, where many features cost little."""
    X, y = data(30)
    X_new = data(20, seed=1)[0]
    Phi, Phi_new = features(make(n_features=2**14, covariance="diagonal").layers[0], X, X_new)
    kernel = ConstantKernel(1.0) * RBF(math.sqrt(2))
    exact = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(X, y)
    mean, std = exact.predict(X_new, return_std=True)
    C, K = Phi @ Phi.T + NOISE * torch.eye(len(X)).double(), Phi_new @ Phi.T
    np.testing.assert_allclose((K @ torch.linalg.solve(C, y)).ravel(), mean.ravel(), atol=1e-2)
    var = 1.0 - (K * torch.linalg.solve(C, K.T).T).sum(1)
    np.testing.assert_allclose(var.sqrt(), std, atol=1e-2)
    evidence = MultivariateNormal(torch.zeros(len(X)).double(), C).log_prob(y[:, 0])
    assert float(evidence) == pytest.approx(exact.log_marginal_likelihood(), rel=1e-2)


def learned(model):
    """All parameters but those that change slowly."""
    return [one.parameter for one in model.hyperparameters() if one.role not in SLOW]


def test_a_full_covariance_is_never_worse():
    X, y = data()
    batch, bounds = everything(X, y), {}
    for covariance in ("full", "diagonal"):
        model = make(covariance=covariance, natural_step=1.0)
        model.learning_rate = 0.03
        for parameter in learned(model):
            parameter.requires_grad_(False)
        for _ in range(8 if covariance == "full" else 2000):
            model.step(batch, seeded())
        bounds[covariance] = bound(model, batch)
        if covariance == "full":
            A = torch.linalg.inv(model.layers[0].q.root[0] @ model.layers[0].q.root[0].T)
    # what independent weights lose is known
    gap = 0.5 * float(A.diagonal().log().sum() - torch.logdet(A))
    assert bounds["full"] - bounds["diagonal"] == pytest.approx(gap, abs=2e-3)


# The prior


@pytest.mark.parametrize("kernel", ["squared_exponential", "matern32", "matern52", "arc_cosine"])
def test_functions_of_the_prior_have_the_covariances_of_the_kernel(kernel):
    model = make(n_features=256, kernel=kernel, covariance="diagonal")
    layer = model.layers[0]
    with torch.no_grad():
        layer.q.rho.zero_()
        X = data(4)[0]
        K = layer.kernel()(X, X)
        f = sum(layer.functions(8000, 0, seeded())(X.expand(8000, 4, 2)))[..., 0]
        # a standard error is 0.016 of the largest
        np.testing.assert_allclose(f.T.cov(), K, atol=0.08 * float(K.max()))
        mean, var = layer.moments(X)
    torch.testing.assert_close(mean, torch.zeros_like(mean))
    np.testing.assert_allclose(var[:, 0], K.diagonal(), rtol=1e-9 if layer.trigonometric else 0.1)


def test_two_layers_of_the_prior_are_those_of_gaussian_processes():
    """Item 20: second and fourth moments of the composition, against exact draws on the rows."""
    n, X = 8000, data(4)[0]
    model = make((2,), n_features=256, linear_mean=False, covariance="diagonal")
    with torch.no_grad():
        for layer in model.layers:
            layer.q.mean.zero_()
            layer.q.rho.zero_()
        f = draw_functions(model, n, seeded())(X)[..., 0]
        kernels = [layer.kernel() for layer in model.layers]
        jitter = 1e-9 * torch.eye(4).double()
        L = torch.linalg.cholesky(kernels[0](X, X) + jitter)
        H = L @ normal((n, 4, 2), seeded(6), X)
        r2 = ((H[:, :, None] - H[:, None]) / kernels[1].lengthscale).square().sum(-1)
        L = torch.linalg.cholesky(torch.exp(-0.5 * r2) + jitter)
        g = (L @ normal((n, 4, 1), seeded(7), X))[..., 0]
    for power in (1, 2):
        a, b = ((x[:, :, None] * x[:, None]) ** power for x in (f, g))
        z = (a.mean(0) - b.mean(0)) / ((a.var(0) + b.var(0)) / n).sqrt()
        assert z.abs().max() < 4.5


# Frequencies


def test_variational_frequencies_start_as_fixed_ones():
    X, y = data()
    fixed, variational = (make((2,), random_q=False, frequencies=f) for f in FREQUENCIES[:2])
    torch.testing.assert_close(fixed.layers[0].z, variational.layers[0].z)
    batch = everything(X, y)
    assert bound(fixed, batch) == pytest.approx(bound(variational, batch), rel=1e-12)
    assert float(variational.layers[0].q_omega.kl()) == 0.0


def test_resampled_frequencies_start_with_the_second_moments_of_the_prior():
    model = make(n_features=4096, frequencies="resampled")
    q = model.layers[0].q_omega
    second = (q.mean.square() + q.rho.exp()).mean().item()
    assert second == pytest.approx(1.0, abs=0.01)
    assert torch.allclose(q.rho.exp(), tensor(0.01))


def test_resampled_frequencies_are_fresh_in_every_draw():
    model = make((2,), frequencies="resampled", random_q=True)
    X = data()[0]
    mean, _ = latents(model, X, n=4)
    assert (mean[0] - mean[1]).abs().max() > 1e-6
    again = make((2,), frequencies="resampled")
    again.load_state(model.state())
    torch.testing.assert_close(latents(again, X, n=4)[0], mean, rtol=0, atol=0)
    assert (latents(again, X, n=4, seed=1)[0] - mean).abs().max() > 1e-6


@pytest.mark.parametrize(("n_inputs", "n"), [(2, 32), (2, 128), (8, 128), (15, 32), (30, 128)])
def test_chosen_frequencies_are_better_than_independent_ones(n_inputs, n):
    rng = np.random.RandomState(0)
    X = rng.standard_normal((60, n_inputs)) / math.sqrt(n_inputs)
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1))
    errors = {}
    for sampling in ("auto", "independent"):
        squares = []
        for _ in range(20):
            A = X @ draw_frequencies(n_inputs, n, rng, sampling)
            estimate = (np.cos(A) @ np.cos(A).T + np.sin(A) @ np.sin(A).T) / n
            squares.append(((estimate - K) ** 2).mean())
        errors[sampling] = math.sqrt(np.mean(squares))
    assert errors["auto"] < 0.7 * errors["independent"]


def test_kernels_without_features_are_refused():
    with pytest.raises(ValueError, match="has no random features of Linear kernels; choose Sq"):
        make(kernel=Linear())


# Gradients


def test_gradients_of_the_parts():
    def random(*shape, seed=0):
        return normal(shape, seeded(seed), tensor(0.0)).requires_grad_()

    def same(ours, plain, *parts):
        """Values and gradients of an arbitrary function of the outputs, and memory used again."""

        def results(function, again=False):
            outputs = function(*parts)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            total = sum((i + 1.0) * out.sin().square().sum() for i, out in enumerate(outputs))
            if again:
                torch.autograd.grad(total, parts, retain_graph=True)
            return outputs, torch.autograd.grad(total, parts)

        expected = results(plain)
        torch.testing.assert_close(results(ours, again=True), expected)
        with workspace():
            for _ in range(3):
                torch.testing.assert_close(results(ours), expected)

    same(CosSin.apply, lambda A: torch.cat([A.cos(), A.sin()], -1), random(3, 4))
    for shape in ((5, 4), (3, 5, 4)):
        parts = random(*shape), random(4, 2, seed=1), random(4, 2, seed=2)
        same(LocalMoments.apply, lambda Phi, m, v: (Phi @ m, Phi.square() @ v), *parts)

        def plain(A, m, v):
            Phi = torch.cat([A.cos(), A.sin()], -1)
            return Phi @ m, Phi.square() @ v

        same(CosSinMoments.apply, plain, random(*shape), random(8, 2, seed=1), random(8, 2, seed=2))
    same(
        lambda Phi, Q: QuadraticForms.apply(Phi, Q + Q.mT),
        lambda Phi, Q: torch.einsum("pi,dij,pj->pd", Phi, Q + Q.mT, Phi),
        random(5, 4),
        random(2, 4, 4, seed=1),
    )


def test_divergence_and_gradients_of_a_diagonal_block():
    block = DiagonalBlock(3, 2)
    with torch.no_grad():
        block.mean.copy_(normal((3, 2), seeded(), block.mean))
        block.rho.copy_(normal((3, 2), seeded(6), block.rho))
    posterior = Normal(block.mean, (0.5 * block.rho).exp())
    divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum()
    torch.testing.assert_close(block.kl(), divergence.detach())

    def objective(mean, var):
        return (mean.sin() * var.square()).sum()

    total = objective(block.mean, block.rho.exp()) + 0.3 * divergence
    expected = torch.autograd.grad(total, [block.mean, block.rho])
    objective(*block.moments()).backward()
    block.set_gradients(0.3)
    torch.testing.assert_close((block.mean.grad, block.rho.grad), expected)


@pytest.mark.parametrize("frequencies", FREQUENCIES)
@pytest.mark.parametrize("kernel", ["matern32", "arc_cosine"])
def test_the_gradient_of_the_bound_by_differences(frequencies, kernel):
    batch = everything(*data(6))
    settings = {"covariance": "diagonal", "connected": True, "random_q": True, "n_draws": 2}
    model = make((2,), 4, kernel=kernel, frequencies=frequencies, **settings)
    (-model.expected_log_likelihood(batch, seeded())).backward()
    for block in model.blocks():
        block.set_gradients(1.0)
    check_gradients(
        lambda: -bound(model, batch), model.named_parameters(), rtol=1e-4, atol=1e-4,
        directions=lambda p: normal((1, *p.shape), seeded(), p.detach()),
    )  # fmt: skip


# Draws


def test_weights_that_are_drawn_have_the_local_moments():
    """Item 19: in the mean over draws of weights, mean and variance of every row are the local ones."""
    for covariance in ("full", "diagonal"):
        model = make(random_q=True, covariance=covariance)
        layer, X, n = model.layers[0], data()[0], 20_000
        with torch.no_grad():
            mean, var = layer.moments(X)
            f = sum(layer.functions(n, 0, seeded())(X.expand(n, *X.shape)))
        assert of_mixture(f, mean[None], var[None]) < 4.5


def test_steps_with_drawn_weights_have_the_same_gradients_on_average():
    X, y = data(6)
    model, batch = make((2,), 4, random_q=True), everything(X, y)
    with torch.no_grad():
        model.layers[0].q.rho.fill_(-30.0)  # no other noise

    def gradients(n_steps, seed):
        model.steps.n_made = n_steps
        model.zero_grad()
        model.expected_log_likelihood(batch, seed).backward()
        return torch.cat([p.grad.clone().ravel() for p in learned(model)])

    exact = gradients(0, seeded())
    generator = seeded()
    drawn = torch.stack([gradients(51, generator) for _ in range(1000)])
    assert drawn.std(0).min() > 0.0
    assert in_standard_errors(drawn, exact) < 4.5


@pytest.mark.parametrize(
    ("frequencies", "widths"),
    [
        ("fixed", ()),
        ("fixed", (1, 2)),
        ("variational", (2,)),
        ("variational", (1, 2)),
        ("resampled", ()),
        ("resampled", (1, 2)),
    ],
)
def test_functions_have_the_moments_of_the_predictive(widths, frequencies):
    X, n = data(3)[0], 20_000
    model = make(widths, frequencies=frequencies, random_q=True)
    f = draw_functions(model, n, seeded())(X)
    # resampled frequencies are independent draws in the predictive, too
    n = n if frequencies != "resampled" else n * 4096 / (n + 4096)
    assert of_mixture(f, *latents(model, X, n=4096), n=n) < 4.5


# Steps


@pytest.mark.parametrize(
    ("frequencies", "likelihood"),
    [("fixed", None), ("variational", None), ("resampled", None),
     ("fixed", HeteroscedasticGaussian(np.array([0.1]))), ("resampled", Bernoulli()), ("fixed", Softmax()),
     ("variational", StudentT(np.array([4.0]), np.array([0.3])))],
    ids=["fixed", "variational", "resampled", "heteroscedastic", "probit", "softmax", "student_t"],
)  # fmt: skip
def test_steps_make_progress(frequencies, likelihood):
    X, y = data(30)
    n_latents = 2 if isinstance(likelihood, Softmax | HeteroscedasticGaussian) else 1
    if likelihood is not None and likelihood.is_class:
        y = (y > 0.0).double()
    settings = {"likelihood": likelihood, "n_latents": n_latents, "frequencies": frequencies}
    for covariance in ("full", "diagonal"):
        model = make((2,), 16, covariance=covariance, n_draws=2, **settings)
        check_progress(model, everything(X, y), 80, 5.0)


def test_hidden_layers_without_a_mean_function_do_not_start_at_a_saddle():
    X, y = data(30)
    batch = everything(X, y)
    gradients = []
    for saddle in (False, True):
        model = make((3,), 16, linear_mean=False)
        if saddle:
            with torch.no_grad():
                model.layers[0].q.mean.zero_()
        generator = seeded()
        for _ in range(20):  # natural steps alone: the last layer finds its place
            model.expected_log_likelihood(batch, generator).backward()
            q = model.layers[-1].q
            q.natural_step(q.collected_gradients(), 0.3)
        model.expected_log_likelihood(batch, generator).backward()
        gradients.append(float(model.layers[0].q._leaves[0].grad.norm()))
    assert gradients[0] > 5.0 * gradients[1]


def test_the_last_layer_is_lazy():
    X, y = data()
    batch, generator = everything(X, y), seeded()
    model = make((2,))
    q, moved = model.layers[-1].q, []
    for _ in range(60):
        before = q.root.detach().clone(), q.mean.detach().clone()
        model.step(batch, generator)
        moved.append([not torch.equal(a, b) for a, b in zip(before, (q.root, q.mean))])
    assert moved == [[i < 50 or i % 5 == 0] * 2 for i in range(60)]


def test_a_lazy_step_goes_as_far_as_those_it_stands_for(monkeypatch):
    X, y = data()
    batch, precisions = everything(X, y), []
    for every in (1, 3):
        monkeypatch.setattr(rff, "_EVERY", every)
        model = make((2,))
        model.learning_rate, model.steps.n_made = 0.0, 51  # nothing else moves
        with torch.no_grad():
            model.layers[0].q.rho.fill_(-60.0)
        for _ in range(3):
            model.step(batch, seeded())
        precisions.append(model.layers[-1].q.precision())
    torch.testing.assert_close(*precisions, rtol=1e-6, atol=1e-6)


def test_a_lazy_layer_that_is_alone_is_not():
    X, y = data()
    model = make(
        kernel=SquaredExponential(trainable=False),
        likelihood=Gaussian(np.array([NOISE]), trainable=False),
    )
    batch, expected = everything(X, y), make()
    loss = run(model, batch, 120)[-1]
    assert loss == pytest.approx(-bound(model, batch) / len(X), abs=1e-6)
    jump_to_optimum(expected, batch, seeded())
    assert loss == pytest.approx(-bound(expected, batch) / len(X), abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_of_training(dtype):
    X, y = data(30)
    model = make((2,), 16, frequencies="variational")
    model.prepare(0.02, dtype)
    losses = run(model, everything(X.to(dtype), y), 60, seeded())
    assert model.layers[0].q.mean.dtype == dtype
    assert math.isfinite(losses[-1])
    assert latents(model, X)[0].dtype == torch.float64


def test_every_setting_changes_the_predictions():
    X, y = data()

    def predictions(**settings):
        model = make((2,), **settings)
        run(model, everything(X, y), 54, seeded())
        return latents(model, X)[0]

    settings = [
        {"n_features": 9},
        {"frequencies": "variational"},
        {"frequencies": "resampled"},
        {"sampling": "independent"},
        {"sampling": "orthogonal"},
        {"covariance": "diagonal"},
        {"natural_step": 0.3},
        {"n_draws": 3},
        {"linear_mean": False},
        {"connected": True},
    ]
    check_settings(predictions, settings, 1e-6)
