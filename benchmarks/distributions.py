"""Predictive distributions of all models, behind one face, and their scores in the target's units.

Each has `mean`, ``log_density(y)``, ``crps(y)`` and ``inside(y, coverage)``, an entry for each row.
"""

import numpy as np
from scipy.special import logsumexp, ndtr

from skdgp.metrics import crps_scorer
from skdgp.metrics.crps import mixture_crps

LEVELS = np.arange(1, 100) / 100.0  #: of the quantiles that stand for a distribution
N_BLOCKS = 20  #: of test rows, whose mean log-densities tell the standard error of a difference
#: least width of a row, relative to the target: where values repeat, spikes win else
_NARROW = 0.01
_BROAD = 0.01  #: share of the training target's Gaussian, for what no quantile tells of


class Mixture:
    """Equal mixtures of Gaussians; `means` and `variances` have the shape (c, n)."""

    def __init__(self, means, variances):
        self.means, self.variances = np.atleast_2d(means), np.atleast_2d(variances)
        self.mean = self.means.mean(0)
        self.std = np.sqrt(self.variances.mean(0) + self.means.var(0))

    def log_density(self, y):
        """The logarithm of the mean over components, not the mean of logarithms."""
        squares = (y - self.means) ** 2 / self.variances
        logs = -0.5 * (squares + np.log(2.0 * np.pi * self.variances))
        return logsumexp(logs, axis=0) - np.log(len(self.means))

    def crps(self, y):
        weights = np.full((len(self.means), 1, 1), 1.0 / len(self.means))
        parts = self.means[..., None], self.variances[..., None]
        return mixture_crps(y[:, None], weights, *parts)[:, 0]

    def inside(self, y, coverage):
        below = ndtr((y - self.means) / np.sqrt(self.variances)).mean(0)
        return np.abs(below - 0.5) <= 0.5 * coverage


class Quantiles:
    """Quantiles of the orders :data:`LEVELS`, sorted (Chernozhukov et al., 2010).

    The density is that of Gaussians around the quantiles, with Silverman's (1986) bandwidth. Of what was
    tried (constant between 13, 21 or 99 quantiles with exponential tails, other bandwidths) this is best or
    nearly so for forests and boosted quantiles alike. A hundredth of the mass is the Gaussian of the
    training target, without which one row far outside would decide everything.

    `values` has the shape (n, 99). Without `mean`, it is that of the quantiles.
    """

    def __init__(self, values, y_train, mean=None):
        self.values = np.sort(np.asarray(values, dtype=float), axis=1)
        self.mean = self.values.mean(1) if mean is None else mean
        self.std = self.values.std(1)
        self._broad = Mixture([[y_train.mean()]], [[y_train.var()]])

    def log_density(self, y):
        q = self.values
        std, middle = q.std(1), (q[:, 74] - q[:, 24]) / 1.349
        width = np.where(middle > 0.0, np.minimum(std, middle), std)
        width = np.maximum(width, _NARROW * self._broad.variances.item() ** 0.5)
        width *= 0.9 * q.shape[1] ** -0.2
        found = Mixture(q.T, np.tile(width**2, (q.shape[1], 1))).log_density(y)
        return np.logaddexp(np.log1p(-_BROAD) + found, np.log(_BROAD) + self._broad.log_density(y))

    def crps(self, y):
        """Twice the mean pinball loss over all orders."""
        gaps = y[:, None] - self.values
        return 2.0 * np.maximum(LEVELS * gaps, (LEVELS - 1.0) * gaps).mean(1)

    def inside(self, y, coverage):
        tail = 0.5 * (1.0 - coverage)
        low, high = (
            np.array([np.interp(p, LEVELS, row) for row in self.values]) for p in (tail, 1 - tail)
        )
        return (low <= y) & (y <= high)


class Ours:
    """What a fitted estimator of skdgp predicts, or another one with its methods."""

    def __init__(self, model, X):
        self._model, self._X = model, X
        self.mean, self.std = model.predict(X, return_std=True)

    def log_density(self, y):
        return self._model.log_predictive_density(self._X, y)

    def crps(self, y):
        return np.full(len(y), -crps_scorer(self._model, self._X, y))  # its mean is all that counts

    def inside(self, y, coverage):
        low, high = self._model.predict_interval(self._X, coverage=coverage).T
        return (low <= y) & (y <= high)


def scores(found, y, coverage=0.9):
    """Scores of a distribution, or of class probabilities if it is an array, as a dict."""
    if isinstance(found, np.ndarray):
        p = np.clip(found, 1e-6, None)  # for classifiers that are sure of everything
        logs = np.log(p / p.sum(1, keepdims=True))[np.arange(len(y)), y]
        return {"accuracy": float((found.argmax(1) == y).mean()), **_log_density(logs)}
    return {
        **_log_density(found.log_density(y)),
        "rmse": float(np.sqrt(np.mean((found.mean - y) ** 2))),
        "crps": float(found.crps(y).mean()),
        "coverage": float(found.inside(y, coverage).mean()),
    }


def _log_density(logs):
    parts = np.array_split(logs, min(N_BLOCKS, len(logs)))
    return {"log_density": float(logs.mean()), "blocks": [float(part.mean()) for part in parts]}
