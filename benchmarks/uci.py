"""Quality on the regression sets: log-density, RMSE, CRPS, coverage and time of every model."""

import time

from . import arguments, cells, data, models

_SCORES = ("log_density", "rmse")


def add_arguments(parser):
    """Sets, splits, seeds, models, data and output."""
    arguments.add_cells(parser, data.UCI, "uci.json")
    parser.add_argument(
        "--models", type=arguments.names, default=list(models.MODELS), help="default: all"
    )


def run(options):
    """Compute all cells that are not there yet."""
    arguments.check_known(options.sets, data.UCI, "sets")
    arguments.check_known(options.models, models.MODELS, "models")
    models.require(options.models)
    root = data.folder(options.data)

    def compute(cell):
        split = data.uci_split(root, cell["set"], cell["split"])
        return evaluate(cell["model"], split, cell["seed"], options.max_iter)

    todo = [
        {
            "set": name,
            "split": split,
            "seed": seed,
            "model": model,
            "settings": arguments.trial(options),
        }
        for name in options.sets
        for split in options.splits
        if (rows := data.uci_split(root, name, split)) is not None
        for seed in options.seeds
        for model in options.models
        if models.suits(model, name, len(rows.y_train))
    ]
    cells.fill(arguments.out(options), todo, compute, models.packages(options.models))


def evaluate(model, split, seed, max_iter=None):
    """Fit a model to the training rows and score it on the test rows."""
    fit = models.fit_function(model)
    start = time.perf_counter()
    score = fit(split.X_train, split.y_train, seed, max_iter)
    seconds = time.perf_counter() - start
    new, scores = ~split.repeated, score(split.X_test, split.y_test)
    if not new.all():  # whoever remembers the other rows predicts them well
        of_new = score(split.X_test[new], split.y_test[new])
        scores.update({f"{name}_new_rows": of_new[name] for name in _SCORES if name in of_new})
    return {
        **scores,
        "fit_seconds": seconds,
        "n_train": len(split.y_train),
        "n_test": split.n_held_out,
        "n_scored": len(split.y_test),
    }
