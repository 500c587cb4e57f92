"""Comparisons of predictive distributions that are known, and free energies in closed form."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from skdgp.inference.posterior import Latent
from skdgp.model_selection.posteriors import compare_posteriors, log_marginal_likelihood

X = np.zeros((3, 1))


def mixture(mean, sd, n_chains=4):
    """A posterior with components (C,) that are the same at three rows."""
    mean, sd = (torch.as_tensor(a, dtype=torch.float64) for a in np.broadcast_arrays(mean, sd))
    mean, var = (a.view(-1, 1, 1).expand(-1, 3, 1) for a in (mean, sd.square()))
    log_weights = torch.full((len(mean),), -math.log(len(mean)), dtype=torch.float64)
    return SimpleNamespace(latent=lambda X: Latent(log_weights, mean, var), n_chains=n_chains)


def test_gaussians():
    # W2 of N(0, 1) and N(a, b^2) is the root of a^2 + (b - 1)^2
    reference, other = mixture(np.zeros(8), 1.0), mixture([0.3], 0.8)
    table = compare_posteriors(reference, {"other": other}, X, inside=[True, False, False]).table
    assert list(table) == ["reference", "other"]
    assert list(table["other"]) == ["all", "inside", "outside"]
    for figures in table["other"].values():
        values = {name: value for name, (value, _) in figures.items()}
        assert values["mean"] == pytest.approx(0.3, abs=1e-6)
        assert values["sd"] == pytest.approx(0.2, abs=2e-3)
        assert values["wasserstein"] == pytest.approx(math.hypot(0.3, 0.2), abs=2e-3)
        upper, lower = ((s * 1.644854 - 0.3) / 0.8 for s in (1, -1))
        mass = 0.5 * (math.erf(upper / 2**0.5) - math.erf(lower / 2**0.5))
        assert values["coverage"] == pytest.approx(mass, abs=2e-3)
        assert max(error for _, error in figures.values()) < 1e-6  # all chains are alike
    assert table["reference"]["all"]["wasserstein"][0] == pytest.approx(0.0, abs=1e-9)
    assert table["reference"]["all"]["coverage"][0] == pytest.approx(0.9, abs=2e-3)


def test_errors_are_those_of_chains():
    # the mean of four chains is 0 +- .1 sqrt(4/3) / 2; the model's deviation is that of the mean
    reference = mixture([-0.1, -0.1, 0.1, 0.1], 1.0)
    table = compare_posteriors(reference, {"m": mixture([5.0], 1.0)}, X).table
    value, error = table["m"]["all"]["mean"]
    assert value == pytest.approx(5.0 / math.sqrt(1.01), abs=1e-3)
    assert error == pytest.approx(0.1 / math.sqrt(3.0), rel=0.02)
    assert "(" in repr(compare_posteriors(reference, {"m": mixture([5.0], 1.0)}, X))


def test_log_marginal_likelihood_of_a_gaussian():
    # f ~ N(0, 1), y | f ~ N(f, s^2): at power b, f has precision 1 + b / s^2
    rng, y, s = np.random.default_rng(0), 1.3, 0.2
    powers = np.r_[0.01 ** np.linspace(0.0, 1.0, 6), 0.0]
    levels = []
    for b in powers:
        precision = 1.0 + b / s**2
        f = b * y / s**2 / precision + rng.standard_normal((8, 400)) / precision**0.5
        levels.append(-0.5 * (np.log(2.0 * np.pi * s**2) + (y - f) ** 2 / s**2))
    posterior = SimpleNamespace(
        powers=torch.as_tensor(powers), log_likelihoods=torch.as_tensor(np.stack(levels, -1))
    )
    exact = -0.5 * (np.log(2.0 * np.pi * (1.0 + s**2)) + y**2 / (1.0 + s**2))
    value, error = log_marginal_likelihood(posterior)
    assert error < 0.05
    assert abs(value - exact) < 3.5 * error
    # thermodynamic integration by the trapezoidal rule over as many powers is far off
    means = np.mean(levels, (1, 2))
    assert abs(-np.trapezoid(means, powers) - exact) > 5.0 * error


def test_no_tempering():
    with pytest.raises(ValueError, match="n_tempering"):
        log_marginal_likelihood(mixture([0.0], 1.0))
