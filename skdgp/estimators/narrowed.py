"""Predictions that are narrower, or wider, than a model says."""

import math


def narrowed(likelihood, spread):
    """The likelihood of a member whose components have `spread` times their standard deviations."""
    return likelihood if spread == 1.0 else Narrowed(likelihood, spread)


def spread_of(likelihood):
    """The spread of a member, from what :func:`narrowed` made of its likelihood."""
    return likelihood.spread if isinstance(likelihood, Narrowed) else 1.0


class Narrowed:
    """A likelihood whose predictions are drawn together around the means of their components.

    Parameters
    ----------
    likelihood : GaussianMixture
    spread : float
        What standard deviations are multiplied by.
    """

    discrete = False

    def __init__(self, likelihood, spread):
        self.likelihood, self.spread = likelihood, spread

    def _before(self, y, f):
        """Where `y` was before it was drawn to `f`, whose first latents it has as its mean."""
        f = f[..., : y.shape[-1]]
        return f + (y - f) / self.spread

    def log_partition(self, y, m, v):
        volume = y.shape[-1] * math.log(self.spread)
        return self.likelihood.log_partition(self._before(y, m), m, v) - volume

    def expected_log_prob(self, y, m, v):
        """That of the model: its bound is no matter of the mixture."""
        return self.likelihood.expected_log_prob(y, m, v)

    def components(self, m, v):
        log_weights, means, variances = self.likelihood.components(m, v)
        return log_weights, means, self.spread**2 * variances

    def moments(self, m, v):
        mean, var = self.likelihood.moments(m, v)
        return mean, self.spread**2 * var

    def cdf(self, y, m, v):
        return self.likelihood.cdf(self._before(y, m), m, v)

    def sample(self, f, generator):
        y = self.likelihood.sample(f, generator)
        f = f[..., : y.shape[-1]]
        return f + self.spread * (y - f)
