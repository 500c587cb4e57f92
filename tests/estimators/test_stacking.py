"""Shares of models in a mixture."""

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import norm

from skdgp.estimators.stacking import stack


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
