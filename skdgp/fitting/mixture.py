"""From a table of rows to a fitted mixture."""

import copy
import time
from dataclasses import replace

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning

from .._threads import at_most
from .._warnings import warn
from ..exceptions import TrainingFailed, numerical_failures
from ..parallel import divides, from_first, is_first, n_ranks, spread
from ..training.interrupts import note_interrupt
from ..training.pretraining import PreTraining
from .fitted import lower_bound
from .problem import Outcome, Problem, Progress, Trained
from .run import AT_END, Run

_LOOKED_AT = 20  #: training rows whose predictions are looked at after training
_UNLIMITED = 1e30  #: cost of steps that no clock decides on


def fit_mixture(problem: Problem, progress: Progress | None = None) -> Outcome:
    """Fit a mixture of members, one for each plan, to the rows of a table.

    Parameters
    ----------
    problem : Problem
    progress : Progress, optional

    Returns
    -------
    outcome : Outcome

    Raises
    ------
    ValueError
        If settings or rows make no sense.
    TrainingFailed
        If no member could be trained.
    """
    run = Run.of(problem)
    run.check()
    if progress is not None and is_first():
        run.progress = progress
    run.progress.begin(run.n_tasks())
    trained, interrupted, missing = _train_all(run)
    fitted = run.fitted(run.scored.weigh(trained))
    _warn_of_shortage(run, trained, interrupted, missing)
    settled, complete = False, True
    if len(run.plans) == 1:
        trainer, settings = trained[0].trainer, problem.settings
        settled = trainer.model.finished
        settled |= settings.max_iter is None and trainer.n_iter >= trainer.max_iter
        try:
            bound = lower_bound(
                trainer.model, trained[0].member, run.table, run.device, run.rng, run.budget.left
            )
            fitted = replace(fitted, lower_bound=bound)
        except KeyboardInterrupt:
            if not interrupted:
                note_interrupt()
            complete = False
    return Outcome(fitted, run.table, run.sample, settled, complete, run.budget.left)


# Training


def _train_all(run):
    """Trained members, whether Ctrl-C ended the training, and schemes that there was no time for.

    Ctrl-C is raised if there is nothing to predict with yet.
    """
    trained, errors, missing, interrupted = {}, [], [], False
    try:
        for i, outcome in enumerate(_outcomes(run)):
            if outcome is None:
                missing.append(type(run.plans[i].scheme).__name__)
            elif isinstance(outcome, Trained):
                trained[i] = outcome
                _report(run, outcome, i)
                interrupted = outcome.interrupted
            elif run.is_single:
                raise outcome
            else:
                errors.append(outcome)
                why, name = str(outcome).partition("\n")[0], type(run.plans[i].scheme).__name__
                warn(f"A member, {name}, was left out: {why}", ConvergenceWarning)
            if run.n_jobs > 1:
                members = [trained[i].member] if i in trained else []
                run.progress.block_ends(
                    lambda: run.fitted(members) if members else None,  # noqa: B023
                    i == len(run.plans) - 1,
                )
            if interrupted or from_first(lambda: run.progress.stopped):
                break
    except KeyboardInterrupt:
        if not trained:
            raise
        interrupted = True
    if not trained:
        raise errors[-1]
    return [trained[i] for i in sorted(trained)], interrupted, missing


def _outcomes(run):
    """Members in their turns: trained ones, errors, or None where no time was left."""
    if run.is_single or not (divides() or run.n_jobs > 1):
        for i in range(len(run.plans)):
            yield _attempt(run, i, needed=i == 0)
    elif divides():  # without callbacks
        of_rank, costs = copy.copy(run), [plan.seconds for plan in run.plans]
        of_rank.progress = Progress()
        yield from spread(lambda i: _attempt(of_rank, i, needed=i == 0), costs)
    else:
        tasks = (delayed(_in_worker)(run, i) for i in range(len(run.plans)))
        yield from Parallel(n_jobs=run.n_jobs, return_as="generator")(tasks)


def _in_worker(run, i):
    with at_most(run.problem.settings.n_threads or 1), torch.enable_grad():
        return _attempt(run, i, needed=i == 0)


def _attempt(run, i, needed):
    """The trained member of a plan, the error that stopped it, or None if no time is left."""
    left = run.budget.left(i)
    if left is not None and left <= run.seconds_of_step(i) and not needed:
        return None
    try:
        with numerical_failures(type(run.plans[i].scheme).__name__):
            return _train(run, i, left)
    except (TrainingFailed, MemoryError) as error:
        return error


