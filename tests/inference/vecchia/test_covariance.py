"""Covariances of rows in closed form."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from skdgp import DeepGPRegressor
from skdgp.inference import Vecchia


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
def test_with_all_rows_for_neighbors_it_is_that_of_the_exact_process(likelihood):
    """By hand, from the kernel; with a local scale, the mean of its factor and the roots of both rows'."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (25, 2))
    y = np.sin(X[:, 0]) + 0.2 * rng.standard_normal(25)
    settings = {"likelihood": likelihood, "max_iter": 5, "random_state": 0}
    model = DeepGPRegressor(1, inference=Vecchia(n_neighbors=25), **settings).fit(X, y)
    posterior = model.members_[0].posterior()
    x = torch.as_tensor(model._x_scaler.transform(rng.uniform(-2.0, 2.0, (4, 2))))
    near, (mean, var) = posterior._near, posterior.latent(x)[1:]
    with torch.no_grad():
        noise = near.observed.targets(near.y[None], near.weight[None])[1][0, 0]
        seen = near.kernel(near.Z, near.Z) + torch.diag(noise)
        K = near.kernel(near.Z, x)
        expected = near.kernel(x, x) - K.T @ torch.linalg.solve(seen, K)
        if likelihood == "heteroscedastic":
            z = near.say(x, posterior._search(x))[3]
            dof = posterior._local_scale.dof()
            root = (posterior._local_scale.squared(z)[:, 0] * dof / (dof - 2.0)).sqrt()
            expected = root[:, None] * expected * root
    actual = posterior.covariance(x)
    assert actual.shape == (1, 4, 4) and len(mean) == len(var)
    assert_allclose(actual[0], expected, rtol=1e-6, atol=1e-9)
