"""Numbers of the default are on one page, each with a comment."""

import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "guide" / "numbers.rst").read_text()
MODULES = re.findall(r"constants:: (.*)", PAGE)


@pytest.fixture
def constants(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    pytest.importorskip("docutils")
    yield __import__("constants").constants
    sys.modules.pop("constants")


@pytest.mark.parametrize("module", sorted(set(" ".join(MODULES).split())))
def test_all_constants_have_comments(constants, module):
    found = constants(f"skdgp.{module}")
    assert found
    assert all(comment for *_, comment in found), [name for name, _, text in found if not text]


def test_values_and_comments_are_those_of_the_source(constants):
    found = {name: (value, comment) for name, value, _, comment in constants("skdgp.fitting.plan")}
    assert found["FEW_ROWS"] == ("1000", "beyond which there is a nearest-neighbor model")
    value, comment = found["STEPS_OF_CLASSES, EXACT_SHARE"]  # two lines above
    assert value == "((50, 150), 1 / 3)"
    assert comment.startswith("Steps of processes on all rows") and comment.endswith("for them")


def test_limits_are_apart(constants):
    found = {name: (kind, comment) for name, _, kind, comment in constants("skdgp.fitting.weights")}
    assert found["PRIOR_ROWS"][0] == "" and found["N_ITER"][0] == "rounding"
    assert found["N_ITER"][1].startswith("of expectation maximization")
    decisions = PAGE.split("Classes\n")[0]
    n = sum(
        name.count(",") + 1
        for module in " ".join(re.findall(r"constants:: (.*)", decisions)).split()
        for name, _, kind, _ in constants(f"skdgp.{module}")
        if not kind
    )
    assert n <= 103  # a number that comes replaces one
