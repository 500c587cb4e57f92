"""Black boxes of ``python -m benchmarks optimize``, and its table; BoTorch is needed for one test."""

import numpy as np
import pytest

from benchmarks import __main__ as command_line
from benchmarks import optimize


@pytest.mark.parametrize("name", optimize.OWN)
def test_minimum_of_own_functions(name):
    function, d, lowest = optimize.problem(name)
    grid = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, 801)] * d), -1).reshape(-1, d)
    found = function(grid).min()
    assert -1e-7 < found - lowest < 1e-3


def test_isolated_runs():
    X = optimize.first_runs("isolated", 2, 0)
    assert (X[:, 0] < 1.0 / 3.0).sum() >= 8
    assert len({*optimize.first_runs("well", 2, 0)[:, 0]}) == 10


def test_ratio_to_the_reference():
    pairs = {0: (0.01, 0.1), 1: (0.1, 0.1), 2: (0.001, 0.1)}
    found = []
    for seed, values in pairs.items():
        for model, value in zip(("exact", optimize.REFERENCE), values):
            found.append(
                {"set": "well", "seed": seed, "model": model, "regret": value, "seconds": 1}
            )
    exact, reference = (line.split() for line in optimize.report(found, "regret").splitlines()[3:5])
    assert exact[:5] == ["well", "exact", "3", "0.01", "0.1"]
    assert exact[5:8] == ["-1.00", "±", "0.58"]  # of -1, 0, -2
    assert reference[3] == "0.1"


def test_active_learning_lowers_the_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(optimize, "_N_ACTIVE", 6)
    out = tmp_path / "active.json"
    command = ["optimize", "--active", "--models", "exact", "--sets", "cosines", "--seeds", "0"]
    command_line.main([*command, "--out", str(out)])
    assert "cosines" in capsys.readouterr().out
    (cell,) = optimize.cells.read(out).values()
    assert len(cell["errors"]) == 7 and cell["error"] < 0.8 * cell["errors"][0]


def test_proposals_lower_the_regret(monkeypatch):
    pytest.importorskip("botorch")
    monkeypatch.setattr(optimize, "_N_MORE", 4)
    cell = {"set": "branin", "seed": 0, "model": optimize.REFERENCE}
    found = optimize.optimized(cell)
    assert len(found["regrets"]) == 5
    assert found["regret"] == found["regrets"][-1] < found["regrets"][0]
