"""AEP: limits, identities, and behavior as a scheme."""

import math

import numpy as np
import pytest
import torch
from oracles import check_gradients, of_mixture
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF
from torch.distributions import MultivariateNormal
from toys import draw_functions, everything, jump_to_optimum, latents, toy

from skdgp.gp.likelihoods import Bernoulli, Gaussian, Poisson, RobustMax, Softmax, StudentT
from skdgp.inference import AEP
from skdgp.inference.aep.aep import _Cavity, _trace_excess

NOISE = 0.1


def data(n=12, n_features=2, seed=0):
    return toy(n, n_features, seed=seed)


@torch.no_grad()
def energy(model, batch):
    return float(model.expected_log_likelihood(batch, None) - model.kl())


def random_q(n_outputs=2, M=4, seed=0):
    rng = np.random.default_rng(seed)
    root = np.tril(0.4 * rng.standard_normal((n_outputs, M, M)), -1) + 0.8 * np.eye(M)
    return torch.as_tensor(rng.standard_normal((M, n_outputs))), torch.as_tensor(root)


# The scheme


def test_automatic_likelihood():
    assert AEP().auto_likelihood() == "gaussian"
    assert AEP().auto_likelihood(2) == "probit"
    assert AEP().auto_likelihood(3) == "robustmax"


# The cavity


@pytest.mark.parametrize("a", [1.0, 0.5, 1e-3])
@torch.no_grad()
def test_cavity_is_a_convex_combination_of_precisions(a):
    mean, root = random_q()
    S, eye = root @ root.mT, torch.eye(4, dtype=torch.float64)
    cavity_mean, Q, extra = _Cavity.apply(mean, S - eye, a)
    P = torch.linalg.inv(S)
    precision = (1.0 - a) * P + a * eye
    torch.testing.assert_close(torch.linalg.inv(eye + Q), precision, rtol=1e-11, atol=1e-12)
    natural = (1.0 - a) * P @ mean.T[..., None]
    expected = torch.linalg.solve(precision, natural)[..., 0].T
    torch.testing.assert_close(cavity_mean, expected, rtol=1e-11, atol=1e-12)

    def phi(m, S):  # log-normalizer, from natural parameters
        quadratic = (m.T[:, None] @ torch.linalg.inv(S) @ m.T[..., None]).flatten()
        return 0.5 * (torch.logdet(S) + quadratic).sum()

    naive = phi(mean, S) + (phi(cavity_mean, eye + Q) - phi(mean, S)) / a
    kl = 0.5 * (torch.diagonal(S - eye, dim1=1, dim2=2).sum() + mean.square().sum())
    kl = kl - 0.5 * torch.logdet(S).sum()
    torch.testing.assert_close(extra - kl, naive, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_cavity_without_a_share_is_q():
    mean, root = random_q()
    X = root @ root.mT - torch.eye(4)
    cavity_mean, Q, extra = _Cavity.apply(mean, X, 1e-12)
    torch.testing.assert_close(cavity_mean, mean, rtol=0.0, atol=1e-11)
    torch.testing.assert_close(Q, X, rtol=0.0, atol=1e-11)
    assert abs(extra) < 1e-11


@pytest.mark.parametrize("a", [1.0, 0.3, 1e-2])
def test_gradients_of_the_cavity(a):
    mean, root = random_q()
    X = (root @ root.mT - torch.eye(4)).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda mean, X: _Cavity.apply(mean, 0.5 * (X + X.mT), a), (mean.requires_grad_(), X)
    )


@pytest.mark.parametrize("a", [1e-3, 1e-5, 1e-7, 1e-11])
@torch.no_grad()
def test_determinant_of_a_small_share(a):
    X = torch.as_tensor(np.diag([0.5, -0.9, 3.0]))[None]
    R = torch.linalg.cholesky(torch.eye(3, dtype=torch.float64) + a * X)
    expected = math.fsum(x - math.log1p(a * x) / a for x in (0.5, -0.9, 3.0))
    np.testing.assert_allclose(float(_trace_excess(X, R, a)), expected, rtol=1e-7, atol=1e-15)


# The energy


