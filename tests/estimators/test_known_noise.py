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
@pytest.mark.parametrize(
    ("model", "atol"),
    # inducing inputs at all rows need a jitter
    [(DeepGPRegressor(1, inference="exact"), 1e-8), (SparseGPRegressor(40), 1e-4)],
)
def test_weights_are_alpha_of_scikit_learn(model, atol, v0):
    rng = np.random.default_rng(0)
    X, v = rng.uniform(-2.0, 2.0, (40, 1)), rng.uniform(0.01, 0.3, 40)
    y = np.sin(2.0 * X[:, 0]) + np.sqrt(v) * rng.standard_normal(40)
    kernel = SquaredExponential(lengthscale=0.7, variance=1.0, trainable=False)
    model.set_params(kernel=kernel, likelihood=Gaussian(v0, trainable=False), standardize=False)
    model.set_params(max_iter=1, random_state=0).fit(X, y, sample_weight=v0 / v)
    exact = GaussianProcessRegressor(RBF(0.7), alpha=v, optimizer=None).fit(X, y)
    new = np.linspace(-3.0, 3.0, 30)[:, None]
    found, right = model.predict(new, return_std=True, latent=True), exact.predict(new, True)
    assert_allclose(found, right, atol=atol)
