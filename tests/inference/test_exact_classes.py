"""Gaussian processes for classes on all rows: the engine by brute force, the scheme by refits and limits."""

import pickle

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, roots_hermitenorm
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skdgp import DeepGPClassifier
from skdgp.gp.kernels import Linear, SquaredExponential, Warped
from skdgp.gp.likelihoods import Bernoulli, Softmax
from skdgp.inference import Exact, exact_classes
from skdgp.inference.rows import best_gaussian as engine
from skdgp.inference.rows.best_gaussian import Rows, best_gaussian

KERNEL = SquaredExponential([1.0], variance=4.0, trainable=False)


def toy(n, n_classes=2, seed=0, nugget=1e-6):
    """Rows of one column, overlapping classes, and kernel matrix with the factor that the engine takes."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.normal(size=(n, 1)), 0)
    edges = np.linspace(-0.5, 0.5, n_classes - 1) if n_classes > 2 else [0.0]
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=n), edges).astype(float)
    y[:n_classes] = np.arange(n_classes)
    K = 4.0 * np.exp(-0.5 * (X - X.T) ** 2) + nugget * np.eye(n)
    return X, y, K


def seen(y, K, weight=None):
    A = torch.linalg.cholesky(torch.as_tensor(K)).mT.contiguous()
    weight = np.ones(len(y)) if weight is None else weight
    y, weight = torch.as_tensor(y)[:, None], torch.as_tensor(weight, dtype=torch.float64)
    return Rows(A, torch.zeros(len(y), dtype=torch.float64), y, weight)


def moments(rows, q):
    """Means (n, k) and variances (n,) of functions at rows."""
    return q.m.numpy(), q.v[:, 0].numpy()


NODES, WEIGHTS = roots_hermitenorm(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def lower_bound_of_two(y, K):
    """The bound of Challis and Barber for the logit link, by quadrature, as a function of mean and root."""
    n = len(y)
    lower, K_inv, sign = np.tril_indices(n), np.linalg.inv(K), 2.0 * y - 1.0
    log_det_K = np.linalg.slogdet(K)[1]

    def negative(x):
        m, C = x[:n], np.zeros((n, n))
        C[lower] = x[n:]
        S = C @ C.T
        f = m[:, None] + np.sqrt(np.diag(S))[:, None] * NODES
        ell = (-np.logaddexp(0.0, -sign[:, None] * f)) @ WEIGHTS
        log_det = 2.0 * np.log(np.abs(np.diag(C))).sum()
        kl = 0.5 * (np.trace(K_inv @ S) + m @ K_inv @ m - n + log_det_K - log_det)
        return kl - ell.sum()

    return negative, lower


def test_two_classes_have_the_best_of_all_gaussians():
    _, y, K = toy(5, nugget=0.2)
    negative, lower = lower_bound_of_two(y, K)
    start = np.concatenate([np.zeros(5), np.linalg.cholesky(K)[lower]])
    found = minimize(negative, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 2000})
    rows = seen(y, K)
    q = best_gaussian(rows, Bernoulli("logit"), 1, tol=1e-12)
    assert q.lower_bound == pytest.approx(-found.fun, abs=1e-4)  # nodes of the likelihood are fewer
    m, v = moments(rows, q)
    C = np.zeros((5, 5))
    C[lower] = found.x[5:]
    np.testing.assert_allclose(m[:, 0], found.x[:5], atol=2e-3)
    np.testing.assert_allclose(v, np.diag(C @ C.T), rtol=5e-3)


def test_three_classes_have_the_best_gaussian_with_one_covariance():
    """By quadrature over the two contrasts, in which functions of one covariance are independent."""
    n, C = 4, 3
    _, y, K = toy(n, C, nugget=0.2)
    K_inv, log_det_K, lower = np.linalg.inv(K), np.linalg.slogdet(K)[1], np.tril_indices(n)
    nodes, weights = roots_hermitenorm(25)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    share = np.outer(weights, weights).ravel() / weights.sum() ** 2
    basis = np.linalg.qr(np.eye(C)[:, 1:] - 1.0 / C)[0]

    def negative(x):
        m, R = x[: n * C].reshape(n, C), np.zeros((n, n))
        R[lower] = x[n * C :]
        S = R @ R.T
        f = m[:, None] + np.sqrt(np.diag(S))[:, None, None] * (grid @ basis.T)
        ell = share @ log_softmax(f, -1)[np.arange(n), :, y.astype(int)].T
        kl = np.trace(m.T @ K_inv @ m) + (C - 1) * (
            np.trace(K_inv @ S) - n + log_det_K - 2.0 * np.log(np.abs(np.diag(R))).sum()
        )
        return 0.5 * kl - ell.sum()

    start = np.concatenate([np.zeros(n * C), np.linalg.cholesky(K)[lower]])
    found = minimize(negative, start, method="BFGS", options={"gtol": 1e-6, "maxiter": 2000})
    q = best_gaussian(seen(y, K), Softmax(n_nodes=625), C, tol=1e-12)
    assert q.lower_bound == pytest.approx(-found.fun, abs=1e-4)
    contrasts = np.eye(C) - 1.0 / C
    expected = found.x[: n * C].reshape(n, C) @ contrasts
    np.testing.assert_allclose(q.m.numpy() @ contrasts, expected, atol=3e-3)


def test_moments_are_near_those_of_the_exact_posterior():
    """Of two rows, by a grid over both functions: what a Gaussian cannot have is left."""
    _, y, K = toy(2)
    axis = np.linspace(-12.0, 12.0, 801)
    f = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    log_p = -0.5 * np.einsum("ni,ij,nj->n", f, np.linalg.inv(K), f)
    log_p += np.log(expit((2.0 * y - 1.0) * f)).sum(1)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean, var = p @ f, p @ f**2 - (p @ f) ** 2
    rows = seen(y, K)
    m, v = moments(rows, best_gaussian(rows, Bernoulli("logit"), 1, tol=1e-12))
    np.testing.assert_allclose(m[:, 0], mean, atol=0.03)
    np.testing.assert_allclose(v, var, rtol=0.1)
    evidence = np.exp(log_p).sum() * (axis[1] - axis[0]) ** 2
    log_z = np.log(evidence) - 0.5 * np.linalg.slogdet(2.0 * np.pi * K)[1]
    q = best_gaussian(rows, Bernoulli("logit"), 1, tol=1e-12)
    assert log_z - 0.05 < q.lower_bound < log_z + 1e-9  # a lower bound, and close


def test_two_classes_of_softmax_are_the_logit_link_with_twice_the_kernel():
    _, y, K = toy(12)
    q = best_gaussian(seen(y, K), Softmax(n_nodes=64), 2, tol=1e-12)
    one = best_gaussian(seen(y, 2.0 * K), Bernoulli("logit"), 1, tol=1e-12)
    assert q.lower_bound == pytest.approx(one.lower_bound, abs=1e-5)
    np.testing.assert_allclose(q.m[:, 1] - q.m[:, 0], one.m[:, 0], atol=1e-3)
    np.testing.assert_allclose(2.0 * q.v, one.v, rtol=1e-3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_weight_of_two_is_the_row_twice(n_classes):
    _, y, K = toy(8, n_classes)
    likelihood = Bernoulli() if n_classes == 2 else Softmax(n_nodes=64)
    k = 1 if n_classes == 2 else 3
    weight = np.where(np.arange(8) == 3, 2.0, 1.0)
    q = best_gaussian(seen(y, K, weight), likelihood, k, tol=1e-12)
    index = [*range(8), 3]
    A = torch.linalg.cholesky(torch.as_tensor(K)).mT[:, index].contiguous()
    twice = Rows(
        A, torch.zeros(9).double(), torch.as_tensor(y[index])[:, None], torch.ones(9).double()
    )
    other = best_gaussian(twice, likelihood, k, tol=1e-12)
    assert q.lower_bound == pytest.approx(other.lower_bound, abs=1e-6)
    np.testing.assert_allclose(q.mean, other.mean, atol=1e-3)


def test_factorizations_do_not_grow_with_the_classes(monkeypatch):
    counts = {}
    for C in (3, 12):
        _, y, K = toy(60, C)
        made = []
        cholesky = engine.cholesky
        monkeypatch.setattr(engine, "cholesky", lambda *a: made.append(len(a[0])) or cholesky(*a))  # noqa: B023
        best_gaussian(seen(y, K), Softmax(n_nodes=64), C, tol=1e-6)
        monkeypatch.undo()
        counts[C] = len(made)
    assert counts[12] < 2 * counts[3]


# The scheme


def classifier(kernel=KERNEL, likelihood="logit", **settings):
    settings = {"max_iter": 3, "random_state": 0, **settings}
    return DeepGPClassifier(1, inference="exact", kernel=kernel, likelihood=likelihood, **settings)


def test_probabilities_are_near_those_of_laplace():
    """Laplace's approximation of scikit-learn with the same kernel: both are near the truth, here."""
    X, y, _ = toy(60)
    model = classifier(standardize=False).fit(X, y)
    kernel = ConstantKernel(4.0) * RBF(1.0)
    laplace = GaussianProcessClassifier(kernel, optimizer=None, random_state=0).fit(X, y)
    new = np.linspace(-3.0, 3.0, 50)[:, None]
    np.testing.assert_allclose(model.predict_proba(new), laplace.predict_proba(new), atol=0.04)


