"""Structured posteriors on random splits, and away from the data: half of the rows beyond a hyperplane.

Directions differ far more than models do, so that everything is paired, split by split and row by row. Test
rows go from near to far, and for projections predicted variance over squared error is shown by distance.
"""

import math

import numpy as np
from scipy.spatial import cKDTree
from scipy.stats import t as student

from benchmarks import data, rst, runs, table

MOST_ROWS = 10_000  #: of a set; more are left out at random
MOST_SCORED = 1000  #: test rows of a split
_UCI = ("boston", "concrete", "energy", "wine_red", "kin8nm", "power", "naval", "protein")
SETS = tuple(f"{name}-{kind}" for kind in ("projection", "random") for name in _UCI)
# the paper's: three layers of width 5, Gaussian noise, a tenth of the rows to stop by; fits end at 180 s
_PUBLISHED = (
    "3, width=5, n_inducing=64, likelihood='gaussian', target_transform=None, batch_size=512, max_time=180, "
    "early_stopping=True, n_iter_no_change=5, inference=StructuredVI('{0}')"
)
_AS_IT_COMES = "n_inducing=64, max_time=180, inference=StructuredVI({})"
_INFLATED = _AS_IT_COMES.format("n_inflation_splits=4")
_SETTINGS = {
    **{c: _PUBLISHED.format(c) for c in ("mean-field", "stripes-and-arrow", "full")},
    "structured-mean-field": _AS_IT_COMES.format("'mean-field'"),
    "structured": _AS_IT_COMES.format(""),
    "structured-inflated": _INFLATED,
    "heteroscedastic": f"likelihood='heteroscedastic', {_AS_IT_COMES.format('')}",
    "heteroscedastic-inflated": f"likelihood='heteroscedastic', {_INFLATED}",
    # the sampler of the paper's tables, with 2,000 gradients of all rows
    "sghmc-2": "2, width=5, n_inducing=64, likelihood='gaussian', target_transform=None, "
    "max_iter=2000, inference='sghmc'",
}
MODELS = (
    *(f"{name}=DeepGPRegressor({settings})" for name, settings in _SETTINGS.items()),
    # both by L-BFGS of the collapsed bound, to its end
    "sparse-gp=SparseGPRegressor(n_inducing=64, train_inducing=True, max_iter=1000)",
    "exact-gp=SparseGPRegressor(max_iter=1000)",
    "auto",
)
MOST_EXACT = 1500  #: training rows of the exact Gaussian process
BASE = "mean-field"  #: what the others are compared with
N_BINS = 5  #: of the distance from the training rows


def run(options):
    """Compute all cells that are not there yet, and print the tables."""

    root = data.folder(options.data)

    def suits(name, number, model):
        name, _, kind = name.partition("-")
        with data.load(root, f"uci/{name}.npz") as archive:
            n_rows = min(len(archive["y"]), MOST_ROWS)
        n_train = n_rows // 2 if kind == "projection" else n_rows - n_rows // 10
        few = n_train <= MOST_EXACT and name not in data.REPEATED  # its noise collapses
        return few or not model.startswith("exact-gp")

    runs.run(options, split_of, suits, coverage=0.95, reference=BASE, extra=tables, more=by_row)


def split_of(root, name, number):
    """Training and test rows of a set like ``boston-projection``, those nearest to the data first."""
    from skdgp.model_selection import ProjectionSplit

    name, _, kind = name.partition("-")
    with data.load(root, f"uci/{name}.npz") as archive:
        X, y = archive["X"], archive["y"]
    if len(y) > MOST_ROWS:
        kept = np.sort(np.random.default_rng(0).choice(len(y), MOST_ROWS, replace=False))
        X, y = X[kept], y[kept]
    if kind == "projection":
        train, test = next(ProjectionSplit(1, random_state=number).split(X))
    else:
        test, train = np.split(np.random.default_rng(number).permutation(len(y)), [len(y) // 10])
    if name in data.REPEATED:
        test = test[~data.repeated(X, y, train, test)]
    if len(test) > MOST_SCORED:
        chosen = np.random.default_rng(0).choice(len(test), MOST_SCORED, replace=False)
        test = test[np.sort(chosen)]
    test = test[np.argsort(distances(X[train], X[test]), kind="stable")]
    return data.Split(X[train], y[train], X[test], y[test], False, len(test))


def distances(X_train, X_test):
    """Distance of each test row from the nearest training row, in standardized inputs."""
    spread = X_train.std(0)
    varies = spread > 0
    X_train, X_test = (X[:, varies] / spread[varies] for X in (X_train, X_test))
    return cKDTree(X_train).query(X_test)[0]


def by_row(found, y):
    """What is kept beside the scores: log-densities of rows, squared errors and variances of bins."""
    errors, variances = np.square(y - found.mean), np.square(found.std)
    return {
        "log_densities": [float(f"{v:.4g}") for v in found.log_density(y)],
        "squared_errors": [float(p.mean()) for p in np.array_split(errors, N_BINS)],
        "variances": [float(p.mean()) for p in np.array_split(variances, N_BINS)],
    }


def tables(all_cells):
    """How often models are ahead of the mean field, and how their variances fit by distance."""
    parts, groups = [], {}
    for cell in all_cells:
        groups.setdefault(cell["set"], {}).setdefault(cell["model"], {})[cell["split"]] = cell
    for name, by_model in groups.items():
        base, rows = by_model.get(BASE, {}), []
        for model, splits in by_model.items():
            both = [] if model == BASE else [s for s in splits if s in base]
            pairs = [[np.array(of[s]["log_densities"]) for of in (splits, base)] for s in both]
            ahead = [np.mean(ours > theirs) for ours, theirs in pairs if len(ours) == len(theirs)]
            share = f"{np.mean(ahead):.3f}" if ahead else rst.NOTHING
            if len(ahead) > 1:
                sizes = (np.mean([c[n] for c in splits.values()]) for n in ("n_train", "n_test"))
                share += f" ± {table.nadeau_bengio(ahead, *sizes):.3f}"
            ratios = calibration(splits.values())
            bins = [f"{r:.2f} ({low:.2f}, {high:.2f})" for r, low, high in ratios]
            rows.append([model, len(splits), share, *bins])
        text = "Rows ahead of the mean field; variance over squared error:"
        bins = [f"bin {i + 1}" for i in range(N_BINS)]
        body = rst.table(["model", "splits", "ahead", *bins], rows)
        parts += [rst.heading(name, "~"), text, "", body, ""]
    return "\n".join(parts)


def calibration(splits):
    """Geometric means of variance over squared error by distance, and ends of 95 % intervals.

    An array of shape (n_bins, 3); bins are quantiles of the distance within a split.
    """
    logs = np.log([np.divide(cell["variances"], cell["squared_errors"]) for cell in splits])
    n, center = len(logs), logs.mean(0)
    half = np.full(center.shape, np.nan)
    if n > 1:
        half = student.ppf(0.975, n - 1) * logs.std(0, ddof=1) / math.sqrt(n)
    return np.exp(np.stack([center, center - half, center + half], 1))
