import math
from functools import partial

import numpy as np
import pytest
import torch
from likelihood_cases import ALPHAS, moments_of, tensor
from oracles import expectation
from scipy import special, stats
from scipy.integrate import quad, trapezoid

from skdgp.gp.likelihoods import (
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    StudentT,
)


@pytest.mark.parametrize("y", [-0.7, 2.0])
def test_heteroscedastic_integrals(y):
    likelihood = HeteroscedasticGaussian(0.2)
    (m_f, m_g), (v_f, v_g) = m, v = (0.4, -0.3), (0.3, 0.5)
    y_, m_, v_ = tensor([[y]]), tensor([m]), tensor([v])
    actual = likelihood.log_prob(y_, m_)
    np.testing.assert_allclose(actual, [stats.norm.logpdf(y, m_f, math.sqrt(0.2 * math.exp(m_g)))])

    def noise(g):
        return 0.2 * np.exp(g)

    expected = expectation(
        lambda g: -0.5 * (np.log(2 * math.pi * noise(g)) + ((y - m_f) ** 2 + v_f) / noise(g)),
        m_g,
        v_g,
    )
    np.testing.assert_allclose(likelihood.expected_log_prob(y_, m_, v_), [expected], rtol=1e-9)
    expected = expectation(lambda g: stats.norm.pdf(y, m_f, np.sqrt(v_f + noise(g))), m_g, v_g)
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
    x = np.linspace(-9.0, 9.0, 501)
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


@pytest.mark.parametrize("v_g", [0.0, 0.05, 0.5, 1.0, 1.6, 3.0])
@pytest.mark.parametrize("df", [2.2, 6.0, 50.0, 500.0, 1e5])
def test_distribution_function_of_t_noise_of_varying_size(df, v_g):
    scale, v_f, m_g = 0.3, 0.04, -0.5
    y = np.array([-3.0, -0.6, -0.1, 0.0, 0.2, 0.9, 8.0])
    likelihood = HeteroscedasticStudentT(df=df, scale=scale)
    m, v = tensor([[0.1, m_g]]).expand(len(y), 2), tensor([[v_f, v_g]]).expand(len(y), 2)
    spread = min(1.0, math.sqrt(2.0 / df))
    log_l = spread * np.linspace(-40.0, 12.0, 1301)  # of Gamma(df / 2, df / 2)
    mixing = np.exp(0.5 * df * (log_l + 1.0 - np.exp(log_l)))
    z = np.linspace(-8.0, 8.0, 161)
    sizes, weights = np.exp(m_g + math.sqrt(v_g) * z)[:, None], np.exp(-0.5 * z**2)
    deviations = np.sqrt(v_f + scale**2 * sizes * np.exp(-log_l))
    below = special.ndtr((y[:, None, None] - 0.1) / deviations) @ (mixing / mixing.sum())
    expected = below @ (weights / weights.sum())
    found = likelihood.cdf(tensor(y)[:, None], m, v)[:, 0]
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-5)
    assert len(likelihood.components(m, v)[0]) < 400


def test_heteroscedastic_student_t_of_a_row_does_not_depend_on_the_others():
    likelihood = HeteroscedasticStudentT(np.array([4.0, 9.0]), np.array([0.5, 0.2]))
    m, v = moments_of(4, n=5)
    v[0, :, 2:] *= tensor([[1.0], [1e-6], [20.0], [400.0], [3.0]])
    y = tensor([[-0.7, 2.0]]).expand(5, 2)
    alone = [likelihood.cdf(y[[i]], m[:, [i]], v[:, [i]]) for i in range(5)]
    torch.testing.assert_close(likelihood.cdf(y, m, v), torch.cat(alone, 1), rtol=0, atol=1e-12)
    assert likelihood.cdf(y[:0], m[:, :0], v[:, :0]).shape == (2, 0, 2)


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


@pytest.mark.parametrize(
    ("t", "gaussian", "error"),
    [
        (StudentT(1e7, 0.5), Gaussian(0.25), 1e-5),
        (HeteroscedasticStudentT(1e7, 0.5), HeteroscedasticGaussian(0.25), 1e-4),
    ],
)
def test_student_t_with_many_degrees_of_freedom_is_gaussian(t, gaussian, error):
    y, (m, v) = tensor([[0.3], [-1.0], [2.0]]), moments_of(t.n_latents(1))
    for method in ("expected_log_prob", "log_partition"):
        actual, expected = (getattr(likelihood, method)(y, m, v) for likelihood in (t, gaussian))
        torch.testing.assert_close(actual, expected, rtol=error, atol=error)


@pytest.mark.parametrize(
    ("likelihood", "f", "scale"),
    [
        (StudentT(2.5, 0.3), [0.7], 0.3),
        (StudentT(4.0, 0.5), [0.7], 0.5),
        (StudentT(50.0, 2.0), [0.7], 2.0),
        (HeteroscedasticStudentT(4.0, 0.5), [0.7, -0.4], 0.5 * math.exp(-0.2)),
    ],
)
def test_draws_of_student_t(likelihood, f, scale, generator):
    y = likelihood.sample(tensor([f]).expand(20_000, -1), generator)
    assert stats.kstest(y[:, 0], stats.t(likelihood.df, 0.7, scale).cdf).pvalue > 1e-3


