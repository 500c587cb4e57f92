"""Groups of rows that are left out as a whole, by conditioning on the rows of all others."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from toys import architecture, everything, noisy, posterior, rows

from skdgp.gp.kernels import RationalQuadratic
from skdgp.gp.likelihoods import Gaussian, HeteroscedasticGaussian
from skdgp.inference import CollapsedVI, Exact, Vecchia

GROUPS = np.repeat([4, 0, 7, 2, 9], [9, 1, 11, 6, 3])


def with_some(X, y):
    """Exact conditioning on rows, with a group of each row or none."""

    def make(scheme, likelihood, group=None, forward=False):
        bound = noisy(y.shape[1], likelihood)
        kernel = RationalQuadratic(alpha=0.7, lengthscale=[0.3, 1.1], variance=1.4)
        shape = architecture(n_latents=bound.n_latents(y.shape[1]), kernel=kernel)
        model, batch = scheme.build(shape, bound), everything(X, y)
        if group is not None:
            batch = batch._replace(group=torch.as_tensor(group), forward=forward)
        model.hold(batch)
        if isinstance(scheme, Exact | CollapsedVI):
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


BLOCKS = np.repeat([0, 1, 2, 3], [14, 6, 3, 7])


@pytest.mark.parametrize(
    ("scheme", "likelihood"),
    [
        (Exact(5), Gaussian),
        (CollapsedVI(2), Gaussian),
        (Vecchia(40), Gaussian),
        (Vecchia(16), Gaussian),
        (Vecchia(6), Gaussian),
        (Vecchia(6), HeteroscedasticGaussian),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "copies", "mixed"])
def test_a_block_has_the_density_given_the_rows_before_it(scheme, likelihood, kind):
    X, y = rows(30)
    blocks = BLOCKS
    if kind == "copies":  # within a block, and in two blocks
        X[15], y[15] = X[16], y[16]
        X[25], y[25] = X[3], y[3]
    elif kind == "mixed":  # batches need no order
        order = np.random.default_rng(0).permutation(30)
        X, y, blocks = X[order], y[order], BLOCKS[order]
    model = with_some(X, y)(scheme, likelihood(), blocks, forward=True)
    later = np.flatnonzero(blocks > 0)
    actual = np.full(30, np.nan)
    actual[later] = posterior(model).loo_log_density(later)
    for block in (1, 2, 3):
        own, before = blocks == block, blocks < block
        others = with_some(X[before], y[before])(scheme, likelihood())
        log_weights, *moments = posterior(others, 200).latent(torch.tensor(X[own]))
        with torch.no_grad():
            density = others.likelihood().log_partition(torch.tensor(y[own]), *moments)
        expected = torch.logsumexp(log_weights[:, None] + density, 0)
        assert_allclose(actual[own], expected, rtol=1e-8)


def test_errors_of_the_first_block_are_those_given_the_rows_before():
    """Standardized, and independent of each other: the log density of all rows is the sum of theirs."""
    X, y = rows(30)
    model = with_some(X, y)(Exact(5), Gaussian(), BLOCKS, forward=True)
    loo = posterior(model)._loo
    first = np.flatnonzero(BLOCKS == 0)
    covariance = model._covariance(model.rows.kernel(), model.rows.Z, model.rows.weight)[0]
    part = torch.distributions.MultivariateNormal(
        torch.zeros(14, dtype=torch.float64), covariance[:14, :14]
    )
    z, sd = loo.z[0, 0, first], loo.var[0, 0, first].sqrt()
    total = torch.distributions.Normal(0.0, 1.0).log_prob(z) - sd.log()
    assert_allclose(total.sum().item(), part.log_prob(model.rows.y[:14, 0]).item(), rtol=1e-10)
