"""Deep Gaussian processes whose last layer is integrated out."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from oracles import check_gradients, condition, leave_one_out
from scipy.special import logsumexp
from scipy.stats import cauchy, multivariate_normal, norm
from scipy.stats import t as student
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from toys import (
    architecture,
    draw_functions,
    everything,
    latents,
    mixed,
    noisy,
    posterior,
    rows,
    same,
    seeded,
)

from skdgp import DeepGPRegressor
from skdgp.datasets import make_step
from skdgp.gp.kernels import Matern, SquaredExponential
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.inference import CollapsedVI, Exact, collapsed

JITTER = 1e-6


def make(widths=(2,), k=1, likelihood=None, mean=True, connected=False, n_draws=3, trainable=True):
    """A model with noises .1, .2, ..., in the search for the posterior, with numbers of all sizes."""
    bound = noisy(k, likelihood)
    kernels = [SquaredExponential(trainable=trainable)] * len(widths)
    kernels = [*kernels, Matern(trainable=trainable)]
    shape = architecture(
        widths, bound.n_latents(k), 4, kernels, linear_mean=mean, connected=connected
    )
    model = CollapsedVI(n_draws, n_neighbors=5).build(shape, bound)
    rng = np.random.RandomState(3)
    model.start(rng.uniform(-2.0, 2.0, (40, 2)), np.ones(40), rng)
    model._n_first = -1
    model._be_uncertain(True)
    with torch.no_grad():
        model.mean += 0.3 * torch.as_tensor(rng.standard_normal(len(model.mean)))
        model.log_sd += np.log(2e5) + 0.3 * torch.as_tensor(rng.standard_normal(len(model.mean)))
        model._put(model.mean)
    return model


def deep(**settings):
    settings = {"inference": CollapsedVI(n_draws=2), "random_state": 0, **settings}
    return DeepGPRegressor(**settings)


@torch.enable_grad()
def objective(model, batch):
    """Its value, and gradients in the places of former ones."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    return model.objective(batch)


def of_draws(model, n, seed):
    """What layers hold in some draws of the numbers."""
    m, sd = model.mean.detach().numpy(), model.log_sd.detach().exp().numpy()
    return [put(model, m + sd * e) for e in model._draws(n, seed).numpy()]


def solved(X, y, weight=None, **settings):
    model, batch = make(k=y.shape[1], **settings), everything(X, y, weight)
    model.hold(batch)
    model.unsolved = batch
    model._solve()
    return model


def put(model, numbers):
    """A dict of what layers hold if the uncertain numbers are these."""
    before = parameters_to_vector(model._uncertain).detach().clone()
    vector_to_parameters(torch.as_tensor(numbers), model._uncertain)
    layers = [
        {name: p.detach().numpy().copy() for name, p in layer.state_dict().items()}
        for layer in model.layers
    ]
    vector_to_parameters(before, model._uncertain)
    return layers


def distance(A, B, log_lengthscale):
    A, B = A / np.exp(log_lengthscale), B / np.exp(log_lengthscale)
    return np.sqrt(np.square(A[:, None] - B).sum(-1))


def hidden(layers, X, connected=False):
    """What the last layer sees, in numpy."""
    H = X
    for i, layer in enumerate(layers[:-1]):
        if i and connected:
            H = np.hstack([H, X])
        variance, Z = np.exp(layer["kernel.log_variance"]), layer["Z"]

        def k(A, B, layer=layer, variance=variance):
            return variance * np.exp(-0.5 * distance(A, B, layer["kernel.log_lengthscale"]) ** 2)

        L = np.linalg.cholesky(k(Z, Z) + JITTER * np.eye(len(Z)))
        f = k(H, Z) @ np.linalg.solve(L.T, layer["v"])
        H = f + H @ layer["W"] if "W" in layer else f
    return np.hstack([H, X]) if connected and len(layers) > 1 else H


def covariance(layers, A, B, connected=False):
    last = layers[-1]
    A, B = hidden(layers, A, connected), hidden(layers, B, connected)
    s = np.sqrt(3.0) * distance(A, B, last["kernel.log_lengthscale"])
    return np.exp(last["kernel.log_variance"]) * (1.0 + s) * np.exp(-s)


