"""How soon a model of skdgp is as good as GPyTorch's deep Gaussian process at the end.

What counts is the wall time until the test log-density first stays above the final value of
GPyTorch. Scoring stops the clock.
"""

import time

from skdgp import DeepGPRegressor

from . import arguments, cells, data, models, rst, scores

#: arguments of the estimator
_FEATURES = {**models.RANDOM_FEATURES, "max_iter": 2000}
SETTINGS = {
    "single": {"inference": "dsvi"},
    "skdgp": {},
    "rff": _FEATURES,
    "rff-3": {**_FEATURES, "n_layers": 3},
}
_FEW = slice(50)  #: rows of a fit beforehand, because the first one of a process is slow
EVERY = 100  #: steps between two scores of GPyTorch; skdgp's are 50 steps apart
NEARLY = 0.01  #: GPyTorch's own last bit of progress, in nats


def add_arguments(parser):
    """Sets, splits, seeds, models, data and output."""
    arguments.add_cells(parser, data.UCI, "race.json", splits="0")
    parser.add_argument(
        "--models",
        type=arguments.names,
        default=["single", "skdgp"],
        help=f"of {', '.join(SETTINGS)}; default: single,skdgp",
    )


def run(options):
    """Run all races that are not there yet, and print them."""
    arguments.check_known(options.sets, data.UCI, "sets")
    arguments.check_known(options.models, SETTINGS, "models")
    models.require(["gpytorch"])
    if not hasattr(DeepGPRegressor, "set_callbacks"):
        raise SystemExit("The race follows fits by callbacks, which scikit-learn has from 1.9 on.")
    root = data.folder(options.data)

    known = {}

    def compute(cell):
        split = data.uci_split(root, cell["set"], cell["split"])
        seed, settings = cell["seed"], SETTINGS[cell["model"]]
        key = cell["set"], cell["split"], seed
        if key not in known:
            theirs_curve(split, seed, 2, _FEW)
            known[key] = theirs_curve(split, seed, options.max_iter)
        ours_curve(split, seed, 2, settings, _FEW)
        return race(ours_curve(split, seed, options.max_iter, settings), known[key])

    todo = [
        {
            "set": name,
            "split": split,
            "seed": seed,
            "model": model,
            "settings": {**SETTINGS[model], **arguments.trial(options)},
        }
        for name in options.sets
        for split in options.splits
        if data.uci_split(root, name, split) is not None
        for seed in options.seeds
        for model in options.models
    ]
    out = arguments.out(options)
    cells.fill(out, todo, compute, ["gpytorch"])
    print(summary(cells.read(out).values()))


class Clock:
    """Seconds since the start, pauses left out; also a callback that scores after each block."""

    def __init__(self, score):
        self._score = score
        self._paused = 0.0
        self._start = time.perf_counter()
        self.curve = []  #: pairs of seconds and score

    def look(self, model):
        """Note the time and the score of a model."""
        now = time.perf_counter()
        self.curve.append((now - self._start - self._paused, self._score(model)))
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
        "skdgp_seconds": stays_above(ours, goal),
        "skdgp_all_seconds": ours[-1][0],
        "gpytorch_seconds": theirs[-1][0],
        "gpytorch_nearly_seconds": stays_above(theirs, goal - NEARLY),
        "skdgp_curve": ours,
        "gpytorch_curve": theirs,
    }


def stays_above(curve, goal):
    """Seconds after which no score of a curve is below the goal any more; None if there are none."""
    since = None
    for seconds, score in curve:
        if score < goal:
            since = None
        elif since is None:
            since = seconds
    return since


def ours_curve(split, seed, max_iter, settings, rows=slice(None)):
    """Seconds and test log-densities during a fit of skdgp."""

    def score(model):
        return float(model.log_predictive_density(split.X_test, split.y_test).mean())

    model = DeepGPRegressor(random_state=seed).set_params(**settings)
    if max_iter is not None:
        model.set_params(max_iter=max_iter)
    clock = Clock(score)
    model.set_callbacks(clock).fit(split.X_train[rows], split.y_train[rows])
    return clock.curve


def theirs_curve(split, seed, max_iter, rows=slice(None)):
    """Seconds and test log-densities during the training of GPyTorch's model."""
    from .models import gpytorch_deep
    from .models.scaling import Standardized

    def score(model):
        moments = gpytorch_deep.predictor(model, scaled)(split.X_test)
        return float(scores.mixture_log_density(split.y_test, *moments).mean())

    clock = Clock(score)
    scaled = Standardized(split.X_train[rows], split.y_train[rows])
    model = gpytorch_deep.start(scaled.X, seed)
    n_steps = max_iter or gpytorch_deep.N_STEPS
    for i in gpytorch_deep.train(model, scaled.X, scaled.y, seed, n_steps):
        if i % EVERY == 0 or i == n_steps:
            clock.look(model)
    return clock.curve


def summary(all_cells):
    """A table of all races."""
    rows = []
    for cell in all_cells:
        ours, theirs = cell["skdgp_seconds"], cell["gpytorch_seconds"]
        nearly = cell["gpytorch_nearly_seconds"]
        rows.append(
            [
                f"{cell['set']} {cell['split']} {cell['model']}",
                f"{cell['goal']:.3f}",
                f"{theirs:.1f}",
                f"{nearly:.1f}",
                "never" if ours is None else f"{ours:.1f}",
                rst.NOTHING if ours is None else f"{ours / theirs:.3f}",
                rst.NOTHING if ours is None else f"{ours / nearly:.3f}",
                f"{cell['reached']:.3f}",
                f"{cell['skdgp_all_seconds']:.1f}",
            ]
        )
    head = ["set, split, model", "goal", "GPyTorch (s)", "nearly (s)", "skdgp (s)", "ratio"]
    return rst.table([*head, "to nearly", "skdgp's end", "after (s)"], rows)
