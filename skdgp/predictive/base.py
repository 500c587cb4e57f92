"""Base class of distributions of the targets at some rows, on tensors."""

import numpy as np
import torch

from ..metrics.crps import mixture_crps
from .crps import crps_of_mixture
from .quantiles import quantiles

_PAIRS = 128  #: largest number of components for which the CRPS is a sum over pairs


class Distribution:
    """Distribution of k outputs at n rows.

    Targets `y` are arrays of shape (n, k). Results are tensors of shape (n, k) unless a method says
    otherwise. Nothing is computed before it is asked for. Gradients flow from moments to the rows where
    the model allows it.
    """

    def moments(self):
        """Mean and standard deviation."""
        raise NotImplementedError

    def mean(self):
        return self.moments()[0]

    def decomposed_moments(self):
        """Mean, and standard deviations by the function and by the noise; their squares add up."""
        raise NotImplementedError

    def log_prob(self, y):
        """Log-density (n,) of all outputs together."""
        raise NotImplementedError

    def gaussians(self):
        """Return this distribution as a :class:`GaussianMixture`; None if it is none."""

    def tail(self, y, above):
        """Probability of more than `y`, or of at most `y`; rare ones keep their relative precision."""
        raise NotImplementedError

    def quantiles(self, alpha):
        """Quantiles (n, k, n_alpha) of orders (n_alpha,), or (n, n_alpha) for each row."""
        raise NotImplementedError

    def crps(self, y):
        """Continuous ranked probability score, an array (n, k)."""
        raise NotImplementedError


class GaussianMixture(Distribution):
    """Mixture of Gaussians with weights, means and variances (c, n, k); weights broadcast."""

    def __init__(self, weights, means, variances):
        self.weights, self.means, self.variances = weights, means, variances

    def components(self):
        return self.weights, self.means, self.variances

    def gaussians(self):
        return self

    def arrays(self):
        """The components as numpy arrays."""
        return tuple(part.numpy(force=True) for part in self.components())

    def moments(self):
        mean, var = mixed_moments([(self.weights, self.means, self.variances)])
        return mean, var.sqrt()

    def tail(self, y, above):
        off = torch.as_tensor(y).to(self.means) - self.means
        off = (off if above else -off) / (2.0 * self.variances).sqrt()
        return (0.5 * self.weights * torch.special.erfc(off)).sum(0).clamp(0.0, 1.0)

    def quantiles(self, alpha):
        shape = self.means.shape
        parts = (part.expand(shape).flatten(1) for part in self.components())
        return quantiles(alpha, *parts).unflatten(0, shape[1:])

    def crps(self, y):
        """Score by a closed form for few Gaussians, and by quadrature for many."""
        components = self.arrays()
        if len(components[1]) <= _PAIRS:
            return mixture_crps(y, *components)
        moments = (part.numpy(force=True).ravel() for part in self.moments())
        flat = (part.reshape(len(part), -1) for part in np.broadcast_arrays(*components))
        return crps_of_mixture(y.ravel(), *moments, *flat).reshape(y.shape)


def mixed_moments(parts):
    """Mean and variance of mixtures of parts with weights, means and variances (c, ...)."""
    weights, m, v = (
        torch.cat(column) for column in zip(*(torch.broadcast_tensors(*p) for p in parts))
    )
    mean = (weights * m).sum(0)
    return mean, (weights * (v + (m - mean).square())).sum(0)
