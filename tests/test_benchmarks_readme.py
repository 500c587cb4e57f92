"""Figures of README.rst are those of the stored results."""

import json
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.rst").read_text()
SINGLE_SPACED = " ".join(README.split())
MODELS = ("auto", "single", "gpytorch", "exact-gp", "ngboost", "catboost")


def stored(name):
    path = ROOT / f"benchmarks/results/{name}.json"
    return list(json.loads(path.read_text())["cells"].values())


def printed():
    """Set, model and the two figures of each cell in the table of the literature."""
    lines = README.splitlines()
    rules = [i for i, line in enumerate(lines) if re.fullmatch(r"=+( +=+)+", line)]
    spans = [match.span() for match in re.finditer("=+", lines[rules[0]])]
    for line in lines[rules[1] + 1 : rules[2]]:
        name, *texts = (line[start:end].strip(" *") for start, end in spans)
        for model, text in zip(MODELS, texts):
            if text:
                yield pytest.param(name, model, text.split(", "), id=f"{name}-{model}")


@pytest.mark.parametrize(("name", "model", "figures"), list(printed()))
def test_the_table_of_the_literature_is_that_of_the_cells(name, model, figures):
    cells = [c for c in stored("uci") if (c["set"], c["model"]) == (name, model)]
    cells = [c for c in cells if c["split"] < 5 and c["seed"] == 0]
    for column, figure in zip(("log_density", "crps"), figures, strict=True):
        last_digit = 10.0 ** Decimal(figure).as_tuple().exponent
        assert abs(np.mean([c[column] for c in cells]) - float(figure)) < 0.51 * last_digit


def test_the_median_of_catboost_and_kin8nm_are_those_of_the_cells():
    def densities(name, model):
        cells = (c for c in stored("uci") if (c["set"], c["model"]) == (name, model))
        return [c["log_density"] for c in cells if c["split"] < 5]

    median = np.median(densities("energy", "catboost"))
    assert f"energy: its median is {median:.2f}." in SINGLE_SPACED
    kin8nm = densities("kin8nm", "auto")
    assert len(kin8nm) == 3
    assert f"On kin8nm, the mean density of three splits is {np.mean(kin8nm):.2f}," in SINGLE_SPACED


def test_tables_that_were_kept_back_are_counted_as_their_cells_say():
    cells = {(c["set"], c["model"]): c for c in stored("confirm")}
    pairs = [
        (cell, cells[name, "catboost"])
        for (name, model), cell in cells.items()
        if model == "auto" and (name, "catboost") in cells
    ]
    classes = [pair for pair in pairs if "accuracy" in pair[0]]
    numbers = [pair for pair in pairs if "accuracy" not in pair[0]]

    def lower(column):
        return sum(a[column] < b[column] for a, b in numbers)

    def denser(pairs):
        return sum(a["log_density"] > b["log_density"] for a, b in pairs)

    assert f"On {len(numbers)} tables on which nothing was chosen" in SINGLE_SPACED
    counts = f"{lower('crps')} by CRPS, on {denser(numbers)} by log-density and on {lower('rmse')}"
    assert f"it is ahead of CatBoost on {counts} by RMSE." in SINGLE_SPACED
    text = (
        f"On {len(classes)} such tables with classes it is ahead on {denser(classes)} by log-loss"
    )
    assert text in SINGLE_SPACED
