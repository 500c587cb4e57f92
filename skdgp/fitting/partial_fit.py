"""Learning from rows that come in chunks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.utils import check_random_state

from ..exceptions import TrainingFailed, numerical_failures
from ..training.pretraining import PreTraining
from .fitted import FittedMixture
from .member import Member, Plan, Record
from .member_fit import MemberFit
from .scaling import learn_scaling
from .settings import Settings, Start, Task
from .table import Table

#: Largest number of steps: over the first rows, and those in which a column varies first.
_MOST_STEPS = 100
_NEW_STEPS = 30  #: smallest number of steps over rows that lie where none were before
_STEP = 0.1  #: fraction of the posterior that a step replaces
_ROWS = 1000  #: rows of a chunk that are looked at, and among which inducing inputs may be placed
_NEW = 0.02  #: fraction of such rows that are far from all before, from which a chunk is new
_USUAL = 0.99  #: quantile of distances to inducing inputs beyond which rows may be far
_FAR = 2.0  #: multiple of that distance beyond which rows are far
_BEYOND = 0.5  #: standard deviations of a column beyond its range that are not far


@dataclass(frozen=True)
class Chunk:
    """A chunk of rows, and what learning from it goes on with."""

    rows: Table
    make_plan: Callable[[Table], Plan]
    settings: Settings
    task: Task
    start: Start  #: the `last` fit or chunk, if there was one
    stream: dict | None = None  #: state of learning after the last chunk
    sample: np.ndarray | None = None  #: rows of the last fit, where there was no chunk yet


@dataclass(frozen=True)
class Learned:
    """Mixture of one member after a chunk."""

    fitted: FittedMixture
    stream: dict
    table: Table  #: rows of the chunk, scaled
    is_new: bool  #: whether rows lie where none were before


def learn_chunk(chunk: Chunk) -> Learned:
    """Make one pass over a chunk of rows."""
    settings, task, last = chunk.settings, chunk.task, chunk.start.last
    device, table = settings.training_device(), chunk.rows.merged()
    fit = MemberFit(settings, task, device, chunk.start)
    is_new, n_more = False, 0
    if last is None:
        member, model, plan, stream = _first(chunk, table, fit)
    else:
        member, n_more, plan, stream = _next(chunk, table)
        model = member.model(device)
        X, _, _ = table.sample(_ROWS, np.random.RandomState(0))
        is_new = _is_new(X, member, stream["usual"], stream["ends"])
        if model.moves_inducing_inputs and is_new:
            _widen(model, table)
            X, _, _ = table.sample(_ROWS, np.random.RandomState(0))
        n_inducing = _n_inducing(settings, task, member, stream["n_rows"], len(X))
        if model.moves_inducing_inputs and (is_new or n_inducing > member.architecture.n_inducing):
            model.cover(torch.as_tensor(X, device=device), n_inducing)
            shape = dataclasses.replace(member.architecture, n_inducing=n_inducing)
            member = Member(member.scheme, shape, member.likelihood)
            stream["training"] = _begun(stream)
    own = float(chunk.rows.weights.sum())
    stream["n_rows"] += own
    draws = model.draws(settings.n_predict_draws, stream["seed"])
    fewest = _MOST_STEPS if n_more else _NEW_STEPS if is_new else 1
    trainer = _trainer(fit, model, plan, table, stream, own, fewest)
    with numerical_failures(type(plan.scheme).__name__):
        trainer.train()
    if trainer.learned_nothing and last is not None:
        raise TrainingFailed(
            "partial_fit has learned nothing of this chunk, because the loss was never finite, and the model "
            "is as before; look for extreme values in X and y, or choose a smaller learning_rate."
        )
    record = Record(stream["n_iter"] + trainer.n_iter, stream["loss_curve"] + trainer.loss_curve)
    stream.update(n_iter=record.n_iter, loss_curve=record.loss_curve)
    stream["training"] = model.training_state()
    member = member.fitted(model, draws, record)
    X, _, _ = table.sample(_ROWS, np.random.RandomState(0))
    if last is None:
        stream.update(usual=_usual(X, member), ends=_ends(X))
    elif is_new:
        stream["ends"] = _ends(np.concatenate([stream["ends"], X]))
    fitted = FittedMixture.of([member], table, device, task.n_columns)
    if model.divergence() is not None:
        per_row = -record.loss_curve[-1] + fitted.log_jacobian
        fitted = dataclasses.replace(fitted, lower_bound=stream["n_rows"] * per_row)
    return Learned(fitted, stream, table, is_new)


def _first(chunk, table, fit):
    """Member, model, plan and state of learning for the first chunk, from which the scaling comes."""
    settings, rng = chunk.settings, check_random_state(chunk.settings.random_state)
    if len(chunk.rows) < 2:
        raise ValueError(
            "The first call of partial_fit needs at least 2 rows, because scaling and inducing "
            "inputs come from it; got 1 sample."
        )
    plan = chunk.make_plan(table)
    plan.scheme = plan.scheme.for_data(math.inf, likelihood=plan.likelihood)
    given = chunk.start.given
    learn_scaling(table, plan.likelihood, settings, given, rng, names=chunk.task.names)
    member, model = fit.begin(plan, table, rng, PreTraining(None, 0.0))
    return member, model, plan, _stream(int(rng.randint(2**31 - 1)), 0.0, Record())


def _next(chunk, table):
    """Member, number of new inputs, plan and state of learning for a later chunk."""
    last, task = chunk.start.last, chunk.task
    member = learner(last.members)
    y_scaler = last.y_scaler.widened(table.y)
    x_scaler = table.learn_levels(last.x_scaler, y_scaler, member.likelihood)
    table.scale_as(x_scaler, y_scaler)
    table.x_scaler = x_scaler.with_changed(table.inputs, table.weights)
    member, n_more = _with_inputs(member, len(table.x_scaler.columns))
    task.check(member.likelihood, table.y)
    stream = chunk.stream
    if stream is None:  # the first chunk after fit
        before = table.x_scaler.transform(chunk.sample)
        stream = _stream(0, last.n_rows, member.record)
        stream.update(usual=_usual(before, member), ends=_ends(before))
    elif n_more:
        stream = {
            **stream,
            "usual": np.append(stream["usual"], np.full(n_more, _BEYOND)),
            "ends": np.pad(stream["ends"], ((0, 0), (0, n_more))),
            "training": _begun(stream),
        }
    return member, n_more, Plan(member.scheme), dict(stream)  # the one before stays as it is


def _trainer(fit, model, plan, table, stream, own, fewest):
    """The trainer of one pass, which leaves no model if it is interrupted."""
    seed = (stream["seed"] + stream["n_iter"]) % 2**31
    trainer = fit.trainer(model, plan, table, seed, total=stream["n_rows"])
    trainer.max_iter, trainer.decay = trainer.rows.spread().n_batches, False
    trainer.all_or_nothing = True  # an interrupted chunk can be passed again
    if fit.settings.batch_size is None:
        steps = _n_steps(len(table), own / stream["n_rows"], fewest)
        trainer.max_iter = max(trainer.max_iter, steps)
    if stream["training"]:
        model.load_training_state(stream["training"])
    return trainer


def _stream(seed, n_rows, record):
    """Return the state of training by chunks before the first chunk."""
    of_record = {"n_iter": record.n_iter, "loss_curve": list(record.loss_curve)}
    return {"seed": seed, "n_rows": n_rows, **of_record, "training": {}}


def _begun(stream):
    """Return what the optimizer remembers of other variables: how many steps it has made."""
    return {"n_steps": stream["training"].get("n_steps", 0), "n_averaged": 0}


def _with_inputs(member, n):
    """A member with `n` inputs, of which new ones come last, and how many are new."""
    before = member.architecture
    n_more = n - before.n_features
    if n_more == 0:
        return member, 0
    wider = member.scheme.widens and before.linear_mean and not before.input_connected
    widths = tuple(width + n_more * wider for width in before.widths)
    shape = dataclasses.replace(before, n_features=n, widths=widths)
    shape.kernels = [k.with_inputs(m) for k, m in zip(before.kernels, shape.layer_inputs())]
    new = Member(member.scheme, shape, member.likelihood)
    model = new.build()
    model.load_fewer_inputs(member.arrays, np.random.RandomState(0))
    draws = model.draws(len(member.draws), 0)
    draws = member.draws if draws.shape == member.draws.shape else draws
    return new.fitted(model, draws, member.record), n_more


def _n_steps(n_rows, share, fewest):
    """Number of steps that give a chunk its share of all rows in the posterior; first rows get more."""
    steps = _MOST_STEPS if share >= 1.0 else math.log1p(-share) / math.log1p(-_STEP)
    return min(max(math.ceil(steps), fewest), n_rows, _MOST_STEPS)


def _n_inducing(settings, task, member, n_before, n_new):
    """Number of inducing points: more where there were too few rows for as many as wanted."""
    n, scheme = member.architecture.n_inducing, member.scheme
    wanted = settings.n_inducing or scheme.n_inducing(int(n_before) + n_new, task.n_classes)
    return min(wanted, n + n_new) if n_before < wanted else n


def _ends(X):
    """Smallest and largest value of each column, (2, n_features)."""
    return np.stack([X.min(0), X.max(0)])


def _distances(X, member, ends):
    """Distances of rows to the nearest inducing input and, by column, to the range of all, or the `ends`."""
    Z = np.reshape(member.inducing_inputs_[0] if member.inducing_inputs_ else (), (-1, X.shape[1]))
    nearest = cdist(X, Z).min(1) if len(Z) else np.zeros(len(X))
    low, high = _ends(Z) if len(Z) else ends
    return np.column_stack([nearest, np.maximum(np.maximum(low - X, X - high), 0.0)])


def _usual(X, member):
    """Distances beyond which a row is far, from rows that are not."""
    nearest, *beyond = np.quantile(_distances(X, member, _ends(X)), _USUAL, axis=0)
    return np.array([_FAR * nearest, *(np.array(beyond) + _BEYOND)])


def _is_new(X, member, usual, ends):
    """Whether some of the rows lie where none were before."""
    return np.mean((_distances(X, member, ends) > usual).any(1)) >= _NEW


@torch.no_grad()
def _widen(model, table):
    """Scale columns linearly up to where rows are now; inducing inputs stay in the user's units."""
    before, Z = table.x_scaler, model.layers[0].Z
    rows = slice(None, None, max(1, len(table) // _ROWS))
    table.x_scaler = before.widened(np.asarray(table.inputs[rows]))
    places = Z.reshape(-1, Z.shape[-1]).cpu().numpy()
    places = table.x_scaler.scaled(before.inverse_transform(places))
    Z.copy_(torch.as_tensor(places).view(Z.shape))


def learner(members):
    """The member of a mixture that goes on with chunks: the heaviest one that can."""
    able = [member for member in members if member.scheme.takes_chunks]
    if not able:
        raise ValueError(
            "No model of the mixture learns from chunks; set inference='dsvi' before fit."
        )
    return max(able, key=lambda member: member.mixture_weight)
