"""Quantiles of mixtures of Gaussians, against scipy's distribution functions."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import norm

from skdgp.predictive.quantiles import quantiles

ALPHA = [1e-6, 0.01, 0.3, 0.5, 0.75, 0.999]
MIXTURES = {
    "one": ([1.0], [2.0], [9.0]),
    "a needle in a wide one": ([0.5, 0.5], [0.0, 0.3], [4.0, 1e-12]),
    "far apart": ([0.3, 0.7], [-50.0, 50.0], [0.01, 1.0]),
    "heavy tails": (0.5 ** np.arange(1.0, 20.0), np.zeros(19), 4.0 ** np.arange(19.0)),
    "far from zero": ([0.4, 0.6], [1e6, 1e6 + 1e-3], [1e-6, 1e-7]),
}


def mixtures(size, n, spread, shape):
    rng = np.random.default_rng(0)
    weights, means = rng.dirichlet(np.ones(size), n).T, spread * rng.normal(size=(size, n))
    return [torch.tensor(part) for part in (weights, means, rng.gamma(shape, size=(size, n)))]


@pytest.mark.parametrize("name", MIXTURES)
def test_quantiles_invert_the_distribution_function(name):
    weights, means, variances = (np.array(part)[:, None] for part in MIXTURES[name])
    weights, sd = weights / weights.sum(), np.sqrt(variances)
    q = quantiles(ALPHA, *map(torch.tensor, (weights, means, variances)))[0].numpy()
    # the function may rise fast: what is between is no more than rounding of the place
    below, above = (
        (weights * norm.cdf(x, means, sd)).sum(0)
        for x in (q - 1e-9 * sd.min() - 1e-12 * np.abs(q), q + 1e-9 * sd.min() + 1e-12 * np.abs(q))
    )
    assert (below <= np.array(ALPHA) * (1.0 + 1e-9)).all()
    assert (above >= np.array(ALPHA) * (1.0 - 1e-9)).all()


def test_rows_do_not_depend_on_each_other():
    parts = mixtures(9, 700, 1.0, 1.0)
    together = quantiles(ALPHA, *parts)
    rows = range(0, 700, 70)
    alone = torch.cat([quantiles(ALPHA, *(part[:, [i]] for part in parts)) for i in rows])
    assert_allclose(together[::70], alone, rtol=1e-10)  # rounding of shares, of which one is 1e-6


def test_quantiles_take_few_evaluations_of_the_distribution_function(watch):
    """Halley's method triples the digits with each: three for each quantile."""
    parts, calls = mixtures(30, 50, 0.5, 2.0), watch(torch, "erf")
    quantiles([0.05, 0.95], *parts)
    assert len(calls) <= 6  # Newton's method took 8