def log_prior_of_last(layer, start):
    """Of the last layer's numbers, up to a constant; `start` is where they begin."""
    scales = layer["kernel.log_lengthscale"]
    deviations, level = scales - scales.mean(), (scales - start["kernel.log_lengthscale"]).mean()
    total = (cauchy.logpdf(deviations, scale=0.5) - cauchy.logpdf(0.0, scale=0.5)).sum()
    excess = layer["kernel.log_variance"] - start["kernel.log_variance"]
    return total - 0.5 * (level / 2.0) ** 2 - 0.5 * (excess / 2.0) ** 2


def expected_log_prior_of_hidden(means, deviations, start):
    """Of inducing variables and of numbers, up to a constant."""
    total = 0.0
    for mean, sd, first in zip(means[:-1], deviations, start):
        for name, center, width in (
            ("v", 0.0, 1.0),
            ("kernel.log_lengthscale", first["kernel.log_lengthscale"], 0.5),
            ("kernel.log_variance", first["kernel.log_variance"], 2.0),
        ):
            second_moment = (mean[name] - center) ** 2 + sd[name] ** 2
            total -= 0.5 * (second_moment / width**2).sum()
    return total


def starts(widths, mean=True):
    """Where the hyperparameters of kernels begin: amplitudes around linear means are small."""
    sizes = [2, *widths]
    return [
        {
            "kernel.log_lengthscale": np.full(n, 0.5 * np.log(n)),
            "kernel.log_variance": np.log(0.1) if mean and i < len(widths) else 0.0,
        }
        for i, n in enumerate(sizes)
    ]


# The bound


@pytest.mark.parametrize(
    ("widths", "mean", "k"),
    [((), True, 2), ((2,), True, 1), ((2,), False, 2), ((2, 1), True, 2), ((2, 1), False, 1)],
)
def test_bound_is_that_of_its_draws(widths, mean, k):
    """By densities of all rows, layer by layer in numpy; normal priors have known expectations."""
    X, y = rows(25, k=k)
    model = make(widths, k, mean=mean)
    m, sd = model.mean.detach().numpy(), model.log_sd.detach().exp().numpy()
    first = starts(widths, mean)
    expected = expected_log_prior_of_hidden(put(model, m), put(model, sd), first)
    for layers in of_draws(model, 3, 0):
        K = covariance(layers, X, X)
        for j in range(k):
            noise = (0.1 * (j + 1) + 1e-10) * np.eye(len(X))
            expected += multivariate_normal(cov=K + noise).logpdf(y[:, j]) / 3.0
        expected += log_prior_of_last(layers[-1], first[-1]) / 3.0
    assert_allclose(objective(model, everything(X, y)), expected + np.log(sd).sum(), rtol=1e-8)


@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_gradients_of_the_bound(connected, likelihood):
    X, y = rows(25)
    model = make((2, 2), likelihood=likelihood(), connected=connected)
    batch = everything(X, y, np.random.default_rng(1).integers(1, 4, len(X)))
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert len(named) == 3  # means, deviations, noise
    rng = np.random.default_rng(0)
    objective(model, batch)
    check_gradients(
        lambda: objective(model, batch), named, atol=0.0,
        directions=lambda p: torch.as_tensor(rng.standard_normal((5, *p.shape))),
    )  # fmt: skip


def test_bound_is_below_the_evidence_and_close_where_the_posterior_is_normal():
    """One uncertain number, the logarithm of a variance, whose posterior is known by quadrature."""
    X, y = rows(60)
    kernel = SquaredExponential(1.0, 0.5)
    model = DeepGPRegressor(
        1,
        kernel=_VarianceAlone(1.0, 0.5, ard=False),
        likelihood=Gaussian(0.1, trainable=False),
        inference=CollapsedVI(n_draws=64),
        standardize=False,
        max_iter=40,
        random_state=0,
    ).fit(X, y[:, 0])
    K = kernel.bind(2)(torch.as_tensor(X), torch.as_tensor(X)).numpy() / 0.5
    grid = np.linspace(-6.0, 6.0, 2001) + np.log(0.5)
    eigenvalues, vectors = np.linalg.eigh(K)
    sd = np.sqrt(np.exp(grid)[:, None] * eigenvalues + 0.1)
    values = norm.logpdf(vectors.T @ y[:, 0], scale=sd).sum(1)
    joint = values + norm.logpdf(grid, np.log(0.5), 2.0)
    evidence = logsumexp(joint) + np.log(grid[1] - grid[0])
    posterior = np.exp(joint - logsumexp(joint))
    mean = posterior @ grid
    sd = np.sqrt(posterior @ (grid - mean) ** 2)
    state = model.members_[0].arrays
    assert_allclose(state["mean"], [mean], atol=0.1 * sd)
    assert_allclose(np.exp(state["log_sd"]), [sd], rtol=0.1)
    # constants that the objective leaves out: of the prior's density, and of the entropy
    constant = norm.logpdf(0.0, 0.0, 2.0) + 0.5 * np.log(2.0 * np.pi * np.e)
    bound = -60 * model.loss_curve_[-1] + constant
    assert evidence - 0.05 < bound < evidence + 0.005


