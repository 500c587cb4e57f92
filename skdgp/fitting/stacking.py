"""Rows whose log densities decide on mixture weights."""

from dataclasses import replace

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from .._warnings import warn
from ..inference import Exact
from ..preprocessing.columns import variance_of_new
from .member_fit import log_densities, log_densities_of_draws
from .table import stratified, without_last_of_class
from .weights import LOG_DISPERSIONS, best_dispersion, mixed, mixture_weights, stack

#: rows whose log densities decide on weights: a standard error of .03 nats and less
_SCORED_ROWS = 2000
_HELD_OUT = 0.2  #: share of the rows that members without leave-one-out do not see
_MOST_HELD_OUT = 1000  #: such rows: as many as tell weights to a hundredth
#: option: nats by which members without effects of groups are to be better: strong (Kass and Raftery, 1995)
_EVIDENCE = 5.0
_NEGLIGIBLE = 0.02  #: a weight below which a member is dropped: the suite loses .001 nats


class ScoredRows:
    """Rows that members are scored by: left out one by one or group by group, or held out from their training.

    Members without leave-one-out do not see the rows `held`, an array of int or None, but the `rest`.
    Classes, the `labels` or None, have their shares in both.
    """

    def __init__(self, data, plans, labels, device, seed):
        self.data, self.device = data, device
        self.rows, self.held, self.rest = None, None, data
        #: whether the mixture has a dispersion: not where the size of the noise is given, or outputs would
        #: share what one of them needs
        self.disperses = labels is None and data.y.shape[1] == 1
        self.disperses = self.disperses and all(plan.likelihood.learns for plan in plans)
        n, rng = len(data), np.random.default_rng(seed)
        #: whether members are scored: several for their weights, and one whose rows leave together
        self.scores = len(plans) > 1 or (
            data.groups is not None and self.leaves_out(plans[0].scheme)
        )
        if not self.scores:
            return
        self.rows = self._left_out_rows(labels, rng)
        if n < 2 or all(self.leaves_out(plan.scheme) for plan in plans):
            return
        n_held = min(_MOST_HELD_OUT, max(1, round(_HELD_OUT * n)))
        if data.groups is None:
            held = np.sort(stratified(n, n_held, labels, rng))
            if labels is not None:
                held = without_last_of_class(held, labels)
        else:
            held = data.held_groups(n_held, labels, rng)
        if len(held):
            self.held = held
            self.rows = np.concatenate([held, np.setdiff1d(self.rows, held)])
            self.rest = data.part(np.delete(np.arange(n), held))

    def _left_out_rows(self, labels, rng):
        """Rows, of which those of the first block of time have no earlier ones."""
        among = np.arange(len(self.data))
        if self.data.forward:
            among = np.flatnonzero(self.data.groups > self.data.groups.min())
            labels = None if labels is None else labels[among]
        return among[stratified(len(among), min(len(among), _SCORED_ROWS), labels, rng)]

    def leaves_out(self, scheme):
        """Whether members have densities of training rows given all others, or all other groups."""
        return scheme.leaves_one_out if self.data.groups is None else scheme.leaves_groups_out

    def held_out(self):
        """The held rows as a table, or None."""
        return None if self.held is None else self.data.part(self.held)

    def score(self, one, model, batch):
        """Log densities of rows that a member has not seen."""
        member = one.member
        if self.leaves_out(member.scheme):
            model.hold(batch)
            posterior = model.posterior(torch.tensor(member.draws, device=self.device))
            dispersions = np.exp(LOG_DISPERSIONS) if self.disperses else None
            loo, _ = posterior.left_out(self.rows, dispersions)
            one.loo = None if loo is None else np.atleast_2d(loo)
        if one.loo is None and self.held is not None:
            rows = self.data.part(self.held)
            if member.scheme.fewer_draws:
                of_draws = log_densities_of_draws(member, rows, self.device)
                one.held_out = np.logaddexp.reduce(of_draws)
                one.errors = errors_of_draws(of_draws)
            else:
                one.held_out = log_densities([member], rows, self.device)
        member.record.log_density = self._mean(one)

    def _out_of_sample(self, one):
        """Log densities of rows that a member has not seen, with a dispersion of one; None if unknown."""
        if one.loo is None:
            return one.held_out
        return one.loo[int(np.argmin(np.abs(LOG_DISPERSIONS))) if self.disperses else 0]

    def _mean(self, one):
        """Mean of these in units of the target; NaN if unknown."""
        score = self._out_of_sample(one)
        if score is None:
            return np.nan
        rows = self.rows[: len(score)]
        own = self.data.weights[rows]
        jacobian = self.data.y_scaler.mean_log_jacobian(self.data.y[rows], own)
        return float(score @ own / own.sum()) + jacobian

    def _is_finite(self, one):
        score = self._out_of_sample(one)
        return score is None or bool(np.isfinite(score).all())

    def _of_groups(self, trained):
        """Members with effects of groups alone, unless others clearly tell more of new groups.

        Of known groups, others tell less.
        """
        some = [one for one in trained if one.member.scheme.has_effects]
        known = all(self._out_of_sample(one) is not None for one in trained)
        if self.data.group is None or len(some) in (0, len(trained)) or not known:
            return trained

        def gain(members, n):
            """Log density of the first `n` rows by members, less that by members with effects, in nats."""
            weights = self.data.weights[self.rows[:n]]
            scores = [
                np.stack([self._out_of_sample(m)[:n] for m in each]) for each in (members, some)
            ]
            more, few = (weights @ mixed(each, stack(each, weights)) for each in scores)
            return more - few

        of_all = [one for one in trained if one.loo is not None]
        n_held = len(self.rows if self.held is None else self.held)
        gains = gain(of_all, len(self.rows)), gain(trained, n_held)
        return trained if max(gains) > _EVIDENCE else some

    def weigh(self, trained):
        """The members with their mixture weights and their dispersion, without those that hardly count."""
        finite = [one for one in trained if self._is_finite(one)]
        for one in trained if finite else ():
            if one not in finite:
                warn(
                    f"A member, {type(one.member.scheme).__name__}, was left out: its log density of rows that "
                    "it has not seen is not finite.",
                    ConvergenceWarning,
                )
        trained = self._of_groups(finite or trained)
        members = [one.member for one in trained]
        if len(members) == 1 and not self.scores:
            return members
        unknown = any(one.loo is None and one.held_out is None for one in trained)
        if unknown or not finite:  # interrupted, or one row; or no member has a density
            for member in members:
                member.mixture_weight = 1.0 / len(members)
            return members
        with_loo = [one for one in trained if one.loo is not None]
        others = [one for one in trained if one.loo is None]
        of_rows = self.data.weights[self.rows]
        n_held = 0 if self.held is None else len(self.held)
        loo = np.reshape([self._out_of_sample(one) for one in with_loo], (-1, len(self.rows)))
        held = np.reshape([one.held_out for one in others], (len(others), n_held))
        weights = mixture_weights(loo, of_rows, held, loo[:, :n_held], of_rows[:n_held])
        dispersion = 1.0
        if with_loo and self.disperses:
            every = np.stack([one.loo for one in with_loo], 1)
            among = weights[: len(with_loo)]
            dispersion = best_dispersion(mixed(every, among / among.sum()), of_rows)
            dispersion = dispersion ** float(among.sum())  # they cannot tell for the others
        if self.disperses and self.data.groups is not None:
            n_groups = len(np.unique(self.data.groups[self.rows]))
            dispersion *= variance_of_new(n_groups) ** 0.5
        for one, weight in zip(with_loo + others, weights):
            one.member.mixture_weight, one.member.dispersion = float(weight), dispersion
        kept = [one for one in trained if one.member.mixture_weight >= _NEGLIGIBLE]
        total = sum(one.member.mixture_weight for one in kept)
        for one in kept:
            one.member.mixture_weight /= total
        return [one.member.with_needed_draws(one.errors) for one in kept]


def with_twins(plans, data):
    """Plans and, where groups have effects, twins of exact plans without them.

    Columns may predict new groups better than effects of known groups do.
    """
    if data.group is None:
        return plans
    exact = [plan for plan in plans if isinstance(plan.scheme, Exact)]
    return plans + [replace(plan, scheme=plan.scheme.without_effects()) for plan in exact]


def errors_of_draws(log_p):
    """Root mean squares (n_draws,) of differences that the first draws make, from `log_p` (n_draws, n_rows)."""
    counts = np.arange(1.0, len(log_p) + 1.0)[:, None]
    mixed = np.logaddexp.accumulate(log_p) - np.log(counts)
    with np.errstate(invalid="ignore"):
        return np.sqrt(np.square(mixed - mixed[-1]).mean(1))
