"""Which members the default has."""

import pytest

from skdgp.fitting import plan as recipe
from skdgp.fitting.member import Plan
from skdgp.gp.likelihoods import Bernoulli, HeteroscedasticStudentT, Ordinal, Poisson, Softmax
from skdgp.inference import DSVI, Exact, Vecchia

ROWS = (10, 100, 400, 1000, 3000, 10_000, 50_000, 1_000_000, 10_000_000)


def plan(likelihood):
    return Plan(DSVI(), likelihood, 2)


def regression(n_rows, n_columns, seconds):
    return recipe.regression(plan(HeteroscedasticStudentT()), n_rows, n_columns, 1, True, seconds)


def schemes(plans):
    return {type(plan.scheme) for plan in plans}


@pytest.mark.parametrize("n_columns", [1, 8, 200])
@pytest.mark.parametrize("n_rows", ROWS)
def test_the_predicted_cost_fits_the_budget(n_rows, n_columns):
    seconds = recipe.budget(n_rows, None)
    numbers = regression(n_rows, n_columns, seconds)
    classes = recipe.classification(plan(Softmax()), n_rows, n_columns, 3, seconds)
    for plans in (numbers, classes):
        first, *others = plans
        assert len(plans) == 1 or first.seconds <= 1.1 * seconds
        assert len(others) < 2 or sum(plan.seconds for plan in plans) <= 1.1 * seconds
        assert sum(plan.seconds for plan in others) <= 1.1 * seconds
    assert len(numbers) > 1


def test_more_time_buys_more_members():
    found = [regression(400, 8, seconds) for seconds in (0.01, 3.0, 1000.0)]
    assert len(found[0]) == 1 < len(found[1]) < len(found[2])
    least = min(plan.seconds for plan in found[2])
    assert found[0][0].seconds <= least  # nothing fits: the cheapest


def test_costs_that_grow_with_the_rows_are_left_to_few_rows():
    assert {Exact, Vecchia, DSVI} <= schemes(regression(1000, 8, 60.0))
    assert Exact not in schemes(regression(10_000, 8, 60.0))
    assert schemes(regression(1_000_000, 8, 60.0)) == {DSVI}


@pytest.mark.parametrize(("n_rows", "n_columns"), [(60, 60), (150, 40), (2000, 20), (2000, 200)])
def test_anova_takes_part_by_its_cost_alone(n_rows, n_columns):
    plans = regression(n_rows, n_columns, recipe.budget(n_rows, None))
    has_anova = any("Anova" in repr(plan.kernel) for plan in plans)
    assert has_anova == (n_columns < 100)


@pytest.mark.parametrize("n_rows", [60, 400, 2400])
def test_cost_of_anova_counts_the_factors(n_rows):
    # a factor for each column, of the steps and of the choice of a start
    few, more, many = (recipe._anova(n_rows, n_columns) for n_columns in (10, 40, 160))
    assert 1.2 < more / few < 4.0 and 1.5 < many / more < 4.0


def test_few_rows_have_an_exact_process_rather_than_neighbors():
    def kinds(n_rows):
        plans = regression(n_rows, 36, 5.0)
        return [(type(plan.scheme), "Anova" in repr(plan.kernel)) for plan in plans]

    assert {(Exact, True), (DSVI, False), (Exact, False)} <= set(kinds(150))
    assert (Vecchia, False) in kinds(2000)


@pytest.mark.parametrize("n_columns", [5, 20, 60])
def test_neighbors_have_a_rough_kernel_too_where_they_have_many_steps(n_columns):
    def kernels(plans):
        return {
            repr(plan.kernel): plan.max_iter
            for plan in plans
            if plan.scheme.get_params() == Vecchia().get_params()
        }

    near = kernels(regression(2400, n_columns, 10.0))
    assert len(near) == 2 and set(near.values()) == {400}
    assert sum("Matern" in name for name in near) == 1
    (few,) = kernels(regression(900, n_columns, 10.0)).values()
    assert few <= 200
    given = Plan(DSVI(), HeteroscedasticStudentT(), 2, kernel="matern52")
    assert len(kernels(recipe.regression(given, 2400, n_columns, 1, True, 10.0))) <= 1


