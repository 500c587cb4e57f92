"""Elliptical slices under every likelihood, against importance sampling on six rows in plain numpy."""

import numpy as np
import pytest
import torch
from scipy import special
from six_rows import NOISES, REAL, X
from test_slice_posteriors import make
from toys import run

from skdgp.gp.likelihoods import Gaussian, HeteroscedasticStudentT, StudentT

N_DRAWS = 40_000


def values(v, H, lengthscale, variance, n_neighbors):
    """Values (n, 6, k) at inputs H (n or 1, 6, d), and their covariances given n_neighbors=None."""
    K = ((H[:, :, None] - H[:, None]) / lengthscale[:, None, None, :]) ** 2
    K = variance[:, None, None] * np.exp(-0.5 * K.sum(-1)) + 1e-6 * np.eye(len(X))
    if n_neighbors is None:
        return np.linalg.cholesky(K) @ v, K
    F = np.empty(v.shape)
    for i in range(len(X)):  # given the nearest rows before it
        near = np.argsort(np.abs(X[:i, 0] - X[i, 0]))[:n_neighbors]
        b = np.linalg.solve(K[:, near][:, :, near], K[:, near, i, None])[..., 0]
        var = K[:, i, i] - (b * K[:, near, i]).sum(1)
        F[:, i] = (b[..., None] * F[:, near]).sum(1) + np.sqrt(var)[:, None] * v[:, i]
    return F, None


def by_importance(noise, depth, sampled, n_neighbors):
    """Posterior means of the last layer's values, of means of targets, and of hyperparameters, with errors."""
    _, _, k, centers, log_density, mean = NOISES[noise]
    rng, n = np.random.default_rng(0), N_DRAWS
    z = rng.standard_normal((n, depth + 1 + len(centers))) * sampled
    H, variance = X[None], np.exp(z[:, depth])
    for i in range(depth):
        last = i == depth - 1
        v = rng.standard_normal((n, 6, k if last else 1))
        size = variance if last else np.ones(n)
        H, K = values(v, H, np.exp(z[:, i : i + 1]), size, n_neighbors)
    F, z[:, depth + 1 :] = H, 2.0 * z[:, depth + 1 :]
    given = np.exp(centers + z[:, depth + 1 :]).T[:, :, None]
    if noise == "gaussian":  # the last layer is integrated out: small noise has few draws
        E = K - 1e-6 * np.eye(6) + (1e-6 + given[0])[:, :, None] * np.eye(6)
        a = np.linalg.solve(E, np.tile(REAL[:, None], (n, 1, 1)))
        log_weights = -0.5 * (REAL @ a)[:, 0] - 0.5 * np.linalg.slogdet(E)[1]
        F = K @ a
    else:
        log_weights = log_density(F, *given).sum(1)
    found = np.concatenate([F.reshape(n, -1), mean(F, *given), z], 1)
    weights = np.exp(log_weights - special.logsumexp(log_weights))
    expected = weights @ found
    return expected, np.sqrt(np.square(weights) @ np.square(found - expected))


@pytest.mark.parametrize(
    ("noise", "depth", "how", "n_neighbors"),
    [
        *((noise, 1, "sample", None) for noise in NOISES if noise != "gaussian"),
        *((noise, 2, "sample", None) for noise in ("gaussian", "poisson", "heteroscedastic t")),
        ("softmax", 2, "fixed", None),
        ("negative binomial", 1, "sample", 2),
    ],
)
def test_chains_agree_with_importance_sampling(noise, depth, how, n_neighbors):
    likelihood, y, k, *_ = NOISES[noise]
    likelihood = likelihood.bind(y[:, None], np.ones(6), np.ones(1))
    model, batch = make(
        X, y[:, None], (1,) * (depth - 1), likelihood, hyperparameters=how, n_chains=60,
        n_samples=600, n_burn_in=60, spacing=3, n_neighbors=n_neighbors, n_latents=k,
    )  # fmt: skip
    run(model, batch, 60 + 10 * 3)
    posterior = model.posterior(model.draws(1, 0))
    mean, var = posterior.latent(batch.X)[1:]
    likelihood = posterior.likelihood_of()
    if likelihood.is_class:
        of_rows = likelihood.log_probabilities(mean, var).exp().reshape(600, 6, -1)[..., -1]
    else:
        of_rows = likelihood.moments(mean, var)[0][..., 0]
    hyper = model.logarithms
    hyper = model.states()["phi"] - hyper.center
    found = torch.cat([mean.flatten(1), of_rows, hyper], 1).unflatten(0, (60, -1)).numpy()
    expected, error = by_importance(noise, depth, how == "sample", n_neighbors)
    expected, error = expected[: found.shape[-1]], error[: found.shape[-1]]
    means = found.mean(1)
    z = (means.mean(0) - expected) / np.sqrt(means.var(0, ddof=1) / 60 + error**2)
    assert np.abs(z).max() < 4.5  # of some twenty


def test_each_state_has_its_own_likelihood():
    y = REAL[:, None]
    for likelihood in (HeteroscedasticStudentT(4.1, 0.4), StudentT(4.0, 0.4), Gaussian(0.3)):
        model, batch = make(
            X, y, (), likelihood.bind(y, np.ones(6), np.ones(1)), hyperparameters="sample",
            n_chains=2, n_samples=6, n_burn_in=3, spacing=1, n_latents=likelihood.n_latents(1),
        )  # fmt: skip
        run(model, batch, 6)
        posterior = model.posterior(model.draws(1, 0))
        _, mean, var = posterior.latent(batch.X)
        whole = posterior.likelihood_of()
        functions = posterior.functions(6, torch.Generator().manual_seed(0))
        phi = model.states()["phi"]
        for s, state in enumerate(functions.components.tolist()):
            own = model.logarithms.components(phi[state])[1]
            drawn = posterior.likelihood_of(functions.components)
            for name in own._positive:
                np.testing.assert_allclose(getattr(drawn, name)[s, 0], getattr(own, name))
            of_state = slice(state, state + 1)
            for method in ("log_partition", "cdf"):
                both = (
                    getattr(one, method)(batch.y, mean[which], var[which])
                    for one, which in ((whole, slice(None)), (own, of_state))
                )
                every, alone = both
                np.testing.assert_allclose(every[of_state], alone, rtol=1e-5, atol=1e-7)
