"""Arguments that several commands share."""

from pathlib import Path

from . import models

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


def trial(options):
    """What sets a trial apart from what is to be reported; empty if it is none."""
    return {} if options.max_iter is None else {"max_iter": options.max_iter}


def out(options):
    """Where results go; those of trials have a file of their own."""
    return options.out.with_suffix(".trial.json") if trial(options) else options.out


def todo(options, suits=None, **settings):
    """All cells of the chosen sets, splits, seeds and models."""
    settings |= trial(options)
    return [
        {"set": name, "split": split, "seed": seed, "model": models.short(model)}
        | ({"expression": model} if models.short(model) != model else {})
        | ({"settings": settings} if settings else {})
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
