"""Values that many targets equal, such as zero, with a probability of their own."""

import numpy as np

from ..estimators._sklearn import no_progress
from ..estimators.classifier import DeepGPClassifier
from ..gp.kernels import RationalQuadratic
from ..inference import Vecchia
from ..parallel import divides
from .mixture_fit import fit_estimator
from .table import Data

_LEAST = 0.1  #: share of the rows in each part: of fewer neither is learned
_FEWEST = 20  #: rows in each part
_TIMES = 2.0  #: as frequent as any other target: values of a scale have about equal shares
#: of the distance from an atom to the nearest other target: log densities spread the atom over such a width.
#: No data decide it; a tenth keeps the atom apart from all other targets
_WIDTH = 0.1
_NEIGHBORS, _STEPS = 24, 100  #: of the classifier: as members of classes have
_ROWS = 50_000  #: that it learns from at most: 4 seconds, of a budget of 60
_SHARE = 0.2  #: of the time that a user gives
_CERTAIN = 1e-12  #: probability that the rest of the distribution has at least


class Atoms:
    """Values that have a probability of their own, in one target.

    The distribution of a row is ``sum_k p_k delta(a_k) + q f`` (Cragg, 1971, Econometrica 39, for
    one value). The `values` `a_k` are sorted, and `f` is the density of the mixture. The
    probabilities are those of the `classifier`: it has a class for each value, and a last one for
    all other targets. Log densities spread the values over `widths`.
    """

    def __init__(self, values, widths, classifier):
        self.values, self.widths, self.classifier = values, widths, classifier

    def probabilities(self, X):
        """Probabilities of the atoms (n, n_atoms), and of all other values (n, 1)."""
        return self._parts(self.classifier._centers(X))

    def _parts(self, p):
        return p[:, :-1], np.maximum(p[:, -1:], _CERTAIN)

    def among(self, y):
        """Whether targets are atoms."""
        return np.isin(y, self.values)

    def moments(self, X, mean, std, p=None):
        """Mean and standard deviation (n, 1), from those of all other values."""
        p, q = self.probabilities(X) if p is None else p
        center = q * mean + (p @ self.values)[:, None]
        off = (p * np.square(self.values - center)).sum(1, keepdims=True)
        return center, np.sqrt(q * (np.square(std) + np.square(mean - center)) + off)

    def decomposed(self, X, mean, own, noise):
        """Mean, and standard deviations by functions and by noise, as :meth:`moments`.

        Probabilities are independent of the mixture, and of two atoms nearly so of each other.
        """
        log_p, error = self.classifier._predict_rows(X, "log_probabilities_with_std")
        p, q = self._parts(np.exp(log_p))
        center, std = self.moments(X, mean, np.hypot(own, noise), (p, q))
        variance = np.square(q * own) + np.square(error[:, -1:] * own)
        off = np.square(error[:, :-1] * (self.values - mean)).sum(1, keepdims=True)
        variance = np.minimum(variance + off, np.square(std))
        return center, np.sqrt(variance), np.sqrt(np.square(std) - variance)

    def centers(self, X, draws, seed):
        """Draws (n_draws, n, 1) of mean functions, from those of the mixture."""
        p = self.classifier._draw_centers(X, len(draws), seed)
        return p[..., -1:] * draws + (p[..., :-1] @ self.values)[..., None]

    def covariance(self, X, cov, var):
        """Covariance (n, n) of rows with variances (n,), from that of the mixture."""
        _, q = self.probabilities(X)
        cov = q * q.T * cov
        np.fill_diagonal(cov, var)
        return cov

    def orders(self, X, alpha, below):
        """Orders (n, n_alpha) at which the mixture has quantiles, and atoms in their place or NaN.

        The mixture gives the probabilities `below` (n, n_atoms) to less than each atom.
        """
        p, q = self.probabilities(X)
        start = q * below + np.cumsum(p, 1) - p  # of the distribution, just below each atom
        alpha = np.broadcast_to(alpha, (len(X), len(alpha)))
        taken, atoms = np.zeros(alpha.shape), np.full(alpha.shape, np.nan)
        for value, mass, first in zip(self.values, p.T[..., None], start.T[..., None]):
            taken += np.where(alpha > first + mass, mass, 0.0)
            atoms[(first < alpha) & (alpha <= first + mass)] = value
        orders = np.clip((alpha - taken) / q, _CERTAIN, 1.0 - _CERTAIN)
        return np.where(np.isnan(atoms), orders, 0.5), atoms  # the median takes the fewest steps

    def tail(self, X, y, tail, above):
        """Probabilities (n, 1) of exceeding `y`, or of not doing so, from those of the mixture."""
        p, q = self.probabilities(X)
        there = self.values > y if above else self.values <= y
        return q * tail + (p * there).sum(1, keepdims=True)

    def mass(self, X, y):
        """Probabilities (n,) of targets `y` (n,) as atoms, zero for others."""
        return (self.probabilities(X)[0] * (self.values == y[:, None])).sum(1)

    def log_density(self, X, y, log_density):
        """Log densities (n,) of targets (n, 1), from those of the mixture."""
        p, q = self.probabilities(X)
        near = np.abs(y - self.values) <= 0.5 * self.widths
        with np.errstate(divide="ignore"):
            of_atom = np.log((p * near / self.widths).sum(1))
        return np.logaddexp(of_atom, np.log(q[:, 0]) + log_density)

    def crps(self, X, y, crps):
        """Scores (n, 1) of targets, from a function that scores the mixture alone.

        With ``E|X - y| - E|X - X'| / 2`` for X, X' from the distribution, what the score of the mixture
        lacks of its first term is left over from the second.
        """
        p, q = self.probabilities(X)
        distances = np.abs(self.values[:, None] - self.values)
        score = q * crps(y) + (p * np.abs(y - self.values)).sum(1, keepdims=True)
        for mass, value in zip(p.T[..., None], self.values):
            score -= q * mass * crps(np.full_like(y, value))
        return score - 0.5 * np.einsum("ij,jk,ik->i", p, distances, p)[:, None]

    def sample(self, X, y, seed):
        """Draws (n_draws, n, 1) of targets, from those of the mixture."""
        p, _ = self.probabilities(X)
        u = np.random.default_rng([seed, 1]).random((len(y), len(X)))
        which = (u[..., None] > np.cumsum(p, 1)).sum(2)
        values = np.append(self.values, np.nan)[which]
        return np.where(np.isnan(values), y[..., 0], values)[..., None]

    def __str__(self):
        listed = " and ".join(f"{value:g}" for value in self.values)
        return f"{listed} by a classifier, all others by the mixture"


