"""From data to a fitted mixture: members train one after another or side by side, then get their weights."""

import itertools
import math
import operator
import time
from dataclasses import dataclass

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from .._threads import at_most
from .._warnings import warn
from ..mixture.member import Member
from ..mixture.predictive import Predictive, rows_at_once
from ..mixture.weights import LOG_DISPERSIONS, best_dispersion, mixed, mixture_weights
from ..training.checkpoint import Checkpoint, fingerprint
from ..training.interrupts import note_interrupt
from ..training.pretraining import PreTraining
from ..training.trainer import BLOCK
from ._sklearn import FitProgress
from .data import Data
from .diagnostics import warn_of_chains, warn_of_pathologies
from .fitting import MemberFit, log_densities
from .importances import Pairs, compute_if_cheap
from .summary import kept_table
from .warm_start import check_lasting, init_source, lasting, warm_start_sources, warn_if_far

_SCORED_ROWS = (
    2000  #: rows whose log densities decide on weights: a standard error of .03 nats and less
)
_HELD_OUT = 0.2  #: share of the rows that members without leave-one-out do not see
_MOST_HELD_OUT = 1000  #: such rows: as many as tell weights to a hundredth
_NEGLIGIBLE = 0.02  #: a weight below which a member is dropped: the suite loses .001 nats
_BOUND_ROWS = 10_000  #: rows on which the final lower bound is evaluated if training sees batches
_BOUND_DRAWS = 100_000  #: draws of all these rows together
#: fitted attributes of single models, from :func:`single_attributes` and :func:`lower_bound`
_OF_SINGLE = (
    "delta_",
    "inducing_inputs_",
    "kernels_",
    "likelihood_",
    "loss_curve_",
    "lower_bound_",
    "validation_scores_",
)


@dataclass
class _Trained:
    """A member, and what its training tells the mixture.

    Attributes
    ----------
    member : Member
    loo : ndarray of shape (n_dispersions, n_rows) or None
        Leave-one-out log densities of the rows that are scored.
    held_out : ndarray of shape (n_held_out,) or None
        Log densities of the rows that it has not seen.
    interrupted : bool
    unfinished : str or None
        What training has not come to.
    short : bool
        Whether the time was not enough for all steps.
    """

    member: Member
    loo: np.ndarray | None = None
    held_out: np.ndarray | None = None
    interrupted: bool = False
    unfinished: str | None = None
    short: bool = False


