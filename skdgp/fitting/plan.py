"""Which members the default has: those whose predicted cost fits the time budget."""

from dataclasses import replace

import numpy as np
from sklearn.base import clone

from ..gp.kernels import Anova, Kernel, Linear, Matern, RationalQuadratic, SquaredExponential
from ..gp.likelihoods import ClassLikelihood, Gaussian, HeteroscedasticGaussian, Ordinal
from ..inference import DSVI, CollapsedVI, Exact, Vecchia
from ..inference.exact import kernel_of_classes
from ..inference.exact_classes import MOST_ROWS
from ..inference.rows.marginal_likelihood import MARGINAL_FACTORS
from .member import Plan

#: CPU seconds that a fit may take by default, up to so many rows: what a person waits for
_BUDGETS = ((500, 5.0), (2500, 10.0), (10_000, 20.0), (50_000, 60.0))
_SLACK = 1.1  #: times the budget is what members may cost together: predicted costs are not exact
_EXACT_ROWS = 4000  #: beyond which the covariance matrix of all rows takes too long
_EXACT_STEPS = 30  #: 50 change log densities of the suite by less than .01 in the mean
_COLLAPSED_ROWS = 1000  #: beyond which 16 such matrices take too long
#: Collapsed models: on the suite 8 draws and 60 steps are as good as 32 and 150, in a third of the time
_COLLAPSED_DRAWS, _COLLAPSED_STEPS = 8, 60
#: Steps of neighbors for each second: 200 steps in the place of 400 lose 2 nats on gas, and .3 on parkinsons.
#: Up to 1,000 rows half of them are enough: 400 in the place of 100 change log densities by -.0002 +- .005
_NEIGHBOR_STEPS, _STEPS_OF_NEIGHBORS = 40, (100, 400)
#: With many columns, neighbors have fewer steps: a second such model fits beside them, and a deep one
_FEWEST, _SHARE = 20, 0.4
#: Steps of noise and scale from the kernel of an exact process: 100 in their place change nothing on kin8nm
_SUBSET_STEPS = 20
_USUAL_COLUMNS = 100  #: beyond which distances take longer than what is done with them
#: Steps of gradients, of which a fifth follow the scores: as many are enough for tables of a few hundred rows.
#: Others get those that there is time for: 500 win .005 +- .002 nats. Beyond 2,500 rows deep models get a
#: share of the budget, up to half of it if others leave that, and if they are worth it after a trial: 700
#: steps in the place of 400 win .04 nats on kin8nm
_STEPS_OF_GRADIENTS, _TRIAL, _GRADIENT_SHARE = (250, 5000), 200, (0.35, 0.5)
#: steps from which on hidden units are worth a kernel each: on kin8nm 1,000 are .05 nats ahead of 4,000 steps
#: of a common one, which take as long, and 200 are .03 behind 700
_STEPS_OF_UNITS = 1000
#: Their step size: .01 loses .03 nats on kin8nm. Smaller budgets have .01, which is level in log density on the
#: suite, with an RMSE that is lower by .35 +- .26 %
_LEARNING_RATE = 0.03
_SHORT = 10.0  #: budgets for which deep models have 50 inducing points: 100 win .02 nats, in 6 seconds more
#: Width of their hidden layers: on the suite as good as a unit for each column, in half the time
_WIDTH = 5
_NEIGHBORS_OF_CLASSES = 24  #: classes need more neighbors than numbers: each tells one bit
#: Steps of processes on all rows: 50 random subsets of rows have told the kernel of classes
_STEPS_OF_CLASSES = 50


#: Steps of deep models of classes, and those from which on hidden units are worth a kernel each; they train
#: with a larger step size. Training ends earlier where the log density of held-out rows no longer rises
_DEEP_STEPS_OF_CLASSES, _UNIT_STEPS_OF_CLASSES, _UNIT_RATE_OF_CLASSES = (300, 1500), 400, 0.02
_PATIENCE = 4


def budget(n_rows: int, max_time: float | None) -> float:
    """CPU seconds for all members."""
    if max_time is not None:
        return max_time
    return next((seconds for rows, seconds in _BUDGETS if n_rows <= rows), _BUDGETS[-1][1])


