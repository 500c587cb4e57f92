"""Shares of models in a mixture, from densities of rows that they did not see."""

import numpy as np

_PRIOR_ROWS = 10.0  #: rows that speak for equal shares
_N_ITER = 500


def stack(log_density, weights):
    """Shares that maximize the log-density of the mixture (Yao et al., 2018), by EM.

    Parameters
    ----------
    log_density : ndarray of shape (n_models, n_rows)
        Of rows that were left out.
    weights : ndarray of shape (n_rows,)
        How often each row counts.

    Returns
    -------
    shares : ndarray of shape (n_models,)
        They add up to one.
    """
    p = np.exp(log_density - log_density.max(0))
    shares = np.full(len(p), 1.0 / len(p))
    for _ in range(_N_ITER):
        responsible = shares[:, None] * p
        counts = (responsible / responsible.sum(0)) @ weights + _PRIOR_ROWS / len(p)
        shares = counts / counts.sum()
    return shares
