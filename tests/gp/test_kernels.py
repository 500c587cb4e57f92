import math
import operator
from functools import partial

import numpy as np
import pytest
import torch
from oracles import gradcheck, in_standard_errors
from scipy.integrate import quad
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from skdgp.gp import factor_products
from skdgp.gp.component import Trainable
from skdgp.gp.kernels import (
    Anova,
    ArcCosine,
    Linear,
    Matern,
    Product,
    RationalQuadratic,
    SquaredExponential,
    Stationary,
    Sum,
    as_kernel,
)
from skdgp.gp.kernels.base import stacked
from skdgp.gp.kernels.inner import arc_cosine
from skdgp.linalg import workspace

LENGTHSCALE = [0.7, 1.3, 2.0]
STRENGTH = [0.3, 1.2, 5.0]
KERNELS = {
    "squared_exponential": SquaredExponential(LENGTHSCALE, variance=1.4),
    "squared_exponential_iso": SquaredExponential(0.9, ard=False),
    "matern12": Matern(0.5, LENGTHSCALE, variance=1.4),
    "matern32": Matern(1.5, LENGTHSCALE, variance=1.4),
    "matern52": Matern(2.5, LENGTHSCALE, variance=1.4),
    "matern32_iso": Matern(1.5, 0.9, ard=False),
    "rational_quadratic": RationalQuadratic(0.8, LENGTHSCALE, variance=1.4),
    "rational_quadratic_iso": RationalQuadratic(2.5, 0.9, ard=False),
    "anova12": Anova(0.5, LENGTHSCALE, STRENGTH, variance=1.4),
    "anova32": Anova(1.5, LENGTHSCALE, STRENGTH, variance=1.4),
    "anova52": Anova(2.5, LENGTHSCALE, STRENGTH, variance=1.4),
    "arc_cosine": ArcCosine(LENGTHSCALE, variance=1.4, bias=0.6),
    "arc_cosine_iso": ArcCosine(0.9, bias=0.0, ard=False),
    "arc_cosine2": ArcCosine(LENGTHSCALE, variance=1.4, bias=0.6, order=2),
    "linear": Linear([0.3, 1.0, 0.6], bias=0.5),
    "linear_iso": Linear(0.3, bias=0.0, ard=False),
    "sum": SquaredExponential(LENGTHSCALE) + Linear(0.2),
    "product": Matern(2.5, LENGTHSCALE) * Linear(0.2),
    "nested": (SquaredExponential(LENGTHSCALE) + Matern(1.5, 0.8)) * (RationalQuadratic(1.5) + ArcCosine()),
    "nested_anova": Anova(2.5, LENGTHSCALE, STRENGTH) * Linear(0.2) + SquaredExponential(0.4),
}  # fmt: skip
every_kernel = pytest.mark.parametrize("name", KERNELS)
tensor = partial(torch.tensor, dtype=torch.float64)


def rows(n, seed=0, n_features=3):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal((n, n_features)))


def bound(name):
    return KERNELS[name].bind(3)


# Values


def as_sklearn(kernel):
    """The same covariance in scikit-learn."""
    if isinstance(kernel, Sum):
        return as_sklearn(kernel.left) + as_sklearn(kernel.right)
    if isinstance(kernel, Product):
        return as_sklearn(kernel.left) * as_sklearn(kernel.right)
    if isinstance(kernel, SquaredExponential):
        return kernel.variance * sk.RBF(kernel.lengthscale)
    if isinstance(kernel, RationalQuadratic):  # of one lengthscale
        return kernel.variance * sk.RationalQuadratic(float(kernel.lengthscale), kernel.alpha)
    return kernel.variance * sk.Matern(kernel.lengthscale, nu=kernel.nu)


@pytest.mark.parametrize(
    "kernel",
    [
        SquaredExponential(LENGTHSCALE, variance=1.4),
        SquaredExponential(0.9, ard=False),
        Matern(1.5, LENGTHSCALE, variance=1.4),
        Matern(2.5, LENGTHSCALE, variance=1.4),
        Matern(2.5, 0.9, ard=False),
        RationalQuadratic(0.3, 0.7, variance=1.4, ard=False),
        RationalQuadratic(1.0, 0.7, variance=1.4, ard=False),
        RationalQuadratic(5.0, 0.7, variance=1.4, ard=False),
        SquaredExponential(LENGTHSCALE) + Matern(1.5) * Matern(2.5, variance=0.4),
        (SquaredExponential(0.5) + Matern(1.5)) * (Matern(2.5) + SquaredExponential()),
    ],
    ids=repr,
)
def test_stationary_kernels_equal_those_of_scikit_learn(kernel):
    kernel = kernel.bind(3)
    X, Z = rows(6), rows(4, seed=1)
    expected = as_sklearn(kernel)(X.numpy(), Z.numpy())
    np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-12)


def test_rational_quadratic_with_large_alpha_is_squared_exponential():
    X = rows(6)
    limit = SquaredExponential(LENGTHSCALE, 1.4).bind(3)
    kernel = RationalQuadratic(1e7, LENGTHSCALE, 1.4).bind(3)
    np.testing.assert_allclose(kernel(X, X), limit(X, X), atol=1e-6)