def log_t_beside_gaussian(error, df, scales, v):
    """The density of t noise of some scales beside a Gaussian, by panels about both and between, (scales,)."""
    sd, size = math.sqrt(v), np.geomspace(1e-2, 1e14, 65)
    low, high = scales.min() * size, scales.max() * size
    cuts = [sd * np.linspace(-12.0, 12.0, 49)]
    cuts += [error + side * part for side in (-1.0, 1.0) for part in (low, high)]
    cuts = np.unique(np.clip(np.concatenate([*cuts, [error]]), -60.0 * sd, 60.0 * sd))
    x, weights = np.polynomial.legendre.leggauss(12)
    half = 0.5 * np.diff(cuts)[:, None]
    f, weights = (cuts[:-1, None] + half * (1.0 + x)).ravel(), (half * weights).ravel()
    # Student's t by its value at zero: scipy's density of so many values takes minutes
    log_t = -0.5 * (df + 1.0) * np.log1p(np.square((error - f) / scales[:, None]) / df)
    log_p = stats.norm.logpdf(f, 0.0, sd) + log_t + stats.t.logpdf(0.0, df)
    return special.logsumexp(log_p, b=weights, axis=1) - np.log(scales)


@pytest.mark.parametrize("df", [2.1, 6.0, 50.0, 1000.0])
@pytest.mark.parametrize("v", [1e-6, 0.5, 10.0, 1e4])
def test_densities_of_student_t_near_and_far(df, v):
    """Case 16: the function's variance far above that of the noise, where a density has two modes."""
    levels = np.array([0.0, 1.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 50.0, 1e3, 1e5, 1e8])
    errors, scale = levels * math.sqrt(v + 0.01), 0.1
    expected = [log_t_beside_gaussian(e, df, np.array([scale]), v)[0] for e in errors]
    y = torch.tensor(errors)[:, None]
    m, v_ = torch.zeros_like(y), torch.full_like(y, v)
    plain = StudentT(df, scale).log_partition(y, m, v_)
    np.testing.assert_allclose(plain, expected, rtol=1e-12, atol=1e-6)
    alone = [
        StudentT(df, scale).log_partition(*(x[[i]] for x in (y, m, v_))) for i in range(len(y))
    ]
    torch.testing.assert_close(plain, torch.cat(alone), rtol=1e-13, atol=1e-12)
    certain = torch.cat([v_, torch.zeros_like(v_)], -1)
    actual = HeteroscedasticStudentT(df, scale).log_partition(y, m.expand(-1, 2), certain)
    torch.testing.assert_close(actual, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("df", "v_g"),
    [(2.1, 1e-3), (2.1, 2.0), (2.1, 6.0), (6.0, 0.3), (6.0, 6.0), (50.0, 1e-3), (50.0, 2.0)],
)
def test_densities_of_heteroscedastic_student_t_near_and_far(df, v_g):
    likelihood, scale = HeteroscedasticStudentT(df, 0.1), 0.1
    tilt, sd = 0.5 * df * math.sqrt(v_g), math.sqrt(v_g)
    z = np.linspace(-10.0 - sd, 10.0 + tilt, int(20 + (20 + tilt) * (4 + 3 * sd)))
    rows = [(level, v) for v in (1e-6, 0.1, 10.0) for level in (0.0, 1.0, 4.0, 8.0, 50.0, 1e4, 1e8)]
    expected = []
    for level, v in rows:
        log_p = log_t_beside_gaussian(
            level * math.sqrt(v + 0.01), df, scale * np.exp(0.5 * sd * z), v
        )
        expected.append(special.logsumexp(log_p + stats.norm.logpdf(z)) + math.log(z[1] - z[0]))
    levels, v = (tensor(part)[:, None] for part in zip(*rows))
    y, v = levels * (v + 0.01).sqrt(), torch.cat([v, torch.full_like(v, v_g)], -1)
    m = torch.zeros_like(v)
    actual = likelihood.log_partition(y, m, v)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6 if v_g < 5.0 else 1e-4)
    alone = [likelihood.log_partition(y[[i]], m[[i]], v[[i]]) for i in range(len(y))]
    torch.testing.assert_close(actual, torch.cat(alone), rtol=1e-13, atol=1e-12)


def test_t_densities_of_noise_whose_size_is_known_to_a_factor_of_thousands():
    z, step = np.linspace(-12.0, 12.0, 4001, retstep=True)
    for v_g, error in ((16.0, 1e-4), (36.0, 1e-3), (100.0, 0.1)):
        for y in (0.01, 1.0, 100.0):
            scales = 0.3 * np.exp(0.5 * math.sqrt(v_g) * z)
            log_p = stats.t.logpdf(y / scales, 6.0) - np.log(scales) + stats.norm.logpdf(z)
            actual = HeteroscedasticStudentT(6.0, 0.3).log_partition(
                tensor([[y]]), tensor([[0.0, 0.0]]), tensor([[1e-14, v_g]])
            )
            expected = special.logsumexp(log_p) + math.log(step)
            np.testing.assert_allclose(actual, [expected], rtol=0, atol=error)
