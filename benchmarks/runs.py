"""What commands share that fit models to splits of sets: arguments, cells, labels, tables."""

import time
import warnings
from functools import partial
from pathlib import Path

from benchmarks import cells, data, models, table
from benchmarks.distributions import scores

RESULTS = Path("benchmarks/results")


def names(text):
    """A list of names, from ``a,b,c``."""
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers(text):
    """A list of ints, from ``0,1,2``."""
    return [int(number) for number in names(text)]


def add_models(parser, default):
    """Names and expressions, apart by spaces, because expressions have commas."""
    parser.add_argument(
        "--models", nargs="+", default=list(default), metavar="MODEL",
        help=f"{models.HELP}; default: {' '.join(default)}",
    )  # fmt: skip
    parser.set_defaults(default_models=list(default))


def add_cells(parser, sets, out, *, splits="0,1,2,3,4", what="--sets"):
    """What a benchmark that goes through cells needs: sets, splits, seeds, data and output."""
    sets = list(sets)
    parser.add_argument(
        what, dest="sets", type=names, default=sets, help=f"of {','.join(sets)}; default: all"
    )
    parser.add_argument("--splits", type=numbers, default=splits, help="default: %(default)s")
    parser.add_argument("--seeds", type=numbers, default="0", help="default: %(default)s")
    parser.add_argument("--data", type=Path, help="folder of the data; default: $SKDGP_DATA")
    parser.add_argument("--out", type=Path, default=RESULTS / out, help="default: %(default)s")
    parser.add_argument("--n-jobs", type=int, default=1, help="cells at a time; default: 1")
    parser.add_argument("--print", action="store_true", help="only print what is there")
    parser.add_argument("--column", default="log_density", help="of the table of sets, e.g. rmse")
    parser.add_argument("--reference", help="the model that others are paired with")
    add_max_iter(parser)


def add_max_iter(parser):
    """The number of steps or trees, for trials."""
    parser.add_argument(
        "--max-iter", type=int, help="steps of every model, for a trial (with a file of its own)"
    )


def out(options):
    """Where results go; those of trials have a file of their own."""
    return options.out if options.max_iter is None else options.out.with_suffix(".trial.json")


def todo(options, suits=None):
    """All cells of the chosen sets, splits, seeds and models."""
    trial = {} if options.max_iter is None else {"settings": {"max_iter": options.max_iter}}
    return [
        {"set": name, "split": split, "seed": seed, "model": models.short(model)}
        | ({"expression": model} if models.short(model) != model else {})
        | trial
        for name in options.sets
        for split in options.splits or range(5)
        for seed in options.seeds
        for model in options.models
        if suits is None or suits(name, split, model)
    ]


def check_known(chosen, known, what):
    """Exit with a sentence if something chosen does not exist."""
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise SystemExit(f"Unknown {what}: {', '.join(unknown)}. Known are {', '.join(known)}.")


def add_arguments(parser, sets, out, default, **settings):
    """Sets, splits, models, labels, data and output."""
    add_cells(parser, sets, out, **settings)
    add_models(parser, default)
    parser.add_argument("--label", help="of the state of the code; results go to NAME-LABEL.json")
    parser.add_argument(
        "--compare", type=names, default=[], metavar="LABELS", help="show these, too"
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
    path = out(options)

    def asked(name, number, model):
        if suits is not None:
            return suits(name, number, model)
        split = split_of(root, name, number)
        return split is not None and models.suits(model, split.X_train.shape, split.classes)

    if not options.print:
        compute = partial(evaluate, split_of, root, coverage, more)
        cells.fill(_labelled(path, options.label), todo(options, asked), compute, options.n_jobs)
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
    """Fit a cell's model to the training rows and score it on the others, with the seconds of both.

    Seconds are those of the process, so that other work on the machine hardly counts, but
    `wall_seconds`.
    """
    split = split_of(root, cell["set"], cell["split"])
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