def anova(kernel, X, Z):
    """The formula of the kernel, input by input, with the kernels of scikit-learn."""
    K = np.full((len(X), len(Z)), float(kernel.variance))
    for d, (lengthscale, a) in enumerate(zip(kernel.lengthscale, kernel.strength)):
        factor = sk.Matern(lengthscale, nu=kernel.nu)(X[:, [d]].numpy(), Z[:, [d]].numpy())
        K *= (1.0 + a * factor) / (1.0 + a)
    return K


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("size", [32_768, 7], ids=["together", "in blocks"])
def test_anova_equals_its_formula(nu, size, monkeypatch):
    monkeypatch.setattr(factor_products, "_AT_ONCE", size)
    kernel = Anova(nu, LENGTHSCALE, STRENGTH, variance=1.4).bind(3)
    X, Z = rows(6), rows(4, seed=1)
    Z[1] = X[2]
    Z[2, 1] = X[4, 1]  # rows that agree in one input
    np.testing.assert_allclose(kernel(X, Z), anova(kernel, X, Z), rtol=1e-12)
    np.testing.assert_allclose(kernel(X, X), anova(kernel, X, X), rtol=1e-12)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("size", [100, 1_000_000], ids=["in blocks", "together"])
@pytest.mark.parametrize("far", [1.0, 1e4], ids=["near", "far"])
def test_anova_of_many_rows_near_and_far(nu, size, far, monkeypatch):
    """Products of exponentials serve as long as these are neither too large nor too small."""
    monkeypatch.setattr(factor_products, "_AT_ONCE", size)
    kernel = Anova(nu, LENGTHSCALE, STRENGTH, variance=1.4).bind(3)
    X, Z = 3.0 * rows(60), 3.0 * rows(40, seed=1)
    X[7], X[11, 1], Z[3, 1] = far, far, 1.001 * far
    np.testing.assert_allclose(kernel(X, Z), anova(kernel, X, Z), rtol=1e-11)
    np.testing.assert_allclose(kernel(X, X), anova(kernel, X, X), rtol=1e-11)


def differentiable_anova(kernel, X, Z):
    """The same formula, without a word on its gradients."""
    K = torch.full(X.shape[:-1] + Z.shape[-2:-1], kernel.variance, dtype=torch.float64)
    for d, (lengthscale, a) in enumerate(zip(kernel.lengthscale, kernel.strength)):
        s = (X[..., :, None, d] - Z[..., None, :, d]).abs() * (
            math.sqrt(2 * kernel.nu) / lengthscale
        )
        polynomial = {0.5: 1.0, 1.5: 1.0 + s, 2.5: 1.0 + s + s**2 / 3.0}[kernel.nu]
        K = K * (1.0 + a * polynomial * (-s).exp()) / (1.0 + a)
    return K


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_anova_of_more_rows_than_a_block(nu):
    kernel = Anova(nu, LENGTHSCALE, STRENGTH, variance=1.4).bind(3)
    X, Z = rows(300).requires_grad_(), rows(310, seed=1).requires_grad_()
    weight = torch.as_tensor(np.random.default_rng(2).standard_normal((300, 310)))
    for left, right, w in ((X, X, weight[:, :300]), (X, Z, weight)):
        expected = differentiable_anova(kernel, left, right)
        same_values_and_gradients(kernel(left, right), expected, {left, right}, w)


@pytest.mark.parametrize(
    ("nu", "shape"),
    [(0.5, (4, 3)), (1.5, (2, 3, 4, 3)), (2.5, (2, 3, 4, 3)), (2.5, (5, 1, 3)), (1.5, (300, 3))],
)
def test_anova_within_groups(nu, shape):
    kernel = Anova(nu, LENGTHSCALE, STRENGTH, variance=1.4).bind(3)
    X = torch.as_tensor(np.random.default_rng(0).standard_normal(shape))
    if X.ndim > 3:
        X[..., 1, :] = X[..., 3, :]
    X.requires_grad_()
    K, expected = kernel.within(X), differentiable_anova(kernel, X, X)
    weight = torch.as_tensor(np.random.default_rng(2).standard_normal(K.shape))
    same_values_and_gradients(K, expected, [X], weight)


@pytest.mark.parametrize("n", [0, 1])
def test_anova_of_no_rows(n):
    kernel = Anova().bind(3)
    X, Z = rows(0).requires_grad_(), rows(n)
    assert kernel(X, Z).shape == (0, n) and kernel(Z, X).shape == (n, 0)
    kernel(Z, X).sum().backward()
    assert X.grad.shape == (0, 3)


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_large_strengths_of_anova_leave_the_full_interaction(nu):
    X, Z = rows(6), rows(4, seed=1)
    kernel = Anova(nu, LENGTHSCALE, 1e12, variance=1.4).bind(3)
    expected = np.full((6, 4), 1.4)
    for d, lengthscale in enumerate(LENGTHSCALE):
        expected *= Matern(nu, lengthscale).bind(1)(X[:, [d]], Z[:, [d]]).numpy()
    np.testing.assert_allclose(kernel(X, Z), expected, rtol=1e-7)


