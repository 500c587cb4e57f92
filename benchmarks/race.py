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
    "dsvi": "{}(inference='dsvi')",
    "auto": "{}()",
    "rff": f"{{}}({_RFF})",
    "rff-3": f"{{}}(3, {_RFF})",
}
CLASSES = ("eeg",)  #: sets with two classes
SETS = (*data.UCI[:7], *CLASSES)
_FEW = slice(50)  #: rows of a fit beforehand, because the first one of a process is slow
EVERY = 100  #: steps between two scores of GPyTorch; ours are 50 steps apart
NEARLY = 0.01  #: GPyTorch's own last bit of progress, in nats


def add_arguments(parser):
    """Sets, splits, seeds, models, data and output."""
    arguments.add_cells(parser, SETS, "race.json", splits="0")
    parser.set_defaults(sets=["power"])
    parser.add_argument(
        "--models", type=arguments.names, default=["dsvi", "auto"], help="of the race"
    )
    parser.add_argument("--plot", type=arguments.Path, metavar="FILE", help="draw known races")


def run(options):
    """Run all races that are not there yet, and print them."""
    arguments.check_known(options.sets, SETS, "sets")
    arguments.check_known(options.models, CONTENDERS, "models")
    if options.plot is not None:
        return draw(cells.read(arguments.out(options)).values(), options)
    models.require(["gpytorch"])
    root, known = data.folder(options.data), {}

    def compute(cell):
        split, seed = split_of(root, cell["set"], cell["split"]), cell["seed"]
        key = cell["set"], cell["split"], seed
        if key not in known:
            theirs_curve(split, seed, 2, _FEW)
            known[key] = theirs_curve(split, seed, options.max_iter)
        ours_curve(split, seed, 2, cell["model"], _FEW)
        return race(ours_curve(split, seed, options.max_iter, cell["model"]), known[key])

    if not options.print:
        cells.fill(arguments.out(options), arguments.todo(options), compute)
    print(summary(cells.read(arguments.out(options)).values()))


def split_of(root, name, number):
    """One split of a set."""
    return data.eeg_fold(root, number) if name in CLASSES else data.uci_split(root, name, number)


class Clock:
    """Seconds since the start, pauses left out; also a callback that scores after each block."""

    def __init__(self, score):
        self._score = score
        self._paused = 0.0
        self._start = time.perf_counter()
        self.curve = []  #: seconds, log-density, and error: rates of classes, or the RMSE

    def look(self, model):
        """Note the time and the scores of a model."""
        now = time.perf_counter()
        self.curve.append((now - self._start - self._paused, *self._score(model)))
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
    make = "DeepGPClassifier" if split.classes else "DeepGPRegressor"
    model = models.estimator(CONTENDERS[name].format(make), split.classes, seed, max_iter)

    def score(model):
        if split.classes:
            return of_probabilities(split.y_test, model.predict_proba(split.X_test)[:, 1])
        return of_means(split.y_test, Ours(model, split.X_test))

    clock = Clock(score)
    model.set_callbacks(clock).fit(split.X_train[rows], split.y_train[rows])
    return clock.curve


def theirs_curve(split, seed, max_iter, rows=slice(None)):
    """Seconds and test scores during the training of GPyTorch's model.

    Columns of classes have outliers, which are moved to the quantiles of a normal distribution.
    """
    from sklearn.preprocessing import QuantileTransformer

    from . import gpytorch_peers as peers

    X, X_test = split.X_train[rows], split.X_test
    if split.classes:
        squeeze = QuantileTransformer(
            n_quantiles=min(1000, len(X)), output_distribution="normal", random_state=0
        )
        X, X_test = squeeze.fit_transform(X), squeeze.transform(X_test)
    scaled = models.Standardized(X, split.y_train[rows])
    new = scaled.inputs(X_test)

    def score(model):
        if split.classes:
            return of_probabilities(split.y_test, peers.class_probability(model, new))
        return of_means(split.y_test, scaled.mixture(*peers.moments(model, new)))

    clock = Clock(score)
    y = split.y_train[rows] if split.classes else scaled.y
    model = peers.start_deep(scaled.X, seed, classes=split.classes)
    n_steps = max_iter or peers.N_STEPS
    for i in peers.train(model, scaled.X, y, seed, n_steps):
        if i % EVERY == 0 or i == n_steps:
            clock.look(model)
    return clock.curve


def of_means(y, found):
    """Mean log-density, and root mean squared error."""
    return float(found.log_density(y).mean()), float(np.sqrt(np.mean((y - found.mean) ** 2)))


def of_probabilities(y, p):
    """Mean log-probability of the right class, and share of wrong ones."""
    right = np.log(np.maximum(np.where(y == 1, p, 1.0 - p), np.finfo(float).tiny))
    return float(right.mean()), float(((p > 0.5) != (y == 1)).mean())


def summary(all_cells):
    """A table of all races."""
    rows = []
    for cell in all_cells:
        ours, theirs = cell["ours_seconds"], cell["gpytorch_seconds"]
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
                f"{cell['ours_all_seconds']:.1f}",
            ]
        )
    head = ["set, split, model", "goal", "GPyTorch (s)", "nearly (s)", "ours (s)", "ratio"]
    return rst.table([*head, "to nearly", "ours's end", "after (s)"], rows)


def draw(all_cells, options):
    """Error and log-density against the time, a column for each set; GPyTorch's on its best day."""
    import matplotlib.pyplot as plt

    found = {(c["set"], c["model"]): c for c in all_cells if len(c["ours_curve"][0]) > 2}
    sets = [name for name in options.sets if any(name == key[0] for key in found)]
    if not sets:
        raise SystemExit("None of these races is known; run them without --plot.")
    fig, axes = plt.subplots(
        2,
        len(sets),
        figsize=(3.6 * len(sets), 5.5),
        sharex="col",
        squeeze=False,
        layout="constrained",
    )
    for (top, bottom), name in zip(axes.T, sets):
        curves = {m: found[name, m]["ours_curve"] for m in options.models if (name, m) in found}
        races = [cell for key, cell in found.items() if key[0] == name]
        curves["GPyTorch"] = min(races, key=lambda cell: cell["gpytorch_seconds"])["gpytorch_curve"]
        for model, curve in curves.items():
            seconds, log_density, error = np.array(curve).T
            style = {"color": "black", "ls": "--"}
            if model in CONTENDERS:
                style = {"color": f"C{list(CONTENDERS).index(model)}"}
            top.plot(seconds, error, label=model, **style)
            bottom.plot(seconds, log_density, label=model, **style)
        last = np.array([curve[-1] for curve in curves.values()])
        low, high = last[:, 1].min(), last[:, 1].max()
        bottom.set_ylim(low - 0.6 * (high - low), high + 0.1 * (high - low))
        top.set_ylim(top=last[:, 2].max() + 0.6 * np.ptp(last[:, 2]))
        first = min(curve[0][0] for curve in curves.values())
        top.set(
            title=name,
            xscale="log",
            xlim=(10.0 ** np.floor(np.log10(first)), None),
            ylabel="errors" if name in CLASSES else "RMSE",
        )
        bottom.set(xlabel="seconds", ylabel="log-density")
    entries = {
        label: line for ax in axes[0] for line, label in zip(*ax.get_legend_handles_labels())
    }
    fig.legend(entries.values(), entries, loc="outside upper center", ncols=len(entries))
    fig.savefig(options.plot, dpi=120)
