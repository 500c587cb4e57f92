"""What the commands share that fit models to splits of sets: arguments, cells, labels, tables."""

import time
import warnings
from functools import partial

from . import arguments, cells, data, models, table
from .distributions import scores


def add_arguments(parser, sets, out, default, **settings):
    """Sets, splits, models, labels, data and output."""
    arguments.add_cells(parser, sets, out, **settings)
    arguments.add_models(parser, default)
    parser.add_argument("--label", help="of the state of the code; results go to NAME-LABEL.json")
    parser.add_argument(
        "--compare", type=arguments.names, default=[], metavar="LABELS", help="show these, too"
    )


def run(options, split_of, suits=None, *, coverage=0.9, reference="auto", extra=None, more=None):
    """Compute all cells that are not there yet, and print the tables.

    `split_of` maps the folder of the data, a set and a number to a Split or None; `suits` a set, a number
    and a model to whether it can be asked (otherwise the split decides); `extra` maps cells to more
    text; `more` a distribution and the targets to more results. `split_of` and `more` are of a module.
    """
    if not options.print:
        models.require(options.models)
    root = data.folder(options.data)
    path = arguments.out(options)

    def asked(name, number, model):
        if suits is not None:
            return suits(name, number, model)
        split = split_of(root, name, number)
        return split is not None and models.suits(model, split.X_train.shape, split.classes)

    if not options.print:
        todo = arguments.todo(options, asked)
        compute = partial(evaluate, split_of, root, coverage, more)
        cells.fill(_labelled(path, options.label), todo, compute, options.n_jobs)
    found = list(cells.read(path).values())
    for label in dict.fromkeys([options.label, *options.compare]):
        for cell in cells.read(_labelled(path, label)).values() if label else ():
            found.append({**cell, "model": f"{cell['model']}@{label}"})
    splits = options.splits
    found = [c for c in found if c["set"] in options.sets and (not splits or c["split"] in splits)]
    reference = options.reference or (
        f"{reference}@{options.label}" if options.label else reference
    )
    if options.models != options.default_models:  # those, and what they are compared with
        shown = {models.short(model) for model in [*options.models, reference.partition("@")[0]]}
        found = [c for c in found if c["model"].partition("@")[0] in shown]
    print(table.report(found, reference, options.column))
    if extra is not None:
        print(extra(found))


def _labelled(path, label):
    return path.with_name(path.name.replace(".", f"-{label}.", 1)) if label else path


def evaluate(split_of, root, coverage, more, cell):
    """Scores of a cell's model."""
    return measure(cell, split_of(root, cell["set"], cell["split"]), coverage, more)


def measure(cell, split, coverage=0.9, more=None):
    """Fit a model to the training rows and score it on the others, with the seconds of both.

    Seconds are those of the process, so that other work on the machine hardly counts, but
    `wall_seconds`.
    """
    settings = {"classes": split.classes, "seed": cell["seed"], **cell.get("settings", {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is measured is what is predicted
        start, wall = time.process_time(), time.perf_counter()
        name = cell.get("expression", cell["model"])
        predict = models.fit(name, split.X_train, split.y_train, **settings)
        fitted, wall = time.process_time(), time.perf_counter() - wall
        found = predict(split.X_test)
        predicted = time.process_time()
        results = scores(found, split.y_test, coverage)
        results |= more(found, split.y_test) if more is not None else {}
    if getattr(predict, "bound", None) is not None:
        results["elbo"] = predict.bound / len(split.y_train)
    return {
        **results,
        "fit_seconds": fitted - start,
        "predict_seconds": predicted - fitted,
        "wall_seconds": wall,
        "n_train": len(split.y_train),
        "n_test": split.n_held_out,
    }