def test_predictions_are_those_of_the_engine_on_all_rows(monkeypatch):
    """``K(x, X) a`` and ``k - k^T (K + W^{-1})^{-1} k`` by numpy, from slopes and curvatures of the engine."""
    monkeypatch.setattr(exact_classes, "_EXPLAINED", 1.0 - 1e-9)
    X, y, K = toy(40)
    q = best_gaussian(seen(y, K), Bernoulli("logit"), 1, tol=1e-13)
    new = np.linspace(-2.5, 2.5, 9)[:, None]
    k = 4.0 * np.exp(-0.5 * (new - X.T) ** 2)
    mean = k @ q.found.gradient[:, 0].numpy()
    inner = np.linalg.inv(K + np.diag(1.0 / q.found.curvature.numpy()))
    var = 4.0 - np.einsum("ni,ij,nj->n", k, inner, k)
    model = classifier(standardize=False).fit(X, y)
    latent = model.members_[0].posterior().latent(torch.as_tensor(new))
    np.testing.assert_allclose(latent.mean[0, :, 0], mean, atol=0.01)
    np.testing.assert_allclose(latent.var[0, :, 0], var, atol=0.01)


@pytest.mark.parametrize(("likelihood", "n_classes"), [("logit", 2), ("probit", 2), ("softmax", 3)])
def test_leave_one_out_is_close_to_refits(likelihood, n_classes):
    X, y, _ = toy(30, n_classes, seed=1)
    model = classifier(likelihood=likelihood, standardize=False).fit(X, y)
    posterior = model.members_[0].posterior()
    loo = posterior.loo_log_density(np.arange(30))
    rows, refits = posterior._batch, []
    order = [int(np.flatnonzero(X[:, 0] == x)[0]) for x in rows.X[:, 0].numpy()]
    for i in order:
        keep = np.delete(np.arange(30), i)
        refit = classifier(likelihood=likelihood, standardize=False).fit(X[keep], y[keep])
        refits.append(refit.log_predictive_density(X[[i]], y[[i]])[0])
    # first order in what a row had told: a tenth of that is left, and less of its mean
    told = np.abs(model.log_predictive_density(X, y)[order] - refits)
    assert np.abs(loo - refits).sum() < 0.25 * told.sum()
    assert np.abs((loo - refits).mean()) < 0.1 * told.mean()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_gradients_of_the_lower_bound(n_classes, monkeypatch):
    """By finite differences of the bound, whose posterior is found anew."""
    monkeypatch.setattr(exact_classes, "_ROUGHLY", 1e-11)
    X, y, _ = toy(20, n_classes)
    likelihood = "logit" if n_classes == 2 else "softmax"
    kernel = Warped(SquaredExponential(variance=2.0) + Linear(bias=0.0), 3)
    model = classifier(kernel, likelihood, standardize=False).fit(X, y)
    member = model.members_[0]
    module = member.model()
    batch = member.posterior()._batch
    values = {}
    for name, parameter in module.named_parameters():
        module.zero_grad()
        module.expected_log_likelihood(batch, None).backward()
        gradient = float(parameter.grad.flatten()[0])
        sides = []
        for step in (1e-4, -1e-4):
            with torch.no_grad():
                parameter.view(-1)[0] += step
                sides.append(float(module.expected_log_likelihood(batch, None)))
                parameter.view(-1)[0] -= step
        values[name] = gradient, (sides[0] - sides[1]) / 2e-4
    for name, (gradient, expected) in values.items():
        assert gradient == pytest.approx(expected, rel=5e-3, abs=2e-4), name


