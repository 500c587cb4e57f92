"""Weights beside a fixed variance are known variances of rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian


@pytest.mark.parametrize("v0", [0.05, 0.5])
@pytest.mark.parametrize("make", [DeepGPRegressor, SparseGPRegressor])
def test_weights_are_alpha_of_scikit_learn(make, v0):
    rng = np.random.default_rng(0)
    X, v = rng.uniform(-2.0, 2.0, (40, 1)), rng.uniform(0.01, 0.3, 40)
    y = np.sin(2.0 * X[:, 0]) + np.sqrt(v) * rng.standard_normal(40)
    kernel = SquaredExponential(lengthscale=0.7, variance=1.0, trainable=False)
    given = {"kernel": kernel, "likelihood": Gaussian(v0, trainable=False), "standardize": False}
    if make is DeepGPRegressor:
        model = make(1, inference="exact", max_iter=1, random_state=0, **given)
    else:
        model = make(n_inducing=40, max_iter=1, random_state=0, **given)
    model.fit(X, y, sample_weight=v0 / v)
    exact = GaussianProcessRegressor(RBF(0.7), alpha=v, optimizer=None).fit(X, y)
    new = np.linspace(-3.0, 3.0, 30)[:, None]
    found, right = model.predict(new, return_std=True, latent=True), exact.predict(new, True)
    # inducing inputs at all rows need a jitter
    atol = 1e-8 if make is DeepGPRegressor else 1e-4
    assert_allclose(found[0], right[0], atol=atol)
    assert_allclose(found[1], right[1], atol=atol)
