"""The choice of monotone maps of targets (warped Gaussian processes; Snelson et al., 2004)."""

import math

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import nn
from torch.nn.utils import parameters_to_vector

from ..gp.component import Trainable
from ..gp.kernels import Linear, SquaredExponential
from ..gp.kernels.indicator import with_levels
from ..gp.likelihoods.base import log_normal
from ..gp.rows import leave_one_out, log_marginal_likelihood
from ..linalg import LOG_2PI, cholesky, rounding
from ..optim.lbfgs import minimize, of_parameters
from ..predictive.transformed import mapped_moments
from ..preprocessing.maps import ExponentialNormal, Log, Logit, YeoJohnson
from ..preprocessing.outliers import weighted_moments
from ..preprocessing.target_scaling import POSITIVE, TargetScaler

_CHOICES = ("log", "exponential-normal", "yeo-johnson")  #: of "auto"
NAMES = (*_CHOICES, "logit")
_ROWS = 250  #: that the marginal likelihood knows: tenths of a second for all maps
_FEWEST = 20  #: rows, and distinct targets, below which no map is chosen
_ATOM = 0.1  #: share of the rows with one target from which on a map would be chosen for its slope there
_STEPS = 25  #: of L-BFGS for each map
_MARGIN = 5.0  #: nats by which a map must win: "very strong" evidence for Kass and Raftery (1995)
_ERRORS = 2.0  #: standard errors of its gain in leave-one-out log density, which rows must share
_WORSE = 1.0  #: standard errors by which means may be worse than those of "exponential-normal"
_MOST_TOTAL = 1.1  #: sum of means, over that of targets, up to which they may be worse all the same
_NEAR = 30  #: rows that tell the local size of noise
_PRIOR = 10.0  #: rows that its size everywhere counts as, as at the start of a local scale
_SPREAD = 2.0  #: of the logarithms of hyperparameters and of the free number of a map, a priori
_NOISE = 0.1  #: start, relative to the target's variance


class _MarginalLikelihood(nn.Module):
    """Marginal likelihood of mapped targets under an exact GP, with the Jacobian of the map.

    `y` and `log_slope` (n,) are targets after the map, and the logarithm of its slope; or before a
    map ``bent(y, bend)`` whose free number is learned, too. Rows `X` (n, D) are standardized, and have
    effects of the levels in the columns `codes`.
    """

    def __init__(self, X, y, log_slope, weights, bent=None, codes=()):
        super().__init__()
        self.X, self.y, self.log_slope, self.weights = X, y, log_slope, weights
        kernel = with_levels(SquaredExponential() + Linear(bias=0.0), codes, X.shape[1])
        self.kernel = Trainable(kernel.bind(X.shape[1]))
        self.log_noise = nn.Parameter(X.new_tensor(math.log(_NOISE)))
        self.bent, self.bend = bent, None if bent is None else nn.Parameter(X.new_zeros(()))
        self._start = parameters_to_vector(self.parameters()).detach().clone()
        #: negative log marginal likelihood with priors, and its gradient
        self.evaluate = of_parameters(self._loss, list(self.parameters()))

    def _targets(self):
        """Standardized targets, and the logarithm of the slope of all that was done to them."""
        y, log_slope = self.y, self.log_slope
        if self.bent is not None:
            y, more = self.bent(y, self.bend)
            log_slope = log_slope + more
        share = self.weights / self.weights.sum()
        center = share @ y
        scale = (share @ (y - center).square()).sqrt().clamp_min(1e-300)
        return (y - center) / scale, log_slope - scale.log()

    def _loss(self):
        (z, log_slope), K = self._targets(), self.kernel()(self.X, self.X)
        deviations = (parameters_to_vector(self.parameters()) - self._start) / _SPREAD
        noise = self.log_noise.exp()[None, None]
        constant = self.weights.log().sum() + len(z) * LOG_2PI
        value = log_marginal_likelihood(z[None], K, noise, self.weights) + 0.5 * constant
        return 0.5 * deviations.square().sum() - self.weights @ log_slope - value

    def maximize(self):
        """Maximize the log marginal likelihood; returns it, or minus infinity if that fails.

        With it come leave-one-out log densities of targets, means and variances of the
        standardized ones, and squares of their whitened errors, each of shape (n,).
        """
        try:
            search = minimize(self.evaluate, list(self.parameters()), _STEPS, 1e-5)
            with torch.no_grad():
                z, log_slope = self._targets()
                K = self.kernel()(self.X, self.X) + torch.diag(self.log_noise.exp() / self.weights)
                precision = torch.cholesky_inverse(cholesky(K, rounding(K)))
        except torch.linalg.LinAlgError:
            return -math.inf, *[None] * 4
        mean, of_means = leave_one_out(z, precision @ z, torch.diagonal(precision))
        loo = log_normal(z, mean, of_means) + log_slope
        noise = self.log_noise.detach().exp()  # of one target, where a row stands for several
        variance = of_means + noise * (1.0 - 1.0 / self.weights)
        value = -search.f - 0.5 * len(z) * LOG_2PI
        if not np.isfinite(value):
            return -math.inf, *[None] * 4
        squares = (z - mean).square() / of_means
        return value, *(part.numpy() for part in (loo, mean, variance, squares))


