"""Reference vectors: cases of a file, and whether a result agrees with one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch


def cases(file, kind):
    """Parametrizes a test by the cases of a kind."""
    path = Path(__file__).parents[1] / "reference" / file
    found = [case for case in json.loads(path.read_text())["cases"] if case["kind"] == kind]
    assert found
    return pytest.mark.parametrize("case", found, ids=lambda case: case["id"])


def check(case, **actual):
    """All expected values of a case, and no others, to its own tolerances."""
    assert set(actual) == set(case["expected"])
    for name, expected in case["expected"].items():
        value = actual[name].detach() if torch.is_tensor(actual[name]) else actual[name]
        np.testing.assert_allclose(
            value, np.array(expected), rtol=case["rtol"], atol=case["atol"], err_msg=name
        )