@pytest.mark.parametrize("nu", [1.5, 2.5])
def test_small_strengths_of_anova_leave_a_sum(nu):
    """A constant, and kernels of one input; interactions vanish with the square of the strengths."""
    X, Z = rows(6), rows(4, seed=1)
    error = []
    for size in (1e-3, 1e-4):
        strength = size * np.array(STRENGTH)
        kernel = Anova(nu, LENGTHSCALE, strength, variance=np.prod(1.0 + strength) / size).bind(3)
        additive = sum(
            a * Matern(nu, lengthscale).bind(1)(X[:, [d]], Z[:, [d]])
            for d, (lengthscale, a) in enumerate(zip(LENGTHSCALE, STRENGTH))
        )
        error.append((kernel(X, Z) - 1.0 / size - additive).abs().max())
    assert error[0] < 0.02
    np.testing.assert_allclose(error[0] / error[1], 10.0, rtol=0.02)


def test_rows_equal_in_one_input_are_correlated_by_anova():
    """However far they are in the others: (1 + a) / (1 + a) for that input, 1 / (1 + a) for others."""
    X = tensor([[0.0, 0.0, 0.0], [1e3, 0.0, 1e3], [1e3, 1e3, 1e3]])
    K = Anova(1.5, LENGTHSCALE, STRENGTH, variance=1.4).bind(3)(X, X)
    expected = 1.4 / (1.3 * 6.0) * np.array([1.0, 1.0 / 2.2])
    np.testing.assert_allclose(K[0, 1:], expected, rtol=1e-12)
    np.testing.assert_allclose(K[1, 2], 1.4 / 2.2, rtol=1e-12)


@pytest.mark.parametrize(("nu", "strength"), [(0.5, 1e12), (1.5, 1e-6), (1.5, 1.0), (2.5, 1e12)])
def test_anova_of_many_inputs_is_finite_in_single_precision(nu, strength):
    trainable = Trainable(Anova(nu, 0.5, strength).bind(300))
    X = rows(20, n_features=300).float().requires_grad_()
    K = trainable()(X, X)
    assert K.dtype == torch.float32
    exact = trainable()(X.double(), X.double())
    assert (K.double() - exact).abs().max() < 1e-4
    (gradient,) = torch.autograd.grad(K.square().sum(), X, retain_graph=True)
    assert torch.isfinite(gradient).all()
    K.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in trainable.parameters())


@pytest.mark.parametrize("lengthscale", [1e-3, 1e-7])
def test_anova_with_short_lengthscales_leaves_repeated_rows_equal(lengthscale):
    X = torch.repeat_interleave(100.0 * rows(8, n_features=5), 5, 0).requires_grad_()
    K = Anova(lengthscale=lengthscale).bind(5)(X, X)
    same = (X[:, None] == X).all(-1)
    torch.testing.assert_close(K[same], torch.ones(200).double(), rtol=0, atol=1e-14)
    torch.testing.assert_close(K[~same], torch.full((1400,), (5.0 / 6.0) ** 5).double())
    assert torch.isfinite(torch.autograd.grad(K.sum(), X)[0]).all()


def test_the_metric_of_anova_is_that_of_close_rows():
    """Moves of one unit, by the metric, take the same from the covariance for every input."""
    kernel = Anova(2.5, LENGTHSCALE, STRENGTH).bind(3)
    steps = torch.diag(1e-3 * torch.as_tensor(kernel.metric))
    loss = 1.0 - kernel(steps, torch.zeros(1, 3).double())[:, 0]
    np.testing.assert_allclose(loss, loss[0].expand(3), rtol=1e-4)
    near = Matern(2.5).bind(1)(tensor([[1e-3]]), tensor([[0.0]]))  # of a single input
    np.testing.assert_allclose(loss, (1.0 - near[0]).expand(3), rtol=1e-4)


SMOOTH, LINEAR = SquaredExponential(LENGTHSCALE, variance=1.4), Linear([0.3, 1.0, 0.6], bias=0.5)
OTHER = RationalQuadratic(0.8, [2.0, 0.5, 1.0], variance=0.7)
ROUGH = Anova(2.5, LENGTHSCALE, STRENGTH, variance=1.4), Matern(2.5, [2.0, 0.5, 1.0], variance=0.7)


