"""Quality of the classifier on handwritten digits and EEG eye states."""

import time

import numpy as np

from skdgp import DeepGPClassifier

from . import arguments, cells, data, rst

#: arguments of the classifier for each set
SETTINGS = {
    "mnist": {"n_inducing": 200, "max_iter": 5000, "dtype": "float32", "standardize": False},
    "eeg": {},
}
#: the same for random features
RANDOM_FEATURES = {
    "mnist": {
        "inference": "rff",
        "inference__n_features": 500,
        "inference__frequencies": "variational",
        "width": 50,
        "max_iter": 5000,
        "learning_rate": 0.01,
        "dtype": "float32",
        "standardize": False,
    },
    "eeg": {"inference": "rff", "inference__frequencies": "variational", "max_iter": 4000},
}
SPLITS = {"mnist": [0], "eeg": [0, 1, 2, 3, 4]}


def add_arguments(parser):
    """Sets, seeds, data and output."""
    arguments.add_cells(parser, SETTINGS, "classify.json", splits=None, seeds="0,1,2")
    parser.add_argument("--rff", action="store_true", help="random features instead")
    parser.add_argument("--layers", type=int, default=2, help="default: %(default)s")


def run(options):
    """Compute all cells that are not there yet, and print their means."""
    arguments.check_known(options.sets, SETTINGS, "sets")
    root = data.folder(options.data)

    def compute(cell):
        split = data.mnist(root) if cell["set"] == "mnist" else data.eeg_fold(root, cell["split"])
        return evaluate(split, cell["seed"], cell["settings"])

    todo = [
        {
            "set": name,
            "split": split,
            "seed": seed,
            "model": f"rff-{options.layers}" if options.rff else "skdgp",
            "settings": {
                **(RANDOM_FEATURES if options.rff else SETTINGS)[name],
                **({} if options.layers == 2 else {"n_layers": options.layers}),
                **arguments.trial(options),
            },
        }
        for name in options.sets
        for split in SPLITS[name]
        for seed in options.seeds
    ]
    out = arguments.out(options)
    cells.fill(out, todo, compute)
    print(summary(cells.read(out).values()))


def evaluate(split, seed, settings):
    """Fit the classifier to the training rows and score it on the test rows."""
    start = time.perf_counter()
    model = DeepGPClassifier(random_state=seed).set_params(**settings)
    model.fit(split.X_train, split.y_train)
    fitted = time.perf_counter()
    log_proba = model.predict_log_proba(split.X_test)
    predicted = time.perf_counter()
    truth = np.searchsorted(model.classes_, split.y_test)
    return {
        "accuracy": float((log_proba.argmax(1) == truth).mean()),
        "log_density": float(log_proba[np.arange(len(truth)), truth].mean()),
        "fit_seconds": fitted - start,
        "predict_seconds": predicted - fitted,
        "n_iter": model.n_iter_,
        "n_train": len(split.y_train),
        "n_test": len(truth),
    }


def summary(all_cells):
    """A table with the means over splits and seeds."""
    all_cells = list(all_cells)
    rows = []
    for name, model in sorted({(cell["set"], cell["model"]) for cell in all_cells}):
        part = [cell for cell in all_cells if (cell["set"], cell["model"]) == (name, model)]
        columns = ("accuracy", "log_density", "fit_seconds", "predict_seconds")
        accuracy, log_density, fit, predict = (
            np.mean([cell[column] for cell in part]) for column in columns
        )
        rows.append(
            [name, model, len(part), f"{100 * accuracy:.2f}", f"{log_density:.4f}"]
            + [f"{fit:.0f}", f"{predict:.1f}"]
        )
    head = ["set", "model", "fits", "accuracy (%)", "log-density", "fit (s)", "predict (s)"]
    return rst.table(head, rows)
