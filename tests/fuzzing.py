"""Random estimators on random tables: finite predictions that keep their promises, or one sentence.

``python tests/fuzzing.py`` tries 1,500 cases that the date chooses; ``--seed`` and ``--cases`` ask for others.
Faults are printed with their seeds; ``--only SEED`` runs one case, with the traceback.
"""

import argparse
import datetime
import os
import pickle
import sys
import time
import traceback
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import polars as pl
from sklearn.base import clone, is_classifier

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.gp.kernels.base import BY_NAME
from skdgp.gp.likelihoods import CLASSIFICATION, REGRESSION
from skdgp.inference import SCHEMES

COUNTS = {name for name, make in REGRESSION.items() if make().discrete}
NOISE = set(REGRESSION) - COUNTS
MAPS = [None, None, "auto", "auto", "log", "exponential-normal", "yeo-johnson", "logit"]
SHALLOW = ("exact", "pep", "vecchia", "vfe")
LEVELS = ["red", "green", "blue", "Ärger", ""]
#: kinds of faults that a user is told of: others are bugs
TOLD = (ValueError, TypeError)
START = datetime.datetime(2020, 2, 27, 22)


@dataclass
class Case:
    """An estimator and its rows."""

    model: object
    X: object  #: ndarray, or frame of pandas or polars
    new: object  #: rows to predict, of the same kind
    y: np.ndarray
    weights: np.ndarray | None
    plain: bool  #: whether X is an array of numbers without gaps

    @property
    def in_units(self):
        """Whether predictions have the unit of the target, whatever that is."""
        settings = self.model.get_params()
        known = settings.get("standardize", True) in (True, "warp", "auto")
        maps = settings.get("target_transform", "log")
        return known and maps is None and settings["likelihood"] in ("auto", *NOISE)

    def fit(self, X=None, y=None, **changes):
        X, y = self.X if X is None else X, self.y if y is None else y
        return clone(self.model).set_params(**changes).fit(X, y, self.weights)

    def __str__(self):
        rows = f"{type(self.X).__module__.split('.')[0]} {self.X.shape}, y {np.shape(self.y)}"
        weights = "" if self.weights is None else ", weights"
        return f"{' '.join(repr(self.model).split())} on {rows}{weights}"


# Cases


