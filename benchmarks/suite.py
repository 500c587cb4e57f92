"""The development suite: 30 tables by which the default is decided, ours beside our peers.

At most 3,000 rows of a table, one fold of five, scores in the target's units. Fold 0 is to develop on, 1
and 2 are to report. Cells that are known are not computed again. With --label results go to a file of
their own and models are shown as "auto@label", so that states of the code can be compared:
``python -m benchmarks --checkout PATH suite --label old`` measures another checkout, and
``--compare old`` shows it beside. ``--raw`` hands data frames over as they are, to models that read them, as
those of skdgp, ``catboost`` and ``hgb``: ``python -m benchmarks suite --raw --models auto --compare raw``.
"""

from benchmarks import data, models, runs, unseen

REGRESSION = ("catboost", "catboost-quantiles", "ngboost", "quantile-forest", "hgb", "exact-gp")
CLASSES = ("catboost", "hgb", "forest", "logistic", "exact-gp")
_TASKS = {"all": ("regression", "classification"), "classes": ("classification",)}
_TASKS["regression"] = ("regression",)


def add_arguments(parser):
    """Tables, folds, models, labels, data and output."""
    default = ("auto", *dict.fromkeys(REGRESSION + CLASSES))
    runs.add_arguments(parser, _TASKS, "suite.json", default, splits="0", what="--tables")
    parser.set_defaults(sets=["all"])
    parser.add_argument("--fold", dest="splits", type=runs.numbers, help="the same as --splits")
    parser.add_argument(
        "--raw", action="store_true", help="data frames as they are; the label is raw"
    )
    parser.add_argument("--hide", choices=("levels", "cells"), help="what training does not see")
    parser.add_argument(
        "--rows", type=int, default=300, help="of training, with --hide; default: 300"
    )
    parser.add_argument("--most-levels", type=int, default=4, help="of a column; default: 4")
    parser.add_argument(
        "--shares", type=lambda text: [float(part) for part in text.split(",")], default=[0.1, 0.3, 0.5],
        help="of deleted cells; default: 0.1,0.3,0.5",
    )  # fmt: skip


def run(options):
    """Compute all cells that are not there yet, and print the tables."""
    root = data.folder(options.data)
    tables = data.suite(root)
    options.sets = chosen(tables, options.sets)
    if options.hide:
        unseen.run(options)
        return

    def suits(name, fold, model):
        about = tables[name]
        n_rows = min(about["n_rows"], data.MOST_ROWS) * 4 // 5
        shape = n_rows, about["n_columns"]  # without reading the table
        return models.suits(model, shape, about["task"] == "classification")

    if options.raw:
        options.label = options.label or "raw"
    runs.run(options, data.raw_fold if options.raw else data.suite_fold, suits)


def chosen(tables, names):
    """Tables by name, or all of a kind."""
    found = []
    for name in names:
        if name in _TASKS:
            found += [key for key, about in tables.items() if about["task"] in _TASKS[name]]
        else:
            runs.check_known([name], tables, "tables")
            found.append(name)
    return list(dict.fromkeys(found))