def affordable(plans: list, seconds: float, spare=()) -> list:
    """Plans that fit in what is left, in their order: the most useful comes first.

    A mixture needs two: one alone is joined by the cheapest other or spare one, at up to half of the budget.
    """
    chosen, left = [], _SLACK * seconds
    for plan in plans:
        if plan.seconds <= left:
            chosen.append(plan)
            left -= plan.seconds
    others = [plan for plan in (*plans, *spare) if plan not in chosen]
    cheapest = min(others, key=lambda plan: plan.seconds, default=None)
    few = not chosen or (
        len(chosen) == 1 and cheapest is not None and cheapest.seconds <= 0.5 * seconds
    )
    if few and cheapest is not None:
        chosen.append(cheapest)
    return chosen


def regression(plan, n_rows, n_columns, n_outputs, free, seconds):
    """Members for real targets, in the order of their training.

    The `plan` holds what the user asks for. `free` is whether the likelihood is the recipe's choice.
    """
    noise = HeteroscedasticGaussian() if free else plan.likelihood
    real = isinstance(noise, (Gaussian, HeteroscedasticGaussian))
    given = None if plan.kernel == "auto" else plan.kernel
    if not real or (given is not None and not isinstance(given, (str, Kernel))):
        return affordable(_gradient_plans(plan, n_rows, n_columns, seconds), seconds)
    linear = Linear(bias=0.0)  # others would take many wiggles for a plane
    kernel = RationalQuadratic() + linear if given is None else given
    seconds = _without_scaling(seconds, n_columns)
    # one has this kernel's highest marginal likelihood, by way of all rows or of those near
    smooth = Plan(Vecchia(None, "subset", None), noise, kernel=kernel, max_iter=_SUBSET_STEPS)
    smooth.seconds = n_outputs * _subset(n_rows, n_columns)
    exact = n_rows <= _EXACT_ROWS and n_outputs == 1
    if exact and (cost := _exact(n_rows, n_columns)) <= smooth.seconds:
        smooth = Plan(Exact(), noise, kernel=kernel, max_iter=_EXACT_STEPS, seconds=cost)
    # of few rows it needs a fraction of the time that neighbors need, and is as good without them
    few = n_rows <= _COLLAPSED_ROWS and isinstance(smooth.scheme, Exact)
    rate = 0.5 * _NEIGHBOR_STEPS if few else _NEIGHBOR_STEPS
    steps = np.clip(rate * seconds, *_STEPS_OF_NEIGHBORS)
    steps = int(np.clip(_SHARE * seconds / _vecchia_step(n_columns), _FEWEST, steps))
    cost = _vecchia(n_rows, n_columns, steps)
    near = Plan(Vecchia(), noise, kernel=kernel, max_iter=steps, seconds=cost)
    between = []
    if given is None and not few:
        rough = Matern() + linear
        between.append(Plan(Vecchia(), noise, kernel=rough, max_iter=steps, seconds=cost))
    if exact and given is None:
        anova = Plan(Exact(), noise, kernel=Anova() + linear, max_iter=_EXACT_STEPS)
        anova.seconds = _anova(n_rows, n_columns)
        between.append(anova)
    gradient, *spare = _gradient_plans(plan, n_rows, n_columns, seconds)
    between.append(gradient)
    if n_rows <= _COLLAPSED_ROWS and plan.n_layers > 1:
        hidden = [SquaredExponential()] * (plan.n_layers - 1)
        kernels = [*hidden, RationalQuadratic() if given is None else given]
        deep = Plan(CollapsedVI(_COLLAPSED_DRAWS), noise, plan.n_layers, plan.width, kernels)
        deep.max_iter, deep.seconds = _COLLAPSED_STEPS, _collapsed(n_rows, n_columns)
        between.append(deep)
    first, last = (smooth, near) if few else (near, smooth)
    useful = [first, gradient, *(plan for plan in between if plan is not gradient), last]
    if seconds < _without_scaling(budget(n_rows, None), n_columns):
        useful.sort(key=lambda plan: plan.turn)
    chosen, order = affordable(useful, seconds, spare), [near, *between, smooth, *spare]
    if not few or seconds > _SHORT:
        _spend(chosen, seconds)
    return sorted(chosen, key=order.index)


def _spend(plans, seconds):
    """Give the seconds that are left to steps of the member with gradients of minibatches."""
    left = seconds - sum(plan.seconds for plan in plans)
    for plan in plans:
        if "batch_size" in plan.scheme.uses:
            step = plan.seconds / plan.max_iter
            more = min(left, _GRADIENT_SHARE[1] * seconds - plan.seconds) / step
            plan.max_iter = min(_STEPS_OF_GRADIENTS[1], plan.max_iter + max(0, int(more)))
            plan.seconds = plan.max_iter * step


