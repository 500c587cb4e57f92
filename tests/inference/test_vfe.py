"""The shallow GP with its posterior in closed form."""

import warnings

import numpy as np
import pytest
import torch
import vectors
from numpy.testing import assert_allclose
from oracles import check_gradients
from scipy.stats import cauchy, multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from toys import architecture, everything, jump_to_optimum, latents, noisy, rows

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import DSVI, VFE, PowerEP
from skdgp.inference.sparse import full_batch

JITTER = 1e-10


def scheme_of(alpha, **settings):
    return PowerEP(alpha, **settings) if alpha > 0.0 else VFE(**settings)


def make_model(Z, k=1, scheme=None, alpha=0.0, kernel="matern32"):
    scheme = scheme_of(alpha) if scheme is None else scheme
    model = scheme.build(architecture((), k, len(Z), kernel), noisy(k))
    model.layers[0].jitter = JITTER
    with torch.no_grad():
        model.layers[0].Z.copy_(torch.as_tensor(Z))
        for name, parameter in model.named_parameters():
            if "lengthscale" in name:
                parameter.copy_(torch.tensor([0.3, -0.2]))
    return model


def kernel_matrix(model, A, B):
    with torch.no_grad():
        return model.layers[0].kernel()(torch.as_tensor(A), torch.as_tensor(B)).numpy()


def brute_force(model, X, y, Z, alpha=0.0):
    """Bui et al. (2017), equation 27, term by term, or its limit; noises are .1, .2, ..."""
    K_uu = kernel_matrix(model, Z, Z) + JITTER * np.eye(len(Z))
    K_uf = kernel_matrix(model, Z, X)
    Q = K_uf.T @ np.linalg.solve(K_uu, K_uf)
    d = np.diag(kernel_matrix(model, X, X)) - np.diag(Q)
    total = 0.0
    for i, target in enumerate(y.T):
        noise = 0.1 * (i + 1)
        covariance = Q + alpha * np.diag(d) + noise * np.eye(len(X))
        total += multivariate_normal(np.zeros(len(X)), covariance).logpdf(target)
        if alpha == 0.0:
            total -= 0.5 * d.sum() / noise
        else:
            total -= (1.0 - alpha) / (2.0 * alpha) * np.log1p(alpha * d / noise).sum()
    return total


@torch.no_grad()
def value_of(model, *arrays):
    return model.collapsed(*everything(*arrays)[:3])


@pytest.fixture(params=["at once", "chunks", "chunks anew"])
def memory(request, monkeypatch):
    """The ways in which rows are gone through."""
    if request.param != "at once":
        monkeypatch.setattr(full_batch, "AT_ONCE", 50)
    if request.param == "chunks anew":
        monkeypatch.setattr(full_batch, "_KEPT", 0)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_bound_by_brute_force(k, alpha, memory):
    X, y = rows(30, k=k)
    model = make_model(X[:7] + 0.1, k, alpha=alpha)
    expected = brute_force(model, X, y, X[:7] + 0.1, alpha)
    assert_allclose(value_of(model, X, y), expected, rtol=1e-9)


def test_limit_of_small_alpha_is_the_bound():
    X, y = rows(30, k=2)
    bound = value_of(make_model(X[:7] + 0.1, 2), X, y)
    gaps = [
        value_of(make_model(X[:7] + 0.1, 2, alpha=alpha), X, y) - bound for alpha in (1e-4, 1e-6)
    ]
    assert_allclose(gaps[0] / gaps[1], 100.0, rtol=0.01)  # the difference is linear in alpha
    assert abs(gaps[1]) < 1e-4 * abs(bound)
    smallest = value_of(make_model(X[:7] + 0.1, 2, alpha=1e-17), X, y)
    assert_allclose(smallest, bound, rtol=1e-12)


