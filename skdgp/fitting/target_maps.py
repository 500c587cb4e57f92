"""The choice of monotone maps of targets (warped Gaussian processes; Snelson et al., 2004)."""

import math

import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import nn
from torch.nn.utils import parameters_to_vector

from ..gp.kernels import Linear, SquaredExponential
from ..gp.kernels.indicator import with_levels
from ..gp.likelihoods.base import log_normal
from ..gp.rows import FEW_ROWS, leave_one_out
from ..inference.rows.local_scale import START_COUNT
from ..linalg import LOG_2PI, cholesky, rounding
from ..predictive.point_masses import LEAST_SHARE
from ..predictive.transformed import mapped_moments
from ..preprocessing.few_rows import FEWEST, FewRows, some_rows
from ..preprocessing.maps import ExponentialNormal, Log, Logit, YeoJohnson
from ..preprocessing.outliers import weighted_moments
from ..preprocessing.target_scaling import POSITIVE, TargetScaler

_CHOICES = ("log", "exponential-normal", "yeo-johnson")  #: of "auto"
NAMES = (*_CHOICES, "logit")
_MARGIN = 5.0  #: nats by which a map must win: "very strong" evidence for Kass and Raftery (1995)
_WORSE = 1.0  #: standard errors by which means may be worse than those of "exponential-normal"
_MOST_TOTAL = 1.1  #: sum of means, over that of targets, up to which they may be worse all the same
#: standard errors of differences in leave-one-out densities and means that are not chance
_ERRORS = 2.0
_NEAR = 30  #: rows that tell the local size of noise


class _MarginalLikelihood(FewRows):
    """Marginal likelihood of mapped targets under an exact GP, with the Jacobian of the map.

    `y` and `log_slope` (n,) are targets after the map, and the logarithm of its slope; or before a
    map ``bent(y, bend)`` whose free number is learned, too. Rows `X` (n, D) are standardized, and have
    effects of the levels in the columns `codes`.
    """

    def __init__(self, X, y, log_slope, weights, bent=None, codes=()):
        kernel = with_levels(SquaredExponential() + Linear(bias=0.0), codes, X.shape[1])
        super().__init__(kernel.bind(X.shape[1]), weights)
        self.X, self.y, self.log_slope = X, y, log_slope
        self.bent, self.bend = bent, None if bent is None else nn.Parameter(X.new_zeros(()))
        self._open()

    def _with_prior(self):
        return parameters_to_vector(self.parameters())

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
        z, log_slope = self._targets()
        n, noise = (
            self.weights,
            self.log_noise,
        )  # of the rows that a row stands for, all but their mean
        within = 0.5 * ((n - 1.0) * (noise + LOG_2PI)).sum() - n @ log_slope
        return self._negative_log_density(self.X, z[:, None]) + within

    def maximize(self):
        """Maximize the log marginal likelihood, and predict each row from all others; None if that fails.

        Returns the log marginal likelihood, up to a constant of the rows, and leave-one-out log densities of
        targets, means and variances of the standardized ones, and squares of their whitened errors, (n,).
        """
        try:
            value = -self.minimize()
            with torch.no_grad():
                z, log_slope = self._targets()
                K = self._covariance(self.X)
                precision = torch.cholesky_inverse(cholesky(K, rounding(K)))
        except torch.linalg.LinAlgError:
            return None
        if not np.isfinite(value):
            return None
        mean, of_means = leave_one_out(z, precision @ z, torch.diagonal(precision))
        loo = log_normal(z, mean, of_means) + log_slope
        noise = self.log_noise.detach().exp()  # of one target, where a row stands for several
        variance = of_means + noise * (1.0 - 1.0 / self.weights)
        squares = (z - mean).square() / of_means
        return value, *(part.numpy() for part in (loo, mean, variance, squares))


def _local_scale(X, squares, weights):
    """Squared sizes of the noise around rows X (n, D), by the `squares` of others' whitened errors."""
    distance = cdist(X, X, "sqeuclidean")
    np.fill_diagonal(distance, np.inf)
    near = np.argsort(distance, axis=1, kind="stable")[:, :_NEAR]
    own = weights[near] / weights.mean()
    return (START_COUNT + (own * squares[near]).sum(1)) / (START_COUNT + own.sum(1))


class _Candidate:
    """A map with its number learned, and what speaks for it.

    That is leave-one-out log densities and means of targets in their units, `log_density` and `mean` (n,), or
    None for the former if there are none, and the log marginal likelihood `value`. Means after a map depend
    on the size of the noise, which is local here because it is in the models that are trained.
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
        predictions = marginal.maximize()
        self.map, self.log_density = found, None
        if predictions is None:
            return
        if of is not None:
            self.map = found.learned(marginal.bend.item())
        self.value, self.log_density, mean, variance, squares = predictions
        variance = variance * _local_scale(X, squares, weights)
        scaler = TargetScaler(maps=[self.map]).fit(y[:, None], weights)
        mean, variance = (torch.from_numpy(part)[None, :, None] for part in (mean, variance))
        self.mean = mapped_moments(torch.ones_like(mean), mean, variance, scaler)[0][:, 0].numpy()


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
    """Whether a density describes targets (n,): many numbers, none of which has a probability of its own.

    A map would be chosen for its slope there.
    """
    values, inverse = np.unique(y, return_inverse=True)
    most = np.bincount(inverse.ravel(), weights=weights).max()
    return len(values) >= FEWEST and most <= LEAST_SHARE * weights.sum()


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
    rows = some_rows(len(y), max(100, FEW_ROWS // k))
    X, weights, maps = X(rows), np.array(weights[rows], dtype=np.float64), []
    for column, above in zip(np.asarray(y[rows], dtype=np.float64).T, positive):
        own = ~np.isnan(column)
        parts = X[own], column[own], weights[own]
        if name == "auto":
            maps.append(choose(*parts, above, codes))
        else:
            maps.append(_Candidate(name, *parts, codes).map)
    return maps if any(maps) else None
