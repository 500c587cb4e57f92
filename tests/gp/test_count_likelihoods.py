import math

import numpy as np
import pytest
import torch
from likelihood_cases import moments_of, tensor
from scipy import special, stats
from scipy.integrate import trapezoid

from skdgp.gp.likelihoods import NegativeBinomial, Poisson


@pytest.mark.parametrize(("count", "v"), [(7, 1.0), (100, 0.1), (1000, 0.01), (1000, 0.1)])
def test_log_partition_of_large_counts(count, v):
    m = math.log(count)
    f = np.linspace(m - 10 * math.sqrt(v), m + 10 * math.sqrt(v), 20_001)
    integrand = stats.poisson.pmf(count, np.exp(f)) * stats.norm.pdf(f, m, math.sqrt(v))
    expected = math.log(trapezoid(integrand, f))
    actual = Poisson(1.0).log_partition(tensor([[count]]), tensor([[m]]), tensor([[v]]))
    np.testing.assert_allclose(actual, [expected], atol=1e-3)


@pytest.mark.parametrize("likelihood", [Poisson(1.3), NegativeBinomial(1.3, 0.1)], ids=repr)
def test_moments_and_distribution_functions_of_counts(likelihood):
    m, v = tensor([[0.4]]), tensor([[0.3]])
    y = torch.arange(400.0).double()[:, None]
    p = likelihood.log_partition(y, m.expand(400, 1), v.expand(400, 1)).exp()
    np.testing.assert_allclose(p.sum(), 1.0, atol=1e-9)
    mean, var = (float(moment) for moment in likelihood.moments(m, v))
    np.testing.assert_allclose((p * y[:, 0]).sum(), mean, rtol=1e-7)
    np.testing.assert_allclose((p * y[:, 0] ** 2).sum() - mean**2, var, rtol=1e-6)
    np.testing.assert_allclose(likelihood.cdf(y, m, v)[:, 0], p.cumsum(0), atol=1e-6)
    between = likelihood.cdf(tensor([[-0.5], [0.0], [0.7], [1.0]]), m, v)[:, 0]
    np.testing.assert_allclose(between, [0.0, p[0], p[0], p[0] + p[1]], atol=1e-6)


@pytest.mark.parametrize("rate", [1e-3, 1.3, 40.0, 1e3, 1e6])
@pytest.mark.parametrize("v", [1e-8, 1e-3, 0.05, 0.24, 1.0, 25.0])
def test_poisson_distribution_function_for_rates_of_any_size(rate, v):
    sd = math.sqrt(v)
    reach = 5.0 * (sd + 1.0 / math.sqrt(rate + 1.0))
    y = np.floor((rate + 0.5) * np.exp(np.linspace(-reach, reach, 25)))
    f = sd * np.linspace(-9.0, 9.0, 501)
    steps = np.log((y + 1.0) / rate) + np.linspace(-30.0, 12.0, 501)[:, None] / np.sqrt(y + 1.0)
    x, weights = np.polynomial.legendre.leggauss(6)
    expected = []
    for count, step in zip(y, steps.T):  # pieces that are short where anything changes
        ends = np.unique(np.clip(np.append(f, step), f[0], f[-1]))
        half = 0.5 * np.diff(ends)[:, None]
        at = ends[:-1, None] + half * (1.0 + x)
        inside = special.gammaincc(count + 1.0, rate * np.exp(at))
        expected.append((half * weights * stats.norm.pdf(at, 0.0, sd) * inside).sum())
    m = torch.zeros(1, 1, dtype=torch.float64)
    actual = Poisson(rate).cdf(torch.tensor(y)[:, None], m, torch.full_like(m, v))
    np.testing.assert_allclose(actual[:, 0], expected, rtol=0, atol=1e-10)
    assert (Poisson(rate).cdf(tensor([[-1.0]]), m, torch.full_like(m, v)) == 0.0).all()


@pytest.mark.parametrize("likelihood", [Poisson(1.3), NegativeBinomial(1.3, 0.6)], ids=repr)
def test_a_row_of_counts_does_not_depend_on_the_others(likelihood):
    m, v = tensor([[0.0], [3.0], [-2.0], [0.1]]), tensor([[1e-4], [2.0], [0.3], [0.01]])
    y = tensor([[2.0], [400.0], [0.0], [1.0]])
    for method in (likelihood.cdf, likelihood.log_partition, likelihood.expected_log_prob):
        alone = [method(y[[i]], m[[i]], v[[i]]) for i in range(4)]
        torch.testing.assert_close(method(y, m, v), torch.cat(alone), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("m", "v"), [(0.0, 1.0), (600.0, 2.0), (900.0, 500.0), (-900.0, 2000.0)])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_poisson_stays_finite_where_its_rate_overflows(m, v, alpha, generator):
    likelihood, y = Poisson(5e7), 1e8
    latent = tensor([[m]]), tensor([[v]])
    actual = likelihood.log_partition(tensor([[y]]), *latent, alpha)

    def log_joint(f):
        log_p = y * (f + math.log(5e7)) - 5e7 * np.exp(f) - math.lgamma(y + 1.0)
        return alpha * log_p - 0.5 * ((f - m) ** 2 / v + math.log(2.0 * math.pi * v))

    f = math.log(2.0) + np.linspace(-0.02, 0.02, 200_001)  # twice the base rate, and 200 deviations
    expected = np.logaddexp.reduce(log_joint(f)) + math.log(f[1] - f[0])
    np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-5)
    for moment in likelihood.moments(*latent):
        assert 0.0 < moment < math.inf
    sample = likelihood.sample(latent[0], generator)
    assert 0.0 <= sample < math.inf


