"""The shallow GP for classes, with the best Gaussian posterior."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from oracles import check_gradients, leave_one_out
from scipy.optimize import minimize
from scipy.special import log_expit, log_ndtr
from scipy.stats import norm
from toys import architecture, everything, latents, posterior

from skdgp import DeepGPClassifier, SparseGPClassifier
from skdgp.gp.likelihoods import Bernoulli, Gaussian, Softmax
from skdgp.inference import VFE
from skdgp.inference.sparse import concave, full_batch
from skdgp.inference.sparse.concave import ConcaveGP

LIKELIHOODS = {
    "probit": (Bernoulli(), 1),
    "logit": (Bernoulli("logit"), 1),
    "softmax": (Softmax(), 3),
}


def rows(n=30, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    y = np.digitize(np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n), [-0.4, 0.4])
    return X, np.minimum(y, n_classes - 1).astype(float)[:, None]


def make_model(Z, likelihood, k, kernel="squared_exponential", train_inducing=False):
    shape = architecture((), k, len(Z), kernel)
    model = ConcaveGP(shape, likelihood, VFE(train_inducing=train_inducing))
    with torch.no_grad():
        model.layers[0].Z.copy_(torch.as_tensor(Z))
        model.layers[0].kernel.assign(variance=3.0)
    return model


def value_of(model, batch):
    with torch.no_grad():
        return model.lower_bound(batch)


def case(name, n=30, M=6, **settings):
    likelihood, k = LIKELIHOODS[name]
    X, y = rows(n, max(k, 2))
    return make_model(X[:M] + 0.05, likelihood, k, **settings), X, y


@pytest.fixture(autouse=True)
def exactly(monkeypatch):
    """The optimum to nearly all digits."""
    monkeypatch.setattr(concave, "_GAIN", 1e-12)


@pytest.fixture(params=["at once", "chunks anew"])
def memory(request, monkeypatch):
    """The ways in which rows are gone through."""
    if request.param != "at once":
        for module in (full_batch, concave):
            monkeypatch.setattr(module, "AT_ONCE", 50)
        monkeypatch.setattr(full_batch, "_KEPT", 0)


def test_gaussian_noise_is_the_collapsed_bound():
    """The best posterior is that in closed form, found by a single step."""
    X, y = rows()
    model = make_model(X[:7], Gaussian(np.array([0.3])), 1)
    closed = VFE().build(architecture((), 1, 7), Gaussian(np.array([0.3])))
    closed.load_state(model.state())
    batch = everything(X, y)
    assert_allclose(value_of(model, batch), value_of(closed, batch), rtol=1e-12)
    with torch.no_grad():
        posterior = closed.natural_parameters(batch)
    for found, expected in zip(model._found, posterior):
        assert_allclose(found, expected, rtol=1e-9)


each_way = pytest.mark.parametrize(
    ("name", "memory"),
    [("probit", "at once"), ("logit", "chunks anew"), ("softmax", "chunks anew")],
    indirect=["memory"],
)


@each_way
def test_gradients(name, memory):
    model, X, y = case(name, M=4, train_inducing=True)
    batch = everything(X, y, np.arange(30) % 3 + 1.0)
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert len(named) == 3
    model.lower_bound(batch)
    check_gradients(lambda: model.lower_bound(batch), named, rtol=1e-4, atol=1e-4, step=1e-4)


@each_way
def test_bound_is_that_of_the_posterior_and_no_other_has_a_higher_one(name, memory):
    model, X, y = case(name)
    batch = everything(X, y)
    best = value_of(model, batch)
    model.unsolved = batch
    model.accept()

    def bound_of_posterior():
        m, v = latents(model, batch.X)
        ell = model.likelihood.frozen().expected_log_prob(batch.y, m[0], v[0])
        return float(ell.sum()) - float(model.divergence())

    assert_allclose(bound_of_posterior(), best, rtol=1e-9)
    q = model.layers[0].q
    mean, root = q.mean.clone(), q.root.clone()
    rng = np.random.default_rng(0)
    for _ in range(20):
        with torch.no_grad():
            q.mean.copy_(mean + 0.01 * torch.as_tensor(rng.normal(size=mean.shape)))
            q.root.copy_(root + 0.01 * torch.as_tensor(rng.normal(size=root.shape)).tril())
        assert bound_of_posterior() < best


@pytest.mark.parametrize("link", ["probit", "logit"])
def test_one_row_by_brute_force(link):
    """All Gaussians over a single latent value, with integrals by equal steps."""
    likelihood = Bernoulli(link).with_values(n_nodes=60)
    model = make_model(np.zeros((1, 2)), likelihood, 1)
    model.layers[0].jitter = 0.0
    value = value_of(model, everything(np.zeros((1, 2)), np.ones((1, 1))))
    variance = 3.0
    log_p = log_ndtr if link == "probit" else log_expit
    z, step = np.linspace(-12.0, 12.0, 2001, retstep=True)
    shares = norm.pdf(z) * step

    def negative_bound(parameters):
        m, s = parameters[0], np.exp(parameters[1])
        ell = shares @ log_p(m + s * z)
        return 0.5 * (s**2 / variance + m**2 / variance - 1 - np.log(s**2 / variance)) - ell

    found = minimize(negative_bound, [0.0, 0.0], method="Nelder-Mead", options={"fatol": 1e-12})
    assert_allclose(value, -found.fun, atol=1e-8)
    evidence = shares @ np.exp(log_p(variance**0.5 * z))
    assert value < np.log(evidence) < value + 0.1


def fitted(model, batch):
    """With the posterior for the hyperparameters as they are."""
    value_of(model, batch)
    model.accept()
    model.unsolved = batch
    return model


def test_rows_that_are_left_out_of_an_exact_gp(memory):
    """For Gaussian noise cavities are exact."""
    X, y = rows()
    batch = everything(X, y)
    model = fitted(make_model(X, Gaussian(np.array([0.3])), 1), batch)
    chosen = np.array([7, 3, 29, 0])
    with torch.no_grad():
        K = model.layers[0].kernel()(batch.X, batch.X).numpy() + 0.3 * np.eye(30)
    mean, var = leave_one_out(K, y[:, 0])
    expected = norm.logpdf(y[:, 0], mean, var**0.5)
    assert_allclose(posterior(model).loo_log_density(chosen), expected[chosen], rtol=1e-7)
    loaded = make_model(X, Gaussian(np.array([0.3])), 1)
    loaded.load_state(model.state())
    assert posterior(loaded).loo_log_density(chosen) is None  # it has not seen them


@pytest.mark.parametrize(("likelihood", "k"), [(Gaussian(np.array([0.3])), 1), (Softmax(), 3)])
def test_one_count_of_a_row_is_left_out(likelihood, k):
    X, y = rows()
    counts = np.ones(30)
    counts[[4, 9]] = 3.0
    merged, copies = everything(X, y, counts), np.repeat(np.arange(30), counts.astype(int))
    apart = everything(X[copies], y[copies])
    Z = X[:10] + 0.05
    one = posterior(fitted(make_model(Z, likelihood, k), merged)).loo_log_density(np.arange(30))
    other = posterior(fitted(make_model(Z, likelihood, k), apart)).loo_log_density(np.arange(34))
    assert_allclose(one[copies], other, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "part", "M"),
    [("probit", 0.1, 30), ("logit", 0.1, 6), ("softmax", 0.25, 6)],
)
def test_rows_that_are_left_out_are_unseen(name, part, M):
    """Against posteriors that were found without them: the rest is what other rows would change.

    Of several classes also what a row says of one through another.
    """
    model, X, y = case(name, M=M)
    batch = everything(X, y)
    densities = posterior(fitted(model, batch)).loo_log_density(np.arange(30))
    expected, seen = [], []
    for i in range(30):
        others = np.delete(np.arange(30), i)
        without, _, _ = case(name, M=M)
        for state, rows_of in ((expected, others), (seen, np.arange(30))):
            fitted(without, everything(X[rows_of], y[rows_of]))
            mean, var = latents(without, batch.X[i : i + 1])
            log_p = without.likelihood().log_partition(batch.y[i : i + 1], mean[0], var[0])
            state.append(float(log_p.detach()))
    flattery = np.mean(seen) - np.mean(expected)
    assert flattery > 0.05
    assert np.abs(densities - expected).mean() < part * flattery


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_weights_are_counts(name):
    model, X, y = case(name)
    counts = np.random.default_rng(1).integers(1, 4, len(X))
    weighted = value_of(model, everything(X, y, counts.astype(float)))
    repeated = value_of(model, everything(np.repeat(X, counts, 0), np.repeat(y, counts, 0)))
    assert_allclose(weighted, repeated, rtol=1e-9)


def test_steps_that_see_all_classes_need_fewer_rounds_to_the_same_optimum(monkeypatch, watch):
    calls, rounds, found = watch(ConcaveGP, "_look"), [], []
    for most in (concave._MOST_COUPLED, 0):
        monkeypatch.setattr(concave, "_MOST_COUPLED", most)
        model, X, y = case("softmax", n=60, M=20)
        with torch.no_grad():
            model.layers[0].kernel.assign(variance=30.0)
        calls.clear()
        value_of(model, everything(X, y))
        rounds.append(len(calls))
        found.append(model._found)
    for one, other in zip(*found):
        assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    assert 2 * rounds[0] < rounds[1] < concave._MOST


def test_rounds_end_with_the_time(watch):
    """One step has up to a hundred passes over all rows, which a limit of time does not wait for."""
    rounds = watch(ConcaveGP, "_look")
    model, X, y = case("softmax")
    model.limit(0.0, 0.0)
    assert np.isfinite(value_of(model, everything(X, y)))
    assert len(rounds) == 2
    model.accept()
    model.natural_parameters(everything(X, y))
    assert len(rounds) == 4


def test_start_does_not_matter():
    """The bound is concave: from a far posterior the same optimum is reached."""
    model, X, y = case("softmax")
    batch = everything(X, y)
    best = value_of(model, batch)
    rng = np.random.default_rng(0)
    M, k = model.layers[0].q.mean.shape
    B = torch.as_tensor(rng.normal(size=(k, M, M)))
    model._accepted = B @ B.mT + torch.eye(M), torch.as_tensor(5.0 * rng.normal(size=(k, M, 1)))
    assert_allclose(value_of(model, batch), best, rtol=1e-8)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_extreme_numbers(name):
    """Steps of size 1 that go too far are halved."""
    model, X, y = case(name, n=60, M=20)
    with torch.no_grad():
        model.layers[0].kernel.assign(variance=300.0, lengthscale=0.3)
    batch = everything(X, y)
    best = value_of(model, batch)
    assert np.isfinite(best)
    model.accept()
    assert_allclose(value_of(model, batch), best, rtol=1e-6)


def test_loss_is_the_bound_per_row():
    X, y = rows(80)
    model = DeepGPClassifier(1, inference="vfe", n_inducing=20, random_state=0).fit(X, y[:, 0])
    assert_allclose(model.lower_bound_, -model.loss_curve_[-1] * 80, rtol=1e-6)
    assert (np.diff(model.loss_curve_) <= 0.0).all()
    assert model.score(X, y[:, 0]) > 0.8


@pytest.mark.parametrize("n_classes", [3, 5])
def test_search_does_not_exploit_the_nodes_of_softmax(n_classes):
    """With 64 nodes the bound that was maximized was off by 1.4 of 23 nats for the iris flowers."""
    rng = np.random.default_rng(0)
    centers = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [4.0, 0.0]])[:n_classes]
    y = np.repeat(np.arange(n_classes), 30)
    X = centers[y] + 0.45 * rng.standard_normal((len(y), 2))
    model = SparseGPClassifier(n_inducing=20, max_iter=60, random_state=0).fit(X, y)
    net = model.members_[0].model("cpu")
    scaled = torch.tensor(model._x_scaler.transform(X))
    m, v = (part[0] for part in latents(net, scaled))
    assert v.max() > 5.0
    y = torch.tensor(y[:, None], dtype=torch.float64)
    used = float(net.divergence()) - model.loss_curve_[-1] * len(y)
    exact = Softmax(2**13).expected_log_prob(y, m, v).sum()
    assert_allclose(used, exact, atol=0.05)


@pytest.mark.parametrize(("n_classes", "most"), [(2, 300), (3, 100), (10, 50)])
def test_inducing_points_of_classes_stay_few(n_classes, most):
    """Natural gradients for as many as there are rows would take minutes to hours."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 2))
    y = np.digitize(X[:, 0], np.linspace(0.0, 1.0, n_classes + 1)[1:-1])
    model = DeepGPClassifier(1, inference="vfe", max_iter=1, random_state=0).fit(X, y)
    assert len(model.inducing_inputs_[0]) == most
    few = DeepGPClassifier(1, inference="vfe", max_iter=1, random_state=0).fit(X[:40], y[:40])
    assert len(few.inducing_inputs_[0]) == 40


def test_many_columns_do_not_overfit_few_rows():
    """Of labels that are noise nothing is learned, and the bound knows nothing of the prior."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1100, 30)), rng.integers(0, 2, 1100)
    scheme = VFE(tol=1e-5, deviation=0.5)
    model = DeepGPClassifier(1, inference=scheme, kernel="anova", random_state=0)
    model.fit(X[:100], y[:100])
    assert -model.log_predictive_density(X[100:], y[100:]).mean() < np.log(2.0) + 0.02
    kernel, negative_log_prior = model.kernels_[0], 0.0
    for numbers in np.log([kernel.lengthscale, kernel.strength]):
        negative_log_prior += np.log1p(((numbers - numbers.mean()) / 0.5) ** 2).sum()
    assert_allclose(
        -100.0 * model.loss_curve_[-1], model.lower_bound_ - negative_log_prior, rtol=1e-4
    )
