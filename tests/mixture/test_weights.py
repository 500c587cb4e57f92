"""Shares of models in a mixture."""

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.stats import norm

from skdgp.mixture.weights import best_dispersion, stack, trust


def densities(n=3000):
    y = np.random.default_rng(0).standard_normal(n) * np.where(np.arange(n) % 4, 1.0, 3.0)
    return np.stack([norm(0.0, 1.0).logpdf(y), norm(0.0, 3.0).logpdf(y)])


def test_shares_maximize_the_density_of_the_mixture():
    log_p = densities()

    def loss(share):
        prior = 5.0 * (np.log(share) + np.log(1.0 - share))  # ten rows for equal shares
        return -np.logaddexp(np.log(share) + log_p[0], np.log(1.0 - share) + log_p[1]).sum() - prior

    best = minimize_scalar(loss, bounds=(1e-6, 1.0 - 1e-6), method="bounded").x
    shares = stack(log_p, np.ones(log_p.shape[1]))
    assert_allclose(shares, [best, 1.0 - best], atol=1e-5)
    assert_allclose(shares[0], 0.75, atol=0.06)  # two standard errors of 3,000 rows


def test_shares_with_limits_maximize_it_too():
    rng = np.random.default_rng(0)
    log_p = rng.standard_normal((4, 200)) + np.array([[1.0], [0.2], [0.4], [0.0]])
    weights, most = rng.uniform(0.5, 2.0, 200), np.array([0.25, 0.3, 1.0, 1.0])

    def loss(shares):
        prior = 10.0 / 4 * np.log(shares).sum()
        return -(weights * np.log(shares @ np.exp(log_p))).sum() - prior

    best = minimize(
        loss,
        np.full(4, 0.25),
        bounds=[(1e-6, limit) for limit in most],
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1.0},
        options={"ftol": 1e-12, "maxiter": 1000},
    ).x
    assert_allclose(stack(log_p, weights, most), best, atol=1e-4)
    assert best[0] > 0.2499 and 0.05 < best[1] < 0.25  # one limit binds, the other does not


def test_limits_that_leave_no_choice():
    log_p = np.stack([np.zeros(90), np.full(90, -1.0), np.full(90, -9.0)])
    assert_allclose(stack(log_p, np.ones(90), [0.5, 0.3, 0.2]), [0.5, 0.3, 0.2])
    assert_allclose(stack(log_p, np.ones(90), [0.2, 0.3, 1.0]), [0.2, 0.3, 0.5])


def test_weights_are_counts():
    log_p = densities(60)
    counts = np.random.default_rng(1).integers(0, 4, 60)
    assert_allclose(
        stack(log_p, counts.astype(float)),
        stack(np.repeat(log_p, counts, 1), np.ones(counts.sum())),
    )


def test_no_rows_leave_equal_shares():
    assert_allclose(stack(np.zeros((3, 0)), np.zeros(0)), np.full(3, 1.0 / 3.0))


def test_a_model_that_is_never_right_has_a_share_of_the_prior():
    log_p = np.stack([np.zeros(90), np.full(90, -1000.0)])
    assert_allclose(stack(log_p, np.ones(90)), [0.95, 0.05])


# Models that have seen the rows


def test_a_model_that_knows_a_nat_more_than_all_others_loses_its_share():
    rng = np.random.default_rng(0)
    seen, honest = rng.standard_normal((2, 50))
    weights, knows = rng.uniform(0.5, 2.0, 50), np.array([True, True, False])
    shares = stack(np.stack([seen, honest]), weights)
    others = np.logaddexp(np.log(shares[0]) + seen, np.log(shares[1]) + honest)
    for excess, factor in [
        (-3.0, 1.0),
        (1.0, 1.0),
        (1.25, 0.5),
        (1.4, 0.2),
        (1.5, 0.01),
        (9.0, 0.01),
    ]:
        log_p = np.stack([others + excess, seen, honest])
        found = trust(log_p, weights, knows)
        assert_allclose(found, [factor, 1.0, 1.0], rtol=1e-9)
        log_p[0] += excess  # of two targets of each row
        assert_allclose(trust(log_p, weights, knows, n_outputs=2)[0], factor, rtol=1e-9)


def test_trust_counts_rows_by_their_weights():
    rng = np.random.default_rng(0)
    log_p = 0.3 * rng.standard_normal((3, 50))
    log_p[0] += np.linspace(0.0, 2.0, 50)
    counts, knows = np.repeat([1, 3], 25), np.array([True, True, False])
    once = np.repeat(log_p, counts, 1)
    found = trust(log_p, counts.astype(float), knows)
    assert_allclose(found, trust(once, np.ones(counts.sum()), knows))
    assert 0.02 < found[0] < 0.98


def test_a_model_is_not_mistrusted_for_what_another_of_its_kind_says_too():
    """A step that shallow models cannot have: the smoother deep one knows it as well."""
    log_p = np.stack([np.full(40, 2.3), np.full(40, 2.0), np.full(40, -1.0)])
    knows = np.array([True, True, False])
    assert_allclose(trust(log_p, np.ones(40), knows), 1.0)
    assert_allclose(trust(log_p[[0, 2]], np.ones(40), knows[[0, 2]]), 1.0)  # the only one


# Their spread

LOG_DISPERSIONS = 0.05 * np.arange(-14, 7)


def of_normals(y, centers, weights=None, shares=None):
    """The spread of unit normal distributions at some centers, (n_models, n_rows)."""
    scales = np.exp(LOG_DISPERSIONS)[:, None, None]
    log_p = norm(np.asarray(centers)[None], scales).logpdf(y)
    shares = np.full(len(centers), 1.0 / len(centers)) if shares is None else shares
    weights = np.ones(len(y)) if weights is None else weights
    return best_dispersion(log_p, shares, weights, LOG_DISPERSIONS)


def test_one_calibrated_model_stays_as_it_is():
    y = np.random.default_rng(0).standard_normal(20_000)
    assert abs(of_normals(y, np.zeros((1, 20_000)))) < 0.021


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


def test_models_that_are_too_sure_are_widened():
    y = 1.2 * np.random.default_rng(0).standard_normal(20_000)
    assert_allclose(of_normals(y, np.zeros((1, 20_000))), np.log(1.2), atol=0.025)


def test_a_spread_beyond_all_that_are_tried_is_the_last_of_them():
    errors = np.random.default_rng(0).standard_normal(2000)
    assert of_normals(3.0 * errors, np.zeros((1, 2000))) == LOG_DISPERSIONS[-1]
    assert of_normals(0.1 * errors, np.zeros((1, 2000))) == LOG_DISPERSIONS[0]


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
    log_p = norm(0.0, np.exp(LOG_DISPERSIONS)[:, None, None]).logpdf(np.full((1, 30), 0.2))
    assert best_dispersion(log_p, np.ones(1), np.ones(30), LOG_DISPERSIONS) < 0.0
    for value in (np.nan, -np.inf):
        log_p[3, 0, 5] = value
        assert best_dispersion(log_p, np.ones(1), np.ones(30), LOG_DISPERSIONS) == 0.0