def _train(run, i, left):
    """Train the member of a plan, and score the rows that it has not seen."""
    plan, checkpoint = run.plans[i], run.checkpoint(i)
    began, rng = time.monotonic(), np.random.RandomState(run.seed_of(i))
    if run.is_single:
        began, rng, left = run.problem.started, run.rng, run.budget.max_time
    table = run.table if run.scored.leaves_out(plan.scheme) else run.scored.rest
    held_out = run.held_out
    if held_out is None and plan.patience is not None and table is run.scored.rest:
        held_out = run.scored.held_out()
    pretraining = PreTraining(left, began)
    pretraining.skipped = checkpoint is not None and checkpoint.exists()

    def prepare(trainer, present):
        trainer.elapsed = from_first(lambda: time.monotonic() - began)
        if left is not None:
            trainer.max_time, trainer.reserve = left, AT_END * left
            trainer.model.limit(max(0.0, left - trainer.elapsed - trainer.reserve), _UNLIMITED)
        trainer.checkpoint, trainer.quiet = checkpoint, not run.is_single
        trainer.on_block = lambda stop: run.block_ends(present, stop, i)
        if run.held_out is None and held_out is not None:
            trainer.patience = plan.patience

    member, trainer = run.members.train(
        plan, table, held_out, run.seed_of(i), rng, pretraining, run.sources[i], prepare
    )
    if trainer.learned_nothing and not run.is_single:
        raise TrainingFailed("its loss was not finite, and nothing was learned.")
    model = trainer.model
    one = Trained(
        member,
        interrupted=trainer.interrupted,
        unfinished=model.unfinished,
        unsaved=trainer.unsaved,
        is_late=trainer.is_late,
    )
    if model.is_full_batch and run.n_jobs == 1:  # its posterior takes long to make again
        draws = torch.tensor(member.draws, device=run.device)
        one.member = member.holding(model.posterior(draws), run.device)
    if run.is_single:
        one.trainer = trainer
        if n_ranks() == 1:
            _check_finite(one.member, table, run.device)
        if not run.scored.scores:
            return one
    try:
        run.scored.score(one, model, trainer.rows.batch(0))
    except KeyboardInterrupt:
        note_interrupt()
        one.interrupted, one.loo, one.held_out = True, None, None
    return one


@torch.no_grad()
def _check_finite(member, table, device):
    """Raise TrainingFailed if training rows have predictions that are not finite."""
    X, *_ = table.take(slice(0, _LOOKED_AT))
    _, *moments = member.posterior(device).latent(torch.as_tensor(X, device=device))
    if not all(torch.isfinite(part).all() for part in moments):
        raise TrainingFailed(
            f"{type(member.scheme).__name__} was trained, but its predictions are not finite; look for extreme "
            "values in X, y and sample_weight, set standardize=True, or choose another kernel."
        )


# Messages


def _report(run, trained, i):
    """Say what a member of a mixture has come to."""
    if run.is_single:
        return
    if trained.unsaved is not None:
        warn(trained.unsaved, ConvergenceWarning)
    if run.problem.settings.verbose:
        record = trained.member.record
        left = sum(plan.seconds for plan in run.plans[i + 1 :])
        print(
            f"member {i + 1} of {len(run.plans)}: {type(trained.member.scheme).__name__}, "
            f"out-of-sample log density {record.log_density:.3f}, {record.seconds:.1f} CPU s; "
            f"about {left:.0f} CPU s left"
        )


def _warn_of_shortage(run, trained, interrupted, missing):
    """Warn of members that are not trained, or not to the end."""
    seconds = f"max_time={run.problem.settings.max_time} seconds were not enough"
    late = [type(one.member.scheme).__name__ for one in trained if one.is_late]
    reasons = [one.unfinished for one in trained if one.unfinished is not None]
    if not run.is_single:
        if interrupted:
            members = f"{len(trained)} of {len(run.plans)} members"
            reasons.insert(0, f"Training was interrupted; {members} predict.")
        if missing:
            listed = ", ".join(missing)
            reasons.insert(
                0,
                f"{seconds} to train {listed}, without which the mixture predicts; a smaller budget plans "
                "fewer members.",
            )
        if late:
            reasons.insert(0, f"{seconds} for all steps of {', '.join(late)}.")
    for reason in reasons:
        warn(reason, ConvergenceWarning)
