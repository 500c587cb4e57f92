"""Mixture weights, and a dispersion factor, from log densities of rows that members have not seen."""

import numpy as np

_PRIOR_ROWS = (
    2.0  #: rows that speak for equal weights; with 10 the suite loses .01 nats, with 1 nothing
)
_PRIOR_DISPERSION = 0.05  #: standard deviation of the logarithm of the dispersion, a priori
LOG_DISPERSIONS = 0.05 * np.arange(-14, 7)  #: a grid for it, from a half to 1.35
_NEGLIGIBLE = 0.005  #: a logarithm of the dispersion that is taken for zero
_N_ITER = 500  #: of expectation maximization, which has converged by then


def stack(log_density: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights that maximize the log density of the mixture (Yao et al., 2018), by expectation maximization.

    Parameters
    ----------
    log_density : ndarray of shape (n_models, n_rows)
        Of rows that the models have not seen.
    weights : ndarray of shape (n_rows,)
        How often each row counts.

    Returns
    -------
    mixture_weights : ndarray of shape (n_models,)
        They add up to one.

    References
    ----------
    Y. Yao, A. Vehtari, D. Simpson and A. Gelman (2018). Using stacking to average Bayesian predictive
    distributions. Bayesian Analysis 13.
    """
    density = np.exp(log_density - log_density.max(0))
    result = np.full(len(density), 1.0 / len(density))
    for _ in range(_N_ITER):
        responsible = result[:, None] * density
        counts = (responsible / responsible.sum(0)) @ weights + _PRIOR_ROWS / len(density)
        result = counts / counts.sum()
    return result


def mixed(log_density: np.ndarray, mixture_weights: np.ndarray) -> np.ndarray:
    """Log densities (..., n_rows) of a mixture from those of its models, (..., n_models, n_rows)."""
    return np.logaddexp.reduce(log_density + np.log(mixture_weights)[:, None], axis=-2)


def mixture_weights(loo, loo_weights, held_out, rows, weights):
    """Weights of two kinds of members: scored by leave-one-out, and on rows held out from their training.

    The former are stacked on all rows. Their mixture is then one model among the latter, on the rows that
    these have not seen.

    Parameters
    ----------
    loo : ndarray of shape (n_loo, n_rows)
        Leave-one-out log densities.
    loo_weights : ndarray of shape (n_rows,)
        How often these rows count.
    held_out : ndarray of shape (n_others, n_held_out)
        Log densities of held-out rows.
    rows : ndarray of shape (n_loo, n_held_out)
        Leave-one-out log densities of the same rows.
    weights : ndarray of shape (n_held_out,)

    Returns
    -------
    mixture_weights : ndarray of shape (n_loo + n_others,)
    """
    if len(loo) == 0:
        return stack(held_out, weights)
    among = stack(loo, loo_weights)
    if len(held_out) == 0:
        return among
    first, *others = stack(np.vstack([mixed(rows, among), held_out]), weights)
    return np.concatenate([first * among, others])


def best_dispersion(log_density: np.ndarray, weights: np.ndarray) -> float:
    """Return the factor of all members' standard deviations with the highest mixture log density.

    A mixture of calibrated models is too wide, for it adds their disagreement to what each of
    them is unsure of; narrower members make up for it (Gneiting and Ranjan, 2013, section 3.2).

    Parameters
    ----------
    log_density : ndarray of shape (n_dispersions, n_rows)
        Of the mixture, for rows that it has not seen, at the exponentials of :data:`LOG_DISPERSIONS`.
    weights : ndarray of shape (n_rows,)
        How often each row counts.

    Returns
    -------
    dispersion : float
        By a parabola through the best of the grid and the two next to it.

    References
    ----------
    T. Gneiting and R. Ranjan (2013). Combining predictive distributions. Electronic Journal of Statistics 7.
    """
    if not np.isfinite(log_density).all():
        return 1.0
    grid = LOG_DISPERSIONS
    score = log_density @ weights - 0.5 * np.square(grid / _PRIOR_DISPERSION)
    best = int(np.argmax(score))
    if best in (0, len(score) - 1):
        return float(np.exp(grid[best]))
    below, top, above = score[best - 1 : best + 2]
    step = 0.5 * (below - above) / (below - 2.0 * top + above)
    log_dispersion = grid[best] + step * (grid[1] - grid[0])
    return 1.0 if abs(log_dispersion) < _NEGLIGIBLE else float(np.exp(log_dispersion))
