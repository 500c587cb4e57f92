"""Likelihoods that are made from a distribution of torch: one of Laplace, against SciPy and quadrature."""

import numpy as np
import pytest
import torch
from likelihood_cases import tensor
from scipy import integrate, stats

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.gp.likelihoods import DistributionLikelihood


class Laplace(DistributionLikelihood):
    _positive, _units, _defaults = {"scale": 1e-4}, {"scale": 1}, {"scale": 0.2}

    def __init__(self, scale=None, trainable=True):
        self.scale, self.trainable = scale, trainable

    def distribution(self, f):
        return torch.distributions.Laplace(f, torch.as_tensor(self.scale).to(f))


class Gamma(DistributionLikelihood):
    """Positive targets with mean e^f; torch has neither its quantiles nor a scale of the target."""

    scales_target = False
    _positive, _defaults = {"shape": 0.0}, {"shape": 2.0}

    def __init__(self, shape=None, trainable=True):
        self.shape, self.trainable = shape, trainable

    def distribution(self, f):
        shape = torch.as_tensor(self.shape).to(f)
        return torch.distributions.Gamma(shape, shape * torch.exp(-f))


class Unscaled(Gamma):
    scales_target = True


class WithoutCdf(Gamma):
    def distribution(self, f):
        return torch.distributions.Beta(1.0 + f.exp(), torch.as_tensor(self.shape).to(f))


class Wild(Laplace):
    def distribution(self, f):
        return torch.distributions.Cauchy(f, torch.as_tensor(self.scale).to(f))


@pytest.mark.parametrize("y", [-2.0, 0.3, 1.1])
def test_a_known_function_leaves_the_distribution(y):
    likelihood, f, given = Laplace(0.5), tensor([[0.3]]), stats.laplace(0.3, 0.5)
    at, zero = tensor([[y]]), tensor([[0.0]])
    np.testing.assert_allclose(likelihood.log_prob(at, f), [given.logpdf(y)], rtol=1e-12)
    np.testing.assert_allclose(likelihood.log_partition(at, f, zero), [given.logpdf(y)], rtol=1e-12)
    np.testing.assert_allclose(likelihood.cdf(at, f, zero), [[given.cdf(y)]], rtol=1e-12)
    np.testing.assert_allclose(likelihood.tail(at, f, zero, True), [[given.sf(y)]], rtol=1e-9)
    np.testing.assert_allclose(likelihood.moments(f, zero), [[[0.3]], [[0.5]]], rtol=1e-12)


@pytest.mark.parametrize("v", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("y", [-1.0, 0.9])
def test_integrals_over_the_function(y, v):
    likelihood, m, var = Laplace(0.5), tensor([[0.3]]), tensor([[v]])

    def expected(function):
        sd = v**0.5
        kink = min(max(y, 0.3 - 9.9 * sd), 0.3 + 9.9 * sd)
        ends = 0.3 - 10.0 * sd, 0.3 + 10.0 * sd
        found = integrate.quad(
            lambda f: function(f) * stats.norm.pdf(f, 0.3, sd), *ends, points=[kink], epsabs=1e-12
        )
        return found[0]

    density = expected(lambda f: stats.laplace.pdf(y, f, 0.5))
    below = expected(lambda f: stats.laplace.cdf(y, f, 0.5))
    log_p = likelihood.log_partition(tensor([[y]]), m, var)
    np.testing.assert_allclose(log_p.exp(), [density], rtol=1e-3)
    np.testing.assert_allclose(likelihood.cdf(tensor([[y]]), m, var), [[below]], rtol=1e-4)
    np.testing.assert_allclose(likelihood.moments(m, var), [[[0.3]], [[v + 0.5]]], rtol=1e-9)


def test_moments_by_the_law_of_total_variance():
    """Of Gamma targets with a log-normal mean, in closed form; there is no density at negative targets."""
    likelihood, m, v = Gamma(2.0), tensor([[0.4]]), tensor([[0.6]])
    mean = np.exp(0.4 + 0.3)
    var = mean**2 * (1.5 * np.exp(0.6) - 1.0)
    np.testing.assert_allclose(likelihood.moments(m, v), [[[mean]], [[var]]], rtol=1e-6)
    assert likelihood.log_prob(tensor([[-1.0]]), m).item() == -np.inf
    assert likelihood.cdf(tensor([[-1.0]]), m, v).item() == 0.0


@pytest.mark.parametrize(
    ("likelihood", "given"),
    [
        (Laplace(0.5), stats.laplace(0.3, 0.5)),
        (Gamma(2.0), stats.gamma(2.0, scale=0.5 * np.exp(0.3))),
    ],
)
def test_draws(likelihood, given):
    """Kolmogorov and Smirnov's test does not tell 4,000 draws from SciPy's distribution."""
    f = torch.full((4000, 1), 0.3, dtype=torch.float64)
    draws = likelihood.sample(f, torch.Generator().manual_seed(0))
    assert torch.equal(draws, likelihood.sample(f, torch.Generator().manual_seed(0)))
    assert stats.kstest(draws[:, 0].numpy(), given.cdf).pvalue > 0.01


def fitted(likelihood, y=None, **settings):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (150, 1))
    if y is None:
        y = 10.0 * np.sin(2.0 * X[:, 0]) + rng.laplace(0.0, 1.0, 150)
    model = DeepGPRegressor(
        1,
        inference="dsvi",
        likelihood=likelihood,
        max_iter=300,
        n_inducing=15,
        random_state=0,
        **settings,
    )
    return model.fit(X, y), X, y


def test_an_estimator_predicts_with_it():
    model, X, y = fitted(Laplace())
    assert abs(model.likelihood_.scale[0] - 1.0) < 0.25  # three standard errors: 1 / sqrt(150)
    dist = model.predict_dist(X[:5])
    np.testing.assert_allclose(dist.cdf(dist.quantile(0.2)[:, 0]), 0.2, atol=1e-9)
    grid = np.linspace(-40.0, 40.0, 16_001)
    below = np.array([dist[:1].cdf([a])[0] for a in grid[::20]])
    step = (below - (grid[::20] >= y[0])) ** 2
    np.testing.assert_allclose(dist.crps(y[:5])[0], step.sum() * 0.1, rtol=0.05)
    assert model.sample_y(X[:4], 3).shape == (4, 3)


def test_one_sentence_for_what_cannot_be():
    positive = np.linspace(0.1, 5.0, 150)
    with pytest.raises(ValueError, match="Laplace is not one; leave it at 'auto'"):
        fitted(Laplace(), target_transform="yeo-johnson")
    with pytest.raises(ValueError, match="Unscaled has no density at standardized targets"):
        fitted(Unscaled(), positive)
    with pytest.raises(ValueError, match="needs a distribution that has a mean and a variance"):
        fitted(Wild())
    with pytest.raises(ValueError, match=r"give it the method conditional_cdf\(y, f\)"):
        WithoutCdf(2.0).cdf(tensor([[0.5]]), tensor([[0.0]]), tensor([[0.1]]))
    with pytest.raises(ValueError, match="is not a likelihood for this estimator"):
        DeepGPClassifier(likelihood=Laplace(), random_state=0).fit(
            positive[:, None], positive > 2.0
        )
