"""Deep Gaussian processes from different starts, on draws whose roughness varies from place to place.

The experiments of Pascual Diaz (2017), redone. His figures do not follow from his description, so
that they are context and no targets.
"""

import math
import time
from typing import NamedTuple

import numpy as np
from scipy.stats import norm

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.datasets import make_deep_gp, make_piecewise_linear, make_step
from skdgp.gp.kernels import SquaredExponential
from skdgp.inference import DSVI

from . import arguments, cells, rst

STEPS = 1500  #: of every deep model, the first round of the greedy start included


class Problem(NamedTuple):
    """Training and test rows, and how many inducing inputs a layer may have."""

    kind: str
    n_train: int
    n_inducing: int
    gap: tuple = ()  #: share of the range from which training rows are taken away, but for a few
    few: int = 1  #: training rows that stay in the middle of it


PROBLEMS = {
    **{f"draws-{n}": Problem("draws", n, 50) for n in (250, 500, 750, 1000, 1250)},
    **{f"draws-500-M{m}": Problem("draws", 500, m) for m in (30, 40, 60)},
    "draws-1000-free": Problem("draws", 1000, None),
    "draws-50": Problem("draws", 50, 50),
    "draws-gap": Problem("draws", 500, 25, (0.3, 0.7), 4),
    "step": Problem("step", 60, 20),
    "step-gap": Problem("step", 60, 10, (0.6, 0.95)),
    "piecewise": Problem("piecewise", 60, 20),
}
_SHALLOW = {
    "exact": {},
    "vfe": {"method": "vfe", "train_inducing": True},
    "fitc": {"method": "fitc", "train_inducing": True},
}
STARTS = ("kmeans", "random", "greedy", "long-short", "short-long")
_DEEP = [f"{name}-{start}" for name in ("dsvi", "aep") for start in STARTS]
MODELS = ("oracle", "auto", "collapsed", *_SHALLOW, *_DEEP)


def run(options):
    """Compute all cells that are not there yet, and print the tables."""
    arguments.check_known(options.models, MODELS, "models")
    options.splits = options.splits or list(range(10))
    asked = arguments.todo(
        options, lambda name, _, m: m != "oracle" or PROBLEMS[name].kind == "draws"
    )
    if not options.print:
        cells.fill(arguments.out(options), asked, evaluate, options.n_jobs)
    print(tables(cells.read(arguments.out(options)).values(), options.reference or "dsvi-greedy"))


def rows(problem, draw):
    """Training and test rows: inputs, targets, and the values of the hidden function or None."""
    hidden = None
    if problem.kind == "draws":
        X, y, (hidden,) = make_deep_gp(
            2500, lengthscales=[5.0, 0.025], noise=0.01, return_hidden=True, random_state=draw
        )
    else:
        make = make_step if problem.kind == "step" else make_piecewise_linear
        X, y = make(2500, random_state=draw)
    rng = np.random.default_rng(draw)
    order = rng.permutation(len(X))
    test = order[-1000:]
    if problem.gap:
        position = (X[:, 0] - X.min()) / np.ptp(X)
        inside = (position > problem.gap[0]) & (position < problem.gap[1])
        test = test[inside[test]]
        middle = np.flatnonzero(inside & (np.abs(position - np.mean(problem.gap)) < 0.04))
        pool = order[:-1000]
        kept = rng.choice(np.intersect1d(middle, pool), problem.few, replace=False)
        train = np.concatenate([pool[~inside[pool]][: problem.n_train - problem.few], kept])
    elif problem.kind == "draws":
        train = order[: problem.n_train]
    else:  # equally spaced, as in the thesis
        train = np.linspace(0, len(X) - 1, problem.n_train).round().astype(int)
        test = np.setdiff1d(test, train)
    return tuple(
        (X[part], y[part], None if hidden is None else hidden[part]) for part in (train, test)
    )


