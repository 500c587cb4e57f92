"""Diagnostics of chains on draws whose sizes are known."""

import sys

import numpy as np
import pytest

from skdgp import DeepGPRegressor
from skdgp._scoring import LatentMixture
from skdgp.inference import SGHMC, EllipticalSlice
from skdgp.inference.chains import rank_rhat, sample_sizes, split_rhat
from skdgp.inspection import mcmc_diagnostics, to_arviz

X = np.zeros((2, 1))


@pytest.fixture
def of(monkeypatch):
    """Call a function on states (chains, n) of a function that is the same at two rows."""

    def call(function, draws):
        mean = np.broadcast_to(draws.reshape(-1, 1, 1), (draws.size, 2, 1))
        mixture = LatentMixture(np.ones(draws.size), mean, np.ones_like(mean), len(draws))
        monkeypatch.setattr("skdgp.inspection.mcmc.latent_mixture", lambda *args: mixture)
        return function(None, X)

    return call


def autoregressive(rho, n=4000, n_chains=4, seed=0):
    rng, x = np.random.default_rng(seed), np.zeros((n_chains, n))
    x[:, 0] = rng.standard_normal(n_chains)
    for t in range(1, n):
        x[:, t] = rho * x[:, t - 1] + (1.0 - rho**2) ** 0.5 * rng.standard_normal(n_chains)
    return x


def test_effective_size_of_an_autoregressive_chain(of):
    pytest.importorskip("arviz")
    found = of(mcmc_diagnostics, autoregressive(0.9))
    # an autocorrelation time of 19; the estimate has an error of some 5 %
    np.testing.assert_allclose(found.ess_bulk, 16_000 / 19.0, rtol=0.2)
    assert found.rhat.shape == (2, 1)
    assert found.ok
    assert "R-hat up to 1.0" in str(found)


def test_a_chain_that_is_off(of):
    pytest.importorskip("arviz")
    draws = autoregressive(0.0, 500)
    draws[0] += 2.0
    # of eight halves two have the mean 2: a variance of 6 / 7 between them
    assert split_rhat(draws) == pytest.approx((1.0 + 6.0 / 7.0) ** 0.5, abs=0.05)
    found = of(mcmc_diagnostics, draws)
    assert found.rhat.min() > 1.15
    assert not found.ok
    data = of(to_arviz, draws)
    np.testing.assert_array_equal(data.posterior["f"][:, :, 0, 0], draws)
    with pytest.raises(ValueError, match="four states"):
        of(mcmc_diagnostics, draws[:, :3])


@pytest.mark.parametrize("n", [20, 21])
@pytest.mark.parametrize("case", ["alike", "places", "spreads", "heavy tails, ties"])
def test_own_rank_rhat_is_that_of_arviz(case, n):
    az = pytest.importorskip("arviz")
    draws = np.random.default_rng(0).standard_normal((3, n))
    draws[0] += {"places": 1.0}.get(case, 0.0)
    draws[0] *= {"spreads": 4.0}.get(case, 1.0)
    draws = np.round(np.tan(draws), 1) if case == "heavy tails, ties" else draws
    assert rank_rhat(draws) == pytest.approx(float(az.rhat(draws)), rel=1e-10)


def test_own_sample_sizes_are_those_of_arviz():
    az = pytest.importorskip("arviz")
    for rho in (0.0, 0.5, 0.9):
        draws = autoregressive(rho, 500)
        for own, method in zip(sample_sizes(draws), ("bulk", "tail")):
            assert own == pytest.approx(float(az.ess(draws, method=method)), rel=0.01)


def test_arviz_is_named_where_it_is_missing(of, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    for function in (to_arviz, mcmc_diagnostics):
        with pytest.raises(ImportError, match=r"skdgp\[mcmc\]"):
            of(function, np.zeros((2, 5)))


@pytest.mark.parametrize("scheme", [SGHMC(n_samples=16), EllipticalSlice(1, n_samples=16)])
def test_groups_of_arviz(scheme):
    az = pytest.importorskip("arviz")
    X, y = np.linspace(0.0, 1.0, 9)[:, None], np.arange(9.0) % 4.0
    model = DeepGPRegressor(1, inference=scheme, likelihood="negative_binomial", max_iter=40)
    model.set_params(random_state=0).fit(X, y)
    data = to_arviz(model, X, y)
    log_density = data.log_likelihood["y"].to_numpy()
    assert log_density.shape == (4, 4, 9)
    # the mixture of the states is the model's own predictive distribution
    found = np.log(np.exp(log_density).mean((0, 1)))
    np.testing.assert_allclose(found, model.log_predictive_density(X, y), rtol=1e-8)
    drawn = data.posterior_predictive["y"].to_numpy()
    assert drawn.shape == (4, 4, 9, 1) and (drawn == np.round(drawn)).all()
    names = {"f"}
    if isinstance(scheme, EllipticalSlice):  # which samples them
        names |= {"layer1_lengthscale", "layer1_variance"}
        names |= {"likelihood_rate", "likelihood_overdispersion"}
    assert set(data.posterior.data_vars) == names
    assert np.isfinite(az.loo(data).elpd_loo)


def test_no_chains():
    pytest.importorskip("arviz")
    y = np.arange(4.0)
    model = DeepGPRegressor(1, inference="vfe", max_iter=2).fit(y[:, None], y)
    with pytest.raises(ValueError, match="mcmc_diagnostics is for samplers"):
        mcmc_diagnostics(model, y[:, None])
