"""Members of a mixture keep as many draws as their densities need."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

from skdgp import DeepGPRegressor
from skdgp.fitting.member_fit import log_densities_of_draws
from skdgp.fitting.stacking import errors_of_draws
from skdgp.inference import DSVI
from skdgp.predictive.mixture import Mixture

pytestmark = pytest.mark.usefixtures("no_global_randomness")


@pytest.fixture(scope="module")
def single():
    """A member with draws that matter, and its rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (60, 2))
    y = np.sign(X[:, 0]) + 0.05 * rng.standard_normal(60)
    settings = {"max_iter": 30, "random_state": 0, "target_transform": None}
    scheme = DSVI(inner_scale=1.0, inner_variance=1.0)
    model = DeepGPRegressor(inference=scheme, **settings).fit(X, y)
    # beyond the training rows hidden layers are uncertain
    return model.members_[0], 2.0 * X, y[:, None]


def density(member, X, y, draws=slice(None)):
    some = copy.deepcopy(member)
    some.draws = some.draws[draws]
    some.release()
    return Mixture([some], X, "cpu").log_prob(y).numpy(force=True)


def error(member, X, y, n):
    """Root mean square of the difference that fewer draws make."""
    return np.sqrt(np.square(density(member, X, y, slice(n)) - density(member, X, y)).mean())


@pytest.fixture(scope="module")
def errors(single):
    """Those of all numbers of draws, from the densities of single draws."""
    return errors_of_draws(np.stack([density(*single, [i]) for i in range(64)]))


def kept(member, weight, errors):
    some = copy.deepcopy(member)
    some.mixture_weight = weight
    return some.with_needed_draws(errors).draws


def test_errors_are_those_of_fewer_draws(single, errors):
    expected = [error(*single, n) for n in (1, 8, 32)]
    np.testing.assert_allclose(errors[[0, 7, 31]], expected, rtol=1e-6)
    assert errors[-1] == 0.0


@pytest.mark.parametrize("weight", [0.03, 0.3, 1.0])
def test_the_fewest_whose_densities_agree(single, errors, weight):
    draws = kept(single[0], weight, errors)
    n = len(draws)
    assert n in (8, 16, 32, 64)
    np.testing.assert_array_equal(draws, single[0].draws[:n])
    assert weight * error(*single, n) <= 0.01
    assert n == 8 or weight * error(*single, n // 2) > 0.01


def test_more_weight_needs_more_draws_and_unknown_errors_all(single, errors):
    assert len(kept(single[0], 0.001, errors)) == 8 < len(kept(single[0], 1.0, errors))
    for unknown in (None, np.full(64, np.nan)):
        assert len(kept(single[0], 0.5, unknown)) == 64


def test_held_out_densities_are_those_of_the_member(single):
    member, X, y = single
    rows = SimpleNamespace(take=lambda _: (X, y, None), noise=lambda: None)
    of_draws = log_densities_of_draws(member, rows, "cpu")
    np.testing.assert_allclose(np.logaddexp.reduce(of_draws), density(member, X, y), rtol=1e-10)
