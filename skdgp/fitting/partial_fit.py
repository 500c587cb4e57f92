"""Learning from rows that come in chunks."""

import dataclasses
import math

import numpy as np
import torch
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.utils import check_random_state

from .._warnings import warn
from ..estimators.diagnostics import Diagnostics, limit
from ..estimators.exposures import check_has_rate
from ..exceptions import TrainingFailed, numerical_failures
from ..inference import DSVI, as_scheme
from ..training.pretraining import PreTraining
from .fitted_state import fitted_attributes, keep
from .member import Member, Plan, Record
from .member_fit import MemberFit, training_device
from .warm_start import check_chunk, init_source, scale

#: over the first rows, and those in which a column varies first, as hyperparameters need; at most one a row
_MOST_STEPS = 100
_NEW_STEPS = 30  #: over rows where none were before; what others taught loses little sharpness
_STEP = 0.1  #: share of the posterior that a step replaces
_ROWS = 1000  #: of a chunk that are looked at, and among which inducing inputs may be placed
_NEW = 0.02  #: share of such rows that are far from all before
_USUAL = 0.99  #: quantile of distances to inducing inputs
_FAR = 2.0  #: times that distance
_BEYOND = 0.5  #: standard deviations of a column


def learn_chunk(estimator, X, y, sample_weight, classes=None, exposure=None):
    """Make one pass over a chunk of rows; `classes`, if given, are all that will ever come."""
    check_chunk(estimator)
    first, is_new, n_more = not estimator._is_fitted(), False, 0
    rows, *_ = estimator._rows(X, y, sample_weight, exposure, first, extend=True, classes=classes)
    data = rows.merged()
    device = training_device(estimator.device, estimator.dtype)
    fit = MemberFit(estimator, device, None)
    if first:
        rng = check_random_state(estimator.random_state)
        if len(rows) < 2:
            raise ValueError(
                "The first call of partial_fit needs at least 2 rows, because scaling and inducing "
                "inputs come from it; got 1 sample."
            )
        auto = estimator.inference == "auto"
        scheme = DSVI() if auto else clone(as_scheme(estimator.inference))
        plan = estimator._plan(scheme, data)
        plan.scheme = scheme.for_data(math.inf, likelihood=plan.likelihood)
        fit.init_source = init_source(estimator)
        scale(estimator, data, plan.likelihood, fit.init_source, rng)
        member, model = fit.start(plan, data, rng, PreTraining(None, 0.0))
        seed = int(rng.randint(2**31 - 1))
        stream = _stream(seed, 0.0, Record())
    else:
        member = learner(estimator.members_)
        check_has_rate(member.likelihood, data.log_exposure)
        y_scaler = estimator._y_scaler.widened(data.y)
        x_scaler = data.learn_levels(estimator._x_scaler, y_scaler, member.likelihood)
        data.scale_as(x_scaler, y_scaler)
        data.x_scaler = x_scaler.with_changed(data.inputs, data.weights)
        member, n_more = _with_inputs(member, len(data.x_scaler.columns))
        plan = Plan(member.scheme)
        estimator._check_likelihood(member.likelihood, data.y)
        model = member.model(device)
        stream = getattr(estimator, "_stream", None)
        if stream is None:  # the first chunk after fit
            before = data.x_scaler.transform(estimator._pairs.rows)
            stream = _stream(0, estimator._n_rows, member.record)
            stream.update(usual=_usual(before, member), ends=_ends(before))
        elif n_more:
            stream = {
                **stream,
                "usual": np.append(stream["usual"], np.full(n_more, _BEYOND)),
                "ends": np.pad(stream["ends"], ((0, 0), (0, n_more))),
                "training": _begun(stream),
            }
        stream = dict(stream)  # that of the calls before stays as it is
        X, y, _ = data.sample(_ROWS, np.random.RandomState(0))
        is_new = _is_new(X, member, stream["usual"], stream["ends"])
        if model.cover is not None and is_new:
            _widen(model, data)
            X, y, _ = data.sample(_ROWS, np.random.RandomState(0))
        n_inducing = _n_inducing(estimator, member, stream["n_rows"], len(X))
        if model.cover is not None and (is_new or n_inducing > member.architecture.n_inducing):
            model.cover(torch.as_tensor(X, device=device), n_inducing)
            shape = dataclasses.replace(member.architecture, n_inducing=n_inducing)
            member = Member(member.scheme, shape, member.likelihood)
            stream["training"] = _begun(stream)
    own = float(rows.weights.sum())
    stream["n_rows"] += own
    seed = (stream["seed"] + stream["n_iter"]) % 2**31
    draws = model.draws(estimator.n_predict_draws, stream["seed"])
    trainer = fit.trainer(model, plan, data, seed, total=stream["n_rows"])
    trainer.max_iter, trainer.decay = trainer.rows.spread().n_batches, False
    trainer.all_or_nothing = True  # an interrupted chunk can be passed again
    if estimator.batch_size is None:
        fewest = _MOST_STEPS if n_more else _NEW_STEPS if is_new else 1
        steps = _n_steps(len(data), own / stream["n_rows"], fewest)
        trainer.max_iter = max(trainer.max_iter, steps)
    if stream["training"]:
        model.load_training_state(stream["training"])
    with numerical_failures(type(plan.scheme).__name__):
        trainer.train()
    if trainer.learned_nothing and not first:
        raise TrainingFailed(
            "partial_fit has learned nothing of this chunk, because the loss was never finite, and the model "
            "is as before; look for extreme values in X and y, or choose a smaller learning_rate."
        )
    record = Record(stream["n_iter"] + trainer.n_iter, stream["loss_curve"] + trainer.loss_curve)
    stream.update(n_iter=record.n_iter, loss_curve=record.loss_curve)
    stream["training"] = model.training_state()
    member = member.fitted(model, draws, record)
    if first:
        X, _, _ = data.sample(_ROWS, np.random.RandomState(0))
        stream.update(usual=_usual(X, member), ends=_ends(X))
    elif is_new:
        stream["ends"] = _ends(np.concatenate([stream["ends"], X]))
        _warn_if_not_learned(member, X, y, device)
    attributes = fitted_attributes([member], data, device, estimator.n_features_in_)
    keep(estimator, {**attributes, "_stream": stream}, data)
    if model.divergence() is not None:
        per_row = -record.loss_curve[-1] + estimator._log_jacobian
        estimator.lower_bound_ = stream["n_rows"] * per_row


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


