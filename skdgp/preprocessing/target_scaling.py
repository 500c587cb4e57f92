"""Standardization of targets, after their maps."""

import copy

import numpy as np
import torch

from .maps import Logit
from .outliers import weighted_moments

POSITIVE = ("log", "exponential-normal")  #: maps of positive targets alone
#: numbers between which targets lie
SUPPORTS = {**dict.fromkeys(POSITIVE, (0.0, np.inf)), "logit": (0.0, 1.0)}
_MAX = np.finfo(np.float64).max
#: standard deviations that a distribution has at least where targets are not mapped
_REACH = 1000.0
#: ranges of mapped training targets by which predictions may leave it: an exponential would make 1e16 of them
_BEYOND = 1.0
_OF_CONSTANT = 0.1  #: scale of a constant target, relative to its size: 1 would have no unit
_LEAST_RANGE = 2.0  #: standard deviations, if targets are nearly constant


def moments(y, weights):
    """Weighted means and standard deviations (k,) of the targets (n, k) that are not missing."""
    missing = np.isnan(y)
    if not missing.any():
        return weighted_moments(y, weights)
    found = [weighted_moments(c[~m, None], weights[~m]) for c, m in zip(y.T, missing.T)]
    return tuple(np.concatenate(part) for part in zip(*found))


class TargetScaler:
    """Maps, centers and scales each target, or does nothing.

    A monotone map of each target may come first, see :mod:`skdgp.preprocessing.target_maps`.

    Attributes
    ----------
    center, scale : ndarray of shape (n_outputs,)
        Of the mapped targets.
    low, high : ndarray of shape (n_outputs,)
        With maps: range of the training targets, standardized; wider where there is no map.
    farthest : tuple of two ndarrays of shape (n_outputs,)
        With maps: standardized targets beyond which nothing is predicted.
    """

    def __init__(self, standardize=True, maps=None):
        self.standardize, self.maps = standardize, maps

    def fit(self, y, weights):
        y, k = self.mapped(y), y.shape[1]
        self.center, self.scale = np.zeros(k), np.ones(k)
        if self.standardize:
            mean, std = moments(y, weights)
            constant = (y == y[0]).all(0)  # whose mean may be rounded by more than its unit
            self.center = np.where(constant, y[0], mean)
            rounding = 1e-14 * np.abs(mean)
            varies = ~constant & (std > rounding)
            size = _OF_CONSTANT * np.abs(self.center)
            self.scale = np.where(varies, std, np.where(size > 0.0, size, 1.0))
        if self.maps is not None:
            z = (y - self.center) / self.scale
            margin = np.where([g is None for g in self.maps], _REACH, 0.0)
            self.low, self.high = np.nanmin(z, 0) - margin, np.nanmax(z, 0) + margin
            for j in np.flatnonzero([name == "logit" for name in self.names]):  # which need no ends
                ends = (np.array([-1.0, 1.0]) * self.maps[j].ends - self.center[j]) / self.scale[j]
                self.low[j], self.high[j] = min(self.low[j], ends[0]), max(self.high[j], ends[1])
        return self

    def widened(self, y):
        """A scaler of the same units whose range holds these targets (n, n_outputs), too."""
        if self.maps is None:
            return self
        z, new = self.transform(y), copy.copy(self)
        new.low, new.high = np.fmin(self.low, np.nanmin(z, 0)), np.fmax(self.high, np.nanmax(z, 0))
        return new

    @property
    def farthest(self):
        beyond = _BEYOND * np.maximum(self.high - self.low, _LEAST_RANGE)
        return self.low - beyond, self.high + beyond

    @property
    def is_log(self):
        """Whether the only target has its logarithm taken."""
        return self.names == ["log"]

    @property
    def cuts(self):
        """Standardized targets between which the inverse map of the only target is smooth."""
        cuts = {"yeo-johnson": (0.0,), "logit": Logit.cuts}.get(self.names[0], ())
        return [(cut - self.center[0]) / self.scale[0] for cut in cuts]

    @property
    def names(self):
        """Names of the maps, one for each target."""
        return [None if g is None else g.name for g in self.maps or [None] * len(self.scale)]

    def check(self, y):
        """Raise ValueError if some targets have no logarithm or other map, and need one."""
        for name, column in zip(self.names, y.T):
            low, high = SUPPORTS.get(name, (-np.inf, np.inf))
            if ((column <= low) | (column >= high)).any():
                which = "zero or negative" if high == np.inf else "not between 0 and 1"
                raise ValueError(
                    f"Some targets are {which}, and have no logarithm or {name!r} map, which "
                    "the first ones had; set target_transform to 'yeo-johnson' or None and start anew."
                )

    def _of_columns(self):
        """Pairs of an output and its map, if it has one."""
        return [(j, g) for j, g in enumerate(self.maps or ()) if g is not None]

    def mapped(self, y):
        """Targets (n, n_outputs) behind their maps, before they are standardized."""
        if self.maps is None:
            return y
        y = np.array(y, dtype=np.float64)
        for j, g in self._of_columns():
            y[:, j] = g.forward(y[:, j])
        return y

    def transform(self, y):
        """Standardized targets (n, n_outputs), in float64."""
        return (np.asarray(self.mapped(y), dtype=np.float64) - self.center) / self.scale

    def standardized_thresholds(self, y):
        """As :meth:`transform`, and infinite where no target is that small or large."""
        z = self.transform(y)
        for name, column, found in zip(self.names, y.T, z.T):
            low, high = SUPPORTS.get(name, (-np.inf, np.inf))
            found[column <= low] = -np.inf
            found[column >= high] = np.inf
        return z

    def inverse(self, z):
        """Targets in the user's units of standardized ones (..., n_outputs), arrays or tensors."""
        if isinstance(z, np.ndarray):
            return self.inverse(torch.from_numpy(z)).numpy()
        scale, center = (z.new_tensor(part) for part in (self.scale, self.center))
        y = (z * scale + center).clamp(-_MAX, _MAX)
        if self.maps is None:
            return y
        columns = zip(y.unbind(-1), self.maps)
        return torch.stack([x if g is None else g.inverse(x) for x, g in columns], -1)

    def log_jacobian(self, y):
        """Logarithm of the derivative of :meth:`transform`, over all outputs: a number, or one for each row."""
        total = -np.log(self.scale).sum()
        for j, g in self._of_columns():
            total = total + g.log_slope(np.asarray(y[..., j], dtype=np.float64))
        return total

    def mean_log_jacobian(self, y, weights):
        """Its weighted mean."""
        value = self.log_jacobian(y)
        return float(value if self.maps is None else weights @ value / weights.sum())

    def output(self, j):
        """The scaler of one output."""
        one = TargetScaler(self.standardize, None if self.maps is None else [self.maps[j]])
        for name in ("center", "scale", "low", "high"):
            setattr(one, name, getattr(self, name)[j : j + 1])
        return one

    def slope(self, z):
        """Derivative of :meth:`inverse` at standardized targets (...) of a single output."""
        return np.exp(-self.log_jacobian(self.inverse(z[..., None])))
