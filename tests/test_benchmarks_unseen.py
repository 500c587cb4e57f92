"""What ``python -m benchmarks suite --hide`` leaves out and deletes."""

import numpy as np
import pandas as pd
import pytest

from benchmarks import __main__ as command_line
from benchmarks import data, models, unseen
from benchmarks.distributions import Mixture


@pytest.fixture
def fits(monkeypatch):
    """A table, and what a model that predicts the mean of training is given."""
    rng, found = np.random.default_rng(0), []
    kind = pd.Categorical(rng.choice(["a", "b", "c"], 400))
    X, y = pd.DataFrame({"x": rng.normal(size=400), "kind": kind}), rng.normal(size=400)
    split = data.Split(X[:300], y[:300], X[300:], y[300:])
    monkeypatch.setattr(data, "suite", lambda root: {"small": {"task": "regression"}})
    monkeypatch.setattr(data, "raw_fold", lambda root, name, fold: split)

    def fit(model, X, y, **settings):
        found.append(X)
        return lambda X: Mixture(np.full(len(X), y.mean()), np.full(len(X), y.var()))

    monkeypatch.setattr(models, "fit", fit)
    return found


def run(capsys, *command):
    options = "--tables", "small", "--models", "hgb", "--data", "."
    command_line.main(["suite", "--hide", *command, *options])
    return capsys.readouterr().out


def test_each_level_is_left_out_once(fits, capsys):
    lines = run(capsys, "levels").splitlines()
    assert sorted("".join(set("abc") - set(X["kind"])) for X in fits) == ["a", "b", "c"]
    name, column, model, number, coverage, *_ = lines[3].split()
    assert (name, column, model, number) == ("small", "kind", "hgb", "3")
    assert abs(float(coverage) - 0.9) < 0.06  # four standard errors of 400 rows


def test_cells_are_deleted_and_numbers_imputed(fits, capsys):
    printed = run(capsys, "cells", "--shares", "0.3")
    assert len(fits) == 6 and printed.count("hgb median") == 3  # and once in the mean
    gaps = [X["x"].isna().mean() for X in fits]
    np.testing.assert_allclose(gaps, [0.3, 0.0, 0.0] * 2, atol=4.0 * (0.21 / 300) ** 0.5)
    assert fits[1]["kind"].isna().any()


def test_large_numbers_are_deleted_more_often():
    X = pd.DataFrame({"x": np.arange(4000.0)})
    found = unseen._deleted(X, 0.3, True, np.random.default_rng(0))["x"].isna().to_numpy()
    halves = found.reshape(2, -1).mean(1)
    np.testing.assert_allclose(halves, [0.15, 0.45], atol=4.0 * (0.25 / 2000) ** 0.5)


def test_catboost_encodes_categories_of_frames_itself():
    pytest.importorskip("catboost")
    rng = np.random.default_rng(0)
    kind = pd.Categorical(rng.choice(["a", "b", None], 120))
    X = pd.DataFrame({"x": rng.normal(size=120), "kind": kind})
    y = np.where(kind == "a", 3.0, 0.0) + np.where(kind.isna(), -3.0, 0.0)
    y = y + 0.1 * rng.normal(size=120)
    found = models.fit("catboost", X[:100], y[:100], seed=0, max_iter=100)(X[100:])
    assert np.corrcoef(found.mean, y[100:])[0, 1] > 0.9
    labels = (y > 1.0).astype(int)
    found = models.fit("catboost", X[:100], labels[:100], classes=True, seed=0, max_iter=50)
    assert ((found(X[100:])[:, 1] > 0.5) == labels[100:]).mean() > 0.9
