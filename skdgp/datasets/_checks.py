"""Checks and inputs that several data sets have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_scalar


def check_noise(noise: float, name: str = "noise") -> None:
    """Raise ValueError if a standard deviation is negative or not finite."""
    check_scalar(noise, name, Real, min_val=0.0)
    if not math.isfinite(noise):
        raise ValueError(f"{name} must be a finite number; got {noise}.")


def layer_widths(width: int | Sequence[int], n: int, what: str) -> list[int]:
    """The width of each of `n` layers."""
    widths = [width] * n if isinstance(width, int | Integral) else list(width)
    if len(widths) != n or min(widths, default=1) < 1:
        raise ValueError(
            f"width must be a positive int or one for each of the {n} {what}; got {width!r}."
        )
    return widths


def make_inputs(
    n_samples: int, n_features: int, interval: tuple[float, float], rng: np.random.RandomState
) -> np.ndarray:
    """A single input equally spaced in an interval; several are uniform draws."""
    low, high = interval
    if not low < high:
        raise ValueError(f"interval must be an increasing pair of numbers; got {interval!r}.")
    if n_features == 1:
        return np.linspace(low, high, n_samples)[:, None]
    return rng.uniform(low, high, (n_samples, n_features))