def estimator(name, problem, X, max_iter):
    """The model of a name, with starts that are relative to the range of the data."""
    n_inducing = problem.n_inducing or len(X) // 4
    if name in ("oracle", *_SHALLOW):
        settings = _SHALLOW["exact" if name == "oracle" else name]
        if settings:
            settings = {"n_inducing": n_inducing, **settings}
        return SparseGPRegressor(max_iter=300, random_state=0, **settings)
    if name in ("auto", "collapsed"):
        inference = "auto" if name == "auto" else name
        max_iter = None if max_iter == STEPS else max_iter
        return DeepGPRegressor(inference=inference, max_iter=max_iter, random_state=0)
    scheme, _, start = name.partition("-")
    inference = scheme
    if scheme == "dsvi":
        inference = DSVI(inner_scale=1e-5, inner_variance=1.0)  # the start of the literature
    kernels, unit = "auto", np.ptp(X) / X.std()
    if start in ("long-short", "short-long"):
        lengthscales = (0.5 * unit, 0.05) if start == "long-short" else (0.01 * unit, 1.0)
        kernels = [SquaredExponential(lengthscale=value) for value in lengthscales]
    return DeepGPRegressor(
        2,
        width=2,
        n_inducing=n_inducing,
        kernel=kernels,
        likelihood="gaussian",
        inference=inference,
        init=start if start in ("kmeans", "random", "greedy") else "kmeans",
        max_iter=math.ceil(max_iter / 1.5) if start == "greedy" else max_iter,
        random_state=0,
    )


def evaluate(cell):
    """Scores of a model on the test rows of one draw, in units of the target's variance."""
    name, problem = cell["model"], PROBLEMS[cell["set"]]
    (X, y, hidden), (X_test, y_test, hidden_test) = rows(problem, cell["split"])
    if name == "oracle":
        X, X_test = hidden, hidden_test
    model = estimator(name, problem, X, cell.get("settings", {}).get("max_iter", STEPS))
    start = time.process_time()
    model.fit(X, y)
    seconds = time.process_time() - start
    mean, std = model.predict(X_test, return_std=True)
    scores = {
        "mse": float(np.mean((mean - y_test) ** 2) / y_test.var()),
        "mnlpp": -float(norm.logpdf(y_test, mean, std).mean()),
        "sample_mnlpp": -float(model.log_predictive_density(X_test, y_test).mean()),
        "constant": -float(norm.logpdf(y_test, y.mean(), y.std()).mean()),
        "fit_seconds": seconds,
    }
    if not all(map(math.isfinite, scores.values())):
        raise ArithmeticError("scores that are not finite")
    return scores


def tables(found, reference):
    """A table for each problem.

    A model fails on a draw if the mean and variance of the training targets predict better.
    """
    found, parts = list(found), []
    head = [
        "model",
        "draws",
        "MSE",
        "MNLPP",
        "sample MNLPP",
        "difference",
        "is worse",
        "fails",
        "s",
    ]
    for name in PROBLEMS:
        by_model = {}
        for cell in found:
            if cell["set"] == name:
                by_model.setdefault(cell["model"], {})[cell["split"]] = cell
        if by_model:
            ours = by_model.get(reference, {})
            lines = [_line(model, by_model[model], ours) for model in MODELS if model in by_model]
            parts += [rst.heading(name), rst.table(head, lines), ""]
    return "\n".join(parts)


def _line(model, of_model, ours):
    cells_ = list(of_model.values())
    means = (f"{np.mean([c[key] for c in cells_]):.3f}" for key in ("mse", "mnlpp", "sample_mnlpp"))
    both = sorted(set(of_model) & set(ours))
    gaps = np.array([of_model[d]["sample_mnlpp"] - ours[d]["sample_mnlpp"] for d in both])
    paired = better = rst.NOTHING
    if len(both) > 1 and of_model is not ours:
        paired = f"{gaps.mean():+.3f} ± {gaps.std(ddof=1) / math.sqrt(len(gaps)):.3f}"
        better = f"{int((gaps > 0).sum())} of {len(gaps)}"
    fails = sum(cell["sample_mnlpp"] > cell["constant"] for cell in cells_)
    seconds = np.mean([cell["fit_seconds"] for cell in cells_])
    fails = f"{fails} of {len(cells_)}"
    return [model, len(cells_), *means, paired, better, fails, f"{seconds:.1f}"]
