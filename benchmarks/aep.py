"""Expectation propagation: the regression experiment of Ashman et al., step times, and MNIST.

The experiment (tables 4 and 5 of their report, AEP-2) has two layers, two hidden units and 100
inducing points in each layer. Ours is compared with the published means, and, on the same splits,
with our doubly stochastic scheme of the same shape.
"""

import time

import numpy as np
import torch

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import AEP, DSVI

from . import arguments, cells, data, rst, scores, step, table

#: log-density and RMSE of AEP-2 in the report
REPORT = {
    "boston": (-2.323, 2.745),
    "concrete": (-3.160, 5.869),
    "energy": (-0.917, 0.548),
    "power": (-2.840, 4.127),
    "wine_red": (-0.958, 0.633),
}
SHAPE = {"n_layers": 2, "width": 2, "n_inducing": 100, "likelihood": "gaussian"}
SCHEMES = {
    "aep": lambda: AEP(alpha=1.0),
    "aep-0.5": lambda: AEP(alpha=0.5),
    "aep-separate": lambda: AEP(alpha=1.0, separate=True),
    "aep-sampling": lambda: AEP(alpha=1.0, prediction="sampling"),
    "dsvi": DSVI,
}
PARTS = ("uci", "step", "mnist")
MNIST = {"n_layers": 2, "width": 30, "n_inducing": 100, "batch_size": 1000}
MNIST_STEPS = 5000


def add_arguments(parser):
    """Which part; sets, splits, seeds, schemes, data and output."""
    arguments.add_cells(parser, REPORT, "aep.json")
    parser.add_argument("--part", choices=PARTS, default="uci", help="default: %(default)s")
    parser.add_argument(
        "--models", type=arguments.names, default=["aep", "aep-0.5", "dsvi"],
        help=f"of {', '.join(SCHEMES)}; default: aep,aep-0.5,dsvi",
    )  # fmt: skip
    parser.add_argument("--rows", type=int, help="training rows of mnist, for a trial")


def run(options):
    """Run one part."""
    {"uci": run_uci, "step": run_step, "mnist": run_mnist}[options.part](options)


def run_uci(options):
    """Compute all cells that are not there yet, and print the comparison."""
    arguments.check_known(options.sets, REPORT, "sets")
    arguments.check_known(options.models, SCHEMES, "models")
    root = data.folder(options.data)

    def compute(cell):
        split = data.uci_split(root, cell["set"], cell["split"])
        start = time.perf_counter()
        model = DeepGPRegressor(
            inference=SCHEMES[cell["model"]](), random_state=cell["seed"],
            max_iter=options.max_iter, standardize=True, **SHAPE,
        )  # fmt: skip
        model.fit(split.X_train, split.y_train)
        seconds = time.perf_counter() - start
        return {
            **scores.of_estimator(model, split.X_test, split.y_test),
            "fit_seconds": seconds,
            "n_train": len(split.y_train),
            "n_test": split.n_held_out,
        }

    todo = arguments.todo(options, options.seeds)
    out = arguments.out(options)
    cells.fill(out, todo, compute)
    print(summary(cells.read(out).values()))


def summary(all_cells):
    """A table of means over splits, beside the report's, and paired differences to DSVI."""
    found = {}
    for cell in all_cells:  # seeds are averaged
        key = cell["set"], cell["model"], cell["split"]
        found.setdefault(key, []).append(cell)
    rows = []
    for name, model in sorted({key[:2] for key in found}):
        splits = [key[2] for key in found if key[:2] == (name, model)]
        both = [split for split in splits if (name, "dsvi", split) in found]
        row = [name, model, len(splits)]
        for column, published in zip(("log_density", "rmse"), REPORT[name]):

            def mean(model, split, column=column, name=name):
                return np.mean([cell[column] for cell in found[name, model, split]])

            row += [f"{np.mean([mean(model, s) for s in splits]):.3f}", f"{published:.3f}"]
            differences = [mean(model, s) - mean("dsvi", s) for s in both]
            sizes = [found[name, model, s][0] for s in both]
            if model == "dsvi" or not both:
                row.append(rst.NOTHING)
                continue
            n_train, n_test = (np.mean([c[n] for c in sizes]) for n in ("n_train", "n_test"))
            error = table.nadeau_bengio(differences, n_train, n_test)
            row.append(f"{np.mean(differences):+.3f} ({error:.3f})")
        seconds = [c["fit_seconds"] for s in splits for c in found[name, model, s]]
        rows.append([*row, f"{np.mean(seconds):.0f}"])
    head = ["set", "model", "splits", "log-density", "report", "- DSVI (s.e.)"]
    return rst.table([*head, "RMSE", "report", "- DSVI (s.e.)", "fit (s)"], rows)


def run_step(options):
    """Print median times of a step, and their ratios to DSVI's."""
    torch.set_num_threads(1)
    shape = step.Shape(1000, 8, (2,), 1, 100, 40)
    schemes = {"dsvi": DSVI(), **{name: SCHEMES[name]() for name in ("aep", "aep-separate")}}
    steps = {name: step.step_of(scheme, shape, torch.float64) for name, scheme in schemes.items()}
    medians = step.measure(steps, options.max_iter or shape.steps)
    rows = [
        [name, f"{1e3 * seconds:.1f}", f"{seconds / medians['dsvi']:.2f}"]
        for name, seconds in medians.items()
    ]
    print(rst.table(["scheme", "step (ms)", "/ DSVI"], rows))


def run_mnist(options):
    """Fit the digits with the robust-max likelihood, and print accuracy and time."""
    split = data.mnist(data.folder(options.data))
    rows = np.random.default_rng(0).permutation(len(split.y_train))[: options.rows]
    model = DeepGPClassifier(
        inference="aep",
        max_iter=options.max_iter or MNIST_STEPS,
        random_state=0,
        verbose=1,
        **MNIST,
    )
    start = time.perf_counter()
    model.fit(split.X_train[rows], split.y_train[rows])
    seconds = time.perf_counter() - start
    log_proba = model.predict_log_proba(split.X_test)
    truth = np.searchsorted(model.classes_, split.y_test)
    accuracy = (log_proba.argmax(1) == truth).mean()
    density = log_proba[np.arange(len(truth)), truth].mean()
    head = ["rows", "steps", "accuracy (%)", "log-density", "fit (s)"]
    row = [len(rows), model.n_iter_, f"{100 * accuracy:.2f}", f"{density:.4f}", f"{seconds:.0f}"]
    print(rst.table(head, [row]))
