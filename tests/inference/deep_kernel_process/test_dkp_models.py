"""Training, predictions, functions and states of kernel processes."""

import pickle

import numpy as np
import pytest
import torch
from scipy import stats
from toys import seeded, toy

from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import (
    Bernoulli,
    Gaussian,
    HeteroscedasticGaussian,
    Softmax,
    StudentT,
)
from skdgp.inference import NNGP, DeepInverseWishart, GlobalInducing
from skdgp.inference.base import Architecture
from skdgp.inference.batch import Batch

pytestmark = pytest.mark.usefixtures("no_global_randomness")
SCHEMES = {
    "diwp": DeepInverseWishart(),
    "nngp": NNGP(exact=False),
    "exact": NNGP(exact=True),
    "global": GlobalInducing(),
}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)


def build(
    scheme, X, n_latents=1, n_layers=3, likelihood=None, kernel="squared_exponential", **shape
):
    a = Architecture(
        X.shape[1], (2,) * (n_layers - 1), n_latents, 8, [], shape.get("linear_mean", True), False
    )
    a.kernels = [as_kernel(kernel).bind(n) for n in a.layer_inputs()]
    model = scheme.build(a, Gaussian(np.full(n_latents, 0.1)) if likelihood is None else likelihood)
    model.start(X.numpy(), np.ones(len(X)), np.random.RandomState(0))
    model.prepare(0.01, torch.float64)
    return model


def full(X, y):
    return Batch(X, y, torch.ones(len(X)).double(), 1.0, float(len(X)))


def trained(scheme, n_steps=20, k=1, **shape):
    X, y = toy(40, k=k)
    model, generator = build(scheme, X, k, **shape), seeded()
    losses = [model.step(full(X, y), generator) for _ in range(n_steps)]
    return model, X, y, losses


@every_scheme
@pytest.mark.parametrize(
    ("kernel", "n_layers"), [("squared_exponential", 1), ("arc_cosine", 3), ("matern12", 2)]
)
def test_training_lowers_the_loss(scheme, kernel, n_layers):
    model, X, *_, losses = trained(scheme, 50, kernel=kernel, n_layers=n_layers)
    assert np.isfinite(losses).all()
    assert np.mean(losses[-5:]) < losses[0] - 0.1
    latent = model.posterior(model.draws(8, 0)).latent(X)
    assert torch.isfinite(latent.mean).all() and (latent.var > 0.0).all()


