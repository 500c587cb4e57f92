"""The recipe: the members of the default, and the steps that a budget of predicted seconds buys them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.base import clone

from ..gp.kernels import Anova, Kernel, Linear, Matern, RationalQuadratic, SquaredExponential
from ..gp.likelihoods import ClassLikelihood, Gaussian, HeteroscedasticGaussian, Ordinal
from ..inference import DSVI, CollapsedVI, Exact, Vecchia
from ..inference.exact import kernel_of_classes
from ..inference.exact_classes import MOST_INDUCING, MOST_ROWS, SUBSET_ROWS
from ..inference.rows.marginal_likelihood import MARGINAL_FACTORS, MARGINAL_ROWS
from ..inference.rows.near_rows import size_of_row
from ..inference.vecchia.neighbors import rows_of_step
from ..optim.lbfgs import STEPS
from .member import Plan

# Budgets: predicted CPU seconds of one thread

_SECONDS = 5.0  #: up to 500 rows; they grow with the root of the rows beyond
_LONGEST = 60.0  #: whatever the number of rows
_LARGER = 4.0  #: "large" has so many times the seconds of "default", and that so many times those of "small"
_SLACK = 1.1  #: times the budget is what members may cost together, for predictions are not exact

# Members for numbers

_FEW_ROWS = 1000  #: beyond which there is a nearest-neighbor model
EXACT_ROWS = 4000  #: beyond which the covariance matrix of all rows takes too long
_EVALUATIONS = 40  #: that the steps of exact processes take
_NEIGHBOR_STEPS = 400  #: fewer lose where rows repeat
_SUBSET_STEPS = 20  #: of noise and local scale, when the kernel is that of an exact process
_INDUCING = 300  #: inducing points of full-scale approximations
_DEEP_STEPS = 150  #: of the deep member at least, and at most so many for each `_MINIBATCH` of rows
_STEPS_ALONE = 250  #: likewise where no exact process takes part
_DEEP_INDUCING, _DEEP_WIDTH = 50, 5  #: its inducing points, and the most units of a hidden layer
_COLLAPSED_STEPS, _COLLAPSED_DRAWS = 60, 8  #: of the collapsed member

# Members for classes

_NEAR_STEPS = 100  #: of the nearest-neighbor model
_NEIGHBORS_OF_CLASSES = 24  #: classes need more neighbors than numbers: each tells one bit
#: Steps of processes on all rows, each on a random subset of 300, and the share of the seconds for them
_STEPS_OF_CLASSES, _EXACT_SHARE = (50, 150), 1 / 3

#: Steps of deep models of classes, and their step size. Training ends earlier where the log density of held-out
#: rows no longer rises
_DEEP_STEPS_OF_CLASSES, _RATE_OF_CLASSES = (400, 1500), 0.02
_PATIENCE = 4  #: blocks of steps without a better one

# Costs: operations are counted, and have one speed

_SPEED = 5e10  #: operations of matrix products per second and thread
_STEP = 4e-3  #: seconds that a step takes in any case
_ENTRY = 350  #: operations that take as long as one entry of a covariance matrix
_DISTANCE = 20  #: likewise, of one column of a distance
_MINIBATCH = 1000  #: rows of a step of the deep member
#: of a posterior of classes, and of expectations in steps and after them
_ROUNDS, _NODES = 10, (64, 256)


def seconds_of(budget: str | float, n_rows: int) -> float:
    """Predicted CPU seconds that a budget stands for."""
    factors = {"small": 1.0 / _LARGER, "default": 1.0, "large": _LARGER}
    if budget not in factors:
        return float(budget)
    grown = _SECONDS * max(1.0, n_rows / 500) ** 0.5
    return factors[budget] * min(grown, _LONGEST)


def affordable(plans: list[Plan], seconds: float) -> list[Plan]:
    """Plans that fit in what is left, the most useful first; at least the cheapest of all."""
    chosen, left = [], _SLACK * seconds
    for plan in plans:
        if plan.seconds <= left:
            chosen.append(plan)
            left -= plan.seconds
    return chosen or sorted(plans, key=lambda plan: plan.seconds)[:1]


def regression(plan, n_rows, n_columns, n_outputs, free, seconds):
    """Members for real targets, as far as there are `seconds` for them.

    The `plan` holds what the user asks for. `free` is whether the likelihood is the recipe's choice.

    ==============  ==================  ====================  ============  ============================
    rows            Matern              rational quadratic    ANOVA         deep
    ==============  ==================  ====================  ============  ============================
    up to 1,000                         exact                 exact         sparse; collapsed if it fits
    up to 4,000     nearest neighbors   exact                 exact         sparse
    more            nearest neighbors   full-scale            full-scale    sparse
    ==============  ==================  ====================  ============  ============================
    """
    noise = HeteroscedasticGaussian() if free else plan.likelihood
    deep, shape = _deep(plan, n_columns), (n_rows, n_columns)
    given = None if plan.kernel == "auto" else plan.kernel
    real = isinstance(noise, (Gaussian, HeteroscedasticGaussian))
    if given is not None and not isinstance(given, (str, Kernel)):
        return [_with_steps(deep, shape, seconds, alone=True)]
    if not real:
        return _sparse(plan, deep, shape, seconds)
    linear = Linear(bias=0.0)  # others would take many wiggles for a plane
    smooth, rough = RationalQuadratic() + linear, Matern() + linear
    plans = []
    if n_rows > _FEW_ROWS or n_outputs > 1:
        near = Plan(Vecchia(), noise, kernel=given or rough, max_iter=_NEIGHBOR_STEPS)
        near.seconds = _neighbors(shape, _NEIGHBOR_STEPS)
        plans.append(near)
    if n_outputs == 1:
        plans.append(_of_all_rows(given or smooth, noise, shape, _ENTRY + _DISTANCE * n_columns))
    alone = n_outputs > 1
    plans.insert(1, _with_steps(deep, shape, 0.0, alone))
    if n_outputs == 1 and given is None:
        plans.insert(2, _of_all_rows(Anova() + linear, noise, shape, _ENTRY * n_columns))
    if n_outputs == 1 and n_rows <= _FEW_ROWS and plan.n_layers > 1:
        plans.append(_collapsed(plan, noise, given or RationalQuadratic(), n_rows))
    return _with_rest(plans, plans[1], shape, seconds, alone)


def _sparse(plan, deep, shape, seconds):
    """The deep member and a shallow one, for noise without closed forms."""
    plans = [_with_steps(deep, shape, 0.0, alone=True)]
    if plan.n_layers > 1:
        shallow = _deep(replace(plan, n_layers=1, width=None), shape[1])
        plans.append(_with_steps(shallow, shape, 0.0, alone=True))
    return _with_rest(plans, plans[0], shape, seconds, alone=True)


def _with_rest(plans, deep, shape, seconds, alone):
    """Affordable plans, of which the deep one has the seconds that are left."""
    chosen = affordable(plans, seconds)
    left = seconds - sum(plan.seconds for plan in chosen if plan is not deep)
    trained = _with_steps(deep, shape, left, alone)
    return [trained if plan is deep else plan for plan in chosen]


def _of_all_rows(kernel, noise, shape, of_entry):
    """An exact process, or beyond some thousand rows a full-scale approximation, with this kernel.

    An entry of its covariance matrix takes `of_entry` operations.
    """
    n_rows, _ = shape
    trained = min(
        n_rows, float(np.clip((MARGINAL_FACTORS * _ENTRY / of_entry) ** 0.5, *MARGINAL_ROWS))
    )
    training = _EVALUATIONS * (trained**3 + trained**2 * of_entry) / _SPEED
    if n_rows <= EXACT_ROWS:
        exact = Plan(Exact(), noise, kernel=kernel, max_iter=STEPS)
        exact.seconds = training + (n_rows**3 + n_rows**2 * of_entry) / _SPEED
        return exact
    scheme = Vecchia(start="subset", full_scale=_INDUCING)
    sparse = Plan(scheme, noise, kernel=kernel, max_iter=_SUBSET_STEPS)
    inducing = 3.0 * n_rows * _INDUCING * (of_entry + _INDUCING)
    sparse.seconds = training + inducing / _SPEED + _neighbors(shape, _SUBSET_STEPS)
    return sparse


def _neighbors(shape, steps):
    """Seconds of steps of nearest neighbors, and of finding those of all rows."""
    n_rows, n_columns = shape
    return steps * (1.0 + n_columns / 100) * _STEP + 0.02 * n_rows * _STEP


def _deep(plan, n_columns):
    """The deep member, which is shallow if the user asks for one layer."""
    scheme = DSVI(inner_scale=1e-5, inner_variance=1.0)
    deep = replace(plan, scheme=scheme, n_inducing=plan.n_inducing or _DEEP_INDUCING)
    if plan.n_layers == 1 and plan.kernel == "auto":
        deep.kernel = RationalQuadratic()
    if plan.n_layers > 1 and plan.width is None:
        deep.width = min(_DEEP_WIDTH, n_columns)
    return deep


def _collapsed(plan, noise, kernel, n_rows):
    """A deep member whose last layer is exact, given draws of the hidden ones."""
    kernels = [*[SquaredExponential()] * (plan.n_layers - 1), kernel]
    scheme = CollapsedVI(_COLLAPSED_DRAWS)
    made = replace(plan, scheme=scheme, likelihood=noise, kernel=kernels, n_inducing=None)
    made.max_iter = _COLLAPSED_STEPS
    matrices = _COLLAPSED_DRAWS * (n_rows**3 + 3.0 * n_rows**2 * _ENTRY)
    made.seconds = 1.3 * _COLLAPSED_STEPS * (2.5 * _STEP + matrices / _SPEED)
    return made


def _with_steps(deep, shape, seconds, alone):
    """The deep member, with as many steps as there are seconds for, within its limits."""
    n_rows, n_columns = shape
    step = _deep_step(n_rows, deep.n_inducing, 8.0 + 0.6 * sum(deep.widths(n_columns)))
    least = _STEPS_ALONE if alone else _DEEP_STEPS
    steps = int(np.clip(seconds / step, least, least * max(1.0, n_rows / _MINIBATCH)))
    return replace(deep, scheme=clone(deep.scheme), max_iter=steps, seconds=steps * step)


def _deep_step(n_rows, n_inducing, matrices):
    """Seconds of one step, which takes as long as so many covariance matrices of a minibatch."""
    entries = min(n_rows, _MINIBATCH) * min(n_rows, n_inducing)
    return 0.5 * _STEP + entries * matrices * _ENTRY / _SPEED


def classification(plan, n_rows, n_columns, n_classes, seconds):
    """Members for classes, the most useful first; parameters as of :func:`regression`."""
    shape, n_latents = (n_rows, n_columns), plan.likelihood.n_latents(n_classes)
    concave = isinstance(plan.likelihood, ClassLikelihood) and plan.likelihood.log_concave
    shallow = []
    if concave and not isinstance(plan.kernel, (list, tuple)):
        shallow = _shallow_classes(plan, shape, n_latents, seconds)
    left = _SLACK * seconds
    left -= sum(other.seconds for other in affordable(shallow, seconds) if other.seconds <= left)
    return affordable([*shallow, _deep_classes(plan, shape, n_latents, left)], seconds)


def _shallow_classes(plan, shape, n_latents, seconds):
    """Neighbors and a process on all rows; these have no classes in an order, and not too many rows."""
    auto, plans, (n_rows, n_columns) = plan.kernel == "auto", [], shape
    if not isinstance(plan.likelihood, Ordinal):
        near = neighbors_of_classes(plan.likelihood, None if auto else plan.kernel)
        size = size_of_row(n_latents, _NEIGHBORS_OF_CLASSES)
        matrices = 3.0 * _NEAR_STEPS * rows_of_step(size) * size  # there and back
        near.seconds = _neighbors(shape, _NEAR_STEPS) + matrices * _ENTRY / _SPEED
        plans.append(near)
    if n_rows <= MOST_ROWS:
        kernel = kernel_of_classes() if auto else plan.kernel
        few, many = min(n_rows, SUBSET_ROWS), min(n_rows, MOST_INDUCING)
        step = _STEP + _best_gaussian((few, n_columns), few, n_latents * _NODES[0], n_latents)
        rest = _best_gaussian(shape, many, n_latents * _NODES[1], n_latents)
        steps = int(np.clip((_EXACT_SHARE * seconds - rest) / step, *_STEPS_OF_CLASSES))
        exact = Plan(Exact(), plan.likelihood, kernel=kernel, max_iter=steps)
        exact.seconds = steps * step + rest
        plans.append(exact)
    return plans


def neighbors_of_classes(likelihood, kernel=None):
    """A nearest-neighbor model of classes."""
    scheme = Vecchia(_NEIGHBORS_OF_CLASSES)
    return Plan(scheme, likelihood, kernel=kernel or RationalQuadratic(), max_iter=_NEAR_STEPS)


def _best_gaussian(shape, n_inducing, n_nodes, n_latents):
    """Seconds of a posterior of classes that some of the rows represent."""
    n_rows, n_columns = shape
    entries = n_rows * (n_inducing * n_columns + _ROUNDS * n_nodes)
    products = 4.0 * n_rows * n_inducing * (n_inducing + 5.0 * n_latents) + 2.0 * n_inducing**3
    return (entries * _ENTRY + _ROUNDS * products) / _SPEED


def _deep_classes(plan, shape, n_latents, seconds):
    """A deep model with a kernel for each hidden unit.

    It has the steps that there are seconds for, and stops early by held-out rows.
    """
    n_rows, n_columns = shape
    # few rows: a start near the prior, or noisy labels are overfitted
    scale = 0.1 if n_rows <= EXACT_ROWS else 1e-5
    scheme = DSVI(inner_scale=scale, inner_variance=1.0, shared_kernel=False)
    deep = replace(plan, scheme=scheme, patience=_PATIENCE, learning_rate=_RATE_OF_CLASSES)
    if plan.n_layers > 1 and plan.width is None:
        deep.width = min(_DEEP_WIDTH, n_columns)
    n_hidden, batch = sum(deep.widths(n_columns)), min(n_rows, _MINIBATCH)
    # units together have no more inducing inputs than rows, or few rows are overfitted
    deep.n_inducing = M = plan.n_inducing or min(100, -(-n_rows // max(1, n_hidden)))
    of_latents = n_latents * (batch * (_NODES[0] * _ENTRY + 4.0 * M**2) + 10.0 * M**3) / _SPEED
    step = of_latents + _deep_step(n_rows, M, 8.0 + 6.0 * n_hidden)
    deep.max_iter = int(np.clip(0.999 * seconds / step, *_DEEP_STEPS_OF_CLASSES))
    deep.seconds = deep.max_iter * step
    return deep