@pytest.mark.parametrize("a", [1e-3, 0.3, 5.0])
@pytest.mark.parametrize("v", [1e-8, 0.05, 1.0, 25.0])
def test_negative_binomial_by_quadrature(a, v):
    """Densities, their powers and distribution functions, for counts far below and above the mean."""
    likelihood, rate, sd = NegativeBinomial(40.0, a), 40.0, math.sqrt(v)
    z, step = np.linspace(-30.0, 30.0, 40_001, retstep=True)
    weights, p = step * stats.norm.pdf(z), 1.0 / (1.0 + a * rate * np.exp(0.3 + sd * z))
    m_, v_ = tensor([[0.3]]), tensor([[v]])
    for y in (0, 3, 60, 1000):
        y_, log_p = tensor([[float(y)]]), stats.nbinom.logpmf(y, 1.0 / a, p)
        for alpha in (1.0, 0.3):
            expected = math.log(step) + special.logsumexp(alpha * log_p + stats.norm.logpdf(z))
            actual = likelihood.log_partition(y_, m_, v_, alpha)
            np.testing.assert_allclose(actual, [expected], rtol=0, atol=2e-6)
        if v <= 1.0:
            actual = likelihood.expected_log_prob(y_, m_, v_)
            np.testing.assert_allclose(actual, [weights @ log_p], rtol=1e-7, atol=1e-7)
        actual = likelihood.cdf(y_, m_, v_)
        expected = weights @ stats.nbinom.cdf(y, 1.0 / a, p)
        np.testing.assert_allclose(actual, [[expected]], rtol=0, atol=1e-10)
    assert (likelihood.cdf(tensor([[-1.0]]), m_, v_) == 0.0).all()


@pytest.mark.parametrize("a", [1e-3, 0.1, 0.6, 2.0, 20.0])
def test_distribution_function_of_two_outputs_at_once(a):
    """Rules of all kinds, and counts around those from which on sums of probabilities are too long."""
    y = torch.tensor([[0.0, 7.0], [5.0, 199.0], [40.0, 200.0], [150.0, 1500.0]]).double()
    v = torch.tensor([1e-4, 0.02, 0.15, 0.5, 2.0]).double()[:, None, None].expand(5, 4, 2)
    actual = NegativeBinomial(30.0, np.array([a, 0.4])).cdf(y, torch.full_like(v, 0.5), v)
    z, step = np.linspace(-8.0, 8.0, 2001, retstep=True)
    for j, overdispersion in enumerate((a, 0.4)):
        rate = 30.0 * np.exp(0.5 + np.sqrt(v[:, :1, 0, None].numpy()) * z)
        p = 1.0 / (1.0 + overdispersion * rate)
        inside = stats.nbinom.cdf(y[:, j, None].numpy(), 1.0 / overdispersion, p)
        expected = inside @ (step * stats.norm.pdf(z))
        np.testing.assert_allclose(actual[..., j], expected, rtol=0, atol=1e-10)


def test_distribution_function_of_states_with_their_own_overdispersion():
    """Samples of hyperparameters: each state as it would be alone, with rules of all kinds."""
    y = torch.tensor([[0.0, 7.0], [5.0, 199.0], [40.0, 200.0], [150.0, 1500.0]]).double()
    v = torch.tensor([1e-4, 0.02, 0.15, 0.5, 2.0]).double()[:, None, None].expand(5, 4, 2)
    m, a = torch.full_like(v, 0.5), np.random.default_rng(0).lognormal(-1.0, 1.5, (5, 1, 2))
    rate = np.linspace(5.0, 60.0, 10).reshape(5, 1, 2)
    together = NegativeBinomial(rate, a)
    for name, others in (("cdf", ()), ("tail", (True,)), ("tail", (False,))):
        alone = [
            getattr(NegativeBinomial(rate[i, 0], a[i, 0]), name)(y, m[i], v[i], *others)
            for i in range(5)
        ]
        actual = getattr(together, name)(y, m, v, *others)
        np.testing.assert_allclose(actual, torch.stack(alone), rtol=1e-9, atol=1e-14)


def test_the_start_of_overdispersion_explains_half_of_the_variance():
    bound = NegativeBinomial().bind(np.array([[0.0], [0.0], [30.0]]), np.ones(3), np.ones(1))
    np.testing.assert_allclose(bound.overdispersion, 0.5 * (200.0 - 10.0) / 10.0**2)


def test_negative_binomial_of_little_overdispersion_is_poisson():
    y, (m, v) = tensor([[0.0], [2.0], [9.0]]), moments_of(1)
    near, poisson = NegativeBinomial(3.0, 1.0001e-4), Poisson(3.0)
    for method in ("expected_log_prob", "log_partition", "cdf"):
        actual, expected = (getattr(likelihood, method)(y, m, v) for likelihood in (near, poisson))
        torch.testing.assert_close(actual, expected, rtol=0, atol=3e-3)
