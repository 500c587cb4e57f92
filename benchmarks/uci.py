"""Regression sets of the literature, and simulated functions: the table of the README.

The nine UCI sets have their usual splits, nine tenths of the rows for training; splits 0 to 4 are reported.
Splits of the functions are draws that share no rows. Intervals are those of 95 %.
"""

import numpy as np

from benchmarks import data, functions, models, rst, runs, table

_MOST_EXACT = 1500  #: rows of scikit-learn's exact Gaussian process
#: one deep Gaussian process, from the start of its paper
SINGLE = "single=DeepGPRegressor(inference=DSVI(inner_scale=1e-5, inner_variance=1.0))"
DEFAULT = ("auto", SINGLE, "exact-gp", "ngboost", "catboost", "hgb", "gpytorch", "svgp-100")
_FORMS = {"log_density": "{:.2f}", "rmse": "{:.3g}"}
SETS = (*data.UCI, *functions.FUNCTIONS)


def add_arguments(parser):
    """Sets, splits, models, labels, data and output."""
    runs.add_arguments(parser, SETS, "uci.json", DEFAULT)


def run(options):
    """Compute all cells that are not there yet, and print the tables."""
    runs.check_known(options.sets, SETS, "sets")
    root = data.folder(options.data)

    def suits(name, number, model):
        split = split_of(root, name, number)
        if split is None:
            return False
        if model == "exact-gp":  # repeated rows let its noise collapse
            return len(split.y_train) <= _MOST_EXACT and name not in data.REPEATED
        return models.suits(model, split.X_train.shape, False)

    runs.run(options, split_of, suits, coverage=0.95, extra=readme)


def split_of(root, name, number):
    """One split of a set, or one draw of a function."""
    if name in functions.FUNCTIONS:
        return functions.draw(name, number)
    return data.uci_split(root, name, number)


def readme(all_cells):
    """Log-density and RMSE of every model."""
    results = table.by_split(all_cells)
    found = {model for splits_of in results.values() for model in splits_of}
    first = [models.short(model) for model in DEFAULT]
    names = [m for m in first if m in found] + sorted(found - set(first))
    rows = []
    for name in (name for name in SETS if name in results):
        texts = []
        for splits in (results[name].get(m, {}).values() for m in names):
            having = ((c, form) for c, form in _FORMS.items() if any(c in v for v in splits))
            texts.append([f.format(np.mean([v[c] for v in splits if c in v])) for c, f in having])
        rows.append([name, *(", ".join(text) or rst.NOTHING for text in texts)])
    return f"Log-density, RMSE:\n\n{rst.table(['set', *names], rows)}"
