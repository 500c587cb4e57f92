import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import special, stats
from scipy.integrate import quad, trapezoid
from sklearn.base import clone

from skdgp.gp.component import Trainable
from skdgp.gp.likelihoods import (
    CLASSIFICATION,
    REGRESSION,
    Bernoulli,
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
    as_likelihood,
)

pytestmark = pytest.mark.usefixtures("no_global_randomness")

tensor = partial(torch.tensor, dtype=torch.float64)

MOMENTS = [(0.4, 0.3), (-1.1, 0.05), (0.9, 0.8)]
ALPHAS = [0.3, 1.0, 1.7]

# likelihood, its log-density by scipy, targets, and the errors of its nodes for MOMENTS and ALPHAS
ONE_LATENT = {
    "gaussian": (
        Gaussian(0.2),
        lambda y, f: stats.norm.logpdf(y, f, math.sqrt(0.2)),
        [-0.7, 2.0],
        (1e-12, 1e-12),
    ),
    "student_t": (
        StudentT(4.0, 0.5),
        lambda y, f: stats.t.logpdf(y, 4.0, f, 0.5),
        [-0.7, 2.0, 30.0],
        (1e-6, 1e-3),
    ),
    "poisson": (
        Poisson(1.3),
        lambda y, f: stats.poisson.logpmf(y, 1.3 * np.exp(f)),
        [0, 1, 2],
        (1e-12, 1e-3),
    ),
    "probit": (Bernoulli(), lambda y, f: stats.norm.logcdf((2 * y - 1) * f), [0, 1], (1e-10, 1e-8)),
    "logit": (
        Bernoulli("logit"),
        lambda y, f: -np.logaddexp(0.0, (1 - 2 * y) * f),
        [0, 1],
        (1e-10, 1e-8),
    ),
}
one_latent = pytest.mark.parametrize(
    ("likelihood", "log_density", "targets", "errors"), ONE_LATENT.values(), ids=ONE_LATENT
)

# every likelihood with its number of latents and some targets
EVERY = {
    "gaussian": (Gaussian(0.2), 1, [-0.7, 2.0]),
    "heteroscedastic": (HeteroscedasticGaussian(0.2), 2, [-0.7, 2.0]),
    "student_t": (StudentT(4.0, 0.5), 1, [-0.7, 2.0]),
    "heteroscedastic_student_t": (HeteroscedasticStudentT(4.0, 0.5), 2, [-0.7, 2.0]),
    "poisson": (Poisson(1.3), 1, [0.0, 3.0]),
    "probit": (Bernoulli(), 1, [0.0, 1.0]),
    "logit": (Bernoulli("logit"), 1, [0.0, 1.0]),
    "softmax": (Softmax(), 3, [0.0, 1.0, 2.0]),
    "robustmax": (RobustMax(), 3, [0.0, 1.0, 2.0]),
}
every = pytest.mark.parametrize(("likelihood", "n_latents", "targets"), EVERY.values(), ids=EVERY)
CONTINUOUS = ["gaussian", "heteroscedastic", "student_t", "heteroscedastic_student_t"]
continuous = pytest.mark.parametrize(
    ("likelihood", "n_latents", "targets"),
    [EVERY[name] for name in CONTINUOUS],
    ids=CONTINUOUS,
)
classes = pytest.mark.parametrize(
    ("likelihood", "n_latents", "targets"),
    [EVERY[name] for name in ("probit", "logit", "softmax", "robustmax")],
    ids=["probit", "logit", "softmax", "robustmax"],
)


def expectation(g, m, v):
    """``E g(f)`` for ``f ~ N(m, v)`` by adaptive quadrature."""
    sd = math.sqrt(v)
    density = partial(stats.norm.pdf, loc=m, scale=sd)
    return quad(lambda f: g(f) * density(f), m - 12 * sd, m + 12 * sd, epsabs=1e-13, limit=500)[0]


def moments_of(n_latents, n=3, seed=0):
    """Latent moments of shape (2, n, n_latents), as two draws for n rows."""
    rng = np.random.default_rng(seed)
    m = rng.standard_normal((2, n, n_latents))
    return torch.as_tensor(m), torch.as_tensor(rng.uniform(0.05, 0.8, m.shape))


# One latent: densities and integrals


@one_latent
def test_log_density(likelihood, log_density, targets, errors):
    for y, f in itertools.product(targets, [-1.5, 0.0, 0.8]):
        actual = likelihood.log_prob(tensor([[y]]), tensor([[f]]))
        np.testing.assert_allclose(actual, [log_density(y, f)], rtol=1e-12)


@one_latent
@pytest.mark.parametrize(("m", "v"), MOMENTS)
def test_expected_log_density(likelihood, log_density, targets, errors, m, v):
    for y in targets:
        actual = likelihood.expected_log_prob(tensor([[y]]), tensor([[m]]), tensor([[v]]))
        expected = expectation(partial(log_density, y), m, v)
        np.testing.assert_allclose(actual, [expected], rtol=1e-12, atol=errors[0])


