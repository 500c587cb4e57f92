"""What every kernel and every likelihood of the registries keeps: a new entry is tested without a line here."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from sklearn.base import clone

from skdgp.gp.component import Trainable
from skdgp.gp.kernels import as_kernel
from skdgp.gp.kernels.base import BY_NAME, stacked
from skdgp.gp.likelihoods import CLASSIFICATION, REGRESSION, as_likelihood
from skdgp.inference.elliptical_slice.factors import gram

M, V = 0.3, 0.4  #: moments of a latent function
every_kernel = pytest.mark.parametrize("name", sorted(BY_NAME))
every_regression = pytest.mark.parametrize("name", sorted(REGRESSION))
every_class = pytest.mark.parametrize("name", sorted(CLASSIFICATION))


def rows(n, d=3, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).standard_normal((n, d)))


# Kernels


@every_kernel
def test_covariances_are_those_of_a_process(name):
    kernel, X = as_kernel(name).bind(3), rows(12)
    K = kernel(X, X)
    torch.testing.assert_close(K, K.mT, rtol=0.0, atol=1e-12)
    assert torch.linalg.eigvalsh(K).min() > -1e-9 * K.diagonal().max()
    torch.testing.assert_close(kernel.diag(X), K.diagonal())
    torch.testing.assert_close(kernel(X[:4], X[4:]), K[:4, 4:])
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(kernel(X[order], X[order]), K[order][:, order])


@every_kernel
def test_a_row_far_from_all_others_changes_none_of_their_covariances(name):
    kernel, X = as_kernel(name).bind(3), rows(8)
    expected = kernel(X, X)
    for far in (1e8, 1e20):
        Z = torch.cat([X, X[:1] + torch.tensor([0.0, 0.0, far])])
        with torch.no_grad():
            torch.testing.assert_close(kernel(Z, Z)[:8, :8], expected, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(kernel(X, Z)[:, :8], expected, rtol=1e-9, atol=1e-12)
            both = stacked([Trainable(kernel).frozen()]).between(Z[None], Z[None])[0]
            torch.testing.assert_close(both[:8, :8], expected, rtol=1e-9, atol=1e-12)


@every_kernel
def test_gradients_are_slopes(name):
    kernel, X = as_kernel(name).bind(2), rows(5, 2).requires_grad_()
    trained = Trainable(kernel)
    weights = rows(5, 4, seed=1)

    def value(X):
        return (trained()(X, rows(4, 2, seed=2)) * weights).sum()

    names, parameters = zip(*trained.named_parameters())
    slopes = torch.autograd.grad(value(X), [X, *parameters])
    step = 1e-6
    with torch.no_grad():
        for i, j in [(0, 0), (3, 1)]:
            moved = torch.zeros_like(X)
            moved[i, j] = step
            expected = (value(X + moved) - value(X - moved)) / (2.0 * step)
            torch.testing.assert_close(slopes[0][i, j], expected, rtol=1e-5, atol=1e-7)
        for of, parameter, slope in zip(names, parameters, slopes[1:]):
            before = parameter.clone()
            parameter.copy_(before + step)
            up = value(X)
            parameter.copy_(before - step)
            expected = (up - value(X)) / (2.0 * step)
            parameter.copy_(before)
            torch.testing.assert_close(slope.sum(), expected, rtol=1e-5, atol=1e-7, msg=of)


@every_kernel
def test_features_estimate_covariances(name):
    kernel, X = as_kernel(name).bind(2), rows(4, 2)
    generator = torch.Generator().manual_seed(0)
    phi = kernel.features((2000, 8), 2, generator, X)(X.expand(2000, *X.shape))
    found = torch.einsum("fprc,fqrc->fpq", phi, phi) / 8
    error = (found.std(0) / 2000**0.5).clamp_min(1e-9)
    assert ((found.mean(0) - kernel(X, X)) / error).abs().max() < 5.0


@every_kernel
def test_kernels_are_parameter_objects(name):
    kernel = as_kernel(name)
    again = clone(kernel)
    assert repr(again) == repr(kernel) and again.get_params().keys() == kernel.get_params().keys()
    first = kernel.bind(3)
    torch.testing.assert_close(again.bind(3)(rows(4), rows(4)), first(rows(4), rows(4)))


def moved(kernel, seed):
    """The kernel with other hyperparameters."""
    trained, rng = Trainable(kernel), np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter += 0.3 * torch.as_tensor(rng.standard_normal(parameter.shape))
    return trained.frozen()


@every_kernel
@pytest.mark.parametrize("shape", [(1, 6, 2), (2, 6, 2), (4, 1, 6, 2), (4, 2, 6, 2)])
def test_states_have_hyperparameters_of_their_own(name, shape):
    kernels = [moved(as_kernel(name).bind(2), seed) for seed in (0, 1)]
    X = torch.as_tensor(np.random.default_rng(2).standard_normal(shape))
    both = stacked(kernels)
    with torch.no_grad():
        K = gram(both, X)
        for one in both.get_params(deep=False):  # hyperparameters that are not sampled
            if one in both._positive and np.ndim(getattr(kernels[0], one)) == 0:
                same = both.with_values(**{one: torch.tensor(getattr(kernels[0], one)).double()})
                alone = X[..., :1, :, :] if shape[-3] == 1 else X[..., :1, :, :].expand(shape)
                torch.testing.assert_close(
                    gram(same, alone)[..., 0, :, :], gram(both, alone)[..., 0, :, :]
                )
        for s, kernel in enumerate(kernels):
            alone = X[..., min(s, shape[-3] - 1), :, :].reshape(-1, 6, 2)
            expected = torch.stack([kernel(rows, rows) for rows in alone])
            torch.testing.assert_close(K[..., s, :, :].reshape(-1, 6, 6), expected)


# Likelihoods


def bound(name, by_name, y):
    likelihood = as_likelihood(name, by_name)
    if likelihood.is_class:
        likelihood = likelihood.for_labels(np.unique(y))
    return likelihood.bind(y, np.ones(len(y)), np.ones(y.shape[1]))


def number(name):
    """A likelihood of one output, and moments (1, n_latents) of its latent functions."""
    y = np.random.default_rng(0).poisson(3.0, (50, 1)).astype(float)
    likelihood = bound(name, REGRESSION, y)
    n = likelihood.n_latents(1)
    return likelihood, torch.full((1, n), M).double(), torch.full((1, n), V).double()


@every_regression
def test_densities_integrate_to_one_and_to_the_distribution_function(name):
    likelihood, m, v = number(name)

    def density(y):
        return likelihood.log_partition(torch.tensor([[y]]).double(), m, v).exp().item()

    def cdf(y):
        return likelihood.cdf(torch.tensor([[y]]).double(), m, v).item()

    if likelihood.discrete:
        masses = np.array([density(float(i)) for i in range(400)])
        assert masses.sum() == pytest.approx(1.0, abs=1e-4)
        assert cdf(4.0) == pytest.approx(masses[:5].sum(), abs=1e-6)
    else:
        at = 0.7
        below = quad(density, -60.0, M, limit=200)[0]
        between, above = quad(density, M, at)[0], quad(density, at, 60.0, limit=200)[0]
        assert below + between + above == pytest.approx(1.0, abs=2e-3)  # tails of t distributions
        assert cdf(at) == pytest.approx(below + between, abs=2e-3)
        assert between == pytest.approx(cdf(at) - cdf(M), abs=1e-5)


@every_regression
def test_moments_are_those_of_draws(name):
    likelihood, m, v = number(name)
    mean, second = (part.item() for part in likelihood.moments(m, v))
    generator = torch.Generator().manual_seed(0)
    n = 200_000
    f = m + v.sqrt() * torch.randn((n, *m.shape), generator=generator, dtype=torch.float64)
    y = likelihood.sample(f, generator).numpy().ravel()
    assert abs(y.mean() - mean) < 5.0 * y.std() / np.sqrt(n)
    assert np.isfinite(second) and second > 0.0


@every_regression
def test_the_expected_log_density_bounds_that_of_the_mean(name):
    likelihood, m, v = number(name)
    z = torch.linspace(-8.0, 8.0, 241, dtype=torch.float64)
    n, w = m.shape[1], torch.softmax(-0.5 * z.square(), 0)
    f = m + v.sqrt() * torch.cartesian_prod(*[z] * n).reshape(-1, 1, n)
    weights = torch.cartesian_prod(*[w] * n).reshape(len(f), n).prod(1)
    for y in (1.0, 2.0):
        y = torch.tensor([[y]]).double()
        log_p = likelihood.log_prob(y.expand(len(f), 1, 1), f).ravel()
        expected = likelihood.expected_log_prob(y, m, v).item()
        at_most = (weights * log_p).sum().item()
        assert expected <= at_most + 1e-6 * abs(at_most)  # some likelihoods have a lower bound
        assert likelihood.log_partition(y, m, v).item() == pytest.approx(
            (weights * log_p.exp()).sum().log().item(), rel=3e-3
        )


@every_class
def test_probabilities_of_classes(name):
    K = 2 if name in ("probit", "logit") else 3
    y = np.arange(60.0)[:, None] % K
    likelihood = bound(name, CLASSIFICATION, y)
    likelihood.check_n_classes(K)
    n = likelihood.n_latents(K)
    m, v = rows(4, n), 0.1 + rows(4, n, seed=1).square()
    log_p = likelihood.log_probabilities(m, v)
    assert log_p.shape == (4, K)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(4).double(), rtol=0.0, atol=1e-6)
    generator = torch.Generator().manual_seed(0)
    f = m + v.sqrt() * torch.randn((40_000, 4, n), generator=generator, dtype=torch.float64)
    drawn = likelihood.sample(f, generator).reshape(40_000, 4)
    for k in range(K):
        share, p = (drawn == k).double().mean(0), log_p[:, k].exp()
        assert ((share - p).abs() < 5.0 * (p * (1.0 - p) / 40_000).sqrt() + 1e-4).all()


@pytest.mark.parametrize(
    ("name", "by_name"),
    [(name, by_name) for by_name in (REGRESSION, CLASSIFICATION) for name in sorted(by_name)],
)
def test_likelihoods_are_parameter_objects(name, by_name):
    likelihood = as_likelihood(name, by_name)
    again = clone(likelihood)
    assert repr(again) == repr(likelihood)
    assert again.get_params().keys() == likelihood.get_params().keys()
