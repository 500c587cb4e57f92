"""Random walks, and kernels of some columns."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.base import clone

from skdgp import DeepGPRegressor
from skdgp.gp.component import Trainable
from skdgp.gp.draws import prior_functions
from skdgp.gp.kernels import Linear, OnColumns, RandomWalk, RationalQuadratic, SquaredExponential
from skdgp.gp.kernels.base import stacked
from skdgp.gp.kernels.columns import located

X = torch.tensor(np.random.default_rng(0).normal(size=(12, 3)))


def test_a_random_walk_has_independent_steps():
    t = torch.linspace(-2.0, 3.0, 11, dtype=torch.float64)[:, None]  # with zero among them
    K = RandomWalk(variance=[1.7]).bind(1)(t, t)
    D = torch.diff(torch.eye(11, dtype=torch.float64), dim=0)
    assert_allclose(D @ K @ D.T, 0.5 * 1.7 * np.eye(10), atol=1e-12)
    assert_allclose(K[4], 0.0, atol=1e-12)  # at zero
    assert torch.linalg.eigvalsh(K).min() > -1e-12


def test_all_forms_agree():
    for kernel in (RandomWalk(variance=[0.3, 1.0, 2.0]), RandomWalk(ard=False)):
        kernel = kernel.bind(3)
        K = kernel(X, X[:5])
        assert_allclose(kernel.between(X, X[:5]), K)
        assert_allclose(kernel.within(X[None])[0, :, :5], K)
        assert_allclose(kernel.diag(X), torch.diagonal(kernel(X, X)))
    one, other = (Trainable(RandomWalk(variance=v).bind(3))() for v in (0.5, 2.0))
    both = stacked([one, other]).between(X[None], X[None, :5])
    for found, kernel in zip(both, (one, other)):
        assert_allclose(found.detach(), kernel(X, X[:5]).detach())


def test_a_forecast_is_the_last_value_with_growing_variance():
    """Local levels: without noise, the mean stays, and the variance is that of the steps."""
    t = np.arange(30.0)[:, None]
    y = np.cumsum(np.random.default_rng(1).normal(size=30))
    model = DeepGPRegressor(
        1, inference="exact", likelihood="gaussian", kernel=RandomWalk(), random_state=0
    )
    model.fit(t, y)
    later = np.array([[29.0], [30.0], [33.0], [53.0]])
    mean, cov = model.predict(later, return_cov=True, latent=True)
    assert_allclose(mean[1:], mean[1], rtol=1e-6)
    var = np.diag(cov)
    assert_allclose((var[2] - var[1]) / 3.0, (var[3] - var[1]) / 23.0, rtol=1e-6)
    assert var[1] > var[0]


@pytest.mark.parametrize("kernel", [RandomWalk(), OnColumns(SquaredExponential(), [0, 2])])
def test_random_features_have_the_covariance(kernel):
    """512 features and 4000 functions: 4 standard errors of covariances of size one are .09."""
    kernel, generator = kernel.bind(3), torch.Generator().manual_seed(0)
    draws = prior_functions(kernel, 4000, 1, generator, X, 512)(X[:5])[..., 0]
    assert_allclose(torch.cov(draws.T), kernel(X[:5], X[:5]), atol=0.15)


def test_a_kernel_of_columns_sees_no_other():
    kernel = OnColumns(RationalQuadratic(alpha=0.7), [2, 0]).bind(3)
    inner = RationalQuadratic(alpha=0.7).bind(2)
    Y = X.clone()
    Y[:, 1] = 9.0
    for A in (X, Y):
        H = A[:, [2, 0]]
        assert_allclose(kernel(A, A[:4]), inner(H, H[:4]))
        assert_allclose(kernel.between(A, A[:4]), inner(H, H[:4]))
        assert_allclose(kernel.within(A[None])[0], inner(H, H))
        assert_allclose(kernel.diag(A), inner.diag(H))
    assert_allclose(kernel.slopes, [0.5, 0.0, 0.5])
    whole = (OnColumns(RandomWalk(), [1]) + Linear(bias=0.0)).bind(3)
    assert clone(whole).bind(3)(X, X).shape == (12, 12)


def test_a_date_stands_for_its_trend():
    sources = [0, 1, 1, 1, 3]  # column 2 was constant
    for columns, exclude, expected in (
        ([1], False, [1]),
        ([1], True, [0, 2, 3, 4]),
        ([0, 3], False, [0, 4]),
        ([0, 1, 3], True, [2, 3]),
    ):
        kernel = OnColumns(SquaredExponential(), columns, exclude).of_columns(sources, 4)
        assert kernel.columns == expected and not kernel.exclude
    assert OnColumns(SquaredExponential(), [0], True).of_columns([0], 1).columns == [0]
    assert OnColumns(SquaredExponential(), [1], True).bind(3).columns == [0, 2]


@pytest.mark.parametrize("columns", [[3], [-1], [], "a", [0.5]])
def test_columns_that_are_none(columns):
    with pytest.raises(ValueError, match="columns of OnColumns"):
        OnColumns(SquaredExponential(), columns).bind(3)


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ([2], r"looks at position 2, and there are 2 columns"),
        ([-1], "looks at position -1"),
        ([True], "looks at True; give names or positions"),
        (1, r"on=1\) needs a list of columns"),
        (["z"], "X has no column 'z'"),
    ],
)
def test_columns_that_X_does_not_have(on, message):
    kernel = SquaredExponential(on=on)
    for kernels in (kernel, kernel + Linear(), [kernel, "matern32"], ["matern32", kernel]):
        model = DeepGPRegressor(2, inference="dsvi", kernel=kernels, max_iter=1, random_state=0)
        at_hidden = kernels[:1] == ["matern32"] if isinstance(kernels, list) else False
        with pytest.raises(
            ValueError, match="hidden layers" if at_hidden and on == ["z"] else message
        ):
            model.fit(np.random.default_rng(0).uniform(size=(9, 2)), np.arange(9.0))


def test_factors_of_lengthscales_are_those_of_the_columns():
    kernel = SquaredExponential(on=[2]) + OnColumns(SquaredExponential(), [0, 1])
    kernel = located(kernel, ("x", "y", "z"), 3).bind(3)
    trained = Trainable(kernel)
    before = trained.fitted()
    assert trained.multiply("lengthscale", [2.0, 3.0, 5.0])
    after = trained.fitted()
    for part, factors in (("left", [5.0]), ("right", [2.0, 3.0])):
        old, new = (getattr(one, part).kernel.lengthscale for one in (before, after))
        assert_allclose(new / old, factors)
    assert not trained.multiply("strength", 2.0) and not trained.multiply("variance", 2.0, False)


def test_kernels_of_constant_columns():
    """They are none of the inputs, and functions of them are constant."""
    kernel = OnColumns(SquaredExponential(variance=2.0), [1]).of_columns([0], 2).bind(1)
    X = torch.tensor([[0.0], [3.0]], dtype=torch.float64)
    assert_allclose(kernel(X, X), np.full((2, 2), 2.0))
    assert_allclose(OnColumns(Linear(bias=0.0), [1]).of_columns([0], 2).bind(1).diag(X), 0.0)
    x = np.linspace(0.0, 1.0, 9)
    with_more = SquaredExponential(on=[0]) + SquaredExponential(on=[1])
    model = DeepGPRegressor(1, inference="exact", kernel=with_more, max_iter=3, random_state=0)
    model.fit(np.column_stack([x, np.ones(9)]), np.sin(5.0 * x))
    assert np.abs(model.predict([[0.0, 1.0]])) < 0.1
