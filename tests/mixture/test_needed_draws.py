"""Members of a mixture keep as many draws as their densities need."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest

from skdgp import DeepGPRegressor
from skdgp.estimators.fitting import log_densities_of_draws
from skdgp.estimators.scored import errors_of_draws
from skdgp.inference import DSVI
from skdgp.mixture.predictive import Predictive

pytestmark = pytest.mark.usefixtures("no_global_randomness")


@pytest.fixture(scope="module")
def single():
    """A member with draws that matter, and its rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (60, 2))
    y = np.sign(X[:, 0]) + 0.05 * rng.standard_normal(60)
    scheme = DSVI(inner_scale=1.0, inner_variance=1.0)
    model = DeepGPRegressor(
        inference=scheme, max_iter=30, random_state=0, target_transform=None
    ).fit(X, y)
    return (
        model.members_[0],
        2.0 * X,
        y[:, None],
    )  # beyond the training rows hidden layers are uncertain


def density(member, X, y, n=None):
    some = copy.deepcopy(member)
    if n is not None:
        some.draws = some.draws[:n]
        some.release()
    return Predictive([some], X, "cpu").log_density(y)


def error(member, X, y, n):
    """Root mean square of the difference that fewer draws make."""
    return np.sqrt(np.square(density(member, X, y, n) - density(member, X, y)).mean())


def errors(member, X, y):
    """Those of all numbers of draws, from the densities of single draws."""
    singles = []
    for draw in member.draws:
        some = copy.deepcopy(member)
        some.draws = draw[None]
        some.release()
        singles.append(Predictive([some], X, "cpu").log_density(y))
    return errors_of_draws(np.stack(singles))


def test_errors_are_those_of_fewer_draws(single):
    member, X, y = single
    found = errors(member, X, y)
    expected = [error(member, X, y, n) for n in (1, 8, 32)]
    np.testing.assert_allclose(found[[0, 7, 31]], expected, rtol=1e-6)
    assert found[-1] == 0.0


@pytest.mark.parametrize("weight", [0.03, 0.3, 1.0])
def test_the_fewest_whose_densities_agree(single, weight):
    member, X, y = single
    some = copy.deepcopy(member)
    some.mixture_weight = weight
    n = len(some.with_needed_draws(errors(member, X, y)).draws)
    assert n in (8, 16, 32, 64)
    np.testing.assert_array_equal(some.draws, member.draws[:n])
    assert weight * error(member, X, y, n) <= 0.01
    assert n == 8 or weight * error(member, X, y, n // 2) > 0.01


def test_more_weight_needs_more_draws(single):
    member, X, y = single
    kept = []
    for weight in (0.001, 1.0):
        some = copy.deepcopy(member)
        some.mixture_weight = weight
        kept.append(len(some.with_needed_draws(errors(member, X, y)).draws))
    assert kept[0] == 8 < kept[1]


def test_draws_stay_where_errors_are_unknown_or_no_numbers(single):
    member, *_ = single
    for unknown in (None, np.full(64, np.nan)):
        some = copy.deepcopy(member)
        some.mixture_weight = 0.5
        assert len(some.with_needed_draws(unknown).draws) == 64


def test_held_out_densities_are_those_of_the_member(single):
    member, X, y = single
    rows = SimpleNamespace(take=lambda _: (X, y, None))
    of_draws = log_densities_of_draws(member, rows, "cpu")
    np.testing.assert_allclose(np.logaddexp.reduce(of_draws), density(member, X, y), rtol=1e-10)
