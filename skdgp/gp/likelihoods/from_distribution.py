"""Likelihoods that distributions of torch give."""

import math

import numpy as np
import torch
from torch.distributions import Distribution

from ...linalg import at_once
from ...quadrature import inverse
from ...random import uniform
from .base import Likelihood, trapezoid

_REACH = 8.0  #: standard deviations to which predictive integrals go
_STEP = 0.1  #: most, between their nodes, in standard deviations of the latent function
_RESOLVED = 0.05  #: the same in those of the noise
_MOST_NODES = 4097
_BUDGET = 4_000_000  #: numbers of the nodes that are looked at together
_LEAST_ORDER = 1e-12  #: of draws, whose quantiles shall be finite


class DistributionLikelihood(Likelihood):
    """Base class of likelihoods ``y ~ distribution(f)``, with one latent function for each output.

    A subclass gives :meth:`distribution`, and :meth:`conditional_cdf` where the distribution of torch has none.
    All else follows by quadrature over the latent function. Predictive integrals are trapezoidal rules, whose
    steps resolve both the noise and the latent function; their number is bounded where the noise is thousands
    of times smaller.

    Class attributes say the rest, see :class:`Likelihood`: ``_positive`` names the hyperparameters, each with
    the value that it must exceed; ``_defaults`` has their values where the user gives None; ``_units`` has the
    powers of the target's unit in which they are measured. Set ``scales_target = False`` where values have a
    meaning of their own, as positive targets have, and ``discrete = True``, too, for counts.

    Examples
    --------
    Noise that follows a Laplace distribution, ``DeepGPRegressor(likelihood=Laplace())``:

    >>> import torch
    >>> from skdgp.gp.likelihoods import DistributionLikelihood
    >>> class Laplace(DistributionLikelihood):
    ...     _positive, _units, _defaults = {"scale": 1e-4}, {"scale": 1}, {"scale": 0.2}
    ...
    ...     def __init__(self, scale=None, trainable=True):
    ...         self.scale, self.trainable = scale, trainable
    ...
    ...     def distribution(self, f):
    ...         return torch.distributions.Laplace(f, torch.as_tensor(self.scale).to(f))
    >>> zeros = torch.zeros(1, 1, dtype=torch.float64)
    >>> mean, var = Laplace(scale=0.5).moments(zeros, zeros + 0.1)
    >>> round(var.item(), 6)
    0.6
    """

    scales_target = True
    n_nodes = 40

    def distribution(self, f) -> Distribution:
        """Distribution of `y` given latent values `f` (..., n, k), as one of ``torch.distributions``.

        Numbers of the likelihood are floats, arrays or tensors: ``torch.as_tensor(self.scale).to(f)``.
        """
        raise NotImplementedError

    def conditional_cdf(self, y, f):
        """Distribution function of `y` given latent values, of the shape of both together."""
        try:
            return self._given(f).cdf(y)
        except NotImplementedError:
            raise ValueError(
                f"torch has no distribution function for {type(self).__name__}; give it the method "
                "conditional_cdf(y, f)."
            ) from None

    def _given(self, f):
        return _unchecked(self.distribution(f))

    def bind(self, y, weights, scale):
        bound = super().bind(y, weights, scale)
        y = torch.as_tensor(np.asarray(y, dtype=np.float64)[:, : len(scale)])
        given, name = bound._given(torch.zeros_like(y)), type(self).__name__
        support = _support(given)
        fixed = not any(isinstance(end, torch.Tensor) for end in vars(support).values())
        outside = ~support.check(y) if fixed and support is not None else torch.zeros_like(y) > 0.0
        if outside.any():
            cure = (
                "set scales_target = False in its class" if self.scales_target else "leave them out"
            )
            of = "standardized targets" if self.scales_target else "targets"
            raise ValueError(
                f"{name} has no density at {of} such as {y[outside][0].item():.3g}; {cure}, or take another "
                "likelihood."
            )
        if not all(torch.isfinite(moment).all() for moment in _moments(given, y)):
            raise ValueError(f"{name} needs a distribution that has a mean and a variance.")
        return bound

    def log_density(self, y, f):
        given = self._given(torch.nan_to_num(f))
        log_p, support = given.log_prob(y), _support(given)
        if support is not None:
            log_p = torch.where(support.check(y), log_p, -torch.inf)
        return torch.where(f.isnan(), f, log_p)

    def conditional_mean(self, f):
        return _moments(self._given(f), f)[0]

    def log_partition(self, y, m, v, alpha=1.0):
        def logs(f, log_weights):
            return torch.logsumexp(log_weights + alpha * self.log_density(y, f), 0)

        return torch.logsumexp(torch.stack(self._over_nodes(logs, m, v)), 0).sum(-1)

    def moments(self, m, v):
        """By the law of total variance, shape (..., n, k)."""

        def sums(f, log_weights):
            mean, var = _moments(self._given(f), f)
            weights = log_weights.exp()
            return torch.stack([(weights * part).sum(0) for part in (mean, var, mean.square())])

        mean, noise, square = sum(self._over_nodes(sums, m, v))
        return mean, noise + (square - mean.square()).clamp_min(0.0)

    def variance_of_mean(self, m, v):
        def sums(f, log_weights):
            mean, weights = self.conditional_mean(f), log_weights.exp()
            return torch.stack([(weights * mean).sum(0), (weights * mean.square()).sum(0)])

        mean, square = sum(self._over_nodes(sums, m, v))
        return (square - mean.square()).clamp_min(0.0)

    def cdf(self, y, m, v):
        return sum(self._over_nodes(lambda f, w: (w.exp() * self._below(y, f)).sum(0), m, v))

    def tail(self, y, m, v, above):
        """Probability that `y` is exceeded, or that it is not, exact to an absolute error."""
        below = self.cdf(y, m, v)
        return 1.0 - below if above else below

    def sample(self, f, generator):
        u = uniform(f.shape, generator, f).clamp(_LEAST_ORDER, 1.0 - _LEAST_ORDER)
        given = self._given(f)
        if not self.discrete:
            try:
                return given.icdf(u)
            except NotImplementedError:
                pass
        mean, var = _moments(given, f)
        return inverse(lambda y: self._below(y, f), u, mean, var.sqrt(), self.discrete)

    def _below(self, y, f):
        """Distribution function, also outside of the support."""
        support = _support(self._given(f[:1]))
        low, high = (getattr(support, f"{end}_bound", None) for end in ("lower", "upper"))
        y, f = torch.broadcast_tensors(y, f)
        inside = y.clamp_min(low) if low is not None else y
        inside = inside.clamp_max(high) if high is not None else inside
        found = self.conditional_cdf(inside, f).clamp(0.0, 1.0)
        if low is not None:
            found = torch.where(y < low, 0.0, found)
        return found if high is None else torch.where(y >= high, 1.0, found)

    def _over_nodes(self, function, m, v):
        """Results of ``function(f, log_weights)`` for pieces of the nodes."""
        with torch.no_grad():
            sd, noise = v.sqrt(), _moments(self._given(m), m)[1].sqrt()
            finest = (_RESOLVED * noise / sd.clamp_min(1e-300)).min().item() if m.numel() else 1.0
        step = min(_STEP, finest) if finest > 0.0 else 0.0
        n = _MOST_NODES if step * _MOST_NODES < 2.0 * _REACH else 2 * math.ceil(_REACH / step) + 1
        if not v.any():
            n = 1
        nodes, log_weights = trapezoid(n, _REACH, m) if n > 1 else (0.0 * m[None], 0.0 * m[None])
        size = max(1, at_once(_BUDGET, m.device) // max(1, m.numel()))
        pieces = zip(nodes.split(size), log_weights.split(size))
        return [function(m + v.sqrt() * x, w) for x, w in pieces]


def _unchecked(given):
    """A distribution without the checks of torch, whose messages name no row."""
    for part in vars(given).values():
        if isinstance(part, Distribution):
            _unchecked(part)
    given._validate_args = False
    return given


def _support(given):
    try:
        return given.support
    except NotImplementedError:
        return None


def _moments(given, like):
    """Mean and variance, of the shape of `like` and others that are broadcast with it."""
    try:
        return given.mean.expand_as(like), given.variance.expand_as(like)
    except NotImplementedError:
        raise ValueError(
            f"The distribution {type(given).__name__} of torch has no mean or variance; derive one that has "
            "both."
        ) from None
