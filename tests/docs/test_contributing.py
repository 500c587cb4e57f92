"""A kernel, a likelihood and a scheme of CONTRIBUTING.rst run as they stand there."""

import doctest
from pathlib import Path

import pytest

from skdgp.gp.kernels import BY_NAME
from skdgp.gp.likelihoods import REGRESSION
from skdgp.inference import SCHEMES

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.rst"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_examples_run():
    registries = [(registry, dict(registry)) for registry in (BY_NAME, REGRESSION, SCHEMES)]
    try:
        found = doctest.testfile(str(PAGE), module_relative=False)
        added = [set(registry) - set(before) for registry, before in registries]
    finally:
        for registry, before in registries:
            registry.clear()
            registry.update(before)
    assert found.failed == 0 and found.attempted > 30
    assert added == [{"cauchy"}, {"laplace"}, {"linear_vi"}]
