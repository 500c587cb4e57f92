"""Extrapolation variance inflation: wider error bars where there are no data, by a learned factor."""

import math

import numpy as np
import torch
from torch import nn

#: standard normal quantiles at which the logarithm of the factor is looked at, all equally probable
NODES = torch.special.ndtri((torch.arange(5, dtype=torch.float64) + 0.5) / 5.0).numpy()
LOG_FACTORS = np.arange(-2.0, 6.01, 0.5)  #: those that are tried on held-out splits
_MEANS = np.arange(0.0, 4.01, 0.25)  #: predictions are not made narrower on average
_SPREADS = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0])
_PRIOR_MEAN = 1.5  #: how far the mean of the logarithm is expected to be from zero
_PRIOR_SPREAD = 1.0, 0.5  #: of its standard deviation: the median, and the spread of its logarithm
_ROWS = 30.0  #: independent rows that a split is worth: errors beyond a hyperplane go together


class VarianceInflation(nn.Module):
    r"""Extrapolation variance inflation: a scale of deviations from the mean far from the data.

    Let `f` be a latent function with the mean `m` and the predictive variance `v`, and `k` the
    prior variance of its last layer. The function becomes :math:`m + a (f - m)` with
    :math:`a^2 = 1 + (c - 1) \min(v / k, 1)`. Near the data `v` is far below `k`, and nothing
    changes. The factor `c` depends on the direction in which one leaves the data, and is not known
    beforehand: its logarithm is normal, with a mean and a standard deviation, `moments`, that
    :func:`learned` finds; zeros without anything learned.
    """

    roles = {"moments": "progress"}

    def __init__(self):
        super().__init__()
        self.register_buffer("moments", torch.zeros(2, dtype=torch.float64))

    def known(self):
        """Whether anything was learned."""
        return bool(self.moments.any())

    def centers_and_factors(self, mean, var, k_ff, n_means):
        """Centers (n, n_latents) of predictions, and factors (n_nodes, n, n_latents) at nodes."""
        center = mean.mean(0)
        total = (var + (mean - center).square()).mean(0)
        return center, self._at_nodes(total, k_ff.mean(0)[:, None], n_means)

    def mixture(self, mean, var, k_ff, n_means):
        """Moments of the inflated predictions, shape (n_nodes S, n, n_latents)."""
        center, a = self.centers_and_factors(mean, var, k_ff, n_means)
        a = a[:, None]  # n_nodes, 1, n, n_latents
        mean, var = center + a * (mean - center), a.square() * var
        return mean.flatten(0, 1), var.flatten(0, 1)

    def covariance(self, covariance, k_ff, n_means):
        """Covariances of rows, (n_latents, n, n), inflated; `k_ff` has shape (n,)."""
        var = torch.diagonal(covariance, dim1=-2, dim2=-1).T
        a = self._at_nodes(var, k_ff[:, None], n_means)
        return torch.einsum("qik,qjk->kij", a, a) / len(a) * covariance

    def choice(self, n, generator):
        """A node for each of `n` functions."""
        return torch.randint(len(NODES), (n,), generator=generator)

    def factors(self):
        """The factor `c` at all nodes."""
        mean, spread = self.moments
        return (mean + spread * torch.as_tensor(NODES).to(self.moments)).exp()

    def _at_nodes(self, var, k_ff, n_means):
        return deviation_factor(self.factors()[:, None, None], var, k_ff, n_means)


def deviation_factor(factor, var, k_ff, n_means):
    """The factor `a` of deviations for a variance factor, see :class:`VarianceInflation`."""
    back = (var / k_ff).clamp(0.0, 1.0)
    a = (1.0 + (factor - 1.0) * back).sqrt()
    a[..., n_means:] = 1.0
    return a


def learned(log_density):
    """Mean and standard deviation of the logarithm of the factor, by their posterior mode on a grid.

    Each split has a factor of its own, because every direction has. The splits are few and the rows
    of one depend on each other, hence priors, and no more weight than that of a few independent
    rows.
    """
    best, moments = -math.inf, np.zeros(2)
    for mean in _MEANS:
        for spread in _SPREADS:
            at = mean + spread * NODES
            logs = [_ROWS * np.interp(at, LOG_FACTORS, split) for split in log_density]
            score = np.logaddexp.reduce(logs, axis=1).sum() - 0.5 * (mean / _PRIOR_MEAN) ** 2
            middle, width = _PRIOR_SPREAD
            score -= 0.5 * (math.log(spread / middle) / width) ** 2
            if score > best:
                best, moments = score, np.array([mean, spread])
    return moments
