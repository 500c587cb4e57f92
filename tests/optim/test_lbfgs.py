import contextlib

import numpy as np
import pytest
import torch
from scipy.optimize import rosen, rosen_der

from skdgp.optim.lbfgs import LBFGS, minimize, of_parameters

pytestmark = pytest.mark.usefixtures("no_global_randomness")


def rosenbrock(x):
    x = x.numpy()
    return float(rosen(x)), torch.as_tensor(rosen_der(x))


def run(search, n_iter, evaluate=rosenbrock):
    for _ in range(n_iter):
        search.step(evaluate)
    return search


def started(x=(-1.2, 1.0, -0.5, 2.0), evaluate=rosenbrock, **settings):
    search = LBFGS(**settings)
    search.start(torch.tensor(x, dtype=torch.float64), evaluate)
    return search


def test_quadratic_in_few_steps():
    """With memory for all directions it takes little more than their number."""
    A = torch.diag(torch.logspace(0, 3, 6, dtype=torch.float64))
    search = started([1.0] * 6, lambda x: (float(0.5 * x @ A @ x), A @ x))
    run(search, 40, lambda x: (float(0.5 * x @ A @ x), A @ x))
    assert search.f < 1e-8


def test_values_fall_to_the_minimum_and_nothing_is_evaluated_after_convergence():
    calls = []

    def evaluate(x):
        calls.append(1)
        return rosenbrock(x)

    search, values = started(evaluate=evaluate), []
    while not search.converged:
        search.step(evaluate)
        values.append(search.f)
    assert (np.diff(values) <= 0.0).all() and len(values) <= 200
    np.testing.assert_allclose(search.x, np.ones(4), atol=1e-3)
    n, x = len(calls), search.x
    search.step(evaluate)
    assert len(calls) == n and search.x is x


def test_no_component_of_a_step_is_larger_than_allowed():
    search, largest = started(largest=0.1), 0.0
    for _ in range(30):
        before = search.x
        search.step(rosenbrock)
        largest = max(largest, float((search.x - before).abs().max()))
    assert 0.05 < largest <= 0.1 + 1e-12


@pytest.mark.parametrize("hole", [np.inf, np.nan])
def test_steps_around_places_without_a_value(hole):
    def evaluate(x):
        if float(x[0]) > 0.9:
            return hole, torch.full_like(x, torch.nan)
        return float((x[0] - 0.8) ** 2), torch.tensor([2.0 * float(x[0] - 0.8)], dtype=x.dtype)

    search = run(started([-3.0], evaluate, largest=100.0), 50, evaluate)
    np.testing.assert_allclose(search.x, [0.8], atol=1e-4)


def test_state_goes_on_to_the_bit():
    whole = run(started(), 12)
    first = run(started(), 5)
    second = LBFGS()
    second.load(first.state(), torch.empty(0, dtype=torch.float64))
    run(second, 7)
    assert torch.equal(second.x, whole.x) and second.f == whole.f
    fresh = LBFGS()
    fresh.load(LBFGS().state(), torch.empty(0))
    assert fresh.x is None


def test_going_back_to_before_the_start():
    """An empty state forgets that the search had converged."""
    search = run(started(), 200)
    assert search.converged
    search.load(LBFGS().state(), torch.empty(0, dtype=torch.float64))
    search.start(torch.tensor([-1.2, 1.0], dtype=torch.float64), rosenbrock)
    before = search.f
    search.step(rosenbrock)
    assert search.f < before


@pytest.mark.parametrize("fails", [False, True])
def test_parameters_end_where_the_search_ends(fails):
    a, b = (torch.nn.Parameter(torch.ones(n, dtype=torch.float64)) for n in (2, 1))
    center, values = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64), []

    def loss():
        if fails and len(values) == 4:
            raise torch.linalg.LinAlgError
        value = (torch.cat([a, b]) - center).pow(4).sum()
        values.append(float(value.detach()))
        return value

    with pytest.raises(torch.linalg.LinAlgError) if fails else contextlib.nullcontext():
        minimize(of_parameters(loss, [a, b]), [a, b], 60, 0.0)
    with torch.no_grad():
        fails = False
        assert float(loss()) == min(values)
    if len(values) > 6:
        np.testing.assert_allclose(torch.cat([a, b]).detach(), center, atol=0.02)
