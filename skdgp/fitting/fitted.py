"""The result of a fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..predictive.mixture import Mixture, rows_at_once
from ..predictive.point_masses import PointMasses
from ..predictive.predictor import Predictor
from ..preprocessing.scaling import InputScaler
from ..preprocessing.target_scaling import TargetScaler
from .member import Member
from .table import Table

_BOUND_ROWS = 10_000  #: rows on which the final lower bound is evaluated if training sees batches
_BOUND_DRAWS = 100_000  #: draws of all these rows together
_ROWS_IN_TIME = 10  #: rows that are evaluated first if time is limited, then twice as many
_LOSSES = 10  #: last steps whose mean loss stands for the bound if there is no time for it
#: fitted attributes of single models
_OF_SINGLE = "delta_ inducing_inputs_ kernels_ likelihood_ loss_curve_ lower_bound_ validation_scores_".split()


@dataclass(frozen=True)
class FittedMixture:
    """Members with their weights, and how inputs and targets are scaled for them."""

    members: list[Member]
    x_scaler: InputScaler
    y_scaler: TargetScaler
    device: str
    n_columns: int  #: of X
    n_rows: float  #: of training, by weight
    log_jacobian: float  #: what converts a mean log density to the target's units
    masses: PointMasses | None = None
    lower_bound: float | None = None

    @classmethod
    def of(cls, members, table, device, n_columns, **more) -> FittedMixture:
        """The mixture of members that were trained on a scaled table."""
        n_rows, log_jacobian = float(table.weights.sum()), table.mean_log_jacobian()
        scalers = table.x_scaler, table.y_scaler
        return cls(members, *scalers, str(device), n_columns, n_rows, log_jacobian, **more)

    @classmethod
    def of_estimator(cls, estimator) -> FittedMixture:
        """The mixture that a fitted estimator predicts with."""
        return cls(
            estimator.members_,
            estimator._x_scaler,
            estimator._y_scaler,
            estimator.device_,
            estimator.n_features_in_,
            estimator._n_rows,
            estimator._log_jacobian,
            estimator._atoms,
        )

    def predictor(self, is_class, n_threads=1) -> Predictor:
        scalers = self.x_scaler, self.y_scaler
        return Predictor(self.members, *scalers, self.device, n_threads, is_class, self.masses)

    def attributes(self) -> dict:
        """Fitted attributes of an estimator, by name."""
        found = {
            "members_": self.members,
            "n_iter_": sum(member.record.n_iter for member in self.members),
            "device_": self.device,
            "warp_": self.x_scaler.curvature(self.n_columns),
            "_n_rows": self.n_rows,
            "_x_scaler": self.x_scaler,
            "_y_scaler": self.y_scaler,
            "_log_jacobian": self.log_jacobian,
            "_atoms": self.masses,
        }
        if len(self.members) == 1:
            found |= self._attributes_of_single(*self.members)
        if self.lower_bound is not None:
            found["lower_bound_"] = self.lower_bound
        return found

    def _attributes_of_single(self, member):
        inputs, delta = list(member.inducing_inputs_), member.posterior().delta
        without_groups = slice(self.n_columns - self.x_scaler.n_features or None)
        inputs[:1] = (
            self.x_scaler.inverse_transform(first)[:, without_groups] for first in inputs[:1]
        )
        return {
            **({} if delta is None else {"delta_": delta}),
            "kernels_": member.kernels_,
            "likelihood_": member.likelihood_.in_units(self.y_scaler.scale),
            "inducing_inputs_": inputs,
            "loss_curve_": list(member.record.loss_curve),
            "validation_scores_": list(member.record.validation_scores),
        }

    def assign(self, estimator):
        """Give an estimator its fitted attributes, in the place of others."""
        for name in _OF_SINGLE:
            vars(estimator).pop(name, None)
        vars(estimator).update(self.attributes())


def lower_bound(model, member, table, device, rng, seconds_left=lambda: None):
    """The lower bound on the log marginal likelihood, in the target's units; None without one.

    If time runs out it is an estimate from some of the rows, or from the losses of the last steps.
    """
    known, total = model.known_bound(), float(table.weights.sum())
    if known is not None:
        return known + total * table.mean_log_jacobian()
    divergence = model.divergence()
    if divergence is None or table.precision is not None:  # whose likelihood has other constants
        return None
    has_limit = seconds_left() is not None
    if has_limit and seconds_left() <= 0.0 and member.record.loss_curve:
        return total * (table.mean_log_jacobian() - np.mean(member.record.loss_curve[-_LOSSES:]))
    rows = Table(table.X, table.y, table.weights, None, table.log_exposure)
    rows = rows.scale_as(table.x_scaler, table.y_scaler)
    most = len(table) if model.is_full_batch else _BOUND_ROWS
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
    bound = total * (expected / seen + table.mean_log_jacobian()) - float(divergence)
    return max(bound, -np.finfo(np.float64).max)  # rates may overflow