@one_latent
@pytest.mark.parametrize(("m", "v"), MOMENTS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_log_partition(likelihood, log_density, targets, errors, m, v, alpha):
    for y in targets:
        actual = likelihood.log_partition(tensor([[y]]), tensor([[m]]), tensor([[v]]), alpha)
        expected = expectation(lambda f, y=y: np.exp(alpha * log_density(y, f)), m, v)
        np.testing.assert_allclose(actual, [math.log(expected)], rtol=1e-12, atol=errors[1])


@pytest.mark.parametrize(("count", "v"), [(7, 1.0), (100, 0.1), (1000, 0.01), (1000, 0.1)])
def test_log_partition_of_large_counts(count, v):
    m = math.log(count)
    f = np.linspace(m - 10 * math.sqrt(v), m + 10 * math.sqrt(v), 20_001)
    integrand = stats.poisson.pmf(count, np.exp(f)) * stats.norm.pdf(f, m, math.sqrt(v))
    expected = math.log(trapezoid(integrand, f))
    actual = Poisson(1.0).log_partition(tensor([[count]]), tensor([[m]]), tensor([[v]]))
    np.testing.assert_allclose(actual, [expected], atol=1e-3)


@one_latent
def test_log_partition_has_the_expected_log_density_as_its_slope_at_zero(
    likelihood, log_density, targets, errors
):
    y, m, v = tensor([[targets[1]]]), tensor([[0.4]]), tensor([[0.3]])
    slope = likelihood.log_partition(y, m, v, alpha=1e-6) / 1e-6
    np.testing.assert_allclose(slope, likelihood.expected_log_prob(y, m, v), rtol=1e-4)


# Several latents


@pytest.mark.parametrize("y", [-0.7, 2.0])
def test_heteroscedastic_integrals(y):
    likelihood = HeteroscedasticGaussian(0.2)
    (m_f, m_g), (v_f, v_g) = m, v = (0.4, -0.3), (0.3, 0.5)
    y_, m_, v_ = tensor([[y]]), tensor([m]), tensor([v])
    actual = likelihood.log_prob(y_, m_)
    np.testing.assert_allclose(actual, [stats.norm.logpdf(y, m_f, math.sqrt(0.2 * math.exp(m_g)))])

    def noise(g):
        return 0.2 * math.exp(g)

    expected = expectation(
        lambda g: -0.5 * (math.log(2 * math.pi * noise(g)) + ((y - m_f) ** 2 + v_f) / noise(g)),
        m_g,
        v_g,
    )
    np.testing.assert_allclose(likelihood.expected_log_prob(y_, m_, v_), [expected], rtol=1e-9)
    expected = expectation(lambda g: stats.norm.pdf(y, m_f, math.sqrt(v_f + noise(g))), m_g, v_g)
    np.testing.assert_allclose(
        likelihood.log_partition(y_, m_, v_), [math.log(expected)], rtol=1e-7
    )
    f, g = np.meshgrid(np.linspace(-6.0, 7.0, 1001), np.linspace(-6.0, 6.0, 1001), indexing="ij")
    density = stats.norm.pdf(f, m_f, math.sqrt(v_f)) * stats.norm.pdf(g, m_g, math.sqrt(v_g))
    for alpha in (0.3, 1.7):
        likely = stats.norm.pdf(y, f, np.sqrt(0.2 * np.exp(g))) ** alpha
        expected = trapezoid(trapezoid(likely * density, g[0]), f[:, 0])
        actual = likelihood.log_partition(y_, m_, v_, alpha)
        np.testing.assert_allclose(actual, [math.log(expected)], atol=1e-6)


@pytest.mark.parametrize(
    ("v_g", "error", "far_error"), [(0.5, 1e-9, 1e-6), (1.0, 1e-6, 1e-4), (2.0, 1e-4, 1e-3)]
)
def test_heteroscedastic_densities_of_errors_that_are_far_too_large(v_g, error, far_error):
    z, step = np.linspace(-14.0, 14.0, 100_001, retstep=True)
    noise = 0.01 + 0.1 * np.exp(math.sqrt(v_g) * z)
    std = math.sqrt(0.01 + 0.1 * math.exp(0.5 * v_g))
    likelihood, moments = (
        HeteroscedasticGaussian(0.1),
        (tensor([[0.0, 0.0]]), tensor([[0.01, v_g]])),
    )
    for level in (0.0, 1.0, 3.0, 10.0, 30.0):
        y = level * std
        log_joint = stats.norm.logpdf(z) + stats.norm.logpdf(y, 0.0, np.sqrt(noise))
        expected = np.logaddexp.reduce(log_joint) + math.log(step)
        actual = likelihood.log_partition(tensor([[y]]), *moments)
        atol = (error if level <= 3.0 else far_error) * (10.0 if level > 10.0 else 1.0)
        np.testing.assert_allclose(actual, [expected], atol=atol)


@pytest.mark.parametrize("alpha", [1.0, 0.3, 1.7])
@pytest.mark.parametrize("v_f", [1e-12, 0.01])
@pytest.mark.parametrize(
    ("v_g", "error"),
    [(0.01, 0.02), (0.3, 1e-5), (1.0, 1e-5), (4.0, 1e-5), (9.0, 2e-4), (16.0, 4e-3)],
)
def test_heteroscedastic_densities_of_errors_of_any_size(v_g, error, v_f, alpha):
    """Values and slopes, against equal steps through all modes."""
    variance, m_g, sd = 0.05, -1.0, math.sqrt(v_g)
    likelihood = HeteroscedasticGaussian(variance)
    for level in (0.0, 1.0, 10.0, 100.0, 300.0):
        y = level * math.sqrt(v_f + variance * math.exp(m_g + 0.5 * v_g))
        most = 2.0 * math.log1p(y * y / variance / math.exp(m_g)) / sd
        z, step = np.linspace(-16.0 - sd, 16.0 + most, 40_001, retstep=True)
        g = m_g + sd * z
        noise = variance * np.exp(g)
        total = v_f + noise / alpha
        log_joint = stats.norm.logpdf(z) + stats.norm.logpdf(y, 0.0, np.sqrt(total))
        log_joint += 0.5 * (1.0 - alpha) * np.log(2.0 * np.pi * noise) - 0.5 * math.log(alpha)
        expected = special.logsumexp(log_joint) + math.log(step)
        m, v = tensor([[0.0, m_g]]).requires_grad_(), tensor([[v_f, v_g]]).requires_grad_()
        actual = likelihood.log_partition(tensor([[y]]), m, v, alpha)
        np.testing.assert_allclose(actual.detach(), [expected], atol=error)
        weights = np.exp(log_joint - special.logsumexp(log_joint))
        slope = weights @ (y / total)  # for the mean of f
        slope_g = weights @ z / sd  # for that of g, by parts
        found = torch.autograd.grad(actual.sum(), m)[0][0]
        np.testing.assert_allclose(found, [slope, slope_g], rtol=10.0 * error, atol=10.0 * error)


@pytest.mark.parametrize("df", [2.1, 4.0, 30.0])
@pytest.mark.parametrize("y", [-0.7, 2.0, 6.0])
@pytest.mark.parametrize("v", [(0.3, 0.5), (1e-6, 0.05)])
def test_heteroscedastic_student_t_integrals(df, y, v):
    likelihood, m = HeteroscedasticStudentT(df, 0.45), (0.4, -0.3)
    x = np.linspace(-9.0, 9.0, 1501)
    f, g = np.meshgrid(*(a + math.sqrt(b) * x for a, b in zip(m, v)), indexing="ij")
    weights = np.outer(stats.norm.pdf(x), stats.norm.pdf(x)) * (x[1] - x[0]) ** 2
    t = partial(stats.t, df, f, 0.45 * np.exp(0.5 * g))
    y_, m_, v_ = tensor([[y]]), tensor([m]), tensor([v])
    for alpha in (0.5, 1.0):
        expected = math.log((weights * t().pdf(y) ** alpha).sum())
        actual = likelihood.log_partition(y_, m_, v_, alpha)
        far = expected < -8.0  # 10 standard deviations and more
        np.testing.assert_allclose(actual, [expected], atol=5e-4 if far else 1e-5)
    cdf = likelihood.cdf(y_, m_, v_)
    np.testing.assert_allclose(cdf, [[(weights * t().cdf(y)).sum()]], atol=2e-6)
    assert likelihood.expected_log_prob(y_, m_, v_) <= (weights * t().logpdf(y)).sum()
    actual = likelihood.log_prob(y_, m_)
    np.testing.assert_allclose(
        actual, [stats.t.logpdf(y, df, m[0], 0.45 * math.exp(0.5 * m[1]))], rtol=1e-12
    )


@pytest.mark.parametrize("df", [2.1, 6.0, 20.0, 60.0, 200.0])
def test_heteroscedastic_student_t_reaches_far_into_the_tails(df):
    likelihood = HeteroscedasticStudentT(df, 0.3)
    m = tensor([[0.1, 0.4]] * 5)
    y = 0.1 + 0.3 * math.exp(0.2) * tensor([[0.5], [3.0], [10.0], [30.0], [100.0]])
    for v_f, v_g in ((1e-12, 0.0), (1e-12, 1e-10)):
        v = tensor([[v_f, v_g]] * 5)
        actual = likelihood.log_partition(y, m, v)
        expected = stats.t.logpdf(y[:, 0], df, 0.1, 0.3 * math.exp(0.2))
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
        alone = [likelihood.log_partition(y[i : i + 1], m[:1], v[:1]).item() for i in range(5)]
        np.testing.assert_allclose(actual, alone, rtol=1e-9)


@pytest.mark.parametrize("df", [2.1, 4.0, 30.0])
@pytest.mark.parametrize("y", [-0.7, 6.0])
def test_heteroscedastic_student_t_expects_what_its_best_posterior_of_the_mixing_gives(df, y):
    # N(f, s^2 e^g / l) with l ~ Gamma(df / 2, df / 2), and q(l) free: log of the integral over l of
    # p(l) exp(E log N)
    (m_f, m_g), (v_f, v_g) = m, v = (0.4, -0.3), (0.3, 0.5)
    square = ((y - m_f) ** 2 + v_f) * math.exp(-m_g + 0.5 * v_g) / 0.45**2

    def integrand(log_l):
        level = -0.5 * (math.log(2.0 * math.pi * 0.45**2) + m_g - log_l + math.exp(log_l) * square)
        return stats.gamma.pdf(math.exp(log_l), 0.5 * df, scale=2.0 / df) * math.exp(level + log_l)

    expected = math.log(quad(integrand, -40.0, 6.0, epsabs=0.0, limit=500)[0])
    actual = HeteroscedasticStudentT(df, 0.45).expected_log_prob(
        tensor([[y]]), tensor([m]), tensor([v])
    )
    np.testing.assert_allclose(actual, [expected], rtol=1e-7)


@pytest.mark.parametrize("df", [2.1, 6.0, 30.0, 3000.0])
@pytest.mark.parametrize("v_g", [1e-6, 0.05, 0.8, 3.0, 6.0])
def test_heteroscedastic_student_t_distribution_function_for_scales_known_badly(df, v_g):
    z = np.linspace(-9.0, 9.0, 2001)
    y = np.array([-20.0, -2.0, -0.4, -0.1, 0.02, 0.3, 1.0, 6.0])
    inside = stats.t.cdf(y[:, None] / (0.3 * np.exp(0.5 * math.sqrt(v_g) * z)), df)
    expected = inside @ (stats.norm.pdf(z) * (z[1] - z[0]))
    m = torch.zeros(1, 2, dtype=torch.float64)
    actual = HeteroscedasticStudentT(df, 0.3).cdf(
        torch.tensor(y)[:, None], m, tensor([[1e-12, v_g]])
    )
    np.testing.assert_allclose(actual[:, 0], expected, atol=1e-6 if v_g < 6.0 else 5e-6)


def test_heteroscedastic_student_t_of_a_row_does_not_depend_on_the_others():
    likelihood = HeteroscedasticStudentT(np.array([4.0, 9.0]), np.array([0.5, 0.2]))
    m, v = moments_of(4, n=5)
    v[0, :, 2:] *= tensor([[1.0], [1e-6], [20.0], [400.0], [3.0]])
    y = tensor([[-0.7, 2.0]]).expand(5, 2)
    alone = [likelihood.cdf(y[[i]], m[:, [i]], v[:, [i]]) for i in range(5)]
    torch.testing.assert_close(likelihood.cdf(y, m, v), torch.cat(alone, 1), rtol=0, atol=1e-12)
    assert likelihood.cdf(y[:0], m[:, :0], v[:, :0]).shape == (2, 0, 2)


def test_heteroscedastic_student_t_with_many_degrees_of_freedom_is_gaussian():
    y, (m, v) = tensor([[0.3], [-1.0], [2.0]]), moments_of(2)
    t, gaussian = HeteroscedasticStudentT(1e7, 0.5), HeteroscedasticGaussian(0.25)
    for method in ("expected_log_prob", "log_partition"):
        torch.testing.assert_close(
            getattr(t, method)(y, m, v), getattr(gaussian, method)(y, m, v), rtol=1e-4, atol=1e-4
        )


def test_heteroscedastic_student_t_of_certain_scale_is_student_t():
    y, (m, v) = tensor([[0.3], [-1.0], [2.0]]), moments_of(1)
    g = torch.full_like(m, 0.8)
    t = HeteroscedasticStudentT(4.0, 0.5)
    plain = StudentT(4.0, 0.5 * math.exp(0.4))
    latents = torch.cat([m, g], -1), torch.cat([v, torch.zeros_like(v)], -1)
    for alpha in ALPHAS:
        torch.testing.assert_close(
            t.log_partition(y, *latents, alpha), plain.log_partition(y, m, v, alpha),
            rtol=1e-7, atol=1e-7,
        )  # fmt: skip
    torch.testing.assert_close(t.cdf(y, *latents), plain.cdf(y, m, v), rtol=0.0, atol=2e-6)
    for ours, theirs in zip(t.moments(*latents), plain.moments(m, v)):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "make", [HeteroscedasticGaussian, lambda scale: HeteroscedasticStudentT(4.0, scale)]
)
def test_heteroscedastic_latents_come_in_halves(make):
    # two outputs, latents f1 f2 g1 g2, are twice one output
    likelihood = make(np.array([0.2, 0.5]))
    y, (m, v) = tensor([[0.3, -0.2]]), moments_of(4, n=1)
    for method in ("expected_log_prob", "log_partition"):
        parts = [
            getattr(make(s), method)(y[:, [i]], m[..., [i, i + 2]], v[..., [i, i + 2]])
            for i, s in enumerate([0.2, 0.5])
        ]
        torch.testing.assert_close(getattr(likelihood, method)(y, m, v), sum(parts))


