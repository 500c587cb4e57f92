import contextlib
import math

import numpy as np
import pytest
import torch
from oracles import gradcheck, in_standard_errors, of_mixture

from skdgp.gp.kernels import Anova, ArcCosine, Linear, Matern, RationalQuadratic, SquaredExponential
from skdgp.gp.layer import SparseLayer, _SparseMoments
from skdgp.gp.layer import sparse_moments as sparse_moments_of
from skdgp.linalg import workspace

KERNELS = {
    "squared_exponential": SquaredExponential([0.7, 1.3], 1.4),
    "matern32": Matern(1.5, [0.7, 1.3], 1.4),
    "rational_quadratic": RationalQuadratic(0.8, [0.7, 1.3]),
    "anova": Anova(1.5, [0.7, 1.3], [0.4, 2.0], 1.4),
    "arc_cosine": ArcCosine([0.7, 1.3]),
    "nested": (SquaredExponential() + Linear()) * Matern(2.5),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def rows(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


def make_layer(
    kernel=KERNELS["squared_exponential"], n_outputs=3, n_inducing=5, seed=0, **settings
):
    layer = SparseLayer(kernel.bind(2), 2, n_outputs, n_inducing, **settings)
    rng = np.random.default_rng(seed)
    root = np.tril(0.3 * rng.standard_normal(layer.q.root.shape), -1) + 0.6 * np.eye(n_inducing)
    with torch.no_grad():
        layer.Z.copy_(torch.as_tensor(rng.standard_normal((n_inducing, 2))))
        layer.q.mean.copy_(torch.as_tensor(rng.standard_normal((n_inducing, n_outputs))))
        layer.q.root.copy_(torch.as_tensor(root))
        if layer.W is not None:
            layer.W.copy_(torch.as_tensor(rng.standard_normal((2, n_outputs))))
    return layer


def dense_posterior(layer, X):
    """Mean (P, D) and covariances (D, P, P) of q(f) without layer noise, by conditioning on u."""
    kernel, Z = layer.kernel(), layer.Z
    with torch.no_grad():
        K_uu = kernel(Z, Z) + layer.jitter * torch.eye(len(Z)).double()
        L = torch.linalg.cholesky(K_uu)
        B = kernel(X, Z) @ torch.linalg.inv(K_uu)
        mean_u = L @ layer.q.mean  # q(u) with the mean function taken off
        cov_u = L @ layer.q.root @ layer.q.root.mT @ L.T
        mean = layer.mean_function(X) + B @ mean_u
        return mean, kernel(X, X) + B @ (cov_u - K_uu) @ B.T


# Moments


@every_kernel
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(
    "settings", [{}, {"linear_mean": True, "noise": 0.3}, {"jitter": 0.2}, {"shared": True}]
)
def test_moments_are_those_of_dense_conditioning(kernel, n_outputs, settings):
    layer, X = make_layer(kernel, n_outputs, **settings), rows(7, 2, seed=1)
    mean, var = layer.moments(X)
    dense_mean, dense_cov = dense_posterior(layer, X)
    torch.testing.assert_close(mean, dense_mean, rtol=1e-9, atol=1e-9)
    dense_var = torch.diagonal(dense_cov, dim1=1, dim2=2).T + settings.get("noise", 0.0)
    torch.testing.assert_close(var, dense_var.expand_as(mean), rtol=1e-9, atol=1e-9)


def test_predictions_where_posteriors_are_narrower_and_wider_than_the_prior():
    """They go by one product of quadratic forms, which have eigenvalues of both signs."""
    layer, X = make_layer(n_outputs=2), rows(9, 2, seed=1)
    with torch.no_grad():
        layer.q.root[0] = 0.1 * torch.eye(5)
        layer.q.root[1] = torch.diag(torch.tensor([0.1, 1.0, 3.0, 0.5, 2.0]))
    frozen = layer.frozen()
    mean, var = frozen.moments(X)
    assert (frozen._signs < 0).sum((1, 2)).tolist() == [5, 2]
    dense_mean, cov = dense_posterior(layer, X)
    torch.testing.assert_close(mean, dense_mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(var, torch.diagonal(cov, dim1=1, dim2=2).T, rtol=1e-9, atol=1e-9)


def test_a_posterior_that_is_not_finite_predicts_nan():
    layer = make_layer(n_outputs=2)
    with torch.no_grad():
        layer.q.root[1, 0, 0] = torch.inf
    var = layer.frozen().moments(rows(3, 2))[1]
    assert torch.isfinite(var[:, 0]).all() and var[:, 1].isnan().all()


def test_moments_agree_with_draws_of_the_inducing_outputs(generator):
    layer, X = make_layer(n_outputs=1), rows(4, 2, seed=1)
    with torch.no_grad():
        kernel, Z = layer.kernel(), layer.Z
        L = torch.linalg.cholesky(kernel(Z, Z) + layer.jitter * torch.eye(5).double())
        n = 40_000
        v = torch.randn(n, 5, generator=generator, dtype=torch.float64)
        u = (layer.q.mean[:, 0] + v @ layer.q.root[0].T) @ L.T
        B = torch.cholesky_solve(kernel(Z, X), L)
        conditional = kernel.diag(X) - (kernel(Z, X) * B).sum(0)
        f = u @ B + conditional.sqrt() * torch.randn(n, 4, generator=generator, dtype=torch.float64)
        mean, var = layer.moments(X)
    assert of_mixture(f[..., None], mean[None], var[None]) < 4


@every_kernel
def test_a_posterior_equal_to_the_prior_has_prior_marginals_everywhere(kernel):
    layer = SparseLayer(kernel.bind(2), 2, 3, 5, linear_mean=True, noise=0.3)
    with torch.no_grad():
        layer.Z.copy_(rows(5, 2))
        layer.W.copy_(rows(2, 3, seed=2))
    X = torch.cat([rows(7, 2, seed=1), layer.Z.detach()])
    mean, var = layer.moments(X)
    torch.testing.assert_close(mean, X @ layer.W, rtol=1e-12, atol=1e-12)
    expected = layer.kernel().diag(X)[:, None].expand(-1, 3) + 0.3
    torch.testing.assert_close(var, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["squared_exponential", "matern32"])
def test_far_from_the_inducing_inputs_the_prior_returns(name):
    layer = make_layer(KERNELS[name], linear_mean=True, noise=0.3)
    X = rows(4, 2, seed=1) + 200.0
    mean, var = layer.moments(X)
    torch.testing.assert_close(mean, X @ layer.W, rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(
        var, torch.full((4, 3), 1.7, dtype=torch.float64), rtol=1e-12, atol=1e-12
    )


def test_at_the_inducing_inputs_the_posterior_is_that_of_the_inducing_outputs():
    layer = make_layer(jitter=1e-10)
    mean, var = layer.moments(layer.Z.detach())
    L = torch.linalg.cholesky(layer.kernel()(layer.Z, layer.Z))
    torch.testing.assert_close(mean, L @ layer.q.mean, rtol=1e-7, atol=1e-7)
    cov = L @ layer.q.root @ layer.q.root.mT @ L.T
    torch.testing.assert_close(var, torch.diagonal(cov, dim1=1, dim2=2).T, rtol=1e-7, atol=1e-7)


def test_without_noise_there_is_no_number_for_it():
    assert "log_noise" not in dict(make_layer().named_parameters())
    layer = make_layer(noise=0.3)
    np.testing.assert_allclose(layer.noise().detach(), 0.3)
    assert layer.log_noise.requires_grad


# the factor of a kernel matrix with condition 1e6 turns rounding of 1e-7 into 1e-4
@pytest.mark.parametrize(("offset", "tolerance"), [(0.0, 1e-4), (100.0, 1e-3)])
def test_single_precision(offset, tolerance):
    layer, X = make_layer(n_inducing=30, seed=3), (rows(200, 2, seed=1) + offset).float()
    with torch.no_grad():
        layer.Z += offset
        mean, var = layer.moments(X)
        exact_mean, exact_var = layer.moments(X.double())
    assert mean.dtype == var.dtype == torch.float32
    assert (mean - exact_mean).abs().max() < tolerance * exact_mean.abs().max()
    assert (var - exact_var).abs().max() < tolerance * exact_var.abs().max()


# Gradients


def sparse_moments(X, Z, q_mean, root, lengthscale):
    kernel = SquaredExponential().bind(2).with_values(lengthscale=lengthscale)
    excess = root @ root.mT - torch.eye(root.shape[-1]).double()
    return _SparseMoments.apply(kernel(Z, Z), kernel(Z, X), kernel.diag(X), q_mean, excess, 1e-3)


def sparse_arguments(n_rows, n_outputs, n_inducing=4, n_roots=None):
    lengthscale = torch.tensor([0.7, 1.3], dtype=torch.float64)
    return tuple(
        t.requires_grad_()
        for t in (
            rows(n_rows, 2),
            rows(n_inducing, 2, seed=1),
            rows(n_inducing, n_outputs, seed=2),
            rows(n_roots or n_outputs, n_inducing, n_inducing, seed=3).tril(),
            lengthscale,
        )
    )


@pytest.mark.parametrize("n_rows", [2, 9, 30])  # fewer than inducing outputs, and many more
@pytest.mark.parametrize(("n_outputs", "n_roots"), [(1, 1), (3, 3), (3, 1)])
def test_gradients_of_the_moments(n_rows, n_outputs, n_roots):
    args = sparse_arguments(n_rows, n_outputs, n_roots=n_roots)
    assert torch.autograd.gradcheck(sparse_moments, args)


@every_kernel
def test_gradients_of_a_layer(kernel):
    layer = make_layer(kernel, n_outputs=2, n_inducing=3, linear_mean=True, noise=0.3, jitter=1e-3)
    names = {name for name, _ in layer.named_parameters()}
    assert {"Z", "log_noise"} < names
    gradcheck(layer, layer.moments, rows(4, 2, seed=1), of=lambda name: not name.startswith("q."))


RADIAL = {
    "squared_exponential": SquaredExponential(),
    "matern32": Matern(1.5),
    "matern52": Matern(2.5),
}


def plain_moments(kernel, Z, X, q_mean, Q, jitter):
    """The formulas, distance by distance, for automatic differentiation."""

    def K(A, B):
        r2 = ((A[:, None] - B) / kernel.lengthscale).square().sum(-1)
        return kernel.variance * kernel.profile(r2.clamp_min(1e-20))

    L = torch.linalg.cholesky(K(Z, Z) + jitter * torch.eye(len(Z)).double())
    A = torch.linalg.solve_triangular(L, K(Z, X), upper=False)
    return A.T @ q_mean, kernel.variance + torch.einsum("mp,dmn,np->pd", A, Q, A)


def radial_arguments(n_rows=30, n_inducing=6, n_outputs=2, lengthscale=(0.7, 1.3)):
    numbers = [torch.tensor(value, dtype=torch.float64) for value in (lengthscale, 1.4)]
    Q = rows(n_outputs, n_inducing, n_inducing, seed=3)
    arguments = (
        *(rows(n_inducing, 2, seed=1), rows(n_rows, 2), *numbers),
        *(rows(n_inducing, n_outputs, seed=2), Q + Q.mT),
    )
    return [t.requires_grad_() for t in arguments]


def value_and_gradients(f, kernel, arguments):
    Z, X, lengthscale, variance, q_mean, Q = arguments
    kernel = kernel.with_values(lengthscale=lengthscale, variance=variance)
    mean, var = f(kernel, Z, X, q_mean, Q, 1e-3)
    value = (mean.sin() + var.square()).sum()
    wanted = [t for t in arguments if t.requires_grad]
    return mean.detach(), var.detach(), *torch.autograd.grad(value, wanted)


@pytest.mark.parametrize("kernel", RADIAL.values(), ids=RADIAL)
@pytest.mark.parametrize(
    ("lengthscale", "n_rows", "of_rows"),
    [
        ((0.7, 1.3), 30, True),
        (0.9, 3, True),
        (0.9, 30, False),
        ((1e-4, 2e-4), 3, False),
        ((1e-4, 2e-4), 30, True),
    ],
)
def test_moments_from_inputs_are_those_of_the_formulas(kernel, lengthscale, n_rows, of_rows):
    arguments = radial_arguments(n_rows, lengthscale=lengthscale)
    with torch.no_grad():
        # where short lengthscales leave something to see
        arguments[1][0] = arguments[0][2] + 0.5 * arguments[2]
    arguments[1].requires_grad_(of_rows)
    expected = value_and_gradients(plain_moments, kernel, arguments)
    for context in (contextlib.nullcontext(), workspace()):
        with context:
            found = value_and_gradients(sparse_moments_of, kernel, arguments)
        for a, b in zip(found, expected):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8 * float(b.abs().max()))


@pytest.mark.parametrize("kernel", RADIAL.values(), ids=RADIAL)
@pytest.mark.parametrize("of_rows", [True, False])
def test_gradients_from_inputs_in_single_precision(kernel, of_rows):
    arguments = radial_arguments()
    arguments[1].requires_grad_(of_rows)
    expected = value_and_gradients(plain_moments, kernel, arguments)
    arguments[1] = arguments[1].detach().float().requires_grad_(of_rows)
    found = value_and_gradients(sparse_moments_of, kernel, arguments)
    for a, b in zip(found[2:], [t for t in arguments if t.requires_grad]):
        assert a.dtype == b.dtype
    for a, b in zip(found, expected):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def test_a_second_backward_pass_gives_the_same_gradients():
    args = sparse_arguments(6, 2)
    mean, var = sparse_moments(*args)
    value = (mean.sin() + var.square()).sum()
    first = torch.autograd.grad(value, args, retain_graph=True)
    second = torch.autograd.grad(value, args)
    assert all(torch.equal(a, b) for a, b in zip(first, second))


def test_reused_memory_does_not_change_gradients():
    # two layers on top of each other, several steps, in the order of training
    def run():
        out = []
        for step in range(3):
            first, second = (sparse_arguments(n, 2) for n in (6, 6))
            X = rows(6, 2, seed=10 + step)
            mean, var = sparse_moments(X, *first[1:])
            mean, var = sparse_moments(mean + var.sqrt(), *second[1:])
            out += [mean.detach().clone(), var.detach().clone()]
            out += torch.autograd.grad((mean.sin() + var.square()).sum(), (*first[1:], *second[1:]))
        return out

    fresh = run()
    with workspace():
        reused = run()
    assert all(torch.equal(a, b) for a, b in zip(fresh, reused))


def test_evaluation_between_forward_and_backward_does_not_disturb_gradients():
    def run(evaluate):
        args = sparse_arguments(6, 2)
        mean, var = sparse_moments(*args)
        if evaluate:
            with torch.no_grad():
                sparse_moments(rows(6, 2, seed=9), *args[1:])
        return torch.autograd.grad((mean.sin() + var.square()).sum(), args)

    with workspace():
        assert all(torch.equal(a, b) for a, b in zip(run(False), run(True)))


@every_kernel
def test_covariances_are_those_of_dense_conditioning(kernel):
    layer, X = make_layer(kernel, 2, linear_mean=True, noise=0.3), rows(7, 2, seed=1)
    expected = dense_posterior(layer, X)[1]
    torch.testing.assert_close(layer.frozen().covariance(X), expected, rtol=1e-9, atol=1e-9)


@every_kernel
@pytest.mark.parametrize("settings", [{"linear_mean": True, "noise": 0.3}, {"shared": True}])
def test_a_frozen_layer_has_the_moments_and_stays_as_it_was(kernel, settings):
    layer, X = make_layer(kernel, **settings), rows(7, 2, seed=1)
    frozen, expected = layer.frozen(), [part.detach() for part in layer.moments(X)]
    with torch.no_grad():
        for tensor in layer.state_dict().values():
            tensor.mul_(1.5)
    for part, wanted in zip(frozen.moments(X), expected):
        torch.testing.assert_close(part, wanted, rtol=1e-9, atol=1e-9)
        assert not part.requires_grad


# Function draws


def draw(layer, *args):
    f = layer.frozen().functions(*args)
    return lambda H: sum(f(H))


@every_kernel
@pytest.mark.parametrize("shared", [False, True])
def test_function_draws_have_the_moments_of_the_posterior(kernel, shared, generator):
    # with frequencies of its own for each function, few features are enough for exact covariances
    layer = make_layer(kernel, n_outputs=2, linear_mean=True, jitter=0.05, shared=shared)
    n, X = 30_000, rows(4, 2, seed=1)
    center, deviation = layer.frozen().functions(n, 4, generator)(X.expand(n, 4, 2))  # n, P, D
    mean, cov = dense_posterior(layer, X)
    torch.testing.assert_close(center, mean.expand_as(center), rtol=1e-9, atol=1e-9)
    f = center + deviation
    assert in_standard_errors(f, mean) < 4
    assert in_standard_errors(torch.einsum("npd,nqd->ndpq", f - mean, f - mean), cov) < 4.5


def test_outputs_and_functions_are_independent(generator):
    layer = make_layer(n_outputs=2)
    n, X = 20_000, rows(1, 2, seed=1)
    f = draw(layer, n, 4, generator)(X.expand(n, 1, 2))[:, 0]
    f = (f - f.mean(0)) / f.std(0)
    assert abs((f[:, 0] * f[:, 1]).mean()) * math.sqrt(n) < 4
    assert abs((f[::2] * f[1::2]).mean(0)).max() * math.sqrt(n / 2) < 4


def test_one_draw_is_one_function(generator):
    layer = make_layer(linear_mean=True, noise=0.3)
    X = rows(6, 2, seed=1)
    f = draw(layer, 3, 50, generator)
    together = f(X.expand(3, 6, 2))
    part = f(X[[4, 1]].expand(3, 2, 2))
    again = f(X.expand(3, 6, 2))
    assert torch.equal(together, again)
    torch.testing.assert_close(together[:, [4, 1]], part, rtol=1e-12, atol=1e-12)


def test_functions_are_continuous_without_layer_noise(generator):
    layer = make_layer(noise=0.3)
    X = rows(1, 2, seed=1).expand(3, 1, 2)
    f = draw(layer, 3, 50, generator)
    assert (f(X) - f(X + 1e-6)).abs().max() < 1e-4


def test_the_generator_decides_on_the_functions():
    layer, X = make_layer(), rows(4, 2, seed=1).expand(2, 4, 2)

    def value(seed):
        return draw(layer, 2, 10, torch.Generator().manual_seed(seed))(X)

    assert torch.equal(value(0), value(0))
    assert not torch.equal(value(0), value(1))
