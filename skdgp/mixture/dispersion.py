"""The dispersion factor: predictions that are narrower, or wider, than a model says."""

import math


def dispersed(likelihood, dispersion):
    """The likelihood of a member whose components have `dispersion` times their standard deviations."""
    return likelihood if dispersion == 1.0 else DispersedLikelihood(likelihood, dispersion)


def dispersion_of(likelihood):
    """The dispersion of a member, from what :func:`dispersed` made of its likelihood."""
    return likelihood.dispersion if isinstance(likelihood, DispersedLikelihood) else 1.0


class DispersedLikelihood:
    """A likelihood that multiplies deviations from the means of its components by `dispersion`."""

    discrete = False

    def __init__(self, likelihood, dispersion):
        self.likelihood, self.dispersion = likelihood, dispersion

    def _before(self, y, f):
        """Undo the dispersion of `y` about its mean, the first latents of `f`."""
        f = f[..., : y.shape[-1]]
        return f + (y - f) / self.dispersion

    def of_rows(self, rows):
        return DispersedLikelihood(self.likelihood.of_rows(rows), self.dispersion)

    def log_partition(self, y, m, v):
        volume = y.shape[-1] * math.log(self.dispersion)
        return self.likelihood.log_partition(self._before(y, m), m, v) - volume

    def expected_log_prob(self, y, m, v):
        """That of the model: its lower bound is no matter of the mixture."""
        return self.likelihood.expected_log_prob(y, m, v)

    def components(self, m, v):
        components = self.likelihood.components(m, v)
        if components is None:
            return None
        log_weights, means, variances = components
        return log_weights, means, self.dispersion**2 * variances

    def moments(self, m, v):
        mean, var = self.likelihood.moments(m, v)
        return mean, self.dispersion**2 * var

    def variance_of_mean(self, m, v):
        return self.dispersion**2 * self.likelihood.variance_of_mean(m, v)

    def cdf(self, y, m, v):
        return self.likelihood.cdf(self._before(y, m), m, v)

    def tail(self, y, m, v, above):
        return self.likelihood.tail(self._before(y, m), m, v, above)

    def sample(self, f, generator):
        y = self.likelihood.sample(f, generator)
        f = f[..., : y.shape[-1]]
        return f + self.dispersion * (y - f)