def test_more_rows_than_inducing_inputs(monkeypatch):
    """A few inputs hold what smooth functions of many rows have."""
    X, y, _ = toy(300)
    new = np.linspace(-2.0, 2.0, 20)[:, None]
    whole = classifier().fit(X, y)
    used = len(whole.members_[0].posterior().layers[0].Z)
    assert used < 40  # of 300
    monkeypatch.setattr(exact_classes, "_EXPLAINED", 1.0 - 1e-9)
    finer = classifier().fit(X, y)
    assert len(finer.members_[0].posterior().layers[0].Z) > used
    np.testing.assert_allclose(whole.predict_proba(new), finer.predict_proba(new), atol=2e-3)


def test_a_row_far_from_all_others_does_not_end_the_choice_of_inputs():
    """With a linear part, one row may have nearly all of the variance."""
    rng = np.random.default_rng(0)
    X = torch.as_tensor(np.concatenate([rng.normal(size=(100, 1)), [[1e4]]]))
    kernel = (SquaredExponential() + Linear(bias=0.0)).bind(1)
    chosen = exact_classes.spread_rows(kernel, X, 50)
    assert len(chosen) > 5
    K = kernel(X, X).numpy()
    rest = K - K[:, chosen] @ np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen])
    assert (np.diag(rest) / np.diag(K)).mean() < 1.1e-3


