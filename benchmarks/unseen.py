"""What training never saw: levels of categories that are left out, and cells that are deleted.

For ``python -m benchmarks suite --hide levels`` (or ``cells``): raw frames of the regression tables, and
what 90 % intervals cover. Every level in turn is left out of training and predicted, by our models as it
is and one-hot. Cells are deleted in training and test rows alike, at random or, for numbers, more often
the larger they are; test rows are those of all folds that are named.
"""

import sys

import numpy as np

from benchmarks import data, models, rst

_FEWEST, _MOST = 3, 30  #: levels of a column
_FEWEST_ROWS = 5  #: of a level that is left out


def run(options):
    """Print a line for each column and model, or for each share of deleted cells and model."""
    root, lines, of = data.folder(options.data), [], {"levels": _levels, "cells": _cells}
    tables = data.suite(root)
    for name in options.sets:
        if tables[name]["task"] == "regression":
            splits = [data.raw_fold(root, name, fold) for fold in options.splits]
            for line in of[options.hide](name, splits, options):
                print(*line, file=sys.stderr)  # it takes minutes
                lines.append(line)
    head = "", "hidden", "model", "fits", "90 % covers", "log-density", "width"
    for model in dict.fromkeys(line[2] for line in lines):
        mine = [line[4:] for line in lines if line[2] == model]
        lines.append(("mean", "", model, len(mine), *np.mean(mine, axis=0)))
    text = [(*line[:4], *(f"{number:.3f}" for number in line[4:])) for line in lines]
    print(rst.table(head, text))


def _scores(model, train, test, options):
    """Coverage, log-density and width of the interval, relative to the deviation of the target."""
    (X, y), (X_test, y_test) = train, test
    found = models.fit(model, X, y, seed=options.seeds[0], max_iter=options.max_iter)(X_test)
    width = 3.29 * np.mean(found.std) / y.std()
    return found.inside(y_test, 0.9).mean(), found.log_density(y_test).mean(), width


def _levels(name, splits, options):
    """Lines of all columns with some levels, of the first fold."""
    split = splits[0]
    for column in split.X_train.columns[split.X_train.dtypes == "category"]:
        counts = split.X_train[column].value_counts()
        levels = counts.index[counts >= _FEWEST_ROWS]
        if not _FEWEST <= (counts > 0).sum() <= _MOST:
            continue
        chosen = np.linspace(0, len(levels) - 1, min(len(levels), options.most_levels)).astype(int)
        found = {}
        for level in levels[chosen]:
            own = (split.X_train[column] == level).to_numpy()
            rows = [np.flatnonzero(part)[: options.rows] for part in (~own, own)]
            X, y = ([part[i] for i in rows] for part in (split.X_train.iloc, split.y_train))
            encoded = data.one_hot(*X)
            for model in options.models:
                label = models.short(model)
                found.setdefault(label, []).append(_scores(model, *zip(X, y), options))
                if model not in models.PEERS:
                    scores = _scores(model, *zip(encoded, y), options)
                    found.setdefault(f"{label} one-hot", []).append(scores)
        for label, scores in found.items():
            yield name, column, label, len(scores), *np.mean(scores, axis=0)


def _deleted(X, share, by_value, rng):
    """A copy with cells deleted; `by_value` in proportion to the rank of a number."""
    X = X.copy()
    for column in X:
        chance = np.full(len(X), share)
        if by_value and X[column].dtype != "category":
            chance = 2.0 * share * X[column].rank(pct=True).fillna(0.5).to_numpy()
        X[column] = X[column].where(rng.random(len(X)) >= chance)
    return X


def _cells(name, splits, options):
    """Lines of shares of cells, as they are and with numbers imputed: means over folds."""
    for share in options.shares:
        for by_value in (False, True):
            found = {}
            for fold, split in enumerate(splits):
                rng = np.random.default_rng(fold)
                for label, pairs in _imputed(split, share, by_value, rng, options.rows):
                    for model in options.models:
                        key = f"{models.short(model)} {label}".strip()
                        found.setdefault(key, []).append(_scores(model, *pairs, options))
            hidden = f"{100 * share:.0f} %" + " by value" * by_value
            for label, scores in found.items():
                yield name, hidden, label, len(scores), *np.mean(scores, axis=0)


def _imputed(split, share, by_value, rng, n):
    """Pairs of rows and targets, for training and to test, with and without imputation."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, SimpleImputer

    imputers = {"": None, "median": SimpleImputer(strategy="median")}
    imputers["iterative"] = IterativeImputer(random_state=0)
    numbers = list(split.X_train.columns[split.X_train.dtypes != "category"])
    X = [_deleted(part[:n], share, by_value, rng) for part in (split.X_train, split.X_test)]
    for label, imputer in imputers.items():
        parts = [part.astype(dict.fromkeys(numbers, float)) for part in X]
        if imputer is not None:
            arrays = [part[numbers].to_numpy(copy=True) for part in parts]
            imputer.set_params(keep_empty_features=True).fit(arrays[0])
            for part, array in zip(parts, arrays):
                part[numbers] = imputer.transform(array)
        yield label, [*zip(parts, (split.y_train[:n], split.y_test[:n]))]