@pytest.mark.parametrize(
    ("likelihood", "n_latents", "y"),
    [
        (Gaussian(np.full(1, NOISE)), 1, None),
        (Bernoulli(), 1, 2),
        (Bernoulli("logit"), 1, 2),
        (StudentT(4.0, np.full(1, 0.5)), 1, None),
        (Poisson(np.full(1, 2.0)), 1, 4),
        (RobustMax(), 3, 3),
        (Softmax(), 3, 3),
    ],
    ids=lambda x: repr(x) if hasattr(x, "get_params") else None,
)
def test_small_powers_give_the_variational_bound(make_model, likelihood, n_latents, y):
    X, target = data()
    if y is not None:
        target = torch.as_tensor(np.random.default_rng(1).integers(y, size=(12, 1))).double()
    batch = everything(X, target)

    def difference(alpha):
        model = make_model(
            widths=(), n_latents=n_latents, likelihood=likelihood, scheme=AEP(alpha=alpha)
        )
        with torch.no_grad():
            mean, var = model.layers[0].moments(X)
            ell = model.likelihood().expected_log_prob(target, mean, var).sum()
        return energy(model, batch) - float(ell - model.kl())

    coarse, fine = difference(1e-4), difference(1e-6)
    assert 1e-7 < abs(coarse) < 0.1
    # the error is of first order in alpha, but for that of the quadrature
    assert abs(fine) < 0.011 * abs(coarse) + 2e-5
    assert abs(difference(1e-17)) < 1e-9


def test_prior_as_posterior_leaves_the_normalizers(make_model):
    batch = everything(*data())
    model = make_model(random_q=False, scheme=AEP(alpha=0.5, inner_scale=1.0))
    with torch.no_grad():
        mean, var = model.match(batch.X, [q.moments() for q in model.blocks()])
        log_z = model.likelihood().log_partition(batch.y, mean, var, 0.5) / 0.5
    assert energy(model, batch) == pytest.approx(float(log_z.sum()), rel=1e-12)


def test_one_row_is_exact_whatever_the_posterior(make_model):
    X, y = data(1)
    values = [
        energy(make_model(widths=(), seed=0, scheme=AEP(1.0, inner_noise=0.0)), everything(X, y))
    ]
    model = make_model(widths=(), seed=0, scheme=AEP(1.0))
    mean, root = random_q(1, 5, seed=3)
    with torch.no_grad():
        model.layers[0].q.mean.copy_(mean)
        model.layers[0].q.root.copy_(root)
    values.append(energy(model, everything(X, y)))
    expected = -0.5 * (math.log(2.0 * math.pi * (1.0 + NOISE)) + float(y) ** 2 / (1.0 + NOISE))
    np.testing.assert_allclose(values, expected, rtol=1e-10)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_identical_rows_are_exact(make_model, alpha):
    """Power EP's posterior is a stationary point, where the energy is power EP's evidence."""
    n = 5
    X, y = (part.expand(n, -1).clone() for part in data(1))
    model = make_model(widths=(), scheme=AEP(alpha=alpha))
    layer = model.layers[0]
    with torch.no_grad():
        kernel, eye = layer.kernel(), torch.eye(5, dtype=torch.float64)
        L = torch.linalg.cholesky(kernel(layer.Z, layer.Z) + layer.jitter * eye)
        A = torch.linalg.solve_triangular(L, kernel(layer.Z, X), upper=False)
        left_out = kernel.diag(X) - A.square().sum(0)
        noise = alpha * left_out + NOISE
        P = eye + A / noise @ A.T
        S = torch.linalg.inv(P)
        layer.q.mean.copy_(S @ (A / noise) @ y)
        layer.q.root.copy_(torch.linalg.cholesky(S)[None])
        covariance = A.T @ A + torch.diag(noise)
        evidence = MultivariateNormal(torch.zeros(n).double(), covariance).log_prob(y[:, 0])
        if alpha < 1.0:
            correction = (1.0 - alpha) / (2.0 * alpha) * torch.log1p(alpha * left_out / NOISE)
            evidence = evidence - correction.sum()
    batch = everything(X, y)
    assert energy(model, batch) == pytest.approx(float(evidence), rel=1e-10)
    (-model.expected_log_likelihood(batch, None)).backward()
    layer.q.set_gradients(1.0)
    assert layer.q.mean.grad.abs().max() < 1e-9
    assert layer.q.root.grad.abs().max() < 1e-9
    # one row with a weight of 5 is the same
    one = everything(X[:1], y[:1], torch.full((1,), float(n)).double())
    assert energy(model, one) == pytest.approx(float(evidence), rel=1e-10)


