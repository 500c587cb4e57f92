"""Distributions and bounds against closed forms, limits and brute force."""

import math

import numpy as np
import pytest
import torch
import wishart_formulas as wf
from oracles import condition, in_standard_errors
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from toys import architecture, everything, latents, posterior, seeded, toy

from skdgp.datasets import make_deep_kernel_process
from skdgp.gp.kernels import ArcCosine, Matern
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import NNGP, DeepInverseWishart, GlobalInducing
from skdgp.inference.base import Architecture
from skdgp.inference.deep_kernel_process import wishart as w
from skdgp.inference.deep_kernel_process.process import Level, Product, _Inducing, _Rows, factorize
from skdgp.inference.deep_kernel_process.sites import Whitened, _Marginals

NOISE = 0.1


def build(scheme, X, y, n_inducing=4, n_layers=3, kernel="squared_exponential", seed=0, width=2):
    """A model whose parameters have no special values."""
    shape = (width,) * (n_layers - 1), y.shape[1], n_inducing, kernel
    shape = architecture(*shape, n_features=X.shape[1], linear_mean=False)
    model = scheme.build(shape, Gaussian(np.full(y.shape[1], NOISE)))
    rng = np.random.default_rng(seed)
    if not isinstance(scheme, NNGP) or not scheme.exact:
        with torch.no_grad():
            model.Z.copy_(X[:n_inducing])
            for p in (model.sites.h, model.sites.Lambda, *getattr(model, "V", ())):
                p.copy_(torch.as_tensor(rng.standard_normal(p.shape)))
            model.sites.Lambda.copy_(model.sites.Lambda @ model.sites.Lambda.mT)
    return model


def set_prior(model, delta=None):
    with torch.no_grad():
        for V in model.V:
            V.zero_()
        model.log_gamma.fill_(-40.0)
        if delta:
            model.log_delta.fill_(math.log(delta))


def set_to_data(model, X, y):
    """Pseudo-observations that are the data."""
    with torch.no_grad():
        model.Z.copy_(X), model.sites.h.copy_(y / NOISE)
        model.sites.Lambda.copy_(torch.eye(len(X)).expand_as(model.sites.Lambda) / NOISE)


def iw_draws(n, K, delta, seed=0):
    """Draws of W^-1(delta K, delta + p + 1) as (n, p, p) Cholesky factors."""
    base, delta = w.Fresh(n, seeded(seed)), torch.as_tensor(delta).double()
    p, L = len(K), delta.sqrt() * torch.linalg.cholesky(K)
    return w.inverse_wishart_root(L, base.lower(p, L), base.chi2(w.degrees(delta + p + 1, p), (p,)))


def spd(p, seed=0):
    A = torch.as_tensor(np.random.default_rng(seed).standard_normal((p, p + 2)))
    return A @ A.T / p


def test_draws_are_those_of_scipy():
    K, delta = spd(3), 2.6  # not an integer
    C = iw_draws(20_000, K, delta)
    G = C @ C.mT
    theirs = stats.invwishart(df=delta + 4, scale=delta * K.numpy()).rvs(
        20_000, random_state=np.random.default_rng(1)
    )
    log_det = 2.0 * w.log_det(C)
    pairs = [(log_det, np.linalg.slogdet(theirs)[1])]
    pairs += [(G[:, i, j], theirs[:, i, j]) for i in range(3) for j in range(i + 1)]
    assert min(stats.ks_2samp(a, b).pvalue for a, b in pairs) > 0.05 / len(pairs) / 10
    assert in_standard_errors(G, K) < 4.5  # E[G] = K


