"""Quadrature over the scale of t noise that is uncertain: one rule for two variables."""

from functools import lru_cache

import numpy as np
import torch

from ...linalg import arccos
from .base import first_axis

_WIDEST = 300.0  #: variance of `g`, above which all count as equal
_N_CHEBYSHEV = 48  #: variances of `g` for which weights are computed
_LEAST_NODES = 30
_STEP = 0.45  #: between nodes if `g` is known, in units of the spread
_LEAST = 1e-300  #: weight


class _NoiseScaleRule:
    r"""The distribution of :math:`u = \sqrt{v} z - \log l` on equally spaced nodes, for all `v`.

    Between the ends, which are functions of `v`, weights are smooth functions of `v`: they are
    interpolated.
    """

    def __init__(self, df):
        self.df = df
        self.spread = min(1.0, np.sqrt(8.0 / df))  # of log(l)
        depth = 2.0 * np.log(1e12) / df
        self.depth = min(24.0, depth + min(1.0, np.sqrt(2.0 * depth)))  # -log(l) is hardly larger

    def ends(self, sd):
        """Return ends that `u` rarely exceeds, for standard deviations `sd` of `g`."""
        low = -(((3.2 * self.spread) ** 2 + (4.7 * sd) ** 2) ** 0.5)
        # a tail exp(-df u / 2) is shifted by df v / 4, until that of the Gaussian is all there is
        share = self.df * sd / 18.8
        return low, self.depth + 4.7 * sd * share / (1.0 + share**4) ** 0.25

    def place(self, sd):
        """Map standard deviations `sd` to the interval from -1 to 1."""
        return 2.0 * sd / (sd + self.spread) * (1.0 + self.spread / np.sqrt(_WIDEST)) - 1.0

    @property
    def n_nodes(self):
        low, high = self.ends(0.0)
        return max(_LEAST_NODES, int(np.ceil((high - low) / (_STEP * self.spread))))

    def coefficients(self, n_nodes):
        """Chebyshev coefficients (K, n_nodes) of weights relative to the last factor (n_nodes,)."""
        x = np.cos(np.pi * (np.arange(_N_CHEBYSHEV) + 0.5) / _N_CHEBYSHEV)
        share = 0.5 * (x + 1.0) / (1.0 + self.spread / np.sqrt(_WIDEST))
        sd = share / (1.0 - share) * self.spread
        low, high = self.ends(sd)
        u = low + (high - low) * np.linspace(0.0, 1.0, n_nodes)[:, None]
        weights = np.stack([self._density(u[:, i], sd[i]) for i in range(len(sd))])
        weights /= weights.sum(1, keepdims=True)
        largest = weights.max(0)
        T = np.polynomial.chebyshev.chebvander(x, _N_CHEBYSHEV - 1)
        T[:, 0] *= 0.5
        return 2.0 / _N_CHEBYSHEV * T.T @ (weights / largest), largest

    def _density(self, u, sd):
        """Up to a factor, by the trapezoidal rule over the narrower variable."""
        if sd < 0.3 * self.spread:
            z = np.arange(-16, 17) * 0.4
            return self._without(u[:, None] - sd * z) @ np.exp(-0.5 * z**2)
        step = 0.1 * self.spread
        of_l = np.arange(-4.0 * self.spread, self.depth + 8.0 * self.spread, step)
        return np.exp(-0.5 * ((u[:, None] - of_l) / sd) ** 2) @ self._without(of_l)

    def _without(self, u):
        """Density of ``-log(l)``, relative to the largest."""
        with np.errstate(over="ignore"):
            return np.exp(-0.5 * self.df * (u - 1.0 + np.exp(-u)))


@lru_cache(maxsize=1024)
def _rule(df, n_nodes):
    """Return the rule for `df`, the coefficients of its weights and their factors."""
    rule = _NoiseScaleRule(df)
    return rule, *rule.coefficients(n_nodes)


def noise_scales_of_t(df, v, n_nodes=None):
    r"""Nodes (n_nodes, ..., n, k) for :math:`u = \sqrt{v} z - \log l`, and their log-weights.

    With :math:`l \sim \mathrm{Gamma}(\nu / 2, \nu / 2)` and standard normal `z`, element by element
    of `v`.
    """
    if n_nodes is None:
        n_nodes = max(_NoiseScaleRule(x).n_nodes for x in df.detach().flatten().tolist())
    if df.ndim > 1:
        parts = [noise_scales_of_t(df_c[0], v_c, n_nodes) for df_c, v_c in zip(df, v)]
        return tuple(torch.stack(part, 1) for part in zip(*parts))
    k = v.shape[-1]
    columns = [], []
    for i, one in enumerate(df.detach().expand(k).tolist()):
        rule, coefficients, largest = _rule(one, n_nodes)
        sd = v[..., i].clamp_max(_WIDEST).sqrt()
        like = {"dtype": v.dtype, "device": v.device}
        low, high = rule.ends(sd)
        steps, largest = torch.linspace(0.0, 1.0, n_nodes, **like), torch.as_tensor(largest, **like)
        u = low + (high - low) * first_axis(steps, sd)
        angle = arccos(rule.place(sd).clamp(-1.0, 1.0))
        T = torch.cos(first_axis(torch.arange(len(coefficients), **like), sd) * angle)
        weights = torch.as_tensor(coefficients.T.copy(), **like) @ T.flatten(1)
        weights = weights.view(n_nodes, *sd.shape) * first_axis(largest, sd)
        weights = weights.clamp_min(_LEAST)
        for column, values in zip(columns, (u, weights.log() - weights.sum(0).log())):
            column.append(values)
    return tuple(torch.stack(column, -1) for column in columns)
