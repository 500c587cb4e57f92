"""Tables of results: scores, paired differences with standard errors, mean ranks.

Means are over splits, after seeds are averaged. A difference is the reference minus another model, on the
splits that both have.
"""

import math

import numpy as np
from scipy.stats import rankdata

from benchmarks import rst

HIGHER = ("log_density", "accuracy")  #: is better; of all others lower is


def nadeau_bengio(differences, n_train, n_test):
    """Standard error of the mean difference over splits whose training sets overlap.

    The usual variance ``s^2 / J`` of a mean takes the splits for independent. Nadeau and Bengio
    (2003, section 3, "corrected resampled t") widen it to ``(1 / J + n_test / n_train) s^2``. NaN for
    a single split.
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
        of_model = groups.setdefault(cell["set"], {}).setdefault(cell["model"], {})
        of_model.setdefault(cell["split"], []).append(cell)
    return {
        set_name: {
            model: {split: _mean(group) for split, group in splits.items()}
            for model, splits in of_models.items()
        }
        for set_name, of_models in groups.items()
    }


def _mean(group):
    numbers = [k for k, v in group[0].items() if isinstance(v, int | float) or k == "blocks"]
    return {k: np.mean([cell[k] for cell in group], axis=0) for k in numbers}


def difference(ours, theirs, column):
    """Mean paired difference and its standard error; None if there is nothing to compare.

    Over splits (:func:`nadeau_bengio`), or over twenty blocks of the test rows if there is one.
    """
    splits = [
        s for s in sorted(set(ours) & set(theirs)) if column in ours[s] and column in theirs[s]
    ]
    if not splits:
        return None
    paired = [ours[s][column] - theirs[s][column] for s in splits]
    if len(splits) == 1 and column == "log_density" and "blocks" in ours[splits[0]]:
        a, b = (of_model[splits[0]].get("blocks", ()) for of_model in (ours, theirs))
        if len(a) == len(b) > 1:
            return float(paired[0]), float(np.std(np.subtract(a, b), ddof=1) / math.sqrt(len(a)))
    n_train, n_test = (np.mean([ours[s][name] for s in splits]) for name in ("n_train", "n_test"))
    return float(np.mean(paired)), nadeau_bengio(paired, n_train, n_test)


def of_models(splits_of, column):
    """The mean of each model that has this column, on the splits that all of these share."""
    having = {m: s for m, s in splits_of.items() if all(column in v for v in s.values())}
    shared = set.intersection(*map(set, having.values())) if having else ()
    if not shared:
        return {}
    return {m: float(np.mean([s[i][column] for i in shared])) for m, s in having.items()}


def mean_ranks(results, column="log_density"):
    """For each model its mean rank over sets, and their number; best first."""
    ranks = {}
    for splits_of in results.values():
        means = of_models(splits_of, column)
        sign = -1.0 if column in HIGHER else 1.0
        for model, rank in zip(means, rankdata([sign * value for value in means.values()])):
            ranks.setdefault(model, []).append(rank)
    found = ((model, float(np.mean(r)), len(r)) for model, r in ranks.items())
    return sorted(found, key=lambda row: row[1])


def _with_error(values, form):
    """A mean over sets and, if they are several, its standard error."""
    if not values:
        return rst.NOTHING
    if len(values) == 1:
        return form.format(values[0])
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{form.format(np.mean(values))} ± {form.format(error).lstrip('+')}"


def _gaps(sets, model, reference, column):
    """What a model has more than the reference, set by set; of errors in percent."""
    for splits_of in sets:
        both = {m: splits_of[m] for m in (model, reference) if m in splits_of}
        means = of_models(both, column)
        if len(means) == 2:
            theirs, ours = means[model], means[reference]
            yield theirs - ours if column in HIGHER else 100.0 * math.log(theirs / ours)


def summary(results, reference):
    """One line for each model: ranks, and differences to the reference over all sets.

    Log-densities and accuracies are subtracted; of errors the mean ratio is shown, in percent.
    """
    classes = all("accuracy" in v for s in results.values() for m in s.values() for v in m.values())
    titles = {"log_density": "log-density"}
    titles |= {"accuracy": "accuracy"} if classes else {"crps": "CRPS (%)", "rmse": "RMSE (%)"}
    ranks = {c: {model: rank for model, rank, _ in mean_ranks(results, c)} for c in titles}
    of_density = ranks["log_density"]
    names = {m for splits_of in results.values() for m in splits_of}
    names = sorted(names, key=lambda m: (of_density.get(m, math.inf), m))
    rows = []
    for model in names:
        sets = [s for s in results.values() if model in s]
        row = [model, len(sets)]
        for column in titles:
            rank = ranks[column].get(model)
            row.append(rst.NOTHING if rank is None else f"{rank:.2f}")
            form = "{:+.3f}" if column in HIGHER else "{:+.1f}"
            row.append(_with_error(list(_gaps(sets, model, reference, column)), form))
        cells = [value for s in sets for value in s[model].values()]
        if not classes:
            covers = [100.0 * v["coverage"] for v in cells if "coverage" in v]
            row.append(f"{np.mean(covers):.1f}" if covers else rst.NOTHING)
        fits = [v.get("fit_seconds", math.nan) for v in cells]
        timed = [v for v in cells if v.get("predict_seconds") and v["n_test"]]
        per_row = [1e6 * v["predict_seconds"] / v["n_test"] for v in timed]
        row += [f"{np.median(fits):.3g}", f"{np.sum(fits):.0f}"]
        rows.append([*row, f"{np.median(per_row):.0f}" if per_row else rst.NOTHING])
    head = ["model", "sets", *(part for title in titles.values() for part in ("rank", title))]
    head += [] if classes else ["covers"]
    return rst.table([*head, "fit (s)", "all (s)", "predict (us)"], rows)


def _text(gap):
    """What :func:`difference` gives as a cell of a table."""
    if gap is None:
        return rst.NOTHING
    mean, error = gap
    return f"{mean:+.3g}" if math.isnan(error) else f"{mean:+.3g} ± {error:.2g}"


def matrix(results, reference, column="log_density"):
    """A line for each set: the reference, and what the others have more or less, with errors."""
    names = [m for m, *_ in mean_ranks(results, column) if m != reference]
    rows = []
    for name in sorted(results):
        splits_of = results[name]
        ours = splits_of.get(reference, {})
        own = [v[column] for v in ours.values() if column in v]
        row = [name, f"{np.mean(own):.4g}" if own else rst.NOTHING]
        for model in names:
            row.append(_text(difference(splits_of.get(model, {}), ours, column)))
        rows.append(row)
    return rst.table(["set", reference, *names], rows)


def report(all_cells, reference, column="log_density"):
    """All tables, as reStructuredText; sets with classes apart."""
    all_cells = [cell for cell in all_cells if "log_density" in cell or "rmse" in cell]
    parts = []
    for title, classes in (("Regression", False), ("Classes", True)):
        results = by_split(cell for cell in all_cells if ("accuracy" in cell) == classes)
        if results:
            parts += [rst.heading(title), summary(results, reference), ""]
            parts += [f"{column} of {reference}, and what others have more:", ""]
            parts += [matrix(results, reference, column), ""]
    return "\n".join(parts) or "There are no results."
