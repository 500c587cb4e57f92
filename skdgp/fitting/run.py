"""Decisions of a fit before its first member is trained."""

from dataclasses import dataclass, field, replace

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from .._warnings import warn
from ..parallel import divides, n_ranks
from ..training.budget import Budget, affordable, seconds_of
from ..training.trainer import BLOCK
from . import point_masses
from .fitted import FittedMixture
from .member import Plan
from .member_fit import MemberFit
from .problem import Problem, Progress
from .sample import TrainingSample
from .scaling import learn_scaling, of_size, warn_if_far
from .settings import seed_of
from .stacking import ScoredRows
from .table import Table
from .warm_start import warm_start_sources

AT_END = 0.05  #: fraction of the time that is kept for what follows training


@dataclass
class Run:
    """Decisions of one fit before its first member is trained."""

    problem: Problem
    device: str
    rng: np.random.RandomState
    seed: int
    table: Table
    held_out: Table | None
    sample: TrainingSample
    masses: object
    plans: list[Plan]
    sources: list
    budget: Budget
    n_jobs: int
    scored: ScoredRows | None = None
    members: MemberFit | None = None
    progress: Progress = field(default_factory=Progress)

    @classmethod
    def of(cls, problem):
        settings, task, start = problem.settings, problem.task, problem.start
        device = settings.training_device()
        rng = check_random_state(settings.random_state)
        seed = int(rng.randint(2**31 - 1))
        table, held_out = _split(problem, rng)
        whole, masses = table, None
        if problem.find_masses:
            found = point_masses.learn(table, held_out, settings, seed, problem.started)
            masses, table, held_out = found
        plans = [_for_data(plan, table, settings, task) for plan in problem.make_plans(table)]
        if held_out is not None:
            task.check(plans[0].likelihood, held_out.y)
        _scale(table, held_out, plans, problem, rng)
        n_jobs = n_ranks() if divides() else effective_n_jobs(settings.n_jobs)
        n_jobs = 1 if len(plans) == 1 else n_jobs
        costs = [plan.seconds for plan in plans]
        budget = Budget(settings.max_time, problem.started, costs, n_jobs)
        if len(plans) == 1:
            table = _affordable(table, plans[0], problem, device, seed)
        last = [] if start.last is None else start.last.members
        sample = TrainingSample(whole.X, whole.weights, n_columns=task.n_columns)
        table.x_scaler = table.x_scaler.with_rows(sample.rows)
        run = cls(
            problem,
            device,
            rng,
            seed,
            table,
            held_out,
            sample,
            masses,
            plans,
            warm_start_sources(plans, last),
            budget,
            n_jobs,
        )
        run.scored = ScoredRows(table, plans, task.labels(table), device, seed)
        run.members = MemberFit(settings, task, device, start, len(plans) > 1, problem.read)
        return run

    @property
    def is_single(self):
        return len(self.plans) == 1

    def __getstate__(self):  # processes of their own cannot reach what watches
        return {**self.__dict__, "progress": Progress()}

    def seed_of(self, i):
        return seed_of(self.seed, i, len(self.plans))

    def checkpoint(self, i):
        tables, problem = (self.table, self.held_out), self.problem
        return problem.settings.checkpoint_of(i, self.seed_of(i), problem.start, tables)

    def n_steps(self, plan):
        return (
            self.problem.settings.max_iter or plan.max_iter or plan.scheme.max_iter(len(self.table))
        )

    def seconds_of_step(self, i):
        """Predicted seconds of one step, during which nothing can be stopped."""
        scheme, n = self.plans[i].scheme, len(self.table)
        n_inducing = self.plans[i].n_inducing or scheme.n_inducing(n, self.problem.task.n_classes)
        return seconds_of(scheme, n, int(n_inducing), self.device)

    def n_tasks(self):
        """Number of blocks that the progress is told of."""
        if self.n_jobs > 1:
            return len(self.plans)
        return sum(-(-self.n_steps(plan) // BLOCK) for plan in self.plans)

    def check(self):
        """Build all members of a mixture and open their checkpoints: what fails is the user's error."""
        for i, plan in enumerate(self.plans):
            checkpoint = self.checkpoint(i)
            if checkpoint is not None:
                checkpoint.check()
            if not self.is_single:
                rng = np.random.RandomState(0)
                self.members.member(plan, self.table, rng, self.sources[i]).build()

    def fitted(self, members):
        n_columns = self.problem.task.n_columns
        return FittedMixture.of(members, self.table, self.device, n_columns, masses=self.masses)

    def block_ends(self, present, stop, i):
        last = stop and i == len(self.plans) - 1
        return self.progress.block_ends(lambda: self.fitted([present()]), last)


def _split(problem, rng):
    """Rows to train on and, held out from them, rows that stop the training or None."""
    table, held_out, settings = problem.table, problem.held_out, problem.settings
    if held_out is not None or not settings.early_stopping:
        return table, held_out
    if len(table) < 2:
        raise ValueError(
            "early_stopping=True holds rows out, and needs at least 2 distinct ones; got 1 sample."
        )
    return table.split(settings.validation_fraction, rng, problem.task.labels(table))


def _for_data(plan, table, settings, task):
    """The plan with what its scheme and its noise derive from the number of rows."""
    scheme = plan.scheme.for_data(len(table), task.n_classes, settings.max_iter, plan.likelihood)
    plan = replace(plan, scheme=scheme)
    if len(table) == 1 and table.weights[0] <= 1.0:
        size = float(np.nanmax(np.abs(table.y))) or 1.0
        plan = replace(plan, likelihood=of_size(plan.likelihood, size))
    return plan


def _scale(table, held_out, plans, problem, rng):
    """Learn the scaling of a table, or go on with that of the last fit."""
    last, given, likelihood = problem.start.last, problem.start.given, plans[0].likelihood
    if last is None:
        others = [] if held_out is None else [held_out]
        has_effects = any(plan.scheme.has_effects for plan in plans)
        more = others, problem.task.names, has_effects
        learn_scaling(table, likelihood, problem.settings, given, rng, *more)
    else:
        table.scale_as(last.x_scaler, last.y_scaler.widened(table.y))
        warn_if_far(table)
    if held_out is not None:
        held_out.scale_as(table.x_scaler, table.y_scaler)


def _affordable(table, plan, problem, device, seed):
    """The rows of which a single step fits into `max_time` at the reference speed.

    Fewer inducing points may do, too; they are set in the plan.
    """
    settings, n = problem.settings, len(table)
    if settings.max_time is None:
        return table
    n_inducing = plan.n_inducing or plan.scheme.n_inducing(n, problem.task.n_classes)
    n_inducing = min(n, int(n_inducing))
    is_free = plan.n_inducing is None and not problem.start.members
    seconds = (1.0 - AT_END) * settings.max_time
    fewer, points = affordable(plan.scheme, seconds, n, n_inducing, is_free, device)
    if (fewer, points) == (n, n_inducing):
        return table
    plan.n_inducing = points
    few = f"{points} of {n_inducing} inducing points" if fewer == n else f"{fewer} of {n} rows"
    warn(
        f"max_time={settings.max_time} seconds are enough for {few} with {type(plan.scheme).__name__}, and "
        "it is trained on these; raise max_time for all, or choose another scheme.",
        ConvergenceWarning,
    )
    if fewer == n:
        return table
    return table.part(np.sort(np.random.default_rng(seed).choice(n, fewer, replace=False)))
