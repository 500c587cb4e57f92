"""Time and error of predictions with two layers in float64: skdgp beside GPyTorch.

Both models are trained on the same rows; each is compared with a reference from 10,000 draws of its
own, because they are different models.
"""

import statistics
import time

import numpy as np
import torch

from skdgp import DeepGPRegressor

from . import arguments, models, rst, scores

N_ROWS = 10_000
N_REFERENCE_DRAWS = 10_000
N_REFERENCE_ROWS = 200  #: rows on which errors are measured
N_FEATURES = 8
N_TRAIN = 2000
N_STEPS = 300
N_REPEATS = 5


def add_arguments(parser):
    """Sizes, for trials."""
    arguments.add_max_iter(parser)
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--reference-draws", type=int, default=N_REFERENCE_DRAWS)


def run(options):
    """Print times, errors and ratios."""
    models.require(["gpytorch"])
    torch.set_num_threads(1)
    X, y = rows(N_TRAIN + options.rows)
    train, test = (X[:N_TRAIN], y[:N_TRAIN]), (X[N_TRAIN:], y[N_TRAIN:])
    n_steps = options.max_iter or N_STEPS
    table, times = [], []
    for name, contender in (("skdgp, 64 draws", ours), ("GPyTorch, 100 draws", gpytorch)):
        predict, redraw = contender(*train, n_steps)
        seconds = [median_time(predict, test[0], 3), median_time(predict, test[0][:1], 20)]
        errors = errors_of(redraw, *(part[:N_REFERENCE_ROWS] for part in test), options)
        table.append(
            [name, f"{seconds[0]:.3f}", f"{1e3 * seconds[1]:.2f}", *(f"{e:.4f}" for e in errors)]
        )
        times.append(seconds)
    table.append(["ratio", *(f"{theirs / own:.1f}" for own, theirs in zip(*times)), "", ""])
    rows_head = f"{options.rows:,} rows (s)"
    print(rst.table(["", rows_head, "one row (ms)", "error of mean", "of log-density"], table))
    print(
        "\nErrors are root mean squares over rows and repeated draws, those of the mean in predictive\n"
        f"standard deviations; the reference has {options.reference_draws:,} draws of the same model."
    )


def rows(n):
    """A function that no single layer of stationary kernels finds easy."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(n, N_FEATURES))
    bent = np.tanh(4.0 * X[:, 0] + X[:, 1]) + np.sin(X[:, 2] * X[:, 3])
    return X, bent + 0.1 * rng.standard_normal(n)


def ours(X, y, n_steps):
    """Functions for the moments as a user gets them, and for moments and log-density anew."""
    model = DeepGPRegressor(
        inference="dsvi", likelihood="gaussian", max_iter=n_steps, random_state=0
    ).fit(X, y)
    (member,) = model.members_

    def predict(X):
        return model.predict(X, return_std=True)

    def redraw(X, y, n_draws, seed):
        kept = member.draws
        member.draws = member.model("cpu").draws(n_draws or len(kept), seed)
        moments = model.predict(X, return_std=True)
        log_density = model.log_predictive_density(X, y)
        member.draws = kept
        return *moments, log_density

    return predict, redraw


def gpytorch(X, y, n_steps):
    """The same for GPyTorch's model."""
    from .models import gpytorch_deep
    from .models.scaling import Standardized

    scaled = Standardized(X, y)
    model = gpytorch_deep.start(scaled.X, 0, dtype=torch.float64)
    for _ in gpytorch_deep.train(model, scaled.X, scaled.y, 0, n_steps):
        pass
    mixture = gpytorch_deep.predictor(model, scaled)

    def moments(means, variances):
        mean = means.mean(0)
        return mean, np.sqrt((variances + (means - mean) ** 2).mean(0))

    def predict(X):
        return moments(*mixture(X))

    def redraw(X, y, n_draws, seed):
        torch.manual_seed(seed)
        at_once = gpytorch_deep.N_PREDICT_DRAWS
        parts = [mixture(X) for _ in range(max(1, (n_draws or 0) // at_once))]
        means, variances = (np.concatenate(part) for part in zip(*parts))
        return *moments(means, variances), scores.mixture_log_density(y, means, variances)

    return predict, redraw


def median_time(predict, X, n_repeats):
    """Median seconds, after one call that fills caches."""
    predict(X)
    seconds = []
    for _ in range(n_repeats):
        start = time.perf_counter()
        predict(X)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def errors_of(redraw, X, y, options):
    """Errors of the mean and of the log-density by the finite number of draws."""
    mean, std, log_density = redraw(X, y, options.reference_draws, 1_000)
    squares = []
    for seed in range(N_REPEATS):
        again, _, log_again = redraw(X, y, None, seed)
        squares.append([((again - mean) / std) ** 2, (log_again - log_density) ** 2])
    return np.sqrt(np.mean(squares, axis=(0, 2)))
