"""What the commands of ``python -m benchmarks`` print, and that runs are taken up; no peers are needed."""

import importlib
import json
import math
import subprocess
import sys
import types
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cheap import search_little

import skdgp

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package is not installed

from benchmarks import __main__ as command_line
from benchmarks import cells, data, gpu, models, posterior, speed, steps, table
from benchmarks.distributions import LEVELS, Mixture, Quantiles, scores

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of data with small sets, made up."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    X[51], y[51] = X[3], y[3]  # repeats a training row
    X[:, 2] = 7.0
    train, test = np.arange(50)[None], np.arange(50, 60)[None]
    (folder / "uci").mkdir()
    for name in ("wine_red", "boston"):
        np.savez(folder / f"uci/{name}.npz", X=X, y=y, train=train, test=test)
    (folder / "suite").mkdir()
    kind = rng.choice(["a", "b", "c"], 60)
    kind[:3] = "rare"
    frame = pd.DataFrame(
        {"x": X[:, 0], "kind": kind, "y": y, "label": np.where(y > 0, "up", "down")}
    )
    frame.loc[frame.index[::9], "x"] = np.nan
    about = {"kinds": {"x": "number", "kind": "category"}, "n_rows": 60, "n_columns": 2}
    tables = {"small": about | {"task": "regression", "target": "y"}}
    tables["signs"] = about | {"task": "classification", "target": "label"}
    (folder / "suite/suite.json").write_text(json.dumps(tables))
    for name in tables:
        frame.to_csv(folder / f"suite/{name}.csv.gz", index=False)
    return folder


@pytest.fixture
def run(capsys):
    """What a command prints, given as one text and further words."""

    def run(text, *words):
        command_line.main([*text.split(), *map(str, words)])
        return capsys.readouterr().out

    return run


# Arithmetic


def cell(set_name, split, model, log_density, **more):
    sizes = {"fit_seconds": 1.0, "predict_seconds": 0.1, "n_train": 90, "n_test": 10}
    errors = {"rmse": math.exp(-log_density), "crps": 1.0, "coverage": 0.9}
    named = {"set": set_name, "split": split, "seed": 0, "model": model}
    return {**named, "log_density": log_density, **errors, **sizes, **more}


def test_standard_error_of_overlapping_splits():
    # the variance of 1, 2, 3, 4 is 5/3; (1/4 + 1/9) 5/3 = 65/108
    error = table.nadeau_bengio([1.0, 2.0, 3.0, 4.0], n_train=90, n_test=10)
    assert error == pytest.approx(math.sqrt(65.0 / 108.0), rel=1e-12)
    assert math.isnan(table.nadeau_bengio([1.0], 90, 10))


def test_seeds_are_averaged_before_splits_are_paired():
    found = [cell("a", 0, "auto", 1.0), cell("a", 0, "auto", 3.0, seed=1)]
    found += [cell("a", 1, "auto", 5.0), cell("a", 0, "peer", 1.0), cell("a", 1, "peer", 1.0)]
    found += [cell("a", 2, "peer", 100.0)]  # has no partner
    of_models = table.by_split(found)["a"]
    mean, error = table.difference(of_models["auto"], of_models["peer"], "log_density")
    assert mean == pytest.approx(2.5)  # of 2 - 1 and 5 - 1
    assert error == pytest.approx(math.sqrt((1 / 2 + 1 / 9) * 4.5))


def test_difference_on_one_split_is_over_blocks_of_rows():
    found = [
        cell("a", 0, "auto", 2.0, blocks=[1.0, 2.0, 3.0]),
        cell("a", 0, "peer", 1.0, blocks=[1.0] * 3),
    ]
    of_models = table.by_split(found)["a"]
    mean, error = table.difference(of_models["auto"], of_models["peer"], "log_density")
    assert (mean, error) == pytest.approx((1.0, 1.0 / math.sqrt(3.0)))


def test_report(capsys):
    found = [cell("a", 0, "auto", 2.0), cell("a", 0, "peer", 1.0), cell("a", 0, "tied", 1.0)]
    found += [cell("b", 0, "auto", 0.0), cell("b", 0, "peer", 1.0)]
    trees = cell("a", 0, "trees", 0.0)
    del trees["log_density"]
    results = table.by_split([*found, trees])
    assert table.mean_ranks(results) == [("auto", 1.5, 2), ("peer", 1.75, 2), ("tied", 2.5, 1)]
    lines = [line.split() for line in table.report([*found, trees], "auto").splitlines()]
    peer = next(line for line in lines if line[:1] == ["peer"])
    assert peer[:6] == ["peer", "2", "1.75", "+0.000", "±", "1.000"]
    assert ["a", "2", "-1", "-1"] in lines  # the reference, and what peer and tied have more


