"""The problems of Pascual Diaz (2017): step functions, draws of deep processes, and gaps in both.

The thesis tells neither its random numbers nor where its gaps are, so that these are ours.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from benchmarks.data import Split


class Problem(NamedTuple):
    """Training and test rows, and how many inducing inputs a layer has."""

    kind: str
    n_train: int
    n_inducing: int
    gap: tuple = ()  #: share of the range from which training rows are taken away, but for a few
    few: int = 1  #: training rows that stay in the middle of it


PROBLEMS = {
    "step": Problem("step", 60, 10),
    "step-gap": Problem("step", 60, 10, (0.6, 0.95)),
    **{f"piecewise-M{m}": Problem("piecewise", 60, m) for m in (10, 20, 30)},
    **{f"piecewise-gap-M{m}": Problem("piecewise", 60, m, (0.72, 0.97)) for m in (10, 20)},
    **{f"draws-{n}": Problem("draws", n, 50) for n in (50, 250, 500, 750, 1000, 1250)},
    "draws-gap": Problem("draws", 500, 25, (0.3, 0.7), 4),
}
_TEST, _ALL = 1000, 2500  #: test rows, and rows of a draw


def rows_of(kind, draw):
    """All rows of a draw of a kind of problem."""
    from skdgp.datasets import make_deep_gp, make_piecewise_linear, make_step

    if kind == "draws":
        return make_deep_gp(_ALL, lengthscales=[5.0, 0.025], noise=0.01, random_state=draw)
    make = make_step if kind == "step" else make_piecewise_linear
    return make(_ALL, random_state=draw)


def split_of(name, draw):
    """Training and test rows of a problem."""
    problem, rng = PROBLEMS[name], np.random.default_rng(draw)
    X, y = rows_of(problem.kind, draw)
    order = rng.permutation(_ALL)
    test, pool = order[-_TEST:], order[:-_TEST]
    if problem.gap:
        position = (X[:, 0] - X.min()) / np.ptp(X)
        inside = (position > problem.gap[0]) & (position < problem.gap[1])
        middle = np.flatnonzero(inside & (np.abs(position - np.mean(problem.gap)) < 0.04))
        kept = rng.choice(np.intersect1d(middle, pool), problem.few, replace=False)
        train = np.concatenate([pool[~inside[pool]][: problem.n_train - problem.few], kept])
        test = test[inside[test]]
    elif problem.kind == "draws":
        train = pool[: problem.n_train]
    else:  # equally spaced, as in the thesis
        train = np.linspace(0, _ALL - 1, problem.n_train).round().astype(int)
        test = np.setdiff1d(test, train)
    return Split(X[train], y[train], X[test], y[test], False, len(test))


def scores(found, y):
    """Squared error, and the negative log density of a Gaussian and of the distribution itself."""
    results = {
        "mse": float(np.mean((found.mean - y) ** 2)),
        "mnlpp": -float(norm.logpdf(y, found.mean, found.std).mean()),
        "sample_mnlpp": -float(found.log_density(y).mean()),
    }
    if not all(map(math.isfinite, results.values())):
        raise ArithmeticError("scores that are not finite")
    return results
