"""Quantiles of mixtures of Gaussians, against scipy's distribution functions."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import norm

from skdgp.mixture.quantiles import quantiles

ALPHA = [1e-6, 0.01, 0.3, 0.5, 0.75, 0.999]
MIXTURES = {
    "one": ([1.0], [2.0], [9.0]),
    "a needle in a wide one": ([0.5, 0.5], [0.0, 0.3], [4.0, 1e-12]),
    "far apart": ([0.3, 0.7], [-50.0, 50.0], [0.01, 1.0]),
    "heavy tails": (0.5 ** np.arange(1.0, 20.0), np.zeros(19), 4.0 ** np.arange(19.0)),
    "far from zero": ([0.4, 0.6], [1e6, 1e6 + 1e-3], [1e-6, 1e-7]),
}


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
    rng = np.random.default_rng(0)
    parts = (
        rng.dirichlet(np.ones(9), 700).T,
        rng.normal(size=(9, 700)),
        rng.gamma(1.0, size=(9, 700)),
    )
    parts = [torch.tensor(part) for part in parts]
    together = quantiles(ALPHA, *parts)
    alone = torch.cat(
        [quantiles(ALPHA, *(part[:, [i]] for part in parts)) for i in range(0, 700, 70)]
    )
    assert_allclose(together[::70], alone, rtol=1e-10)  # rounding of shares, of which one is 1e-6


def test_quantiles_take_few_evaluations_of_the_distribution_function(monkeypatch):
    """Halley's method triples the digits with each: three for each quantile."""
    rng, calls, erf = np.random.default_rng(0), [], torch.erf
    parts = (
        rng.dirichlet(np.ones(30), 50).T,
        0.5 * rng.normal(size=(30, 50)),
        rng.gamma(2.0, size=(30, 50)),
    )
    monkeypatch.setattr(torch, "erf", lambda x: calls.append(len(x)) or erf(x))
    quantiles([0.05, 0.95], *map(torch.tensor, parts))
    assert len(calls) <= 6  # Newton's method took 8
