"""Where the data are, and how a split is read."""

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold
from sklearn.preprocessing import OneHotEncoder

UCI = ("boston", "concrete", "energy", "power", "naval", "protein", "wine_red", "kin8nm", "yacht")
#: Sets whose test rows repeat training rows, target included: whoever remembers them wins. The
#: repeated rows are not scored.
REPEATED = ("wine_red",)
MOST_ROWS = 3000  #: of a table of the suite


class Split(NamedTuple):
    """One division of a set into training and test rows; targets of classes are 0, 1, ..."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    classes: bool = False
    n_held_out: int = 0  #: test rows before repeated ones were dropped


def folder(given=None):
    """The folder of the data, from the command line or from ``SKDGP_DATA``."""
    found = given or os.environ.get("SKDGP_DATA")
    if not found:
        raise SystemExit(
            "Give the folder that holds the data (with uci/boston.npz and so on) as --data or in SKDGP_DATA."
        )
    return Path(found)


def _existing(root, path):
    path = Path(root) / path
    if not path.exists():
        raise SystemExit(f"There is no {path}; --data or SKDGP_DATA must name the folder above it.")
    return path


def load(root, path):
    """An archive below the folder of the data."""
    return np.load(_existing(root, path), allow_pickle=False)


@lru_cache(2)
def uci_split(root, name, split, keep_repeated=False):
    """One split of a regression set; None if it has fewer. Some sets repeat rows, see :data:`REPEATED`."""
    with load(root, f"uci/{name}.npz") as archive:
        X, y = archive["X"], archive["y"]
        if not 0 <= split < len(archive["train"]):
            return None
        train, test = archive["train"][split], archive["test"][split]
    drops = name in REPEATED and not keep_repeated
    rows = test[~repeated(X, y, train, test)] if drops else test
    return Split(X[train], y[train], X[rows], y[rows], False, len(test))


def repeated(X, y, train, test):
    """Which of the test rows equal a training row, in the inputs and the target."""
    rows = np.column_stack([X, y]) + 0.0
    seen = {row.tobytes() for row in rows[train]}
    return np.array([row.tobytes() in seen for row in rows[test]])


@lru_cache(1)
def suite(root):
    """What the tables of the development suite are: a dict by name."""
    return json.loads(_existing(root, "suite/suite.json").read_text())


def encoder(numbers, levels, n_rows):
    """Strings one-hot, rare levels together; gaps imputed, with an indicator."""
    one_hot = OneHotEncoder(
        drop="if_binary",
        min_frequency=max(5, n_rows // 100),
        handle_unknown="infrequent_if_exist",
        sparse_output=False,
    )
    return make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True), numbers),
        (one_hot, levels),
        sparse_threshold=0.0,
    )


def as_text(X, levels):
    """A frame with some columns as strings, also where they have gaps."""
    text = X[levels].astype(object).where(X[levels].notna(), "missing").astype(str)
    return X.assign(**text)


def one_hot(X_train, X_test):
    """Frames with categories as arrays, see :func:`encoder`; a new level has no column of its own."""
    levels = list(X_train.columns[X_train.dtypes == "category"])
    train, test = as_text(X_train, levels), as_text(X_test, levels)
    encode = encoder([column for column in train if column not in levels], levels, len(train))
    return encode.fit_transform(train).astype(float), encode.transform(test).astype(float)


@lru_cache(2)
def suite_fold(root, name, fold):
    """One fold of a table of the suite as arrays."""
    split = raw_fold(root, name, fold)
    X_train, X_test = one_hot(split.X_train, split.X_test)
    return split._replace(X_train=X_train, X_test=X_test)


@lru_cache(2)
def raw_fold(root, name, fold):
    """The same as data frames: categories as such, with missing cells."""
    import pandas as pd

    about = suite(root)[name]
    frame = pd.read_csv(_existing(root, f"suite/{name}.csv.gz"))
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=42)
    classes, y = about["task"] == "classification", frame[about["target"]].to_numpy()
    y = np.unique(y.astype(str), return_inverse=True)[1] if classes else y.astype(float)
    levels = [column for column, kind in about["kinds"].items() if kind != "number"]
    X = frame[list(about["kinds"])].astype(dict.fromkeys(levels, "category"))
    train, test = list(KFold(5, shuffle=True, random_state=42).split(frame))[fold]
    return Split(X.iloc[train], y[train], X.iloc[test], y[test], classes, len(test))


def eeg_fold(root, fold):
    """One fold of the EEG eye states, two classes."""
    with load(root, "rff_folds/eeg.npz") as archive:
        parts = [archive[f"{part}_{fold}"] for part in ("X_train", "y_train", "X_test", "y_test")]
    return Split(*parts, True, len(parts[3]))


def mnist(root):
    """The handwritten digits: 60,000 training rows and 10,000 test rows of 784 pixels.

    Pixels are centered and share one scale, because those at the border hardly ever vary.
    """
    with load(root, "mnist.npz") as archive:
        X_train, X_test = (archive[f"X_{part}"].astype(np.float32) for part in ("train", "test"))
        y_train, y_test = (archive[f"y_{part}"].astype(int) for part in ("train", "test"))
    center, scale = X_train.mean(0), np.sqrt(X_train.var(0).mean())
    X_train, X_test = (X_train - center) / scale, (X_test - center) / scale
    return Split(X_train, y_train, X_test, y_test, True, len(y_test))