def test_learned_hyperparameters_raise_the_bound_and_survive_a_pickle():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=150) > 0.0).astype(int)
    start = classifier(SquaredExponential(), max_iter=1).fit(X, y)
    model = classifier(SquaredExponential(), max_iter=40).fit(X, y)
    assert model.lower_bound_ > start.lower_bound_ + 5.0
    assert model.score(X, y) > 0.85
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(copy.predict_proba(X), model.predict_proba(X), rtol=1e-9)
    again = classifier(SquaredExponential(), max_iter=40).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_steps_raise_the_bound_though_posteriors_are_found_roughly():
    """Steep functions of many rows: means that are nearly the best would have gradients that are far off."""
    rng = np.random.default_rng(0)
    angle, which = rng.uniform(0.0, np.pi, 300), rng.integers(2, size=300)
    X = np.c_[np.cos(angle) + which, np.sin(angle) * (1 - 2 * which) + 0.5 * which]
    X = X + 0.3 * rng.normal(size=X.shape)
    bounds = [
        DeepGPClassifier(1, inference="exact", max_iter=n, random_state=0)
        .fit(X, which)
        .lower_bound_
        for n in (15, 60)
    ]
    assert bounds[1] > bounds[0] - 3.0  # of 300 rows, by way of other inducing inputs


def test_functions_agree_with_probabilities():
    X, y, _ = toy(60, 3)
    model = classifier(likelihood="softmax").fit(X, y)
    new = np.linspace(-2.0, 2.0, 5)[:, None]
    f = model.sample_y(new, 4000, random_state=0, latent=True)  # n, classes, draws
    draws = np.exp(log_softmax(f, 1))
    error = (draws.mean(-1) - model.predict_proba(new)) / (draws.std(-1) / 4000**0.5 + 1e-3)
    assert np.abs(error).max() < 4.5


def test_scheme_is_for_shallow_models():
    with pytest.raises(ValueError, match="set n_layers=1"):
        DeepGPClassifier(2, inference=Exact(), random_state=0).fit(
            np.arange(8.0)[:, None], [0, 1] * 4
        )


def test_too_many_rows_are_refused(monkeypatch):
    monkeypatch.setattr(exact_classes, "MOST_ROWS", 10)
    X, y, _ = toy(20)
    with pytest.raises(ValueError, match="at most 10 for classes; got 20"):
        classifier().fit(X, y)


def test_the_kernel_of_classes_is_the_choice_of_the_scheme():
    X, y, _ = toy(30)
    model = DeepGPClassifier(1, inference="exact", max_iter=2, random_state=0).fit(X, y)
    kernel = model.kernels_[0]
    assert isinstance(kernel, Warped) and isinstance(kernel.kernel.right, Linear)
    assert kernel.knots.shape == (1, 7)


def test_thresholds_are_learned():
    """Two classes apart by a flag and a threshold: probabilities beside it differ, and are flat elsewhere."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.uniform(size=600), rng.integers(0, 2, 600)], 1)
    p = np.where((X[:, 0] > 0.6) & (X[:, 1] == 1.0), 0.9, 0.1)
    y = rng.binomial(1, p)
    model = DeepGPClassifier(1, inference="exact", random_state=0).fit(X, y)
    found = model.predict_proba([[0.5, 1.0], [0.7, 1.0], [0.5, 0.0], [0.7, 0.0]])[:, 1]
    np.testing.assert_allclose(found, [0.1, 0.9, 0.1, 0.1], atol=0.12)
