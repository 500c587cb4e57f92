"""Where the data are, and how a split is read."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

UCI = ("boston", "concrete", "energy", "power", "naval", "protein", "wine_red")
#: Sets whose test rows repeat training rows, target included: whoever remembers them wins. The
#: repeated rows are not scored.
REPEATED = ("wine_red",)


class Split(NamedTuple):
    """One division of a set into training and test rows."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    n_held_out: int  #: test rows before repeated ones were dropped
    repeated: np.ndarray = None  #: which of the test rows that are left equal a training row


def folder(given=None):
    """The folder of the data, from the command line or from ``SKDGP_DATA``."""
    found = given or os.environ.get("SKDGP_DATA")
    if not found:
        raise SystemExit(
            "Give the folder that holds the data (with uci/boston.npz and so on) as --data or in SKDGP_DATA."
        )
    return Path(found)


def load(root, path):
    """An archive below the folder of the data."""
    path = Path(root) / path
    if not path.exists():
        raise SystemExit(f"There is no {path}; --data or SKDGP_DATA must name the folder above it.")
    return np.load(path, allow_pickle=False)


def uci_split(root, name, split):
    """One split of a regression set."""
    with load(root, f"uci/{name}.npz") as archive:
        X, y = archive["X"], archive["y"]
        if not 0 <= split < len(archive["train"]):
            return None
        train, test = archive["train"][split], archive["test"][split]
    seen = repeated(X, y, train, test)
    kept = ~seen if name in REPEATED else np.full(len(test), True)
    rows = test[kept]
    return Split(X[train], y[train], X[rows], y[rows], len(test), seen[kept])


def repeated(X, y, train, test):
    """Which of the test rows equal a training row, in the inputs and the target."""
    seen = {row.tobytes() for row in np.column_stack([X, y])[train] + 0.0}
    return np.array([row.tobytes() in seen for row in np.column_stack([X, y])[test] + 0.0])


def eeg_fold(root, fold):
    """One fold of the EEG eye states, two classes."""
    with load(root, "rff_folds/eeg.npz") as archive:
        parts = [archive[f"{part}_{fold}"] for part in ("X_train", "y_train", "X_test", "y_test")]
    return Split(*parts, len(parts[3]))


def mnist(root):
    """The handwritten digits: 60,000 training rows and 10,000 test rows of 784 pixels.

    Pixels are centered and share one scale, because those at the border hardly ever vary.
    """
    with load(root, "mnist.npz") as archive:
        X_train, X_test = (archive[f"X_{part}"].astype(np.float32) for part in ("train", "test"))
        y_train, y_test = archive["y_train"], archive["y_test"]
    center, scale = X_train.mean(0), np.sqrt(X_train.var(0).mean())
    X_train, X_test = (X_train - center) / scale, (X_test - center) / scale
    return Split(X_train, y_train, X_test, y_test, len(y_test))
