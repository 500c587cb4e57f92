"""Diagnostics of chains on draws whose sizes are known."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from skdgp.inference.posterior import Latent
from skdgp.inspection.mcmc import mcmc_diagnostics, to_arviz

X = np.zeros((2, 1))


def posterior(draws):
    """States (chains, n) of a function that is the same at two rows."""
    mean = torch.as_tensor(draws).flatten().view(-1, 1, 1).expand(-1, 2, 1)
    return SimpleNamespace(
        latent=lambda X: Latent(torch.zeros(len(mean)), mean, torch.ones_like(mean)),
        n_chains=len(draws),
    )


def autoregressive(rho, n=4000, n_chains=4, seed=0):
    rng, x = np.random.default_rng(seed), np.zeros((n_chains, n))
    x[:, 0] = rng.standard_normal(n_chains)
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + (1.0 - rho**2) ** 0.5 * rng.standard_normal(n_chains)
    return x


def test_effective_size_of_an_autoregressive_chain():
    pytest.importorskip("arviz")
    found = mcmc_diagnostics(posterior(autoregressive(0.9)), X)
    # an autocorrelation time of 19; the estimate has an error of some 5 %
    np.testing.assert_allclose(found.ess_bulk, 16_000 / 19.0, rtol=0.2)
    assert found.rhat.shape == (2, 1)
    assert found.ok
    assert "R-hat up to 1.0" in str(found)


def test_a_chain_that_is_off():
    pytest.importorskip("arviz")
    draws = autoregressive(0.0, 500)
    draws[0] += 2.0
    # of eight halves two have the mean 2: a variance of 6 / 7 between them
    assert split_rhat(draws) == pytest.approx((1.0 + 6.0 / 7.0) ** 0.5, abs=0.05)
    found = mcmc_diagnostics(posterior(draws), X)
    assert found.rhat.min() > 1.15
    assert not found.ok
    data = to_arviz(posterior(draws), X)
    np.testing.assert_array_equal(data.posterior["f"][:, :, 0, 0], draws)
    with pytest.raises(ValueError, match="four states"):
        mcmc_diagnostics(posterior(draws[:, :3]), X)


def test_arviz_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"skdgp\[mcmc\]"):
        to_arviz(posterior(np.zeros((2, 5))), X)