class _VarianceAlone(SquaredExponential):
    """Its lengthscale is given."""

    _positive = {"variance": 0.0}


# Prediction


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("connected", [False, True])
def test_predictions_are_a_mixture_of_exact_processes(k, connected):
    X, y = rows(25, k=k)
    weight = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    model = solved(X, y, weight, widths=(2, 3), connected=connected)
    new = np.random.default_rng(2).uniform(-2.5, 2.5, (6, 2))
    log_weights, mean, var = posterior(model).latent(torch.as_tensor(new))
    assert mean.shape == (16, 6, k)
    assert_allclose(log_weights.exp(), np.full(16, 1.0 / 16.0))
    for s, layers in enumerate(of_draws(model, 16, 1)):
        kernel = partial(covariance, layers, connected=connected)
        for j in range(k):
            expected = condition(kernel, X, y[:, j], new, 0.1 * (j + 1) / weight)
            assert_allclose(mean[s, :, j], expected[0], atol=1e-6)
            assert_allclose(var[s, :, j], np.diag(expected[1]), atol=1e-6)


def process(model, X):
    """Mean (k, n) and covariance (k, n, n) of the functions, of the mixture."""
    frozen, k = posterior(model, 64), model.rows.y.shape[1]
    log_weights, means, _ = frozen.latent(X)
    means, shares = means[..., :k].mT.numpy(), log_weights.exp().numpy()
    mean = np.einsum("s,skn->kn", shares, means)
    between = np.einsum("s,ski,skj->kij", shares, means - mean, means - mean)
    return mean, frozen.covariance(X).numpy() + between


def test_all_states_are_evaluated_together(monkeypatch):
    X, y = rows(25, k=2)
    frozen, calls = posterior(solved(X, y, widths=(2, 3), connected=True)), []
    solve = torch.linalg.solve_triangular
    monkeypatch.setattr(
        torch.linalg, "solve_triangular", lambda *a, **k: calls.append(1) or solve(*a, **k)
    )
    frozen.latent(torch.as_tensor(X[:3]))
    assert len(calls) == 1


def test_covariance_is_that_of_the_mixture():
    X, y = rows(25, k=2)
    model = solved(X, y)
    new = torch.as_tensor(np.random.default_rng(2).uniform(-2.5, 2.5, (5, 2)))
    (_, cov), (_, var) = process(model, new), mixed(model, new)
    assert_allclose(np.diagonal(cov, axis1=1, axis2=2).T, var, atol=1e-8)
    both = torch.cat([new, new])
    assert_allclose(process(model, both)[1][:, :5, 5:], cov, atol=1e-8)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_function_draws_have_the_moments_of_the_prediction(likelihood, joint):
    """Within four and a half standard errors, for means, and for covariances between rows."""
    X, y = rows(25)
    model = solved(X, y, likelihood=likelihood())
    new = torch.as_tensor(np.random.default_rng(2).uniform(-2.5, 2.5, (4, 2)))
    (mean,), (cov,) = process(model, new)
    n = 4000
    if joint:
        f = sum(posterior(model).functions(n, seeded(), new)(new))
    else:
        f = draw_functions(model, n, seeded(), 300)(new)
    f = f[..., 0].numpy()
    assert np.abs((f.mean(0) - mean) / np.sqrt(np.diag(cov) / n)).max() < 4.5
    products = (f - mean)[:, :, None] * (f - mean)[:, None]
    error = products.std(0) / np.sqrt(n)
    assert np.abs((products.mean(0) - cov) / error).max() < 4.5


