"""Checks of what all data sets have."""

import math
from numbers import Real

from sklearn.utils import check_scalar


def check_noise(noise, name="noise"):
    """A standard deviation, zero included."""
    check_scalar(noise, name, Real, min_val=0.0)
    if not math.isfinite(noise):
        raise ValueError(f"{name} must be a finite number; got {noise}.")
