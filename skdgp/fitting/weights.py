"""Mixture weights, and a dispersion factor, from log densities of rows that members have not seen."""

import numpy as np

#: rows' worth of equal weights, a priori; with 10 the suite loses .01 nats, with 1 nothing
_PRIOR_ROWS = 2.0
_PRIOR_DISPERSION = 0.05  #: standard deviation of the logarithm of the dispersion, a priori
LOG_DISPERSIONS = 0.05 * np.arange(-14, 7)  #: a grid for it, from a half to 1.35
_NEGLIGIBLE = 0.005  #: rounding: a logarithm of the dispersion that is taken for zero
_N_ITER = 500  #: rounding: of expectation maximization, which has converged by then


def stack(log_density: np.ndarray, weights: np.ndarray) -> np.ndarray:
    r"""Weights (n_models,) with the highest log density of the mixture.

    Stacking of Yao, Vehtari, Simpson and Gelman (2018, Bayesian Analysis 13), by `log_density` (n_models,
    n_rows) of rows that the models have not seen, of which each counts `weights` (n_rows,) times.
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
    """Weights of two kinds of members: scored by leave-one-out, and on held-out rows.

    The former are stacked by `loo` (n_loo, n_rows) with `loo_weights` (n_rows,). Their mixture is then one
    model among the latter, by `rows` (n_loo, n_held_out), its leave-one-out log densities of held-out rows,
    and `held_out` (n_others, n_held_out) with `weights` (n_held_out,). Held-out rows are the first of those
    that are left out.
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

    A mixture of calibrated models is too wide, for it adds their disagreement to what each of them is unsure
    of (Gneiting and Ranjan, 2013, Electronic Journal of Statistics 7, section 3.2). `log_density`
    (n_dispersions, n_rows) is of unseen rows, at the exponentials of :data:`LOG_DISPERSIONS`. A parabola goes
    through the best of the grid and the two next to it.
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