@pytest.mark.parametrize("y", [0, 1])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_softmax_of_two_classes_is_a_logistic_function_of_the_difference(y, alpha):
    likelihood = Softmax(n_nodes=60**2)
    m, v = (0.4, -0.3), (0.3, 0.6)
    y_, m_, v_ = tensor([[y]]), tensor([m]), tensor([v])
    difference, spread = m[y] - m[1 - y], sum(v)
    expected = expectation(lambda d: -np.logaddexp(0.0, -d), difference, spread)
    np.testing.assert_allclose(likelihood.expected_log_prob(y_, m_, v_), [expected], rtol=1e-8)
    expected = expectation(lambda d: special.expit(d) ** alpha, difference, spread)
    actual = likelihood.log_partition(y_, m_, v_, alpha)
    np.testing.assert_allclose(actual, [math.log(expected)], rtol=1e-8)


@pytest.mark.parametrize("n_classes", [3, 10])
def test_the_few_nodes_of_softmax_are_good_to_3_percent(n_classes):
    m, v = moments_of(n_classes, n=2)
    exact = Softmax(n_nodes=2**15)
    np.testing.assert_allclose(
        Softmax().log_probabilities(m, v).exp(), exact.log_probabilities(m, v).exp(), atol=0.03
    )
    y = tensor([[0.0], [2.0]])
    np.testing.assert_allclose(
        Softmax().expected_log_prob(y, m, v), exact.expected_log_prob(y, m, v), atol=0.03
    )


@pytest.mark.parametrize(("n_classes", "tolerance"), [(2, 1e-8), (3, 1e-8), (10, 1e-2)])
def test_curvature_of_softmax_is_the_second_derivative_in_the_means(n_classes, tolerance):
    """Price's theorem; the quadratures of both agree as far as each is good."""
    m, v = (moment[0] for moment in moments_of(n_classes, n=2))
    likelihood, h = Softmax(n_nodes=30**n_classes if n_classes < 4 else 2**13), 1e-5
    columns = []
    for c in range(n_classes):
        gradients = []
        for shift in (h, -h):
            moved = m.clone()
            moved[:, c] += shift
            moved.requires_grad_()
            value = likelihood.expected_log_prob(tensor([[0.0], [1.0]]), moved, v).sum()
            gradients.append(torch.autograd.grad(value, moved)[0])
        columns.append((gradients[1] - gradients[0]) / (2.0 * h))
    actual = likelihood.curvature(m, v)
    np.testing.assert_allclose(actual, torch.stack(columns, -1), atol=tolerance)
    np.testing.assert_allclose(actual.sum(-1), 0.0, atol=1e-12)


