"""Outcome of training: results of members, fitted attributes, and the lower bound."""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from .._warnings import warn
from ..estimators.importances import Pairs
from ..predictive.mixture import Mixture, rows_at_once
from ..training.trainer import Trainer
from .member import Member
from .table import Data
from .warm_start import lasting

_BOUND_ROWS = 10_000  #: rows on which the final lower bound is evaluated if training sees batches
_BOUND_DRAWS = 100_000  #: draws of all these rows together
_ROWS_IN_TIME = 10  #: of it that are evaluated first if time is limited, then twice as many
_LOSSES = 10  #: last steps whose mean loss stands for the bound if there is no time for it
#: fitted attributes of single models
_OF_SINGLE = "delta_ inducing_inputs_ kernels_ likelihood_ loss_curve_ lower_bound_ validation_scores_".split()


@dataclass(eq=False)
class Trained:
    """A member, and what its training has to say to the mixture."""

    member: Member
    trainer: Trainer | None = None  #: of a single model
    loo: np.ndarray | None = None  #: log densities of scored rows, (n_dispersions, n_rows)
    held_out: np.ndarray | None = None  #: log densities of held-out rows, (n_held_out,)
    #: standardized targets of these rows less their means, (n_scored or n_held_out, k); None of classes
    mean_errors: np.ndarray | None = None
    errors: np.ndarray | None = None  #: of these with the first draws alone, (n_draws,)
    interrupted: bool = False
    unfinished: str | None = None  #: what training has not come to
    unsaved: str | None = None  #: a checkpoint that could not be written
    progress: float = 1.0  #: share of the steps that were made if time ended the training


@dataclass(eq=False)
class Result:
    """Results of training."""

    trained: list
    interrupted: bool  #: whether Ctrl-C ended it
    no_time: list  #: names of the schemes of members for which there was no time


def keep(estimator, attributes, rows):
    """Give an estimator its fitted attributes in the place of others, and some of its rows."""
    for name in _OF_SINGLE:
        vars(estimator).pop(name, None)
    pairs = Pairs(rows.X, rows.weights)
    scaler = attributes["_x_scaler"].with_rows(pairs.rows)
    vars(estimator).update(
        attributes, _x_scaler=scaler, _pairs=pairs, _importances=None, _table=None
    )
    estimator._lasting = lasting(estimator)


def fitted_attributes(members, data, device, n_features):
    """Fitted attributes of an estimator with these members."""
    return {
        "members_": members,
        "_n_rows": float(data.weights.sum()),
        "n_iter_": sum(member.record.n_iter for member in members),
        "device_": str(device),
        "warp_": data.x_scaler.curvature(n_features),
        "_x_scaler": data.x_scaler,
        "_y_scaler": data.y_scaler,
        "_log_jacobian": data.mean_log_jacobian(),
        **(_single_attributes(*members, data) if len(members) == 1 else {}),
    }


def _single_attributes(member, data):
    (first, *others), delta = member.inducing_inputs_, member.posterior().delta
    return {
        **({} if delta is None else {"delta_": delta}),
        "kernels_": member.kernels_,
        "likelihood_": member.likelihood_.in_units(data.y_scaler.scale),
        "inducing_inputs_": [data.x_scaler.inverse_transform(first), *others],
        "loss_curve_": list(member.record.loss_curve),
        "validation_scores_": list(member.record.validation_scores),
    }


def lower_bound(model, member, data, device, rng, seconds_left=lambda: None):
    """The lower bound on the log marginal likelihood, in the target's units; None without one.

    If time runs out it is an estimate from some of the rows, or from the losses of the last steps.
    """
    known = model.known_bound()
    if known is not None:
        return known + float(data.weights.sum()) * data.mean_log_jacobian()
    divergence = model.divergence()
    if divergence is None:
        return None
    total, has_limit = float(data.weights.sum()), seconds_left() is not None
    if has_limit and seconds_left() <= 0.0 and member.record.loss_curve:
        return total * (data.mean_log_jacobian() - np.mean(member.record.loss_curve[-_LOSSES:]))
    rows = Data(data.X, data.y, data.weights, None, data.log_exposure)
    rows = rows.scale_as(data.x_scaler, data.y_scaler)
    most = len(data) if model.is_full_batch else _BOUND_ROWS
    X, y, weights = rows.sample(most, rng)
    draws = member.draws
    n_draws = max(1, min(len(draws), _BOUND_DRAWS // len(X)))
    draws = torch.tensor(draws[: 2 ** int(np.log2(n_draws))], device=device)
    if not has_limit or bool((member.posterior(device).inflation != 1.0).any()):
        member = member.holding(model.posterior(draws, as_trained=True), device)
    size, order = rows_at_once([member], device), np.arange(len(X))
    largest = size
    if has_limit:
        size, order = min(size, _ROWS_IN_TIME), rng.permutation(len(X))
    expected, seen, i = 0.0, 0.0, 0
    while i < len(X):
        rows, before = order[i : i + size], seconds_left()
        with torch.no_grad():
            ell = Mixture([member], X[rows], device).expected_log_prob(y[rows])
        expected += float(weights[rows] @ ell.numpy(force=True))
        seen += float(weights[rows].sum())
        i += size
        if has_limit:
            size, left = min(2 * size, largest), seconds_left()
            if 2.0 * (before - left) > left:
                break
    bound = total * (expected / seen + data.mean_log_jacobian()) - float(divergence)
    return max(bound, -np.finfo(np.float64).max)  # rates may overflow


def warn_of_shortage(result, n_plans, max_time):
    """Warn of members that are not trained, or not to the end."""
    seconds, reasons = f"max_time={max_time} seconds were not enough", []
    names = [type(one.member.scheme).__name__ for one in result.trained if one.progress < 1.0]
    if names and n_plans > 1:
        reasons.append(f"{seconds} for all steps of {', '.join(names)}.")
    if result.no_time:
        late = ", ".join(result.no_time)
        reasons.append(f"{seconds} to train {late}, without which the mixture predicts.")
    if result.interrupted and n_plans > 1:
        members = f"{len(result.trained)} of {n_plans} members"
        reasons.append(f"Training was interrupted; {members} predict.")
    for reason in (*reasons, *filter(None, (one.unfinished for one in result.trained))):
        warn(reason, ConvergenceWarning)
