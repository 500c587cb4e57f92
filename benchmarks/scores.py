"""Scores of a fitted model on test rows, in the target's units."""

import time

import numpy as np
from scipy.special import logsumexp, ndtr

from skdgp.metrics import coverage_score, crps_gaussian_mixture, crps_scorer

COVERAGE = 0.95


def of_estimator(model, X, y):
    """Scores of an estimator of skdgp."""
    start = time.perf_counter()
    mean, _ = model.predict(X, return_std=True)
    seconds = time.perf_counter() - start
    lower, upper = model.predict_interval(X, coverage=COVERAGE).T
    return {
        "log_density": float(model.log_predictive_density(X, y).mean()),
        "rmse": _rmse(mean, y),
        "crps": -crps_scorer(model, X, y),
        "coverage": coverage_score(y, lower, upper),
        "predict_seconds": seconds,
    }


def of_mixture(predict, X, y):
    """Scores of predictions that are equal mixtures of Gaussians.

    Parameters
    ----------
    predict : callable
        Maps `X` to means and variances of the components, both of shape (c, n), in the target's
        units.
    """
    start = time.perf_counter()
    means, variances = predict(X)
    seconds = time.perf_counter() - start
    z = (y - means) / np.sqrt(variances)
    below = ndtr(z).mean(0)  # the distribution function at y, which spares us the quantiles
    tail = 0.5 * (1.0 - COVERAGE)
    return {
        "log_density": float(mixture_log_density(y, means, variances).mean()),
        "rmse": _rmse(means.mean(0), y),
        "crps": crps_gaussian_mixture(y, means, variances),
        "coverage": float(((below >= tail) & (below <= 1.0 - tail)).mean()),
        "predict_seconds": seconds,
    }


def of_mean(predict, X, y):
    """The only score of a model that predicts means alone."""
    start = time.perf_counter()
    mean = predict(X)
    seconds = time.perf_counter() - start
    return {"rmse": _rmse(mean, y), "predict_seconds": seconds}


def mixture_log_density(y, means, variances):
    """Log-density of each row: the logarithm of the mean over components, not the mean of logs."""
    logs = -0.5 * ((y - means) ** 2 / variances + np.log(2.0 * np.pi * variances))
    return logsumexp(logs, axis=0) - np.log(len(means))


def _rmse(mean, y):
    return float(np.sqrt(np.mean((mean - y) ** 2)))