def test_scores_of_mixtures_and_quantiles():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=4000)
    y = mean + 0.7 * rng.normal(size=4000)
    gaussian = scores(Mixture(mean, np.full(4000, 0.49)), y)
    assert gaussian["coverage"] == pytest.approx(0.9, abs=0.02)
    assert gaussian["log_density"] == pytest.approx(
        -0.5 - np.log(0.7 * np.sqrt(2 * np.pi)), abs=0.03
    )
    assert gaussian["crps"] == pytest.approx(0.7 / np.sqrt(np.pi), rel=0.03)
    from scipy.stats import norm

    by_quantiles = scores(Quantiles(mean[:, None] + 0.7 * norm.ppf(LEVELS), y), y)
    assert by_quantiles["crps"] == pytest.approx(gaussian["crps"], rel=0.01)
    assert by_quantiles["log_density"] == pytest.approx(gaussian["log_density"], abs=0.02)
    assert by_quantiles["coverage"] == gaussian["coverage"]


def test_scores_of_classes():
    """By hand, with a classifier that is sure and once wrong."""
    found = scores(np.array([[1.0, 0.0], [1.0, 0.0]]), np.arange(2))
    assert found["accuracy"] == 0.5
    assert found["log_density"] == pytest.approx(0.5 * math.log(1e-6), rel=1e-6)


# Cells and data


def fail_on_two(cell):
    if cell["split"] == 2:
        raise ArithmeticError("cannot be done")
    return {"rmse": 1.0 / 3.0, "n": cell["settings"]["n"]}


def test_known_cells_are_not_computed_again(tmp_path, capsys):
    path = tmp_path / "results" / "x.json"

    def todo(n_splits, n=1):
        named = {"set": "a", "seed": 0, "model": "m", "settings": {"n": n}}
        return [{**named, "split": i} for i in range(n_splits)]

    assert cells.fill(path, todo(2), fail_on_two) == []
    assert capsys.readouterr().out.count(" s\n") == 2
    assert cells.fill(path, todo(3), fail_on_two) == ["a/2/0/m"]
    assert "cannot be done" in capsys.readouterr().out
    cells.fill(path, todo(1, n=5), fail_on_two)  # other settings
    found = cells.read(path)
    assert set(found) == {"a/0/0/m", "a/1/0/m"} and found["a/0/0/m"]["n"] == 5
    assert found["a/1/0/m"]["rmse"] == 0.333333
    assert [file.name for file in path.parent.iterdir()] == ["x.json"]


def test_splits(root, monkeypatch):
    assert len(data.uci_split(root, "wine_red", 0).y_test) == 9  # one repeats a training row
    assert len(data.uci_split(root, "boston", 0).y_test) == 10
    assert data.uci_split(root, "boston", 1) is None
    split = data.suite_fold(root, "small", 0)
    assert split.X_train.shape == (48, 6)  # the number, its gaps, a, b, c and the rare ones
    assert np.isfinite(split.X_train).all() and set(np.unique(split.X_train[:, 1:])) == {0.0, 1.0}
    assert set(data.suite_fold(root, "signs", 1).y_test) == {0, 1}
    monkeypatch.delenv("SKDGP_DATA", raising=False)
    with pytest.raises(SystemExit, match="SKDGP_DATA"):
        data.folder()
    with pytest.raises(SystemExit, match="There is no"):
        data.uci_split(root, "energy", 0)


def test_names_of_models(monkeypatch):
    assert models.short("flat=DeepGPRegressor(n_layers=1)") == "flat"
    assert models.short("DeepGPRegressor(n_layers=1)") == "DeepGPRegressor(n_layers=1)"
    found = models.estimator("flat=DeepGPRegressor(1, inference=DSVI(n_draws=2))", False, 3, 5)
    assert (found.n_layers, found.inference.n_draws) == (1, 2)
    assert (found.random_state, found.max_iter) == (3, 5)
    assert models.estimator("DeepGPRegressor()", True, 0) is None  # is for the other task
    with pytest.raises(SystemExit, match="Unknown models: foo"):
        models.require(["foo"])
    monkeypatch.setattr(models, "find_spec", lambda package: None)
    with pytest.raises(SystemExit, match=r"\[bench\]"):
        models.require(["auto", "catboost"])


