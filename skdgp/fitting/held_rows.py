"""Training rows that a fit keeps, and what follows from them: leave-one-out predictions and conditioning."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from .._threads import on_cpu
from ..inference.batch import Batch
from ..inference.rows.local_scale import LocalScaleModel, ScaledPosterior
from ..predictive.base import GaussianMixture
from ..preprocessing.levels import UNIT
from .fitted import FittedMixture
from .table import Table

_MOST_KEPT = 5_000_000  #: memory: numbers, 40 MB
_CAN_CONDITION = "inference='exact', 'vecchia' or 'collapsed'"


@dataclass(frozen=True)
class HeldRows:
    """Distinct training rows as models see them, scaled, and where those of the user are among them."""

    X: np.ndarray  #: (n, n_features)
    y: np.ndarray  #: (n, n_outputs)
    weights: np.ndarray  #: (n,)
    index: np.ndarray  #: (n_samples,), numbers of the distinct rows
    groups: np.ndarray | None = None  #: (n,), of rows that are left out together
    forward: bool = False  #: whether later groups leave, too

    @classmethod
    def of(cls, table: Table, members) -> HeldRows | None:
        """The rows of a scaled table; None if there are too many, or no member can leave one out."""
        if table.X.size > _MOST_KEPT or not all(m.scheme.leaves_one_out for m in members):
            return None
        index = np.arange(len(table)) if table.index is None else table.index
        X, y, weights = table.take(slice(None))
        groups = table.groups if table.groups is None or table.forward else _codes(table)
        return cls(X, y, weights, index, groups, table.forward)

    def with_rows(self, table: Table) -> HeldRows:
        """These and rows of another scaled table, of known or new groups, or of a later block of time."""
        n, groups = len(self.X), self.groups
        columns = zip((self.X, self.y, self.weights), table.take(slice(None)))
        if groups is not None:
            new = np.full(len(table), groups.max() + 1) if self.forward else _codes(table)
            alone = min(groups.min(), 0) - 1 - np.arange(len(table))  # without a group
            groups = np.append(groups, np.where(new < 0, alone, new))
        index = np.append(self.index, n + table.index)
        X, y, weights = (np.concatenate(pair) for pair in columns)
        return HeldRows(X, y, weights, index, groups, self.forward)

    def batch(self, device) -> Batch:
        """All rows as one batch."""
        X, y, weights = (torch.tensor(p, device=device) for p in (self.X, self.y, self.weights))
        group = self.groups
        if group is not None:
            group = torch.as_tensor(np.unique(group, return_inverse=True)[1])
        total = float(self.weights.sum())
        return Batch(X.double(), y, weights, 1.0, total, group=group, forward=self.forward)


def _codes(table):
    """Numbers of the groups of rows, negative where they have none."""
    return np.rint(np.asarray(table.X[:, table.group], dtype=np.float64) / UNIT).astype(np.int64)


def conditioned(fitted: FittedMixture, held: HeldRows | None, table: Table) -> FittedMixture:
    """The mixture given the rows of a scaled table, too; hyperparameters and mixture weights stay.

    Raises
    ------
    ValueError
        If a member does not hold its training rows.
    """
    members, device = [], fitted.device
    for member in fitted.members:
        with torch.inference_mode(False), on_cpu():
            model = member.model(device)
            if not isinstance(model, LocalScaleModel) or fitted.masses is not None:
                raise ValueError(_no_conditioning(fitted, member))
            batch = (held or _of_state(model)).with_rows(table).batch(device)
            model.condition(batch, member.known_posterior(device))
            new = member.fitted(model, member.draws, member.record)
            new.mixture_weight, new.dispersion = member.mixture_weight, member.dispersion
            draws = torch.tensor(member.draws, device=device)
            members.append(new.holding(model.posterior(draws), device))
    n_rows = fitted.n_rows + float(table.weights.sum())
    return replace(fitted, members=members, n_rows=n_rows, lower_bound=None)


def _no_conditioning(fitted, member):
    other = "values of the target with a probability of their own"
    if fitted.masses is None:
        other = f"a member of {type(member.scheme).__name__}"
    return (
        f"condition_on is for models that hold their training rows ({_CAN_CONDITION}), and this one has "
        f"{other}; fit it again with these rows."
    )


def _of_state(model):
    """The unique inputs that a model holds."""
    X, y, weights = (part.numpy(force=True) for part in model.training_table())
    return HeldRows(X, y, weights, np.arange(len(X)))


class LeftOutMixture(GaussianMixture):
    """Standardized targets of training rows given all others, with their joint log densities."""

    def __init__(self, weights, means, variances, log_prob):
        super().__init__(weights, means, variances)
        self._log_prob = log_prob

    def log_prob(self, y):
        return self._log_prob


def left_out(fitted: FittedMixture, held: HeldRows) -> LeftOutMixture:
    """The mixture of the distinct rows, each given all others.

    Raises
    ------
    ValueError
        If a member has no leave-one-out predictions.
    """
    total, rows = sum(m.mixture_weight for m in fitted.members), np.arange(len(held.X))
    parts, logs = [], []
    for member in fitted.members:
        posterior, share = _given_rows(member, held, fitted.device), member.mixture_weight / total
        weights, means, variances = posterior.left_out_components(rows, member.dispersion)
        parts.append((share * weights.expand_as(means), means, variances))
        log_p = posterior.loo_log_density(rows, np.array([member.dispersion]))[0]
        logs.append(np.log(share) + log_p)
    log_prob = torch.as_tensor(np.logaddexp.reduce(logs, 0))
    weights, means, variances = (torch.cat(column) for column in zip(*parts))
    return LeftOutMixture(weights, means, variances, log_prob)


def _given_rows(member, held, device):
    """The posterior of a member, with its training rows."""
    posterior = member.posterior(device)
    if getattr(posterior, "_loo", None) is None:
        with torch.inference_mode(False), torch.no_grad(), on_cpu():
            model = member.model(device)
            model.hold(held.batch(device))
            posterior = model.posterior(torch.tensor(member.draws, device=device))
    if not isinstance(posterior, ScaledPosterior):
        raise ValueError(no_left_out(member))
    return posterior


def no_left_out(member):
    """A sentence on a member without leave-one-out predictions."""
    return (
        f"Leave-one-out predictions are those of models that hold their training rows ({_CAN_CONDITION}, "
        f"with multi_output=None), not of {member.scheme!r}; use skdgp.model_selection.cross_val_distribution."
    )
