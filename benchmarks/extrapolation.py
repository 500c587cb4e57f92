"""Error bars away from the data: structured deep GPs, the mean field, shallow GPs, and the default.

Each split of a set holds out one half of the rows, beyond a hyperplane in a random direction
("projection"), or a random tenth ("random"). Splits differ more than models do, so models are
compared on the same splits, and test row by test row.
"""

import math
import time

import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import t as student

from skdgp import DeepGPRegressor
from skdgp.inference import StructuredVI
from skdgp.model_selection import ProjectionSplit

from . import arguments, cells, data, rst, scores
from .table import nadeau_bengio

SETS = {"boston": 30, "concrete": 30, "energy": 30, "wine_red": 30, "power": 5, "protein": 5}
KINDS = ("projection", "random")
MOST_ROWS = 10_000  #: of a set; more are left out at random
MOST_SCORED = 1000  #: test rows of a split; their log-densities are kept, from near to far
MOST_EXACT = 1500  #: training rows of the exact GP
MAX_TIME = 180.0  #: seconds of a fit
PUBLISHED = {
    "n_layers": 3,
    "width": 5,
    "likelihood": "gaussian",
    "batch_size": 512,
    "n_inducing": 128,
}
VARIES = {"n_inducing": 128, "likelihood": "heteroscedastic"}
MODELS = {
    "mean-field": {**PUBLISHED, "inference": StructuredVI("mean-field")},
    "stripes-and-arrow": {**PUBLISHED, "inference": StructuredVI("stripes-and-arrow")},
    "full": {**PUBLISHED, "inference": StructuredVI("full")},
    "structured-mean-field": {"inference": StructuredVI("mean-field"), "n_inducing": 128},
    "structured": {"inference": StructuredVI(), "n_inducing": 128},
    "structured-widened": {"inference": StructuredVI(n_inflation_splits=4), "n_inducing": 128},
    "heteroscedastic": {**VARIES, "inference": StructuredVI()},
    "heteroscedastic-widened": {**VARIES, "inference": StructuredVI(n_inflation_splits=4)},
    "sparse-gp": {"n_layers": 1, "inference": "dsvi", "likelihood": "gaussian", "n_inducing": 128},
    "exact-gp": {"n_layers": 1, "inference": "vfe"},
    "skdgp": {},
}
BASE = "mean-field"  #: what the others are compared with
N_BINS = 5  #: of the distance from the training rows


def add_arguments(parser):
    """Sets, directions, models, size of the models, data and output."""
    arguments.add_cells(parser, SETS, "extrapolation.json", splits=None)
    parser.add_argument(
        "--directions", type=int, help="splits of each kind; default: 30, large sets 5"
    )
    parser.add_argument("--kinds", type=arguments.names, default=list(KINDS), help="default: all")
    parser.add_argument("--models", type=arguments.names, default=list(MODELS), help="default: all")
    parser.add_argument("--n-inducing", type=int, help="of the sparse models; default: 128")
    parser.add_argument("--table", action="store_true", help="print what is there, compute nothing")


def run(options):
    """Compute all cells that are not there yet, and print the tables."""
    arguments.check_known(options.sets, SETS, "sets")
    arguments.check_known(options.models, MODELS, "models")
    arguments.check_known(options.kinds, KINDS, "kinds of split")
    settings = dict(arguments.trial(options))
    if options.n_inducing is not None:
        settings["n_inducing"] = options.n_inducing
    out = arguments.out(options)
    if not options.table:
        root = data.folder(options.data)
        todo = [
            {
                "set": name,
                "split": f"{kind}-{i}",
                "seed": seed,
                "model": model,
                "settings": settings,
            }
            for name in options.sets
            for kind in options.kinds
            for i in range(options.directions or SETS[name])
            for seed in options.seeds
            for model in options.models
            if suits(root, model, name, kind)
        ]
        cells.fill(out, todo, lambda cell: evaluate(root, cell))
    print(tables(cells.read(out).values()))


def suits(root, model, name, kind):
    """Whether a model can be asked for this set; see the other benchmarks for the exact GP."""
    if model != "exact-gp":
        return True
    n_rows = min(len(rows_of(root, name)[1]), MOST_ROWS)
    n_train = n_rows // 2 if kind == "projection" else n_rows - n_rows // 10
    return n_train <= MOST_EXACT and name not in data.REPEATED


def rows_of(root, name):
    """Inputs and target of a set, at most so many rows."""
    with data.load(root, f"uci/{name}.npz") as archive:
        X, y = archive["X"], archive["y"]
    if len(y) > MOST_ROWS:
        kept = np.sort(np.random.default_rng(0).choice(len(y), MOST_ROWS, replace=False))
        X, y = X[kept], y[kept]
    return X, y


