"""From data to a fitted mixture: members train one after another or side by side, then get their weights."""

import copy
import time

import numpy as np
import torch
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from .._threads import at_most
from .._warnings import warn
from ..estimators._sklearn import no_progress, without_callbacks
from ..estimators.diagnostics import warn_of_chains, warn_of_pathologies
from ..estimators.importances import compute_if_cheap
from ..estimators.summary import kept_table
from ..estimators.targets import of_size
from ..exceptions import TrainingFailed, numerical_failures
from ..parallel import divides, from_first, is_first, n_ranks, spread
from ..training.budget import Budget, affordable, seconds_of_cube
from ..training.checkpoint import Checkpoint, fingerprint
from ..training.interrupts import note_interrupt
from ..training.pretraining import PreTraining
from ..training.trainer import BLOCK
from .fitted_state import (
    Result,
    Trained,
    fitted_attributes,
    keep,
    lower_bound,
    warn_of_shortage,
)
from .member_fit import MemberFit, training_device
from .stacking import ScoredRows
from .warm_start import check_lasting, init_source, scale, warm_start_sources, warn_if_far

_AT_END = 0.05  #: share of the time that is kept for it, and for the diagnosis
_HARDLY_TRAINED = 0.1  #: share of the steps, below which members are their starts rather
#: share of the steps, the last ones, in which members that have been scored by held-out rows see these, too:
#: the suite's CRPS falls by .2 +- .1 %
_ON_ALL_ROWS = 0.2


def fit_estimator(estimator, data, held_out, progress, started):
    """Train all members, and set the fitted attributes.

    Rows `held_out` stop the training, or None; ``progress(n_tasks=n)`` makes a :class:`FitProgress`.
    """
    fit = MixtureFit(estimator, data, held_out, progress, started)
    result, found = fit.run(), {}

    def set_fitted():
        fitted = fit.attributes(fit.scored.weigh(result.trained))
        vars(estimator).pop("_stream", None)
        keep(estimator, {**fitted, **found}, fit.whole)

    try:
        set_fitted()
        warn_of_shortage(result, len(fit.plans), fit.budget.max_time)
        if fit.is_single:
            (one,), trainer = result.trained, result.trained[0].trainer
            bound = lower_bound(
                trainer.model, one.member, fit.data, fit.device, fit.rng, fit.budget.left
            )
            if bound is not None:
                found["lower_bound_"] = estimator.lower_bound_ = bound
            warn_of_chains(estimator, fit.data)
            free = estimator.max_iter is None
            settled = trainer.model.finished or (free and trainer.n_iter >= trainer.max_iter)
        warn_of_pathologies(estimator, fit.data, fit.is_single and settled)
        kept_table(estimator)
        compute_if_cheap(estimator, time.monotonic() - started, fit.budget.left())
        fit.progress.end(lambda: fit.attributes(estimator.members_))
    except KeyboardInterrupt:
        if not result.interrupted:
            note_interrupt()
        set_fitted()
        warn(
            "fit was interrupted after training; the model is trained, but lower_bound_ and the diagnosis "
            "may be missing.",
            ConvergenceWarning,
        )