def test_the_many_nodes_of_softmax_agree_with_draws(generator):
    m, v = moments_of(10, n=2)
    f = m + v.sqrt() * torch.randn(20_000, *m.shape, generator=generator, dtype=torch.float64)
    draws = torch.log_softmax(f, -1)
    probabilities = Softmax(n_nodes=2**15).log_probabilities(m, v).exp()
    z = (draws.exp().mean(0) - probabilities) / draws.exp().std(0) * math.sqrt(len(f))
    assert z.abs().max() < 4.5
    y = tensor([[0.0], [2.0]])
    draws = draws.gather(-1, y.long().expand(20_000, 2, 2, 1))[..., 0]
    expected = Softmax(n_nodes=2**15).expected_log_prob(y, m, v)
    z = (draws.mean(0) - expected) / draws.std(0) * math.sqrt(len(f))
    assert z.abs().max() < 4


def plane(n):
    """Equally spaced nodes for two standard normal variables, and their weights."""
    x = np.linspace(-8.0, 8.0, n)
    z = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    weights = stats.norm.pdf(z).prod(1)
    return z, weights / weights.sum()


def test_softmax_of_three_classes_by_quadrature():
    """Over the two differences, whose covariance has a root of another kind."""
    v = np.array([0.3, 20.0, 4.0])
    m = np.array([0.4, -0.3, 1.1])
    z, weights = plane(1201)
    root = np.linalg.cholesky(np.diag(v[1:]) + v[0])  # of f_1 - f_0 and f_2 - f_0
    f = np.column_stack([np.zeros(len(z)), m[1:] - m[0] + z @ root.T])
    log_p = f - special.logsumexp(f, axis=1, keepdims=True)
    m_, v_ = tensor(m[None]), tensor(v[None])
    actual = Softmax().for_prediction(1).log_probabilities(m_, v_)
    np.testing.assert_allclose(actual[0].exp(), weights @ np.exp(log_p), atol=2e-4)
    for n_nodes, error in ((64, 0.03), (2500, 1e-4)):
        leaves = m_.clone().requires_grad_(), v_.clone().requires_grad_()
        for y in range(3):
            value = Softmax(n_nodes).expected_log_prob(tensor([[y]]), *leaves)
            np.testing.assert_allclose(value.detach(), [weights @ log_p[:, y]], atol=error)
        gradients = torch.autograd.grad(value.sum(), leaves)
        p = np.exp(log_p)
        np.testing.assert_allclose(gradients[0][0], [0, 0, 1] - weights @ p, atol=error)
        curvature = weights @ (p * (1.0 - p))  # Price's theorem
        np.testing.assert_allclose(gradients[1][0], -0.5 * curvature, atol=error)


@pytest.mark.parametrize("n_classes", [3, 4, 10])
def test_probabilities_of_softmax_for_large_variances(n_classes, generator):
    likelihood = Softmax().for_prediction(1)
    m, v = (30.0 * moment[:1] for moment in moments_of(n_classes, n=2))
    m = m / 10.0
    z = torch.randn(200_000, 1, 2, n_classes, generator=generator, dtype=torch.float64)
    draws = torch.softmax(m + v.sqrt() * z, -1)
    actual = likelihood.log_probabilities(m, v).exp()
    np.testing.assert_allclose(actual, draws.mean(0), atol=0.01)
    # in pieces, or with other rows, these are the same
    many = [moment.expand(1, 2, -1).repeat(1, 300, 1) for moment in (m, v)]
    repeated = likelihood.log_probabilities(*many).exp()
    torch.testing.assert_close(repeated, actual.repeat(1, 300, 1), rtol=1e-9, atol=1e-12)
    y = torch.zeros(600, 1, dtype=torch.float64)
    likely = likelihood.log_partition(y, *many).exp()
    torch.testing.assert_close(likely, repeated[..., 0], rtol=1e-9, atol=1e-12)


def test_robustmax_of_two_classes_in_closed_form():
    m, v = tensor([[0.4, -0.3]]), tensor([[0.3, 0.6]])
    win = stats.norm.cdf(0.7 / math.sqrt(0.9))
    likelihood = RobustMax(epsilon=0.02, n_nodes=60)
    for y, p in ((0.0, win), (1.0, 1.0 - win)):
        expected = p * math.log(0.98) + (1 - p) * math.log(0.02)
        np.testing.assert_allclose(likelihood.expected_log_prob(tensor([[y]]), m, v), [expected])
        for alpha in ALPHAS:
            expected = math.log(p * 0.98**alpha + (1 - p) * 0.02**alpha)
            actual = likelihood.log_partition(tensor([[y]]), m, v, alpha)
            np.testing.assert_allclose(actual, [expected], rtol=1e-9)


@pytest.mark.parametrize("y", [0, 1, 2, 3])
def test_robustmax_of_four_classes_by_quadrature(y):
    m, v = [0.4, -0.3, 0.1, 0.6], [0.3, 0.6, 1.0, 0.5]
    others = [c for c in range(4) if c != y]
    win = expectation(
        lambda f: np.prod([stats.norm.cdf((f - m[c]) / math.sqrt(v[c])) for c in others]),
        m[y],
        v[y],
    )
    y_, m_, v_ = tensor([[y]]), tensor([m]), tensor([v])
    for n_nodes, error in ((20, 1e-3), (60, 1e-8)):
        likelihood = RobustMax(epsilon=0.03, n_nodes=n_nodes)
        expected = win * math.log(0.97) + (1 - win) * math.log(0.01)
        np.testing.assert_allclose(likelihood.expected_log_prob(y_, m_, v_), [expected], atol=error)
        expected = math.log(win * 0.97 + (1 - win) * 0.01)
        np.testing.assert_allclose(likelihood.log_partition(y_, m_, v_), [expected], atol=error)
        actual = likelihood.log_probabilities(m_, v_)[0, y]
        np.testing.assert_allclose(actual, expected, atol=error)


def test_robustmax_given_latent_values():
    likelihood, f = RobustMax(epsilon=0.03), tensor([[0.4, 2.0, 0.1, 0.6]])
    levels = [float(likelihood.log_prob(tensor([[y]]), f)) for y in range(4)]
    np.testing.assert_allclose(np.exp(levels), [0.01, 0.97, 0.01, 0.01])


# What holds for every likelihood


@every
def test_shapes_and_rows(likelihood, n_latents, targets):
    y, (m, v) = tensor(targets[:2])[:, None], moments_of(n_latents, n=2)
    for method in ("expected_log_prob", "log_partition"):
        both = getattr(likelihood, method)(y, m, v)
        assert both.shape == (2, 2)
        one = getattr(likelihood, method)(y[1:], m[1, 1:], v[1, 1:])
        torch.testing.assert_close(one, both[1, 1:], rtol=1e-12, atol=1e-12)
    assert likelihood.log_prob(y, m).shape == (2, 2)


@pytest.mark.parametrize(
    "make", [Gaussian, StudentT, Poisson], ids=["gaussian", "student_t", "poisson"]
)
def test_outputs_are_summed_with_numbers_of_their_own(make):
    name = {Gaussian: "variance", StudentT: "scale", Poisson: "rate"}[make]
    y, (m, v) = tensor([[1.0, 2.0], [0.0, 3.0], [4.0, 1.0]]), moments_of(2)
    both = make(**{name: np.array([0.3, 0.8])})
    for method in ("expected_log_prob", "log_partition"):
        parts = [
            getattr(make(**{name: s}), method)(y[:, [i]], m[..., [i]], v[..., [i]])
            for i, s in enumerate([0.3, 0.8])
        ]
        torch.testing.assert_close(getattr(both, method)(y, m, v), sum(parts))


