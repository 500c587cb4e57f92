"""Sixteen sets with classes, small and large: the default classifier and its peers.

Three random splits of scikit-learn's small sets, four simulated problems, regression sets cut at quantiles,
wine and EEG. Log-densities are mean logarithms of the probability of the right class.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_moons
from sklearn.model_selection import train_test_split

from benchmarks import data, runs

_SEED = 100  #: of the first random split; smaller ones were for tuning
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
DEFAULT = ("auto", "catboost", "hgb", "forest", "logistic", "exact-gp")


def add_arguments(parser):
    """Sets, splits, models, labels, data and output."""
    runs.add_arguments(parser, SETS, "classes.json", DEFAULT, splits="0,1,2")


def run(options):
    """Compute all cells that are not there yet, and print tables."""
    runs.check_known(options.sets, SETS, "sets")
    runs.run(options, split_of)


def split_of(root, name, split):
    """One split of a set; None if it has fewer."""
    if name in _TOYS:
        X, y = _TOYS[name](return_X_y=True)
        parts = train_test_split(X, y, test_size=0.4, random_state=_SEED + split, stratify=y)
        X, X_test, y, y_test = parts
    elif name in (*_CUT, "wine_red"):
        found = data.uci_split(root, name, split)
        if found is None:
            return None
        X, y, X_test, y_test = found[:4]
        edges = [5.5]
        if name in _CUT:
            edges = np.quantile(y, np.arange(1, _CUT[name]) / _CUT[name])
        y, y_test = np.digitize(y, edges), np.digitize(y_test, edges)
    elif name == "eeg":
        fold = data.eeg_fold(root, split)
        rows = np.random.default_rng(_SEED + split).permutation(len(fold.X_train))[:_EEG_ROWS]
        X, y, X_test, y_test = fold.X_train[rows], fold.y_train[rows], fold.X_test, fold.y_test
    else:
        X, y, n = _DRAWS[name](np.random.default_rng(_SEED + split), _SEED + split)
        X, y, X_test, y_test = X[:n], y[:n], X[n:], y[n:]
    return data.Split(X, y, X_test, y_test, True, len(y_test))


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
