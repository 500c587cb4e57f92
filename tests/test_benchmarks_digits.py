"""Deformed digits are the pictures they come from, moved."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package is not installed

from benchmarks import data, deformed


def test_deformed_digits(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = np.zeros((40, 28, 28), np.uint8)
    images[:, 9:19, 12:16] = rng.integers(1, 255, (40, 10, 4))
    digits = {f"y_{part}": np.arange(40) % 10 for part in ("train", "test")}
    pixels = {f"X_{part}": images.reshape(40, -1) for part in ("train", "test")}
    np.savez(tmp_path / "mnist.npz", **pixels, **digits)
    monkeypatch.setattr(deformed, "CHUNK", 20)
    X, y = deformed.write(tmp_path, 100, tmp_path / "rows")
    clean = data.mnist(tmp_path).X_train
    np.testing.assert_allclose(X[:40], clean, atol=1e-5)
    np.testing.assert_array_equal(y, np.arange(100) % 40 % 10)
    moved = deformed.deformed(images, rng)
    masses = moved.sum((1, 2)) / images.sum((1, 2))
    assert np.abs(moved - images).max() > 10.0 and np.abs(np.log(masses)).max() < 0.8
    for name in ("TURN", "GROWTH", "SHIFT", "WAVE"):
        monkeypatch.setattr(deformed, name, 0.0)
    np.testing.assert_allclose(deformed.deformed(images, rng), images, atol=1e-2)
