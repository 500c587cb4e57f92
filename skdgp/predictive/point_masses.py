"""Distributions in which some values have a probability of their own."""

from typing import NamedTuple

import numpy as np
import torch

from .base import Distribution

#: smallest fraction of the targets that equal a value with a probability of its own
LEAST_SHARE = 0.1
_CERTAIN = 1e-12  #: rounding: least probability of the rest of the distribution


class PointMasses(NamedTuple):
    """Values that many targets equal, and the mixture that predicts their probabilities.

    The `values` are sorted. The mixture has a class for each value, and a last one for all other targets.
    Log densities spread the values over `widths`.
    """

    values: np.ndarray  #: (n_values,)
    widths: np.ndarray  #: (n_values,)
    classes: object  #: with a method ``predictor(is_class, n_threads)``

    def among(self, y):
        """Whether targets are one of the values."""
        return np.isin(y, self.values)

    def __str__(self):
        listed = " and ".join(f"{value:g}" for value in self.values)
        return f"{listed} by a classifier, all others by the mixture"


class WithPointMasses(Distribution):
    """Distribution ``sum_k p_k delta(a_k) + q f`` of one output (Cragg, 1971, Econometrica 39, for one value).

    The density `f` is that of another distribution, `base`, and `classes` has the probabilities.
    """

    def __init__(self, base, masses, classes):
        self.base, self.masses, self.classes = base, masses, classes

    def _values(self, like):
        return like.new_tensor(self.masses.values)

    def probabilities(self):
        """Probabilities of the values (n, n_values), and of the rest (n, 1)."""
        p = self.classes.probabilities()
        return p[:, :-1], p[:, -1:].clamp_min(_CERTAIN)

    def _mixed(self, mean, std):
        (p, q), values = self.probabilities(), self._values(mean)
        center = q * mean + (p @ values)[:, None]
        off = (p * (values - center).square()).sum(1, keepdim=True)
        return center, (q * (std.square() + (mean - center).square()) + off).sqrt()

    def moments(self):
        return self._mixed(*self.base.moments())

    def mean(self):
        mean, (p, q) = self.base.mean(), self.probabilities()
        return q * mean + (p @ self._values(mean))[:, None]

    def decomposed_moments(self):
        """Parts of the deviation: probabilities are independent of `f`, and of each other nearly so."""
        mean, own, noise = self.base.decomposed_moments()
        (_, q), error = self.probabilities(), self.classes.std()
        center, std = self._mixed(mean, torch.hypot(own, noise))
        variance = (q * own).square() + (error[:, -1:] * own).square()
        off = (error[:, :-1] * (self._values(mean) - mean)).square().sum(1, keepdim=True)
        variance = torch.minimum(variance + off, std.square())
        return center, variance.sqrt(), (std.square() - variance).sqrt()

    def log_prob(self, y):
        log_p, (p, q) = self.base.log_prob(y), self.probabilities()
        widths, distance = (
            torch.as_tensor(part).to(p)
            for part in (self.masses.widths, np.abs(y - self.masses.values))
        )
        of_values = (p * (distance <= 0.5 * widths) / widths).sum(1).log()
        return torch.logaddexp(of_values, q[:, 0].log() + log_p)

    def mass(self, y):
        """Probabilities (n, 1) of the values that targets `y` equal; 0 for all others."""
        p, _ = self.probabilities()
        equal = torch.as_tensor(y == self.masses.values).to(p)
        return (p * equal).sum(1, keepdim=True)

    def tail(self, y, above):
        tail, (p, q) = self.base.tail(y, above), self.probabilities()
        there = self.masses.values > y if above else self.masses.values <= y
        return q * tail + (p * torch.as_tensor(there).to(p)).sum(1, keepdim=True)

    def quantiles(self, alpha):
        p, q = self.probabilities()
        below = [self.base.tail(np.full((len(p), 1), a), False) for a in self.masses.values]
        # the distribution function just below each value
        start = q * torch.cat(below, 1) + p.cumsum(1) - p
        alpha = torch.as_tensor(np.asarray(alpha)).to(p).expand(len(p), -1)
        taken, found = torch.zeros_like(alpha), torch.full_like(alpha, torch.nan)
        for value, mass, first in zip(self.masses.values, p.T[..., None], start.T[..., None]):
            taken = taken + torch.where(alpha > first + mass, mass, 0.0)
            found[(first < alpha) & (alpha <= first + mass)] = float(value)
        orders = ((alpha - taken) / q).clamp(_CERTAIN, 1.0 - _CERTAIN)
        orders = torch.where(found.isnan(), orders, 0.5)  # the median takes the fewest steps
        of_rest = self.base.quantiles(orders.numpy(force=True))[:, 0]
        return torch.where(found.isnan(), of_rest, found)[:, None]

    def crps(self, y):
        """Score by ``E|X - y| - E|X - X'| / 2``, with X, X' from the distribution."""
        p, q = (part.numpy(force=True) for part in self.probabilities())
        values = self.masses.values
        distances = np.abs(values[:, None] - values)
        score = q * self.base.crps(y) + (p * np.abs(y - values)).sum(1, keepdims=True)
        for mass, value in zip(p.T[..., None], values):
            score -= q * mass * self.base.crps(np.full_like(y, value))
        return score - 0.5 * np.einsum("ij,jk,ik->i", p, distances, p)[:, None]
