"""Warping of columns of the inputs, chosen by the marginal likelihood."""

import contextlib

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from ..gp.kernels import RationalQuadratic
from .few_rows import FEWEST, FewRows, some_rows

#: rows, and steps of L-BFGS: there may be a curvature for each of many columns
_ROWS, _STEPS = 400, 40
_COST = 3.0  #: of one unit of curvature, in nats
_ROUND = 0.1  #: rounding: curvature below which it costs next to nothing
_LEAST = 1.0  #: curvature that is worth it
_MOST = 1.5  #: curvature, relative to the one that puts the median in the middle
_END = 0.01  #: rounding: of the range, where medians are at an end
_STRAIGHT = 1e-4  #: rounding: curvature up to which a series is as good


def warped(u, curve):
    r"""A logarithm that leaves 0 and 1 where they are.

    .. math:: w(u) = \log(1 + (e^s - 1) u) / s

    between 0 and 1, with the tangents at both ends beyond; a `curve` ``s = 0`` (D,) is a straight
    line, and ``-s`` warps the other way.
    """
    straight = curve.abs() < _STRAIGHT
    s = torch.where(straight, _STRAIGHT, curve)
    growth = torch.expm1(s)
    v = u.clamp(0.0, 1.0)
    w = torch.log1p(growth * v) / s + growth / ((1.0 + growth * v) * s) * (u - v)
    return torch.where(straight, u + 0.5 * curve * v * (1.0 - v), w)


def unwarped(w, curve):
    """The inverse of :func:`warped` for curves that are not 0."""
    growth = torch.expm1(curve)
    x = w.clamp(0.0, 1.0)
    v = torch.expm1(curve * x) / growth
    return v + (w - x) * (1.0 + growth * v) * curve / growth


class _MarginalLikelihood(FewRows):
    """Marginal likelihood of targets under an exact GP of warped columns, with the price of warps."""

    def __init__(self, u, size, y, weights, columns):
        super().__init__(RationalQuadratic().bind(u.shape[1]), weights)
        self.u, self.size, self.y, self.columns = u, size, y, columns
        self.curve = nn.Parameter(u.new_zeros(len(columns)))
        self._open()

    def _loss(self):
        X = self.u.clone()
        X[:, self.columns] = warped(self.u[:, self.columns], self.curve)
        cost = _COST * (self.curve.square() + _ROUND**2).sqrt().sum()
        return self._negative_log_density(X * self.size, self.y) + cost


class Warp:
    """Maps of single columns that grow everywhere, most of which do nothing.

    A column of distances, ages or prices often matters by its logarithm. Whether one does is asked
    of an exact Gaussian process of a few hundred rows, whose marginal likelihood is maximized over
    its kernel, its noise and one curvature for each column (input warping; Snoek et al., 2014).
    Curvature has its price, so that a column is warped only if this raises the marginal likelihood
    enough. It must be skewed, too, because noise that grows along a column also favors warps.

    The `columns` are warped by `curve`, the logarithm of the ratio of the slopes at the smallest
    and at the largest value of training. Standardized rows of training, `X` (n, D), give the range
    of the values from `low` to `high`, and `center` and `scale` of the warped ones.
    """

    def __init__(self, columns, curve, X):
        self.columns, self.curve = columns, curve
        X = X[:, columns]
        self.low, self.high = X.min(0), X.max(0)
        self.center, self.scale = 0.0, 1.0
        W = self._warped(torch.tensor(X)).numpy()
        self.center, self.scale = W.mean(0), W.std(0)

    @classmethod
    def learn(cls, X, y, weights):
        """Find the columns to be warped; None if there is none.

        Standardized rows `X` (n, D) are in an order that depends on their values alone, because the
        marginal likelihood takes some; `y` (n, k) are standardized numbers.
        """
        curve = curvature(X, y, weights)
        columns = np.flatnonzero(np.abs(curve) >= _LEAST)
        return cls(columns, curve[columns], X) if len(columns) else None

    def _parameters(self, like):
        """Curvature, low and high ends, center and scale, as tensors."""
        names = "curve", "low", "high", "center", "scale"
        return (like.new_tensor(getattr(self, name)) for name in names)

    def _warped(self, X):
        curve, low, high, center, scale = self._parameters(X)
        return (warped((X - low) / (high - low), curve) - center) / scale

    def _replaced(self, X, values):
        """Rows with other values in the columns."""
        columns = torch.as_tensor(self.columns, device=X.device)
        return X.index_copy(1, columns, values)

    def transform(self, X):
        """Warp columns of standardized rows, tensors through which gradients flow."""
        return self._replaced(X, self._warped(X[:, self.columns]))

    def inverse_transform(self, X):
        """Undo the warp of the columns."""
        curve, low, high, center, scale = self._parameters(X)
        u = unwarped(X[:, self.columns] * scale + center, curve)
        return self._replaced(X, u * (high - low) + low)


def skewness(u, weights):
    """Curvature that puts the median of each column between 0 and 1 in the middle, shape (D,)."""
    median = np.quantile(u, 0.5, axis=0, weights=weights, method="inverted_cdf")
    return 2.0 * np.log(1.0 / np.clip(median, _END, 1.0 - _END) - 1.0)


def curvature(X, y, weights):
    """Curvature of each column that maximizes the marginal likelihood less its cost, shape (D,)."""
    curve = np.zeros(X.shape[1])
    low, high = X.min(0), X.max(0)
    size = np.where(high > low, high - low, 1.0)
    u = (X - low) / size
    most = _MOST * skewness(u, weights)
    skewed = np.flatnonzero(np.abs(most) >= _LEAST)
    chosen = some_rows(len(X), _ROWS)
    if not len(skewed) or len(chosen) < FEWEST:
        return curve
    u, size, y, weights = (
        torch.tensor(part, dtype=torch.float64)
        for part in (u[chosen], size, y[chosen], weights[chosen])
    )
    marginal = _MarginalLikelihood(u, size, y, weights, skewed)
    parameters = list(marginal.parameters())
    with contextlib.suppress(torch.linalg.LinAlgError):  # as far as it went
        marginal.minimize(_STEPS)
    if torch.isfinite(parameters_to_vector(parameters)).all():
        found = marginal.curve.detach().numpy()
        most = most[skewed]
        curve[skewed] = np.clip(found, np.minimum(most, 0.0), np.maximum(most, 0.0))
    return curve
