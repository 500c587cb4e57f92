"""Sets with classes, small and large: the default classifier and its peers, by log-loss."""

import time

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_moons
from sklearn.model_selection import train_test_split

from . import arguments, cells, data, rst, table
from .class_peers import PEERS, probabilities

_SEED = 100  #: of the first random split; smaller ones were for tuning
_LEAST = 1e-6  #: the smallest probability, for classifiers that are sure of everything
_TOYS = {
    "iris": load_iris,
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "digits": load_digits,
}
#: number of classes that regression targets are cut into, at quantiles
_CUT = {"boston": 2, "concrete": 3, "energy": 3, "power": 3, "naval": 3, "protein": 3}
_EEG_ROWS = 1500
SETS = (*_TOYS, "moons", "waves", "checkerboard", "parts", *_CUT, "wine_red", "eeg")


def split_of(name, split, root):
    """Training rows and test rows: X, y, X_test, y_test."""
    rng = np.random.default_rng(_SEED + split)
    if name in _TOYS:
        X, y = _TOYS[name](return_X_y=True)
        parts = train_test_split(X, y, test_size=0.4, random_state=_SEED + split, stratify=y)
        return parts[0], parts[2], parts[1], parts[3]
    if name in (*_CUT, "wine_red"):
        found = data.uci_split(root, name, split)
        if found is None:
            raise SystemExit(f"{name} has no split {split}.")
        X, y, X_test, y_test, *_ = found
        y, y_test = np.ravel(y), np.ravel(y_test)
        if name == "wine_red":
            edges = [5.5]
        else:
            edges = np.quantile(y, np.arange(1, _CUT[name]) / _CUT[name])
        return X, np.digitize(y, edges), X_test, np.digitize(y_test, edges)
    if name == "eeg":
        fold = data.eeg_fold(root, split)
        rows = rng.permutation(len(fold.X_train))[:_EEG_ROWS]
        return fold.X_train[rows], fold.y_train[rows], fold.X_test, fold.y_test
    X, y, n = _DRAWS[name](rng, _SEED + split)
    return X[:n], y[:n], X[n:], y[n:]


def _bernoulli(rng, logits):
    return (rng.random(len(logits)) < 1.0 / (1.0 + np.exp(-logits))).astype(int)


def _moons(rng, seed):
    return *make_moons(1500, noise=0.3, random_state=seed), 500


def _waves(rng, seed):
    X = rng.uniform(-2.0, 2.0, (2000, 2))
    return X, _bernoulli(rng, 2.0 * np.sin(2.0 * X[:, 0]) + X[:, 1]), 1000


def _checkerboard(rng, seed):
    X = rng.uniform(0.0, 4.0, (2500, 2))
    return X, X.astype(int).sum(1) % 2, 1000


def _parts(rng, seed):
    X = rng.uniform(-1.0, 1.0, (1480, 8))
    f = 2.0 * (X[:, 0] > 0.2) + np.sin(6.0 * X[:, 1]) + 2.0 * X[:, 2] * X[:, 3] - 1.0
    return X, _bernoulli(rng, 3.0 * f), 480


_DRAWS = {"moons": _moons, "waves": _waves, "checkerboard": _checkerboard, "parts": _parts}


def add_arguments(parser):
    """Sets, splits, models, data and output."""
    arguments.add_cells(parser, SETS, "classes.json", splits="0,1,2")
    parser.add_argument("--models", type=arguments.names, default=list(PEERS), help="default: all")


def run(options):
    """Compute all cells that are not there yet, and print tables."""
    arguments.check_known(options.sets, SETS, "sets")
    arguments.check_known(options.models, PEERS, "models")
    root = data.folder(options.data)
    todo = [
        {"set": name, "split": split, "seed": seed, "model": model}
        for name in options.sets
        for split in options.splits
        for seed in options.seeds
        for model in options.models
    ]
    out = arguments.out(options)
    packages = [name for name in ("catboost",) if name in options.models]
    cells.fill(out, todo, lambda cell: evaluate(cell, root), packages)
    print(summary(cells.read(out).values()))


def evaluate(cell, root):
    """Scores of a classifier on the test rows."""
    X, y, X_test, y_test = split_of(cell["set"], cell["split"], root)
    start = time.perf_counter()
    p = probabilities(cell["model"], cell["seed"], X, y, X_test)
    seconds = time.perf_counter() - start
    sizes = {"n_train": len(y), "n_test": len(y_test)}
    if p is None:
        return sizes
    p = np.clip(p, _LEAST, None)
    p /= p.sum(1, keepdims=True)
    truth = np.searchsorted(np.unique(y), y_test)
    return {
        "log_density": float(np.log(p[np.arange(len(truth)), truth]).mean()),
        "accuracy": float((p.argmax(1) == truth).mean()),
        "seconds": seconds,
        **sizes,
    }


def summary(all_cells):
    """Log-losses, differences to the default with their standard errors, accuracies and ranks."""
    results = table.by_split(cell for cell in all_cells if "log_density" in cell)
    models = [name for name in PEERS if any(name in of_models for of_models in results.values())]
    losses, gaps, others = [], [], []
    for name in (name for name in SETS if name in results):
        of_models = results[name]
        mean = {
            model: {key: np.mean([v[key] for v in splits.values()]) for key in _COLUMNS}
            for model, splits in of_models.items()
        }
        loss = {model: {"log-loss": -values["log_density"]} for model, values in mean.items()}
        percent = {model: {"accuracy": 100.0 * v["accuracy"]} for model, v in mean.items()}
        losses.append([name, *(table.text(loss.get(m, {}), "log-loss", "{:.3f}") for m in models)])
        others.append(
            [name, *(table.text(percent.get(m, {}), "accuracy", "{:.1f}") for m in models)]
        )
        ours = of_models.get("skdgp", {})
        paired = (table.difference(ours, of_models.get(m, {}), "log_density") for m in models[1:])
        gaps.append([name, *map(table.difference_text, paired)])
    peers = {  # the single model is one of ours
        name: {model: splits for model, splits in of_models.items() if model != "single"}
        for name, of_models in results.items()
    }
    rank = {model: f"{mean:.2f}" for model, mean, _ in table.mean_ranks(peers)}
    losses.append(["mean rank", *(rank.get(model, "") for model in models)])
    parts = [
        ("Log-loss", rst.table(["set", *models], losses)),
        ("Log-loss, less that of the default", rst.table(["set", *models[1:]], gaps)),
        ("Accuracy (%)", rst.table(["set", *models], others)),
    ]
    return "\n\n".join(f"{rst.heading(title)}\n{text}" for title, text in parts)


_COLUMNS = ("log_density", "accuracy")