def _local_scale(X, squares, weights):
    """Squared sizes of the noise around rows X (n, D), by the `squares` of others' whitened errors."""
    distance = cdist(X, X, "sqeuclidean")
    np.fill_diagonal(distance, np.inf)
    near = np.argsort(distance, axis=1, kind="stable")[:, :_NEAR]
    own = weights[near] / weights.mean()
    return (_PRIOR + (own * squares[near]).sum(1)) / (_PRIOR + own.sum(1))


class _Candidate:
    """A map with its number learned, and what speaks for it.

    That is the log marginal likelihood `value`, and leave-one-out log densities and means of
    targets in their units, `log_density` and `mean` (n,). Means after a map depend on the size of
    the noise, which is local here because it is in the models that are trained.
    """

    def __init__(self, name, X, y, weights, codes=()):
        of = {"exponential-normal": ExponentialNormal.of, "yeo-johnson": YeoJohnson.of}.get(name)
        found = Log() if name == "log" else None if of is None else of(y, weights)
        x, log_slope, bent = y, 0.0 * y, None
        if of is not None:
            x, log_slope, bent = found.scaled(y), log_slope - math.log(found.unit), found.bent
        else:  # of any unit, and about zero, or numbers may overflow
            if found is not None:
                x, log_slope = found.forward(y), found.log_slope(y)
            (center,), (scale,) = (part for part in weighted_moments(x[:, None], weights))
            scale = scale or 1.0
            x, log_slope = x / scale - center / scale, log_slope - math.log(scale)
        parts = (torch.tensor(part, dtype=torch.float64) for part in (X, x, log_slope, weights))
        marginal = _MarginalLikelihood(*parts, bent, codes)
        self.value, self.log_density, mean, variance, squares = marginal.maximize()
        if of is not None and mean is not None:
            found = found.learned(marginal.bend.item())
        self.map = found
        if mean is not None:
            variance = variance * _local_scale(X, squares, weights)
            scaler = TargetScaler(maps=[found]).fit(y[:, None], weights)
            mean, variance = (torch.from_numpy(part)[None, :, None] for part in (mean, variance))
            parts = torch.ones_like(mean), mean, variance
            self.mean = mapped_moments(*parts, scaler)[0][:, 0].numpy()


def _errors_worse(one, other, y, weights, positive):
    """Standard errors by which leave-one-out means of a candidate are worse than those of another one.

    By Poisson deviances, for which rows with large targets count less than for squared errors; by
    these if some targets are not positive.
    """
    if positive:
        unit = np.abs(y).max()
        y, *means = (np.minimum(part / unit, 1e100) for part in (y, one.mean, other.mean))
        least = 1e-3 * (weights @ y) / weights.sum()
        m, m_other = (np.maximum(mean, least) for mean in means)
        loss = m - m_other - y * (np.log(m) - np.log(m_other))
    else:
        unit = np.abs(y - other.mean).max() or 1.0
        off = (np.clip((part.mean - y) / unit, -1e100, 1e100) for part in (one, other))
        loss = np.subtract(*map(np.square, off))
    loss = weights * loss / np.abs(loss).max() if loss.any() else loss
    return loss.sum() / max(math.sqrt(len(loss)) * loss.std(), 1e-300)


