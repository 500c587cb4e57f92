import numpy as np
import pytest

from skdgp.inference.structured.pattern import COUPLINGS, Pattern


def pairs(widths, n_outputs, coupling):
    return set(zip(*Pattern(widths, n_outputs, coupling).blocks().tolist()))


def test_stripes_of_unequal_widths():
    # units 0 1 2 | 3 | 4 5, and two outputs
    expected = {(3, 0), (4, 0), (4, 3), (5, 1)} | {(o, h) for o in (6, 7) for h in range(6)}
    assert pairs((3, 1, 2), 2, "stripes-and-arrow") == expected


def test_full_and_mean_field():
    assert pairs((2, 1), 1, "mean-field") == set()
    assert pairs((2, 1), 1, "full") == {(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)}


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_one_layer_has_nothing_to_couple(coupling):
    assert pairs((), 3, coupling) == set()
    assert not Pattern((), 3, coupling).arrow


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("widths", [(2,), (3, 3), (3, 1, 2), (1, 2, 3, 2)])
def test_every_unit_is_in_one_chain(widths, coupling):
    pattern = Pattern(widths, 1, coupling)
    gps = np.concatenate([chain.gps.ravel() for chain in pattern.chains])
    np.testing.assert_array_equal(np.sort(gps), np.arange(sum(widths)))
    for layer, width in enumerate(widths):
        units = np.concatenate([part.units.ravel() for part in pattern.parts[layer]])
        np.testing.assert_array_equal(np.sort(units), np.arange(width))


@pytest.mark.parametrize("widths", [(3, 3), (3, 1, 2), (1, 2, 3, 2)])
def test_patterned_factors_form_a_group(widths):
    rng = np.random.default_rng(0)
    T = sum(widths) + 1
    mask = np.eye(T, dtype=bool)
    mask[tuple(Pattern(widths, 1, "stripes-and-arrow").blocks())] = True
    a, b = (np.tril(mask * rng.standard_normal((T, T)), -1) + np.eye(T) for _ in range(2))
    for inside in (a @ b, np.linalg.inv(a)):
        assert np.abs(inside[~mask]).max() < 1e-12
    assert np.abs(np.linalg.inv(a @ a.T)[~mask & ~mask.T]).max() > 1e-3  # precisions do not