@pytest.mark.parametrize("name", models.PEERS)
def test_peers_run(name, root):
    peer = models.PEERS[name]
    pytest.importorskip(peer.package or "numpy")
    for fit, table_name in ((peer.regression, "small"), (peer.classes, "signs")):
        if fit is not None:
            split = data.suite_fold(root, table_name, 0)
            found = scores(fit(split.X_train, split.y_train, 0, 2)(split.X_test), split.y_test)
            assert np.isfinite(found["log_density"])
            assert len(found["blocks"]) == min(20, len(split.y_test))


# Commands, at the smallest size


def test_help():
    command = [sys.executable, "-m", "benchmarks"]
    text = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True).stdout
    assert len(command_line.COMMANDS) <= 10
    assert all(f"    {name}" in text for name in command_line.COMMANDS)


def test_posteriors_are_compared(root, tmp_path, run):
    command = "posterior --problems step,moons --schemes dsvi,collapsed,slices-10 --max-iter 3"
    command += f" --data {root} --out {tmp_path}/p.json --steps 8"
    printed = run(command)
    assert "\nstep " in printed and "\nmoons " in printed
    assert "dropped  collapsed" in printed  # which fails with classes
    cells = json.loads((tmp_path / "p.trial.json").read_text())["cells"].values()
    (runs,) = (cell["found"] for cell in cells if cell["set"] == "step")
    assert set(runs) == {"dsvi", "collapsed", "slices-10"}
    assert all(len(found) == 3 for found in runs.values())
    assert all("figures" in one for found in runs.values() for one in found)
    first, second, _ = (one["figures"]["inside"]["mean"][0] for one in runs["dsvi"])
    assert first != second  # each seed is a fit of its own
    again = run(command)
    assert "step/0/0/atlas" not in again and printed.endswith(again)


@pytest.mark.parametrize("ok", [True, False])
def test_only_references_that_pass_are_averaged(ok):
    """An R-hat of 1.01 is not enough: a sample size of 40 is too small."""
    figures = {g: dict.fromkeys(posterior._FIGURES, (0.5, 0.1)) for g in ("inside", "outside")}
    reference = {"figures": figures, "seconds": 1.0, "bound": None, "evidence": -4.0}
    reference |= {"error": 0.1, "steps": 8, "rhat": 1.01, "ess": 500.0 if ok else 40.0, "ok": ok}
    runs = [{"figures": figures, "seconds": 1.0, "bound": bound} for bound in (-5.0, -6.0, -7.0)]
    found = {"set": "step", "n_train": 9, "n_features": 1}
    found |= {"reference": reference, "found": {"dsvi": runs}}
    *figures, gaps, references = posterior.report([found]).split("\n\n")
    assert all(("dsvi" in table) == ok for table in (*figures, gaps))
    assert ("dropped" in references) == (not ok)
    assert ("0.50 (0.00), 0.50 (0.00)" in figures[0]) == ok
    assert ("2.00 (1.00)" in gaps) == ok  # nats from the bounds to the evidence, over seeds


def test_rows_near_the_data_keep_levels():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((80, 2)), rng.integers(0, 2, (80, 6))])
    Xs, inside = posterior.looked_at(X, rng)
    near = Xs[: len(Xs) // 2]
    assert np.isin(near[:, 2:], (0.0, 1.0)).all() and not np.isin(near[:, :2], X[:, :2]).any()
    assert inside[: len(near)].mean() > 0.8 and inside[len(near) :].mean() < 0.1


def test_suite_compares_labels_and_goes_on(root, tmp_path, run):
    command = f"suite --data {root} --out {tmp_path}/s.json --max-iter 3"
    printed = run(f"{command} --models hgb forest dsvi --reference dsvi")
    assert "small/0/0/hgb" in printed and "signs/0/0/forest" in printed
    assert "small/0/0/forest" not in printed  # is no regression
    flat = "flat=DeepGPRegressor(1, inference='dsvi')"
    again = run(f"{command} --label new --models hgb", flat)
    assert "small/0/0/flat: " in again and "flat@new" in again and "hgb@new" in again
    assert "signs/0/0/flat" not in again
    assert (tmp_path / "s-new.trial.json").exists() and (tmp_path / "s.trial.json").exists()
    shown = run(f"{command} --print --compare new --column rmse")
    assert " s\n" not in shown and "flat@new" in shown and "rmse of auto" in shown
    # what is chosen, and the reference
    only = run(f"{command} --print --models forest")
    assert "forest" in only and "hgb" not in only


def test_entry_for_scoringbench(monkeypatch):
    """With the interface of its wrappers; frames with strings and gaps."""

    class Wrapper:
        def _set_train_range(self, y):
            self._y_train_range = (y.min(), y.max())

    class Distribution:
        from_multi_quantile = staticmethod(lambda *args, **settings: (args, settings))

    name = "scoringbench.univariate.wrappers.base"
    for part in ("scoringbench", "scoringbench.univariate", "scoringbench.univariate.wrappers"):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    base = types.ModuleType(name)
    base.ProbabilisticWrapper, base.DistributionPrediction = Wrapper, Distribution
    monkeypatch.setitem(sys.modules, name, base)
    entry = importlib.import_module("benchmarks.scoringbench")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=40), "b": rng.choice(["x", "y", "z"], 40)})
    y = pd.Series(X["a"] + (X["b"] == "x") + 0.1 * rng.normal(size=40))
    X.loc[3, "a"], y[5] = np.nan, np.nan
    model = entry.DeepGPWrapper(9, inference="exact", n_layers=1).fit(X, y)
    (quantiles, orders, mean), settings = model.predict_distribution(X[:4])
    assert quantiles.shape == (4, 11) and len(orders) == 11
    assert (np.diff(quantiles) > 0.0).all()
    np.testing.assert_allclose(mean, model.predict(X[:4]))
    assert settings == {"train_range": (y.min(), y.max())}