class MixtureFit:
    """One call of ``fit``.

    Parameters
    ----------
    estimator : BaseDeepGP
    data : Data
        Training rows.
    held_out : Data or None
        Rows that stop the training.
    raw : dict
        `X`, `y` and `metadata` for callbacks.
    started : float
        When the fit began, by the monotonic clock.
    """

    def __init__(self, estimator, data, held_out, raw, started):
        self.estimator, self.data, self.held_out = estimator, data, held_out
        self.raw, self.started = raw, started
        self.rng = check_random_state(estimator.random_state)
        self.seed = int(self.rng.randint(2**31 - 1))
        if held_out is None and estimator.early_stopping:
            if len(data) < 2:
                raise ValueError(
                    "early_stopping=True holds rows out, and needs at least 2 distinct ones; got 1 sample."
                )
            self.data, self.held_out = data.split(estimator.validation_fraction, self.rng)
        self.device, self.interrupted = estimator._device(), False

    def run(self):
        """Train all members, and set the fitted attributes."""
        estimator, data = self.estimator, self.data
        old = estimator.members_ if estimator.warm_start and estimator._is_fitted() else None
        if old is not None:
            check_lasting(estimator)
        self.plans = estimator._plans(data)
        for plan in self.plans:
            plan.scheme = plan.scheme.for_data(
                len(data), estimator._n_classes(), estimator.max_iter
            )
        if self.held_out is not None:
            estimator._check_likelihood(self.plans[0].likelihood, self.held_out.y)
        self.init_source = init_source(estimator) if old is None else None
        self.old = old
        if old is None:
            others = [] if self.held_out is None else [self.held_out]
            estimator._scale(data, self.plans[0].likelihood, self.init_source, self.rng, others)
        else:
            data.scale_as(estimator._x_scaler, estimator._y_scaler)
            warn_if_far(data)
        if self.held_out is not None:
            self.held_out.scale_as(data.x_scaler, data.y_scaler)
        self.sources = warm_start_sources(self.plans, old or ())
        self._choose_rows()
        self.fit = MemberFit(estimator, self.device, self.init_source, len(self.plans) > 1)
        forget_single(estimator)
        n_blocks = sum(math.ceil(self._n_steps(plan) / BLOCK) for plan in self.plans)
        self.progress = FitProgress(estimator, n_blocks, self.raw)
        trained = self._train_all()
        self._conclude(trained)

    def _n_steps(self, plan):
        return self.estimator.max_iter or plan.max_iter or plan.scheme.max_iter(len(self.data))

    # Rows that tell the weights

    def _choose_rows(self):
        """Which rows are scored by leave-one-out, and which some members do not see."""
        n, rng = len(self.data), np.random.default_rng(self.seed)
        self.scored, self.held_rows, self.rest = None, None, self.data
        if len(self.plans) == 1:
            return
        self.scored = rng.choice(n, min(n, _SCORED_ROWS), replace=False)
        if n < 2 or all(plan.scheme.leaves_one_out for plan in self.plans):
            return
        n_held = min(_MOST_HELD_OUT, max(1, round(_HELD_OUT * n)))
        chosen = np.sort(rng.choice(n, n_held, replace=False))
        self.held_rows = chosen
        self.scored = np.concatenate([chosen, np.setdiff1d(self.scored, chosen)])
        rest = np.ones(n, dtype=bool)
        rest[chosen] = False
        self.rest = self.data.part(np.flatnonzero(rest))

    # Training

    def _train_all(self):
        estimator, trained, errors = self.estimator, [], []
        jobs = range(len(self.plans))
        n_jobs = 1 if len(self.plans) == 1 else estimator.n_jobs
        if n_jobs not in (None, 1):
            results = Parallel(n_jobs=n_jobs)(delayed(_in_worker)(self, i) for i in jobs)
        else:
            results = (self._attempt(i) for i in jobs)
        for i, (result, error) in zip(jobs, results):
            if error is not None:
                if len(self.plans) == 1:
                    raise error
                errors.append(error)
                name = type(self.plans[i].scheme).__name__
                warn(f"A member, {name}, was left out: {error}", ConvergenceWarning)
                continue
            if result is not None:
                trained.append(result)
                self._tell_of(result, i)
            if result is None or result.interrupted:
                self.interrupted = True
                break
        if not trained:
            raise errors[0] if errors else KeyboardInterrupt
        return trained

    def _tell_of(self, result, i):
        """One line for a member of a mixture."""
        if self.estimator.verbose and len(self.plans) > 1:
            record = result.member.record
            left = sum(plan.seconds for plan in self.plans[i + 1 :])
            print(
                f"member {i + 1} of {len(self.plans)}: {type(result.member.scheme).__name__}, "
                f"out-of-sample log density {record.log_density:.3f}, {record.seconds:.1f} CPU s; "
                f"about {left:.0f} CPU s left"
            )

    def _attempt(self, i):
        """The trained member of a plan, or the error that stopped it; neither if nothing was learned."""
        try:
            return self.train(i), None
        except KeyboardInterrupt:
            if len(self.plans) == 1 or i == 0:
                raise
            return None, None
        except (ValueError, ArithmeticError, MemoryError, torch.linalg.LinAlgError) as error:
            return None, error

    def train(self, i):
        """Train the member of a plan, and score the rows that it has not seen."""
        plan, source = self.plans[i], self.sources[i]
        single, seed, rng = len(self.plans) == 1, self.seed, self.rng
        if not single:  # each member has its own: one that goes does not change the others
            seed = int(np.random.SeedSequence([self.seed, i]).generate_state(1)[0] >> 1)
            rng = np.random.RandomState(seed)
        data = self.data if plan.scheme.leaves_one_out or self.held_rows is None else self.rest
        budget, checkpoint = self._budget(i), self._checkpoint(i, seed)
        pretraining = PreTraining(budget, time.monotonic())
        pretraining.skipped = checkpoint is not None and checkpoint.exists()

        def prepare(trainer, present):
            trainer.max_time = budget
            trainer.elapsed = time.monotonic() - (self.started if single else pretraining.started)
            trainer.checkpoint, trainer.quiet = checkpoint, not single
            trainer.on_block = lambda stop: self.progress.block_ends(
                lambda: self._attributes([present()]), stop and i == len(self.plans) - 1
            )

        member, trainer = self.fit.train(
            plan, data, self.held_out, seed, rng, pretraining, source, prepare
        )
        model, result = trainer.model, _Trained(member, interrupted=trainer.interrupted)
        result.unfinished = model.unfinished
        result.short = trainer.n_iter < trainer.max_iter and budget is not None
        if single:
            self.single = trainer
            return result
        try:
            self._score(result, model, trainer.rows.batch(0))
        except KeyboardInterrupt:
            note_interrupt()
            result.interrupted, result.loo, result.held_out = True, None, None
        return result

    def _score(self, result, model, batch):
        """Log densities of rows that a member has not seen."""
        member = result.member
        if member.scheme.leaves_one_out:
            model.hold(batch)
            posterior = model.posterior(torch.tensor(member.draws, device=self.device))
            dispersions = np.exp(LOG_DISPERSIONS) if self._disperses() else None
            loo = posterior.loo_log_density(self.scored, dispersions)
            result.loo = None if loo is None else np.atleast_2d(loo)
        if result.loo is None and self.held_rows is not None:
            held = self.data.part(self.held_rows)
            result.held_out = log_densities([member], held, self.device)
        member.record.log_density = self._mean_log_density(result)

    def _disperses(self):
        return self.estimator._has_dispersion(self.plans)

    def _budget(self, i):
        """Seconds for a member: its share, by the predicted costs, of what is left."""
        max_time = self.estimator.max_time
        if max_time is None:
            return None
        costs = [plan.seconds for plan in self.plans]
        if len(costs) == 1:
            return max_time
        n_jobs = self.estimator.n_jobs
        if n_jobs not in (None, 1):
            return max_time
        left = max_time - (time.monotonic() - self.started)
        return max(1e-3, left * costs[i] / sum(costs[i:]))

    def _checkpoint(self, i, seed):
        estimator, checkpoint = self.estimator, self.estimator.checkpoint
        if checkpoint is None:
            return None
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(checkpoint)
        unimportant = ("checkpoint", "verbose", "n_threads", "n_jobs", "random_state")
        params = estimator.get_params(deep=False)
        settings = {name: value for name, value in params.items() if name not in unimportant}
        settings["init"] = estimator.init if self.init_source is None else "estimator"
        parts = (self.data, self.held_out)
        rows = [[part.X, part.y, part.weights] for part in parts if part is not None]
        # without a seed of the user's, any fit of these data may go on
        seed = None if estimator.random_state is None else seed
        sources = self.old or (self.init_source.members_ if self.init_source is not None else ())
        states = [member.arrays for member in sources]
        return checkpoint.open(fingerprint(settings, seed, rows, states, i), i)

    # What comes out

    def _out_of_sample(self, one):
        """Log densities of rows that a member has not seen, with a dispersion of one; None if unknown."""
        if one.loo is None:
            return one.held_out
        return one.loo[int(np.argmin(np.abs(LOG_DISPERSIONS))) if self._disperses() else 0]

    def _mean_log_density(self, one):
        """Mean of these in units of the target; NaN if unknown."""
        score = self._out_of_sample(one)
        if score is None:
            return np.nan
        rows = self.scored[: len(score)]
        own = self.data.weights[rows]
        jacobian = self.data.y_scaler.mean_log_jacobian(self.data.y[rows], own)
        return float(score @ own / own.sum()) + jacobian

    def _weigh(self, trained):
        """Set the mixture weights of the members, drop those without, and set their dispersion."""
        scores = [self._out_of_sample(one) for one in trained]
        finite = [score is None or bool(np.isfinite(score).all()) for score in scores]
        if any(finite):
            for one in itertools.compress(trained, map(operator.not_, finite)):
                name = type(one.member.scheme).__name__
                warn(
                    f"A member, {name}, was left out: its log density of rows that it has not seen is not "
                    "finite.",
                    ConvergenceWarning,
                )
            trained = list(itertools.compress(trained, finite))
        members = [one.member for one in trained]
        if len(members) == 1:
            return members
        unknown = any(one.loo is None and one.held_out is None for one in trained)
        if unknown or not any(finite):  # interrupted, or one row; or no member has a density
            for member in members:
                member.mixture_weight = 1.0 / len(members)
            return members
        with_loo = [one for one in trained if one.loo is not None]
        others = [one for one in trained if one.loo is None]
        of_rows = self.data.weights[self.scored]
        n_held = 0 if self.held_rows is None else len(self.held_rows)
        n_rows = len(self.scored)
        loo = [self._out_of_sample(one) for one in with_loo]
        loo = np.stack(loo) if with_loo else np.empty((0, n_rows))
        held = [one.held_out for one in others]
        held = np.stack(held) if others else np.empty((0, n_held))
        weights = mixture_weights(loo, of_rows, held, loo[:, :n_held], of_rows[:n_held])
        dispersion = 1.0
        if with_loo and self._disperses():
            every = np.stack([one.loo for one in with_loo], 1)
            among = weights[: len(with_loo)]
            dispersion = best_dispersion(mixed(every, among / among.sum()), of_rows)
            dispersion = dispersion ** float(among.sum())  # they cannot tell for the others
        for one, weight in zip(with_loo + others, weights):
            one.member.mixture_weight, one.member.dispersion = float(weight), dispersion
        kept = [member for member in members if member.mixture_weight >= _NEGLIGIBLE]
        total = sum(member.mixture_weight for member in kept)
        for member in kept:
            member.mixture_weight /= total
        return [member.with_needed_draws() for member in kept]

    def _attributes(self, members):
        data = self.data
        attributes = {
            "members_": members,
            "_n_rows": float(data.weights.sum()),
            "n_iter_": sum(member.record.n_iter for member in members),
            "device_": str(self.device),
            "warp_": data.x_scaler.curvature(self.estimator.n_features_in_),
            "_x_scaler": data.x_scaler,
            "_y_scaler": data.y_scaler,
            "_log_jacobian": data.mean_log_jacobian(),
        }
        return {**attributes, **single_attributes(members, data)}

    def _conclude(self, trained):
        """Set the fitted attributes, then what can be missing."""
        try:
            self._set_attributes(trained)
            self._finish(trained)
        except KeyboardInterrupt:
            if not self.interrupted:
                note_interrupt()
            self._set_attributes(trained)
            warn(
                "fit was interrupted after training; the model is trained, but lower_bound_ and the diagnosis "
                "may be missing.",
                ConvergenceWarning,
            )

    def _set_attributes(self, trained):
        self.members = self._weigh(trained)
        attributes = self._attributes(self.members)
        pairs = Pairs(self.data.X, self.data.weights)
        self.estimator.__dict__.update(attributes, _pairs=pairs, _importances=None, _table=None)
        self.estimator._lasting = lasting(self.estimator)
        self.estimator.__dict__.pop("_stream", None)

    def _finish(self, trained):
        estimator, data = self.estimator, self.data
        if len(self.plans) > 1:
            self._tell_of_shortage(trained)
        for reason in filter(None, (one.unfinished for one in trained)):
            warn(reason, ConvergenceWarning)
        if len(self.plans) == 1:
            model, (member,) = self.single.model, self.members
            bound = lower_bound(model, member, data, self.device, self.rng)
            if bound is not None:
                estimator.lower_bound_ = bound
            warn_of_chains(estimator, data)
        warn_of_pathologies(estimator, data, len(self.plans) == 1 and self._settled())
        kept_table(estimator)
        compute_if_cheap(estimator, time.monotonic() - self.started)
        self.progress.end(lambda: self._attributes(self.members))

    def _settled(self):
        """Whether training of a single model converged, or made all steps of a default."""
        trainer = self.single
        all_made = self.estimator.max_iter is None and trainer.n_iter >= trainer.max_iter
        return trainer.model.finished or all_made

    def _tell_of_shortage(self, trained):
        names = [type(one.member.scheme).__name__ for one in trained if one.short]
        if names:
            warn(
                f"max_time={self.estimator.max_time} seconds were not enough for all steps of "
                f"{', '.join(names)}.",
                ConvergenceWarning,
            )
        if self.interrupted:
            warn(
                f"Training was interrupted; {len(trained)} of {len(self.plans)} members predict.",
                ConvergenceWarning,
            )


