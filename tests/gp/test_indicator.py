"""The kernel of effects of levels."""

import numpy as np
import torch
from numpy.testing import assert_allclose

from skdgp import DeepGPRegressor
from skdgp.gp.component import Trainable
from skdgp.gp.draws import prior_functions
from skdgp.gp.kernels import Anova, Indicator, Linear, OnColumns
from skdgp.gp.kernels.base import stacked
from skdgp.gp.kernels.indicator import columns_of_levels, with_levels

LEVELS = torch.tensor([[0.0], [1e-9], [2e-9], [0.0], [1e-9]], dtype=torch.float64)
SAME = np.equal.outer(*2 * [[0, 1, 2, 0, 1]])


def test_all_forms_agree():
    kernel = Indicator(variance=0.7).bind(1)
    assert_allclose(kernel(LEVELS, LEVELS), 0.7 * SAME)
    assert_allclose(kernel.between(LEVELS, LEVELS[:2]), 0.7 * SAME[:, :2])
    assert_allclose(kernel.within(LEVELS[None])[0], 0.7 * SAME)
    assert_allclose(kernel.diag(LEVELS), 0.7)
    both = stacked([Trainable(Indicator(variance=v).bind(1))() for v in (0.5, 2.0)])
    found = both.between(LEVELS[None], LEVELS[None, :2]).detach()
    assert_allclose(found, np.array([0.5, 2.0])[:, None, None] * SAME[:, :2])


def test_random_features_have_the_covariance():
    """Of 4000 functions: 4 standard errors of covariances of size one are .09."""
    generator = torch.Generator().manual_seed(0)
    draws = prior_functions(Indicator().bind(1), 4000, 1, generator, LEVELS, 512)(LEVELS)
    assert_allclose(torch.cov(draws[..., 0].T), SAME, atol=0.15)


def test_levels_are_a_column_of_their_own():
    kernel = with_levels(Anova() + Linear(bias=0.0), [1, 3], 4).bind(4)
    assert columns_of_levels(kernel) == [[1], [3]]
    X = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rest = (Anova() + Linear(bias=0.0)).bind(2)
    assert_allclose(kernel(X, X), rest(X[:, [0, 2]], X[:, [0, 2]]) + 2.0 * torch.eye(6))
    without = with_levels(Anova(), [1], 2, has_effects=False).bind(2)
    assert columns_of_levels(without) == []
    assert np.isinf(np.asarray(without.metric)).tolist() == [False, True]


def test_it_is_a_mixed_model():
    """Random intercepts by generalized least squares, with the variances that are given."""
    rng = np.random.default_rng(0)
    level = np.repeat(np.arange(6.0), [1, 2, 3, 4, 5, 6])
    x = rng.normal(size=len(level))
    y = x + rng.normal(size=6)[level.astype(int)] + 0.3 * rng.normal(size=len(level))
    kernel = OnColumns(Linear(variance=2.0, bias=0.0, trainable=False), [0])
    kernel = kernel + OnColumns(Indicator(variance=0.8, trainable=False), [1])
    X = np.column_stack([x, level])
    model = DeepGPRegressor(1, kernel=kernel, inference="exact", standardize=False, random_state=0)
    model.set_params(likelihood="gaussian", target_transform=None).fit(X, y)
    noise = float(np.ravel(model.members_[0].likelihood_.variance)[0])
    new = np.column_stack([np.linspace(-1.0, 1.0, 8), [0, 1, 2, 3, 4, 5, 6, 7]])
    Z, same = np.r_[X, new], np.equal.outer(*2 * [np.r_[level, new[:, 1]]])
    V = 2.0 * np.outer(Z[:, 0], Z[:, 0]) + 0.8 * same
    n = len(y)
    A = np.linalg.solve(V[:n, :n] + noise * np.eye(n), V[:n, n:])
    mean, std = model.predict(new, return_std=True, latent=True)
    assert_allclose(mean, A.T @ y, rtol=1e-6, atol=1e-8)
    assert_allclose(std**2, np.diag(V[n:, n:] - V[n:, :n] @ A), rtol=1e-6)
