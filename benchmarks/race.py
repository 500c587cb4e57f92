"""How soon a model of ours is as good as GPyTorch's deep Gaussian process at the end.

What counts is the wall time until the test log-density first stays above the final value of
GPyTorch. Scoring stops the clock.
"""

import time

import numpy as np

from . import arguments, cells, data, models, rst
from .distributions import Ours

_RFF = "inference=RandomFeatures(frequencies='variational'), dtype='float32', max_iter=2000"
CONTENDERS = {
    "dsvi": "DeepGPRegressor(inference='dsvi')",
    "auto": "DeepGPRegressor()",
    "rff": f"DeepGPRegressor({_RFF})",
}
_FEW = slice(50)  #: rows of a fit beforehand, because the first one of a process is slow
EVERY = 100  #: steps between two scores of GPyTorch; ours are 50 steps apart
NEARLY = 0.01  #: GPyTorch's own last bit of progress, in nats


def run(options):
    """Run all races that are not there yet, and print them."""
    arguments.check_known(options.models, CONTENDERS, "models")
    models.require(["gpytorch"])
    root, known = data.folder(options.data), {}

    def compute(cell):
        split, seed = data.uci_split(root, cell["set"], cell["split"]), cell["seed"]
        key = cell["set"], cell["split"], seed
        if key not in known:
            theirs_curve(split, seed, 2, _FEW)
            known[key] = theirs_curve(split, seed, options.max_iter)
        ours_curve(split, seed, 2, cell["model"], _FEW)
        return race(ours_curve(split, seed, options.max_iter, cell["model"]), known[key])

    if not options.print:
        cells.fill(arguments.out(options), arguments.todo(options), compute)
    print(summary(cells.read(arguments.out(options)).values()))


class Clock:
    """Seconds since the start, pauses left out; also a callback that scores after each block."""

    def __init__(self, split, predict):
        self._split, self._predict = split, predict
        self._paused = 0.0
        self._start = time.perf_counter()
        self.curve = []  #: seconds, log-density, RMSE

    def look(self, model):
        """Note the time and the scores of a model."""
        now, y = time.perf_counter(), self._split.y_test
        found = self._predict(model, self._split.X_test)
        rmse = float(np.sqrt(np.mean((y - found.mean) ** 2)))
        log_density = float(found.log_density(y).mean())
        self.curve.append((now - self._start - self._paused, log_density, rmse))
        self._paused += time.perf_counter() - now

    # the protocol of scikit-learn's callbacks

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        if context.task_name == "block":
            self.look(fitted_estimator)
        return False


def race(ours, theirs):
    """Curves of both, and who was where when."""
    goal = theirs[-1][1]
    return {
        "goal": goal,
        "reached": ours[-1][1],
        "ours_seconds": stays_above(ours, goal),
        "ours_all_seconds": ours[-1][0],
        "gpytorch_seconds": theirs[-1][0],
        "gpytorch_nearly_seconds": stays_above(theirs, goal - NEARLY),
        "ours_curve": ours,
        "gpytorch_curve": theirs,
    }


def stays_above(curve, goal):
    """Seconds after which no score of a curve is below the goal any more; None if there are none."""
    since = None
    for seconds, score, *_ in curve:
        if score < goal:
            since = None
        elif since is None:
            since = seconds
    return since


def ours_curve(split, seed, max_iter, name, rows=slice(None)):
    """Seconds and test scores during a fit of ours."""
    model = models.estimator(CONTENDERS[name], False, seed, max_iter)
    clock = Clock(split, Ours)
    model.set_callbacks(clock).fit(split.X_train[rows], split.y_train[rows])
    return clock.curve


def theirs_curve(split, seed, max_iter, rows=slice(None)):
    """Seconds and test scores during the training of GPyTorch's model."""
    from . import gpytorch_peers as peers

    def predict(model, X):
        return scaled.mixture(*peers.moments(model, scaled.inputs(X)))

    clock = Clock(split, predict)
    scaled = models.Standardized(split.X_train[rows], split.y_train[rows])
    model, n_steps = peers.start_deep(scaled.X, seed), max_iter or peers.N_STEPS
    for i in peers.train(model, scaled.X, scaled.y, seed, n_steps):
        if i % EVERY == 0 or i == n_steps:
            clock.look(model)
    return clock.curve


def summary(all_cells):
    """A table of all races."""
    lines = []
    for cell in all_cells:
        theirs, nearly = cell["gpytorch_seconds"], cell["gpytorch_nearly_seconds"]
        seconds = cell["ours_seconds"]
        ratios = ["never", *[rst.NOTHING] * 2]
        if seconds is not None:
            ratios = [f"{seconds:.1f}", f"{seconds / theirs:.3f}", f"{seconds / nearly:.3f}"]
        name = f"{cell['set']} {cell['split']} {cell['model']}"
        row = [name, f"{cell['goal']:.3f}", f"{theirs:.1f}", f"{nearly:.1f}", *ratios]
        lines.append([*row, f"{cell['reached']:.3f}", f"{cell['ours_all_seconds']:.1f}"])
    head = ["set, split, model", "goal", "GPyTorch (s)", "nearly (s)", "ours (s)", "ratio"]
    return rst.table([*head, "to nearly", "our end", "after (s)"], lines)
