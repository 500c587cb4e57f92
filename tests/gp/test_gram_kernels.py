"""Kernels as functions of Gram matrices: against kernels of rows, wide networks, and finite differences."""

import numpy as np
import pytest
import torch
from oracles import in_standard_errors

from skdgp.gp.kernels import (
    Anova,
    ArcCosine,
    Linear,
    Matern,
    RationalQuadratic,
    SquaredExponential,
    as_kernel,
)

KERNELS = {
    "squared_exponential": SquaredExponential(0.9, 1.4, ard=False),
    "matern12": Matern(0.5, 0.9, 1.4, ard=False),
    "matern32": Matern(1.5, 0.9, 1.4, ard=False),
    "matern52": Matern(2.5, 0.9, 1.4, ard=False),
    "rational_quadratic": RationalQuadratic(0.8, 0.9, 1.4, ard=False),
    "arc_cosine0": ArcCosine(0.9, 1.4, bias=0.6, ard=False, order=0),
    "arc_cosine1": ArcCosine(0.9, 1.4, bias=0.6, ard=False),
    "arc_cosine2": ArcCosine(0.9, 1.4, bias=0.6, ard=False, order=2),
    "linear": Linear(0.3, bias=0.5, ard=False),
}
KERNELS["sum"] = KERNELS["matern32"] + KERNELS["linear"]
KERNELS["product"] = KERNELS["squared_exponential"] * KERNELS["arc_cosine1"]
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def rows(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))


@every_kernel
def test_a_kernel_of_inner_products_is_that_of_rows(kernel):
    X, Z = rows(6, 3), rows(4, 3, seed=1)
    unit = kernel.bind(3)
    of_gram = unit.from_gram(X @ Z.T, X.square().sum(1), Z.square().sum(1))
    np.testing.assert_allclose(of_gram, unit(X, Z), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(unit.from_gram(X @ X.T), unit(X, X), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(unit.diag_from_gram(X.square().sum(1)), unit.diag(X), rtol=1e-12)


@every_kernel
def test_gram_matrices_may_come_in_stacks(kernel):
    X = rows(2, 5, 3)
    K = kernel.from_gram(X @ X.mT)
    for K_s, X_s in zip(K, X):
        np.testing.assert_allclose(K_s, kernel.from_gram(X_s @ X_s.T), rtol=1e-14)
    assert torch.equal(
        torch.diagonal(K, dim1=-2, dim2=-1), kernel.diag_from_gram(X.square().sum(-1))
    )


@pytest.mark.parametrize("kind", ["squared_exponential", "matern52", "arc_cosine", "linear"])
def test_defaults_mean_the_same_for_rows_and_for_gram_matrices_over_their_number_of_features(kind):
    X, kernel = rows(5, 4), as_kernel(kind).bind(4)
    np.testing.assert_allclose(
        kernel.of_gram(4).from_gram(X @ X.T / 4.0), kernel(X, X), rtol=1e-7, atol=1e-8
    )


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_of_a_gram_matrix_is_a_wide_layer(order):
    # 2 E[phi(w u) phi(w v)] over standard normal w
    F = rows(3, 2)
    w = torch.randn(400_000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    phi = ((w @ F.T) > 0).double() * (w @ F.T) ** order
    expected = ArcCosine(1.0, bias=0.0, order=order).from_gram(F @ F.T)
    assert in_standard_errors(2.0 * phi[:, :, None] * phi[:, None, :], expected) < 4.0


@pytest.mark.parametrize("order", [0, 1, 2])
def test_features_of_arc_cosine_kernels_are_unbiased(order, generator):
    kernel, X = ArcCosine([0.7, 1.3], 1.4, bias=0.6, order=order).bind(2), rows(4, 2)
    phi = kernel.features((200_000,), 2, generator, X)(X)[..., 0]
    assert in_standard_errors((phi[:, None] * phi).movedim(-1, 0), kernel(X, X)) < 4.0


@every_kernel
def test_gradients_are_those_of_finite_differences(kernel):
    F = rows(4, 3).requires_grad_()
    other = rows(3, 3, seed=2)

    def function(F):
        d = F.square().sum(-1)
        return kernel.from_gram(F @ F.T), kernel.from_gram(F @ other.T, d, other.square().sum(-1))

    assert torch.autograd.gradcheck(function, F)


@every_kernel
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_repeated_and_empty_rows_have_finite_gradients(kernel, scale):
    F = scale * rows(4, 2)
    F[1], F[2] = F[0], 0.0
    F.requires_grad_()
    d = F.square().sum(-1)
    (kernel.from_gram(F @ F.T).sum() + kernel.from_gram(F @ F.T, d, d).sum()).backward()
    assert torch.isfinite(F.grad).all()


def test_a_kernel_of_single_inputs_is_refused():
    with pytest.raises(ValueError, match="Anova is not a function of inner products"):
        Anova().bind(2).from_gram(torch.eye(2))


def test_an_order_without_formula_is_refused():
    with pytest.raises(ValueError, match="order of ArcCosine must be 0, 1 or 2; got 3"):
        ArcCosine(order=3).bind(2)
