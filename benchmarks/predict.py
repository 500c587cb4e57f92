"""Times of predictions, in calls of 10,000 rows and of one, and their error by the finite number of draws.

The default and single models, and GPyTorch's deep Gaussian process, on one thread in float64. The error is
that of fewer draws against 10,000 draws of the same model, which ours takes as `n_predict_draws`.
"""

import statistics
import time
from functools import partial

import numpy as np
import torch

from benchmarks import models, rst, runs
from benchmarks.distributions import Ours

N_FEATURES, N_TRAIN, N_STEPS = 8, 2000, 300
N_REFERENCE_ROWS = 200  #: rows on which errors are measured
SETTINGS = f"inference='dsvi', likelihood='gaussian', max_iter={N_STEPS}"
DEFAULT = ("auto", f"dsvi=DeepGPRegressor({SETTINGS})", "exact", "rff")


def add_arguments(parser):
    """Models and sizes."""
    runs.add_models(parser, DEFAULT)
    runs.add_max_iter(parser)
    parser.add_argument("--rows", type=int, default=10_000, help="default: %(default)s")
    parser.add_argument("--draws", type=int, default=10_000, help="of the reference")
    parser.add_argument("--classes", type=int, default=0, help="classify into so many instead")


def run(options):
    """Print times and errors."""
    models.require(options.models)
    torch.set_num_threads(1)
    X, y = rows(N_TRAIN + options.rows)
    if options.classes:
        edges = np.quantile(y, np.arange(1, options.classes) / options.classes)
        y = np.digitize(y, edges)
    table = []
    for name in options.models:
        if "=" in name and options.classes:
            name = name.replace("Regressor", "Classifier").replace("likelihood='gaussian', ", "")
        model = models.estimator(name, bool(options.classes), 0, options.max_iter)
        model.fit(X[:N_TRAIN], y[:N_TRAIN])
        table.append([models.short(name), *times(model, X[N_TRAIN:], y[N_TRAIN:])])
    head = ["us a row", "mean, std and density", "quantiles", "probabilities", "one row (ms)"]
    print(rst.table(head, table))
    if not options.classes:
        print()
        n_steps = options.max_iter or N_STEPS
        errors(X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], y[N_TRAIN:], n_steps, options.draws)


def rows(n):
    """A function that no single layer of stationary kernels finds easy."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(n, N_FEATURES))
    bent = np.tanh(4.0 * X[:, 0] + X[:, 1]) + np.sin(X[:, 2] * X[:, 3])
    return X, bent + 0.1 * rng.standard_normal(n)


def times(model, X, y):
    """Microseconds a row of each kind of call, and milliseconds of one row, as texts."""
    if hasattr(model, "predict_proba"):
        calls, one = [None, None, model.predict_proba], model.predict_proba
    else:

        def moments(X):
            model.predict(X, return_std=True)
            model.log_predictive_density(X, y[: len(X)])

        calls = [moments, lambda X: model.predict_quantiles(X, [0.05, 0.5, 0.95]), None]
        one = partial(model.predict, return_std=True)
    seconds = [None if call is None else median_time(call, X, 3) for call in calls]
    per_row = [rst.NOTHING if s is None else f"{1e6 * s / len(X):.1f}" for s in seconds]
    return [*per_row, f"{1e3 * median_time(one, X[:1], 20):.2f}"]


def median_time(predict, X, n_repeats):
    """Median seconds, after one call that fills caches."""
    predict(X)
    seconds = []
    for _ in range(n_repeats):
        start = time.perf_counter()
        predict(X)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def errors(X, y, X_test, y_test, n_steps, most_draws):
    """Print errors of mean and log-density by the number of draws, ours beside GPyTorch's."""
    few, y_few, table = X_test[:N_REFERENCE_ROWS], y_test[:N_REFERENCE_ROWS], []
    for name, contender, n_draws in (("ours", ours, 64), ("GPyTorch", gpytorch, 100)):
        predict_by = contender(X, y, n_steps)
        whole, squares = predict_by(most_draws, 1)(few), []
        logs = whole.log_density(y_few)
        for seed in range(2, 7):
            part = predict_by(n_draws, seed)(few)
            off = (part.mean - whole.mean) / whole.std
            squares.append([off**2, (part.log_density(y_few) - logs) ** 2])
        found = np.sqrt(np.mean(squares, axis=(0, 2)))
        seconds = median_time(predict_by(n_draws, 0), X_test, 3)
        table.append([f"{name}, {n_draws} draws", *(f"{e:.4f}" for e in found), f"{seconds:.2f}"])
    head = ["", "error of mean (std)", "of log-density", f"{len(X_test):,} rows (s)"]
    print(rst.table(head, table))


def ours(X, y, n_steps):
    """Predictors with so many draws and a seed: models that start from the fitted one, and rest."""
    from skdgp import DeepGPRegressor

    settings = {"inference": "dsvi", "likelihood": "gaussian"}
    fitted = DeepGPRegressor(**settings, max_iter=n_steps, random_state=0).fit(X, y)

    def predict_by(n_draws, seed):
        rests = {"init": fitted, "max_iter": 1, "learning_rate": 1e-12, "random_state": seed}
        model = DeepGPRegressor(**settings, **rests, n_predict_draws=n_draws)
        return partial(Ours, model.fit(X, y))

    return predict_by


def gpytorch(X, y, n_steps):
    """The same for GPyTorch's model."""
    models.require(["gpytorch"])
    from benchmarks import gpytorch_peers as peers

    scaled = models.Standardized(X, y)
    model = peers.start(scaled.X, 0, dtype=torch.float64)
    peers.train(model, scaled.X, scaled.y, 0, n_steps)

    def predict_by(n_draws, seed):
        def predict(X_new):
            torch.manual_seed(seed)
            at_once, inputs = min(n_draws, peers.N_PREDICT_DRAWS), scaled.inputs(X_new)
            parts = [peers.moments(model, inputs, at_once) for _ in range(n_draws // at_once)]
            return scaled.mixture(*(np.concatenate(part) for part in zip(*parts)))

        return predict

    return predict_by
