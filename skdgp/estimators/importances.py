"""Importance of each column for the predictions of a fitted estimator."""

import time

import numpy as np

_AT_ONCE = 200_000  #: numbers in changed rows, for the sake of memory
_TRIED = 5, 50  #: of these rows, whose seconds tell those of all
_SMALL = 0.1  #: share of the seconds of a fit that importances may add to it


def total_effects(predict, pairs) -> np.ndarray:
    """Half the mean squared change (n_features, ...) of predictions if a column takes values of other rows.

    Total-effect indices of Sobol, before they are divided by the variance, as of Jansen (1999, Computer
    Physics Communications 117, eq. 6). `predict` maps (n, n_features) to (n, k), or to (n, k, n_draws).
    """
    before = predict(pairs.rows)
    effects = np.zeros((pairs.rows.shape[1], *before.shape[2:]))
    size = max(1, _AT_ONCE // pairs.rows.shape[1])
    for part in (slice(i, i + size) for i in range(0, len(pairs.row), size)):
        row, column, share = pairs.row[part], pairs.column[part], pairs.share[part]
        changed = pairs.rows[row]
        changed[np.arange(len(row)), column] = pairs.value[part]
        squares = np.square(predict(changed) - before[row]).sum(1)
        np.add.at(effects, column, 0.5 * (share * squares.T).T)
    return effects


def shares(effects) -> np.ndarray:
    """Effects (n_features, ...) that add up to one over the columns, or zeros where there are none."""
    total = effects.sum(0)
    return effects / np.where(total > 0.0, total, 1.0)


def importances(estimator, pairs=None) -> np.ndarray:
    """Shares of the columns in the variation of predicted means, at training rows unless others are given."""
    scales = estimator._output_scales()
    pairs = estimator._pairs if pairs is None else pairs
    return shares(total_effects(lambda X: estimator._centers(X) / scales, pairs))


def importances_of_draws(estimator, pairs, n_draws, seed) -> np.ndarray:
    """Return the importances of functions drawn from the posterior, (n_features, n_draws)."""
    scales = estimator._output_scales()

    def draws(X):
        return np.moveaxis(estimator._draw_centers(X, n_draws, seed) / scales, 0, -1)

    return shares(total_effects(draws, pairs))


def compute_if_cheap(estimator, seconds, left=None):
    """Compute importances now if this adds little to the seconds of a fit, of which `left` remain or None."""
    allowed = _SMALL * seconds if left is None else min(_SMALL * seconds, left)
    if seconds < 1.0 or allowed <= 0.0:
        return
    for n in _TRIED:
        some, started = estimator._pairs.rows[:n], time.monotonic()
        estimator._centers(some)
        whole = _TRIED[-1] if n < _TRIED[-1] else len(estimator._pairs)
        if (time.monotonic() - started) * whole > allowed * len(some):
            return
    estimator._importances = importances(estimator)


class Pending:
    """Stands in a notebook for importances that nobody has asked for."""

    def __repr__(self):
        return "computed at first access"
