"""Shares of models in a mixture, from densities of rows that they did not see."""

import numpy as np

_PRIOR_ROWS = 10.0  #: rows that speak for equal shares
_N_ITER = 500


def stack(log_density, weights, most=1.0):
    """Shares that maximize the log-density of the mixture (Yao et al., 2018), by EM.

    Parameters
    ----------
    log_density : ndarray of shape (n_models, n_rows)
        Of rows that were left out.
    weights : ndarray of shape (n_rows,)
        How often each row counts.
    most : float or ndarray of shape (n_models,)
        The largest share that each model can have; together at least one.

    Returns
    -------
    shares : ndarray of shape (n_models,)
        They add up to one.
    """
    p = np.exp(log_density - log_density.max(0))
    most = np.broadcast_to(most, len(p))
    shares = np.full(len(p), 1.0 / len(p))
    for _ in range(_N_ITER):
        responsible = shares[:, None] * p
        counts = (responsible / responsible.sum(0)) @ weights + _PRIOR_ROWS / len(p)
        shares = _limited(counts, most)
    return shares


def _limited(counts, most):
    """Shares that are proportional to the counts, apart from those that would exceed their limit."""
    limited = np.zeros(len(counts), dtype=bool)
    while True:
        rest = 1.0 - most[limited].sum()
        shares = np.where(limited, most, rest * counts / counts[~limited].sum())
        if limited.sum() == len(counts) - 1 or not (shares > most * (1.0 + 1e-12)).any():
            return shares
        limited |= shares > most