def test_another_checkout_is_measured(tmp_path):
    with pytest.raises(SystemExit, match="no package skdgp"):
        command_line.main(["--checkout", str(tmp_path), "suite"])


def test_uci_prints_the_table_of_the_readme(root, tmp_path, run):
    command = "uci --sets boston,linear --splits 0,1 --models hgb --max-iter 2 --reference hgb"
    printed = run(f"{command} --data {root} --out {tmp_path}/u.json")
    found = cells.read(tmp_path / "u.trial.json")
    assert list(found) == ["boston/0/0/hgb", "linear/0/0/hgb", "linear/1/0/hgb"]
    score = found["boston/0/0/hgb"]
    assert f"{score['log_density']:.2f}, {score['rmse']:.3g}" in printed


def test_classes(root, tmp_path, run):
    command = "classes --sets moons,boston --splits 0,1 --models forest logistic"
    printed = run(f"{command} --data {root} --out {tmp_path}/c.json --reference forest")
    found = cells.read(tmp_path / "c.json")
    assert "boston/1/0/forest" not in found and len(found) == 6
    forest, logistic = (
        np.mean([found[f"moons/{split}/0/{model}"]["accuracy"] for split in (0, 1)])
        for model in ("forest", "logistic")
    )
    assert forest > logistic > 0.8 and "accuracy" in printed


def test_speed_and_predict(run):
    pytest.importorskip("gpytorch")
    found = run("speed --part schemes --shapes 1 --steps 1")
    assert "stripes-and-arrow" in found and "M 32, batch 512" in found
    command = "predict --rows 20 --draws 50 --max-iter 2 --models"
    assert "ours, 64 draws" in run(f"{command} exact")
    assert "probabilities" in run(f"{command} dsvi --classes 3")


def test_rows_from_disk(run, monkeypatch):
    monkeypatch.setattr(speed, "ROWS_OF_STEP", 50)
    monkeypatch.setattr(speed, "_UNTIMED", 2)
    assert "1,000" in run("speed --part rows --rows 500,1000 --steps 2")


def test_gpu_without_one(run, monkeypatch):
    monkeypatch.setattr(gpu, "Shape", lambda **_: steps.Shape(batch=50, n_inducing=10))
    monkeypatch.setattr(skdgp, "DeepGPRegressor", partial(skdgp.DeepGPRegressor, max_iter=2))
    search_little(monkeypatch.setattr)
    command = "speed --part gpu --device cpu --rows 30 --steps 1 --seconds"
    found = run(f"{command} 60")
    assert "no GPU" in found and "within 1e-5" in found
    assert "No time was left" in run(f"{command} 0")  # however fast the machine is


DOCUMENTED = sorted(
    {
        line.split("python -m benchmarks ")[1]
        for path in [ROOT / "README.rst", *sorted((ROOT / "docs").glob("**/*.rst"))]
        for line in path.read_text().splitlines()
        if line.startswith("   python -m benchmarks ") and not line.endswith("--help")
    }
)


@pytest.mark.parametrize("command", DOCUMENTED)
def test_commands_of_the_documentation_exist(command, monkeypatch):
    name, *_ = words = command.split()
    asked = []
    monkeypatch.setattr(importlib.import_module(f"benchmarks.{name}"), "run", asked.append)
    command_line.main(words)
    assert len(asked) == 1
