"""Monotone maps of targets, before they are standardized (warped Gaussian processes; Snelson et al., 2004)."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ..gp.component import Trainable
from ..gp.kernels import Linear, SquaredExponential
from ..linalg import LOG_2PI, cholesky, rounding
from ..optim.lbfgs import LBFGS
from .scaling import weighted_moments

NAMES = ("log", "yeo-johnson")
_ROWS = 250  #: that the marginal likelihood knows: tenths of a second for all maps
_FEWEST = 20  #: rows, and distinct targets, below which no map is chosen
_ATOM = 0.1  #: share of the rows with one target from which on a map would be chosen for its slope there
_STEPS = 25
_MARGIN = 5.0  #: nats by which a map must win: "very strong" evidence for Kass and Raftery (1995)
_ERRORS = 2.0  #: standard errors of its gain in leave-one-out log density, which rows must share
_SPREAD = 2.0  #: of the logarithms of hyperparameters and of the free number of a map, a priori
_NOISE = 0.1  #: start, relative to the target's variance
_TINY = 5e-324
_LOG_MOST = 709.0  #: exponentials of more overflow
_LOG_FAR = 345.0  #: likewise of values whose squares are needed
_STRAIGHT = 1e-6  #: powers nearer to 0 are as good as a logarithm


class Log:
    """The logarithm of positive targets."""

    name = "log"

    def forward(self, y):
        return np.log(np.maximum(y, _TINY))

    def inverse(self, x):
        return np.exp(np.clip(x, -_LOG_MOST, _LOG_MOST))

    def log_slope(self, y):
        """Logarithm of the derivative; densities are zero where there is no logarithm."""
        return np.where(y > 0.0, -self.forward(y), -np.inf)


class YeoJohnson:
    r"""The power transformation of Yeo and Johnson (2000) of :math:`u = (y - c) / s`.

    .. math:: g(u) = \operatorname{sign}(u) \, ((1 + |u|)^p - 1) / p

    with :math:`p = \lambda` for positive `u` and :math:`2 - \lambda` for others. Between 0 and 2 all real
    numbers are values, so that every prediction has an inverse.

    Parameters
    ----------
    center, unit : float
        Median of the targets, and median distance from it: other units lead to the same map.
    curve : float
        The number between 0 and 2; the identity is 1.
    """

    name = "yeo-johnson"

    def __init__(self, center, unit, curve):
        self.center, self.unit = float(center), float(unit)
        self.curve = float(np.clip(curve, _STRAIGHT, 2.0 - _STRAIGHT))

    @classmethod
    def of(cls, y, weights, curve=1.0):
        """The map with the center and the unit of some targets (n,)."""

        def median(values):
            return np.quantile(values, 0.5, weights=weights, method="inverted_cdf")

        with np.errstate(over="ignore"):
            center = median(y)
            distance = np.minimum(np.abs(y - center), np.finfo(np.float64).max)
            unit = median(distance) or distance.max() or 1.0
        return cls(center, unit, curve)

    def _scaled(self, y):
        with np.errstate(over="ignore"):
            u = (y / 2.0 - self.center / 2.0) / (self.unit / 2.0)
        return np.clip(u, -1e300, 1e300)

    def _power(self, side):
        return np.where(side >= 0.0, self.curve, 2.0 - self.curve)

    def forward(self, y):
        u = self._scaled(y)
        p = self._power(u)
        return np.sign(u) * np.expm1(np.minimum(p * np.log1p(np.abs(u)), _LOG_FAR)) / p

    def inverse(self, x):
        p = self._power(x)
        u = np.expm1(np.minimum(np.log1p(p * np.abs(x)) / p, _LOG_MOST))
        with np.errstate(over="ignore"):
            y = self.center + self.unit * np.sign(x) * u
        most = np.finfo(np.float64).max
        return np.clip(y, -most, most)

    def log_slope(self, y):
        u = self._scaled(y)
        return (self._power(u) - 1.0) * np.log1p(np.abs(u)) - math.log(self.unit)


class _MarginalLikelihood(nn.Module):
    """Of targets under a map and an exact Gaussian process, with the Jacobian of the map.

    Parameters
    ----------
    X : tensor of shape (n, D)
        Standardized.
    y, log_slope : tensors of shape (n,)
        Targets after the map, and the logarithm of its slope; before a Yeo-Johnson map that is `free`.
    weights : tensor of shape (n,)
    free : bool
        Whether the curve is learned, too: as ``1 + tanh(bend)``.
    """

    def __init__(self, X, y, log_slope, weights, free):
        super().__init__()
        self.X, self.y, self.log_slope, self.weights = X, y, log_slope, weights
        self.kernel = Trainable((SquaredExponential() + Linear(bias=0.0)).bind(X.shape[1]))
        self.log_noise = nn.Parameter(X.new_tensor(math.log(_NOISE)))
        self.bend = nn.Parameter(X.new_zeros(())) if free else None
        self._start = parameters_to_vector(self.parameters()).detach().clone()

    @property
    def curve(self):
        return 1.0 + self.bend.tanh()

    def _targets(self):
        """Standardized targets, and the logarithm of the slope of all that was done to them."""
        y, log_slope = self.y, self.log_slope
        if self.bend is not None:
            size = y.abs().log1p()
            p = torch.where(y >= 0.0, self.curve, 2.0 - self.curve).clamp_min(_STRAIGHT)
            y = y.sign() * (p * size).clamp_max(_LOG_FAR).expm1() / p
            log_slope = log_slope + (p - 1.0) * size
        share = self.weights / self.weights.sum()
        center = share @ y
        scale = (share @ (y - center).square()).sqrt().clamp_min(1e-300)
        return (y - center) / scale, log_slope - scale.log()

    def _covariance(self):
        return self.kernel()(self.X, self.X) + torch.diag(self.log_noise.exp() / self.weights)

    def evaluate(self, x):
        """Negative log marginal likelihood with priors, and its gradient."""
        parameters = list(self.parameters())
        vector_to_parameters(x, parameters)
        with torch.enable_grad():
            K, (z, log_slope) = self._covariance(), self._targets()
            prior = (
                0.5 * ((parameters_to_vector(parameters) - self._start) / _SPREAD).square().sum()
            )
            copies = 0.5 * (self.weights - 1.0).sum() * (LOG_2PI + self.log_noise)
            rest = prior + copies - self.weights @ log_slope
        L = cholesky(K.detach(), rounding(K))
        a = torch.cholesky_solve(z.detach()[:, None], L)
        value = 0.5 * (z.detach() @ a[:, 0]) + torch.diagonal(L).log().sum() + rest.detach()
        slope = 0.5 * (torch.cholesky_inverse(L) - a @ a.T)
        with torch.enable_grad():
            gradients = torch.autograd.grad((slope * K).sum() + z @ a[:, 0] + rest, parameters)
        return float(value), torch.cat([g.flatten() for g in gradients])

    def maximize(self):
        """The log marginal likelihood and the leave-one-out log densities (n,) at its maximum."""
        search = LBFGS(tol=1e-5)
        try:
            search.start(parameters_to_vector(self.parameters()).detach(), self.evaluate)
            for _ in range(_STEPS):
                search.step(self.evaluate)
            vector_to_parameters(search.x, self.parameters())
            with torch.no_grad():
                K, (z, log_slope) = self._covariance(), self._targets()
                precision = torch.cholesky_inverse(cholesky(K, rounding(K)))
            # Rasmussen and Williams (2006), equations 5.10 to 5.12
            diagonal, a = torch.diagonal(precision), precision @ z
            loo = 0.5 * (diagonal.log() - a.square() / diagonal - LOG_2PI) + log_slope
        except torch.linalg.LinAlgError:
            return -math.inf, None
        value = -search.f - 0.5 * len(z) * LOG_2PI
        return (value, loo.numpy()) if np.isfinite(value) else (-math.inf, None)


def _fitted(name, X, y, weights):
    """A map with its number learned, its log marginal likelihood, and leave-one-out log densities."""
    found = {"log": Log, "yeo-johnson": lambda: YeoJohnson.of(y, weights), None: lambda: None}[
        name
    ]()
    x, log_slope = (y, 0.0 * y) if found is None else (found.forward(y), found.log_slope(y))
    if found is None or name == "log":  # of any unit, and about zero, or numbers may overflow
        (center,), (scale,) = (part for part in weighted_moments(x[:, None], weights))
        scale = scale or 1.0
        x, log_slope = x / scale - center / scale, log_slope - math.log(scale)
    parts = (torch.tensor(part, dtype=torch.float64) for part in (X, x, log_slope, weights))
    marginal = _MarginalLikelihood(*parts, name == "yeo-johnson")
    value, loo = marginal.maximize()
    if name == "yeo-johnson" and loo is not None:
        found = YeoJohnson(found.center, found.unit, marginal.curve.item())
    return found, value, loo


def is_smooth(y, weights):
    """Whether targets (n,) are numbers of a kind that a density describes: many, and none too often."""
    values, inverse = np.unique(y, return_inverse=True)
    most = np.bincount(inverse.ravel(), weights=weights).max()
    return len(values) >= _FEWEST and most <= _ATOM * weights.sum()


def choose(X, y, weights, positive):
    """The map of one target for which its log marginal likelihood speaks; None for the identity.

    Parameters
    ----------
    X : ndarray of shape (n, D)
        Standardized rows.
    y, weights : ndarrays of shape (n,)
    positive : bool
        Whether all targets that will be seen are positive.
    """
    if not is_smooth(y, weights):
        return None
    _, least, plain = _fitted(None, X, y, weights)
    best, least = None, least + _MARGIN
    for name in NAMES[0 if positive else 1 :]:
        found, value, loo = _fitted(name, X, y, weights)
        if value > least and loo is not None and plain is not None:
            gain = loo - plain
            if gain.sum() > _ERRORS * math.sqrt(len(gain)) * gain.std():
                best, least = found, value
    return best


def learn(name, X, y, weights, positive):
    """A map for each output: the one that is named, with its number learned, or a chosen one.

    Parameters
    ----------
    name : {"auto", "log", "yeo-johnson"}
    X : callable
        Standardized rows (n, D) of some indices, in an order that depends on their values alone.
    y : ndarray of shape (n_rows, k)
    weights : ndarray of shape (n_rows,)
    positive : ndarray of bool of shape (k,)
        Whether all targets that will be seen are positive.

    Returns
    -------
    maps : list of Log, YeoJohnson or None; or None if there is no map at all

    Raises
    ------
    ValueError
        If the logarithm is asked for of targets that are not positive.
    """
    k = y.shape[1]
    if name == "log":
        if not positive.all():
            raise ValueError(
                "target_transform='log' needs positive targets, but some are zero or negative; use "
                "'yeo-johnson' or None."
            )
        return [Log()] * k
    most = max(100, _ROWS // k)
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[:most])
    X, weights, maps = X(rows), np.array(weights[rows], dtype=np.float64), []
    for column, above in zip(np.asarray(y[rows], dtype=np.float64).T, positive):
        if name == "auto":
            maps.append(choose(X, column, weights, above))
        else:
            maps.append(_fitted(name, X, column, weights)[0])
    return maps if any(maps) else None