def test_local_scales_of_several_outputs():
    """With the dispersion of a mixture: moments of components, functions and rows that are left out."""
    X, y = rows(20, k=2)
    X, y = np.vstack([X, X[:4]]), np.vstack([y, y[:4] + 0.2])  # places of two rows
    model = solved(X, y, likelihood=HeteroscedasticGaussian())
    new, frozen, n = torch.as_tensor(X[3:6] + 0.2), posterior(model, 64), 2000
    log_weights, mean, var = frozen.latent(new)
    shares = log_weights.exp()[:, None, None]
    center = (shares * mean[..., :2]).sum(0)
    variance = (shares * (0.25 * var[..., :2] + (mean[..., :2] - center).square())).sum(0)
    mean, deviation = frozen.functions(n, seeded())(new)
    off = (mean + 0.5 * deviation)[..., :2] - center
    assert (off.mean(0).abs() < 4.5 * (variance / n).sqrt()).all()
    error = off.square().std(0) / np.sqrt(n)
    # the grid of scales cuts tails of t off, where some of its variance is
    assert ((off.square().mean(0) - variance).abs() < 4.5 * error + 0.01 * variance).all()
    density = frozen.loo_log_density(np.arange(24), np.array([1.0, 0.5]))
    assert density.shape == (2, 24) and np.isfinite(density).all()
    assert_allclose(density[0], frozen.loo_log_density(np.arange(24)))


def test_spread_of_function_draws_is_around_the_mean_of_each_process():
    """As that of predictions is; within four and a half standard errors."""
    X, y = rows(25)
    model = solved(X, y)
    new, n = torch.as_tensor(X[:4] + 0.5), 1500
    mean, var = (part[..., 0].numpy() for part in latents(model, new))
    f, deviation = posterior(model).functions(n, seeded())(new)
    f = (f + 0.1 * deviation)[..., 0].numpy()
    expected = 0.01 * var.mean(0) + mean.var(0)
    error = np.square(f - mean.mean(0)).std(0) / np.sqrt(n)
    assert np.abs(np.square(f - mean.mean(0)).mean(0) - expected).max() < 4.5 * error.max()
    assert (expected > 0.01 * (var + mean.var(0)).mean(0) + 5.0 * error).all()  # around one mean


def test_interrupt_while_it_conditions(monkeypatch):
    """What was made of some states is forgotten, and the model is as it was."""
    X, y = rows(25)
    model, new = solved(X, y), torch.as_tensor(X[:4] + 0.1)
    expected, state = mixed(model, new), model.state()
    model.load_state(state)
    conditioned, calls = model._conditioned, []

    def stop(*args):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return conditioned(*args)

    monkeypatch.setattr(model, "_conditioned", stop)
    with pytest.raises(KeyboardInterrupt):
        mixed(model, new)
    same(model.state(), state)
    for found, wanted in zip(mixed(model, new), expected):
        assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("likelihood", [Gaussian, HeteroscedasticGaussian])
def test_threads_share_a_model_and_its_posterior(likelihood):
    """Eight threads give the numbers of one, whatever the model learns meanwhile."""
    X, y = rows(25)
    model, batch = solved(X, y, likelihood=likelihood()), everything(X, y)
    new, frozen = torch.as_tensor(X[:4] + 0.1), posterior(model)

    def predicted(_=None):
        parts = [*frozen.latent(new), frozen.covariance(new), frozen.loo_log_density(np.arange(9))]
        for given in (new, None):
            parts.extend(frozen.functions(3, seeded(), given)(new))
        return parts

    expected, other = predicted(), make(likelihood=likelihood())
    other.load_state(model.state())
    before = latents(other, new)
    with ThreadPoolExecutor(8) as pool:
        results, loaded = pool.map(predicted, range(16)), pool.map(latents, [other] * 8, [new] * 8)
        for _ in range(2):
            model.step(batch, None)
        pairs = [*((found, expected) for found in results), *((found, before) for found in loaded)]
    for found, wanted in pairs:
        for a, b in zip(found, wanted):
            assert_array_equal(a, b)
    assert not torch.equal(latents(model, new)[0], latents(other, new)[0])


