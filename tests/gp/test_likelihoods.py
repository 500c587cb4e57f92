import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from likelihood_cases import ALPHAS, MOMENTS, moments_of, tensor
from oracles import expectation, gradcheck
from scipy import stats
from sklearn.base import clone

from skdgp.gp.component import Trainable
from skdgp.gp.likelihoods import (
    CLASSIFICATION,
    REGRESSION,
    Bernoulli,
    ClassLikelihood,
    Gaussian,
    HeteroscedasticGaussian,
    HeteroscedasticStudentT,
    Likelihood,
    NegativeBinomial,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
    as_likelihood,
)

RATE = 1.3 * math.exp(0.7)
COUNTS = stats.nbinom(1.0 / 0.6, 1.0 / (1.0 + 0.6 * RATE))  # given a latent value of 0.7
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
    "negative_binomial": (
        NegativeBinomial(1.3, 0.6),
        lambda y, f: stats.nbinom.logpmf(y, 1.0 / 0.6, 1.0 / (1.0 + 0.6 * 1.3 * np.exp(f))),
        [0, 1, 5],
        (1e-10, 1e-8),
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


EVERY = {
    "gaussian": (Gaussian(0.2), 1, [-0.7, 2.0]),
    "heteroscedastic": (HeteroscedasticGaussian(0.2), 2, [-0.7, 2.0]),
    "student_t": (StudentT(4.0, 0.5), 1, [-0.7, 2.0]),
    "heteroscedastic_student_t": (HeteroscedasticStudentT(4.0, 0.5), 2, [-0.7, 2.0]),
    "poisson": (Poisson(1.3), 1, [0.0, 3.0]),
    "negative_binomial": (NegativeBinomial(1.3, 0.6), 1, [0.0, 3.0]),
    "probit": (Bernoulli(), 1, [0.0, 1.0]),
    "logit": (Bernoulli("logit"), 1, [0.0, 1.0]),
    "softmax": (Softmax(), 3, [0.0, 1.0, 2.0]),
    "robustmax": (RobustMax(), 3, [0.0, 1.0, 2.0]),
}


every = pytest.mark.parametrize(("likelihood", "n_latents", "targets"), EVERY.values(), ids=EVERY)


def some(*names):
    return pytest.mark.parametrize(
        ("likelihood", "n_latents", "targets"), [EVERY[name] for name in names], ids=names
    )


continuous = some("gaussian", "heteroscedastic", "student_t", "heteroscedastic_student_t")


classes = some("probit", "logit", "softmax", "robustmax")


@one_latent
def test_log_density(likelihood, log_density, targets, errors):
    for y, f in itertools.product(targets, [-1.5, 0.0, 0.8]):
        actual = likelihood.log_prob(tensor([[y]]), tensor([[f]]))
        np.testing.assert_allclose(actual, [log_density(y, f)], rtol=1e-12)


@one_latent
def test_expected_log_density(likelihood, log_density, targets, errors):
    for y, (m, v) in itertools.product(targets, MOMENTS):
        actual = likelihood.expected_log_prob(tensor([[y]]), tensor([[m]]), tensor([[v]]))
        expected = expectation(partial(log_density, y), m, v)
        np.testing.assert_allclose(actual, [expected], rtol=1e-12, atol=errors[0])


@one_latent
def test_log_partition(likelihood, log_density, targets, errors):
    for y, (m, v), alpha in itertools.product(targets, MOMENTS, ALPHAS):
        actual = likelihood.log_partition(tensor([[y]]), tensor([[m]]), tensor([[v]]), alpha)
        expected = expectation(lambda f, y=y, alpha=alpha: np.exp(alpha * log_density(y, f)), m, v)
        np.testing.assert_allclose(actual, [math.log(expected)], rtol=1e-12, atol=errors[1])


@pytest.mark.parametrize("name", ["gaussian", "student_t", "poisson", "negative_binomial"])
@pytest.mark.parametrize(("m", "v"), MOMENTS)
def test_variance_of_the_mean_and_of_the_noise_are_all(name, m, v):
    """The law of total variance, by quadrature over f."""
    likelihood = ONE_LATENT[name][0]

    def given(f, i):
        f = torch.as_tensor(np.atleast_1d(f))[:, None]
        return likelihood.moments(f, torch.zeros_like(f))[i][:, 0].numpy()

    mean = expectation(partial(given, i=0), m, v)
    expected = expectation(lambda f: (given(f, 0) - mean) ** 2, m, v)
    m_, v_ = tensor([[m]]), tensor([[v]])
    actual = likelihood.variance_of_mean(m_, v_)
    np.testing.assert_allclose(actual, [[expected]], rtol=1e-8)
    noise = expectation(partial(given, i=1), m, v)
    np.testing.assert_allclose(likelihood.moments(m_, v_)[1], [[expected + noise]], rtol=1e-8)
    by_nodes = Likelihood.variance_of_mean(likelihood, m_, v_)
    np.testing.assert_allclose(by_nodes, actual, rtol=1e-8)


@every
def test_the_conditional_mean_is_that_of_a_known_function(likelihood, n_latents, targets):
    f = moments_of(n_latents)[0]
    if likelihood.is_class:
        expected = likelihood.log_probabilities(f, torch.zeros_like(f)).exp()
    else:
        expected = likelihood.moments(f, torch.zeros_like(f))[0]
    np.testing.assert_allclose(likelihood.conditional_mean(f), expected, atol=1e-5)


@one_latent
def test_log_partition_has_the_expected_log_density_as_its_slope_at_zero(
    likelihood, log_density, targets, errors
):
    y, m, v = tensor([[targets[1]]]), tensor([[0.4]]), tensor([[0.3]])
    slope = likelihood.log_partition(y, m, v, alpha=1e-6) / 1e-6
    np.testing.assert_allclose(slope, likelihood.expected_log_prob(y, m, v), rtol=1e-4)


@every
def test_shapes_and_rows(likelihood, n_latents, targets):
    y, (m, v) = tensor(targets[:2])[:, None], moments_of(n_latents, n=2)
    for method in ("expected_log_prob", "log_partition"):
        both = getattr(likelihood, method)(y, m, v)
        assert both.shape == (2, 2)
        one = getattr(likelihood, method)(y[1:], m[1, 1:], v[1, 1:])
        torch.testing.assert_close(one, both[1, 1:], rtol=1e-12, atol=1e-12)
    assert likelihood.log_prob(y, m).shape == (2, 2)


@every
def test_what_a_likelihood_declares(likelihood, n_latents, targets):
    m, v = moments_of(n_latents)
    assert likelihood.is_class == isinstance(likelihood, ClassLikelihood)
    mixture = not (likelihood.is_class or likelihood.discrete)
    assert (likelihood.components(m, v) is not None) == mixture
    if likelihood.is_class:
        assert likelihood.log_probabilities(m, v).shape == (2, 3, len(targets))
    else:
        mean, var = likelihood.moments(m, v)
        assert mean.shape == var.shape == likelihood.cdf(mean, m, v).shape == (2, 3, 1)


@pytest.mark.parametrize(
    ("make", "name"),
    [(Gaussian, "variance"), (StudentT, "scale"), (Poisson, "rate"),
     (partial(NegativeBinomial, overdispersion=0.4), "rate"),
     (partial(NegativeBinomial, rate=2.0), "overdispersion"),
     (HeteroscedasticGaussian, "variance"), (partial(HeteroscedasticStudentT, 4.0), "scale")],
)  # fmt: skip
def test_outputs_are_summed_with_numbers_of_their_own(make, name):
    """Of two outputs with latents for scales, these stand after those for means."""
    both = make(**{name: np.array([0.3, 0.8])})
    y, (m, v) = tensor([[1.0, 2.0], [0.0, 3.0], [4.0, 1.0]]), moments_of(both.n_latents(2))
    for method in ("expected_log_prob", "log_partition"):
        parts = [
            getattr(make(**{name: s}), method)(y[:, [i]], m[..., i::2], v[..., i::2])
            for i, s in enumerate([0.3, 0.8])
        ]
        torch.testing.assert_close(getattr(both, method)(y, m, v), sum(parts))


IN_EXPONENT = {"heteroscedastic", "heteroscedastic_student_t", "poisson", "negative_binomial"}


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
    y, (m, v) = tensor(targets[:2])[:, None], moments_of(n_latents, n=2)

    def integrals(m, v):
        given = trainable()
        return given.expected_log_prob(y, m, v), given.log_partition(y, m, v)

    gradcheck(trainable, integrals, m, v)


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
        if not likelihood.is_class:
            out["cdf"] = likelihood.cdf(y, m, v)
    if likelihood.is_class:
        out["log_probabilities"] = likelihood.log_probabilities(m, v)
        out["predicted"] = likelihood.for_prediction(1).log_probabilities(m, v)
        many = (moment[None].expand(64, -1, -1) for moment in (m, v))
        out["predicted by many"] = likelihood.for_prediction(64).log_probabilities(*many)
    else:
        out["moments"] = torch.stack(likelihood.moments(m, v))
    return out


@pytest.mark.parametrize("name", EVERY)
def test_extreme_latents_give_finite_numbers(name):
    """Those in an exponent may reach 100."""
    likelihood, n_latents, targets = EVERY[name]
    if name in IN_EXPONENT:
        locations, variances = [0.0, 100.0, -100.0], [1e-12, 1.0, 100.0]
    else:
        locations, variances = [0.0, 1e2, -1e2, 1e6, -1e6], [1e-12, 1.0, 1e3, 1e6]
    for location, variance in itertools.product(locations, variances):
        m = location * tensor([[1.0, 0.5, -1.0]])[:, :n_latents]
        if name in IN_EXPONENT:
            m = torch.full_like(m, location)
        out = extremes(likelihood, n_latents, targets, m, torch.full_like(m, variance))
        for method, values in out.items():
            assert torch.isfinite(values).all(), (method, location, variance)


def one_row(likelihood, n_latents):
    """Latent moments of one row, mean and variance of its target, and log densities of any targets."""
    m, v = (moment[0] for moment in moments_of(n_latents, n=1))
    mean, var = (moment[0] for moment in likelihood.moments(m, v))
    return (
        m,
        v,
        mean,
        var,
        lambda y: likelihood.log_partition(y, m.expand(len(y), -1), v.expand(len(y), -1)),
    )


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
        ("negative_binomial", 1e3, 1.0),
        ("negative_binomial", -1e3, 1e3),
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


@continuous
def test_densities_integrate_to_one_and_to_the_distribution_function(
    likelihood, n_latents, targets
):
    m, v, mean, var, log_density = one_row(likelihood, n_latents)
    y = torch.linspace(-40.0, 40.0, 20_001, dtype=torch.float64)[:, None] * var.sqrt() + mean
    step = float(y[1, 0] - y[0, 0])
    cumulative = torch.cumulative_trapezoid(log_density(y).exp(), dx=step)
    cdf = likelihood.cdf(y, m, v)[:, 0]
    np.testing.assert_allclose(cdf[1:] - cdf[0], cumulative, atol=1e-5)
    assert (cdf.diff() >= 0.0).all()
    # beyond 40 standard deviations a t density of 4 degrees of freedom still has a mass of 1e-6
    assert cdf[0] < 1e-6
    assert cdf[-1] > 1.0 - 1e-6


@continuous
def test_moments_are_those_of_the_density(likelihood, n_latents, targets):
    *_, mean, var, log_density = one_row(likelihood, n_latents)
    # equal steps, far into tails
    t = torch.linspace(-17.0, 17.0, 4001, dtype=torch.float64)[:, None]
    y = mean + var.sqrt() * t.sinh()
    shares = log_density(y).exp() * (var.sqrt() * t.cosh() * 34.0 / 4000.0)[:, 0]
    for power, expected in ((0, 1.0), (1, mean), (2, var + mean**2)):
        np.testing.assert_allclose(shares @ y[:, 0] ** power, float(expected), rtol=1e-5)


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
        # and other ones, for t noise
        by_kind = {HeteroscedasticStudentT: 2e-4, StudentT: 2e-8}
        rtol = by_kind.get(type(likelihood), 1e-9)
        np.testing.assert_allclose(likelihood.log_partition(y, m, v), expected, rtol=rtol)
    mean, var = likelihood.moments(m, v)
    torch.testing.assert_close((weights * means).sum(0), mean)
    mixed = (weights * (variances + means.square())).sum(0) - mean.square()
    # the rule for the t density is cut off where weights fall below 1e-20: 1e-6 of its variance
    torch.testing.assert_close(mixed, var, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("name", "f", "mean", "var", "kurtosis"),
    [
        ("gaussian", [0.7], 0.7, 0.2, 3.0),
        ("heteroscedastic", [0.7, -0.4], 0.7, 0.2 * math.exp(-0.4), 3.0),
        ("poisson", [0.7], RATE, RATE, 3.0 + 1.0 / RATE),
        ("negative_binomial", [0.7], *COUNTS.stats("mv"), 3.0 + COUNTS.stats("k")),
    ],
)
def test_draws_have_the_moments_of_the_density(name, f, mean, var, kurtosis, generator):
    likelihood, n = EVERY[name][0], 20_000
    y = likelihood.sample(tensor([f]).expand(n, -1), generator)
    assert y.shape == (n, 1)
    assert abs(y.mean() - mean) < 4 * math.sqrt(var / n)
    assert abs(y.var() - var) < 4 * var * math.sqrt((kurtosis - 1) / n)


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


def test_numbers_of_latents():
    assert Gaussian().n_latents(3) == StudentT().n_latents(3) == Poisson().n_latents(3) == 3
    assert HeteroscedasticGaussian().n_latents(3) == 6
    assert HeteroscedasticStudentT().n_latents(3) == 6
    assert Bernoulli().n_latents(2) == 1
    assert Softmax().n_latents(4) == RobustMax().n_latents(4) == 4


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
        (NegativeBinomial(), "rate", [2.75, 20.0]),
        (NegativeBinomial(), "overdispersion", [0.05, 0.05]),
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


@pytest.mark.parametrize("kind", [Poisson, NegativeBinomial])
def test_a_rate_found_from_zeros_is_positive(kind):
    assert kind().bind(np.zeros((4, 1)), np.ones(4), np.ones(1)).rate > 0.0


def test_numbers_of_another_number_of_outputs_are_refused():
    message = r"variance of Gaussian has shape \(3,\), but there are 2 outputs; give one number or one for each"
    with pytest.raises(ValueError, match=message):
        Gaussian([1.0, 2.0, 3.0]).bind(Y, WEIGHTS, np.ones(2))


@pytest.mark.parametrize("kind", [Poisson, NegativeBinomial])
def test_counts_are_not_negative(kind):
    kind().check_target(np.array([[0.0], [3.0]]))
    with pytest.raises(
        ValueError, match=f"negative, but the {kind.__name__} likelihood is for counts"
    ):
        kind().check_target(np.array([[0.0], [-1.0]]))


@every
def test_likelihoods_are_parameter_objects(likelihood, n_latents, targets):
    twin = clone(likelihood)
    assert twin is not likelihood
    assert repr(twin) == repr(likelihood)


@pytest.mark.parametrize("name", EVERY)
def test_likelihoods_by_name(name):
    expected = EVERY[name][0]
    likelihood = as_likelihood(name, CLASSIFICATION if expected.is_class else REGRESSION)
    assert type(likelihood) is type(expected)
    if isinstance(expected, Bernoulli):
        assert likelihood.link == name


def test_objects_pass_through_and_those_for_other_targets_are_refused():
    likelihood = StudentT()
    assert as_likelihood(likelihood, REGRESSION) is likelihood
    unknown = r"Unknown likelihood 'probit' for this estimator; the names are .*'gaussian'"
    with pytest.raises(ValueError, match=unknown):
        as_likelihood("probit", REGRESSION)
    for wrong, names in ((Softmax(), REGRESSION), (3.0, REGRESSION), (likelihood, CLASSIFICATION)):
        with pytest.raises(ValueError, match="is not a likelihood for this estimator"):
            as_likelihood(wrong, names)


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