@pytest.mark.parametrize("n_rows", [1, 4])
def test_rows_are_those_of_larger_matrices_whatever_the_batch_is(n_rows):
    # G_tt and G_it of one row by themselves, in batches, and in draws of all at once
    P, K, delta, n = 3, spd(3 + n_rows, 1), 3.5, 20_000
    level = Level(None, None, K.new_zeros(n), torch.linalg.cholesky(K[:P, :P])[None])
    level.J = torch.linalg.inv(level.L)
    level.C, level.delta = iw_draws(n, K[:P, :P], delta), torch.tensor(delta).double()
    level.W = level.C.mT @ level.J.mT
    base = w.Fresh(n, seeded(3))
    noise = base.normal((P, n_rows), K), base.chi2(level.delta + P + 2, (n_rows,))
    G_it, G_tt = level.draw_rows(
        K[:P, P:].expand(n, -1, -1), K.diagonal()[P:].expand(n, -1), *noise
    )
    C = iw_draws(n, K, delta, seed=9)
    G = C @ C.mT
    pairs = [(G_tt[:, -1], G[:, -1, -1])] + [(G_it[:, i, -1], G[:, i, -1]) for i in range(P)]
    assert min(stats.ks_2samp(a, b).pvalue for a, b in pairs) > 1e-3
    z = (G_tt.mean(0) - K.diagonal()[P:]) / (G_tt.std(0) / math.sqrt(n))
    assert z.abs().max() < 4.0  # E[G_tt] = K_tt
    # Schur complements are inverse gamma with the shape (delta + P + 2) / 2
    s = delta * level.schur(K[:P, P:][None], K.diagonal()[None, P:])[1][0, -1]
    G_ii = level.C @ level.C.mT
    left = G_tt[:, -1] - (G_it[..., -1:] * torch.linalg.solve(G_ii, G_it[..., -1:])).sum((-1, -2))
    assert (
        stats.kstest(left, stats.invgamma(0.5 * (delta + P + 2), scale=0.5 * float(s)).cdf).pvalue
        > 1e-3
    )


def test_divergences_are_means_of_log_ratios():
    L_q, L_p = (torch.linalg.cholesky(spd(3, seed)) for seed in (0, 1))
    nu_q, nu_p = torch.tensor(7.3).double(), torch.tensor(5.6).double()
    base = w.Fresh(40_000, seeded())
    C = w.inverse_wishart_root(L_q, base.lower(3, L_q), base.chi2(w.degrees(nu_q, 3), (3,)))
    ratio = wf.inverse_wishart_log_density(C, L_q, nu_q)
    ratio = ratio - wf.inverse_wishart_log_density(C, L_p, nu_p)
    assert in_standard_errors(ratio, wf.inverse_wishart_kl(L_q, nu_q, L_p, nu_p)) < 4.0


def test_gradients_of_delta_go_through_the_draws():
    # E log|G| has a closed form; torch's gradient of gamma draws is exact to 4e-4 only
    delta = torch.tensor(3.0).double().requires_grad_()
    C = iw_draws(100_000, spd(3), delta, seed=5)
    (got,) = torch.autograd.grad(2.0 * w.log_det(C).mean(), delta)
    expected = 3 * delta.log() - wf.multivariate_digamma(0.5 * (delta + 4), 3)
    (expected,) = torch.autograd.grad(expected, delta)
    np.testing.assert_allclose(got, expected, atol=3e-3)


def test_the_prior_has_no_divergence_and_is_a_saddle():
    X, y = toy(6)
    model = build(DeepInverseWishart(), X, y)
    set_prior(model, 3.0)
    with torch.no_grad():
        model.sites.h.zero_(), model.sites.Lambda.zero_()
        np.testing.assert_allclose(model.sample_moments(X, w.Fresh(3, seeded()))[2], 0.0, atol=1e-9)
    model.expected_log_likelihood(everything(X, y), seeded()).backward()
    assert all(float(V.grad.abs().max()) == 0.0 for V in model.V)


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@torch.no_grad()
def test_large_delta_is_nngp(n_layers):
    X, y = toy(8)
    deep = build(DeepInverseWishart(), X, y, n_layers=n_layers)
    set_prior(deep, 1e6)
    flat = build(NNGP(exact=False), X, y, n_layers=n_layers)
    batch = everything(X, y)
    bounds = [float(m.expected_log_likelihood(batch, seeded())) / len(X) for m in (deep, flat)]
    assert abs(bounds[0] - bounds[1]) < 1e-2 * (1.0 + abs(bounds[1]))
    (m_0, v_0), (m_1, v_1) = (latents(m, X, 4) for m in (deep, flat))
    np.testing.assert_allclose(m_0, m_1.expand_as(m_0), atol=2e-2)
    np.testing.assert_allclose(v_0, v_1.expand_as(v_0), atol=1e-2)


def deep_kernel(model, X):
    inner = getattr(model, "process", model)
    G = inner.inputs(X) @ inner.inputs(X).T / X.shape[1]
    for kernel in inner.kernels:
        G = kernel().from_gram(G)
    return G


