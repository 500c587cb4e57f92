"""Tables of the regression results, with paired differences and mean ranks, for the documentation.

Means are over splits, after seeds are averaged. A difference is ours minus a peer's, on the splits
that both have, with a standard error for training sets that overlap.
"""

import math
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from . import arguments, cells, rst

_COLUMNS = ("log_density", "rmse", "crps", "coverage", "fit_seconds", "predict_seconds")
_HEAD = [
    "model",
    "splits",
    "log-density",
    "difference",
    "RMSE",
    "difference",
    "CRPS",
    "95 % covers",
    "fit (s)",
    "predict (s)",
]


def add_arguments(parser):
    """Where results are read, and who is compared."""
    parser.add_argument(
        "--in",
        dest="paths",
        type=Path,
        nargs="+",
        default=[arguments.RESULTS / "uci.json"],
        help="files of results; default: benchmarks/results/uci.json",
    )
    parser.add_argument("--splits", type=arguments.numbers, help="default: all that are there")
    parser.add_argument("--reference", default="skdgp", help="the model that is ours")


def run(options):
    """Print all tables."""
    found = {}
    for path in options.paths:
        found.update(cells.read(path))
    if not found:
        raise SystemExit(f"There are no results in {', '.join(map(str, options.paths))}.")
    chosen = [
        cell for cell in found.values() if options.splits is None or cell["split"] in options.splits
    ]
    print(tables(chosen, options.reference))


def nadeau_bengio(differences, n_train, n_test):
    """Standard error of the mean difference over splits whose training sets overlap.

    The usual variance ``s^2 / J`` of a mean takes the splits for independent. Nadeau and Bengio
    (2003, section 3, "corrected resampled t") widen it to ``(1 / J + n_test / n_train) s^2``.

    Parameters
    ----------
    differences : array-like of shape (J,)
    n_train, n_test : float
        Sizes of a split.

    Returns
    -------
    standard_error : float
        NaN for a single split.
    """
    differences = np.asarray(differences, dtype=np.float64)
    J = len(differences)
    if J < 2:
        return math.nan
    return float(np.sqrt((1.0 / J + n_test / n_train) * differences.var(ddof=1)))


def by_split(all_cells):
    """Averages over seeds: a dict from set, model and split to the means of all numbers."""
    groups = {}
    for cell in all_cells:
        groups.setdefault(cell["set"], {}).setdefault(cell["model"], {}).setdefault(
            cell["split"], []
        ).append(cell)
    return {
        set_name: {
            model: {
                split: {
                    name: float(np.mean([cell[name] for cell in group]))
                    for name, value in group[0].items()
                    if isinstance(value, int | float)
                }
                for split, group in splits.items()
            }
            for model, splits in of_models.items()
        }
        for set_name, of_models in groups.items()
    }


def difference(ours, theirs, column):
    """Mean paired difference and its standard error; None if there is nothing to compare."""
    splits = sorted(set(ours) & set(theirs))
    splits = [s for s in splits if column in ours[s] and column in theirs[s]]
    if not splits:
        return None
    paired = [ours[s][column] - theirs[s][column] for s in splits]
    n_train, n_test = (np.mean([ours[s][name] for s in splits]) for name in ("n_train", "n_test"))
    return float(np.mean(paired)), nadeau_bengio(paired, n_train, n_test)


def set_table(of_models, reference="skdgp"):
    """The table of one set, from what :func:`by_split` gives for it."""
    rows = []
    for model in _in_order(of_models, reference):
        splits = of_models[model]
        means = {
            column: np.mean([values[column] for values in splits.values()])
            for column in _COLUMNS
            if all(column in values for values in splits.values())
        }
        ours = of_models.get(reference, {}) if model != reference else {}
        gaps = {c: difference_text(difference(ours, splits, c)) for c in ("log_density", "rmse")}
        rows.append(
            [
                model,
                len(splits),
                text(means, "log_density", "{:.3f}"),
                gaps["log_density"],
                text(means, "rmse", "{:.3g}"),
                gaps["rmse"],
                text(means, "crps", "{:.3g}"),
                text({k: 100.0 * v for k, v in means.items()}, "coverage", "{:.1f}"),
                text(means, "fit_seconds", "{:.3g}"),
                text(means, "predict_seconds", "{:.2g}"),
            ]
        )
    return rst.table(_HEAD, rows)


def mean_ranks(results):
    """Mean rank of the log-density over sets, and the number of sets, for each model; best first.

    In each set those models are ranked that predict a density, on the splits that all of them have.
    """
    ranks = {}
    for of_models in results.values():
        with_density = {
            model: splits
            for model, splits in of_models.items()
            if all("log_density" in values for values in splits.values())
        }
        shared = set.intersection(*map(set, with_density.values())) if with_density else set()
        if not shared:
            continue
        means = [np.mean([s[i]["log_density"] for i in shared]) for s in with_density.values()]
        for model, rank in zip(with_density, rankdata(np.negative(means))):
            ranks.setdefault(model, []).append(rank)
    return sorted(
        ((model, float(np.mean(r)), len(r)) for model, r in ranks.items()), key=lambda row: row[1]
    )


def tables(all_cells, reference="skdgp"):
    """All tables, as reStructuredText."""
    results = by_split(all_cells)
    parts = []
    for name in sorted(results):
        parts += [rst.heading(name, "~"), set_table(results[name], reference), ""]
    rows = [[model, f"{rank:.2f}", n_sets] for model, rank, n_sets in mean_ranks(results)]
    parts += [rst.heading("Mean rank", "~"), rst.table(["model", "mean rank", "sets"], rows)]
    return "\n".join(parts)


def _in_order(of_models, reference):
    """The reference, models with a density from the best down, models without."""

    def key(model):
        values = [cell.get("log_density", -math.inf) for cell in of_models[model].values()]
        return model != reference, -np.mean(values)

    return sorted(of_models, key=key)


def text(means, column, form):
    """A mean as a cell of a table."""
    return form.format(means[column]) if column in means else rst.NOTHING


def difference_text(gap):
    """What :func:`difference` gives as a cell of a table."""
    if gap is None:
        return rst.NOTHING
    mean, error = gap
    return f"{mean:+.3g}" if math.isnan(error) else f"{mean:+.3g} ± {error:.2g}"
