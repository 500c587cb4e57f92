"""Tables of the papers: cells, verdicts, and a page that has no figure of its own."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package is not installed

from benchmarks import __main__ as command_line
from benchmarks import cells
from benchmarks.papers import compute, cost, page, planned, tables, thesis
from benchmarks.papers.protocols import PAPERS, PUBLISHED, Paper, Row

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.filterwarnings("ignore")


# The page


def test_the_page_is_made_of_the_cells():
    assert (ROOT / "docs/benchmarks/papers.rst").read_text() == page.text()


@pytest.mark.parametrize("name", PAPERS)
def test_cells_tell_how_they_were_made(name):
    rows = {(row.set, row.model): row for row in PAPERS[name].rows}
    for key, cell in cells.read(page.CELLS / f"{name}.json").items():
        row = rows[cell["set"], cell["model"]]
        assert row.has(cell) and cell["split"] < row.n_splits, key
        assert cell["command"].startswith(
            f"python -m benchmarks papers {name} --sets {cell['set']}"
        )
        assert len(cell["commit"]) == 7 and cell["commit"].isalnum(), key


@pytest.mark.parametrize("name", PAPERS)
def test_rows_have_published_numbers(name):
    """But for models that stand beside them, and starts whose figures are not told."""
    rows, numbers = PAPERS[name].rows, PUBLISHED[name]
    assert len({(row.set, row.model) for row in rows}) == len(rows)
    given = {(row.set, row.model.partition(",")[0]) for row in rows}
    alone = set(PAPERS[name].competitors)
    missing = [(s, m) for s, of_set in numbers.items() for m in of_set if m not in alone]
    assert set(missing) <= given


# Arithmetic


PAPER = Paper("dsvi", "", "", {"log_density": "log density", "rmse": "RMSE"}, [])


def cell(split, log_density, spread=0.0, **more):
    blocks = log_density + spread * np.array([1.0, -1.0] * 10)
    named = {"set": "boston", "split": split, "seed": 0, "model": "dsvi-2", "expression": "x"}
    return {**named, "log_density": log_density, "blocks": list(blocks), "rmse": 1.0, **more}


def test_verdicts_count_both_errors():
    row, theirs = Row("boston", "dsvi-2", "x", 3), {"log_density": (-2.0, 0.3)}
    found = {str(i): cell(i, value) for i, value in enumerate([-3.0, -2.0, -1.0])}
    ours = page.of_row(PAPER, row, found)
    assert ours["n"] == 3 and ours["log_density"] == pytest.approx((-2.0, 1.0 / math.sqrt(3.0)))
    error = math.hypot(0.3, 1.0 / math.sqrt(3.0))
    for gap, word in ((1.9, "reached"), (-1.9, "reached"), (2.1, "behind"), (-2.1, "ahead")):
        shifted = {"log_density": (-2.0 + gap * error, 0.3)}
        assert page.verdict(PAPER, row, shifted, ours) == word
    assert page.verdict(PAPER, row, theirs, {}) == "not run: budget"
    none = Row("boston", "dsvi-2", reason="no data")
    assert page.verdict(PAPER, none, theirs, {}) == "not run: no data"
    lower = Paper("thesis", "", "", {"mse": ""}, [])
    assert page.verdict(lower, row, {"mse": (1.0, 0.1)}, {"mse": (0.5, 0.1)}) == "ahead"


def test_the_larger_one_of_two_errors_counts():
    """Equal splits whose blocks differ by .5: their mean has a deviation of .513 / sqrt(40)."""
    row = Row("boston", "dsvi-2", "x", 2)
    found = {str(i): cell(i, -2.0, spread=0.5) for i in range(2)}
    _, error = page.of_row(PAPER, row, found)["log_density"]
    assert error == pytest.approx(np.std([0.5, -0.5] * 10, ddof=1) / math.sqrt(40.0))
    one = page.of_row(PAPER, row, {"0": cell(0, -2.0, accuracy=0.9, n_test=100)})
    assert one["n"] == 1 and one["rmse"] == (1.0, None)
    digits = Paper("rff", "", "", {"accuracy": ""}, [])
    (value, error) = page.of_row(digits, row, {"0": cell(0, 0.0, accuracy=0.9, n_test=100)})[
        "accuracy"
    ]
    assert (value, error) == pytest.approx((0.9, 0.03))


def test_shares_of_rows():
    def of(model, split, values):
        return {"set": "boston-projection", "model": model, "split": split, "log_densities": values}

    found = {
        "a": of("star-3", 0, [1.0, 2.0, 3.0, 4.0]),
        "b": of("mean-field-3", 0, [0.0, 1.0, 2.0, 5.0]),
        "c": of("star-3", 1, [1.0, 1.0]),
        "d": of("mean-field-3", 1, [0.0, 2.0]),
        "e": of("star-3", 2, [1.0]),
    }
    row = Row("boston-projection", "star-over-mean-field", reason="share")
    assert page.shares(row, found) == {"share": pytest.approx((0.625, 0.125)), "n": 2}


def test_gains_of_depth_are_paired():
    found = {}
    for model, values in (("sgp-100", [0.0, 1.0]), ("dsvi-2", [1.0, 2.5])):
        for split, value in enumerate(values):
            sizes = {"n_train": 90, "n_test": 10, "elbo": 2.0 * value}
            found[f"{model}{split}"] = {
                "set": "a",
                "model": model,
                "split": split,
                "log_density": value,
                **sizes,
            }
    error = math.sqrt((1 / 2 + 1 / 9) * 0.125)
    assert f"+1.250 ± {error:.3f}" in tables.depth_gains(found)
    assert f"+2.500 ± {2.0 * error:.3f}" in tables.depth_gains(found)


def test_gains_of_depth_on_one_split_are_over_blocks():
    sizes = {"set": "a", "split": 0, "n_train": 90, "n_test": 30}
    found = {
        "flat": {**sizes, "model": "sgp-100", "log_density": 1.0, "blocks": [1.0, 1.0, 1.0]},
        "deep": {**sizes, "model": "dsvi-2", "log_density": 2.0, "blocks": [1.0, 2.0, 3.0]},
    }
    assert f"+1.000 ± {math.sqrt(1 / 3):.3f}" in tables.depth_gains(found)


def test_time_falls_with_workers_until_the_server_is_busy():
    seconds = [tables.step_seconds(n, 0.1, 0.01, 0.02) for n in (1, 2, 5, 100)]
    assert seconds == pytest.approx([0.11, 0.065, 0.026, 0.01])
    assert tables.step_seconds(2, 0.1, 0.01, 0.5) > seconds[0]  # late messages


# Problems


@pytest.mark.parametrize("name", thesis.PROBLEMS)
def test_problems_of_the_thesis(name):
    problem, split = thesis.PROBLEMS[name], thesis.split_of(name, 0)
    assert len(split.X_train) == problem.n_train
    assert not set(split.X_train[:, 0]) & set(split.X_test[:, 0])
    if problem.gap:
        both = thesis.rows_of(problem.kind, 0)[0]
        low = both.min() + problem.gap[0] * np.ptp(both)
        high = both.min() + problem.gap[1] * np.ptp(both)
        assert ((split.X_test > low) & (split.X_test < high)).all()
        assert ((split.X_train > low) & (split.X_train < high)).sum() == problem.few


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    X[51], y[51] = X[3], y[3]  # repeats a training row
    train, test = np.arange(50)[None], np.arange(50, 60)[None]
    (tmp_path / "uci").mkdir()
    for name in ("wine_red", "boston"):
        np.savez(tmp_path / f"uci/{name}.npz", X=X, y=y, train=train, test=test)
    return tmp_path


def test_splits(root):
    assert len(compute.split_of("dsvi", root, "wine_red", 0).y_test) == 10  # repeats count
    split = compute.split_of("structured", root, "boston-projection", 3)
    assert len(split.y_train) == len(split.y_test) == 30
    far = compute.distances(split.X_train, split.X_test)
    assert (np.diff(far) >= 0.0).all() and far[0] > 0.0
    random = compute.split_of("structured", root, "boston-random", 0)
    assert len(random.y_test) == 10


# The command


@pytest.mark.parametrize(
    ("paper", "sets", "model", "more"),
    [
        ("dsvi", "boston", "dsvi-2", "depth"),
        ("dsvi", "wine_red", "aep-2", ""),
        ("structured", "boston-projection", "star-3", ""),
        ("dkp", "boston", "diwp-se", ""),
        ("thesis", "step", "aep-3-2", ""),
        ("thesis", "draws-50", "fitc", ""),
    ],
)
def test_papers(paper, sets, model, more, root, tmp_path, capsys):
    command = [
        "papers",
        paper,
        "--sets",
        sets,
        "--models",
        model,
        "--splits",
        "1",
        "--max-iter",
        "2",
    ]
    command += ["--data", str(root), "--out", str(tmp_path / "cells")]

    def run(*words):
        command_line.main([*command, *words])
        return capsys.readouterr().out

    printed = run()
    assert "1 cells, about" in printed.splitlines()[0]
    assert f"{sets}/0/0/{model}: " in printed
    (stored,) = cells.read(tmp_path / "cells" / f"{paper}.trial.json").values()
    assert (
        stored["command"]
        == f"python -m benchmarks papers {paper} --sets {sets} --models {model} --splits 1"
    )
    assert len(stored["commit"].rstrip("+")) == 7
    again = run()
    assert again.splitlines()[0].startswith("0 cells") and f"{sets}/0/0/" not in again
    (line,) = (part for part in again.splitlines() if part.split()[:2] == [sets, model])
    assert line.split()[-1] in ("ahead", "reached", "behind") and printed.endswith(run("--print"))


def test_costs_come_first_and_the_cheapest_cells(tmp_path):
    rows = [Row("boston", "a", "x", 2, 50.0), Row("energy", "b", "y", 1, 10.0)]
    path = tmp_path / "p.json"
    todo = planned(rows, path, None, {})
    assert [(seconds, c["set"], c["split"]) for seconds, c in todo] == [
        (10.0, "energy", 0), (50.0, "boston", 0), (50.0, "boston", 1),
    ]  # fmt: skip
    assert "3 cells, about 0.03 CPU hours" in cost(todo)
    cells.write(path, {"boston/0/0/a": {**rows[0].cell(0), "fit_seconds": 5.0}})
    ((first, cell), _) = planned(rows, path, None, {})
    assert (first, cell["set"], cell["split"]) == (5.0, "boston", 1)  # as measured
    assert len(planned(rows, path, 1, {})) == 1
    changed = [Row("boston", "a", "z", 1, 50.0)]
    assert len(planned(changed, path, None, {})) == 1


def test_what_does_not_exist(root):
    with pytest.raises(SystemExit, match="Unknown models: foo"):
        command_line.main(["papers", "dsvi", "--models", "foo", "--data", str(root)])


def test_published_numbers_are_of_the_papers():
    numbers = json.loads((ROOT / "benchmarks/papers/published.json").read_text())
    assert numbers["dsvi"]["energy"]["dsvi-2"]["log_density"] == [-0.657, round(0.124 / 20**0.5, 4)]
    assert numbers["structured"]["energy-projection"]["star-over-mean-field"]["share"] == [
        0.73,
        0.05,
    ]
    assert numbers["dkp"]["mnist"]["diwp-digits"]["accuracy"][0] == 0.977