@pytest.mark.parametrize("kernel", ["squared_exponential", "arc_cosine"])
@torch.no_grad()
def test_inducing_points_at_all_rows_are_exact(kernel):
    X, y = toy(10, k=2)
    model = build(NNGP(exact=False), X, y, 10, kernel=kernel)
    exact = build(NNGP(exact=True), X, y, kernel=kernel)
    set_to_data(model, X, y)
    model.jitter = exact.process.jitter = 0.0
    batch, new = everything(X, y), toy(5, seed=3)[0]
    exact.hold(batch)
    K = deep_kernel(model, torch.cat([X, new])).numpy()
    normal = stats.multivariate_normal(cov=K[:10, :10] + NOISE * np.eye(10))
    expected = sum(normal.logpdf(column) for column in y.T.numpy())
    np.testing.assert_allclose(exact.lower_bound(batch), expected, rtol=1e-8)
    np.testing.assert_allclose(model.expected_log_likelihood(batch, None), expected, rtol=1e-7)
    mean, cov = condition(
        lambda a, b: K[np.ix_(a, b)], np.arange(10), y.numpy(), np.arange(10, 15), NOISE
    )
    for m in (model, exact):
        frozen = posterior(m, 4)
        latent = frozen.latent(new)
        np.testing.assert_allclose(latent.mean[0], mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(latent.var[0, :, 0], cov.diagonal(), rtol=1e-4, atol=1e-6)
        rows = frozen.latent(X)
        ell = frozen.likelihood.expected_log_prob(y, rows.mean, rows.var).sum()
        np.testing.assert_allclose(ell - m.divergence(), expected, rtol=1e-6)
        covariance = frozen.covariance(new)
        np.testing.assert_allclose(covariance[0], cov, rtol=1e-4, atol=1e-6)
        variances = torch.diagonal(covariance, dim1=-2, dim2=-1).T
        np.testing.assert_allclose(variances, latent.var[0], rtol=1e-6)


def test_one_layer_learns_what_scikit_learn_learns():
    X, y = toy(40)
    model = build(NNGP(exact=True), X, y, n_layers=1)
    for _ in range(60):
        loss = model.step(everything(X, y), None)
    kernel = ConstantKernel(1.0) * RBF([1.0, 1.0]) + WhiteKernel(0.1)
    reference = GaussianProcessRegressor(kernel).fit(X, y[:, 0])
    np.testing.assert_allclose(-40 * loss, reference.log_marginal_likelihood_value_, atol=1e-3)
    mean, std = reference.predict(X[:5], return_std=True)
    posterior = model.posterior(model.draws(1, 0))
    got, var = posterior.likelihood.moments(*posterior.latent(X[:5])[1:])
    np.testing.assert_allclose(got[0, :, 0], mean, atol=1e-3)
    np.testing.assert_allclose(var[0, :, 0].sqrt(), std, atol=1e-3)


def test_a_weight_of_two_is_the_row_twice():
    X, y = toy(8)
    weight = torch.tensor([2.0, 1, 1, 3, 1, 1, 1, 1]).double()
    rows = torch.arange(8).repeat_interleave(weight.long())
    values = []
    for batch in (everything(X, y, weight), everything(X[rows], y[rows])):
        model = build(NNGP(exact=True), X, y)
        for _ in range(5):
            loss = model.step(batch, None)
        posterior = model.posterior(model.draws(1, 0))
        values.append((loss, *posterior.latent(X[:3])[1:]))
    for a, b in zip(*values):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_leave_one_out_is_that_of_models_without_the_row():
    X, y = toy(9, k=2)
    model = build(NNGP(exact=True), X, y)
    model.step(everything(X, y), None)
    got = model.posterior(model.draws(1, 0)).loo_log_density(np.arange(9), np.array([1.0, 1.7]))
    for i in range(9):
        rest = np.delete(np.arange(9), i)
        model._keep(*everything(X[rest], y[rest])[:3])
        posterior = model.posterior(model.draws(1, 0))
        mean, var = posterior.likelihood.moments(*posterior.latent(X[i : i + 1])[1:])
        for s, own in zip((1.0, 1.7), got[:, i]):
            expected = stats.norm(mean[0, 0], s * var[0, 0].sqrt()).logpdf(y[i].numpy()).sum()
            assert abs(own - expected) < 1e-4


def test_one_natural_step_of_size_one_is_exact_for_one_kernel():
    X, y = toy(12, k=2)
    model = build(NNGP(exact=False), X, y, 5)
    bound = model.expected_log_likelihood(everything(X, y), None)
    bound.backward(-torch.ones_like(bound) / 12.0)
    assert model.sites.natural_step(model.sites.collected_gradients(-12.0), 1.0)
    best = model.expected_log_likelihood(everything(X, y), None).item()
    # the collapsed bound (Titsias, 2009)
    with torch.no_grad():
        path = model.path(None)
        A, s = path.levels[-1].schur(*path.rows(model.inputs(X), None))
        Q = (A[0].T @ A[0] + NOISE * torch.eye(12)).numpy()
    expected = sum(stats.multivariate_normal(cov=Q).logpdf(column) for column in y.T.numpy())
    np.testing.assert_allclose(best, expected - 2.0 * float(s.sum()) / (2.0 * NOISE), rtol=1e-7)


@pytest.mark.parametrize("kernel", ["squared_exponential", "arc_cosine"])
@torch.no_grad()
def test_the_bound_is_below_the_evidence(kernel):
    X, y = toy(2)
    model = build(DeepInverseWishart(), X, y, 2, n_layers=2, kernel=kernel)
    model.log_delta.fill_(math.log(4.0))
    mean, var, kl = model.sample_moments(X, w.Fresh(20_000, seeded()))
    bounds = model.likelihood().expected_log_prob(y, mean, var).sum(-1) - kl
    set_prior(model)
    level = model.path(w.Fresh(100_000, seeded(2))).levels[-1]
    K = level.L @ level.L.mT + NOISE * torch.eye(2)
    normal = torch.distributions.MultivariateNormal(torch.zeros(2).double(), K)
    evidence = normal.log_prob(y[:, 0]).exp()
    error = (
        bounds.std() / math.sqrt(len(bounds)) + evidence.std() / math.sqrt(1e5) / evidence.mean()
    )
    assert bounds.mean() < evidence.mean().log() + 4.0 * error


@torch.no_grad()
def test_the_order_of_inducing_points_does_not_matter_in_the_mean():
    X, y = toy(3)
    bounds = []
    for order in ([0, 1, 2], [2, 0, 1]):
        model = build(DeepInverseWishart(), X, y, 3, n_layers=2)
        model.log_delta.fill_(math.log(5.0))
        model.Z.copy_(model.Z[order]), model.V[1].copy_(model.V[1][order])
        model.sites.h.copy_(model.sites.h[order])
        model.sites.Lambda.copy_(model.sites.Lambda[:, order][:, :, order])
        mean, var, kl = model.sample_moments(X, w.Fresh(20_000, seeded(len(bounds))))
        bounds.append(model.likelihood().expected_log_prob(y, mean, var).sum(-1) - kl)
    error = math.hypot(*(b.std() / math.sqrt(len(b)) for b in bounds))
    assert abs(bounds[0].mean() - bounds[1].mean()) < 4.0 * error


@torch.no_grad()
def test_the_bound_of_global_inducing_points_is_the_dense_one():
    X, y = toy(5)
    model = build(GlobalInducing(), X, y, 3, n_layers=2)
    rng = np.random.default_rng(4)
    for p in (*model.v, *model.roots):
        p.copy_(torch.as_tensor(rng.standard_normal(p.shape)))
    model.log_root.zero_()
    model.jitter = 0.0
    levels, features, (whitened,), _, kl = model.path(w.Fresh(1, seeded()))
    K = levels[0].L[0] @ levels[0].L[0].T
    R = model.roots[0].tril()
    cov = torch.linalg.inv(torch.linalg.inv(K) + R @ R.T)
    mean = cov @ R @ R.T @ model.v[0]
    normal = torch.distributions.MultivariateNormal
    prior, expected = normal(torch.zeros(3).double(), K), 0.0
    for m in mean.T:
        expected += torch.distributions.kl_divergence(normal(m, cov), prior)
    np.testing.assert_allclose(kl[0], expected, rtol=1e-8)
    np.testing.assert_allclose(
        features[1][0] * math.sqrt(2.0), levels[0].L[0] @ whitened[0], rtol=1e-10
    )


@torch.no_grad()
def test_draws_of_global_inducing_variables_have_their_posterior():
    X, y = toy(5)
    model = build(GlobalInducing(), X, y, 3, n_layers=2, width=1)
    model.log_root.fill_(0.3)
    levels, _, (whitened,), *_ = model.path(w.Fresh(40_000, seeded()))
    u = (levels[0].L @ whitened)[..., 0]
    K = levels[0].L[0] @ levels[0].L[0].T
    R = model.roots[0].tril() * math.exp(0.3)
    cov = torch.linalg.inv(torch.linalg.inv(K) + R @ R.T)
    np.testing.assert_allclose(torch.cov(u.T), cov, atol=4.0 * 1.5 / 200.0 * float(cov.max()))


def test_one_layer_is_the_same_by_all_schemes():
    X, y = toy(6)
    shape = dict(n_inducing=4, n_layers=1)
    values = [
        build(s, X, y, **shape).expected_log_likelihood(everything(X, y), None).item()
        for s in (NNGP(exact=False), GlobalInducing())
    ]
    np.testing.assert_allclose(*values, rtol=1e-12)


def test_wide_layers_of_deep_gps_have_wishart_gram_matrices():
    # moments, and determinants, of the second layer given the first
    rows = []
    for kind in ("dgp", "dwp"):
        for seed in range(400):
            drawn = make_deep_kernel_process(
                4,
                kind=kind,
                n_layers=2,
                width=7,
                random_state=seed,
                n_features=2,
                return_layers=True,
            )
            G = drawn[2][1]
            rows.append([np.linalg.slogdet(G)[1], G[0, 0], G[0, 1], G[1, 1]])
    dgp, dwp = np.array(rows).reshape(2, 400, 4)
    assert min(stats.ks_2samp(a, b).pvalue for a, b in zip(dgp.T, dwp.T)) > 0.01


def test_relu_gram_matrices_of_wide_networks_are_those_of_the_kernel():
    G = []
    for seed in range(200):
        _, _, grams, _ = make_deep_kernel_process(
            3, kind="bnn", n_layers=2, width=(2000, 50), random_state=seed, n_features=2,
            return_layers=True,
        )  # fmt: skip
        K = ArcCosine(1.0, bias=0.0).from_gram(torch.as_tensor(grams[0])).numpy()
        G.append(grams[1] - K)
    z = np.mean(G, 0) / (np.std(G, 0) / math.sqrt(len(G)))
    assert np.abs(z).max() < 4.0


def test_backward_passes_of_our_own():
    rng = np.random.default_rng(0)

    def leaf(*shape):
        return torch.as_tensor(rng.standard_normal(shape)).requires_grad_()

    check = torch.autograd.gradcheck
    K = (lambda A: A @ A.mT)(leaf(2, 4, 6)).detach().requires_grad_()
    assert check(lambda K: factorize(0.5 * (K + K.mT), 1e-6), K)
    for i in (0, 1, slice(2)):  # one of the results, or both
        assert check(lambda *x, i=i: Product.apply(*x)[i], (leaf(1, 3, 4), leaf(2, 4, 5)))
        assert check(lambda K, i=i: factorize(0.5 * (K + K.mT), 1e-6)[2:][i], K)
    J, (W, C) = leaf(1, 3, 3), leaf(2, 2, 3, 3)
    K_tt = (20.0 + leaf(2, 5)).detach().requires_grad_()
    c2, delta = (1.0 + leaf(2, 5) ** 2).detach().requires_grad_(), leaf()
    rows = J, W, C, leaf(2, 3, 5), K_tt, leaf(2, 3, 5).detach(), c2, delta
    assert check(_Rows.apply, rows)
    n, c2, delta, gamma = leaf(2, 3, 3).detach(), leaf(2, 3).exp(), leaf().exp(), leaf().exp()

    def plain(K, V, c2, delta, gamma):
        L, nu = torch.linalg.cholesky(K), delta + 4.0
        L_q = torch.linalg.cholesky(delta * K + V @ V.mT)
        C = w.inverse_wishart_root(L_q, n, c2)
        kl = wf.inverse_wishart_kl(L_q, nu + gamma, delta.sqrt() * L, nu)
        return C, (torch.linalg.inv(L) @ C).mT, C @ C.mT, kl.expand(2)

    def ours(K, V, c2, delta, gamma):
        J = torch.linalg.inv(torch.linalg.cholesky(K))
        return _Inducing.apply(K, J, delta, gamma, V, n, c2)

    inputs = [spd(3)[None], leaf(3, 3), c2, delta, gamma]
    inputs = [x.detach().requires_grad_() for x in inputs]
    weights = leaf(2, 3, 3), leaf(2, 3, 3), leaf(2, 3, 3), leaf(2)
    found = []
    for function in (plain, ours):
        results = function(*inputs)
        value = sum((a * b).sum() for a, b in zip(results, weights))
        found.append([*results, *torch.autograd.grad(value, inputs)])
    for a, b in zip(*found):  # torch's gradient of a Cholesky factor is symmetric, too
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    q = Whitened(leaf(2, 3, 2), torch.linalg.cholesky(spd(3)).expand(2, 2, 3, 3), None)
    q.J, J = 0.3 * q.J.detach().requires_grad_(), torch.eye(3).double()[None] + 0.1 * leaf(2, 3, 3)
    K_it, s = leaf(2, 3, 5), 5.0 + leaf(2, 5).square()
    K_tt = s + (J @ K_it).square().sum(-2)
    inputs = [x.detach().requires_grad_() for x in (J, q.J, q.mean, K_it, K_tt)]
    assert check(_Marginals.apply, inputs)
    expected = q.moments(J @ K_it, s)
    for a, b in zip(q.of_step(J, K_it, K_tt), expected):
        torch.testing.assert_close(a, b)
    # rows that are inducing points leave no variance, and have no slope of it
    K = spd(3)[None].requires_grad_()
    J = torch.linalg.inv(torch.linalg.cholesky(K))
    var = Whitened(q.mean[:1], 1e8 * q.J[:1], None).of_step(J, K, torch.diagonal(K, 0, 1, 2))[1]
    assert (var >= 0.0).all()


@pytest.mark.parametrize("n_layers", [2, 4])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("kernel", ["matern", "arc_cosine"])
@torch.no_grad()
def test_rough_kernels_at_rows_that_are_equal(kernel, exact, n_layers):
    """Covariances of training rows with themselves, and with a repeated one, from angles and distances."""
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (10, 5))
    X[7], y = X[2], np.sin(3.0 * X[:, :1])
    numbers = {"lengthscale": 0.7, "variance": 1.3, "ard": False}
    rough = Matern(0.5, **numbers) if kernel == "matern" else ArcCosine(order=0, **numbers)
    # squared distances of the features below, whose norms are the same from the first kernel on
    size, G = 1.3, X @ X.T / 5.0
    r2 = np.square(X[:, None] - X).sum(-1) / 5.0
    for _ in range(n_layers):
        length2 = 0.7**2 / 5.0  # lengthscales over the root of their number
        if kernel == "matern":
            r2 = 2.0 * size * -np.expm1(-np.sqrt(r2 / length2))
        else:
            d = np.diagonal(G) / length2 + 1.0
            chord = np.sqrt(
                np.maximum(r2 / length2 - np.square(np.sqrt(d[:, None]) - np.sqrt(d)), 0.0)
            )
            angle = 2.0 * np.arcsin(chord / (2.0 * np.sqrt(np.sqrt(d[:, None] * d))))
            r2 = 2.0 * size * angle / np.pi
        G = size - 0.5 * r2
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    shape = Architecture(5, (5,) * (n_layers - 1), 1, 10, [rough.bind(5)] * n_layers, True, False)
    model = NNGP(exact=exact).build(shape, Gaussian(np.array([NOISE])))
    batch = everything(X, y)
    if exact:
        model._keep(*batch[:3])
        posterior = model.posterior(model.draws(1, 0))
    else:
        set_to_data(model, X, y)
        posterior = model.posterior(model.draws(1, 0))
    mean, var = (part[0, :, 0].numpy() for part in posterior.latent(X)[1:])
    K_inv = np.linalg.inv(G + (NOISE + 1.3e-6) * np.eye(10))
    np.testing.assert_allclose(mean, G @ K_inv @ y[:, 0].numpy(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(var - 1.3e-6, np.diagonal(G - G @ K_inv @ G), atol=1e-6)
    np.testing.assert_allclose(posterior.covariance(X)[0].diagonal(), var, atol=1e-6)
    if exact:
        expected = stats.multivariate_normal(cov=np.linalg.inv(K_inv)).logpdf(y[:, 0].numpy())
        assert float(model._log_marginal_likelihood()) == pytest.approx(expected, rel=1e-7)