@pytest.mark.parametrize(
    ("kernel", "factor"),
    [
        (SMOOTH, 1.0),
        (OTHER, 1.0),
        (LINEAR, 1.0),
        (ArcCosine(LENGTHSCALE, variance=1.4, bias=0.6), 1.0),
        (SMOOTH + OTHER, 1.0),
        (SMOOTH + LINEAR, 1.0),
        (LINEAR + Linear(0.2, ard=False), 1.0),
        (SMOOTH * OTHER, 1.0),
        (SMOOTH * LINEAR, 1.0),
        ((SMOOTH + LINEAR) * OTHER, 1.0),
        (OTHER * Linear(0.2, ard=False) + ArcCosine(0.9), 1.0),
        (LINEAR + LINEAR * OTHER, 1.0),
        (ROUGH[0], 5.0 / 3.0),
        (ROUGH[0] + ROUGH[1], 5.0 / 3.0),
        (ROUGH[0] * ROUGH[1], 5.0 / 3.0),
    ],
)
def test_slopes_are_those_of_functions(kernel, factor):
    """Of ``f(x + h e_q) - f(x)`` the variance is ``h^2`` times that of the slope along ``x_q``."""
    kernel, h = kernel.bind(3), 1e-4
    x = torch.ones(1, 3).double()
    z = x + h * torch.eye(3).double()
    variances = (kernel.diag(x) + kernel.diag(z) - 2.0 * kernel(z, x)[:, 0]) / h**2
    slopes = Trainable(kernel)().slopes.detach()
    np.testing.assert_allclose(factor * slopes.expand(3), variances, rtol=1e-3)
    of_numbers = Trainable(kernel).fitted().slopes
    np.testing.assert_allclose(of_numbers, slopes, rtol=1e-12)


@pytest.mark.parametrize("kind", [Sum, Product])
def test_parts_can_be_names(kind):
    X = rows(6)
    expected = kind(Matern(1.5), Anova()).bind(3)
    assert torch.equal(kind("matern32", "anova").bind(3)(X, X), expected(X, X))
    changed = kind(Linear(), Anova()).set_params(left="matern32")
    assert torch.equal(changed.bind(3)(X, X), expected(X, X))
    with pytest.raises(ValueError, match="Unknown kernel 'matern'"):
        kind("matern", Anova()).bind(3)
    with pytest.raises(TypeError, match="kernel must be a string or an object"):
        kind(Anova(), None).bind(3)


def test_lengthscales_belong_to_the_columns():
    X, Z = rows(6), rows(4, seed=1)
    scaled = tensor(LENGTHSCALE)
    for kind in (SquaredExponential, Matern, RationalQuadratic, ArcCosine, Anova):
        ard, unit = kind(lengthscale=LENGTHSCALE).bind(3), kind(lengthscale=1.0).bind(3)
        np.testing.assert_allclose(ard(X, Z), unit(X / scaled, Z / scaled), rtol=1e-12)


def test_linear_equals_its_formula():
    X, Z = rows(6).numpy(), rows(4, seed=1).numpy()
    expected = 0.25 + X @ np.diag([0.3, 1.0, 0.6]) @ Z.T
    kernel = Linear([0.3, 1.0, 0.6], bias=0.5).bind(3)
    np.testing.assert_allclose(kernel(torch.as_tensor(X), torch.as_tensor(Z)), expected, rtol=1e-12)


@pytest.mark.parametrize("angle", [0.0, 0.4, 1.5, 2.8, math.pi])
def test_arc_cosine_is_the_covariance_of_rectified_linear_units(angle):
    # 2 E[relu(w.u) relu(w.u')] for w ~ N(0, I) in the plane; the radius integrates to 2
    direction = quad(
        lambda a: max(math.cos(a), 0.0) * max(math.cos(a - angle), 0.0) / (2.0 * math.pi),
        -math.pi,
        math.pi,
        points=[-math.pi / 2, math.pi / 2, angle - math.pi / 2, angle + math.pi / 2 - 2 * math.pi],
        epsabs=1e-13,
    )[0]
    expected = 1.4 * 2.0 * 2.0 * direction * (2.0 / 0.5) * (3.0 / 0.5)
    u = tensor([[2.0, 0.0]])
    v = 3.0 * tensor([[math.cos(angle), math.sin(angle)]])
    kernel = ArcCosine(0.5, variance=1.4, bias=0.0).bind(2)
    np.testing.assert_allclose(kernel(u, v)[0, 0], expected, rtol=1e-9, atol=1e-9)


def test_arc_cosine_is_exact_to_rounding_at_every_angle():
    mpmath = pytest.importorskip("mpmath")
    near = 1.0 - 2.0**-52 * np.array([0, 1, 2, 3, 5, 17, 1e3, 1e6, 1e9, 1e12])
    c = tensor(np.concatenate([-near, np.linspace(-0.999, 0.999, 41), near])).requires_grad_()
    value = arc_cosine(1, c[None], torch.ones(1).to(c), torch.ones(len(c)).to(c))[0]
    value.sum().backward()
    with mpmath.workdps(50):
        cosines = [mpmath.mpf(x) for x in c.tolist()]
        angles = [mpmath.acos(x) for x in cosines]
        slope = [mpmath.pi - t for t in angles]
        expected = [mpmath.sin(t) + s * x for t, s, x in zip(angles, slope, cosines)]
    close = partial(np.testing.assert_allclose, rtol=1e-15)
    close(np.pi * value.detach(), np.array(expected, dtype=float), atol=4e-16)
    close(np.pi * c.grad, np.array(slope, dtype=float))


def test_the_bias_of_arc_cosine_is_one_more_input():
    X, Z = rows(6), rows(4, seed=1)
    kernel = ArcCosine(0.5, bias=0.6).bind(3)
    X1, Z1 = (torch.cat([R / 0.5, tensor(0.6).expand(len(R), 1)], 1) for R in (X, Z))
    np.testing.assert_allclose(kernel(X, Z), ArcCosine(1.0, bias=0.0).bind(4)(X1, Z1), rtol=1e-12)


