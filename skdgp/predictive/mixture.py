"""The mixture over members and their components, in units of the standardized target."""

from functools import cached_property

import numpy as np
import torch

from ..linalg import at_once
from ..quadrature import inverse
from .base import Distribution, GaussianMixture, mixed_moments
from .components import Rows, components
from .crps import crps_of_counts, crps_of_densities

_BUDGET = 1_000_000  #: numbers that the CRPS of one chunk of rows needs at once
_ROWS_BUDGET = 3_000_000  #: numbers that the models need at once for one chunk of rows


class Mixture(Distribution):
    """Mixture of the members at some rows.

    The `rows` are :class:`~skdgp.predictive.components.Rows`, or scaled rows (n, d) alone.
    """

    def __init__(self, members, rows, device):
        self._members, self._device = members, device
        self.rows = rows if isinstance(rows, Rows) else Rows(rows)

    @cached_property
    def parts(self):
        """Components of all members, where those that differ in their scale alone may be one."""
        return self._components(compact=True)

    @cached_property
    def gaussian_parts(self):
        """Components of all members, given which functions are Gaussian."""
        return self._components(compact=False)

    def _components(self, compact):
        return [self._of_member(m, share, compact) for m, share in self._shares()]

    def _of_member(self, member, share, compact=True):
        return components(member, self.rows, share, self._device, compact)

    def _shares(self):
        total = sum(member.mixture_weight for member in self._members)
        return [(member, member.mixture_weight / total) for member in self._members]

    def moments(self):
        moments = ((p.weights, *p.likelihood.moments(p.mean, p.var)) for p in self.parts)
        mean, var = mixed_moments(moments)
        return mean, var.sqrt()

    def mean(self):
        """Mean of the targets; no variances are computed for members that need none."""
        if not self.rows.plain:
            return self.moments()[0]
        X, total = torch.as_tensor(self.rows.X, device=self._device), 0.0
        for member, share in self._shares():
            mean = member.posterior(self._device).target_mean(X)
            if mean is None:
                p = self._of_member(member, share)
                mean, share = (p.weights * p.likelihood.moments(p.mean, p.var)[0]).sum(0), 1.0
            total = total + share * mean
        return total

    def decomposed_moments(self):
        means, noise = [], 0.0
        for weights, likelihood, m, v in self.parts:
            (mean, var), by_function = likelihood.moments(m, v), likelihood.variance_of_mean(m, v)
            means.append((weights, mean, by_function))
            noise = noise + (weights * (var - by_function).clamp_min(0.0)).sum(0)
        mean, by_function = mixed_moments(means)
        return mean, by_function.sqrt(), noise.sqrt()

    def log_prob(self, y):
        logs = []
        for weights, likelihood, m, v in self.parts:
            log_p = likelihood.log_partition(torch.as_tensor(y, device=m.device), m, v)
            logs.append(torch.logsumexp(weights[..., 0].log() + log_p, 0))
        return torch.logsumexp(torch.stack(logs), 0)

    def expected_log_prob(self, y):
        """Expected log-likelihood (n,) of `y`, averaged over components."""
        total = 0.0
        for weights, likelihood, m, v in self.gaussian_parts:
            ell = likelihood.expected_log_prob(torch.as_tensor(y, device=m.device), m, v)
            total = total + (weights[..., 0] * ell).sum(0)
        return total

    def log_probabilities(self):
        """Logarithms of class probabilities, (n, n_classes)."""
        logs = [
            torch.logsumexp(p.weights.log() + p.likelihood.log_probabilities(p.mean, p.var), 0)
            for p in self.parts
        ]
        log_p = torch.logsumexp(torch.stack(logs), 0)
        return log_p - torch.logsumexp(log_p, -1, keepdim=True)

    def std_of_probabilities(self):
        """Standard deviations (n, n_classes) of class probabilities over the functions."""
        moments = [
            (w, likelihood.log_probabilities(m, v).exp(), likelihood.variance_of_mean(m, v))
            for w, likelihood, m, v in self.parts
        ]
        return mixed_moments(moments)[1].sqrt()

    def cdf(self, y):
        """Distribution function at `y`, output by output."""
        total = 0.0
        for weights, likelihood, m, v in self.parts:
            y_ = torch.as_tensor(y, device=m.device)
            total = total + (weights * likelihood.cdf(y_, m, v)).sum(0)
        return total

    def tail(self, y, above):
        total = 0.0
        for weights, likelihood, m, v in self.parts:
            y_ = torch.as_tensor(y, device=m.device)
            total = total + (weights * likelihood.tail(y_, m, v, above)).sum(0)
        return total.clamp(0.0, 1.0)

    def quantiles(self, alpha):
        discrete = self.parts[0].likelihood.discrete
        mixture = None if discrete else self.gaussians()
        if mixture is not None:
            return mixture.quantiles(alpha)
        mean, std = self.moments()
        orders = torch.as_tensor(np.asarray(alpha)).to(mean).expand(len(mean), -1)
        found = [inverse(self.cdf, p[:, None], mean, std, discrete) for p in orders.unbind(1)]
        return torch.stack(found, -1)

    def latent(self, k):
        """Distribution of the first `k` latent functions, on the link scale."""
        parts = ((p.weights, *p.function_means(k)) for p in self.gaussian_parts)
        return GaussianMixture(*_concatenated(parts))

    def gaussians(self):
        found = []
        for weights, likelihood, m, v in self.parts:
            components = likelihood.components(m, v)
            if components is None:
                return None
            log_w, means, variances = components  # c, S, n, k
            each = (part.expand_as(means) for part in (log_w.exp() * weights, means, variances))
            found.append(tuple(part.flatten(0, 1) for part in each))
        return GaussianMixture(*_concatenated(found))

    def crps(self, y):
        mixture = self.gaussians()
        if mixture is not None:
            return mixture.crps(y)
        moments = (part.numpy(force=True).ravel() for part in self.moments())
        n_draws, k = sum(len(p.mean) for p in self.parts), y.shape[1]
        at_once = _BUDGET // (200 * n_draws * k)  # 20 nodes, about 10 counts

        def cdf(which, x):
            return self._cdf_of_outputs(*np.divmod(which, k), x, k)

        score = crps_of_counts if self.parts[0].likelihood.discrete else crps_of_densities
        return score(y.ravel(), *moments, cdf, at_once).reshape(y.shape)

    def _cdf_of_outputs(self, rows, outputs, x, k):
        """Distribution functions of single outputs (m,) of rows (m,), at `x` (m, q)."""
        total, (_, q) = 0.0, x.shape
        for weights, likelihood, m, v in self.parts:
            at = torch.as_tensor(x, device=m.device).reshape(-1, 1).expand(-1, k)
            where = np.repeat(rows, q)
            own, m, v = likelihood.of_rows(where), m[:, where], v[:, where]
            total = total + (weights * own.cdf(at, m, v)).sum(0)
        return total.view(-1, q, k).numpy(force=True)[np.arange(len(rows)), :, outputs]


def _concatenated(parts):
    """Weights, means and variances of all parts, with weights of the shape of means."""
    columns = zip(*((w.expand_as(m), m, v.expand_as(m)) for w, m, v in parts))
    return tuple(map(torch.cat, columns))


def rows_at_once(members, device):
    """Return how many rows a :class:`Mixture` should have on a device."""
    largest = 1
    for member in members:
        a = member.architecture
        of_layers = 3 * a.n_inducing if member.posterior(device).layers else 0
        largest = max(largest, len(member.draws) * max(of_layers, 40 * a.n_latents))
    return max(1, at_once(_ROWS_BUDGET, device) // largest)
