"""The benchmarks' own arithmetic, and that they run; no data and no peers are needed."""

import json
import math
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # the package is not installed

from benchmarks import __main__ as command_line
from benchmarks import (
    aep,
    cells,
    classes,
    couplings,
    data,
    extrapolation,
    feature_step,
    functions,
    marginalization,
    models,
    pathologies,
    race,
    rows,
    rst,
    scores,
    sgpr,
    step,
    table,
    uci,
)
from benchmarks.models.scaling import Standardized, centers


def cell(set_name, split, model, log_density, seed=0, **more):
    return {
        "set": set_name,
        "split": split,
        "seed": seed,
        "model": model,
        "log_density": log_density,
        "rmse": -log_density,
        "fit_seconds": 1.0,
        "n_train": 90,
        "n_test": 10,
        **more,
    }


@pytest.fixture
def root(tmp_path):
    """A folder of data with one small set, made up."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=50)
    X[41], y[41] = X[3], y[3]  # repeats a training row
    X[42] = X[4]  # repeats only its inputs
    X[:, 2] = 7.0
    rows = np.arange(50)
    (tmp_path / "uci").mkdir()
    for name in ("wine_red", "boston"):
        train, test = rows[None, :40], rows[None, 40:]
        np.savez(tmp_path / f"uci/{name}.npz", X=X, y=y, train=train, test=test)
    return tmp_path


def test_standard_error_of_overlapping_splits():
    # the variance of 1, 2, 3, 4 is 5/3; (1/4 + 1/9) 5/3 = 65/108
    error = table.nadeau_bengio([1.0, 2.0, 3.0, 4.0], n_train=90, n_test=10)
    assert error == pytest.approx(math.sqrt(65.0 / 108.0), rel=1e-12)
    assert math.isnan(table.nadeau_bengio([1.0], 90, 10))


def test_seeds_are_averaged_before_splits_are_paired():
    found = [cell("a", 0, "skdgp", 1.0), cell("a", 0, "skdgp", 3.0, seed=1)]
    found += [cell("a", 1, "skdgp", 5.0), cell("a", 0, "peer", 1.0), cell("a", 1, "peer", 1.0)]
    found += [cell("a", 2, "peer", 100.0)]  # has no partner
    of_models = table.by_split(found)["a"]
    mean, error = table.difference(of_models["skdgp"], of_models["peer"], "log_density")
    assert mean == pytest.approx(2.5)  # of 2 - 1 and 5 - 1
    assert error == pytest.approx(math.sqrt((1 / 2 + 1 / 9) * 4.5))


def test_mean_ranks_leave_out_who_has_no_density():
    found = [cell("a", 0, "skdgp", 2.0), cell("a", 0, "peer", 1.0), cell("a", 0, "tied", 1.0)]
    found += [cell("b", 0, "skdgp", 0.0), cell("b", 0, "peer", 1.0)]
    trees = cell("a", 0, "trees", 0.0)
    del trees["log_density"]
    ranks = table.mean_ranks(table.by_split([*found, trees]))
    assert ranks == [("skdgp", 1.5, 2), ("peer", 1.75, 2), ("tied", 2.5, 1)]


def test_table_of_results(tmp_path, capsys):
    found = {
        f"a/{split}/0/{model}": cell("a", split, model, value + split, coverage=0.95)
        for split in range(2)
        for model, value in (("skdgp", 0.5), ("peer", 0.25))
    }
    path = tmp_path / "uci.json"
    path.write_text(json.dumps({"cells": found}))
    command_line.main(["table", "--in", str(path)])
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    ours = next(line for line in lines if line.startswith("skdgp")).split()
    peer = next(line for line in lines if line.startswith("peer")).split()
    assert ours[:3] == ["skdgp", "2", "1.000"] and "95.0" in ours
    assert peer[:6] == ["peer", "2", "0.750", "+0.25", "±", "0"]
    rules = [line for line in lines if line.startswith("==")]
    assert len(rules) == 6 and all(set(rule) <= {"=", " "} for rule in rules)
    assert lines[-2].split() == ["peer", "2.00", "1"]


def test_table_without_results(tmp_path):
    with pytest.raises(SystemExit, match="There are no results"):
        command_line.main(["table", "--in", str(tmp_path / "none.json")])


def test_known_cells_are_not_computed_again(tmp_path):
    path, asked = tmp_path / "results" / "x.json", []

    def compute(name):
        asked.append((name["split"], name["settings"]["n"]))
        if name["split"] == 2:
            raise ArithmeticError("cannot be done")
        return {"rmse": 1.0}

    def todo(n_splits, n=1):
        return [
            {"set": "a", "split": i, "seed": 0, "model": "m", "settings": {"n": n}}
            for i in range(n_splits)
        ]

    assert cells.fill(path, todo(2), compute) == []
    assert cells.fill(path, todo(3), compute) == ["a/2/0/m"]
    assert asked == [(0, 1), (1, 1), (2, 1)]
    cells.fill(path, todo(1, n=5), compute)  # other settings
    assert asked[3:] == [(0, 5)]
    found = cells.read(path)
    assert set(found) == {"a/0/0/m", "a/1/0/m"} and found["a/0/0/m"]["settings"] == {"n": 5}
    assert "torch" in found["a/1/0/m"]["versions"]
    assert [file.name for file in path.parent.iterdir()] == ["x.json"]


def test_repeated_rows_are_dropped_from_the_test_part(root):
    split = data.uci_split(root, "wine_red", 0)
    assert len(split.y_train) == 40 and split.n_held_out == 10
    assert len(split.y_test) == len(split.X_test) == 9
    assert len(data.uci_split(root, "boston", 0).y_test) == 10
    assert data.uci_split(root, "boston", 1) is None


def test_missing_data_and_packages_give_one_sentence(root, monkeypatch):
    monkeypatch.delenv("SKDGP_DATA", raising=False)
    with pytest.raises(SystemExit, match="SKDGP_DATA"):
        data.folder()
    with pytest.raises(SystemExit, match="There is no"):
        data.uci_split(root, "energy", 0)
    monkeypatch.setattr(models, "find_spec", lambda package: None)
    with pytest.raises(SystemExit, match=r"\[bench\]"):
        models.require(["skdgp", "catboost"])
    models.require(["skdgp", "exact"])


def test_who_is_asked():
    assert models.suits("exact", "boston", 455)
    assert not models.suits("exact", "wine_red", 1439)
    assert not models.suits("exact", "power", 8611)
    assert models.suits("svgp-500", "wine_red", 1439)


def test_scores_of_mixtures():
    rng = np.random.default_rng(0)
    means, variances = rng.normal(size=(2, 4000)), np.full((2, 4000), 0.5)
    which = rng.integers(2, size=4000)
    y = means[which, np.arange(4000)] + np.sqrt(0.5) * rng.normal(size=4000)
    found = scores.of_mixture(lambda X: (means, variances), None, y)
    density = np.exp(-((y - means) ** 2)).mean(0) / np.sqrt(np.pi)
    assert found["log_density"] == pytest.approx(np.log(density).mean())
    assert found["coverage"] == pytest.approx(0.95, abs=0.015)
    single = scores.of_mixture(lambda X: (means[:1], variances[:1]), None, means[0])
    assert single["coverage"] == 1.0 and single["rmse"] == 0.0


def test_scaling_of_constant_columns(root):
    split = data.uci_split(root, "boston", 0)
    scaled = Standardized(split.X_train, split.y_train)
    np.testing.assert_allclose(scaled.X[:, 2], 0.0)
    np.testing.assert_allclose(scaled.X[:, :2].std(0), 1.0)
    mean, variance = scaled.moments(scaled.y, np.ones(40))
    np.testing.assert_allclose(mean, split.y_train)
    np.testing.assert_allclose(variance, split.y_train.var())
    assert centers(scaled.X, 5, 0).shape == (5, 3)
    assert centers(scaled.X, 500, 0).shape == (40, 3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", models.MODELS)
def test_models_run(name, root):
    package = models.MODELS[name].package
    if package is not None and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    split = data.uci_split(root, "boston", 0)
    found = uci.evaluate(name, split, seed=0, max_iter=2)
    assert all(math.isfinite(value) for value in found.values())
    assert ("log_density" in found) == models.MODELS[name].distribution
    assert (found["n_train"], found["n_test"], found["n_scored"]) == (40, 10, 10)


@pytest.mark.parametrize("name", functions.FUNCTIONS)
def test_draws_of_functions(name):
    split, again, other = (functions.draw(name, number) for number in (0, 0, 1))
    assert len(split.X_train) == len(split.y_train) == functions.FUNCTIONS[name][1]
    assert len(split.X_test) == split.n_held_out == 1000
    np.testing.assert_array_equal(split.y_test, again.y_test)
    assert not np.isin(other.X_train, split.X_train).any()
    assert not np.isin(split.X_test, split.X_train).any()


def test_borehole():
    """Nearly all of the resistance is that of the borehole itself."""
    X, y = functions.borehole(50, np.random.default_rng(0))
    r_w, _, _, H_u, _, H_l, L, K_w = X.T
    rough = np.pi * r_w**2 * K_w * (H_u - H_l) / L
    assert ((y > 0.0) & (y < rough) & (y > 0.9 * rough)).all()


@pytest.mark.filterwarnings("ignore")
def test_functions_fill_a_table(tmp_path):
    out = tmp_path / "functions.json"
    options = ["--sets", "linear,wedge", "--splits", "0", "--models", "hgb", "--max-iter", "2"]
    command_line.main(["functions", *options, "--out", str(out)])
    found = cells.read(out.with_suffix(".trial.json"))
    assert list(found) == ["linear/0/0/hgb", "wedge/0/0/hgb"]
    assert all(cell["n_test"] == 0 and cell["rmse"] > 0.0 for cell in found.values())


@pytest.mark.filterwarnings("ignore")
def test_trials_are_kept_apart(root, tmp_path):
    out = tmp_path / "out" / "uci.json"
    options = ["--sets", "boston", "--splits", "0,1", "--models", "hgb", "--max-iter", "2"]
    command_line.main(["uci", *options, "--data", str(root), "--out", str(out)])
    assert not out.exists()
    assert list(cells.read(out.with_suffix(".trial.json"))) == ["boston/0/0/hgb"]


def test_when_a_curve_stays_above():
    curve = [(1.0, 0.5), (2.0, 2.0), (3.0, 0.9), (4.0, 1.0), (5.0, 3.0)]
    assert race.stays_above(curve, 1.0) == 4.0
    assert race.stays_above(curve, 0.0) == 1.0
    assert race.stays_above(curve, 4.0) is None


def test_steps_beside_a_network():
    shapes = {"tiny": step.Shape(20, 3, (3,), 2, 5, 1)}
    text = feature_step.table(shapes, step.DTYPES, 4, 1, step.measure)
    assert text.count("tiny") == 2 and "variational / network" in text


def test_memory_and_time_of_rows(tmp_path):
    X, y = rows.memory_map(tmp_path, 3000)
    n, *numbers = rows.measure(X, y, 3)
    assert n == 3000 and np.isfinite(numbers).all() and numbers[-1] > 10.0


def test_steps_take_turns():
    shape = step.Shape(20, 3, (3,), 2, 5, 1)
    medians = step.measure(step.contenders(shape, ["skdgp", "separate"]), 1)
    assert len(medians) == 6 and min(medians.values()) > 0.0
    row = step.report("tiny", "float32", medians)
    assert len(row) == 10 and row[-1] == rst.NOTHING


def test_steps_of_the_couplings(capsys):
    # per block of the pattern, as the notes of the paper count them
    shape = couplings.Shape(n_layers=3, width=2, n_inducing=4, batch=6, n_draws=2)
    large = [
        sum(w * a * b * c for w, a, b, c in couplings.products(shape._replace(batch=10**6), name))
        for name in ("mean-field", "stripes-and-arrow", "full")
    ]
    unit = 4 * 4 * 10**6  # M^2 B; layers after the first have two draws
    quadratic = 2 * (2 + 2 * 2 + 2) + 3 * (1 + 2 + 2)  # and whitening
    star = quadratic + 3 * (2 + 2 + 2 * 2)
    full = star + 2 * (1 + 2) + 3 * 2  # pairs within layers, and the stripes that are none
    np.testing.assert_allclose(np.array(large) / unit, [quadratic, star, full], rtol=1e-3)
    medians = step.measure(couplings.contenders(shape, torch.float64), 1)
    row = couplings.report(shape, "float64", medians)
    assert len(row) == 12 and float(row[2]) > 0.0


@pytest.mark.parametrize("coupling", ["full", "stripes-and-arrow"])
def test_drawn_inducing_outputs_have_the_same_gradients_on_average(root, coupling):
    """And more scattered ones."""
    X, y = marginalization.rows(root, "boston", 0)
    options = SimpleNamespace(coupling=coupling, n_inducing=4, steps=5)
    (ours, batch), (drawn, _) = (
        marginalization.start(X, y, options, way, 0) for way in marginalization.WAYS
    )
    marginalization.train(ours, batch, 5, 0)
    drawn.load_state_dict(ours.state_dict())
    n, rows_, found = 500, batch(10), []
    for model in (ours, drawn):
        model.n_draws = 8
        found.append(marginalization.gradients(model, rows_, n))
    for name, of_ours in found[0].items():
        of_drawn = found[1][name]
        variances = of_ours.var(0), of_drawn.var(0)
        error = np.sqrt((variances[0] + variances[1]) / n) + 1e-12
        z = (of_drawn.mean(0) - of_ours.mean(0)) / error
        assert np.abs(z).max() < 5.0 and np.mean(z**2) < 1.5, name
        assert variances[1].sum() > variances[0].sum()


def test_marginalization_runs(root, tmp_path, capsys):
    options = ["--set", "boston", "--split", "0", "--data", str(root), "--n-inducing", "4"]
    options += ["--steps", "20", "--seeds", "0", "--repeats", "3"]
    pytest.importorskip("matplotlib")
    command_line.main(["marginalization", *options, "--plot", str(tmp_path / "x.png")])
    printed = capsys.readouterr().out
    assert "integrated" in printed and "after 10 steps" in printed
    assert (tmp_path / "x.png").stat().st_size > 0


@pytest.mark.filterwarnings("ignore")
def test_extrapolation_runs_and_goes_on(root, tmp_path, capsys):
    out = tmp_path / "x.json"
    options = ["--sets", "boston", "--directions", "2", "--max-iter", "3", "--n-inducing", "5"]
    options += ["--data", str(root), "--out", str(out)]
    command_line.main(["extrapolation", *options, "--models", "mean-field,stripes-and-arrow"])
    command_line.main(["extrapolation", *options])
    printed = capsys.readouterr().out
    assert "boston/projection-1/0/full: known" not in printed
    assert "boston/projection-1/0/mean-field: known" in printed
    found = cells.read(out.with_suffix(".trial.json"))
    assert len(found) == 2 * 2 * 11
    cell = found["boston/projection-0/0/full"]
    assert (cell["n_train"], cell["n_test"]) == (25, 25) and cell["n_iter"] == 3
    assert len(cell["log_densities"]) == 25
    assert len(cell["squared_errors"]) == len(cell["variances"]) == extrapolation.N_BINS
    assert found["boston/random-0/0/exact-gp"]["n_train"] == 45
    command_line.main(["extrapolation", *options, "--table"])
    table = capsys.readouterr().out
    assert table == printed[-len(table) :]
    assert "boston, projection splits" in table and "boston, random splits" in table


def test_extrapolation_pairs_rows_within_splits():
    def split(number, log_densities):
        return {
            "log_densities": log_densities, "squared_errors": [1.0] * 5, "coverage": 1.0, "lower_bound": 0.0,
            "fit_seconds": 1.0, "n_train": 2, "n_test": 2, "split": f"projection-{number}",
        }  # fmt: skip

    of_models = {
        "mean-field": {(0, 0): split(0, [1.0, 2.0]), (1, 0): split(1, [10.0, 20.0])},
        "full": {(0, 0): split(0, [1.5, 1.9]), (1, 0): split(1, [10.3, 20.1])},
    }
    line = extrapolation.scores_table(of_models, "projection").splitlines()[4]
    # differences 0.2 and 0.2; ahead on one half and on all
    assert line.split()[:3] == ["full", "2", "8.450"]
    assert "+0.200 ± 0.000" in line and "+0.750 ± 0.250" in line


def test_calibration_by_distance():
    cell = {"squared_errors": [1.0, 4.0], "variances": [1.0, 2.0], "n_test": 3}
    np.testing.assert_allclose(extrapolation.calibration([cell])[:, 0], [1.0, 0.5])
    other = {**cell, "variances": [4.0, 8.0]}
    ratios = extrapolation.calibration([cell, other])
    np.testing.assert_allclose(ratios[:, 0], [2.0, 1.0])
    # the logarithms differ by log 4: a standard error of log(4) / 2, and t = 12.7 at one degree
    np.testing.assert_allclose(
        np.log(ratios[0, 2] / ratios[0, 0]), 12.7062 * math.log(2.0), rtol=1e-5
    )


def test_rows_are_kept_from_near_to_far(root):
    X, y = extrapolation.rows_of(root, "boston")
    train, test = extrapolation.split_of(X, y, "boston", "projection-0")
    settings = {"max_iter": 3, "n_inducing": 5}
    cell = {"set": "boston", "split": "projection-0", "seed": 0, "model": "sparse-gp"}
    cell = extrapolation.evaluate(root, {**cell, "settings": settings})
    arguments = {**extrapolation.MODELS["sparse-gp"], **settings, "random_state": 0}
    model = extrapolation.DeepGPRegressor(**arguments).fit(X[train], y[train])
    order = np.argsort(extrapolation.distances(X[train], X[test]))
    X, y = X[test[order]], y[test[order]]
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_allclose(cell["log_densities"], model.log_predictive_density(X, y), rtol=1e-4)
    far = slice(20, 25)  # the last of five bins
    np.testing.assert_allclose(cell["variances"][-1], np.square(std[far]).mean(), rtol=1e-4)
    np.testing.assert_allclose(
        cell["squared_errors"][-1], np.square(y - mean)[far].mean(), rtol=1e-4
    )
    np.testing.assert_allclose(
        extrapolation.root_mean_square(cell), math.sqrt(np.square(y - mean).mean()), rtol=1e-4
    )


def test_protocol_of_the_splits(root):
    X, y = extrapolation.rows_of(root, "boston")
    train, test = extrapolation.split_of(X, y, "boston", "random-1")
    assert len(test) == 5 and len(set(train) | set(test)) == 50
    train, test = extrapolation.split_of(X, y, "boston", "projection-1")
    assert len(test) == 25
    near, far = extrapolation.distances(np.array([[0.0], [2.0]]), np.array([[2.0], [5.0]]))
    assert (near, far) == (0.0, 3.0)
    assert not extrapolation.suits(root, "exact-gp", "wine_red", "random")
    assert extrapolation.suits(root, "exact-gp", "boston", "random")


def test_rows_of_the_pathologies():
    for name, problem in pathologies.PROBLEMS.items():
        (X, y, hidden), (X_test, *_) = pathologies.rows(problem, 0)
        assert len(X) == len(y) == problem.n_train, name
        assert not set(X[:, 0]) & set(X_test[:, 0])
        assert (hidden is not None) == (problem.kind == "draws")
        if problem.gap:
            low, high = X_test.min(), X_test.max()
            assert ((X > low) & (X < high)).sum() == problem.few
            assert 0.2 < (high - low) / np.ptp(X) < 0.5


def test_all_starts_make_the_same_steps():
    X = np.linspace(0.0, 10.0, 20)[:, None]
    problem = pathologies.PROBLEMS["draws-250"]
    kmeans = pathologies.estimator("dsvi-kmeans", problem, X, 1500)
    greedy = pathologies.estimator("dsvi-greedy", problem, X, 1500)
    assert (kmeans.max_iter, greedy.max_iter) == (1500, 1000)  # and half as many in round 1
    long_short = pathologies.estimator("dsvi-long-short", problem, X, 1500).kernel
    assert [k.lengthscale for k in long_short] == pytest.approx([5.0 / X.std(), 0.05])


def test_pathologies_run_and_go_on(tmp_path, capsys):
    out = tmp_path / "found.json"
    command = ["pathologies", "--sets", "step", "--splits", "0,1", "--max-iter", "2"]
    command += ["--models", "exact,skdgp,dsvi-kmeans,dsvi-greedy,dsvi-fixed-z", "--out", str(out)]
    command_line.main(command)
    printed = capsys.readouterr().out
    greedy = next(line for line in printed.splitlines() if line.startswith("dsvi-greedy  "))
    assert greedy.split()[1] == "2" and "of 2" in greedy
    command_line.main(command)
    assert capsys.readouterr().out.count("known") == 10
    found = json.loads(out.with_suffix(".trial.json").read_text())["cells"]
    assert found["step/1/0/exact"]["sample_mnlpp"] == pytest.approx(
        found["step/1/0/exact"]["mnlpp"]
    )


def test_expectation_propagation_beside_the_report_and_dsvi(root, tmp_path, capsys):
    out = tmp_path / "aep.json"
    arguments = ["aep", "--data", str(root), "--sets", "boston", "--splits", "0", "--out", str(out)]
    command_line.main([*arguments, "--models", "aep,dsvi", "--max-iter", "2"])
    printed = capsys.readouterr().out
    assert "-2.323" in printed and "2.745" in printed  # what the report says
    assert set(cells.read(tmp_path / "aep.trial.json")) == {
        "boston/0/0/aep",
        "boston/0/0/dsvi",
    }
    found = [cell("boston", s, "dsvi", float(s)) for s in (0, 1)]
    found += [cell("boston", s, "aep", s + 0.25) for s in (0, 1)]
    row = next(
        row for row in aep.summary(found).splitlines() if row.split()[:2] == ["boston", "aep"]
    )
    assert "+0.250" in row and "-0.250" in row


def test_time_to_the_best_bound_of_the_peer():
    curves = {
        "skdgp": [(1.0, -200.0), (2.0, -100.005)],
        "GPyTorch, L-BFGS": [(3.0, -150.0), (6.0, -100.0)],
        "GPyTorch, Adam": [(9.0, -101.0)],
    }
    lines = [line.split() for line in sgpr.table(curves).splitlines()]
    assert "-100.0" in lines[1]  # the goal, a ten-thousandth below the best
    assert lines[3][0] == "skdgp" and lines[3][-2:] == ["2.0", "1.0"]
    assert lines[4][-2:] == ["6.0", "3.0"]
    assert lines[5][-2:] == [rst.NOTHING] * 2


def test_bound_of_the_model_that_races():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    model = sgpr.Ours(X, np.sin(X[:, 0]), X[:10])
    start = model.evaluate()
    points = sgpr.curve(model, 5, 3.0)
    assert len(points) <= 5
    assert points[0][1] > start - 3.0
    assert (np.diff([bound for _, bound in points]) >= 0.0).all()


@pytest.mark.parametrize("name", ["iris", "boston", "moons", "waves", "checkerboard", "parts"])
def test_splits_with_classes(name, root):
    """They are the same each time, and differ."""
    X, y, X_test, y_test = classes.split_of(name, 0, root)
    assert len(X) == len(y) and len(X_test) == len(y_test)
    assert set(y) == set(y_test) == set(range(3 if name == "iris" else 2))
    np.testing.assert_array_equal(X, classes.split_of(name, 0, root)[0])
    if name == "boston":
        with pytest.raises(SystemExit, match="boston has no split 1"):
            classes.split_of(name, 1, root)
    else:
        assert (X != classes.split_of(name, 1, root)[0]).any()


def test_scores_of_classes(root, monkeypatch):
    """By hand, with a classifier that is sure and once wrong."""
    monkeypatch.setattr(classes, "split_of", lambda *_: (None, np.arange(2), None, np.arange(2)))
    sure = np.array([[1.0, 0.0], [1.0, 0.0]])
    monkeypatch.setattr(classes, "probabilities", lambda *_: sure)
    found = classes.evaluate({"set": "iris", "split": 0, "seed": 0, "model": "forest"}, root)
    assert found["accuracy"] == 0.5
    assert math.isclose(found["log_density"], 0.5 * math.log(1e-6), rel_tol=1e-6)


def test_table_of_classes(root, tmp_path, capsys):
    out = tmp_path / "classes.json"
    chosen = "--sets moons --splits 0,1 --models forest,logistic --data"
    command_line.main(["classes", *chosen.split(), str(root), "--out", str(out)])
    text = capsys.readouterr().out
    found = cells.read(out)
    mean = -np.mean([found[f"moons/{split}/0/forest"]["log_density"] for split in (0, 1)])
    assert f"{mean:.3f}" in text and "mean rank" in text
    forest, logistic = (
        np.mean([v["accuracy"] for k, v in found.items() if n in k]) for n in ("forest", "logistic")
    )
    assert forest > logistic > 0.8