@every_kernel
def test_matrix_is_symmetric_and_positive_semi_definite(name):
    X = rows(40)
    K = bound(name)(X, X)
    torch.testing.assert_close(K, K.T, rtol=1e-13, atol=1e-13)
    eigenvalues = torch.linalg.eigvalsh(K)
    assert eigenvalues[0] > -1e-12 * eigenvalues[-1]


@every_kernel
def test_diag_is_the_diagonal(name):
    X = rows(7)
    kernel = bound(name)
    torch.testing.assert_close(kernel.diag(X), kernel(X, X).diagonal(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_equal_rows_of_a_rough_kernel_have_no_distance(dtype):
    """The root of a rounding error of 1e-16 would be 1e-8 of the kernel, and its slope 1e8."""
    X = torch.randn(60, 7, generator=torch.Generator().manual_seed(0), dtype=dtype) + 3.0
    kernel = Matern(0.5, 0.3, 2.0).bind(7)
    twice = torch.cat([X, X])
    for K in (kernel(twice, twice), kernel.between(twice[None], twice[None])[0]):
        assert (K.diagonal() == 2.0).all() and (K[:60, 60:].diagonal() == 2.0).all()


@pytest.mark.parametrize("kernel", [SquaredExponential(0.1), RationalQuadratic(1.5, 0.1)])
def test_within_groups_differences_of_close_rows_are_exact(kernel):
    # by norms and products, squared distances of 1e-8 amid others of 1e8 lose all digits
    X = torch.cat([rows(3), 1e3 + 1e-5 * rows(3)])
    K = kernel.bind(3).within(X[None])[0]
    pair = kernel.bind(3)(X[3:], X[3:])
    torch.testing.assert_close(1.0 - K[3:, 3:], 1.0 - pair, rtol=1e-4, atol=1e-14)


@pytest.mark.parametrize("kernel", [SquaredExponential(), Matern(0.5), RationalQuadratic()])
@pytest.mark.parametrize("lengthscale", [2.0, 0.02, 2e-4, [0.7, 0.02, 3.0]])
def test_gradients_within_groups_at_any_lengthscale(kernel, lengthscale):
    """By automatic differentiation of differences; rows are as near as lengthscales are short."""
    X = torch.stack([rows(6, seed=s) for s in range(2)]) * np.min(lengthscale)
    G = torch.stack([rows(6, seed=s) @ rows(6, seed=s + 9).T for s in range(2)])
    X[0, 1] = 1.0 + 30.0 * X[0, 2]  # far from all others
    length = torch.tensor(np.broadcast_to(lengthscale, 3).copy(), requires_grad=True)
    X.requires_grad_()
    bound = kernel.bind(3).with_values(lengthscale=length)
    actual = torch.autograd.grad((G * bound.within(X)).sum(), (X, length))
    differences = (X[:, :, None] - X[:, None]) / length
    K = bound.profile(differences.square().sum(-1).clamp_min(1e-20))
    expected = torch.autograd.grad((G * K).sum(), (X, length))
    for got, wanted in zip(actual, expected):
        size = float(wanted.abs().max())
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10 * size)
    more = torch.autograd.grad((G * bound.within(X[None])[0]).sum(), (X, length))
    for got, wanted in zip(more, actual):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10 * float(wanted.abs().max()))


@every_kernel
@pytest.mark.parametrize("shared", [False, True])
def test_states_of_a_kernel_are_evaluated_together(name, shared):
    trainable, generator, states = Trainable(bound(name)), torch.Generator().manual_seed(0), []
    for _ in range(3):
        with torch.no_grad():
            for parameter in trainable.parameters():
                parameter += 0.5 * torch.randn(parameter.shape, generator=generator)
        states.append(trainable.frozen())
    together = stacked(states)
    X, Z = (torch.stack([rows(n, seed=s) for s in range(3)]) for n in (5, 4))
    Z = Z[0] if shared else Z
    K, variances = together.between(X, Z), together.diag(X)
    assert K.shape == (3, 5, 4)
    for j, kernel in enumerate(states):
        torch.testing.assert_close(K[j], kernel(X[j], Z if shared else Z[j]), rtol=1e-12, atol=0)
        torch.testing.assert_close(variances[j], kernel.diag(X[j]), rtol=1e-14, atol=0)


def test_states_with_short_lengthscales_leave_equal_rows_equal():
    X = 1.0 + rows(4)[None]
    K = stacked([Trainable(SquaredExponential(1e-8).bind(3)).frozen()]).between(X, X)
    torch.testing.assert_close(K[0], torch.eye(4).double(), rtol=0, atol=0)


