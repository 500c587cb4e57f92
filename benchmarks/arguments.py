"""Arguments that several commands share."""

from pathlib import Path

RESULTS = Path("benchmarks/results")


def names(text):
    """A list of names, from ``a,b,c``."""
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers(text):
    """A list of ints, from ``0,1,2``."""
    return [int(number) for number in names(text)]


def add_cells(parser, sets, out, *, splits="0,1,2,3,4", seeds="0"):
    """What a benchmark that goes through cells needs: sets, splits, seeds, data and output."""
    parser.add_argument("--sets", type=names, default=list(sets), help="default: all")
    if splits is not None:
        parser.add_argument("--splits", type=numbers, default=splits, help=f"default: {splits}")
    parser.add_argument("--seeds", type=numbers, default=seeds, help=f"default: {seeds}")
    parser.add_argument("--data", type=Path, help="folder of the data; default: $SKDGP_DATA")
    parser.add_argument("--out", type=Path, default=RESULTS / out, help="default: %(default)s")
    add_max_iter(parser)


def trial(options):
    """What sets a trial apart from what is to be reported; empty if it is none."""
    return {} if options.max_iter is None else {"max_iter": options.max_iter}


def out(options):
    """Where results go; those of trials have a file of their own."""
    return options.out.with_suffix(".trial.json") if trial(options) else options.out


def todo(options, seeds):
    """All cells of the chosen sets, splits and models."""
    return [
        {
            "set": name,
            "split": split,
            "seed": seed,
            "model": model,
            "settings": trial(options),
        }
        for name in options.sets
        for split in options.splits
        for seed in seeds
        for model in options.models
    ]


def add_max_iter(parser):
    """The number of steps or trees, for trials."""
    parser.add_argument(
        "--max-iter", type=int, help="steps of every model, for a trial (with a file of its own)"
    )


def check_known(chosen, known, what):
    """Exit with a sentence if something chosen does not exist."""
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise SystemExit(f"Unknown {what}: {', '.join(unknown)}. Known are {', '.join(known)}.")