@every
def test_without_latent_variance_the_integrals_are_the_log_density(likelihood, n_latents, targets):
    m, v = moments_of(n_latents, n=1)
    v = torch.full_like(v, 1e-12)
    if isinstance(likelihood, RobustMax):
        likelihood = RobustMax(epsilon=0.1)
    for y in targets:
        y = tensor([[y]])
        expected = likelihood.log_prob(y, m)
        for alpha in ALPHAS:
            actual = likelihood.log_partition(y, m, v, alpha)
            torch.testing.assert_close(actual, alpha * expected, rtol=1e-5, atol=1e-5)
        actual = likelihood.expected_log_prob(y, m, v)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@every
def test_gradients_of_moments_and_numbers(likelihood, n_latents, targets):
    if likelihood._positive:
        likelihood = likelihood.with_values(
            **{name: np.atleast_1d(getattr(likelihood, name)) for name in likelihood._positive}
        )
    trainable = Trainable(likelihood)
    names = [name for name, _ in trainable.named_parameters()]
    leaves = [p.detach().clone().requires_grad_() for p in trainable.parameters()]
    y, (m, v) = tensor(targets[:2])[:, None], moments_of(n_latents, n=2)

    def f(m, v, *leaves):
        class Call(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.trainable = trainable

            def forward(self):
                bound = self.trainable()
                return bound.expected_log_prob(y, m, v), bound.log_partition(y, m, v)

        values = {f"trainable.{name}": leaf for name, leaf in zip(names, leaves)}
        return torch.func.functional_call(Call(), values, ())

    assert torch.autograd.gradcheck(f, (m.requires_grad_(), v.requires_grad_(), *leaves))


LOCATIONS = [0.0, 1e2, -1e2, 1e6, -1e6]
VARIANCES = [1e-12, 1.0, 1e3, 1e6]


def extremes(likelihood, n_latents, targets, m, v):
    """All that a likelihood says at these latent moments, gradients included."""
    out = {}
    for y in targets:
        y = tensor([[y]])
        for method in ("expected_log_prob", "log_partition"):
            leaves = m.clone().requires_grad_(), v.clone().requires_grad_()
            value = getattr(likelihood, method)(y, *leaves)
            gradients = torch.autograd.grad(value.sum(), leaves)
            out[method] = torch.cat([value.detach().ravel(), *(g.ravel() for g in gradients)])
        if hasattr(likelihood, "cdf"):
            out["cdf"] = likelihood.cdf(y, m, v)
    if hasattr(likelihood, "moments"):
        out["moments"] = torch.stack(likelihood.moments(m, v))
    if hasattr(likelihood, "log_probabilities"):
        out["log_probabilities"] = likelihood.log_probabilities(m, v)
    return out


@pytest.mark.parametrize("name", ["gaussian", "student_t", "probit", "logit", "softmax"])
@pytest.mark.parametrize("location", LOCATIONS)
@pytest.mark.parametrize("variance", VARIANCES)
def test_extreme_latents_give_finite_numbers(name, location, variance):
    likelihood, n_latents, targets = EVERY[name]
    m = location * tensor([[1.0, 0.5, -1.0]])[:, :n_latents]
    out = extremes(likelihood, n_latents, targets, m, torch.full_like(m, variance))
    for method, values in out.items():
        assert torch.isfinite(values).all(), method


@pytest.mark.parametrize("location", LOCATIONS)
def test_extreme_latents_of_robustmax(location):
    m = location * tensor([[1.0, 0.5, -1.0]])
    for variance in VARIANCES:
        out = extremes(RobustMax(), 3, [0.0, 1.0, 2.0], m, torch.full_like(m, variance))
        for method, values in out.items():
            assert torch.isfinite(values).all(), method


@pytest.mark.parametrize("location", [0.0, 100.0, -100.0])
@pytest.mark.parametrize("variance", [1e-12, 1.0, 100.0])
@pytest.mark.parametrize("name", ["heteroscedastic", "heteroscedastic_student_t", "poisson"])
def test_latents_in_an_exponent_may_reach_100(name, location, variance):
    likelihood, n_latents, targets = EVERY[name]
    m = torch.full((1, n_latents), location, dtype=torch.float64)
    out = extremes(likelihood, n_latents, targets, m, torch.full_like(m, variance))
    for method, values in out.items():
        assert torch.isfinite(values).all(), method


@pytest.mark.parametrize(
    ("name", "location", "variance"),
    [
        ("heteroscedastic", 1e3, 1.0),
        ("heteroscedastic", -1e3, 1.0),
        ("heteroscedastic", 0.0, 1e6),
        ("heteroscedastic_student_t", 1e3, 1.0),
        ("heteroscedastic_student_t", -1e3, 1.0),
        ("heteroscedastic_student_t", 0.0, 1e6),
        ("poisson", -1e3, 1e3),
    ],
)
def test_latents_in_an_exponent_give_no_nan_anywhere(name, location, variance):
    likelihood, n_latents, targets = EVERY[name]
    m = torch.full((1, n_latents), location, dtype=torch.float64)
    for y in targets:
        value = likelihood.log_partition(tensor([[y]]), m, torch.full_like(m, variance))
        assert torch.isfinite(value).all()
    for moment in likelihood.moments(m, torch.full_like(m, variance)):
        assert not torch.isnan(moment).any()


# Moments, distribution functions, mixtures


def y_grid(likelihood, m, v, n=20_001, reach=40.0):
    mean, var = likelihood.moments(m, v)
    return torch.linspace(-reach, reach, n, dtype=torch.float64)[:, None] * var.sqrt() + mean


@continuous
def test_densities_integrate_to_one_and_to_the_distribution_function(
    likelihood, n_latents, targets
):
    m, v = moments_of(n_latents, n=1)
    m, v = m[0], v[0]
    y = y_grid(likelihood, m, v)
    log_density = likelihood.log_partition(y, m.expand(len(y), -1), v.expand(len(y), -1))
    step = y[1, 0] - y[0, 0]
    cumulative = torch.cumulative_trapezoid(log_density.exp(), dx=float(step))
    cdf = likelihood.cdf(y, m, v)[:, 0]
    np.testing.assert_allclose(cdf[1:] - cdf[0], cumulative, atol=1e-5)
    assert (cdf.diff() >= 0.0).all()
    # beyond 40 standard deviations a t density of 4 degrees of freedom still has a mass of 1e-6
    assert cdf[0] < 1e-6
    assert cdf[-1] > 1.0 - 1e-6


@continuous
def test_moments_are_those_of_the_density(likelihood, n_latents, targets):
    m, v = moments_of(n_latents, n=1)
    m, v = m[0], v[0]
    mean, var = (float(moment) for moment in likelihood.moments(m, v))

    def density(y):
        return float(likelihood.log_partition(tensor([[y]]), m, v).exp())

    for power, expected in ((1, mean), (2, var + mean**2)):
        actual = sum(
            quad(lambda y, power=power: y**power * density(y), a, b, limit=200)[0]
            for a, b in ((-np.inf, mean), (mean, np.inf))
        )
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@continuous
def test_components_are_the_mixture_of_the_density(likelihood, n_latents, targets):
    m, v = moments_of(n_latents)
    log_weights, means, variances = likelihood.components(m, v)
    assert means.shape == variances.shape
    assert means.shape[1:] == (2, 3, 1)
    weights = log_weights.exp().expand_as(means)
    np.testing.assert_allclose(weights.sum(0), 1.0, rtol=1e-12)
    for y in targets:
        y = torch.full((3, 1), y, dtype=torch.float64)
        densities = stats.norm.pdf(y.numpy(), means.numpy(), variances.sqrt().numpy())
        expected = np.log((weights.numpy() * densities).sum(0)[..., 0])
        # fewer nodes for the distribution function than for the density
        rtol = 2e-4 if isinstance(likelihood, HeteroscedasticStudentT) else 1e-9
        np.testing.assert_allclose(likelihood.log_partition(y, m, v), expected, rtol=rtol)
    mean, var = likelihood.moments(m, v)
    torch.testing.assert_close((weights * means).sum(0), mean)
    mixed = (weights * (variances + means.square())).sum(0) - mean.square()
    # the rule for the t density is cut off where weights fall below 1e-20: 1e-6 of its variance
    torch.testing.assert_close(mixed, var, rtol=1e-5, atol=0)


@pytest.mark.parametrize("df", [2.1, 3.0, 4.0, 6.0])
@pytest.mark.parametrize(
    ("distance", "error"), [(0.3, 1e-7), (5.0, 1e-7), (1e3, 1e-7), (1e4, 1e-4), (1e5, 0.05)]
)
def test_the_mixture_of_student_t_reaches_far_into_the_tails(df, distance, error):
    y, m, v = tensor([[0.5 * distance]]), tensor([[0.0]]), tensor([[1e-12]])
    expected = stats.t.logpdf(0.5 * distance, df, 0.0, 0.5)
    np.testing.assert_allclose(StudentT(df, 0.5).log_partition(y, m, v), [expected], atol=error)


@pytest.mark.parametrize("df", [2.1, 4.0, 20.0, 100.0, 1e4])
def test_the_mixture_of_student_t_for_any_degrees_of_freedom(df):
    likelihood, m, v = StudentT(df, 1.0), tensor([[0.0]]), tensor([[0.5]])
    for y in (0.2, 1.3, 6.0):
        actual = likelihood.log_partition(tensor([[y]]), m, v)
        expected = math.log(expectation(lambda f, y=y: stats.t.pdf(y - f, df), 0.0, 0.5))
        np.testing.assert_allclose(actual, [expected], atol=1e-6)
        actual = likelihood.cdf(tensor([[y]]), m, v)
        expected = expectation(lambda f, y=y: stats.t.cdf(y - f, df), 0.0, 0.5)
        np.testing.assert_allclose(actual, [[expected]], atol=1e-6)


@pytest.mark.parametrize("scale", [2.0, 0.2, 1e-3])
@pytest.mark.parametrize("var", [1e-8, 0.3, 25.0])
def test_the_expected_log_density_of_student_t_where_its_peak_is_narrow(var, scale):
    distances, sd, df = [0.0, 0.4, 3.0, 30.0], math.sqrt(var), 4.0

    def expected(distance):
        """By quadrature in u of f = scale * sinh(u), which resolves the peak at any width."""
        ends = np.arcsinh((distance + np.array([-12.0, 12.0]) * sd) / scale)
        f = scale * np.sinh(np.linspace(*ends, 400_001))
        values = stats.norm.pdf(f, distance, sd) * stats.t.logpdf(f, df, 0.0, scale)
        return trapezoid(values * np.sqrt(scale**2 + f**2), np.linspace(*ends, 400_001))

    m = tensor([[d] for d in distances])
    actual = StudentT(df, scale).expected_log_prob(torch.zeros_like(m), m, torch.full_like(m, var))
    np.testing.assert_allclose(actual, [expected(d) for d in distances], atol=3e-7)


def test_student_t_with_many_degrees_of_freedom_is_gaussian():
    y, (m, v) = tensor([[0.3], [-1.0], [2.0]]), moments_of(1)
    t, gaussian = StudentT(1e7, 0.5), Gaussian(0.25)
    actual = t.expected_log_prob(y, m, v)
    torch.testing.assert_close(actual, gaussian.expected_log_prob(y, m, v), rtol=1e-5, atol=1e-5)


def test_poisson_moments_and_distribution_function():
    likelihood, m, v = Poisson(1.3), tensor([[0.4]]), tensor([[0.3]])
    y = torch.arange(200.0).double()[:, None]
    p = likelihood.log_partition(y, m.expand(200, 1), v.expand(200, 1)).exp()
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
    f = sd * np.linspace(-9.0, 9.0, 2001)
    steps = np.log((y + 1.0) / rate) + np.linspace(-30.0, 12.0, 2001)[:, None] / np.sqrt(y + 1.0)
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
    np.testing.assert_allclose(actual[:, 0], expected, atol=2e-8)
    assert (Poisson(rate).cdf(tensor([[-1.0]]), m, torch.full_like(m, v)) == 0.0).all()


def test_poisson_distribution_function_of_a_row_does_not_depend_on_the_others():
    m, v = tensor([[0.0], [3.0], [-2.0], [0.1]]), tensor([[1e-4], [2.0], [0.3], [0.01]])
    y = tensor([[2.0], [400.0], [0.0], [1.0]])
    alone = [Poisson(1.3).cdf(y[[i]], m[[i]], v[[i]]) for i in range(4)]
    torch.testing.assert_close(Poisson(1.3).cdf(y, m, v), torch.cat(alone), rtol=0, atol=1e-12)


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


# Draws


@pytest.mark.parametrize(
    ("name", "f", "mean", "var", "kurtosis"),
    [
        ("gaussian", [0.7], 0.7, 0.2, 3.0),
        ("heteroscedastic", [0.7, -0.4], 0.7, 0.2 * math.exp(-0.4), 3.0),
        (
            "poisson",
            [0.7],
            1.3 * math.exp(0.7),
            1.3 * math.exp(0.7),
            3.0 + 1 / (1.3 * math.exp(0.7)),
        ),
    ],
)
def test_draws_have_the_moments_of_the_density(name, f, mean, var, kurtosis, generator):
    likelihood, n = EVERY[name][0], 20_000
    y = likelihood.sample(tensor([f]).expand(n, -1), generator)
    assert y.shape == (n, 1)
    assert abs(y.mean() - mean) < 4 * math.sqrt(var / n)
    assert abs(y.var() - var) < 4 * var * math.sqrt((kurtosis - 1) / n)


@pytest.mark.parametrize(("df", "scale"), [(2.5, 0.3), (4.0, 0.5), (50.0, 2.0)])
def test_draws_of_student_t(df, scale, generator):
    f = torch.full((20_000, 1), 0.7, dtype=torch.float64)
    y = StudentT(df, scale).sample(f, generator)
    assert stats.kstest(y[:, 0], stats.t(df, 0.7, scale).cdf).pvalue > 1e-3


def test_draws_of_heteroscedastic_student_t(generator):
    f = tensor([[0.7, -0.4]]).expand(20_000, -1)
    y = HeteroscedasticStudentT(4.0, 0.5).sample(f, generator)
    expected = stats.t(4.0, 0.7, 0.5 * math.exp(-0.2))
    assert stats.kstest(y[:, 0], expected.cdf).pvalue > 1e-3


@classes
def test_draws_of_classes(likelihood, n_latents, targets, generator):
    f, n = tensor([[0.4, -0.3, 0.1]])[:, :n_latents], 20_000
    if isinstance(likelihood, RobustMax):
        likelihood = RobustMax(epsilon=0.3)
    p = np.exp([float(likelihood.log_prob(tensor([[y]]), f)) for y in targets])
    np.testing.assert_allclose(p.sum(), 1.0)
    y = likelihood.sample(f.expand(n, -1), generator)
    assert y.shape == (n, 1)
    counts = np.bincount(y[:, 0].long(), minlength=len(p))
    assert len(counts) == len(p)
    z = (counts - n * p) / np.sqrt(n * p * (1 - p))
    assert np.abs(z).max() < 4


@every
def test_draws_depend_on_the_generator_alone(likelihood, n_latents, targets):
    f = moments_of(n_latents)[0]
    a, b = (likelihood.sample(f, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(a, b)
    assert a.shape == (2, 3, 1)


# Classes


@classes
def test_probabilities_of_classes_sum_to_one(likelihood, n_latents, targets):
    for location, variance in itertools.product([0.1, 1.0, 1e3], [1e-12, 1.0, 1e3]):
        m, _ = moments_of(n_latents)
        p = likelihood.log_probabilities(location * m, torch.full_like(m, variance)).exp()
        assert p.shape == (2, 3, len(targets))
        np.testing.assert_allclose(p.sum(-1), 1.0, rtol=1e-9)


@classes
def test_probabilities_of_classes_are_those_of_the_labels(likelihood, n_latents, targets):
    m, v = moments_of(n_latents)
    p = likelihood.log_probabilities(m, v)
    for c in targets:
        y = torch.full((3, 1), c, dtype=torch.float64)
        actual = likelihood.log_partition(y, m, v)
        # robustmax spreads the error of its nodes over the classes
        atol = 1e-3 if isinstance(likelihood, RobustMax) else 1e-12
        torch.testing.assert_close(actual, p[..., int(c)], rtol=0, atol=atol)


@pytest.mark.parametrize("link", ["probit", "logit"])
@pytest.mark.parametrize("v", [0.9, 1.1, 5.0, 50.0, 450.0])
@pytest.mark.parametrize("m", [0.0, 0.7, -5.0, 20.0])
def test_bernoulli_with_large_variances(link, v, m):
    z, step = np.linspace(-12.0, 12.0, 40_001, retstep=True)
    f, weights = m + math.sqrt(v) * z, stats.norm.pdf(z) * step
    log_p, slope = special.log_ndtr(f), np.exp(stats.norm.logpdf(f) - special.log_ndtr(f))
    if link == "logit":
        log_p, slope = special.log_expit(f), special.expit(-f)
    leaves = tensor([[m]]).requires_grad_(), tensor([[v]]).requires_grad_()
    likelihood, y = Bernoulli(link), tensor([[1.0]])
    actual = likelihood.expected_log_prob(y, *leaves)
    np.testing.assert_allclose(actual.detach(), [weights @ log_p], rtol=1e-8, atol=2e-8)
    gradients = torch.autograd.grad(actual.sum(), leaves)
    np.testing.assert_allclose(gradients[0], [[weights @ slope]], atol=1e-7)
    by_variance = weights @ (slope * z) / (2.0 * math.sqrt(v))
    np.testing.assert_allclose(gradients[1], [[by_variance]], atol=1e-7)
    actual = likelihood.log_partition(y, *leaves)
    np.testing.assert_allclose(actual.detach(), [np.log(weights @ np.exp(log_p))], atol=2e-7)
    # and with other rows
    m_, v_ = (torch.cat([leaf.detach(), tensor([[300.0]])]) for leaf in leaves)
    for method in (likelihood.expected_log_prob, likelihood.log_partition):
        alone = method(y, *leaves).detach()
        torch.testing.assert_close(method(y, m_, v_)[:1], alone, rtol=1e-8, atol=2e-7)


def test_the_second_class_of_bernoulli_is_that_of_positive_latents():
    m, v = tensor([[2.0]]), tensor([[0.3]])
    p = Bernoulli().log_probabilities(m, v).exp()[0]
    np.testing.assert_allclose(p[1], stats.norm.cdf(2.0 / math.sqrt(1.3)), rtol=1e-12)
    p = Bernoulli("logit").log_probabilities(m, v).exp()[0]
    np.testing.assert_allclose(p[1], expectation(special.expit, 2.0, 0.3), rtol=1e-8)


@pytest.mark.parametrize("likelihood", [Softmax(), RobustMax()], ids=repr)
def test_classes_can_be_renamed(likelihood):
    # nodes are not symmetric in the latents, so softmax is so only to their error
    m, v = moments_of(4)
    p = likelihood.log_probabilities(m, v).exp()
    order = torch.tensor([2, 0, 3, 1])
    renamed = likelihood.log_probabilities(m[..., order], v[..., order]).exp()
    np.testing.assert_allclose(
        renamed, p[..., order], atol=0.03 if isinstance(likelihood, Softmax) else 1e-12
    )


@pytest.mark.parametrize(
    ("likelihood", "n_classes", "message"),
    [
        (Bernoulli(), 3, r"is for two classes, but y has 3; use 'softmax' or 'robustmax'"),
        (Bernoulli("cloglog"), 2, "link of Bernoulli must be 'probit' or 'logit'; got 'cloglog'"),
        (Softmax(n_nodes=0), 3, "n_nodes of Softmax must be at least 2; got 0"),
        (RobustMax(epsilon=0.0), 3, r"epsilon of RobustMax must lie between 0 and 1; got 0\.0"),
        (RobustMax(epsilon=1.0), 3, r"epsilon of RobustMax must lie between 0 and 1; got 1\.0"),
    ],
)
def test_what_a_classification_likelihood_refuses(likelihood, n_classes, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check_n_classes(n_classes)


def test_numbers_of_latents():
    assert Gaussian().n_latents(3) == StudentT().n_latents(3) == Poisson().n_latents(3) == 3
    assert HeteroscedasticGaussian().n_latents(3) == 6
    assert HeteroscedasticStudentT().n_latents(3) == 6
    assert Bernoulli().n_latents(2) == 1
    assert Softmax().n_latents(4) == RobustMax().n_latents(4) == 4


# Numbers in units of the target


Y = np.array([[1.0, 10.0], [2.0, 30.0], [4.0, 20.0]])
WEIGHTS = np.array([1.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("likelihood", "name", "expected"),
    [
        (Gaussian(), "variance", [0.05, 0.05]),
        (Gaussian(8.0), "variance", [2.0, 0.08]),
        (Gaussian([8.0, 1.0]), "variance", [2.0, 0.01]),
        (HeteroscedasticGaussian(), "variance", [0.05, 0.05]),
        (HeteroscedasticGaussian(8.0), "variance", [2.0, 0.08]),
        (StudentT(), "scale", [0.2, 0.2]),
        (StudentT(scale=6.0), "scale", [3.0, 0.6]),
        (StudentT(df=7.0), "df", [7.0, 7.0]),
        (HeteroscedasticStudentT(scale=6.0), "scale", [3.0, 0.6]),
        (Poisson(), "rate", [2.75, 20.0]),
        (Poisson(5.0), "rate", [5.0, 5.0]),
    ],
    ids=lambda value: repr(value),
)
def test_numbers_are_bound_to_the_outputs(likelihood, name, expected):
    scale = np.array([2.0, 10.0])
    before = repr(likelihood)
    bound = likelihood.bind(Y, WEIGHTS, scale)
    np.testing.assert_allclose(getattr(bound, name), expected)
    assert repr(likelihood) == before
    given = getattr(likelihood, name)
    if given is not None:
        expected = np.broadcast_to(given, 2)
        np.testing.assert_allclose(getattr(bound.in_units(scale), name), expected)


def test_a_rate_found_from_zeros_is_positive():
    assert Poisson().bind(np.zeros((4, 1)), np.ones(4), np.ones(1)).rate > 0.0


def test_numbers_of_another_number_of_outputs_are_refused():
    message = r"variance of Gaussian has shape \(3,\), but there are 2 outputs; give one number or one for each"
    with pytest.raises(ValueError, match=message):
        Gaussian([1.0, 2.0, 3.0]).bind(Y, WEIGHTS, np.ones(2))


def test_poisson_refuses_negative_targets():
    Poisson().check_target(np.array([[0.0], [3.0]]))
    with pytest.raises(ValueError, match="negative"):
        Poisson().check_target(np.array([[0.0], [-1.0]]))


@every
def test_likelihoods_are_parameter_objects(likelihood, n_latents, targets):
    twin = clone(likelihood)
    assert twin is not likelihood
    assert repr(twin) == repr(likelihood)


@pytest.mark.parametrize(
    ("name", "by_name", "kind"),
    [
        ("gaussian", REGRESSION, Gaussian),
        ("heteroscedastic", REGRESSION, HeteroscedasticGaussian),
        ("student_t", REGRESSION, StudentT),
        ("heteroscedastic_student_t", REGRESSION, HeteroscedasticStudentT),
        ("poisson", REGRESSION, Poisson),
        ("probit", CLASSIFICATION, Bernoulli),
        ("logit", CLASSIFICATION, Bernoulli),
        ("softmax", CLASSIFICATION, Softmax),
        ("robustmax", CLASSIFICATION, RobustMax),
    ],
)
def test_likelihoods_by_name(name, by_name, kind):
    likelihood = as_likelihood(name, by_name)
    assert type(likelihood) is kind
    if kind is Bernoulli:
        assert likelihood.link == name


def test_objects_pass_through_and_those_for_other_targets_are_refused():
    likelihood = StudentT()
    assert as_likelihood(likelihood, REGRESSION) is likelihood
    with pytest.raises(
        ValueError,
        match=r"Unknown likelihood 'probit' for this estimator; the names are .*'gaussian'",
    ):
        as_likelihood("probit", REGRESSION)
    for wrong in (Softmax(), 3.0):
        with pytest.raises(ValueError, match="is not a likelihood for this estimator"):
            as_likelihood(wrong, REGRESSION)
    with pytest.raises(ValueError, match="is not a likelihood for this estimator"):
        as_likelihood(likelihood, CLASSIFICATION)


# Powers, whatever the width of the latent Gaussian


@pytest.mark.parametrize(
    ("likelihood", "targets", "tolerance"),
    [
        (Bernoulli(), (0.0, 1.0), 0.01),
        (Bernoulli("logit"), (0.0, 1.0), 0.005),
        (StudentT(4.0, np.array([0.2])), (0.0, 3.0), 1e-6),
        (StudentT(60.0, np.array([0.2])), (0.0, 3.0), 1e-6),
    ],
    ids=repr,
)
@pytest.mark.parametrize("alpha", [1e-4, 0.05, 0.5, 0.9])
@pytest.mark.parametrize("v", [0.01, 1.0, 100.0])
def test_log_partition_of_wide_and_narrow_latents(likelihood, targets, tolerance, alpha, v):
    x = torch.linspace(-12.0, 12.0, 200_001, dtype=torch.float64)
    log_weights = torch.log_softmax(-0.5 * x.square(), 0)
    for y, m in itertools.product(targets, (-2.0, 0.5)):
        f = m + math.sqrt(v) * x[:, None, None]
        log_density = likelihood.log_prob(tensor([[y]]), f)[:, 0]
        expected = torch.logsumexp(log_weights + alpha * log_density, 0)
        actual = likelihood.log_partition(tensor([[y]]), tensor([[m]]), tensor([[v]]), alpha)
        assert abs((actual - expected).item()) < tolerance * min(1.0, 20.0 * alpha)


@pytest.mark.parametrize("spread", [1e-4, 0.01, 1.0, 100.0])
def test_robustmax_of_latents_of_different_width(spread):
    # other classes much more and much less certain than the one observed
    rng, likelihood = np.random.default_rng(0), RobustMax()
    x = np.linspace(-12.0, 12.0, 200_001)
    weights = stats.norm.pdf(x) * (x[1] - x[0])
    for _ in range(10):
        m, v = rng.standard_normal(5), spread * rng.uniform(0.05, 1.0, 5)
        v[1] = 1.0
        others = [0, 2, 3, 4]
        z = (m[1] + x[:, None] - m[others]) / np.sqrt(v[others])
        p = weights @ stats.norm.cdf(z).prod(1)
        for alpha in ALPHAS:
            expected = math.log(p * 0.999**alpha + (1 - p) * (1e-3 / 4) ** alpha)
            actual = likelihood.log_partition(tensor([[1.0]]), tensor([m]), tensor([v]), alpha)
            np.testing.assert_allclose(actual, [expected], rtol=0.0, atol=1e-6)


@pytest.mark.parametrize("v_g", [0.0, 0.05, 0.5, 1.0, 1.6, 3.0])
@pytest.mark.parametrize("df", [2.2, 6.0, 50.0, 500.0, 1e5])
def test_distribution_function_of_t_noise_of_varying_size(df, v_g):
    scale, v_f, m_g = 0.3, 0.04, -0.5
    y = np.array([-3.0, -0.6, -0.1, 0.0, 0.2, 0.9, 8.0])
    likelihood = HeteroscedasticStudentT(df=df, scale=scale)
    m, v = tensor([[0.1, m_g]]).expand(len(y), 2), tensor([[v_f, v_g]]).expand(len(y), 2)
    spread = min(1.0, math.sqrt(2.0 / df))
    log_l = spread * np.linspace(-40.0, 12.0, 4001)  # of Gamma(df / 2, df / 2)
    mixing = np.exp(0.5 * df * (log_l + 1.0 - np.exp(log_l)))
    z = np.linspace(-8.0, 8.0, 401)
    sizes, weights = np.exp(m_g + math.sqrt(v_g) * z)[:, None], np.exp(-0.5 * z**2)
    deviations = np.sqrt(v_f + scale**2 * sizes * np.exp(-log_l))
    below = special.ndtr((y[:, None, None] - 0.1) / deviations) @ (mixing / mixing.sum())
    expected = below @ (weights / weights.sum())
    found = likelihood.cdf(tensor(y)[:, None], m, v)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-5)
    assert len(likelihood.components(m, v)[0]) < 400


@pytest.mark.parametrize("trainable", [True, False])
@pytest.mark.parametrize(
    ("kind", "number"),
    [(Gaussian, {"variance": -1.0}), (Gaussian, {"variance": np.inf}), (StudentT, {"scale": 0.0})],
)
def test_numbers_that_make_no_sense_are_named_as_given(kind, number, trainable):
    """Not in units of the standardized target."""
    ((name, value),) = number.items()
    likelihood = kind(**number, trainable=trainable)
    with pytest.raises(ValueError, match=rf"{name} of .* larger than 0 and finite; got {value}\."):
        likelihood.bind(np.zeros((3, 1)), np.ones(3), np.array([0.7]))
