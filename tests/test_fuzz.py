"""Some random cases of :mod:`fuzzing`, and what every scheme and kernel of the registries keeps."""

import datetime
import os

import fuzzing
import numpy as np
import pytest

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.gp.kernels.base import BY_NAME
from skdgp.inference import SCHEMES

pytestmark = pytest.mark.filterwarnings("ignore")

#: cases of each day, if there are any; 24 that stay the same otherwise
N_NIGHTLY = int(os.environ.get("SKDGP_FUZZ", 0))
FIRST = 100_000 * datetime.date.today().toordinal() if N_NIGHTLY else 0


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (N_NIGHTLY or 24)))
def test_random_cases_keep_their_promises_or_say_why_not(seed):
    fuzzing.check(fuzzing.case_of(seed))


@pytest.mark.parametrize("seed", [100022, 200178, 200182, 300003, 300024, 300362])
def test_cases_that_were_faults(seed):
    """Extreme inputs, kernels of many states, very wide logarithms, and gaps in columns far from zero."""
    fuzzing.check(fuzzing.case_of(seed))


def case(model, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((39, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(39)
    y = y > 0.0 if isinstance(model, DeepGPClassifier) else y
    return fuzzing.Case(model, X[:30], X[30:], y[:30], None, True)


FEW = {"max_iter": 4, "n_predict_draws": 4, "random_state": 0}
CLASSES = [name for name in SCHEMES if name not in ("collapsed", "pep")]


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_schemes_keep_the_promises_of_numbers(scheme):
    n_layers = 1 if scheme in fuzzing.SHALLOW else 2
    assert fuzzing.check(case(DeepGPRegressor(n_layers, inference=scheme, **FEW)))


@pytest.mark.parametrize("scheme", sorted(CLASSES))
def test_schemes_keep_the_promises_of_classes(scheme):
    n_layers = 1 if scheme in fuzzing.SHALLOW else 2
    assert fuzzing.check(case(DeepGPClassifier(n_layers, inference=scheme, **FEW)))


@pytest.mark.parametrize("kernel", sorted(BY_NAME))
@pytest.mark.parametrize("scheme", ["dsvi", "exact"])
def test_kernels_keep_the_promises(kernel, scheme):
    model = DeepGPRegressor(1, inference=scheme, kernel=kernel, likelihood="gaussian", **FEW)
    assert fuzzing.check(case(model))