class MixtureFit:
    """All that one call of ``fit`` decides before the first member trains, and their training."""

    def __init__(self, estimator, data, held_out, progress, started):
        self.estimator, self.started = without_callbacks(estimator), started
        self.device = training_device(estimator.device, estimator.dtype)
        self.rng = check_random_state(estimator.random_state)
        self.seed = int(self.rng.randint(2**31 - 1))
        if held_out is None and estimator.early_stopping:
            if len(data) < 2:
                raise ValueError(
                    "early_stopping=True holds rows out, and needs at least 2 distinct ones; got 1 sample."
                )
            labels = self._labels(data)
            data, held_out = data.split(estimator.validation_fraction, self.rng, labels)
        old = estimator.members_ if estimator.warm_start and estimator._is_fitted() else None
        if old is not None:
            check_lasting(estimator)
        self.whole = data
        self.atoms, data, held_out = estimator._atoms_of(data, held_out, self.seed, started)
        self.plans = estimator._plans(data)
        self.is_single = len(self.plans) == 1
        for plan in self.plans:
            plan.scheme = plan.scheme.for_data(
                len(data), estimator._n_classes(), estimator.max_iter, plan.likelihood
            )
            if len(data) == 1 and data.weights[0] <= 1.0:
                plan.likelihood = of_size(plan.likelihood, max(1.0, float(np.abs(data.y).max())))
        likelihood = self.plans[0].likelihood
        if held_out is not None:
            estimator._check_likelihood(likelihood, held_out.y)
        source = init_source(estimator) if old is None else None
        if old is None:
            others = [] if held_out is None else [held_out]
            scale(estimator, data, likelihood, source, self.rng, others)
        else:
            data.scale_as(estimator._x_scaler, estimator._y_scaler.widened(data.y))
            warn_if_far(data)
        if held_out is not None:
            held_out.scale_as(data.x_scaler, data.y_scaler)
        self.states = old or (() if source is None else source.members_)
        self.sources = warm_start_sources(self.plans, old or ())
        self.fit = MemberFit(self.estimator, self.device, source, not self.is_single)
        n_jobs = n_ranks() if divides() else effective_n_jobs(estimator.n_jobs)
        self.n_jobs = 1 if self.is_single else n_jobs
        costs, self.turns = [plan.seconds for plan in self.plans], list(range(len(self.plans)))
        if estimator.max_time is not None and not divides():  # what it is enough for comes first
            self.turns.sort(key=lambda i: self.plans[i].turn)
        self.turns.sort(key=lambda i: self.plans[i].trial is not None)
        self.budget = Budget(estimator.max_time, started, costs, self.n_jobs, self.turns)
        self.data, self.held_out = self._affordable(data), held_out
        labels = self._labels(self.data)
        self.scored = ScoredRows(self.data, self.plans, labels, self.device, self.seed)
        self._check_all()
        n_tasks = len(self.plans)
        if self.n_jobs == 1:
            n_tasks = sum(-(-n // BLOCK) for plan in self.plans for n in self._n_steps_of(plan))
        self.progress = progress(n_tasks=n_tasks) if is_first() else no_progress()

    def _labels(self, data):
        """Classes of the rows, or None."""
        return None if self.estimator._n_classes() is None else data.y[:, 0]

    def _n_steps(self, plan):
        return self.estimator.max_iter or plan.max_iter or plan.scheme.max_iter(len(self.data))

    def _n_steps_of(self, plan):
        """Steps of a member without the rows that are held out, and then with them."""
        total = self._n_steps(plan)
        held_out = self.scored.held is not None and not plan.scheme.leaves_one_out
        last = round(_ON_ALL_ROWS * total) if held_out and "batch_size" in plan.scheme.uses else 0
        return total - last, last

    def _affordable(self, data):
        """The rows for which a single model has time; fewer inducing points may do, too."""
        self.unit = None
        if self.budget.max_time is None:
            return data
        self.unit = from_first(lambda: seconds_of_cube(self.device))
        if not self.is_single:
            return data
        (plan,), n = self.plans, len(data)
        n_inducing = self._n_inducing(plan, n)
        cubes = (1.0 - _AT_END) * self.budget.for_training() / self.unit
        is_free = plan.n_inducing is None and not self.states
        fewer, points = affordable(plan.scheme, cubes, n, n_inducing, is_free)
        if (fewer, points) == (n, n_inducing):
            return data
        plan.n_inducing = points
        if fewer < n:
            rows = np.sort(np.random.default_rng(self.seed).choice(n, fewer, replace=False))
            data = data.part(rows)
        few = f"{points} of {n_inducing} inducing points" if fewer == n else f"{fewer} of {n} rows"
        warn(
            f"max_time={self.budget.max_time} seconds are enough for {few} with "
            f"{type(plan.scheme).__name__}, and it is trained on these; raise max_time for all, or choose "
            "another scheme.",
            ConvergenceWarning,
        )
        return data

    def _n_inducing(self, plan, n):
        n_classes = self.estimator._n_classes()
        return min(n, int(plan.n_inducing or plan.scheme.n_inducing(n, n_classes)))

    def _check_all(self):
        """Build all members of a mixture and open their checkpoints: what fails is the user's error."""
        for i, plan in enumerate(self.plans):
            checkpoint = self._checkpoint(i, self._seed(i))
            if checkpoint is not None:
                checkpoint.check()
            if not self.is_single:
                rng = np.random.RandomState(0)
                self.fit.member(plan, self.data, rng, self.sources[i]).build()

    # Training

    def run(self):
        """Train all members; Ctrl-C is raised if there is nothing to predict with yet."""
        trained, errors, late, interrupted = {}, [], [], False
        alone = self.is_single or not (divides() or self.n_jobs > 1)
        outcomes = map(self._attempt, self.turns) if alone else self._side_by_side()
        try:
            for i, outcome in zip(self.turns, outcomes):
                if outcome is None:
                    late.append(i)
                elif isinstance(outcome, Trained):
                    trained[i] = outcome
                    self.scored.note(outcome)
                    if outcome.unsaved is not None and not self.is_single:  # which has said it
                        warn(outcome.unsaved, ConvergenceWarning)
                    self._print_line(outcome, i)
                    interrupted = outcome.interrupted
                elif self.is_single:
                    raise outcome
                else:
                    errors.append(outcome)
                    why, name = str(outcome).partition("\n")[0], type(self.plans[i].scheme).__name__
                    warn(f"A member, {name}, was left out: {why}", ConvergenceWarning)
                if self.n_jobs > 1:
                    members = [trained[i].member] if i in trained else []
                    self.progress.block_ends(
                        lambda: self.attributes(members) if members else None,  # noqa: B023
                        i == self.turns[-1],
                    )
                if interrupted or from_first(lambda: self.progress.stopped):
                    break
        except KeyboardInterrupt:
            if not trained:
                raise
            interrupted = True
        if not trained and late:  # one member has to predict
            cheapest = min(late, key=lambda i: self.plans[i].seconds)
            outcome = self._attempt(cheapest, needed=True)
            if isinstance(outcome, Exception):
                raise outcome
            trained[cheapest] = outcome
            late.remove(cheapest)
        if not trained:
            raise errors[-1]
        trained = [trained[i] for i in sorted(trained)]
        learned = [one for one in trained if one.progress >= _HARDLY_TRAINED] or trained
        no_time = [one.member.scheme for one in trained if one not in learned]
        no_time += [self.plans[i].scheme for i in late]
        return Result(learned, interrupted, [type(scheme).__name__ for scheme in no_time])

    def _side_by_side(self):
        """Outcomes of other processes, or of ranks, without callbacks; members with a trial wait."""
        of_rank = copy.copy(self)
        for waits in (False, True):
            wave = [i for i in self.turns if (self.plans[i].trial is not None) == waits]
            if divides():
                costs = [self.plans[i].seconds for i in wave]
                yield from spread(lambda j: of_rank._attempt(wave[j]), costs)  # noqa: B023
            else:
                tasks = (delayed(_in_worker)(self, i) for i in wave)
                yield from Parallel(n_jobs=self.n_jobs, return_as="generator")(tasks)

    def __getstate__(self):
        return {**self.__dict__, "progress": no_progress()}

    def _print_line(self, result, i):
        """One line for a member of a mixture."""
        if self.estimator.verbose and not self.is_single:
            record, turn = result.member.record, self.turns.index(i) + 1
            left = sum(self.plans[later].seconds for later in self.turns[turn:])
            print(
                f"member {turn} of {len(self.plans)}: {type(result.member.scheme).__name__}, "
                f"out-of-sample log density {record.log_density:.3f}, {record.seconds:.1f} CPU s; "
                f"about {left:.0f} CPU s left"
            )

    def _attempt(self, i, needed=False):
        """The trained member of a plan, the error that stopped it, or None if there is no time left."""
        left = self.budget.left(i)
        if left is not None and not (needed or self.is_single) and self._is_short(i, left):
            return None
        try:
            with numerical_failures(type(self.plans[i].scheme).__name__):
                return self._train(i, left)
        except (TrainingFailed, MemoryError) as error:
            return error

    def _is_short(self, i, left):
        """Whether a member would hardly be trained in these seconds."""
        plan, n = self.plans[i], len(self.data)
        step, at_end = plan.scheme.cubes(n, self._n_inducing(plan, n))
        fewest = _HARDLY_TRAINED * self._n_steps(plan)
        return left <= 0.0 or (fewest * step + at_end) * self.unit > left

    def _train(self, i, left):
        """Train the member of a plan, and score the rows that it has not seen."""
        plan, seed = self.plans[i], self._seed(i)
        began, rng = time.monotonic(), np.random.RandomState(seed)
        if self.is_single:
            began, rng, left = self.started, self.rng, self.budget.max_time
        data = self.data if plan.scheme.leaves_one_out else self.scored.rest
        (n_first, n_last), checkpoint = self._n_steps_of(plan), self._checkpoint(i, seed)
        pretraining = PreTraining(left, began)
        pretraining.skipped = checkpoint is not None and checkpoint.exists()

        def prepare(trainer, present):
            trainer.max_iter = n_first
            trainer.elapsed = from_first(lambda: time.monotonic() - began)
            if left is not None:
                _, at_end = plan.scheme.cubes(len(data), self._n_inducing(plan, len(data)))
                trainer.max_time = left * n_first / (n_first + n_last)
                trainer.reserve = _AT_END * left + at_end * self.unit
                seconds = max(0.0, left - trainer.elapsed - trainer.reserve)
                trainer.model.limit(seconds, seconds / self.unit)
            trainer.checkpoint, trainer.quiet = checkpoint, not self.is_single
            trainer.on_block = lambda stop: (
                self._block_ends(present, stop and n_last == 0, i)
                or (trainer.n_iter == plan.trial and self.scored.hardly_counts(present()))
            )

        member, trainer = self.fit.train(
            plan, data, self.held_out, seed, rng, pretraining, self.sources[i], prepare
        )
        if trainer.learned_nothing and not self.is_single:
            raise TrainingFailed("its loss was not finite, and nothing was learned.")
        model = trainer.model
        result = Trained(member, interrupted=trainer.interrupted, unfinished=model.unfinished)
        result.unsaved = trainer.unsaved
        if trainer.is_late:
            result.progress = trainer.n_iter / trainer.max_iter
        if self.is_single:
            result.trainer = trainer
            if model.is_full_batch:  # what it is conditioned on takes long to find again
                draws = torch.tensor(member.draws, device=self.device)
                result.member = member.holding(model.posterior(draws), self.device)
            return result
        try:
            self.scored.score(result, model, trainer.rows.batch(0))
        except KeyboardInterrupt:
            note_interrupt()
            result.interrupted, result.loo, result.held_out = True, None, None
        n_last = min(n_last, round(trainer.n_iter * _ON_ALL_ROWS / (1.0 - _ON_ALL_ROWS)))
        if n_last and not (result.interrupted or self.progress.stopped):
            seconds = None if left is None else (1.0 - _AT_END) * left + began - time.monotonic()
            self._see_all_rows(result, model, i, n_last, seconds)
        return result

    def _see_all_rows(self, result, model, i, n_steps, seconds):
        """Train a scored member further, with the rows that were held out; its scores stay."""
        trainer = self.fit.trainer(model, self.plans[i], self.data, self._seed(i) + 1)

        def prepare(trainer, present):
            trainer.max_iter, trainer.max_time, trainer.quiet = n_steps, seconds, True
            trainer.on_block = lambda stop: self._block_ends(present, stop, i)

        if seconds is None or seconds > 0.0:
            name = type(self.plans[i].scheme).__name__
            try:
                with numerical_failures(name):
                    result.member, _ = self.fit.run(result.member, trainer, self.held_out, prepare)
            except KeyboardInterrupt:  # before the first step
                trainer.interrupted = True
            except (TrainingFailed, MemoryError) as error:  # the member is as it was scored
                result.unfinished = f"{name} has not seen the rows that it was scored by: {error}"
            result.interrupted = trainer.interrupted

    def _block_ends(self, present, stop, i):
        return self.progress.block_ends(
            lambda: self.attributes([present()]), stop and i == self.turns[-1]
        )

    def _seed(self, i):
        """Each member of a mixture has its own: one that goes does not change the others."""
        if self.is_single:
            return self.seed
        return int(np.random.SeedSequence([self.seed, i]).generate_state(1)[0] >> 1)

    def _checkpoint(self, i, seed):
        estimator, checkpoint = self.estimator, self.estimator.checkpoint
        if checkpoint is None:
            return None
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(checkpoint)
        unimportant = ("checkpoint", "verbose", "n_threads", "n_jobs", "random_state")
        params = estimator.get_params(deep=False)
        settings = {name: value for name, value in params.items() if name not in unimportant}
        settings["init"] = estimator.init if self.fit.init_source is None else "estimator"
        parts = [part for part in (self.data, self.held_out) if part is not None]
        rows = [[part.X, part.targets(), part.weights] for part in parts]
        # without a seed of the user's, any fit of these data may go on
        seed = None if estimator.random_state is None else seed
        states = [member.arrays for member in self.states]
        return checkpoint.open(fingerprint(settings, seed, rows, states, i), i)

    def attributes(self, members):
        """Fitted attributes of an estimator with these members."""
        n_features = self.estimator.n_features_in_
        fitted = fitted_attributes(members, self.data, self.device, n_features)
        return {"_atoms": self.atoms, **fitted}


def _in_worker(fit, i):
    with at_most(fit.estimator.n_threads or 1), torch.enable_grad():
        return fit._attempt(i)
