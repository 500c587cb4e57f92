import math
from functools import partial

import numpy as np
import pytest
import torch
from likelihood_cases import ALPHAS, moments_of, tensor
from oracles import expectation, in_standard_errors
from scipy import special, stats

from skdgp.gp.likelihoods import Bernoulli, RobustMax, Softmax


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
    draws, likelihood = torch.log_softmax(f, -1), Softmax(n_nodes=2**15)
    assert in_standard_errors(draws.exp(), likelihood.log_probabilities(m, v).exp()) < 4.5
    y = tensor([[0.0], [2.0]])
    draws = draws.gather(-1, y.long().expand(20_000, 2, 2, 1))[..., 0]
    assert in_standard_errors(draws, likelihood.expected_log_prob(y, m, v)) < 4


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
        lambda f: np.prod([stats.norm.cdf((f - m[c]) / math.sqrt(v[c])) for c in others], 0),
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
    for n_draws in (1, 2, 64):  # predictions do not depend on the names at all
        m_, v_ = (x[:1].expand(n_draws, -1, -1) for x in (m, v))
        likelihood = likelihood.for_prediction(n_draws)
        p = likelihood.log_probabilities(m_, v_)
        renamed = likelihood.log_probabilities(m_[..., order], v_[..., order])
        torch.testing.assert_close(renamed, p[..., order], rtol=0, atol=1e-11)


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


@pytest.mark.parametrize(("n_classes", "size"), [(3, 1.0), (10, 0.5), (10, 2.0), (30, 1.0)])
def test_probabilities_of_softmax_are_good_to_a_thousandth(n_classes, size, generator):
    """Case 17: from one component against draws, from many against the mean over each."""
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    m = 2.0 * normal(1, 20, n_classes) + math.sqrt(0.5 * size) * normal(64, 20, n_classes)
    v = size * (0.5 + torch.rand(64, 20, n_classes, generator=generator, dtype=torch.float64))
    likelihood = Softmax().for_prediction(64)  # by nodes for all together
    each = [likelihood.log_probabilities(*(x[[i]] for x in (m, v))).exp() for i in range(64)]
    each, together = torch.cat(each).mean(0), likelihood.log_probabilities(m, v).exp().mean(0)
    np.testing.assert_allclose(together, each, rtol=0, atol=1.5e-3)
    assert (together - each).square().mean().sqrt() < 4e-4
    flattery = -(each * (together / each).log()).sum(-1).mean()  # of the expected log-loss
    assert abs(flattery) < 1e-3
    z = normal(20_000, 3, n_classes)
    draws = 0.5 * sum(torch.softmax(m[0, :3] + s * v[0, :3].sqrt() * z, -1) for s in (1.0, -1.0))
    error = draws.std(0) / math.sqrt(len(z))
    one = Softmax().for_prediction(1).log_probabilities(m[0, :3], v[0, :3]).exp()
    assert ((one - draws.mean(0)).abs() < 4.0 * error + 3e-4).all()


def test_a_row_of_softmax_does_not_depend_on_the_others():
    for n_draws in (1, 64):
        m, v = (torch.cat([x] * (n_draws // 2 or 1))[:n_draws] for x in moments_of(10, n=300))
        m[:, 0] *= 1e4
        v[:, 1] *= 1e4
        likelihood = Softmax().for_prediction(n_draws)
        together = likelihood.log_probabilities(m, v)
        for i in (0, 1, 2, 299):
            alone = likelihood.log_probabilities(m[:, [i]], v[:, [i]])
            torch.testing.assert_close(together[:, [i]], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n_components", [1, 64])
def test_predictions_of_softmax_sum_to_one_and_may_be_as_rare_as_can_be(n_components):
    m = tensor([[[0.0, 900.0, -900.0], [2.0, 1.0, 0.0]]]).expand(n_components, 2, 3)
    p = Softmax().for_prediction(n_components).log_probabilities(m, torch.full_like(m, 0.1))
    np.testing.assert_allclose(p.exp().sum(-1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(p[..., 0, :], [[-900.05, 0.0, -1800.05]] * n_components, atol=0.06)


@pytest.mark.parametrize("scale", [6.0, 30.0, 1e3, 1e6, 1e12])
@pytest.mark.parametrize("n_components", [1, 5])
def test_probabilities_of_softmax_where_one_latent_is_the_largest(scale, n_components):
    """For large variances the class of the largest latent function is sure, and orthants have closed forms.

    Nodes of a single variable were off by up to .4 there, and by 0 / 0 from deviations of 10,000 on.
    """
    likelihood = Softmax().for_prediction(1)
    m, v = tensor([[0.3, -1.0, 0.6], [0.1, 0.0, -0.2]]), tensor([[1.0, 2.0, 0.5], [0.2, 1.5, 1.0]])
    expected = np.empty((2, 3))
    for i, c in np.ndindex(2, 3):
        others = [k for k in range(3) if k != c]
        mean, cov = (m[i, c] - m[i, others]).numpy(), np.diag(v[i, others].numpy()) + float(v[i, c])
        expected[i, c] = stats.multivariate_normal(-mean, cov).cdf(np.zeros(2))
    m, v = (moment.expand(n_components, 2, 3) for moment in (scale * m, scale**2 * v))
    rounding = 0.7 / scale  # latents closer than one share the probability
    log_p = likelihood.log_probabilities(m, v)
    np.testing.assert_allclose(log_p.exp().mean(0), expected, atol=0.004 + rounding)
    np.testing.assert_allclose(log_p.exp().sum(-1), 1.0, rtol=1e-9)
    m, v = m.clone().requires_grad_(), v.clone().requires_grad_()
    differentiable = likelihood.log_probabilities(m, v)
    torch.testing.assert_close(differentiable, log_p, rtol=1e-6, atol=1e-6)
    differentiable.sum().backward()
    assert torch.isfinite(m.grad).all() and torch.isfinite(v.grad).all()


def test_rows_with_and_without_large_variances_do_not_change_each_other():
    likelihood = Softmax().for_prediction(1)
    m, v = (
        tensor([[0.3, -1.0, 0.6]] * 3),
        tensor([[1.0, 2.0, 0.5], [1e9, 2.0, 0.5], [1e-3, 2.0, 0.5]]),
    )
    together = likelihood.log_probabilities(m[None], v[None])
    for i in range(3):
        alone = likelihood.log_probabilities(m[None, i : i + 1], v[None, i : i + 1])
        torch.testing.assert_close(alone[0, 0], together[0, i], rtol=1e-12, atol=1e-12)
