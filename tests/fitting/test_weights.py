"""Shares of models in a mixture."""

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from skdgp.fitting.weights import LOG_DISPERSIONS, best_dispersion, mixed, mixture_weights, stack


def densities(n=3000):
    y = np.random.default_rng(0).standard_normal(n) * np.where(np.arange(n) % 4, 1.0, 3.0)
    return np.stack([norm(0.0, 1.0).logpdf(y), norm(0.0, 3.0).logpdf(y)])


def test_shares_maximize_the_density_of_the_mixture():
    log_p = densities()

    def loss(share):
        prior = np.log(share) + np.log(1.0 - share)  # two rows for equal weights
        return -np.logaddexp(np.log(share) + log_p[0], np.log(1.0 - share) + log_p[1]).sum() - prior

    best = minimize_scalar(loss, bounds=(1e-6, 1.0 - 1e-6), method="bounded").x
    shares = stack(log_p, np.ones(log_p.shape[1]))
    assert_allclose(shares, [best, 1.0 - best], atol=1e-5)
    assert_allclose(shares[0], 0.75, atol=0.06)  # two standard errors of 3,000 rows


def test_weights_are_counts():
    log_p = densities(60)
    counts = np.random.default_rng(1).integers(0, 4, 60)
    repeated = stack(np.repeat(log_p, counts, 1), np.ones(counts.sum()))
    assert_allclose(stack(log_p, counts.astype(float)), repeated)


def test_a_model_that_is_never_right_has_a_share_of_the_prior():
    """Without any rows, all shares are equal."""
    assert_allclose(stack(np.zeros((3, 0)), np.zeros(0)), np.full(3, 1.0 / 3.0))
    log_p = np.stack([np.zeros(90), np.full(90, -1000.0)])
    assert_allclose(stack(log_p, np.ones(90)), [91.0 / 92.0, 1.0 / 92.0])


# Models that have seen the rows


def test_members_scored_on_other_rows_are_weighed_against_the_mixture_of_the_rest():
    """By brute force: the likelihood of the held-out rows, given the weights among the others."""
    rng = np.random.default_rng(0)
    loo, held = rng.standard_normal((2, 60)), rng.standard_normal((1, 20))
    counts = rng.uniform(0.5, 2.0, 60)
    found = mixture_weights(loo, counts, held, loo[:, :20], counts[:20])
    among = stack(loo, counts)
    both = np.logaddexp(np.log(among[0]) + loo[0, :20], np.log(among[1]) + loo[1, :20])
    outer = stack(np.stack([both, held[0]]), counts[:20])
    assert_allclose(found, [*(outer[0] * among), outer[1]])
    assert_allclose(mixed(loo[:, :20], among), both)
    nothing, among = np.empty((0, 20)), stack(loo, counts)
    assert_allclose(mixture_weights(loo, counts, nothing, loo[:, :20], counts[:20]), among)
    alone = mixture_weights(nothing, counts, loo[:, :20], nothing, counts[:20])
    assert_allclose(alone, stack(loo[:, :20], counts[:20]))


# Their spread


def of_normals(y, centers, weights=None):
    """The logarithm of the dispersion of unit normal distributions at some centers, (n_models, n_rows)."""
    log_p = norm(np.asarray(centers)[None], np.exp(LOG_DISPERSIONS)[:, None, None]).logpdf(y)
    log_p = mixed(log_p, np.full(len(centers), 1.0 / len(centers)))
    return np.log(best_dispersion(log_p, np.ones(len(y)) if weights is None else weights))


def test_models_that_disagree_are_narrowed():
    """Of y ~ N(a + b, 1), each model knows one of a and b: N(a, 2) has the right width, but not both."""
    rng = np.random.default_rng(0)
    known = 0.7 * rng.standard_normal((2, 20_000))
    own = np.sqrt(1.0 + 0.49)
    y = (known.sum(0) + rng.standard_normal(20_000)) / own

    def loss(log_dispersion):
        log_p = norm(known / own, np.exp(log_dispersion)).logpdf(y)
        return -np.logaddexp.reduce(log_p).sum() + 0.5 * (log_dispersion / 0.05) ** 2

    best = minimize_scalar(loss, bounds=(-0.7, 0.3), method="bounded").x
    assert best < -0.04
    assert_allclose(of_normals(y, known / own), best, atol=0.002)  # a parabola, on steps of .05


def test_one_model_is_as_wide_as_its_errors():
    """A calibrated one stays; a spread beyond all that are tried is the last of them."""
    errors = np.random.default_rng(0).standard_normal(20_000)
    for size, expected, atol in (
        (1.0, 0.0, 0.021),
        (1.2, np.log(1.2), 0.025),
        (3.0, LOG_DISPERSIONS[-1], 1e-9),
        (0.1, LOG_DISPERSIONS[0], 1e-9),
    ):
        assert_allclose(of_normals(size * errors, np.zeros((1, 20_000))), expected, atol=atol)


def test_few_rows_change_little():
    """The prior of the logarithm is normal with a standard deviation of .05: 400 rows balance it."""
    for n in (2, 40, 400):
        y = np.tile([0.1, -0.1], n // 2)
        zero = brentq(lambda s, n=n: -n + 0.01 * n * np.exp(-2.0 * s) - s / 0.05**2, -1.0, 0.0)
        assert_allclose(of_normals(y, np.zeros((1, n))), max(zero, -0.7), atol=0.005)


def test_weights_count_rows():
    rng = np.random.default_rng(0)
    y, counts = 0.8 * rng.standard_normal(50), rng.integers(1, 4, 50)
    weighted = of_normals(y, np.zeros((1, 50)), weights=counts)
    again = np.repeat(y, counts)
    assert_allclose(weighted, of_normals(again, np.zeros((1, len(again)))))


def test_densities_that_are_not_finite_change_nothing():
    log_p = norm(0.0, np.exp(LOG_DISPERSIONS)[:, None]).logpdf(np.full((1, 30), 0.2))
    assert best_dispersion(log_p, np.ones(30)) < 1.0
    for value in (np.nan, -np.inf):
        log_p[3, 5] = value
        assert best_dispersion(log_p, np.ones(30)) == 1.0