def test_a_list_of_kernels_is_for_gradient_members():
    for n_layers in (1, 2):
        given = Plan(DSVI(), HeteroscedasticStudentT(), n_layers, kernel=["matern32"] * n_layers)
        (only,) = recipe.regression(given, 400, 8, 1, True, 5.0)
        assert only.n_layers == n_layers and only.kernel == given.kernel


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_classes_have_a_process_on_all_rows_while_it_is_affordable(n_classes):
    likelihood = Bernoulli() if n_classes == 2 else Softmax()

    def kinds(n_rows, seconds):
        plans = recipe.classification(plan(likelihood), n_rows, 8, n_classes, seconds)
        return [type(plan.scheme) for plan in plans]

    assert kinds(400, 60.0) == kinds(10_000, 60.0) == [Exact, Vecchia, DSVI]
    assert Exact not in kinds(150_000, 60.0) and Exact in kinds(150_000, 3600.0)
    assert Exact not in kinds(300_000, 3600.0)  # whatever the time: it takes no more rows


@pytest.mark.parametrize("n_rows", [88, 2000, 1_000_000])
def test_time_buys_steps_of_deep_models_of_classes(n_rows):
    """And, with more rows than inducing inputs of all hidden units, a kernel for each of these."""
    found = []
    for seconds in (10.0, 25.0, 60.0, 300.0):
        plans = recipe.classification(plan(Softmax()), n_rows, 8, 3, seconds)
        found += [one for one in plans if isinstance(one.scheme, DSVI)]
    steps = [one.max_iter for one in found if one.scheme.shared_kernel]
    assert len(found) == 4 and sorted(steps) == steps and found[-1].max_iter == 1500
    assert all(one.patience for one in found)
    assert found[-1].scheme.shared_kernel == (n_rows == 88)


def test_classes_in_an_order_have_no_neighbors():
    plans = recipe.classification(plan(Ordinal()), 400, 8, 4, 60.0)
    assert schemes(plans) == {Exact, DSVI}


def test_counts_have_gradient_members_alone():
    plans = recipe.regression(plan(Poisson()), 400, 8, 1, False, 60.0)
    assert schemes(plans) == {DSVI}


@pytest.mark.parametrize("n_rows", [300, 600, 2000])
def test_little_time_is_for_exact_processes(n_rows):
    """They are cheap and strong; the deep sparse model comes if there is time left."""
    seconds = {300: 1.5, 600: 3.0, 2000: 6.0}[n_rows]
    found = schemes(regression(n_rows, 6, seconds))
    assert found & {Exact, Vecchia} and DSVI not in found


@pytest.mark.parametrize("n_columns", [5, 20])
@pytest.mark.parametrize("n_rows", [7000, 10_000, 50_000])
def test_many_rows_give_more_steps_to_deep_models_and_keep_all_members(n_rows, n_columns):
    seconds = recipe.budget(n_rows, None)
    plans = regression(n_rows, n_columns, seconds)
    assert len(plans) == 4
    (deep,) = (plan for plan in plans if isinstance(plan.scheme, DSVI))
    (more,) = (
        plan
        for plan in regression(n_rows, n_columns, 2 * seconds)
        if isinstance(plan.scheme, DSVI) and plan.n_layers == 2
    )
    assert deep.trial == 200 and 450 <= deep.max_iter
    # or fewer steps of hidden units that have a kernel each
    assert deep.max_iter < more.max_iter or (
        more.max_iter >= 1000 and not more.scheme.shared_kernel
    )
    assert deep.seconds <= 0.5 * seconds


@pytest.mark.parametrize("width", [2, 8])
def test_hidden_units_have_a_kernel_each_where_a_thousand_steps_are_affordable(width):
    wide = Plan(DSVI(), HeteroscedasticStudentT(), 2, width)
    shared = []
    for seconds in (15.0, 60.0, 120.0, 500.0):
        plans = recipe.regression(wide, 7000, 8, 1, True, seconds)
        (deep,) = (plan for plan in plans if plan.trial)
        shared.append(deep.scheme.shared_kernel)
        assert deep.scheme.shared_kernel or deep.max_iter >= 1000
    assert shared == {2: [True, False, False, False], 8: [True, True, False, False]}[width]
    assert wide.scheme.shared_kernel  # of the user, which stays as it is