def is_smooth(y, weights):
    """Whether targets (n,) are numbers of a kind that a density describes: many, and none too often."""
    values, inverse = np.unique(y, return_inverse=True)
    most = np.bincount(inverse.ravel(), weights=weights).max()
    return len(values) >= _FEWEST and most <= _ATOM * weights.sum()


def choose(X, y, weights, positive, codes=()):
    """Choose the map of one target by log marginal likelihood and means; None is the identity.

    The score of a map is the log marginal likelihood of all targets plus the log density of their
    sum given the leave-one-out means. The standard error of the sum is that without a map. The
    second term prevents maps that raise densities but ruin means, where short tails of the target
    become long ones after the map. So does a comparison of the means themselves: a map is refused if they
    are clearly worse than without one. It is also refused if they add up to a tenth too much and are worse
    than those of "exponential-normal", where that wins, too: this map has the shortest upper tails. For
    drizzle, amounts of which many are thousandths of the others, a logarithm has the best densities, and
    means several times too large. Rows `X` (n, D) are standardized, but for `codes` of levels in some columns;
    `positive` is whether all targets that will be seen are.
    """
    if not is_smooth(y, weights):
        return None
    plain = _Candidate(None, X, y, weights, codes)
    if plain.log_density is None:
        return None
    off = y - plain.mean
    unit = np.abs(off).max() or 1.0
    error = math.sqrt(weights @ np.square(off / unit))

    def score(one):
        with np.errstate(over="ignore"):
            return one.value - 0.5 * (weights @ ((one.mean - y) / unit) / error) ** 2

    def errors(one, other):
        return _errors_worse(one, other, y, weights, positive)

    winners, safe = [], None
    for name in _CHOICES if positive else _CHOICES[-1:]:
        one = _Candidate(name, X, y, weights, codes)
        if one.log_density is None or not score(one) > score(plain) + _MARGIN:
            continue
        gain = one.log_density - plain.log_density
        own = score(one) - 0.5 * math.log(len(y)) * (name != "log")  # of its number; Schwarz (1978)
        wins = gain.sum() > _ERRORS * math.sqrt(len(gain)) * gain.std()
        if wins and errors(one, plain) < _ERRORS:
            winners.append((own, one))
            safe = one if name == "exponential-normal" else safe
    if safe is not None:
        most = _MOST_TOTAL * (weights @ (y / unit))
        winners = [
            (own, one)
            for own, one in winners
            if one is safe or weights @ (one.mean / unit) <= most or errors(one, safe) <= _WORSE
        ]
    return max(winners, key=lambda pair: pair[0])[1].map if winners else None


def learn(name, X, y, weights, positive, codes=()):
    """A map for each output, the named one with its number learned or a chosen one; None for none.

    ``X(rows)`` are standardized rows (n, D), in an order that depends on their values alone, but for `codes`
    of levels in some columns. `positive` (k,) is whether all targets that will be seen are.
    """
    k = y.shape[1]
    if name in POSITIVE and not positive.all():
        raise ValueError(
            f"target_transform={name!r} needs positive targets, but some are zero or negative; use "
            "'yeo-johnson' or None."
        )
    if name in ("log", "logit"):
        return [Log() if name == "log" else Logit()] * k
    most = max(100, _ROWS // k)
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[:most])
    X, weights, maps = X(rows), np.array(weights[rows], dtype=np.float64), []
    for column, above in zip(np.asarray(y[rows], dtype=np.float64).T, positive):
        own = ~np.isnan(column)
        parts = X[own], column[own], weights[own]
        if name == "auto":
            maps.append(choose(*parts, above, codes))
        else:
            maps.append(_Candidate(name, *parts, codes).map)
    return maps if any(maps) else None