def test_function_draws_are_functions():
    X, y = rows(25)
    model = solved(X, y)
    f = draw_functions(model, 5, seeded(), 50)
    new = torch.as_tensor(X[:4] + 0.1)
    together = f(new)
    assert_allclose(torch.cat([f(new[:1]), f(new[1:])], 1), together, rtol=1e-9)
    assert_array_equal(parameters_to_vector(model._uncertain).detach(), model.mean.detach())


def loo_moments(model, X, y):
    """Mean and variance of each row given all others, noise included, (16, n)."""
    K = (covariance(layers, X, X) + 0.1 * np.eye(len(X)) for layers in of_draws(model, 16, 1))
    return np.stack([leave_one_out(K_s, y) for K_s in K], 1)


def test_leave_one_out_predictions():
    """Each draw predicts a row from all others; together they are a mixture."""
    X, y = rows(12)
    model = solved(X, y)
    frozen = posterior(model)
    means, variances = loo_moments(model, X, y[:, 0])
    for dispersion in (1.0, 0.7):
        of_draws = norm.logpdf(y[:, 0], means, dispersion * np.sqrt(variances))
        expected = logsumexp(of_draws, 0) - np.log(16)
        (found,), errors = frozen.left_out(np.arange(12), np.array([dispersion]))
        assert_allclose(found, expected, atol=1e-6)
        assert_allclose(errors[:, 0], y[:, 0] - means.mean(0), atol=1e-6)
    assert_allclose(
        frozen.loo_log_density(np.arange(12)), frozen.loo_log_density(np.arange(12), [1.0])[0]
    )


def test_with_a_local_scale_draws_are_a_mixture_of_scaled_t_distributions():
    """Of new rows, and of rows that are left out; each draw has errors of its own near by."""
    X, y = rows(20)
    model = solved(X, y, likelihood=HeteroscedasticGaussian())
    frozen, scale = posterior(model, 64), model.local_scale
    means, variances = loo_moments(model, X, y[:, 0])
    z = (y[:, 0] - means) / np.sqrt(variances)
    a, odds = np.exp(float(scale.log_count)), 1.0 / (1.0 + np.exp(-float(scale.log_odds)))
    rho = 2.1 / 5 + (1.0 - 2.1 / 5) * odds
    dof = a + 5 * rho

    def mixture(y, means, variances, nearest):
        squares = np.square(z[:, nearest]).sum(-1)  # 16, n
        squared = np.exp(float(scale.log_factor)) * (a + rho * squares) / dof
        logs = student.logpdf(y, dof, means, np.sqrt(squared * variances))
        return logsumexp(logs, 0) - np.log(16)

    search = model._nearest()
    nearest = search(torch.as_tensor(X), np.arange(20), np.arange(20))
    expected = mixture(y[:, 0], means, variances, nearest)
    assert_allclose(frozen.loo_log_density(np.arange(20)), expected, atol=1e-6)
    # new rows, some of them far from what is expected
    new = torch.as_tensor(np.random.default_rng(2).uniform(-2.5, 2.5, (6, 2)))
    y_new = np.linspace(-3.0, 3.0, 6)
    m, v = (torch.stack(part) for part in zip(*(gp.moments(new) for gp in model._gps)))
    expected = mixture(y_new, m[:, 0].numpy(), v[:, 0].numpy() + 0.1, search(new))
    log_weights, mean, var = frozen.latent(new)
    density = model.likelihood().log_partition(torch.as_tensor(y_new)[:, None], mean, var)
    found = torch.logsumexp(density + log_weights[:, None], 0)
    assert_allclose(found.detach().numpy(), expected, atol=1e-6)