def _in_worker(fit, i):
    with at_most(fit.estimator.n_threads or 1), torch.enable_grad():
        return fit._attempt(i)


def forget_single(estimator):
    """Remove the fitted attributes that only a single model has, which an earlier fit may have left."""
    for name in _OF_SINGLE:
        estimator.__dict__.pop(name, None)


def single_attributes(members, data):
    """Fitted attributes that only a single model has."""
    if len(members) > 1:
        return {}
    (member,) = members
    first, *others = member.inducing_inputs_
    delta = member.posterior().delta
    return {
        **({} if delta is None else {"delta_": delta}),
        "kernels_": member.kernels_,
        "likelihood_": member.likelihood_.in_units(data.y_scaler.scale),
        "inducing_inputs_": [data.x_scaler.inverse_transform(first), *others],
        "loss_curve_": list(member.record.loss_curve),
        "validation_scores_": list(member.record.validation_scores),
    }


def lower_bound(model, member, data, device, rng):
    """The lower bound on the log marginal likelihood, in the target's units; None without one."""
    divergence = model.divergence()
    if divergence is None:
        return None
    rows = Data(data.X, data.y, data.weights).scale_as(data.x_scaler, data.y_scaler)
    most = len(data) if model.sees_all_rows else _BOUND_ROWS
    X, y, weights = rows.sample(most, rng)
    draws = member.draws
    n_draws = max(1, min(len(draws), _BOUND_DRAWS // len(X)))
    draws = torch.tensor(draws[: 2 ** int(np.log2(n_draws))], device=device)
    member = member.holding(model.posterior(draws, as_trained=True), device)
    size, expected = rows_at_once([member], device), 0.0
    for part in (slice(i, i + size) for i in range(0, len(X), size)):
        predictive = Predictive([member], X[part], device)
        expected += float(weights[part] @ predictive.expected_log_prob(y[part]))
    per_row = expected / weights.sum() + data.mean_log_jacobian()
    bound = float(data.weights.sum()) * per_row - float(divergence)
    return max(float(bound), -np.finfo(np.float64).max)  # rates may overflow
