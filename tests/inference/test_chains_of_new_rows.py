"""Chains of every likelihood, against importance sampling of three new rows in plain numpy."""

import functools

import numpy as np
import pytest
import torch
from scipy import special
from six_rows import NOISES, X
from sklearn.utils import check_random_state
from toys import architecture, everything

from skdgp.gp.kernels import SquaredExponential
from skdgp.inference import SGHMC, EllipticalSlice

NEW = np.array([[-0.8], [0.4], [2.5]])  # two among the rows, one beyond
N_CHAINS, N_STATES = 60, 20
KEPT = {"n_chains": N_CHAINS, "n_samples": N_CHAINS * N_STATES}
SCHEMES = {  # without hidden layers; inducing inputs of the second one are the rows
    "ess": EllipticalSlice(2, "fixed", n_burn_in=100, spacing=8, **KEPT),
    # variances are too large by a quarter of the step
    "sghmc": SGHMC(step_size=0.02, n_learn=0, n_burn_in=400, spacing=40, **KEPT),
}


def variance_of(likelihood):
    """Variance of functions: classes shall differ clearly."""
    return 4.0 if likelihood.is_class else 1.0


def means_of(noise, f):
    """Means of targets given f (n, rows, latents), or probabilities of all classes."""
    centers, mean = NOISES[noise][3], NOISES[noise][5]
    if noise == "softmax":
        return special.softmax(f, -1)
    if noise == "robust-max":
        return np.where(np.arange(3) == f.argmax(-1)[..., None], 0.95, 0.025)
    p = mean(f, *np.exp(centers))[..., None]
    return np.concatenate([1.0 - p, p], -1) if noise == "bernoulli" else p


@functools.cache
def by_importance(noise, n_draws=2_000_000, at_once=100_000):
    """Posterior means at new rows by draws of the joint prior, with standard errors."""
    likelihood, _, k, centers, log_density, _ = NOISES[noise]
    rng, rows = np.random.default_rng(0), np.concatenate([X, NEW])
    K = variance_of(likelihood) * np.exp(-0.5 * (rows - rows.T) ** 2)
    root = np.linalg.cholesky(K + 1e-9 * np.eye(9))
    weights, found = [], []
    for _ in range(n_draws // at_once):
        f = root @ rng.standard_normal((at_once, 9, k))
        weights.append(np.exp(log_density(f[:, :6], *np.exp(centers)).sum(1)))
        found.append(means_of(noise, f[:, 6:]))
    weights, found = np.concatenate(weights), np.concatenate(found)
    weights /= weights.sum()
    expected = np.einsum("n,nij->ij", weights, found)
    variance = np.einsum("n,nij->ij", np.square(weights), np.square(found - expected))
    return expected, np.sqrt(variance)


def of_chains(scheme, noise):
    """What each state of each chain says of the new rows, of shape (chains, states, rows, values)."""
    likelihood, y, k, *_ = NOISES[noise]
    likelihood = likelihood.bind(y[:, None], np.ones(6), np.ones(1))
    kernel = SquaredExponential(np.ones(1), variance_of(likelihood))
    shape = architecture((), k, 6, kernel, n_features=1, linear_mean=False)
    model = SCHEMES[scheme].build(shape, likelihood)
    model.start(X, np.ones(6), check_random_state(0))
    batch, generator = everything(X, y), torch.Generator().manual_seed(0)
    while not model.finished:
        model.step(batch, generator)
    posterior = model.posterior(model.draws(1, 0))
    likelihood = posterior.likelihood_of().finer(k)
    mean, var = posterior.latent(torch.as_tensor(NEW))[1:]
    if likelihood.is_class:
        found = likelihood.log_probabilities(mean, var).exp()
    else:
        found = likelihood.moments(mean, var)[0]
    return found.reshape(N_CHAINS, N_STATES, 3, -1).numpy()


@pytest.mark.parametrize(
    ("noise", "scheme"),
    [(n, s) for n in NOISES for s in SCHEMES if (n, s) != ("robust-max", "sghmc")],
)
def test_new_rows(noise, scheme):
    expected, error = by_importance(noise)
    means = of_chains(scheme, noise).mean(1)  # of chains that know nothing of each other
    z = (means.mean(0) - expected) / np.sqrt(means.var(0, ddof=1) / N_CHAINS + error**2)
    assert np.abs(z).max() < 4.0  # combined standard errors; of three to nine values


def test_steps_have_no_gradients():
    # chains by gradients of robust-max would stay near the prior: of the first row here, its class
    # would have a probability of .49 where .93 is right
    with pytest.raises(
        ValueError, match="SGHMC follows gradients of the likelihood, and RobustMax"
    ):
        of_chains("sghmc", "robust-max")
