"""Identities and limits of the structured posteriors, and Monte Carlo."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from oracles import in_standard_errors, of_mixture
from torch.distributions import MultivariateNormal, kl_divergence
from toys import draw_functions, everything, jump_to_optimum, latents, posterior, seeded, toy

from skdgp.gp.likelihoods import HeteroscedasticGaussian
from skdgp.random import normal

COUPLINGS = ["mean-field", "stripes-and-arrow", "full"]
close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-10)


def data(n=6, k=1, seed=0):
    return toy(n, k=k, seed=seed)


def draws(model, X, S=3, seed=5):
    generator = seeded(seed)
    return [normal((S, len(X), width), generator, X) for width in model.draw_widths()]


@torch.no_grad()
def filtered(model, x, eps):
    """Moments of the outputs for one row and one draw, by updating q(v) after every layer.

    Given the layers before, every layer is a Bayesian linear regression on `v` with known inputs.
    """
    m, C = model.q.mean.flatten(), model.q.dense_root()
    S, M, first, h = C @ C.T, model.q.mean.shape[1], 0, x
    for i, layer in enumerate(model.layers):
        if i and model.layers.input_connected:
            h = torch.cat([h, x])
        kernel, D = layer.kernel(), layer.n_outputs
        K = kernel(layer.Z, layer.Z) + layer.jitter * torch.eye(M)
        k = kernel(layer.Z, h[None])[:, 0]
        b = torch.linalg.solve(torch.linalg.cholesky(K), k)
        B = torch.zeros(D, len(m)).double()
        for t in range(D):
            B[t, (first + t) * M : (first + t + 1) * M] = b
        noise = kernel.diag(h[None]) - b @ b + layer.noise()
        mean = B @ m + (0.0 if layer.W is None else h @ layer.W)
        cov = B @ S @ B.T + noise * torch.eye(D)
        if i == len(model.layers) - 1:
            return mean, cov
        f = mean + torch.linalg.cholesky(cov) @ eps[i]
        gain = S @ B.T @ torch.linalg.inv(cov)
        m, S = m + gain @ (f - mean), S - gain @ B @ S
        first, h = first + D, f


@pytest.mark.parametrize(
    ("coupling", "widths", "input_connected"),
    [
        ("mean-field", (2,), True),
        ("mean-field", (3, 1, 2), False),
        ("stripes-and-arrow", (), False),
        ("stripes-and-arrow", (2,), False),
        ("stripes-and-arrow", (3, 3), True),
        ("stripes-and-arrow", (3, 1, 2), True),
        ("stripes-and-arrow", (1, 2, 3, 2), False),
        ("full", (2,), True),
        ("full", (3, 3), False),
        ("full", (3, 1, 2), True),
        ("full", (1, 2, 3, 2), True),
    ],
)
def test_the_recursion_filters_the_inducing_variables(
    make_structured, coupling, widths, input_connected
):
    X = data(3)[0]
    model = make_structured(widths, coupling, input_connected=input_connected)
    eps = draws(model, X)
    mean, var = model.propagate(X, eps)
    for s in range(len(mean)):
        for n in range(len(X)):
            expected, cov = filtered(model, X[n], [e[s, n] for e in eps])
            close(mean[s, n].detach(), expected)
            close(var[s, n].detach(), cov.diagonal())


@pytest.mark.parametrize("coupling", ["stripes-and-arrow", "full"])
@pytest.mark.parametrize("widths", [(2,), (3, 2)])
def test_several_outputs_are_independent_given_the_draws(make_structured, coupling, widths):
    X = data(2)[0]
    model = make_structured(widths, coupling, n_latents=3)
    *hidden, _ = draws(model, X, S=1)
    n = 100_000
    eps = [e.expand(n, *e.shape[1:]) for e in hidden]
    eps.append(normal((n, 2, 3), seeded(8), X))
    with torch.no_grad():
        mean, var = model.propagate(X, eps)
        each_mean, each_var = model.propagate(X, hidden)
    shared = 0.0
    for row in range(2):
        expected, cov = filtered(model, X[row], [e[0, row] for e in hidden])
        close(each_mean[0, row], expected)
        close(each_var[0, row], cov.diagonal())
        off = mean[:, row] - expected
        assert in_standard_errors(off, 0.0) < 4
        products = off[:, :, None] * off[:, None]
        assert in_standard_errors(products, cov - torch.diag(var[0, row])) < 4
        shared = max(shared, float((cov - cov.diagonal().diag()).abs().max()))
    assert shared > 0.01


@pytest.mark.parametrize("widths", [(), (2,), (3, 1, 2)])
@pytest.mark.parametrize("coupling", COUPLINGS)
def test_blocks_on_the_diagonal_are_the_mean_field(make_structured, make_model, widths, coupling):
    X, _ = data()
    model = make_structured(widths, coupling)
    other = make_model(2, widths, n_inducing=4, inner_noise=0.05)
    with torch.no_grad():
        model.q.root[len(model.q.mean) :] = 0.0
        for layer, twin in zip(model.layers, other.layers):
            twin.Z.copy_(layer.Z)
            if layer.W is not None:
                twin.W.copy_(layer.W)
            twin.q.mean.copy_(layer.q.mean)
        roots = model.q.root.split(
            [layer.n_outputs for layer in model.layers] + [len(model.q.root) - len(model.q.mean)]
        )
        for twin, root in zip(other.layers, roots):
            twin.q.root.copy_(root)
        eps = draws(model, X)
        for a, b in zip(model.propagate(X, eps), other.propagate(X, eps)):
            close(a, b)
    close(model.divergence(), other.divergence())


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_the_divergence_is_that_of_all_inducing_outputs(make_structured, coupling):
    model = make_structured((2, 3), coupling, n_latents=2)
    with torch.no_grad():
        L = torch.block_diag(*(
            torch.linalg.cholesky(layer.kernel()(layer.Z, layer.Z) + layer.jitter * torch.eye(4))
            for layer in model.layers
            for _ in range(layer.n_outputs)
        ))  # fmt: skip
        q = MultivariateNormal(L @ model.q.mean.flatten(), scale_tril=L @ model.q.dense_root())
        prior = MultivariateNormal(torch.zeros(len(L)).double(), scale_tril=L)
    close(model.divergence(), kl_divergence(q, prior))


@pytest.mark.parametrize("coupling", ["stripes-and-arrow", "full"])
def test_the_covariance_has_the_pattern_of_its_factor(make_structured, coupling):
    q = make_structured((3, 2, 3), coupling).q
    C = q.dense_root()
    S = C @ C.T
    M = q.mean.shape[1]
    free = (q.slots >= 0) | (q.slots.T >= 0)
    outside = ~np.kron(free, np.ones((M, M), dtype=bool))
    assert S[torch.as_tensor(outside)].abs().sum() == 0.0
    assert torch.linalg.cholesky(S)[torch.as_tensor(outside)].abs().sum() == 0.0
    assert (coupling == "full") == (not outside.any())


def test_a_posterior_equal_to_the_prior_costs_nothing_and_knows_nothing(make_structured):
    model = make_structured((2, 2), "full", random_q=False, inner_scale=1.0)
    assert abs(float(model.divergence())) < 1e-12
    X = data()[0]
    mean, var = latents(model, X, 16)
    close(mean, torch.zeros_like(mean))
    close(var, torch.ones_like(var))


@pytest.mark.parametrize(
    ("coupling", "widths", "n_latents"),
    [("stripes-and-arrow", (2, 2), 1), ("full", (2, 2), 1), ("full", (2, 1), 2)],
)
def test_functions_have_the_moments_of_the_predictive(make_structured, coupling, widths, n_latents):
    X = data(3)[0]
    model = make_structured(widths, coupling, n_latents)
    with torch.no_grad():
        model.q.root[len(model.q.mean) :] *= 2.0  # a strong coupling
    n = 40_000
    f = draw_functions(model, n, seeded(), 4)(X, noise=seeded(6))
    expected = latents(model, X, 8192)
    assert of_mixture(f, *expected, powers=(1, 2, 3)) < 4.5
    # the same draws of each layer by itself, put together at random, do not
    with torch.no_grad():
        H, first = X.expand(n, *X.shape), 0
        for i, layer in enumerate(posterior(model).layers):
            own = slice(first, first + layer.n_outputs)
            v = model.q.frozen().sample(n, seeded(i))[0][:, own].mT
            H, first = sum(layer.functions(n, 4, seeded(10 + i), v)(H)), own.stop
            if i < len(model.layers) - 1:
                H = H + layer.noise().sqrt() * normal(H.shape, seeded(7), H)
    assert of_mixture(H, *expected, powers=(1, 2, 3)) > 8


def test_outputs_of_one_row_covary_in_functions_as_in_the_predictive(make_structured):
    X = data(2)[0]
    likelihood = HeteroscedasticGaussian(np.array([0.1]))
    model = make_structured((2,), "full", n_latents=2, likelihood=likelihood)
    f = draw_functions(model, 40_000, seeded(), 4)(X, noise=seeded(6))
    mean, _ = latents(model, X, 8192)
    expected = (mean - mean.mean(0)).prod(-1).mean(0)
    product = (f - mean.mean(0)).prod(-1)
    assert in_standard_errors(product, expected) < 4
    assert (expected.abs() / product.std(0) * math.sqrt(len(f))).max() > 8


# Optima


def test_natural_steps_find_the_optimum_of_one_layer(make_structured, make_model):
    X, y = data(12)
    model = make_structured((), "full", natural_gradient=True, natural_step=1.0)
    model.learning_rate = 0.0
    other = make_model(2, (), n_inducing=4)
    with torch.no_grad():
        other.layers[0].Z.copy_(model.layers[0].Z)
    batch, q = everything(X, y), other.layers[0].q
    jump_to_optimum(other, batch)
    for _ in range(200):
        model.step(batch, seeded())
    torch.testing.assert_close(model.q.mean.T, q.mean, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(model.q.root, q.root, rtol=1e-7, atol=1e-7)


def test_richer_posteriors_have_higher_optima(make_structured):
    X, y = data(10, seed=3)
    batch, n_draws, posteriors = everything(X, y), 256, {}
    before = None
    for coupling in COUPLINGS:
        model = make_structured(
            (2, 2), coupling, n_inducing=3, random_q=False, n_draws=n_draws, inner_scale=0.5,
            natural_gradient=True,
        )  # fmt: skip
        for p in model.parameters():
            p.requires_grad_(False)
        model.layers[0].log_noise.requires_grad_(True)  # a graph needs a leaf; it does not move
        model.learning_rate = 0.0
        if before is not None:  # start from the optimum of the simpler posterior
            rows, columns = np.nonzero(before.slots >= 0)
            with torch.no_grad():
                model.q.mean.copy_(before.mean)
                model.q.root[model.q.slots[rows, columns]] = before.root[
                    before.slots[rows, columns]
                ]
        for _ in range(120):
            model.step(batch, seeded())  # the same draws in every step
        before = model.q
        posteriors[coupling] = model

    @torch.no_grad()
    def bounds(model, S, seed):
        mean, var = model.propagate(X, draws(model, X, S, seed))
        return model.likelihood().expected_log_prob(y, mean, var).sum(1) - model.kl()

    frozen = [float(bounds(model, n_draws, 5).mean()) for model in posteriors.values()]
    assert frozen[1] > frozen[0] + 0.01 and frozen[2] > frozen[1] + 0.01
    fresh = [bounds(model, 50_000, 11) for model in posteriors.values()]
    for simple, rich in itertools.pairwise(fresh):
        gap = rich - simple
        assert gap.mean() > 4 * gap.std() / math.sqrt(50_000)


def test_integrating_the_inducing_variables_lowers_the_variance_of_gradients(make_structured):
    X, y = data(20)
    model = make_structured((2,), "full")
    batch, n = everything(X, y), 150

    def sampled(generator):
        """The bound with one draw of all inducing variables, as in a naive scheme."""
        q, xi = model.q, None
        mean = q.mean.detach().requires_grad_()
        xi = normal(mean.shape, generator, mean).flatten()
        v = (mean.flatten() + q.dense_root() @ xi).view(mean.shape)
        H, first = X, 0
        for layer in model.layers:
            kernel = layer.kernel()
            L = torch.linalg.cholesky(kernel(layer.Z, layer.Z) + layer.jitter * torch.eye(4))
            b = torch.linalg.solve_triangular(L, kernel(layer.Z, H), upper=False)
            f = b.T @ v[first : first + layer.n_outputs].T + layer.mean_function(H)
            var = (kernel.diag(H) - b.square().sum(0) + layer.noise())[:, None].expand_as(f)
            first += layer.n_outputs
            H = f + var.sqrt() * normal(f.shape, generator, f)
        ell = model.likelihood().expected_log_prob(y, f, var).sum()
        return torch.autograd.grad(ell, mean)[0].detach()

    def integrated(generator):
        model.expected_log_likelihood(batch, generator).backward()
        gradient = model.q.collected_gradients()[0]
        for p in model.parameters():
            p.grad = None
        return gradient

    generator = seeded()
    a, b = (torch.stack([g(generator) for _ in range(n)]) for g in (integrated, sampled))
    z = (a.mean(0) - b.mean(0)) / torch.sqrt((a.var(0) + b.var(0)) / n)
    assert z.abs().max() < 4  # both are unbiased
    assert a.var(0).sum() < 0.5 * b.var(0).sum()