def split_of(X, y, name, split):
    """Training and test rows of a split like ``projection-3``."""
    kind, _, number = split.partition("-")
    if kind == "projection":
        train, test = next(ProjectionSplit(1, random_state=int(number)).split(X))
    else:
        order = np.random.default_rng(int(number)).permutation(len(y))
        test, train = np.split(order, [len(y) // 10])
    if name in data.REPEATED:
        test = test[~data.repeated(X, y, train, test)]
    return train, test[scored(len(test))]


def scored(n_test):
    """Positions of the test rows that are scored."""
    if n_test <= MOST_SCORED:
        return np.arange(n_test)
    return np.sort(np.random.default_rng(0).choice(n_test, MOST_SCORED, replace=False))


def evaluate(root, cell):
    """Fit a model, and score it row by row."""
    X, y = rows_of(root, cell["set"])
    train, test = split_of(X, y, cell["set"], cell["split"])
    arguments_ = dict(MODELS[cell["model"]], random_state=cell["seed"], max_time=MAX_TIME)
    changes = {k: v for k, v in cell["settings"].items() if k != "n_inducing" or k in arguments_}
    start = time.perf_counter()
    model = DeepGPRegressor(**{**arguments_, **changes}).fit(X[train], y[train])
    seconds = time.perf_counter() - start
    mean, std = model.predict(X[test], return_std=True)
    lower, upper = model.predict_interval(X[test], coverage=scores.COVERAGE).T
    order = np.argsort(distances(X[train], X[test]), kind="stable")
    return {
        "log_densities": _short(model.log_predictive_density(X[test], y[test])[order]),
        "squared_errors": by_bin(np.square(y[test] - mean)[order]),
        "variances": by_bin(np.square(std)[order]),
        "coverage": float(((lower <= y[test]) & (y[test] <= upper)).mean()),
        "lower_bound": model.lower_bound_ / len(train),
        "fit_seconds": seconds,
        "n_iter": model.n_iter_,
        "n_train": len(train),
        "n_test": len(test),
    }


def by_bin(values):
    """Means of parts of equal size; of test rows in their order, from near to far."""
    return _short([part.mean() for part in np.array_split(values, N_BINS)])


def _short(values):
    return [float(f"{value:.5g}") for value in values]


def distances(X_train, X_test):
    """Distance of each test row from the nearest training row, in standardized inputs."""
    spread = X_train.std(0)
    X_train, X_test = (
        X_train[:, spread > 0] / spread[spread > 0],
        X_test[:, spread > 0] / spread[spread > 0],
    )
    return cKDTree(X_train).query(X_test)[0]


# Tables


def tables(found):
    """All tables, set by set and kind by kind."""
    groups = {}
    for cell in found:
        kind, seed = cell["split"].partition("-")[0], cell["seed"]
        by_split = groups.setdefault((cell["set"], kind), {}).setdefault(cell["model"], {})
        by_split[cell["split"], seed] = cell
    parts = []
    for (name, kind), of_models in groups.items():
        parts += [rst.heading(f"{name}, {kind} splits"), scores_table(of_models, kind), ""]
        if kind == "projection":
            parts += ["Variance over squared error, near to far from the training rows:", ""]
            parts += [calibration_table(of_models), ""]
    return "\n".join(parts)


def standard_error(values, kind, n_train, n_test):
    """Over splits; those that are random share training rows."""
    if kind == "random":
        return nadeau_bengio(values, n_train, n_test)
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def root_mean_square(cell):
    """Of the errors of all rows."""
    sizes = [len(part) for part in np.array_split(np.arange(cell["n_test"]), N_BINS)]
    return math.sqrt(np.average(cell["squared_errors"], weights=sizes))


def scores_table(of_models, kind):
    """Scores of the models, and differences to the mean field."""
    head = [
        "model",
        "splits",
        "log-density",
        f"- {BASE}",
        "share ahead",
        "RMSE",
        "95 % covers",
        "bound",
        "fit (s)",
    ]
    rows = []
    for model in [name for name in MODELS if name in of_models]:
        splits = of_models[model]
        sizes = [np.mean([cell[n] for cell in splits.values()]) for n in ("n_train", "n_test")]
        pairs = [
            (np.array(cell["log_densities"]), np.array(of_models[BASE][key]["log_densities"]))
            for key, cell in splits.items()
            if key in of_models.get(BASE, {}) and model != BASE
        ]
        row = [
            model,
            len(splits),
            f"{np.mean([np.mean(c['log_densities']) for c in splits.values()]):.3f}",
        ]
        for values in ([(a - b).mean() for a, b in pairs], [(a > b).mean() for a, b in pairs]):
            error = standard_error(values, kind, *sizes) if values else math.nan
            spread = "" if math.isnan(error) else f" ± {error:.3f}"
            row.append(f"{np.mean(values):+.3f}{spread}" if values else rst.NOTHING)
        rmse = np.mean([root_mean_square(c) for c in splits.values()])
        row += [f"{rmse:.3g}", f"{100 * np.mean([c['coverage'] for c in splits.values()]):.1f}"]
        row += [
            f"{np.mean([c[n] for c in splits.values()]):.3g}"
            for n in ("lower_bound", "fit_seconds")
        ]
        rows.append(row)
    return rst.table(head, rows)


def calibration(splits):
    """Mean variance over mean squared error by distance, with 95 % intervals over splits.

    Parameters
    ----------
    splits : iterable of dict
        Cells of one model.

    Returns
    -------
    ratios : ndarray of shape (n_bins, 3)
        Geometric mean over splits, and the ends of its interval; bins are quantiles of the
        distance within a split.
    """
    logs = np.log([np.divide(cell["variances"], cell["squared_errors"]) for cell in splits])
    n, center = len(logs), logs.mean(0)
    half = (
        student.ppf(0.975, n - 1) * logs.std(0, ddof=1) / math.sqrt(n) if n > 1 else np.nan * center
    )
    return np.exp(np.stack([center, center - half, center + half], 1))


def calibration_table(of_models):
    """Ratios of all models."""
    rows = []
    for model in [name for name in MODELS if name in of_models]:
        ratios = calibration(of_models[model].values())
        ends = [f" ({low:.2f}, {high:.2f})" if low == low else "" for _, low, high in ratios]
        rows.append([model, *(f"{r:.2f}{end}" for (r, *_), end in zip(ratios, ends))])
    return rst.table(["model", *(f"bin {i + 1}" for i in range(N_BINS))], rows)