@pytest.mark.parametrize(
    "name", [name for name, kernel in KERNELS.items() if isinstance(kernel, (Stationary, Anova))]
)
def test_far_from_the_origin_nothing_is_lost(name):
    # distances by norms and products lose eight digits at an offset of 1e4, unless rows are centered
    X, Z = rows(6), rows(4, seed=1)
    kernel = bound(name)
    torch.testing.assert_close(kernel(X + 1e4, Z + 1e4), kernel(X, Z), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", [SquaredExponential, Matern, RationalQuadratic])
@pytest.mark.parametrize("lengthscale", [1e-3, 1e-5, 1e-7])
def test_short_lengthscales_leave_repeated_rows_equal(kernel, lengthscale):
    # by norms and products, rows that are equal would be at a distance, each pair at another one
    order = np.random.default_rng(0).permutation(200)
    X = torch.repeat_interleave(rows(40, n_features=5), 5, 0)[order].requires_grad_()
    K = kernel(lengthscale=lengthscale).bind(5)(X, X)
    same = (X[:, None] == X).all(-1)
    assert torch.equal(K[same], torch.ones(1000).double())
    (gradient,) = torch.autograd.grad(K.sum(), X)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("kernel", [SquaredExponential, Matern, RationalQuadratic])
def test_far_rows_have_the_covariances_of_near_ones(kernel):
    X, Z = rows(30), rows(20, seed=1)
    kernel = kernel(lengthscale=LENGTHSCALE)
    far = torch.cat([X, torch.full((1, 3), 1e6).double()])
    torch.testing.assert_close(kernel(far, Z)[:-1], kernel(X, Z), rtol=1e-12, atol=1e-13)

    def gradients(X):
        inputs = X.clone().requires_grad_(), Z.clone().requires_grad_()
        return torch.autograd.grad(kernel(*inputs)[:30].sum(), inputs)

    for found, expected in zip(gradients(far), gradients(X)):
        torch.testing.assert_close(found[: len(expected)], expected, rtol=1e-9, atol=1e-9)


@every_kernel
def test_single_precision_agrees_to_1e_5(name):
    X, Z = rows(50).float(), rows(20, seed=1).float()
    kernel = bound(name)
    K, K32 = kernel(X.double(), Z.double()), kernel(X, Z)
    assert K32.dtype == torch.float32
    assert (K32.double() - K).abs().max() < 1e-5 * K.abs().max()


# Gradients


@every_kernel
def test_gradients_of_inputs_and_numbers(name):
    trainable = Trainable(bound(name))
    gradcheck(
        trainable, lambda X, Z: (trainable()(X, Z), trainable().diag(X)), rows(4), rows(3, seed=1)
    )


@pytest.mark.parametrize(
    ("kind", "name", "default"),
    [
        (SquaredExponential, "lengthscale", 2.0),
        (Matern, "lengthscale", 2.0),
        (RationalQuadratic, "lengthscale", 2.0),
        (ArcCosine, "lengthscale", 2.0),
        (Linear, "variance", 0.25),
        (Anova, "lengthscale", 1.0),
        (Anova, "strength", 0.25),
    ],
)
def test_numbers_are_bound_to_the_number_of_inputs(kind, name, default):
    kernel = kind()
    before = repr(kernel)
    np.testing.assert_array_equal(getattr(kernel.bind(4), name), np.full(4, default))
    assert repr(kernel) == before
    for given, expected in ((0.5, [0.5, 0.5]), ([1, 2], [1.0, 2.0])):
        np.testing.assert_array_equal(getattr(kind(**{name: given}).bind(2), name), expected)
    message = (
        rf"{name} of {kind.__name__} has shape \(2,\), but the layer has 3 inputs; give one "
        "number or one for each input."
    )
    with pytest.raises(ValueError, match=message):
        kind(**{name: [1.0, 2.0]}).bind(3)
    if kind not in (Linear, Anova):
        assert kind(lengthscale=0.5, ard=False).bind(2).lengthscale.shape == ()
        assert float(kind(ard=False).bind(4).lengthscale) == 2.0
        with pytest.raises(ValueError, match=message):
            kind(lengthscale=[1.0, 2.0], ard=False).bind(3)


@pytest.mark.parametrize("kind", [Matern, Anova])
@pytest.mark.parametrize("nu", [1.0, 3.5, "1.5", None])
def test_other_smoothness_is_refused(kind, nu):
    with pytest.raises(ValueError, match=rf"nu of {kind.__name__} must be 0\.5, 1\.5 or 2\.5"):
        kind(nu=nu).bind(2)


def same_values_and_gradients(found, expected, wanted, weight):
    """To 12 digits, and to 9 for gradients of a weighted sum."""
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    found, expected = (torch.autograd.grad((weight * K).sum(), wanted) for K in (found, expected))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", KERNELS)
def test_memory_that_is_used_again(name):
    def run():
        found = []
        for step in range(3):
            X, Z = rows(4, seed=step).requires_grad_(), rows(3, seed=9).requires_grad_()
            K, KZ = bound(name)(X, Z), bound(name)(Z, Z)
            found += [K.detach().clone(), KZ.detach().clone()]
            found += torch.autograd.grad(K.sin().sum() + KZ.square().sum(), (X, Z))
        return found

    fresh = run()
    with workspace():
        assert all(torch.equal(a, b) for a, b in zip(fresh, run(), strict=True))


@pytest.mark.parametrize(
    ("nu", "between", "size"),
    [
        (0.5, "rows", 32_768),
        (1.5, "themselves", 32_768),
        (2.5, "pairs", 32_768),
        (1.5, "rows", 5),
        (2.5, "themselves", 5),
        (0.5, "pairs", 5),
    ],
)
def test_gradients_of_all_arguments_of_factor_product(nu, between, size, monkeypatch):
    monkeypatch.setattr(factor_products, "_AT_ONCE", size)
    inputs = [rows(7), rows(7 if between == "pairs" else 3, seed=1)]
    numbers = [tensor(v) for v in (LENGTHSCALE, STRENGTH, 1.4)]

    def product(X, *rest):
        rest = (X, *rest) if between == "themselves" else rest
        return factor_products.FactorProduct.apply(X, *rest, Anova(nu), between == "pairs")

    values = [inputs[0], *numbers] if between == "themselves" else [*inputs, *numbers]
    assert torch.autograd.gradcheck(product, [value.requires_grad_() for value in values])


def test_gradients_where_rows_agree_in_one_input():
    X, Z = rows(4), rows(3, seed=1)
    Z[1, 2] = X[3, 2]
    kernel = Anova(1.5, LENGTHSCALE, STRENGTH).bind(3)
    assert torch.autograd.gradcheck(kernel, (X.requires_grad_(), Z.requires_grad_()))


@pytest.mark.parametrize("needed", range(5))
def test_a_single_argument_of_factor_product_can_want_a_gradient(needed):
    def gradient(of):
        values = [rows(5), rows(3, seed=1), *map(tensor, (LENGTHSCALE, STRENGTH, 1.4))]
        for i in of:
            values[i].requires_grad_()
        factor_products.FactorProduct.apply(*values, Anova()).sin().sum().backward()
        return values[needed].grad

    torch.testing.assert_close(gradient([needed]), gradient(range(5)))


# finite differences fail at an angle of zero; the test after this one stands in
@pytest.mark.parametrize(
    "name", sorted(KERNELS.keys() - {"arc_cosine", "arc_cosine_iso", "nested"})
)
def test_gradient_of_a_matrix_of_rows_with_themselves(name):
    assert torch.autograd.gradcheck(lambda Z: bound(name)(Z, Z), rows(4).requires_grad_())


def test_gradient_of_arc_cosine_at_an_angle_of_zero():
    # the diagonal is variance * |u|^2, whose gradient is 2 variance u / lengthscale
    Z = rows(4).requires_grad_()
    kernel = ArcCosine(0.5, variance=1.4).bind(3)
    gradient = torch.autograd.grad(kernel(Z, Z).diagonal().sum(), Z)[0]
    torch.testing.assert_close(gradient, 2.0 * 1.4 * Z.detach() / 0.25, rtol=1e-6, atol=1e-6)


@every_kernel
def test_gradients_at_equal_rows_are_finite(name):
    Z = rows(3)
    trainable = Trainable(bound(name))
    X = torch.cat([Z, Z]).requires_grad_()
    trainable()(X, Z).sum().backward()
    assert torch.isfinite(X.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in trainable.parameters())


def test_gradients_are_computed_only_where_they_are_needed():
    X, Z = rows(4), rows(3, seed=1).requires_grad_()
    SquaredExponential().bind(3)(X, Z).sum().backward()
    assert X.grad is None
    assert Z.grad is not None


# Random features


def feature_covariances(kernel, X, n_maps, n_draws, seed=0, **settings):
    generator = torch.Generator().manual_seed(seed)
    phi = kernel.features((n_maps, n_draws), X.shape[1], generator, X, **settings)
    phi = phi(X.expand(n_maps, *X.shape))
    assert phi.shape[:3] == (n_maps, len(X), n_draws)
    return torch.einsum("fprc,fqrc->fpq", phi, phi) / n_draws


@every_kernel
@pytest.mark.parametrize("importance", [0.0, 0.5])
def test_features_are_unbiased(name, importance):
    # 20 covariances, of independent maps: the largest of them has |z| < 4.5 with probability 0.9999
    X = 0.7 * rows(4)
    kernel = bound(name)
    K = feature_covariances(kernel, X, 20_000, 4, importance=importance)
    standard_error = K.std(0) / math.sqrt(len(K))
    z = (K.mean(0) - kernel(X, X)) / standard_error.clamp_min(1e-9)
    assert z.abs().max() < 4.5


@pytest.mark.parametrize(
    "name",
    [
        "squared_exponential",
        "matern32",
        "anova32",
        "arc_cosine",
        "linear",
        "sum",
        "product",
        "nested",
    ],
)
def test_features_converge_at_the_rate_of_monte_carlo(name):
    X = 0.7 * rows(4)
    K = bound(name)(X, X)
    error = [
        (feature_covariances(bound(name), X, 300, n) - K).square().mean().sqrt()
        for n in (16, 64, 256)
    ]
    # half as large with four times the draws, to the precision of 300 maps
    assert 1.6 < error[0] / error[1] < 2.5
    assert 1.6 < error[1] / error[2] < 2.5


@pytest.mark.parametrize("name", ["matern32", "matern52", "anova12", "anova32", "anova52"])
def test_features_in_the_tail_tell_what_is_left_between_rows(name):
    """The variance of a value given others close by, of which most maps of plain features know nothing."""
    kernel = bound(name)
    X = 0.01 * torch.arange(5.0, dtype=torch.float64)[:, None].expand(5, 3)
    K = kernel(X, X)
    known = [0, 1, 3, 4]
    a = torch.linalg.solve(K[known][:, known], K[known, 2])
    direction = torch.zeros(5, dtype=torch.float64)
    direction[known], direction[2] = -a, 1.0
    left = direction @ K @ direction
    variances = (
        feature_covariances(kernel, X, 100, 1024, importance=0.5) @ direction @ direction / left
    )
    assert abs(variances.mean() - 1.0) < 4.5 * variances.std() / 10.0
    assert variances.median() > 0.5


def test_matern_draws_share_one_chi_square_over_the_inputs():
    # independent ones would estimate the product of kernels of single inputs, 0.11 instead of 0.20
    X = tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    kernel = Matern(1.5, np.ones(3)).bind(3)
    K = feature_covariances(kernel, X, 20_000, 1)[:, 0, 1]
    assert in_standard_errors(K, 4.0 * math.exp(-3.0)) < 4


def test_features_of_products_multiply_draw_by_draw():
    # with R features of two columns each the parts have 2 R columns, and the product 4 R, not 4 R^2
    X = rows(3)
    generator = torch.Generator().manual_seed(0)
    kernel = (SquaredExponential() * Matern()).bind(3)
    phi = kernel.features((2, 5), 3, generator, X)(X.expand(2, 3, 3))
    assert phi.shape == (2, 3, 5, 4)
    torch.testing.assert_close(phi.square().sum(-1), torch.ones(2, 3, 5).double())


def test_features_are_functions_of_a_row():
    X = rows(5)
    for name in KERNELS:
        phi = bound(name).features((2, 3), 3, torch.Generator().manual_seed(0), X)
        together, part = phi(X.expand(2, 5, 3)), phi(X[1:3].expand(2, 2, 3))
        torch.testing.assert_close(together[:, 1:3], part, rtol=1e-12, atol=1e-12)


# Numbers of inputs, names, operators


def test_the_parts_of_a_sum_are_bound():
    kernel = (SquaredExponential() + Linear() * Matern()).bind(4)
    np.testing.assert_array_equal(kernel.left.lengthscale, np.full(4, 2.0))
    np.testing.assert_array_equal(kernel.right.left.variance, np.full(4, 0.25))
    with pytest.raises(ValueError, match="lengthscale of Matern"):
        (SquaredExponential() + Matern(lengthscale=[1.0, 2.0])).bind(3)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_kernels_are_parameter_objects(kernel):
    twin = clone(kernel)
    assert twin is not kernel
    assert repr(twin) == repr(kernel)
    X = rows(4)
    assert torch.equal(twin.bind(3)(X, X), kernel.bind(3)(X, X))


def test_parameters_of_parts_can_be_set():
    kernel = SquaredExponential() + Linear()
    kernel.set_params(left__variance=3.0, right__bias=0.0)
    assert kernel.left.variance == 3.0
    assert kernel.right.bias == 0.0


@pytest.mark.parametrize(
    ("name", "kind", "nu"),
    [
        ("squared_exponential", SquaredExponential, None),
        ("rbf", SquaredExponential, None),
        ("matern32", Matern, 1.5),
        ("matern52", Matern, 2.5),
        ("rational_quadratic", RationalQuadratic, None),
        ("anova", Anova, 1.5),
        ("arc_cosine", ArcCosine, None),
        ("linear", Linear, None),
    ],
)
def test_kernels_by_name(name, kind, nu):
    kernel = as_kernel(name)
    assert type(kernel) is kind and as_kernel(kernel) is kernel
    assert getattr(kernel, "nu", None) == nu


def test_what_is_no_kernel_is_refused():
    with pytest.raises(ValueError, match=r"Unknown kernel 'cosine'; the names are .*'matern32'"):
        as_kernel("cosine")
    message = r"kernel must be a string or an object of skdgp\.gp\.kernels"
    with pytest.raises(TypeError, match=message):
        as_kernel(3.0)


@pytest.mark.parametrize("other", [1.0, np.float64(2.0), "matern32", None])
@pytest.mark.parametrize("combine", [operator.add, operator.mul])
def test_kernels_combine_with_kernels_only(combine, other):
    for pair in [(SquaredExponential(), other), (other, SquaredExponential())]:
        with pytest.raises(TypeError, match="multiplied by kernels only; got"):
            combine(*pair)


@every_kernel
def test_covariances_of_groups_with_one_row(name):
    kernel = Trainable(KERNELS[name].bind(3))()
    X = rows(5)[:, None].requires_grad_()
    found, expected = kernel.of_groups(X), kernel.within(X)
    assert found.shape == (5, 1, 1)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0.0)  # rough ones round at 0
    gradients = (
        torch.autograd.grad(K.sum(), X, allow_unused=True, materialize_grads=True)[0]
        if K.requires_grad
        else torch.zeros_like(X)
        for K in (found, expected)
    )
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)