def _gradient_plans(plan, n_rows, n_columns, seconds):
    """A deep sparse model and a shallow one, both with heavy-tailed noise of varying size."""
    short = seconds <= _SHORT
    n_inducing = plan.n_inducing or (50 if short else 100)
    least, most = _STEPS_OF_GRADIENTS
    seconds_of_least = least * _short_step(n_rows, n_columns, n_inducing)
    scheme, plans = DSVI(inner_scale=1e-5, inner_variance=1.0), []
    if plan.n_layers > 1:
        width = _WIDTH if plan.width is None and short and n_columns > _WIDTH else plan.width
        deep = Plan(scheme, plan.likelihood, plan.n_layers, width, plan.kernel, n_inducing, least)
        deep.seconds = seconds_of_least
        if not short:
            shape, share = (n_rows, n_columns, n_inducing), _GRADIENT_SHARE[0] * seconds
            n_hidden = sum(deep.widths(n_columns))
            step, of_units = _gradient_step(*shape, n_hidden), _step_of_units(*shape, n_hidden)
            if _STEPS_OF_UNITS * of_units <= share:
                step, deep.scheme = of_units, clone(scheme).set_params(shared_kernel=False)
            deep.max_iter = int(np.clip(share / step, least, most))
            deep.seconds, deep.trial = deep.max_iter * step, _TRIAL
            deep.learning_rate = _LEARNING_RATE
        plans.append(deep)
    if plan.n_layers == 1 or not isinstance(plan.kernel, (list, tuple)):
        kernel = RationalQuadratic() if plan.kernel == "auto" else plan.kernel
        shallow = Plan(scheme, plan.likelihood, 1, None, kernel, n_inducing, least)
        shallow.seconds = seconds_of_least
        plans.append(shallow)
    return plans


def classification(plan, n_rows, n_columns, n_classes, seconds):
    """Members for classes, the most useful first; parameters as of :func:`regression`."""
    n_latents = plan.likelihood.n_latents(n_classes)
    concave = isinstance(plan.likelihood, ClassLikelihood) and plan.likelihood.log_concave
    shallow = []
    if concave and not isinstance(plan.kernel, (list, tuple)):
        shallow = _shallow_classes(plan, n_rows, n_columns, n_latents)
    left = _SLACK * seconds
    left -= sum(other.seconds for other in affordable(shallow, seconds) if other.seconds <= left)
    deep = _deep_classes(plan, n_rows, n_columns, n_latents, left)
    return affordable([*shallow, deep], seconds)


def _shallow_classes(plan, n_rows, n_columns, n_latents):
    """A process on all rows and neighbors; these have neither too many rows nor classes in an order."""
    auto, plans = plan.kernel == "auto", []
    if n_rows <= MOST_ROWS:
        kernel = kernel_of_classes() if auto else plan.kernel
        exact = Plan(Exact(), plan.likelihood, kernel=kernel, max_iter=_STEPS_OF_CLASSES)
        exact.seconds = _exact_classes(n_rows, n_columns, n_latents)
        plans.append(exact)
    if not isinstance(plan.likelihood, Ordinal):
        near = Plan(Vecchia(_NEIGHBORS_OF_CLASSES), plan.likelihood, max_iter=100)
        near.kernel = RationalQuadratic() if auto else plan.kernel
        near.seconds = _vecchia(n_rows, n_columns, near.max_iter) * max(1, n_latents) ** 0.5
        plans.append(near)
    return plans


def _deep_classes(plan, n_rows, n_columns, n_latents, seconds):
    """A deep model, with as many steps as there are seconds for, and until held-out rows say stop."""
    # few rows: a start near the prior, or noisy labels are overfitted
    scheme = DSVI(inner_scale=0.1 if n_rows <= _EXACT_ROWS else 1e-5, inner_variance=1.0)
    deep = Plan(scheme, plan.likelihood, plan.n_layers, plan.width, plan.kernel)
    deep.n_inducing, deep.patience = plan.n_inducing or 100, _PATIENCE
    least, most = _DEEP_STEPS_OF_CLASSES
    step = (8e-3 + 2e-3 * n_latents) * min(1.0, 0.3 + n_rows / 1000)
    if plan.n_layers > 1:
        narrow = replace(deep, scheme=clone(scheme).set_params(shared_kernel=False))
        narrow.width = _WIDTH if plan.width is None and n_columns > _WIDTH else plan.width
        n_hidden = sum(narrow.widths(n_columns))
        of_units = 2e-3 * n_latents + _step_of_units(n_rows, n_columns, deep.n_inducing, n_hidden)
        # no more inducing inputs than rows, or few rows are overfitted
        few = n_hidden * deep.n_inducing > n_rows
        if not few and _UNIT_STEPS_OF_CLASSES * of_units <= seconds:
            deep, step = narrow, of_units
            deep.learning_rate = _UNIT_RATE_OF_CLASSES
    deep.max_iter = int(np.clip(0.999 * seconds / step, least, most))
    deep.seconds = deep.max_iter * step
    return deep


