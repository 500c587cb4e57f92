"""Effects of numbers that are taken from targets before levels get positions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdgp.preprocessing.adjustment import Adjustment
from skdgp.preprocessing.encoding import ColumnEncoder


def fitted(table, y):
    """Positions of a number and of levels."""
    kinds, weights = ["number", "category"], np.ones(len(y))
    return ColumnEncoder().fit(table, y, weights, kinds, np.random.RandomState(0))


def positions_of(encoder, n_levels):
    return encoder.transform(np.column_stack([np.zeros(n_levels), np.arange(float(n_levels))]))


def learned_later(table, y, n_old):
    """Levels beyond the first ones come in a second chunk."""
    old = table[:, 1] < n_old
    encoder = fitted(table[old], y[old])
    return encoder.with_levels(table[~old], y[~old], np.ones((~old).sum()))


def confounded(n=600, seed=0):
    """Levels with effects that the sizes of their rows hide, as those of diamonds."""
    rng = np.random.default_rng(seed)
    effects = np.array([-1.5, -0.5, 0.5, 1.5])
    level = rng.integers(0, 4, n)
    size = -effects[level] + rng.standard_normal(n)
    y = size + effects[level] + 0.3 * rng.standard_normal(n)
    table = np.column_stack([size, level.astype(float)])
    return table, ((y - y.mean()) / y.std())[:, None], effects


def test_effects_are_those_of_ridge_regression():
    table, y, _ = confounded()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    found = Adjustment().fit(table, np.array([False, True]), y, weights)
    mean = np.average(table[:, 0], weights=weights)
    x = (table[:, 0] - mean) / np.sqrt(np.average((table[:, 0] - mean) ** 2, weights=weights))
    design = np.column_stack([x, x**2, table[:, 1:] == np.arange(4.0)])
    root = np.sqrt(weights)[:, None]
    augmented = np.vstack([root * design, np.sqrt(6.0) * np.eye(6)])
    known = np.linalg.lstsq(augmented, np.append(root * y, np.zeros((6, 1)), 0))[0]
    rest = y - design[:, :2] @ known[:2]
    center = np.average(rest, weights=weights[:, None].repeat(1, 1), axis=0)
    scale = np.sqrt(np.average((rest - center) ** 2, weights=weights, axis=0))
    rest = (rest - center) / scale
    assert_allclose(found.remove(table, y), rest, rtol=1e-8, atol=1e-10)
    effects = design[:, :2] @ known[:2]
    effects -= np.average(effects, axis=0, weights=weights)
    effects /= np.sqrt(np.average(effects**2, axis=0, weights=weights))
    expected = np.clip(rest, -3.0, 3.0) * np.clip(effects, -3.0, 3.0)
    assert_allclose(found.slopes(table, rest), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("exponent", [-600, 600, 1020])
def test_numbers_may_have_any_unit(exponent):
    """Squares of them are no numbers; powers of two change no digit."""
    table, y, _ = confounded(60)
    far, is_level = table * [2.0**exponent, 1.0], np.array([False, True])
    expected = Adjustment().fit(table, is_level, y, np.ones(60)).remove(table, y)
    found = Adjustment().fit(far, is_level, y, np.ones(60)).remove(far, y)
    assert_array_equal(found, expected)


def test_positions_are_in_the_order_of_effects():
    """Mean targets of the levels agree, and their order is that of the noise."""
    table, y, effects = confounded()
    positions = positions_of(fitted(table, y), 4)[:, 1]
    assert abs(np.corrcoef(positions, effects)[0, 1]) > 0.99
    assert (np.diff(positions) * np.sign(positions[-1] - positions[0]) > 0.0).all()


def steeper(slopes, n=1200, seed=0):
    """Levels with the same mean, at which one number matters more or less."""
    rng = np.random.default_rng(seed)
    level, x = rng.integers(0, len(slopes), n), rng.standard_normal(n)
    y = (1.0 + slopes[level]) * x + 0.3 * rng.standard_normal(n)
    return np.column_stack([x, level.astype(float)]), ((y - y.mean()) / y.std())[:, None]


def test_levels_at_which_numbers_matter_more_have_a_second_position():
    """A closed form up to noise: at each level the mean product is the slope less the mean slope."""
    slopes = np.array([0.3, -0.8, 0.0, 0.8, -0.3])
    table, y = steeper(slopes)
    encoder = encoded = None
    for order in (np.arange(5), np.array([3, 0, 4, 1, 2])):  # of the levels, which does not matter
        known = table.copy()
        known[:, 1] = order[table[:, 1].astype(int)]
        again = fitted(known, y)
        rows = again.transform(np.column_stack([np.zeros(5), order]))
        if encoded is not None:
            assert_allclose(rows, encoded)
        encoder, encoded = again, rows
    assert encoder.suffixes == ["", "", " (slope)"]
    assert_array_equal(encoder.sources, [0, 1, 1])
    assert np.corrcoef(encoded[:, 2], slopes)[0, 1] > 0.99
    scale = np.sqrt(0.3**2 + (slopes**2).mean())  # of targets without what numbers explain
    assert_allclose(encoded[:, 2], slopes / scale, atol=0.2)
    versions, _ = encoder.versions(np.array([[0.0, -1.0]]))
    pairs = np.unique(versions[0, :, 1:], axis=0)  # an unseen level is like one of them in both
    assert_allclose(pairs, encoded[np.argsort(encoded[:, 1]), 1:])


def test_levels_at_which_numbers_matter_alike_have_one_position():
    for seed in range(20):
        table, y = steeper(np.zeros(5), seed=seed)
        y += np.cos(table[:, 1:])
        assert fitted(table, y).suffixes == ["", ""]


def test_new_levels_have_both_positions():
    slopes = np.array([0.3, -0.8, 0.0, 0.8, -0.3])
    positions = positions_of(learned_later(*steeper(slopes), 4), 5)
    assert np.corrcoef(positions[:, 2], slopes)[0, 1] > 0.99


def test_new_levels_are_placed_by_the_same_effects():
    table, y, effects = confounded()
    positions = positions_of(learned_later(table, y, 3), 4)[:, 1]
    assert abs(np.corrcoef(positions, effects)[0, 1]) > 0.98


def test_gaps_and_constant_columns_have_no_effect():
    table, y, _ = confounded(60)
    table = np.column_stack([table, np.ones(60), np.full(60, np.nan)])
    table[::7, 0] = np.nan
    adjustment = Adjustment().fit(table, np.array([False, True, False, False]), y, np.ones(60))
    rest = adjustment.remove(table, y)
    assert np.isfinite(rest).all()
    assert_allclose([rest.mean(), rest.std()], [0.0, 1.0], atol=1e-10)
    assert_allclose(
        np.diff(rest[::7], axis=0) * adjustment._scale, np.diff(y[::7], axis=0), rtol=1e-8
    )
