"""Distributions in the units of the target."""

import numpy as np

from .base import Distribution, GaussianMixture

_MAX = np.finfo(np.float64).max


class Affine(Distribution):
    """Distribution of ``loc + scale z``, where z follows another one; `loc` and `scale` are arrays (k,)."""

    def __init__(self, base, loc, scale):
        self.base, self.loc, self.scale = base, np.asarray(loc), np.asarray(scale)

    def _parameters(self, like):
        return (like.new_tensor(part) for part in (self.loc, self.scale))

    def _outside(self, mean, *deviations):
        loc, scale = self._parameters(mean)
        return mean * scale + loc, *(part * scale for part in deviations)

    def moments(self):
        return self._outside(*self.base.moments())

    def mean(self):
        return self._outside(self.base.mean())[0]

    def decomposed_moments(self):
        return self._outside(*self.base.decomposed_moments())

    def gaussians(self):
        mixture = self.base.gaussians()
        if mixture is None:
            return None
        means, deviations = self._outside(mixture.means, mixture.variances.sqrt())
        return GaussianMixture(mixture.weights, means, deviations.square())

    def standardized(self, y):
        return (np.asarray(y, dtype=np.float64) - self.loc) / self.scale

    def log_prob(self, y):
        return self.base.log_prob(self.standardized(y)) - np.log(self.scale).sum()

    def tail(self, y, above):
        return self.base.tail(self.standardized(y), above)

    def quantiles(self, alpha):
        z = self.base.quantiles(alpha)
        loc, scale = self._parameters(z)
        return (z * scale[:, None] + loc[:, None]).clamp(-_MAX, _MAX)

    def crps(self, y):
        return self.base.crps(self.standardized(y)) * self.scale
