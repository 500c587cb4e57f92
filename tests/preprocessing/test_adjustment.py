"""Effects of numbers that are taken from targets before levels get positions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skdgp.preprocessing.adjustment import Adjustment
from skdgp.preprocessing.encoding import ColumnEncoder


def confounded(n=600, seed=0):
    """Levels with effects that the sizes of their rows hide, as those of diamonds."""
    rng = np.random.default_rng(seed)
    effects = np.array([-1.5, -0.5, 0.5, 1.5])
    level = rng.integers(0, 4, n)
    size = -effects[level] + rng.standard_normal(n)
    y = size + effects[level] + 0.3 * rng.standard_normal(n)
    return (
        np.column_stack([size, level.astype(float)]),
        ((y - y.mean()) / y.std())[:, None],
        effects,
    )


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
    assert_allclose(found.remove(table, y), (rest - center) / scale, rtol=1e-8, atol=1e-10)


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
    encoder = ColumnEncoder().fit(
        table, y, np.ones(len(y)), ["number", "category"], np.random.RandomState(0)
    )
    rows = np.column_stack([np.zeros(4), np.arange(4.0)])
    positions = encoder.transform(rows)[:, 1]
    assert abs(np.corrcoef(positions, effects)[0, 1]) > 0.99
    assert (np.diff(positions) * np.sign(positions[-1] - positions[0]) > 0.0).all()


def test_new_levels_are_placed_by_the_same_effects():
    table, y, effects = confounded()
    old = table[:, 1] < 3.0
    encoder = ColumnEncoder().fit(
        table[old], y[old], np.ones(old.sum()), ["number", "category"], np.random.RandomState(0)
    )
    encoder = encoder.with_levels(table[~old], y[~old], np.ones((~old).sum()))
    positions = encoder.transform(np.column_stack([np.zeros(4), np.arange(4.0)]))[:, 1]
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
