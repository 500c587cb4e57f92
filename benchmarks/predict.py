"""Times of predictions, in calls of 10,000 rows and of one, and their error by the finite number of draws.

The default and single models, and GPyTorch's deep Gaussian process, on one thread in float64. The error is
that of fewer draws against 10,000 draws of the same model, which ours takes as `n_predict_draws`.
"""

import statistics
import time
from functools import partial

import numpy as np
import torch

from . import arguments, models, rst

N_FEATURES, N_TRAIN, N_STEPS = 8, 2000, 300
N_REFERENCE_ROWS = 200  #: rows on which errors are measured
SETTINGS = f"inference='dsvi', likelihood='gaussian', max_iter={N_STEPS}"
DEFAULT = ("auto", f"dsvi=DeepGPRegressor({SETTINGS})", "exact", "rff")


def add_arguments(parser):
    """Models and sizes."""
    arguments.add_models(parser, DEFAULT)
    arguments.add_max_iter(parser)
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
        errors(X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], options)


def rows(n):
    """A function that no single layer of stationary kernels finds easy."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(n, N_FEATURES))
    bent = np.tanh(4.0 * X[:, 0] + X[:, 1]) + np.sin(X[:, 2] * X[:, 3])
    return X, bent + 0.1 * rng.standard_normal(n)


def times(model, X, y):
    """Microseconds a row of each kind of call, and milliseconds of one row, as texts."""
    if hasattr(model, "predict_proba"):
        calls = [None, None, model.predict_proba]
        one = model.predict_proba
    else:

        def moments(X):
            model.predict(X, return_std=True)
            model.log_predictive_density(X, y[: len(X)])

        calls = [moments, lambda X: model.predict_quantiles(X, [0.05, 0.5, 0.95]), None]
        one = partial(model.predict, return_std=True)
    per_row = [
        rst.NOTHING if call is None else f"{1e6 * median_time(call, X, 3) / len(X):.1f}"
        for call in calls
    ]
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


def errors(X, y, X_test, options):
    """Print errors of mean and log-density by the number of draws, ours beside GPyTorch's."""
    y_test = rows(N_TRAIN + options.rows)[1][N_TRAIN:][:N_REFERENCE_ROWS]
    few, table = X_test[:N_REFERENCE_ROWS], []
    for name, contender, n_draws in (("ours", ours, 64), ("GPyTorch", gpytorch, 100)):
        predict = contender(X, y, options.max_iter or N_STEPS)
        mean, std, log_density = predict(options.draws, 1)(few, y_test)
        squares = []
        for seed in range(2, 7):
            again, _, log_again = predict(n_draws, seed)(few, y_test)
            squares.append([((again - mean) / std) ** 2, (log_again - log_density) ** 2])
        found = np.sqrt(np.mean(squares, axis=(0, 2)))
        table.append([f"{name}, {n_draws} draws", *(f"{e:.4f}" for e in found)])
        table[-1].append(f"{median_time(predict(n_draws, 0), X_test, 3):.2f}")
    head = ["", "error of mean (std)", "of log-density", f"{len(X_test):,} rows (s)"]
    print(rst.table(head, table))


def ours(X, y, n_steps):
    """Moments and log-density with so many draws: a model that starts from the fitted one, and rests."""
    from skdgp import DeepGPRegressor

    settings = {"inference": "dsvi", "likelihood": "gaussian"}
    fitted = DeepGPRegressor(**settings, max_iter=n_steps, random_state=0).fit(X, y)

    def predict(n_draws, seed):
        rests = {"init": fitted, "max_iter": 1, "learning_rate": 1e-12, "random_state": seed}
        model = DeepGPRegressor(**settings, **rests, n_predict_draws=n_draws).fit(X, y)

        def moments(X_new, y_new=None):
            found = model.predict(X_new, return_std=True)
            return *found, None if y_new is None else model.log_predictive_density(X_new, y_new)

        return moments

    return predict


def gpytorch(X, y, n_steps):
    """The same for GPyTorch's model."""
    models.require(["gpytorch"])
    from . import gpytorch_peers as peers

    scaled = models.Standardized(X, y)
    model = peers.start_deep(scaled.X, 0, dtype=torch.float64)
    for _ in peers.train(model, scaled.X, scaled.y, 0, n_steps):
        pass

    def predict(n_draws, seed):
        def moments(X_new, y_new=None):
            torch.manual_seed(seed)
            at_once = min(n_draws, peers.N_PREDICT_DRAWS)
            inputs = scaled.inputs(X_new)
            parts = [peers.moments(model, inputs, at_once) for _ in range(n_draws // at_once)]
            found = scaled.mixture(*(np.concatenate(part) for part in zip(*parts)))
            std = np.sqrt((found.variances + (found.means - found.mean) ** 2).mean(0))
            return found.mean, std, None if y_new is None else found.log_density(y_new)

        return moments

    return predict