@pytest.mark.parametrize("case", vectors.read("aep.json")["fitc"])
def test_power_ep_by_reference(case):
    X, y, Z = (np.array(case[name]) for name in ("X", "y", "Z"))
    kernel = SquaredExponential(np.array(case["lengthscales"]), case["variance"])
    model = PowerEP(case["alpha"]).build(
        architecture((), 1, len(Z), kernel, n_features=1),
        Gaussian(np.array([case["noise_variance"]])),
    )
    model.layers[0].jitter = case["jitter"]
    with torch.no_grad():
        model.layers[0].Z.copy_(torch.as_tensor(Z))
    expected = case["expected"]
    assert_allclose(value_of(model, X, y), expected["log_evidence"], rtol=1e-9)
    model.unsolved = everything(X, y)
    model._solve()
    q = model.layers[0].q
    assert_allclose(q.mean[:, 0].detach(), expected["q_mu_whitened"], rtol=1e-8)
    cov = (q.root @ q.root.mT)[0].detach()
    assert_allclose(cov, expected["q_cov_whitened"], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_all_rows_as_inducing_inputs_are_the_exact_gp(k, alpha):
    X, y = rows(30, k=k)
    model = make_model(X, k, alpha=alpha)
    K = kernel_matrix(model, X, X)
    exact = sum(
        multivariate_normal(cov=K + 0.1 * (i + 1) * np.eye(len(X))).logpdf(target)
        for i, target in enumerate(y.T)
    )
    assert_allclose(model.exact(*everything(X, y)[:3]).detach(), exact, rtol=1e-8)
    assert_allclose(value_of(model, X, y), exact, rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_weights_are_counts(alpha):
    X, y = rows(20, k=2)
    counts = np.random.default_rng(1).integers(1, 4, 20)
    copies = np.repeat(X, counts, 0), np.repeat(y, counts, 0)
    model = make_model(X[:8], 2, alpha=alpha)
    assert_allclose(value_of(model, X, y, counts), value_of(model, *copies), rtol=1e-12)
    model = make_model(X, 2, alpha=alpha)
    weighted = float(model.exact(*everything(X, y, counts)[:3]))
    assert_allclose(weighted, value_of(model, *copies), rtol=1e-6)


@pytest.mark.parametrize(
    ("kernel", "n_inducing", "alpha"),
    [
        ("matern32", 6, 0.0),
        ("matern32", 6, 0.4),
        ("linear", 6, 1.0),
        ("linear", 30, 0.0),
        ("matern32", 30, 0.4),
    ],
)
def test_gradients(kernel, n_inducing, alpha, memory):
    """All objectives against finite differences, for numbers and inducing inputs."""
    X, y = rows(30, k=2)
    scheme = scheme_of(alpha, train_inducing=n_inducing == 6)
    model = make_model(X[:n_inducing] + 1e-3 * (n_inducing == 6), 2, scheme=scheme, kernel=kernel)
    if kernel == "linear":
        model.layers[0].jitter = 1e-6
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert len(named) == 3 + (n_inducing == 6)  # two of the kernel, noise, inputs
    batch = everything(X, y, np.arange(30) % 3 + 1.0)
    assert model._is_exact(batch.X) == (n_inducing == 30)
    model.lower_bound(batch)
    check_gradients(lambda: model.lower_bound(batch), named)


def test_posterior_is_the_one_that_natural_gradients_reach():
    """One full step of size 1 of the variational scheme, and the same bound."""
    X, y = rows(30, k=2)
    model, batch = make_model(X[:8], 2), everything(X, y)
    model.unsolved = batch
    model._solve()
    mean, root = model.layers[0].q.mean.clone(), model.layers[0].q.root.clone()
    shape = architecture((), 2, 8, model.layers[0].kernel.fitted())
    other = DSVI().build(shape, model.likelihood.fitted())
    other.layers[0].jitter = model.layers[0].jitter
    with torch.no_grad():
        other.layers[0].Z.copy_(model.layers[0].Z)
    jump_to_optimum(other, batch)
    q = other.layers[0].q
    assert_allclose(mean, q.mean.detach(), atol=1e-7)
    assert_allclose(root @ root.mT, (q.root @ q.root.mT).detach(), atol=1e-8)
    m, v = latents(model, batch.X)
    ell = float(model.likelihood.frozen().expected_log_prob(batch.y, m[0], v[0]).sum())
    assert_allclose(ell - float(model.divergence()), value_of(model, X, y))


def test_same_answer_as_scikit_learn():
    X, y = rows(60)
    y = 5.0 + 3.0 * y[:, 0]
    model = DeepGPRegressor(1, inference="vfe", kernel="matern32", random_state=0).fit(X, y)
    kernel = ConstantKernel(1.0) * Matern([1.0, 1.0], nu=1.5) + WhiteKernel(0.1)
    z = (X - X.mean(0)) / X.std(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = GaussianProcessRegressor(
            kernel, normalize_y=True, n_restarts_optimizer=3, random_state=0
        )
        exact.fit(z, y)
    evidence = exact.log_marginal_likelihood_value_ - len(y) * np.log(y.std())
    assert_allclose(model.lower_bound_, evidence, atol=2e-3)
    new = rows(20, seed=3)[0]
    mean, std = model.predict(new, return_std=True)
    expected = exact.predict((new - X.mean(0)) / X.std(0), return_std=True)
    assert_allclose(mean, expected[0], atol=2e-2)
    assert_allclose(std, expected[1], rtol=1e-2)


def test_repeated_inputs_are_exact_too():
    """Rows that share their inputs are fewer places than rows."""
    X, y = rows(40)
    X[20:] = X[:20]
    model = DeepGPRegressor(1, inference="vfe", random_state=0).fit(X, y[:, 0])
    member = model.members_[0].model("cpu")
    z, t = model._x_scaler.transform(X), model._y_scaler.transform(y)
    with torch.no_grad():
        exact = float(member.exact(*everything(z, t)[:3]))
    assert member._is_exact(torch.as_tensor(z))
    assert_allclose(model.lower_bound_, exact - 40 * np.log(model._y_scaler.scale[0]), atol=1e-2)


def test_training_inducing_inputs_improves_the_bound():
    X, y = rows(200)
    fixed, trained = (
        DeepGPRegressor(
            1, inference=VFE(train_inducing=t), n_inducing=6, random_state=0, max_iter=60
        ).fit(X, y[:, 0])
        for t in (False, True)
    )
    assert trained.lower_bound_ > fixed.lower_bound_ + 0.5


def test_nearly_the_bound_of_the_variational_scheme():
    X, y = rows(150)
    closed = DeepGPRegressor(1, inference="vfe", n_inducing=40, random_state=0).fit(X, y[:, 0])
    steps = DeepGPRegressor(
        1, inference=DSVI(natural_step=0.5), n_inducing=40, random_state=0, max_iter=400
    ).fit(X, y[:, 0])
    assert -1.0 < closed.lower_bound_ - steps.lower_bound_ < 3.0
    new = rows(50, seed=3)[0]
    assert_allclose(closed.predict(new), steps.predict(new), atol=0.1)


def test_kernels_and_noise_can_be_fixed():
    X, y = rows(40)
    model = DeepGPRegressor(
        1,
        inference="vfe",
        kernel=SquaredExponential(variance=2.0, lengthscale=0.7, trainable=False),
        likelihood=Gaussian(variance=0.3, trainable=False),
        random_state=0,
    ).fit(X, y[:, 0])
    assert_allclose(model.kernels_[0].lengthscale, 0.7)
    assert_allclose(model.likelihood_.variance, 0.3)


def test_interrupt_between_points():
    """In the middle of a line search the hyperparameters are on trial; those of the last step stay."""
    X, y = rows(40)
    model, batch = make_model(X[:8]), everything(X, y)
    loss, bound = model.step(batch, None), model.lower_bound

    def interrupted(batch):
        bound(batch)
        raise KeyboardInterrupt

    model.lower_bound = interrupted
    with pytest.raises(KeyboardInterrupt):
        model.step(batch, None)
    assert_allclose(-value_of(model, X, y) / 40.0, loss)


@pytest.mark.parametrize("n_inducing", [8, 40])
def test_objective_has_the_prior_of_deviations(n_inducing):
    """The bound has not; what is added to the gradients is right."""
    X, y = rows(40)
    scheme, batch = VFE(deviation=0.4), everything(X, y)
    model = make_model(X[:n_inducing], scheme=scheme)
    (numbers,) = (p for p in model.layers[0].kernel.parameters() if p.numel() > 1)
    values, slopes = [], []
    for what in (model.lower_bound, model.objective):
        numbers.grad = torch.zeros_like(numbers)
        values.append(what(batch))
        slopes.append(numbers.grad.numpy())
    deviations = np.array([0.25, -0.25])
    prior = (cauchy.logpdf(deviations, scale=0.4) - cauchy.logpdf(0.0, scale=0.4)).sum()
    assert_allclose(values, value_of(model, X, y) + np.array([0.0, prior]), rtol=1e-9)
    slope = -2.0 * deviations / (0.4**2 + deviations**2)  # they add up to zero
    assert_allclose(slopes[1] - slopes[0], slope, rtol=1e-7)
    before = numbers.detach().clone()
    loss = model.step(batch, None)
    assert (numbers.detach() != before).any()
    assert_allclose(loss, -model.objective(batch) / 40.0, rtol=1e-9)


def test_divergence_is_that_of_the_present_posterior():
    X, y = rows(40)
    model = make_model(X[:8])
    model.step(everything(X, y), None)
    now = float(model.divergence())
    model.state()  # which needs the posterior as well
    assert float(model.divergence()) == now > 0.1
