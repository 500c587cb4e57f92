import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from skdgp.gp.gaussian import GaussianBlock

M, D = 4, 3


def random_block(natural=False, shared=False, seed=0):
    rng = np.random.default_rng(seed)
    block = GaussianBlock(M, D, natural=natural, shared=shared)
    with torch.no_grad():
        block.mean.copy_(torch.as_tensor(rng.standard_normal((M, D))))
        root = np.tril(0.4 * rng.standard_normal(block.root.shape), -1) + 0.8 * np.eye(M)
        block.root.copy_(torch.as_tensor(root))
    return block


def random_gradients(seed=1):
    """Gradients as a log-concave likelihood has them: that of the covariance is negative definite."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((D, M, M))
    return torch.as_tensor(rng.standard_normal((M, D))), torch.as_tensor(-B @ B.swapaxes(1, 2))


def covariance(block):
    return (block.root @ block.root.mT).detach()


@pytest.mark.parametrize("shared", [False, True])
def test_divergence_is_that_of_torch_distributions(shared):
    block = random_block(shared=shared)
    prior = MultivariateNormal(torch.zeros(M).double(), torch.eye(M).double())
    q = MultivariateNormal(block.mean.detach().T, scale_tril=block.root.detach().expand(D, M, M))
    torch.testing.assert_close(block.kl(), kl_divergence(q, prior).sum(), rtol=1e-12, atol=0)


def test_divergence_does_not_depend_on_the_signs_of_the_root():
    block = random_block()
    kl = block.kl()
    with torch.no_grad():
        block.root[:, :, 1] *= -1.0
    torch.testing.assert_close(block.kl(), kl, rtol=1e-14, atol=0)


def test_a_new_block_of_scale_one_is_the_prior():
    block = GaussianBlock(M, D)
    assert abs(float(block.kl())) < 1e-12
    mean, excess = block.moments()
    assert torch.equal(mean, torch.zeros(M, D).double())
    assert torch.equal(excess, torch.zeros(D, M, M).double())


def test_scale_is_a_standard_deviation():
    excess = GaussianBlock(M, D, scale=0.1).moments()[1]
    torch.testing.assert_close(excess, -0.99 * torch.eye(M).double().expand(D, M, M))


@pytest.mark.parametrize("natural", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_moments_are_mean_and_covariance_beyond_the_prior(natural, training):
    block = random_block(natural)
    with torch.set_grad_enabled(training):
        mean, excess = block.moments()
    assert torch.equal(mean, block.mean)
    torch.testing.assert_close(excess + torch.eye(M), covariance(block))


def collect(block, dtype=torch.float64):
    """Gradients of an objective by way of the block, and by automatic differentiation alone."""
    rng = np.random.default_rng(3)
    a, B = (torch.as_tensor(rng.standard_normal(shape)) for shape in ((M, D), (4, M)))

    def objective(mean, excess):
        return (a * mean).sin().sum() + torch.einsum("km,dmn,kn->dk", B, excess, B).tanh().sum()

    objective(*(t.double() for t in block.moments(dtype))).backward()
    mean, root = (p.detach().double().requires_grad_() for p in (block.mean, block.root))
    all_roots = root.expand(D, M, M)
    kl = 0.5 * (mean.square().sum() + all_roots.square().sum())
    kl = kl - torch.diagonal(all_roots, dim1=1, dim2=2).log().sum()
    total = objective(mean, root @ root.mT - torch.eye(M)) + 0.3 * kl
    g_mean, g_root = torch.autograd.grad(total, (mean, root))
    return g_mean, g_root.tril()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("n_steps", [1, 3])
def test_gradients_for_the_optimizer_are_those_of_automatic_differentiation(n_steps, shared):
    block = random_block(shared=shared)
    for _ in range(n_steps):  # nothing may be left over from the steps before
        g_mean, g_root = collect(block)
        block.set_gradients(0.3)
        torch.testing.assert_close(block.mean.grad, g_mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(block.root.grad, g_root, rtol=1e-12, atol=1e-12)
        with torch.no_grad():
            block.mean -= 0.1 * block.mean.grad
            block.root -= 0.1 * block.root.grad
    assert torch.equal(block.root, block.root.tril())


def test_gradients_in_single_precision():
    block = random_block()
    block.root.data = block.root.data.float()
    g_mean, g_root = collect(block, torch.float32)
    block.set_gradients(0.3)
    assert block.root.grad.dtype == torch.float32
    torch.testing.assert_close(block.mean.grad, g_mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(block.root.grad.double(), g_root, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("of", "bad"),
    [
        ("covariance", 1e3),
        ("covariance", torch.nan),
        ("covariance", torch.inf),
        ("mean", torch.nan),
    ],
)
def test_a_step_that_would_lose_positive_definiteness_or_the_mean_changes_nothing(of, bad):
    block = random_block(natural=True)
    mean, root = block.mean.clone(), block.root.clone()
    g_mean, g_cov = random_gradients()
    if of == "mean":
        g_mean = g_mean * bad
    else:
        g_cov[1] = bad * torch.eye(M)  # one output of three is enough
    assert block.natural_step((g_mean, g_cov), 0.5) is False
    assert torch.equal(block.mean, mean)
    assert torch.equal(block.root, root)


@pytest.mark.parametrize("natural", [False, True])
def test_the_covariance_of_a_natural_block_stays_in_double_precision(natural):
    block = random_block(natural)
    assert block.moments(torch.float32)[1].dtype == (torch.float64 if natural else torch.float32)


def test_parameters_of_a_natural_block_are_not_for_the_optimizer():
    assert not any(p.requires_grad for p in GaussianBlock(M, D, natural=True).parameters())
    assert all(p.requires_grad for p in GaussianBlock(M, D).parameters())


def test_gradients_are_collected_by_the_backward_pass():
    block = random_block(natural=True)
    mean, excess = block.moments()
    weight = torch.arange(1.0, M + 1).double()
    ((weight @ mean).sum() + torch.einsum("i,dij,j->", weight, excess, weight)).backward()
    d_mean, d_cov = block.collected_gradients(scale=2.0)
    torch.testing.assert_close(d_mean, 2.0 * weight[:, None].expand(M, D))
    torch.testing.assert_close(d_cov, 2.0 * torch.outer(weight, weight).expand(D, M, M))


def test_evaluation_leaves_the_collected_gradients_alone():
    block = random_block(natural=True)
    sum(part.sum() for part in block.moments()).backward()
    with torch.no_grad():
        block.moments()
    torch.testing.assert_close(block.collected_gradients()[0], torch.ones(M, D).double())


@pytest.mark.parametrize("gamma", [0.05, 0.5, 1.0])
def test_natural_step_moves_the_natural_parameters_along_the_gradient(gamma):
    # theta = (S^-1 m, -S^-1 / 2) moves by gamma times the gradient of the bound in the expectation
    # parameters (m, S + m m^T); here by autograd, with the divergence inside
    block = random_block(natural=True)
    g_mean, g_cov = random_gradients()
    m, S = block.mean.detach().T, covariance(block)
    P = torch.linalg.inv(S)
    eta = [m.clone().requires_grad_(), (S + m[:, :, None] * m[:, None]).requires_grad_()]
    mean, cov = eta[0], eta[1] - eta[0][:, :, None] * eta[0][:, None]
    prior = MultivariateNormal(torch.zeros(M).double(), torch.eye(M).double())
    kl = kl_divergence(MultivariateNormal(mean, cov, validate_args=False), prior).sum()
    bound = (g_mean.T * mean).sum() + (g_cov * cov).sum() - kl
    d_1, d_2 = torch.autograd.grad(bound, eta)
    theta_1 = (P @ m[..., None])[..., 0] + gamma * d_1
    theta_2 = -0.5 * P + gamma * 0.5 * (d_2 + d_2.mT)
    S_new = torch.linalg.inv(-2.0 * theta_2)
    assert block.natural_step((g_mean, g_cov), gamma)
    torch.testing.assert_close(covariance(block), S_new, rtol=1e-9, atol=1e-10)
    m_new = (S_new @ theta_1[..., None])[..., 0]
    torch.testing.assert_close(block.mean.detach().T, m_new, rtol=1e-9, atol=1e-10)
    assert torch.equal(block.root, block.root.tril())


def test_only_the_symmetric_part_of_a_gradient_counts():
    g_mean, g_cov = random_gradients()
    skew = torch.as_tensor(np.random.default_rng(5).standard_normal((D, M, M)))
    a, b = random_block(natural=True), random_block(natural=True)
    a.natural_step((g_mean, g_cov), 0.5)
    b.natural_step((g_mean, g_cov + skew - skew.mT), 0.5)
    torch.testing.assert_close(covariance(a), covariance(b), rtol=1e-12, atol=1e-12)


def test_full_step_forgets_where_it_started():
    a, b = random_block(natural=True), random_block(natural=True, seed=7)
    g_mean, g_cov = random_gradients()
    target_precision = torch.eye(M).double() - 2.0 * g_cov
    # with a quadratic log-likelihood of slope h at mean 0 the gradient at m is h + 2 G m
    h = g_mean.T[..., None]
    for block in (a, b):
        slope = h + 2.0 * g_cov @ block.mean.detach().T[..., None]
        assert block.natural_step((slope[..., 0].T, g_cov), 1.0)
        torch.testing.assert_close(torch.linalg.inv(covariance(block)), target_precision)
        expected = torch.linalg.solve(target_precision, h)[..., 0]
        torch.testing.assert_close(block.mean.detach().T, expected, rtol=1e-10, atol=1e-10)


def test_a_smaller_step_along_the_same_gradient_is_accepted():
    block = random_block(natural=True)
    g_mean, g_cov = random_gradients()
    assert not block.natural_step((g_mean, -g_cov), 1.0)
    assert block.natural_step((g_mean, -g_cov), 0.001)
