"""Nearest neighbors whose kernel comes from an exact Gaussian process on some rows."""

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from toys import architecture, everything

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import RationalQuadratic
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import Vecchia

pytestmark = pytest.mark.usefixtures("no_global_randomness")


def rows(n, n_columns=2, noise=0.1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, n_columns))
    return X, np.sin(X.sum(1)) + noise * rng.standard_normal(n)


def near(n_neighbors=8, **settings):
    scheme = Vecchia(n_neighbors, start="subset")
    return DeepGPRegressor(n_layers=1, inference=scheme, random_state=0, **settings)


def test_kernel_and_noise_maximize_the_marginal_likelihood():
    X, y = rows(80)
    likelihood = Gaussian(0.3).bind(np.zeros((2, 1)), np.ones(2), np.ones(1))
    model = Vecchia(8, start="subset")
    model = model.build(architecture(kernel="rational_quadratic"), likelihood)
    model.expected_log_likelihood(everything(X, y), torch.Generator().manual_seed(0))

    @torch.no_grad()
    def evidence(factors):
        kernel, noise = model.rows.kernel.fitted(), model.likelihood.fitted().variance
        lengthscale = np.broadcast_to(kernel.lengthscale, 2) * factors[:2]
        other = RationalQuadratic(kernel.alpha, lengthscale, kernel.variance * factors[2]).bind(2)
        K = other(torch.tensor(X), torch.tensor(X)).numpy()
        noise = float(np.squeeze(noise)) * factors[3]
        return multivariate_normal.logpdf(y, np.zeros(80), K + noise * np.eye(80))

    best = evidence(np.ones(4))
    for i in range(4):  # weak priors move the best by less than these
        for factor in (0.5, 2.0):
            assert evidence(np.where(np.arange(4) == i, factor, 1.0)) < best


def test_steps_leave_lengthscales_alone():
    X, y = rows(150)
    few, more = (near(max_iter=n).fit(X, y) for n in (1, 8))
    (a,), (b,) = few.kernels_, more.kernels_
    assert_array_equal(a.lengthscale, b.lengthscale)
    assert a.variance != b.variance


def test_it_begins_at_the_exact_process():
    """Where that is right, a step does; from the kernel that is given it does not."""
    X, y = rows(600, 5)
    x, t = rows(300, 5, seed=1)
    start = near(32, max_iter=1).fit(X, y)
    given = DeepGPRegressor(n_layers=1, inference=Vecchia(32), max_iter=1, random_state=0)
    errors = [np.square(model.predict(x) - t).mean() for model in (start, given.fit(X, y))]
    assert errors[0] < 0.8 * errors[1]


@pytest.mark.parametrize(("noise", "expected"), [(0.01, {32, 64}), (3.0, {16})])
def test_number_of_neighbors(noise, expected):
    X, y = rows(400, 4, noise)
    model = near(None, max_iter=2).fit(X, y)
    assert int(model.members_[0].arrays["k"]) in expected
    copy = pickle.loads(pickle.dumps(model))
    assert_allclose(copy.predict(X), model.predict(X), rtol=1e-12)
    assert_allclose(copy.log_predictive_density(X, y), model.log_predictive_density(X, y))


def test_more_rows_than_the_subset(monkeypatch):
    from skdgp.inference.vecchia import subset_start

    monkeypatch.setattr(subset_start, "_ROWS", 100)
    X, y = rows(300)
    assert near(max_iter=3).fit(X[:250], y[:250]).score(X[250:], y[250:]) > 0.95