def _n_inducing(estimator, member, n_before, n_new):
    """Number of inducing points: more where there were too few rows for as many as wanted."""
    n, scheme = member.architecture.n_inducing, member.scheme
    wanted = estimator.n_inducing or scheme.n_inducing(
        int(n_before) + n_new, estimator._n_classes()
    )
    return min(wanted, n + n_new) if n_before < wanted else n


def _ends(X):
    """Smallest and largest value of each column, (2, n_features)."""
    return np.stack([X.min(0), X.max(0)])


def _distances(X, member, ends):
    """Distances of rows to the nearest inducing input and, by column, to the range of all, or the `ends`."""
    Z = np.reshape(member.inducing_inputs_[0], (-1, X.shape[1]))
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
def _widen(model, data):
    """Scale columns linearly up to where rows are now; inducing inputs stay in the user's units."""
    before, Z = data.x_scaler, model.layers[0].Z
    rows = slice(None, None, max(1, len(data) // _ROWS))
    data.x_scaler = before.widened(np.asarray(data.inputs[rows]))
    places = Z.reshape(-1, Z.shape[-1]).cpu().numpy()
    places = data.x_scaler.scaled(before.inverse_transform(places))
    Z.copy_(torch.as_tensor(places).view(Z.shape))


def _warn_if_not_learned(member, X, y, device):
    """One warning if the model does not know rows that lie where none were before."""
    diagnostics = Diagnostics([member], X, y, device)
    if diagnostics.missed is not None and diagnostics.missed > limit([]):
        warn(
            "Rows of this chunk lie far from those before, and the model has not learned them in one pass; "
            "mix the rows, so that each chunk comes from the whole range, or pass this chunk again.",
            UserWarning,
        )


def learner(members):
    """The member of a mixture that goes on with chunks: the heaviest one that can."""
    able = [member for member in members if member.scheme.takes_chunks]
    if not able:
        raise ValueError(
            "No model of the mixture learns from chunks; set inference='dsvi' before fit."
        )
    return max(able, key=lambda member: member.mixture_weight)