def test_covariance_of_a_mixture_that_holds_one_has_the_mean_of_all_its_draws():
    """By the law of total covariance, with a process of one draw."""
    X, y = rows(20)
    settings = {"likelihood": "gaussian", "max_iter": 40}
    model, other = (
        deep(**own, **settings).fit(X, y[:, 0])
        for own in ({}, {"n_layers": 1, "inference": "exact"})
    )
    (a, cov_a), (b, cov_b) = (
        m.predict(X[:4] + 0.3, return_cov=True, latent=True) for m in (model, other)
    )
    (member,) = model.members_
    new = torch.as_tensor(model._x_scaler.transform(X[:4] + 0.3))
    (own,) = process(member.model("cpu"), new)[1]
    assert_allclose(cov_a, own * model._y_scaler.scale**2, rtol=1e-6, atol=1e-10)
    model.members_ = [member, *other.members_]
    _, cov = model.predict(X[:4] + 0.3, return_cov=True, latent=True)
    expected = 0.5 * (cov_a + cov_b) + 0.25 * np.outer(a - b, a - b)
    assert_allclose(cov, expected, rtol=1e-6, atol=1e-10)


def test_first_steps_are_those_of_exact():
    """With linear hidden layers as wide as the inputs, whose variables and numbers are at their medians."""
    X, y = rows(30)
    settings = {"kernel": "matern32", "standardize": True, "random_state": 0, "max_iter": 10}
    shallow = DeepGPRegressor(1, inference=Exact(), likelihood="gaussian", **settings)
    deep = DeepGPRegressor(2, inference="collapsed", **settings)
    curves = [model.fit(X, y[:, 0]).loss_curve_ for model in (shallow, deep)]
    assert_allclose(curves[0], curves[1], rtol=1e-9)
    for a, b in zip(*(model.predict(X, return_std=True) for model in (shallow, deep))):
        assert_allclose(a, b, rtol=1e-4)


# The search


def test_deep_models_know_steps_and_stay_honest():
    """Error bars of few rows: 30 of a step, where one lengthscale has to be short everywhere."""
    X, y = make_step(30, random_state=0)
    X_test, y_test = make_step(500, random_state=1)
    shallow = DeepGPRegressor(
        1, inference="exact", kernel="squared_exponential", likelihood="gaussian", random_state=0
    )
    deep = DeepGPRegressor(
        2, inference=CollapsedVI(n_draws=4), n_inducing=10, max_iter=60, random_state=0
    )
    scores = [
        model.fit(X, y).log_predictive_density(X_test, y_test).mean() for model in (shallow, deep)
    ]
    assert scores[1] > scores[0] + 1.0


def test_the_bound_grows():
    """So does the marginal likelihood before it; between the two the loss starts anew."""
    X, y = rows(30)
    model = deep(inference=CollapsedVI(n_draws=4), max_iter=60).fit(X, y[:, 0])
    curve = np.array(model.loss_curve_)
    (start,) = np.flatnonzero(np.diff(curve) > 0.0) + 1
    assert 5 < start <= 30
    assert curve[-1] < curve[start] - 0.1


@pytest.mark.parametrize(("n", "expected"), [(20, 32), (500, 8), (1200, 4)])
def test_numbers_of_draws(n, expected):
    model = make((), n_draws=None)
    model.hold(everything(*rows(n)))
    assert len(model._draws_of_training()) == expected
    assert len(model._marginal_subset) == min(n, 1000)


def test_posterior_of_some_rows_is_that_given_these(monkeypatch):
    """Unlike the marginal likelihood of a part, the bound is not multiplied."""
    X, y = rows(20)
    monkeypatch.setattr(collapsed.CollapsedGP, "marginal_rows", 8)
    some = make()
    some.hold(everything(X, y))
    chosen = some._marginal_subset.numpy()
    assert len(chosen) == 8
    of_some = objective(some, everything(X, y))
    assert_allclose(of_some, objective(make(), everything(X[chosen], y[chosen])), rtol=1e-10)


# States


def test_warm_start_goes_on_with_the_posterior(monkeypatch):
    monkeypatch.setattr(collapsed, "STEPS", 6)
    X, y = rows(25)
    model = deep(max_iter=20, warm_start=True).fit(X, y[:, 0])
    end = model.loss_curve_[-1]
    model.set_params(max_iter=1).fit(X, y[:, 0])
    assert model.loss_curve_[0] <= end + 1e-9


def test_warm_start_before_the_posterior_begins_with_it():
    X, y = rows(25)
    model = deep(max_iter=3, warm_start=True).fit(X, y[:, 0])
    assert (model.members_[0].arrays["log_sd"] < -13.0).all()
    model.set_params(max_iter=20).fit(X, y[:, 0])
    assert (model.members_[0].arrays["log_sd"] > -5.0).all()