@pytest.mark.parametrize("scheme", [SCHEMES["diwp"], SCHEMES["global"], NNGP()])
@pytest.mark.parametrize(
    ("likelihood", "n_latents"),
    [
        (Gaussian(np.full(2, 0.1)), 2),
        (HeteroscedasticGaussian(np.array([0.1])), 2),
        (StudentT(np.array([4.0]), np.array([0.3])), 1),
        (Bernoulli(), 1),
        (Softmax(), 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_likelihoods(scheme, likelihood, n_latents):
    X, y = toy(40, k=2 if isinstance(likelihood, Gaussian) else 1)
    if isinstance(likelihood, (Bernoulli, Softmax)):
        y = (y > 0.0).double() + (y > 1.0 if isinstance(likelihood, Softmax) else 0.0)
    scheme = scheme.for_data(40, likelihood=likelihood)
    model, generator = build(scheme, X, n_latents, likelihood=likelihood, n_layers=2), seeded()
    losses = [model.step(full(X, y), generator) for _ in range(40)]
    assert np.mean(losses[-5:]) < losses[0] - 0.05
    posterior = model.posterior(model.draws(16, 0))
    latent = posterior.latent(X)
    density = posterior.likelihood.log_partition(y, latent.mean, latent.var)
    density = torch.logsumexp(latent.log_weights[:, None] + density, 0)
    assert density.mean() > -losses[0]


@every_scheme
def test_rows_do_not_depend_on_other_rows(scheme):
    model, X, *_ = trained(scheme)
    posterior = model.posterior(model.draws(8, 0))
    _, mean, var = posterior.latent(X)
    for i in (0, 7):
        own = posterior.latent(X[i : i + 1])
        np.testing.assert_allclose(own.mean[:, 0], mean[:, i], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(own.var[:, 0], var[:, i], rtol=1e-8)


@every_scheme
def test_functions_are_consistent_over_all_rows_ever_asked_for(scheme):
    model, X, *_ = trained(scheme)
    posterior = model.posterior(model.draws(8, 0))
    f = posterior.functions(5, seeded())
    mean, deviation = f(X)
    assert mean.shape == deviation.shape == (5, 40, 1)
    f(X + 1.0)
    for again in (f(X[3:9]), posterior.functions(5, seeded())(X[3:9])):
        np.testing.assert_allclose(again[0], mean[:, 3:9], rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(again[1], deviation[:, 3:9], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("scheme", "kernel"),
    [
        *((scheme, "squared_exponential") for scheme in SCHEMES.values()),
        (SCHEMES["diwp"], "arc_cosine"),
    ],
)
def test_functions_have_the_distribution_of_each_row(scheme, kernel):
    model, X, *_ = trained(scheme, 40, kernel=kernel)
    posterior = model.posterior(model.draws(256, 0))
    posterior.n_features = 16
    rows = torch.cat([X[:2], 3.0 * X[:1]])
    mean, deviation = posterior.functions(1024, seeded())(rows)
    latent = posterior.latent(rows)
    for i in range(3):
        center, sd = latent.mean[:, i, 0].numpy(), latent.var[:, i, 0].sqrt().numpy()

        def cdf(f, center=center, sd=sd):
            return stats.norm(center, sd).cdf(np.asarray(f)[..., None]).mean(-1)

        assert stats.kstest((mean + deviation)[:, i, 0].numpy(), cdf).pvalue > 1e-3


def test_functions_have_the_covariance():
    model, X, *_ = trained(SCHEMES["nngp"])
    posterior = model.posterior(model.draws(1, 0))
    posterior.n_features = 64
    rows = torch.cat([X[:3], X[:3] + 0.5])
    mean, deviation = posterior.functions(1000, seeded())(rows)
    K = posterior.covariance(rows)[0]
    np.testing.assert_allclose(
        torch.cov((mean + deviation)[..., 0].T), K, atol=0.15 * float(K.max())
    )


@every_scheme
def test_states_are_plain_and_predict_the_same(scheme):
    model, X, *_ = trained(scheme, k=2)
    twin = build(scheme, X, 2)
    twin.load_state(pickle.loads(pickle.dumps(model.state())))
    draws = model.draws(8, 0)
    for a, b in zip(model.posterior(draws).latent(X), twin.posterior(draws).latent(X)):
        np.testing.assert_array_equal(a, b)
    assert draws.shape[1] <= 3  # a seed, a number and the count, not values for each row


@every_scheme
def test_training_goes_on_exactly_where_it_was_killed(scheme):
    model, X, y, _ = trained(scheme)
    twin = build(scheme, X)
    twin.load_state(model.state()), twin.load_training_state(model.training_state())
    for a, b in (
        (model.step(full(X, y), seeded(1)), twin.step(full(X, y), seeded(1))) for _ in range(3)
    ):
        assert a == b


@every_scheme
def test_a_prediction_changes_nothing(scheme):
    model, X, y, _ = trained(scheme)
    posterior = model.posterior(model.draws(8, 0))
    before = posterior.latent(X).mean
    model.step(full(X, y), seeded())
    model.posterior(model.draws(8, 3)).functions(2, seeded())(X)
    assert torch.equal(posterior.latent(X).mean, before)


def test_fewer_draws_are_the_first_ones():
    model, X, *_ = trained(SCHEMES["diwp"])
    draws = model.draws(16, 0)
    few, many = model.posterior(draws[:8]), model.posterior(draws)
    np.testing.assert_allclose(few.latent(X).mean, many.latent(X).mean[:8], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("scheme", [SCHEMES["diwp"], SCHEMES["nngp"], SCHEMES["global"]])
def test_the_divergence_is_that_of_the_bound(scheme):
    model, X, y, _ = trained(scheme)
    posterior = model.posterior(model.draws(256, 0))
    latent = posterior.latent(X)
    with torch.no_grad():
        ell = posterior.likelihood.expected_log_prob(y, latent.mean, latent.var).mean(0).sum()
        model.n_draws = 256
        bound = model.expected_log_likelihood(full(X, y), seeded())
    assert abs(ell - model.divergence() - bound) < 0.05 * abs(bound) + 2.0


def test_exact_nngp_is_for_all_rows_at_once():
    X, y = toy(10)
    model = build(NNGP(exact=True), X)
    with pytest.raises(ValueError, match=r"exact=True.*all rows in every step"):
        model.step(Batch(X, y, torch.ones(10).double(), 2.0, 20.0), None)


def test_nngp_chooses_by_the_number_of_rows():
    assert NNGP().for_data(500).exact
    assert not NNGP().for_data(1e5).exact
    assert not NNGP().for_data(500, n_classes=2).exact
    assert not NNGP().for_data(500, likelihood=StudentT()).exact
    with pytest.raises(ValueError, match=r"exact=True.* is for Gaussian noise; got StudentT"):
        NNGP(exact=True).for_data(500, likelihood=StudentT())
    assert NNGP(exact=True).for_data(5000).batch_size(5000) == 5000
