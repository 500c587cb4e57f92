"""Learning from rows that come in chunks."""

import math

from sklearn.base import clone
from sklearn.utils import check_random_state

from ..inference import DSVI, as_scheme
from ..mixture.member import Plan, Record
from ..training.pretraining import PreTraining
from .fit import single_attributes
from .fitting import MemberFit
from .importances import sample_rows
from .prediction import warn_of_changed
from .warm_start import check_chunk, init_source, lasting

_NEVER_SEEN = "The model will never see them; start anew with a first chunk in which they vary."


def learn_chunk(estimator, X, y, sample_weight, classes=None):
    """Make one pass over a chunk of rows; scaling and start come from the first chunk.

    Parameters
    ----------
    estimator : BaseDeepGP
    X, y, sample_weight : array-likes
    classes : array-like, optional
        All that will ever come.
    """
    check_chunk(estimator)
    first = not estimator._is_fitted()
    parts = estimator._validate(X, y, sample_weight, reset=first)
    rows = estimator._counting(*parts, first, classes)
    data = rows.merged()
    fit, device = MemberFit(estimator, estimator._device(), None), estimator._device()
    if first:
        rng = check_random_state(estimator.random_state)
        if len(rows) < 2:
            raise ValueError(
                "The first call of partial_fit needs at least 2 rows, because scaling and inducing "
                "inputs come from it; got 1 sample."
            )
        plan = _chunk_plan(estimator, data)
        plan.scheme = plan.scheme.for_data(math.inf)
        fit.init_source = init_source(estimator)
        estimator._scale(data, plan.likelihood, fit.init_source, rng)
        member, model = fit.start(plan, data, rng, PreTraining(None, 0.0))
        seed = int(rng.randint(2**31 - 1))
        estimator._stream = {
            "seed": seed,
            "n_rows": 0.0,
            "n_iter": 0,
            "loss_curve": [],
            "training": {},
        }
    else:
        data.scale_as(estimator._x_scaler, estimator._y_scaler)
        warn_of_changed(data.X, data.x_scaler, _NEVER_SEEN)
        member = learner(estimator.members_)
        plan = Plan(member.scheme)
        estimator._check_likelihood(member.likelihood, data.y)
        model = member.model(device)
    if "_stream" not in estimator.__dict__:  # the first chunk after fit
        record = member.record
        estimator._stream = {
            "seed": 0,
            "n_rows": estimator._n_rows,
            "n_iter": record.n_iter,
            "loss_curve": record.loss_curve,
            "training": {},
        }
    stream = dict(estimator._stream)
    stream["n_rows"] += float(rows.weights.sum())
    seed = (stream["seed"] + stream["n_iter"]) % 2**31
    draws = model.draws(estimator.n_predict_draws, stream["seed"])
    trainer = fit.trainer(model, plan, data, seed, total=stream["n_rows"])
    trainer.max_iter, trainer.decay = trainer.rows.spread().n_batches, False
    if stream["training"]:
        model.load_training_state(stream["training"])
    trainer.train()
    record = Record(stream["n_iter"] + trainer.n_iter, stream["loss_curve"] + trainer.loss_curve)
    stream.update(
        n_iter=record.n_iter,
        loss_curve=record.loss_curve,
        training=model.training_state(),
    )
    member = member.fitted(model, draws, record)
    estimator.__dict__.update(
        members_=[member],
        _stream=stream,
        _lasting=lasting(estimator),
        _n_rows=float(data.weights.sum()),
        _rows=sample_rows(data.X),
        n_iter_=record.n_iter,
        device_=str(device),
        warp_=data.x_scaler.curvature(estimator.n_features_in_),
        _x_scaler=data.x_scaler,
        _y_scaler=data.y_scaler,
        _log_jacobian=data.mean_log_jacobian(),
        **single_attributes([member], data),
    )
    estimator.__dict__.pop("lower_bound_", None)
    if model.divergence() is not None:
        per_row = -record.loss_curve[-1] + estimator._log_jacobian
        estimator.lower_bound_ = stream["n_rows"] * per_row


def _chunk_plan(estimator, data):
    """The plan of a model that learns from chunks."""
    auto = estimator.inference == "auto"
    scheme = DSVI() if auto else clone(as_scheme(estimator.inference))
    scheme.validate()
    return estimator._plan(scheme, data)


def learner(members):
    """The member of a mixture that goes on with chunks: the heaviest one that can."""
    able = [member for member in members if member.scheme.takes_chunks]
    if not able:
        raise ValueError(
            "No model of the mixture learns from chunks; set inference='dsvi' before fit."
        )
    return max(able, key=lambda member: member.mixture_weight)
