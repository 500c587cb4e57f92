"""Which members the default has."""

import itertools
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.fitting import plan as recipe
from skdgp.fitting.member import Plan
from skdgp.gp.likelihoods import (
    Bernoulli,
    HeteroscedasticStudentT,
    Ordinal,
    Poisson,
    RobustMax,
    Softmax,
)
from skdgp.inference import DSVI, CollapsedVI, Exact, Vecchia

ROWS = (10, 100, 400, 1000, 3000, 10_000, 50_000, 1_000_000, 10_000_000)
BUDGETS = ("small", "default", "large")


def plan(likelihood):
    return Plan(DSVI(), likelihood, 2)


def regression(n_rows, n_columns, seconds, n_outputs=1, **params):
    given = Plan(DSVI(), HeteroscedasticStudentT(), **{"n_layers": 2, **params})
    return recipe.regression(given, n_rows, n_columns, n_outputs, True, seconds)


def kinds(plans):
    """Scheme, and the kernel but for its linear part."""
    names = ("Anova", "RationalQuadratic", "Matern")
    return [(type(p.scheme), *(name for name in names if name in repr(p.kernel))) for p in plans]


def schemes(plans):
    return {type(plan.scheme) for plan in plans}


@pytest.mark.parametrize("n_columns", [1, 8, 200])
@pytest.mark.parametrize("n_rows", ROWS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_the_predicted_cost_fits_the_budget(budget, n_rows, n_columns):
    seconds = recipe.seconds_of(budget, n_rows)
    numbers = regression(n_rows, n_columns, seconds)
    classes = recipe.classification(plan(Softmax()), n_rows, n_columns, 3, seconds)
    for plans in (numbers, classes):
        total = sum(plan.seconds for plan in plans)
        assert plans and (len(plans) == 1 or total <= 1.1 * seconds)


@pytest.mark.parametrize("n_rows", ROWS)
def test_budgets_grow_with_rows_and_their_names(n_rows):
    small, default, large = (recipe.seconds_of(budget, n_rows) for budget in BUDGETS)
    assert default == 4.0 * small == large / 4.0
    assert 5.0 <= recipe.seconds_of("default", n_rows // 2) <= default <= 60.0
    assert recipe.seconds_of(7, n_rows) == recipe.seconds_of(7.0, n_rows) == 7.0


@pytest.mark.parametrize("n_columns", [3, 15])
def test_members_of_the_default_are_three_or_four(n_columns):
    smooth, deep = (Exact, "RationalQuadratic"), (DSVI,)
    near, anova = (Vecchia, "Matern"), (Exact, "Anova")
    many = [near, deep, (Vecchia, "Anova"), (Vecchia, "RationalQuadratic")]
    collapsed = (CollapsedVI, "RationalQuadratic")
    few = [smooth, deep, anova]
    expected = {200: [*few, collapsed], 900: few, 3500: [near, deep, anova, smooth], 9000: many}
    for n_rows, members in expected.items():
        found = regression(n_rows, n_columns, recipe.seconds_of("default", n_rows))
        assert kinds(found) == members


def test_full_scale_approximations_have_inducing_points_and_the_nearest_rows():
    found = regression(9000, 5, 20.0)
    assert [p.scheme.full_scale for p in found if isinstance(p.scheme, Vecchia)] == [0, 300, 300]


@pytest.mark.parametrize("n_columns", [2, 40, 120])
@pytest.mark.parametrize("n_rows", ROWS)
def test_more_seconds_keep_the_first_members_and_give_more_steps(n_rows, n_columns):
    for less, more in ((1.0, 2.0), (5.0, 40.0), (60.0, 240.0)):
        few, many = (regression(n_rows, n_columns, seconds) for seconds in (less, more))
        assert few[0].scheme.get_params() == many[0].scheme.get_params() or len(few) == 1
        assert sum(p.seconds for p in many) >= sum(p.seconds for p in few) - 1e-9
        assert len(many) >= len(few)


def test_costs_that_grow_with_the_rows_are_left_to_few_rows():
    assert {Exact, DSVI, CollapsedVI} == schemes(regression(1000, 8, 60.0))
    assert {Exact, DSVI} == schemes(regression(1000, 8, 7.0))
    assert {Exact, Vecchia, DSVI} == schemes(regression(2000, 8, 60.0))
    assert Exact not in schemes(regression(10_000, 8, 60.0))
    assert schemes(regression(1_000_000, 8, 60.0)) == {DSVI}


@pytest.mark.parametrize("n_rows", [60, 400, 2400, 9000])
def test_cost_of_anova_counts_the_factors(n_rows):
    def cost(n_columns):
        (anova,) = (
            p.seconds for p in regression(n_rows, n_columns, 1e4) if "Anova" in repr(p.kernel)
        )
        return anova

    few, more, many = (cost(n_columns) for n_columns in (10, 40, 160))
    assert 1.2 < more / few < 4.0 and 1.5 < many / more < 4.0


def test_a_kernel_of_the_user_is_that_of_all_members():
    found = regression(2400, 5, 60.0, kernel="matern52")
    assert schemes(found) == {Exact, Vecchia, DSVI}
    assert {p.kernel for p in found} == {"matern52"}


def test_several_outputs_have_neighbors_and_a_deep_member():
    assert schemes(regression(400, 5, 60.0, n_outputs=2)) == {Vecchia, DSVI}


def test_a_list_of_kernels_is_for_gradient_members():
    for n_layers in (1, 2):
        kernels = ["matern32"] * n_layers
        (only,) = regression(400, 8, 5.0, n_layers=n_layers, kernel=kernels)
        assert only.n_layers == n_layers and only.kernel == kernels


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_classes_have_a_process_on_all_rows_while_it_is_affordable(n_classes):
    likelihood = Bernoulli() if n_classes == 2 else Softmax()

    def kinds(n_rows, seconds):
        plans = recipe.classification(plan(likelihood), n_rows, 8, n_classes, seconds)
        return [type(plan.scheme) for plan in plans]

    assert kinds(600, 60.0) == kinds(10_000, 60.0) == [Vecchia, Exact, DSVI]
    assert Exact not in kinds(150_000, 20.0) and Exact in kinds(150_000, 3600.0)
    assert Exact not in kinds(300_000, 3600.0)  # whatever the time: it takes no more rows


@pytest.mark.parametrize("n_rows", [500, 2000])
def test_time_buys_steps_of_processes_on_all_rows(n_rows):
    steps = []
    for seconds in (10.0, 20.0, 60.0):
        plans = recipe.classification(plan(Softmax()), n_rows, 8, 3, seconds)
        steps += [one.max_iter for one in plans if isinstance(one.scheme, Exact)]
        assert sum(one.seconds for one in plans) <= 1.1 * seconds
    assert len(steps) == 3 and 50 <= steps[0] < steps[1] <= steps[2] == 150


@pytest.mark.parametrize("n_rows", [2000, 1_000_000])
def test_time_buys_steps_of_deep_models_of_classes(n_rows):
    found = []
    for seconds in (10.0, 25.0, 60.0, 300.0):
        plans = recipe.classification(plan(Softmax()), n_rows, 8, 3, seconds)
        found += [one for one in plans if isinstance(one.scheme, DSVI)]
    steps = [one.max_iter for one in found]
    assert len(found) >= 3 and sorted(steps) == steps and 400 <= steps[0] < steps[-1] == 1500
    assert all(one.patience and not one.scheme.shared_kernel for one in found)


@pytest.mark.parametrize(("n_rows", "n_inducing"), [(40, 8), (400, 80), (2000, 100)])
def test_units_of_deep_models_of_classes_have_no_more_inducing_inputs_than_rows(n_rows, n_inducing):
    plans = recipe.classification(plan(Softmax()), n_rows, 8, 3, 60.0)
    (deep,) = [one for one in plans if isinstance(one.scheme, DSVI)]
    assert sum(deep.widths(8)) == 5 and deep.n_inducing == n_inducing
    given = Plan(DSVI(), RobustMax(), 2)
    assert schemes(recipe.classification(given, 40, 8, 3, 60.0)) == {DSVI}  # there is nothing else


@pytest.mark.parametrize("n_rows", [400, 20_000])
def test_cost_of_classes_counts_them(n_rows):
    """A factorization for all of them: ten times the classes take less than ten times the seconds."""

    def cost(n_classes):
        plans = recipe.classification(plan(Softmax()), n_rows, 8, n_classes, 1e4)
        (exact,) = (one for one in plans if isinstance(one.scheme, Exact))
        return exact.seconds

    assert 1.1 < cost(30) / cost(3) < 7.0


def test_classes_in_an_order_have_no_neighbors():
    plans = recipe.classification(plan(Ordinal()), 600, 8, 4, 60.0)
    assert schemes(plans) == {Exact, DSVI}


def test_counts_have_gradient_members_alone():
    plans = recipe.regression(plan(Poisson()), 400, 8, 1, False, 60.0)
    assert schemes(plans) == {DSVI} and [p.n_layers for p in plans] == [2, 1]
    (alone,) = recipe.regression(Plan(DSVI(), Poisson(), 1), 400, 8, 1, False, 60.0)
    assert alone.n_layers == 1


def test_what_the_user_asks_of_the_deep_member_is_kept():
    (deep,) = (
        p
        for p in regression(400, 8, 5.0, n_layers=3, width=7, n_inducing=21)
        if isinstance(p.scheme, DSVI)
    )
    assert (deep.n_layers, deep.width, deep.n_inducing) == (3, 7, 21)


@pytest.mark.parametrize("estimator", [DeepGPRegressor, DeepGPClassifier])
@pytest.mark.parametrize("budget", ["small", 2.0])
def test_the_clock_decides_nothing(estimator, budget, monkeypatch):
    """Two fits, one of which takes years by all clocks."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(60)
    y = y if estimator is DeepGPRegressor else y > 0.0
    settings = {"budget": budget, "max_iter": 20, "random_state": 0, "n_predict_draws": 8}
    first = estimator(**settings).fit(X, y)
    for name in ("monotonic", "process_time", "perf_counter", "thread_time"):
        hours = itertools.count(1e9, 3600.0)
        monkeypatch.setattr(time, name, lambda hours=hours: next(hours))
    second = estimator(**settings).fit(X, y)
    monkeypatch.undo()
    predict = "predict" if estimator is DeepGPRegressor else "predict_proba"
    assert_array_equal(getattr(first, predict)(X), getattr(second, predict)(X))
    assert [m.mixture_weight for m in first.members_] == [m.mixture_weight for m in second.members_]


@pytest.mark.parametrize("estimator", [DeepGPRegressor, DeepGPClassifier])
def test_a_budget_is_for_the_mixture(estimator):
    X, y = np.arange(20.0)[:, None], np.arange(20) % 2
    with pytest.raises(ValueError, match="budget chooses among the members of inference='auto'"):
        estimator(1, inference="vecchia", budget="large").fit(X, y)
    with pytest.raises(ValueError, match="'budget' parameter of"):
        estimator(budget="huge").fit(X, y)
