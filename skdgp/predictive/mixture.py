"""The mixture over members and draws, for a few rows at a time."""

import math
from functools import cached_property

import numpy as np
import torch

from ..linalg import at_once
from ..metrics.crps import mixture_crps
from .components import Rows, component, dispersion_of
from .crps import crps_of_counts, crps_of_mapped, crps_of_mixture
from .quantiles import quantiles
from .transformed import END_OF_ROW, ends, heaviest, mapped_moments, variance_by_function

_BUDGET = 1_000_000  #: numbers that one chunk of rows may need at once
_ROWS_BUDGET = 3_000_000  #: likewise, of the models' own; fewer rows at once take longer
_EXACT = 128  #: components up to which the pairs of the CRPS are summed


class Predictive:
    """Predictive distribution of some rows.

    The `rows` are :class:`~skdgp.mixture.components.Rows`, or scaled rows (n, d) alone. With a `scaler`
    of targets, methods of targets are in the user's units; all others are in standardized ones.
    """

    def __init__(self, members, rows, device, scaler=None):
        self._members, self._device, self._scaler = members, device, scaler
        self._rows = rows if isinstance(rows, Rows) else Rows(rows)

    @cached_property
    def _parts(self):
        """Weights, likelihood and latent moments of the components, member by member."""
        return self._components_of_members(compact=True)

    @cached_property
    def _all_parts(self):
        """:attr:`_parts`, where functions are Gaussian."""
        return self._components_of_members(compact=False)

    def _components_of_members(self, compact):
        total = self._total()
        return [self._component(member, total, compact) for member in self._members]

    def _total(self):
        return sum(member.mixture_weight for member in self._members)

    def _component(self, member, total, compact):
        return component(member, self._rows, total, self._device, compact)

    def _mix_moments(self, moments):
        """Mean and variance of the mixture, by the law of total variance."""
        weights = (weights for weights, *_ in self._parts)
        parts = (torch.broadcast_tensors(w, *pair) for w, pair in zip(weights, moments))
        weights, m, v = map(torch.cat, zip(*parts))
        mean = (weights * m).sum(0)
        second = (weights * (v + (m - mean).square())).sum(0)
        return mean.cpu().numpy(), second.cpu().numpy()

    def moments(self):
        """Mean and variance of y, arrays of shape (n, k)."""
        return self._mix_moments([likelihood.moments(m, v) for _, likelihood, m, v in self._parts])

    def decomposed_moments(self):
        """Mean of y, the variance of ``E[y | f]`` over the mixture, and the mean of the variance given f."""
        means, noise = [], 0.0
        for weights, likelihood, m, v in self._parts:
            (mean, var), by_function = likelihood.moments(m, v), likelihood.variance_of_mean(m, v)
            means.append((mean, by_function))
            noise = noise + (weights * (var - by_function).clamp_min(0.0)).sum(0)
        return *self._mix_moments(means), noise.cpu().numpy()

    def _latents(self, parts, k):
        """Weights, means and variances of the first `k` latent functions, member by member."""
        return [
            (weights, m[..., :k], dispersion_of(likelihood) ** 2 * v[..., :k])
            for weights, likelihood, m, v in parts
        ]

    def latent_moments(self, k):
        """Mean and variance of the first `k` latent functions."""
        return self._mix_moments([pair for _, *pair in self._latents(self._parts, k)])

    def target_moments(self, latent=False):
        """Mean and standard deviation (n, k) of the target or of latent functions, in its units."""
        scaler = self._scaler
        if scaler.maps is not None:
            return mapped_moments(*self._mapped_components(latent), scaler)
        mean, var = self.latent_moments(len(scaler.scale)) if latent else self.moments()
        return mean * scaler.scale + scaler.center, np.sqrt(var) * scaler.scale

    def target_mean(self):
        """Mean (n, k) of the target, in its units; without variances, where members need none for it."""
        scaler, rows, mean = self._scaler, self._rows, 0.0
        if scaler.maps is not None or not rows.plain:
            return self.target_moments()[0]
        total, X = self._total(), torch.as_tensor(rows.X, device=self._device)
        for member in self._members:
            own = member.posterior(self._device).target_mean(X)
            if own is None:
                weights, likelihood, m, v = self._component(member, total, compact=True)
                own = (weights * likelihood.moments(m, v)[0]).sum(0)
            else:
                own = own * (member.mixture_weight / total)
            mean = mean + own
        return mean.cpu().numpy() * scaler.scale + scaler.center

    def mapped_ends(self, latent=False):
        """Return the ends of distributions, in units of the standardized target."""
        return ends(*self._mapped_components(latent), self._scaler)

    def _mapped_components(self, latent):
        return self.latent_components(len(self._scaler.scale)) if latent else self.components()

    def target_decomposed_moments(self):
        """Mean, and standard deviations by the function and by the noise, in the target's units."""
        scaler = self._scaler
        if scaler.maps is None:
            mean, *variances = self.decomposed_moments()
            deviations = (np.sqrt(var) * scaler.scale for var in variances)
            return mean * scaler.scale + scaler.center, *deviations
        components = self.components()
        mean, std = mapped_moments(*components, scaler)
        limits = ends(*components, scaler, END_OF_ROW)
        own = np.minimum(variance_by_function(self._all_parts, mean, scaler, limits), std**2)
        return mean, np.sqrt(own), np.sqrt(std**2 - own)

    def log_density(self, y):
        """Log-density of each row of `y` (n, k), all outputs together."""
        logs = []
        for weights, likelihood, m, v in self._parts:
            y_ = torch.as_tensor(y, device=m.device)
            log_p = weights[..., 0].log() + likelihood.log_partition(y_, m, v)
            logs.append(torch.logsumexp(log_p, 0))
        return torch.logsumexp(torch.stack(logs), 0).cpu().numpy()

    def expected_log_prob(self, y):
        """Expected log-likelihood of each row of `y`, averaged over draws and members."""
        total = 0.0
        for weights, likelihood, m, v in self._all_parts:
            y_ = torch.as_tensor(y, device=m.device)
            total = total + (weights[..., 0] * likelihood.expected_log_prob(y_, m, v)).sum(0)
        return total.cpu().numpy()

    def log_probabilities(self):
        """Logarithms of class probabilities, (n, n_classes)."""
        logs = [
            torch.logsumexp(weights.log() + likelihood.log_probabilities(m, v), 0)
            for weights, likelihood, m, v in self._parts
        ]
        logp = torch.logsumexp(torch.stack(logs), 0)
        return (logp - torch.logsumexp(logp, -1, keepdim=True)).cpu().numpy()

    def log_probabilities_with_std(self):
        """As :meth:`log_probabilities`, and standard deviations of probabilities given the functions."""
        moments = [
            (likelihood.log_probabilities(m, v).exp(), likelihood.variance_of_mean(m, v))
            for _, likelihood, m, v in self._parts
        ]
        return self.log_probabilities(), np.sqrt(self._mix_moments(moments)[1])

    def cdf(self, y):
        """Distribution function at `y` (n, k), output by output."""
        return self._mixed(y, "cdf")

    def tail(self, y, above):
        """Probabilities of exceeding `y` (n, k), or of not doing so, to a relative error far out."""
        return self._mixed(y, "tail", above).clip(0.0, 1.0)

    def _mixed(self, y, method, *settings):
        total = 0.0
        for weights, likelihood, m, v in self._parts:
            y_ = torch.as_tensor(y, device=m.device)
            total = total + (weights * getattr(likelihood, method)(y_, m, v, *settings)).sum(0)
        return total.cpu().numpy()

    def quantiles(self, alpha):
        """Quantiles (n, k, n_alpha) by inverting the cdf; rows of real targets may have orders (n, n_alpha)."""
        if not self._parts[0][1].discrete:
            components = self._components()
            found = quantiles(alpha, *(part.flatten(1) for part in components))
            return found.unflatten(0, components[1].shape[1:]).cpu().numpy()
        mean, var = self.moments()
        # Cantelli's inequality brackets every quantile
        reach = [math.sqrt(p / (1.0 - p)) * 1.001 + 1e-6 for p in alpha]
        high = [np.ceil(np.maximum(mean + r * np.sqrt(var), 0.0)) + 1.0 for r in reach]
        return np.stack([self._count(*each) for each in zip(alpha, high)], -1)

    def _count(self, p, high):
        """The lowest counts that are not exceeded with probability `p`, by bisection."""
        low = np.full_like(high, -1.0)
        while True:
            middle = np.floor(0.5 * low + 0.5 * high)
            # where there is nothing between; beyond 2^53 numbers are more than one apart
            if not np.any((low < middle) & (middle < high)):
                return high
            enough = self.cdf(middle) >= p
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)

    def latent_components(self, k):
        """The mixture of Gaussians that the first `k` latent functions follow, as :meth:`components`."""
        parts = [(w.expand_as(m[..., :1]), m, v) for w, m, v in self._latents(self._all_parts, k)]
        return tuple(torch.cat(column).cpu().numpy() for column in zip(*parts))

    def components(self):
        """Weights, means and variances (c, n, k) if y follows a mixture of Gaussians; weights broadcast."""
        components = self._components()
        return components and tuple(part.cpu().numpy() for part in components)

    def _components(self):
        columns = [], [], []
        for mixture_weights, likelihood, m, v in self._parts:
            components = likelihood.components(m, v)
            if components is None:
                return None
            log_w, means, variances = components  # c, S, n, k
            for column, values in zip(columns, (log_w.exp() * mixture_weights, means, variances)):
                column.append(values.expand_as(means).flatten(0, 1))
        return tuple(map(torch.cat, columns))

    def crps(self, y):
        """Score of `y` (n, k): a closed form for few Gaussians, quadrature for many, a sum for counts."""
        components = self.components()
        if components is not None and len(components[1]) <= _EXACT:
            return mixture_crps(y, *components)
        mean, var = self.moments()
        rows = y.ravel(), mean.ravel(), np.sqrt(var).ravel()
        if components is not None:
            flat = (part.reshape(len(part), -1) for part in components)
            scores = crps_of_mixture(*rows, *flat)
        else:
            if not all(likelihood.discrete for _, likelihood, _, _ in self._parts):
                raise NotImplementedError(
                    "The CRPS is known for counts, and for likelihoods with components."
                )
            n_draws = sum(len(m) for _, _, m, _ in self._parts)
            at_once = _BUDGET // (200 * n_draws * y.shape[1])  # 20 nodes, about 10 counts

            def cdf(which, x):
                return self._cdf_of_outputs(*np.divmod(which, y.shape[1]), x, y.shape[1])

            scores = crps_of_counts(*rows, cdf, at_once)
        return scores.reshape(y.shape)

    def target_crps(self, y):
        """As :meth:`crps`, of targets `y` and in their units."""
        scaler = self._scaler
        if scaler.maps is None:
            return self.crps(scaler.transform(y)) * scaler.scale
        components, scores = self.components(), np.empty(y.shape)
        arrays = y, *heaviest(*components), *ends(*components, scaler)
        for j in range(y.shape[1]):
            parts = (part[..., j] for part in arrays)
            scores[:, j] = crps_of_mapped(*parts, scaler.output(j))
        return scores

    def _cdf_of_outputs(self, rows, outputs, x, k):
        """Distribution functions of single outputs (m,) of rows (m,), at `x` (m, q)."""
        total, (_, q) = 0.0, x.shape
        for weights, likelihood, m, v in self._parts:
            at = torch.as_tensor(x, device=m.device).reshape(-1, 1).expand(-1, k)
            m, v = (part[:, rows].repeat_interleave(q, 1) for part in (m, v))
            total = total + (weights * likelihood.cdf(at, m, v)).sum(0)
        return total.view(-1, q, k).cpu().numpy()[np.arange(len(rows)), :, outputs]


def rows_at_once(members, device):
    """Return how many rows a :class:`Predictive` should have on a device."""
    largest = 1
    for member in members:
        a = member.architecture
        of_layers = 3 * a.n_inducing if member.posterior(device).layers else 0
        largest = max(largest, len(member.draws) * max(of_layers, 40 * a.n_latents))
    return max(1, at_once(_ROWS_BUDGET, device) // largest)
