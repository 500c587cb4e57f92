"""Training, predictions, functions and states of kernel processes."""

import numpy as np
import pytest
import torch
from scipy import stats
from toys import architecture, classes_of, everything, posterior, run, seeded, toy

from skdgp.gp.likelihoods import Bernoulli, Gaussian, HeteroscedasticGaussian, Softmax, StudentT
from skdgp.inference import NNGP, DeepInverseWishart, GlobalInducing

SCHEMES = {
    "diwp": DeepInverseWishart(),
    "nngp": NNGP(exact=False),
    "exact": NNGP(exact=True),
    "global": GlobalInducing(),
}
every_scheme = pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)


def build(scheme, X, n_latents=1, n_layers=3, likelihood=None, kernel="squared_exponential"):
    shape = architecture((2,) * (n_layers - 1), n_latents, 8, kernel)
    likelihood = Gaussian(np.full(n_latents, 0.1)) if likelihood is None else likelihood
    model = scheme.build(shape, likelihood)
    model.start(X.numpy(), np.ones(len(X)), np.random.RandomState(0))
    model.prepare(0.01, torch.float64)
    return model


def trained(scheme, n_steps=20, **shape):
    X, y = toy(40)
    model = build(scheme, X, **shape)
    return model, X, y, run(model, everything(X, y), n_steps, seeded())


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
    batch = everything(X, classes_of(y, likelihood))
    scheme = scheme.for_data(40, likelihood=likelihood)
    model = build(scheme, X, n_latents, likelihood=likelihood, n_layers=2)
    losses = run(model, batch, 40, seeded())
    assert np.mean(losses[-5:]) < losses[0] - 0.05
    frozen = posterior(model, 16)
    latent = frozen.latent(X)
    density = frozen.likelihood.log_partition(batch.y, latent.mean, latent.var)
    density = torch.logsumexp(latent.log_weights[:, None] + density, 0)
    assert density.mean() > -losses[0]


@every_scheme
def test_functions_are_consistent_over_all_rows_ever_asked_for(scheme):
    model, X, *_ = trained(scheme)
    frozen = posterior(model)
    f = frozen.functions(5, seeded())
    mean, deviation = f(X)
    assert mean.shape == deviation.shape == (5, 40, 1)
    f(X + 1.0)
    for again in (f(X[3:9]), frozen.functions(5, seeded())(X[3:9])):
        np.testing.assert_allclose(again[0], mean[:, 3:9], rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(again[1], deviation[:, 3:9], rtol=1e-6, atol=1e-7)


@every_scheme
def test_draws_are_few_numbers(scheme):
    """A seed, a number and the count, not values for each row; fewer draws are the first ones."""
    model, X, *_ = trained(scheme)
    draws = model.draws(16, 0)
    assert draws.shape[1] <= 3
    few, many = (model.posterior(part).latent(X).mean for part in (draws[:8], draws))
    np.testing.assert_allclose(few, many[: len(few)], rtol=1e-10, atol=1e-12)


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


@pytest.mark.parametrize("scheme", [SCHEMES["diwp"], SCHEMES["nngp"], SCHEMES["global"]])
def test_the_divergence_is_that_of_the_bound(scheme):
    model, X, y, _ = trained(scheme)
    posterior = model.posterior(model.draws(256, 0))
    latent = posterior.latent(X)
    with torch.no_grad():
        ell = posterior.likelihood.expected_log_prob(y, latent.mean, latent.var).mean(0).sum()
        model.n_draws = 256
        bound = model.expected_log_likelihood(everything(X, y), seeded())
    assert abs(ell - model.divergence() - bound) < 0.05 * abs(bound) + 2.0


def test_exact_nngp_is_for_all_rows_at_once():
    X, y = toy(10)
    model = build(NNGP(exact=True), X)
    with pytest.raises(ValueError, match=r"exact=True.*all rows in every step"):
        model.step(everything(X, y)._replace(scale=2.0, total=20.0), None)


def test_nngp_chooses_by_the_number_of_rows():
    assert NNGP().for_data(500).exact
    assert not NNGP().for_data(1e5).exact
    assert not NNGP().for_data(500, n_classes=2).exact
    assert not NNGP().for_data(500, likelihood=StudentT()).exact
    with pytest.raises(ValueError, match=r"exact=True.* is for Gaussian noise; got StudentT"):
        NNGP(exact=True).for_data(500, likelihood=StudentT())
    assert NNGP(exact=True).for_data(5000).batch_size(5000) == 5000
