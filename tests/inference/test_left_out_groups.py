"""Groups of rows that are left out as a whole, by conditioning on the rows of all others."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from toys import architecture, everything, noisy, posterior, rows

from skdgp.gp.kernels import RationalQuadratic
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.inference import Exact, Vecchia

GROUPS = np.repeat([4, 0, 7, 2, 9], [9, 1, 11, 6, 3])


def with_some(X, y):
    """Exact conditioning on rows, with a group of each row or none."""

    def make(scheme, likelihood, group=None):
        bound = noisy(y.shape[1], likelihood)
        kernel = RationalQuadratic(alpha=0.7, lengthscale=[0.3, 1.1], variance=1.4)
        shape = architecture(n_latents=bound.n_latents(y.shape[1]), kernel=kernel)
        model, batch = scheme.build(shape, bound), everything(X, y)
        if group is not None:
            batch = batch._replace(group=torch.as_tensor(group))
        model.hold(batch)
        if isinstance(scheme, Exact):
            model.unsolved = batch
            model._solve()
        else:
            model._look_in(np.array([0.3, 1.1]))
            model._count_near()
        return model

    return make


@pytest.mark.parametrize(
    ("scheme", "likelihood"),
    [
        (Exact(5), Gaussian),
        (Vecchia(30), Gaussian),
        (Vecchia(6), Gaussian),
        (Vecchia(6), HeteroscedasticGaussian),
    ],
)
@pytest.mark.parametrize("copies", [False, True])
def test_a_group_has_the_density_given_all_others(scheme, likelihood, copies):
    X, y = rows(30)
    if copies:  # within a group, and in two groups
        X[11], y[11] = X[12], y[12]
        X[25], y[25] = X[3], y[3]
    actual = posterior(with_some(X, y)(scheme, likelihood(), GROUPS)).loo_log_density(np.arange(30))
    for group in np.unique(GROUPS):
        own = GROUPS == group
        others = with_some(X[~own], y[~own])(scheme, likelihood(), GROUPS[~own])
        log_weights, *moments = posterior(others, 200).latent(torch.tensor(X[own]))
        with torch.no_grad():
            density = others.likelihood().log_partition(torch.tensor(y[own]), *moments)
        expected = torch.logsumexp(log_weights[:, None] + density, 0)
        assert_allclose(actual[own], expected, rtol=1e-6)