def case_of(seed):
    """The case of a seed."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([3, 8, 20, 40, 70]))
    classes = rng.random() < 0.3
    model = _classifier(rng) if classes else _regressor(rng)
    plain = rng.random() < 0.5
    X, new, signal = _array(rng, n) if plain else _frame(rng, n)
    plain = plain and bool(np.isfinite(X).all())
    y = _labels(rng, signal) if classes else _targets(rng, signal, model)
    weights = None
    if rng.random() < 0.3:
        weights = rng.choice([rng.integers(0, 3, n), rng.gamma(1.0, size=n), np.full(n, 1e-3)])
    return Case(model, X, new, y, weights, plain)


def _settings(rng, likelihoods):
    scheme = str(rng.choice(["auto", *SCHEMES]))
    kernels = ["auto", "auto", *BY_NAME]
    found = {
        "n_layers": 1 if scheme in SHALLOW else int(rng.integers(1, 4)),
        "inference": scheme,
        "kernel": str(rng.choice(kernels)),
        "likelihood": str(rng.choice(["auto", "auto", *likelihoods])),
        "standardize": [True, False, "warp", "auto"][rng.choice(4, p=[0.2, 0.1, 0.2, 0.5])],
        "max_iter": int(rng.integers(1, 8)),
        "n_predict_draws": 4,
        "early_stopping": bool(rng.random() < 0.1),
        "random_state": 0,
    }
    if rng.random() < 0.2:
        found["mean"] = "zero"
    if rng.random() < 0.2:
        found["n_inducing"] = int(rng.integers(1, 30))
    return found


def _regressor(rng):
    if rng.random() < 0.15:
        method = str(rng.choice(["vfe", "fitc", "power_ep"]))
        own = {
            "method": method,
            "n_inducing": int(rng.integers(1, 30)),
            "max_iter": 5,
            "random_state": 0,
        }
        return SparseGPRegressor(**own, target_transform=MAPS[rng.integers(len(MAPS))])
    found = _settings(rng, REGRESSION)
    if found["likelihood"] not in COUNTS:
        found["target_transform"] = MAPS[rng.integers(len(MAPS))]
    return DeepGPRegressor(**found)


def _classifier(rng):
    if rng.random() < 0.15:
        return SparseGPClassifier(n_inducing=int(rng.integers(1, 30)), max_iter=5, random_state=0)
    return DeepGPClassifier(**_settings(rng, CLASSIFICATION))


def _array(rng, n):
    d = int(rng.integers(1, 6))
    table = rng.standard_normal((n + 9, d)) * 10.0 ** rng.choice([-8, 0, 0, 0, 6], d)
    table += 10.0 ** rng.choice([-3, 0, 0, 4], d)
    signal = table[:n, 0]
    for j in range(1, d):
        how = rng.choice(["same", "whole", "constant", "copy", "gaps", "codes", "outlier"])
        if how == "whole":
            table[:, j] = rng.integers(0, 4, n + 9)
        elif how == "constant":
            table[:, j] = table[0, j]
        elif how == "copy":
            table[:, j] = table[:, 0]
        elif how == "gaps" and rng.random() < 0.5:
            table[rng.random(n + 9) < 0.3, j] = np.nan
        elif how == "codes":
            table[rng.random(n + 9) < 0.2, j] = rng.choice([-999.0, 1e20])
        elif how == "outlier":
            table[rng.integers(n), j] *= 1e8
    if rng.random() < 0.3:  # rows that occur twice
        table[: n // 2] = table[n // 2 : n // 2 + n // 2]
    return table[:n], table[n:], signal


def _frame(rng, n):
    m, columns = n + 9, {}
    signal = rng.standard_normal(m)
    columns["size"] = [None if gap else x for gap, x in zip(rng.random(m) < 0.15, signal.tolist())]
    kinds = rng.choice(
        ["level", "flag", "date", "whole", "text", "names"], rng.integers(0, 4), False
    )
    for kind in kinds:
        columns[str(kind)] = _column(rng, kind, m)
    if rng.random() < 0.5:
        frame = pd.DataFrame(columns)
        if "level" in columns and rng.random() < 0.5:
            frame["level"] = frame["level"].astype("category")
        return frame[:n], frame[n:], signal[:n]
    frame = pl.DataFrame(columns, strict=False)
    return frame[:n], frame[n:], signal[:n]


def _column(rng, kind, m):
    if kind == "level":
        return rng.choice(LEVELS, m).tolist()
    if kind == "flag":
        return (rng.random(m) < 0.5).tolist()
    if kind == "date":
        return [START + datetime.timedelta(hours=int(h)) for h in rng.integers(0, 9000, m)]
    if kind == "whole":
        return rng.integers(-3, 4, m).tolist()
    if kind == "text":
        return [None if x > 0.9 else f"{x:.2f}" for x in rng.random(m)]
    return [f"name {i}" for i in rng.integers(0, m, m)]


def _labels(rng, signal):
    n = int(rng.choice([2, 2, 3, 5]))
    ranks = np.argsort(np.argsort(signal)) * n // len(signal)
    ranks = np.where(rng.random(len(ranks)) < 0.2, rng.integers(0, n, len(ranks)), ranks)
    return (
        np.array(["no", "yes", "maybe", "later", "never"])[ranks] if rng.random() < 0.5 else ranks
    )


def _targets(rng, signal, model):
    f = np.sin((signal - signal.mean()) / (signal.std() or 1.0))
    noisy = f + 0.2 * rng.standard_normal(len(f))
    likelihood = getattr(model, "likelihood", "gaussian")
    if likelihood in COUNTS:
        return rng.poisson(np.exp(f) * rng.choice([0.1, 2.0, 300.0]))
    if model.target_transform == "logit":
        return 1.0 / (1.0 + np.exp(-noisy))
    if model.target_transform == "log":
        return np.exp(noisy * rng.choice([0.1, 1.0, 5.0]))
    how = rng.choice(["plain", "plain", "units", "constant", "zeros", "heavy", "whole", "two"])
    if how == "units":
        return (noisy + rng.choice([0.0, 100.0])) * 10.0 ** rng.choice([-120, -9, 5, 90])
    if how == "constant":
        return np.full(len(f), 3.7)
    if how == "zeros":
        return np.maximum(noisy, 0.0)
    if how == "heavy":
        return f + rng.standard_t(1, len(f))
    if how == "whole":
        return np.round(3.0 * noisy)
    return np.column_stack([noisy, -f]) if how == "two" else noisy


# Promises


def check(case):
    """Raise AssertionError if the case breaks a promise; returns whether it was fitted."""
    try:
        model = case.fit()
    except TOLD as error:
        check_told(error)
        return False
    for rows in (case.X, case.new):
        (check_classes if is_classifier(model) else check_numbers)(model, rows)
    check_repeats(case, model)
    return True


def check_told(error):
    """An error is one sentence, and raised by us or scikit-learn."""
    message = str(error)
    where = traceback.extract_tb(error.__traceback__)[-1].filename
    assert f"{os.sep}torch{os.sep}" not in where, f"raised by torch: {message}"
    assert message.strip() and "\n" not in message.strip(), f"no sentence: {message!r}"
    ours = f"{os.sep}skdgp{os.sep}" in where
    assert not ours or message.rstrip().endswith((".", ")")), f"no sentence: {message!r}"


def check_numbers(model, X):
    """Means, deviations, quantiles, cdf and draws are finite and belong together."""
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all(), "means are not finite"
    assert np.isfinite(std).all() and (std >= 0.0).all(), "deviations are not finite, or negative"
    orders = (0.05, 0.5, 0.95)
    quantiles = np.moveaxis(model.predict(X, quantiles=orders), -1, 0)
    assert np.isfinite(quantiles).all(), "quantiles are not finite"
    rounding = 1e-12 * np.abs(quantiles[1:])
    assert (np.diff(quantiles, axis=0) >= -rounding).all(), "quantiles that fall"
    for order, at in zip(orders, quantiles):
        below = model.predict_cdf(X, at + 1e-9 * np.abs(at))  # of a target that is known, it jumps
        right = (below >= order - 1e-4) | (np.abs(at) > 1e300)
        assert right.all(), f"cdf of the quantile {order} is {below.min()}"
    assert np.isfinite(model.sample_y(X, 2)).all(), "draws are not finite"
    latent = model.predict(X, return_std=True, latent=True)
    assert all(np.isfinite(part).all() for part in latent), "latent functions are not finite"


def check_classes(model, X):
    """Probabilities are positive and add up to one."""
    proba = model.predict_proba(X)
    assert np.isfinite(proba).all() and (proba >= 0.0).all(), "probabilities that are none"
    np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-6, err_msg="probabilities add up to")
    assert np.isfinite(model.predict_log_proba(X)).all(), "log probabilities are not finite"


def centers(model, X):
    """Means, or probabilities, and deviations of numbers."""
    if is_classifier(model):
        return (model.predict_proba(X),)
    return model.predict(X, return_std=True)


def check_same(found, expected, what, unit, tolerance):
    for one, other in zip(found, expected):
        off = np.abs(one - other).max() / unit
        assert off <= tolerance, f"{what} changes predictions by {off:.1e} deviations"


def check_repeats(case, model):
    """Predictions do not depend on what does not matter."""
    X, expected = case.new, centers(model, case.new)
    unit = 1.0 if is_classifier(model) else np.max(expected[1]) + np.abs(expected[0]).max()
    unit = unit or 1.0
    turn = np.arange(len(X))[::-1]
    turned = X.iloc[turn] if isinstance(X, pd.DataFrame) else X[turn]
    found = [part[::-1] for part in centers(model, turned)]
    check_same(found, expected, "the order of rows to predict", unit, 1e-9)
    found = [
        np.concatenate(parts) for parts in zip(*(centers(model, X[i : i + 1]) for i in turn[::-1]))
    ]
    check_same(found, expected, "one row at a time", unit, 1e-6)
    again = pickle.loads(pickle.dumps(model))
    check_same(centers(again, X), expected, "a copy on disk", unit, 0.0)
    check_same(centers(case.fit(), X), expected, "a second fit", unit, 0.0)
    if case.plain and model.get_params().get("standardize", True) is not False:
        factor = 2.0 ** np.arange(-2, case.X.shape[1] - 2)
        scaled = centers(case.fit(case.X * factor), X * factor)
        check_same(scaled, expected, "the units of columns", unit, 1e-5)
    settings = model.get_params()
    shallow = settings.get("inference") in ("exact", "vfe")
    if case.plain and shallow and settings["kernel"] == "auto" and not is_classifier(model):
        columns = np.arange(X.shape[1])[::-1]
        found = centers(case.fit(case.X[:, columns]), X[:, columns])
        check_same(found, expected, "the order of columns", unit, 1e-3)
    if case.in_units:
        found = [part / 8.0 for part in centers(case.fit(y=8.0 * case.y), X)]
        check_same(found, expected, "the unit of the target", unit, 1e-6)
    if case.plain:
        names = [f"c{j}" for j in range(case.X.shape[1])]
        frame, new = (pd.DataFrame(part, columns=names) for part in (case.X, X))
        check_same(
            centers(case.fit(frame), new), expected, "a frame of the same numbers", unit, 0.0
        )


# All of them


def faults(seeds, only=False):
    """Run cases; yields the seed, the case and what is wrong with it."""
    for seed in seeds:
        case = case_of(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check(case)
        except Exception as error:
            if only:
                raise
            yield seed, case, error


def main():
    """Run many cases, and print their faults."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1500, help="how many (default: 1500)")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())
    parser.add_argument("--only", type=int, help="one seed, with its traceback")
    chosen = parser.parse_args()
    if chosen.only is not None:
        print(case_of(chosen.only))
        list(faults([chosen.only], only=True))
        return
    first, began, found = chosen.seed * 100_000, time.monotonic(), 0
    for seed, case, error in faults(range(first, first + chosen.cases)):
        found += 1
        print(
            f"--only {seed}: {type(error).__name__}: {' '.join(str(error).split())[:300]}\n    {case}"
        )
        sys.stdout.flush()
    print(f"{found} faults in {chosen.cases} cases, {time.monotonic() - began:.0f} seconds")
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