# Predicted CPU seconds of one thread: powers of the rows, fitted to the suite within a factor of two


def _without_scaling(seconds, n_columns):
    """Return the seconds left after the search for maps and warps on some hundreds of rows; at least half."""
    return max(0.5 * seconds, seconds - 2e-3 * max(0, n_columns - _USUAL_COLUMNS))


def _more_columns(n_rows, n_columns):
    """Distances in many columns, of some dozens of steps."""
    return 0.015 * max(0, n_columns - _USUAL_COLUMNS) * (min(n_rows, 1000) / 1000) ** 2


def _collapsed(n_rows, n_columns):
    return 0.8 + 32.0 * (n_rows / _COLLAPSED_ROWS) ** 2 + 8.0 * _more_columns(n_rows, n_columns)


def _exact(n_rows, n_columns):
    dense = 1.2 * (min(n_rows, 1000) / 1000) ** 2 + 1.5 * (n_rows / 2500) ** 2
    return 0.2 + dense + _more_columns(n_rows, n_columns)


def _exact_classes(n_rows, n_columns, n_latents):
    """Steps on 300 rows, and the posterior of all of them at up to 500."""
    steps = (min(n_rows, 300) / 300) ** 2 * (1.5 + 0.035 * n_columns + 0.2 * n_latents)
    return 0.3 + steps + n_rows * (8e-4 + 5e-5 * n_latents)


def _anova(n_rows, n_columns):
    """The choice of a start on 150 rows (90 evaluations), 30 steps (40) on more, and conditioning on all."""
    rows = min(n_rows, np.clip((MARGINAL_FACTORS / n_columns) ** 0.5, 400, 1000))
    start, step = _anova_step(min(n_rows, 150), n_columns), _anova_step(rows, n_columns)
    return 0.2 + 90 * start + 40 * step + (n_rows / 2500) ** 2


def _anova_step(n_rows, n_columns):
    """One evaluation: 3 ms in any case, .2 ms for a column, and 7 ns for each factor of the matrix."""
    return 3e-3 + n_columns * (2e-4 + 7e-9 * n_rows**2)


def _subset(n_rows, n_columns):
    full_scale = 0.5 + 2e-4 * n_rows  # of the inducing points, where functions are smooth
    return _exact(min(n_rows, 1000), n_columns) + 1.5 + 1e-4 * n_rows + full_scale


def _vecchia(n_rows, n_columns, steps):
    return 0.1 + steps * _vecchia_step(n_columns) + 8e-5 * n_rows


def _vecchia_step(n_columns):
    return 4e-3 + 5e-5 * n_columns + 2e-5 * max(0, n_columns - _USUAL_COLUMNS)


def _gradient_step(n_rows, n_columns, n_inducing, n_hidden):
    """One step of a minibatch of at most 1,000 rows; `n_hidden` are the units of all hidden layers."""
    size = min(n_rows, 1000) * min(n_inducing, 100)
    each = 5.5e-8 + 4e-9 * n_hidden + 6e-10 * max(0, n_columns - _USUAL_COLUMNS)
    return 1.5e-3 + size * each


def _step_of_units(n_rows, n_columns, n_inducing, n_hidden):
    """Likewise, if each hidden unit has a kernel; for eight units 41 ms, as measured."""
    size = min(n_rows, 1000) * min(n_inducing, 100)
    each = 3e-8 + 4.5e-8 * n_hidden + 6e-10 * max(0, n_columns - _USUAL_COLUMNS)
    return 1.5e-3 + size * each


def _short_step(n_rows, n_columns, n_inducing):
    """Likewise, half more than it takes: where time is short, exact processes come first."""
    size = min(n_rows, 1000) * min(n_inducing, 100)
    return 3.5e-3 + size * (1e-7 + 5e-10 * max(0, n_columns - _USUAL_COLUMNS))
