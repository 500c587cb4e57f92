"""Limits and identities in which a deep Gaussian process becomes something known."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from oracles import in_standard_errors
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from torch.distributions import MultivariateNormal, kl_divergence
from toys import everything, jump_to_optimum, latents, seeded, toy

from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Bernoulli, Gaussian, Softmax
from skdgp.quadrature import gauss_hermite
from skdgp.random import normal

NOISE = 0.1
tensor = partial(torch.tensor, dtype=torch.float64)
full_like = partial(torch.full, dtype=torch.float64)


def data(n=12, n_features=2, seed=0):
    return toy(n, n_features, seed=seed)


@torch.no_grad()
def bound_of(model, batch, eps=()):
    """The bound on all rows for given draws."""
    mean, var = model.propagate(batch.X, eps)
    ell = model.likelihood().expected_log_prob(batch.y, mean, var)
    return float((batch.weight * ell.mean(0)).sum() - model.kl())


def place(model, Z, jitter=1e-10):
    """Inducing inputs of the first layer."""
    layer = model.layers[0]
    layer.Z = torch.nn.Parameter(Z.clone())
    layer.jitter = jitter


def exact_gp(X, y):
    kernel = ConstantKernel(1.0) * RBF(math.sqrt(X.shape[1]))
    return GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(X, y)


# One layer


@pytest.mark.parametrize("stepwise", [False, True])
def test_with_all_rows_as_inducing_inputs_one_layer_is_an_exact_gp(make_model, stepwise):
    X, y = data()
    model = make_model(2, (), n_inducing=len(X), natural_step=1.0)
    place(model, X)
    batch = everything(X, y)
    if stepwise:
        model.learning_rate = 0.0
        for _ in range(6):  # the natural step size reaches its full value at the sixth step
            model.step(batch, seeded())
    else:
        jump_to_optimum(model, batch)
    exact = exact_gp(X, y)
    assert abs(bound_of(model, batch) - exact.log_marginal_likelihood()) < 1e-6
    if stepwise:
        return  # predictions are those of averages over the steps
    X_new = data(20, seed=1)[0]
    mean, std = exact.predict(X_new, return_std=True)
    actual_mean, actual_var = latents(model, X_new, 8)
    np.testing.assert_allclose(actual_mean[0, :, 0], mean.ravel(), atol=1e-6)
    np.testing.assert_allclose(actual_var[0, :, 0], std**2, atol=1e-6)


def integrated(model, X, y):
    """Expected log densities of rows, integrated over the one hidden unit by quadrature."""
    nodes, log_weights = gauss_hermite(80, X)
    ell = model.likelihood().expected_log_prob(y, *model.propagate(X, [nodes[:, None, None]]))
    return (log_weights.exp()[:, None] * ell).sum(0)


def test_with_few_inducing_inputs_the_optimum_is_the_collapsed_bound(make_model):
    X, y = data()
    model = make_model(2, ())
    place(model, data(5, seed=2)[0])
    batch = everything(X, y)
    jump_to_optimum(model, batch)
    with torch.no_grad():
        kernel, Z = model.layers[0].kernel(), model.layers[0].Z
        Q = kernel(X, Z) @ torch.linalg.solve(kernel(Z, Z), kernel(Z, X))
        marginal = MultivariateNormal(torch.zeros(len(X)).double(), Q + NOISE * torch.eye(len(X)))
        trace = (kernel.diag(X) - Q.diagonal()).sum()
    titsias = marginal.log_prob(y[:, 0]) - 0.5 * trace / NOISE
    assert abs(bound_of(model, batch) - titsias) < 1e-7


@pytest.mark.parametrize("seed", range(5))
def test_no_posterior_beats_the_evidence(make_model, seed):
    X, y = data()
    model = make_model(2, (), seed=seed)
    batch = everything(X, y)
    evidence = exact_gp(X, y).log_marginal_likelihood()
    assert bound_of(model, batch) < evidence
    jump_to_optimum(model, batch)
    assert bound_of(model, batch) < evidence


def test_more_inducing_inputs_never_lower_the_optimum(make_model):
    X, y = data()
    Z, bounds = data(9, seed=2)[0], []
    for n in (1, 3, 6, 9):
        model = make_model(2, (), n_inducing=n)
        place(model, Z[:n])
        batch = everything(X, y)
        jump_to_optimum(model, batch)
        bounds.append(bound_of(model, batch))
    assert (np.diff(bounds) > 0.0).all()


# Optimum of the last layer


@pytest.mark.parametrize("widths", [(), (2,), (3, 2)])
@pytest.mark.parametrize("natural_gradient", ["last", "none"])
def test_the_gradient_vanishes_at_the_collapsed_optimum(make_model, widths, natural_gradient):
    X, y = data()
    batch = everything(X, y)
    settings = {"n_draws": 3, "natural_gradient": natural_gradient}
    model = make_model(2, widths, **settings)
    jump_to_optimum(model, batch, seeded())
    q = model.layers[-1].q
    model.expected_log_likelihood(batch, seeded()).mul(-1.0 / batch.total).backward()
    if q.natural:
        g_mean, g_cov = q.collected_gradients(-batch.total)
        precision = torch.cholesky_inverse(q.root)
        residuals = g_mean - q.mean, g_cov - 0.5 * (torch.eye(5) - precision)
    else:
        q.set_gradients(1.0 / batch.total)
        residuals = q.mean.grad, q.root.grad
    for residual in residuals:
        assert residual.abs().max() < 1e-9


@pytest.mark.parametrize("widths", [(), (2,)])
def test_one_full_natural_step_arrives_from_anywhere(make_model, widths):
    X, y = data()
    batch, optima = everything(X, y), []
    model = make_model(2, widths)
    start = model.layers[-1].q.state_dict()
    for scale in (0.5, 1.0, 3.0):
        with torch.no_grad():
            model.layers[-1].q.mean.mul_(-scale)
            model.layers[-1].q.root.mul_(scale)
        jump_to_optimum(model, batch, seeded())
        q = model.layers[-1].q
        optima.append((q.mean.detach().clone(), (q.root @ q.root.mT).detach()))
        q.load_state_dict(start)
    for mean, cov in optima[1:]:
        torch.testing.assert_close(mean, optima[0][0], rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(cov, optima[0][1], rtol=1e-8, atol=1e-8)


# Divergence and prior


def test_the_divergence_is_that_of_the_inducing_outputs(make_model):
    model = make_model(2, (3,), 2)
    expected = 0.0
    with torch.no_grad():
        for layer in model.layers:
            K = layer.kernel()(layer.Z, layer.Z) + layer.jitter * torch.eye(5)
            L = torch.linalg.cholesky(K)
            m = layer.mean_function(layer.Z) + torch.zeros(5, layer.n_outputs)
            for d in range(layer.n_outputs):
                q = MultivariateNormal(
                    m[:, d] + L @ layer.q.mean[:, d], scale_tril=L @ layer.q.root[d]
                )
                expected += kl_divergence(q, MultivariateNormal(m[:, d], scale_tril=L))
    torch.testing.assert_close(model.divergence(), expected, rtol=1e-9, atol=0)


# Hidden layers


@pytest.mark.parametrize("input_connected", [False, True])
@torch.no_grad()
def test_one_hidden_unit_by_gauss_hermite(make_model, input_connected):
    X, y = data(5)
    model = make_model(2, (1,), inner_noise=0.2, input_connected=input_connected, n_draws=20_000)
    likelihood, exact = model.likelihood(), integrated(model, X, y)
    eps = [normal((20_000, 5, 1), seeded(), X)]
    ell = likelihood.expected_log_prob(y, *model.propagate(X, eps))
    assert in_standard_errors(ell, exact) < 4
    # the objective draws independently for every row
    objective = model.expected_log_likelihood(everything(X, y), seeded(6))
    standard_error = ell.var(0).sum().sqrt() / math.sqrt(20_000)
    assert abs(objective - exact.sum()) < 4 * standard_error
    # and the draws of a prediction are much better than independent ones
    mean, var = latents(model, X, 1024)
    sobol = likelihood.expected_log_prob(y, mean, var).mean(0)
    assert ((sobol - exact).abs() * math.sqrt(1024) / ell.std(0)).max() < 0.5


@torch.no_grad()
def test_the_objective_is_unbiased_for_one_draw(make_model):
    X, y = data(5)
    model, batch, generator = make_model(2, (1,), inner_noise=0.2), everything(X, y), seeded()
    values = tensor([model.expected_log_likelihood(batch, generator) for _ in range(1000)])
    assert in_standard_errors(values, integrated(model, X, y).sum()) < 4


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_where_the_data_say_nothing_the_prior_returns(make_model, shift):
    """A posterior that is the prior costs nothing; far from the data every posterior is the prior."""
    model = make_model(2, (2, 2), random_q=shift > 0.0, inner_scale=1.0, inner_noise=0.3)
    if shift == 0.0:
        assert abs(float(model.divergence())) < 1e-12
    with torch.no_grad():
        for layer in model.layers[:-1]:
            layer.W.copy_(torch.eye(2))
    mean, var = latents(model, data()[0] + shift, 16)
    torch.testing.assert_close(mean, torch.zeros_like(mean))
    torch.testing.assert_close(var, torch.ones_like(var))


def test_hidden_units_can_be_permuted(make_model):
    X, y = data()
    batch, order = everything(X, y), torch.tensor([2, 0, 1])
    model = make_model(2, (3, 2), inner_noise=0.2)
    first, second = model.layers[:2]
    with torch.no_grad():
        second.kernel.log_lengthscale.copy_(tensor([0.1, -0.2, 0.4]))
    eps = [normal((4, len(X), width), seeded(), X) for width in (3, 2)]
    before = bound_of(model, batch, eps)
    with torch.no_grad():
        first.q.mean.copy_(first.q.mean[:, order])
        first.q.root.copy_(first.q.root[order])
        first.W.copy_(first.W[:, order])
        assert abs(bound_of(model, batch, eps) - before) > 0.1
        second.Z.copy_(second.Z[:, order])
        second.kernel.log_lengthscale.copy_(second.kernel.log_lengthscale[order])
        second.W.copy_(second.W[order])
        eps[0] = eps[0][..., order]
    assert abs(bound_of(model, batch, eps) - before) < 1e-9


@pytest.mark.parametrize(
    ("likelihood", "n_latents"), [(Gaussian(np.array([NOISE])), 1), (Bernoulli(), 1), (Softmax(), 3)]
)  # fmt: skip
def test_a_hidden_layer_that_does_nothing_leaves_a_shallow_model(make_model, likelihood, n_latents):
    X, y = data()
    if not isinstance(likelihood, Gaussian):
        y = (y > 0).double()
    settings = {"likelihood": likelihood, "n_latents": n_latents}
    shallow = make_model(2, (), **settings)
    deep = make_model(2, (2,), inner_noise=0.0, **settings)
    hidden, last = deep.layers
    with torch.no_grad():
        last.load_state_dict(shallow.layers[0].state_dict())
        hidden.W.copy_(torch.eye(2))
        hidden.kernel.log_variance.fill_(math.log(1e-24))
        hidden.q.mean.zero_()
        hidden.q.root.copy_(torch.eye(5).expand(2, 5, 5))
    batch = everything(X, y)
    eps = [normal((3, len(X), 2), seeded(), X)]
    # hidden standard deviations are 1e-6, from the floor under variances
    assert abs(bound_of(deep, batch, eps) - bound_of(shallow, batch)) < 1e-4
    X_new = data(7, seed=3)[0]
    deep_moments = latents(deep, X_new, 4)
    for a, b in zip(deep_moments, latents(shallow, X_new, 4)):
        torch.testing.assert_close(a, b.expand_as(a), rtol=0, atol=2e-5)


def test_connected_inputs_stand_beside_the_hidden_units(make_model):
    X = data()[0]
    model = make_model(2, (3,), input_connected=True, inner_noise=0.2)
    first, second = model.layers
    assert second.Z.shape == (5, 5)
    eps = normal((4, len(X), 3), seeded(), X)
    with torch.no_grad():
        mean, var = first.moments(X)
        H = mean + var.sqrt() * eps
        expected = [second.moments(torch.cat([h, X], 1)) for h in H]
        actual = model.propagate(X, [eps])
    for a, parts in zip(actual, zip(*expected)):
        torch.testing.assert_close(a, torch.stack(parts), rtol=1e-10, atol=1e-10)


def test_two_layers_stay_below_the_evidence(make_model):
    X, y = data(3)
    batch = everything(X, y)
    model = make_model(
        2,
        (1,),
        kernel=SquaredExponential(trainable=False),
        likelihood=Gaussian(np.array([NOISE]), trainable=False),
        inner_noise=0.02,
        natural_gradient="all",
        n_draws=50,
    )
    hidden = model.layers[0]
    hidden.log_noise.requires_grad_(False)
    hidden.kernel.variance.fill_(0.1)
    # the evidence by draws of the hidden layer from its prior
    n = 100_000
    with torch.no_grad():
        K = hidden.kernel()(X, X) + 0.02 * torch.eye(3)
        H = (X @ hidden.W)[:, 0] + normal((n, 3), seeded(), X) @ torch.linalg.cholesky(K).T
        K = torch.exp(-0.5 * (H[:, :, None] - H[:, None]).square()) + NOISE * torch.eye(3)
        logp = MultivariateNormal(torch.zeros(3).double(), K).log_prob(y[:, 0])
    p = torch.exp(logp - logp.max())
    evidence = float(p.mean().log() + logp.max())
    assert p.std() / p.mean() / math.sqrt(n) < 0.005
    generator = seeded(7)
    for _ in range(150):
        model.step(batch, generator)
    lower = bound_of(model, batch, [normal((100_000, 3, 1), generator, X)])
    assert evidence - 1.5 < lower < evidence


# Minibatches and weights


@pytest.mark.parametrize("widths", [(), (2,)])
def test_minibatches_average_to_all_rows(make_model, monkeypatch, widths):
    X, y = data(6)
    weight = tensor([1.0, 2.0, 1.0, 5.0, 0.5, 3.0])
    model = make_model(2, widths, n_draws=2)
    eps = normal((2, 6, 2), seeded(), X)

    def objective(rows, scale):
        monkeypatch.setattr("skdgp.inference.deep.normal", lambda *args: eps[:, rows])
        batch = everything(X[rows], y[rows], weight[rows], scale, total=float(weight.sum()))
        with torch.no_grad():
            return float(model.expected_log_likelihood(batch, None))

    batches = [list(rows) for rows in itertools.combinations(range(6), 2)]
    values = [objective(rows, scale=6 / 2) for rows in batches]
    assert np.std(values) > 0.1
    np.testing.assert_allclose(np.mean(values), objective(list(range(6)), 1.0), rtol=1e-12)


def test_a_weight_of_two_is_the_row_twice(make_model):
    X, y = data(6)
    model = make_model(2, ())
    weight = tensor([1.0, 2.0, 1.0, 0.0, 3.0, 1.0])
    rows = torch.repeat_interleave(torch.arange(6), weight.long())
    weighted, repeated = everything(X, y, weight), everything(X[rows], y[rows])
    assert weighted.total == repeated.total
    values = []
    for batch in (weighted, repeated):
        value = model.expected_log_likelihood(batch, None)
        value.backward()
        values.append((value.detach(), *model.layers[0].q.collected_gradients()))
    for a, b in zip(*values):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