def learn(estimator, data, held_out, seed, started):
    """Find atoms at the ends of the targets; returns them or None, and the rows that are none.

    At least a tenth of the targets equal an atom, not all others do, and no other value is more than half as
    frequent. The rows are not scaled yet, and `held_out` may be None.
    """
    nothing = None, data, held_out
    given = estimator.likelihood, estimator.inference
    automatic = all(isinstance(part, str) and part == "auto" for part in given)
    automatic &= isinstance(estimator.init, str) and data.log_exposure is None
    if not automatic or data.y.shape[1] > 1 or divides():
        return nothing
    y, weights = data.y[:, 0], data.weights
    distinct, index = np.unique(y, return_inverse=True)
    counts, least = np.bincount(index, weights), max(_FEWEST, _LEAST * weights.sum())
    most = max(least, _TIMES * counts[1:-1].max(initial=0.0))
    values = distinct[[end for end in (0, -1) if counts[end] >= most]]
    rest, others = ~np.isin(y, values), np.setdiff1d(distinct, values)
    if not len(values) or weights[rest].sum() < least or len(others) < 2:
        return nothing
    if held_out is not None:
        held_out = held_out.part(np.flatnonzero(~np.isin(held_out.y[:, 0], values)))
        if not len(held_out):
            return nothing
    labels = np.where(rest, len(values), np.searchsorted(values, y)).astype(np.float64)
    gaps = np.abs(values[:, None].astype(np.float64) - others).min(1)
    classifier = _classifier(estimator, data, labels, seed, started)
    atoms = Atoms(values.astype(np.float64), _WIDTH * gaps, classifier)
    return atoms, data.part(np.flatnonzero(rest)), held_out


def _classifier(estimator, data, labels, seed, started):
    steps, seconds = estimator.max_iter, estimator.max_time
    model = DeepGPClassifier(
        n_layers=1,
        inference=Vecchia(_NEIGHBORS),
        kernel=RationalQuadratic(),
        max_iter=_STEPS if steps is None else min(steps, _STEPS),
        max_time=None if seconds is None else _SHARE * seconds,
        device=estimator.device,
        dtype=estimator.dtype,
        n_threads=estimator.n_threads,
        random_state=seed,
    )
    for name in ("_reader", "n_features_in_", "feature_names_in_"):
        if name in vars(estimator):
            setattr(model, name, getattr(estimator, name))
    encoded = model._encode(labels, reset=True)
    rows = Data(data.X, encoded, data.weights, data.kinds)
    if len(rows) > _ROWS:
        chosen = np.random.default_rng(seed).choice(len(rows), _ROWS, replace=False)
        rows = rows.part(np.sort(chosen))
    fit_estimator(model, rows, None, no_progress, started)
    return model