def test_other_rows_are_not_fitc(make_model):
    """The optimum of the energy exceeds FITC's evidence: one factor for all rows is no FITC."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-2.0, 2.0, (20, 1)), 0)
    y = np.sin(3.0 * X) + 0.2 * rng.standard_normal((20, 1))
    batch = everything(torch.as_tensor(X), torch.as_tensor(y))
    model = make_model(1, (), scheme=AEP(), random_q=False)
    layer = model.layers[0]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".q." in name)
    with torch.no_grad():
        layer.Z.copy_(torch.linspace(-2.0, 2.0, 5)[:, None])
    parameters = [layer.q.mean, layer.q.root]

    def objective(x):
        torch.nn.utils.vector_to_parameters(torch.as_tensor(x), parameters)
        value = -model.expected_log_likelihood(batch, None)
        value.backward()
        layer.q.root.grad = None
        layer.q.set_gradients(1.0)
        gradient = torch.cat([p.grad.flatten() for p in parameters])
        return float(value.detach() + model.kl()), gradient.numpy().copy()

    x = torch.nn.utils.parameters_to_vector(parameters).detach().numpy()
    found = minimize(objective, x, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    with torch.no_grad():
        kernel, Z = layer.kernel(), layer.Z
        K = kernel(batch.X, Z)
        Q = K @ torch.linalg.solve(kernel(Z, Z) + 1e-6 * torch.eye(5), K.T)
        fitc = Q + torch.diag(kernel.diag(batch.X) - torch.diagonal(Q) + NOISE)
        evidence = MultivariateNormal(torch.zeros(20).double(), fitc).log_prob(batch.y[:, 0])
    assert -found.fun > float(evidence) + 0.1


@pytest.mark.parametrize("input_connected", [False, True])
def test_minibatches_are_unbiased(make_model, input_connected):
    X, y = data(6)
    model = make_model(widths=(2, 1), input_connected=input_connected, scheme=AEP(alpha=0.5))
    weight = torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0, 1.0], dtype=torch.float64)
    whole = energy(model, everything(X, y, weight))
    parts = [
        energy(model, everything(X[i : i + 2], y[i : i + 2], weight[i : i + 2], 3.0, 9.0))
        for i in (0, 2, 4)
    ]
    assert np.mean(parts) == pytest.approx(whole, rel=1e-11)


def test_small_powers_in_two_layers(make_model):
    batch = everything(*data())
    model = make_model(scheme=AEP(alpha=1e-6))
    with torch.no_grad():
        mean, var = model.match(batch.X, [q.moments() for q in model.blocks()])
        ell = model.likelihood().expected_log_prob(batch.y, mean, var).sum()
    assert energy(model, batch) == pytest.approx(float(ell - model.kl()), rel=1e-4)


@pytest.mark.parametrize(
    "likelihood",
    [Gaussian(np.full(2, 0.1)), StudentT(4.0, np.full(2, 0.5))],
    ids=lambda likelihood: type(likelihood).__name__,
)
@pytest.mark.parametrize("settings", [{}, {"alpha": 0.3}], ids=repr)
def test_gradients_equal_finite_differences(make_model, likelihood, settings):
    X, y = data(4)
    batch, scheme = everything(X, torch.cat([y, y.cos()], 1)), AEP(**settings)
    model = make_model(
        widths=(2, 2), n_latents=2, n_inducing=3, likelihood=likelihood, scheme=scheme
    )
    (-model.expected_log_likelihood(batch, None)).backward()
    for q in model.blocks():
        q.set_gradients(1.0)
    rng = np.random.default_rng(0)

    def direction(parameter):
        found = torch.as_tensor(rng.standard_normal((1, *parameter.shape)))
        is_root = parameter.ndim == 3 and parameter.shape[-1] == parameter.shape[-2]
        return found.tril() if is_root else found

    named = list(model.named_parameters())
    check_gradients(lambda: -energy(model, batch), named, atol=1e-6, directions=direction)


# Training and prediction


def test_natural_steps_reach_the_optimum_of_a_shallow_model(make_model):
    batch = everything(*data(20))
    model = make_model(widths=(), random_q=False, scheme=AEP(alpha=0.5))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for _ in range(300):
        model.expected_log_likelihood(batch, None).backward()
        q = model.layers[0].q
        assert q.natural_step(q.collected_gradients(), 0.1)
    best = energy(model, batch)
    rng = np.random.default_rng(0)
    for parameter in (q.mean, q.root):
        for _ in range(3):
            step = torch.as_tensor(1e-3 * rng.standard_normal(parameter.shape)).tril()
            with torch.no_grad():
                parameter.add_(step)
                values = energy(model, batch)
                parameter.sub_(step)
            assert values < best


def test_variational_limit_with_all_rows_as_inducing_inputs_is_the_exact_gp(make_model):
    X, y = data(15)
    model = make_model(widths=(), n_inducing=15, random_q=False, scheme=AEP(alpha=1e-6))
    layer = model.layers[0]
    layer.jitter = 1e-10
    with torch.no_grad():
        layer.Z.copy_(X)
    batch = everything(X, y)
    jump_to_optimum(model, batch)
    exact = GaussianProcessRegressor(RBF(math.sqrt(2.0)), alpha=NOISE, optimizer=None)
    exact.fit(X.numpy(), y.numpy()[:, 0])
    X_new = data(5, seed=1)[0]
    mean, var = latents(model, X_new)
    expected = exact.predict(X_new.numpy(), return_std=True)
    np.testing.assert_allclose(mean[0, :, 0], expected[0], atol=1e-4)
    np.testing.assert_allclose(var[0, :, 0].sqrt(), expected[1], atol=1e-4)
    evidence = exact.log_marginal_likelihood_value_
    assert energy(model, batch) == pytest.approx(evidence, abs=1e-3)


@pytest.mark.parametrize("input_connected", [False, True])
def test_two_layers_have_the_same_moments_in_both_kinds_of_prediction(make_model, input_connected):
    X = data(3)[0]
    moments, n = [], 2**14
    for prediction in ("moment-matching", "sampling"):
        model = make_model(input_connected=input_connected, scheme=AEP(prediction=prediction))
        mean, var = latents(model, X, n)
        moments.append((mean.mean(0), (var + mean.square()).mean(0) - mean.mean(0).square()))
        assert len(mean) == (n if prediction == "sampling" else 1)
    errors = [(a - b).abs().max() for a, b in zip(*moments)]
    assert errors[0] < 0.01 and errors[1] < 0.02  # a tenth of independent draws' four errors


@pytest.mark.parametrize("prediction", ["moment-matching", "sampling"])
def test_functions_follow_the_predictive(make_model, generator, prediction):
    """In mean, variance and skewness: with moment matching they are Gaussian as it is."""
    X = data(3)[0]
    model = make_model(scheme=AEP(prediction=prediction, inner_noise=0.0))
    f = draw_functions(model, 4000, generator, 200)(X)
    assert of_mixture(f, *latents(model, X, 2**13), powers=(1, 2, 3)) < 4.5


def test_matched_functions_covary_as_deep_ones(make_model, generator):
    """Correlations of a sample of 32 deep functions, of those of 4000: within two standard errors."""
    X = data(3)[0]
    found = []
    for prediction in ("moment-matching", "sampling"):
        model = make_model(scheme=AEP(prediction=prediction))
        f = draw_functions(model, 4000, generator, 200)
        found.append(np.corrcoef(f(X)[..., 0].T))
        torch.testing.assert_close(f(X[1:]), f(X)[:, 1:], rtol=1e-12, atol=1e-12)
    assert (np.abs(found[0] - found[1]) < 4.0 * (1.0 - found[1] ** 2 + 0.05) / math.sqrt(128)).all()


def test_rows_that_count_less_than_one(make_model):
    X, y = data(3)
    batch = everything(X, y, torch.full((3,), 0.1, dtype=torch.float64))
    assert math.isfinite(energy(make_model(scheme=AEP()), batch))
