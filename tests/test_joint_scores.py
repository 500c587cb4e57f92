"""Energy and variogram scores: brute force, closed forms of Gaussians, propriety."""

import math

import numpy as np
import pytest

from skdgp.metrics import crps_gaussian, energy_score, variogram_score


def draws(n=6, k=3, n_draws=7):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, k)), rng.normal(size=(n, k, n_draws)), rng.uniform(size=n)


def test_brute_force():
    y, samples, w = draws()
    energy, variogram = [], []
    for target, own in zip(y, samples.transpose(0, 2, 1)):
        near = np.mean([math.dist(target, a) for a in own])
        pairs = [math.dist(a, b) for i, a in enumerate(own) for j, b in enumerate(own) if i != j]
        energy.append(near - 0.5 * np.mean(pairs))
        total = 0.0
        for i in range(3):
            for j in range(3):
                expected = np.mean([abs(a[i] - a[j]) ** 0.7 for a in own])
                total += (abs(target[i] - target[j]) ** 0.7 - expected) ** 2
        variogram.append(total)
    expected = np.average(energy, weights=w), np.average(variogram, weights=w)
    assert energy_score(y, samples, sample_weight=w) == pytest.approx(expected[0], rel=1e-12)
    found = variogram_score(y, samples, 0.7, sample_weight=w)
    assert found == pytest.approx(expected[1], rel=1e-12)


@pytest.mark.parametrize("k", [1, 4])
def test_energy_score_of_a_gaussian_at_its_center(k):
    samples = np.random.default_rng(0).normal(size=(40, k, 400))
    center = math.sqrt(2.0) * math.gamma(0.5 * (k + 1)) / math.gamma(0.5 * k)  # E |Y|
    expected = center * (1.0 - math.sqrt(0.5))  # E |Y - Y'| is sqrt(2) E |Y|
    scores = [energy_score(np.zeros((1, k)), own[None]) for own in samples]
    assert abs(np.mean(scores) - expected) < 4.0 * np.std(scores) / math.sqrt(len(scores))
    if k == 1:
        crps = crps_gaussian([0.0], [0.0], [1.0])
        assert np.mean(crps) == pytest.approx(expected)


def test_scores_are_smallest_for_the_true_correlation():
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky([[1.0, -0.9], [-0.9, 1.0]])
    y = rng.normal(size=(400, 2)) @ root.T
    z = rng.normal(size=(400, 100, 2))
    true, false = (np.moveaxis(part, 1, 2) for part in (z @ root.T, z))
    assert energy_score(y, true) < energy_score(y, false)
    assert variogram_score(y, true) < variogram_score(y, false)


def test_refusals():
    y, samples, _ = draws()
    with pytest.raises(ValueError, match="n_draws"):
        energy_score(y, samples[:, :2])
    with pytest.raises(ValueError, match="n_draws"):
        energy_score(y, samples[..., :1])
    with pytest.raises(ValueError, match="NaN"):
        energy_score(y, samples * np.nan)
    with pytest.raises(ValueError, match="there is one"):
        variogram_score(y[:, :1], samples[:, :1])
    with pytest.raises(ValueError, match="p must be"):
        variogram_score(y, samples, 0.0)
