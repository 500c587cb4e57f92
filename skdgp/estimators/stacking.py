"""Shares of models in a mixture, and their spread, from densities of rows that they did not see."""

import numpy as np
import torch

from ..inference.base import Batch
from .data import Data
from .predictive import rows_at_once

_ROWS = 2000  #: rows that decide
_DRAWS = 16  #: draws of a member that cannot leave rows out
_PRIOR_ROWS = 10.0  #: rows that speak for equal shares
_PRIOR_SPREAD = 0.05  #: how far the logarithm of the spread is expected to be from zero
_LOG_SPREADS = 0.05 * np.arange(-14, 7)  #: those that are tried
_NEGLIGIBLE = 0.005  #: a logarithm of the spread that is taken for zero
_ENOUGH = 0.6  #: share in the mixture of members that may speak for all
_N_ITER = 500
_TOO_GOOD = 1.0, 1.5  #: nats for each target seen, from which on a share shrinks, and is none
_HARDLY = 0.01  #: what is left of it then


class StackingMixin:
    """Mixtures whose members have shares by what they say of rows that they did not see."""

    def _has_spread(self, plans):
        """Whether the members' widths are a matter of the mixture."""
        return False

    def _stack(self, plans, members, models, draws, data, seed):
        """Set the shares of the members in the mixture, and their spread."""
        chosen = [i for i, plan in enumerate(plans) if plan.most is not None]
        if len(chosen) < 2:
            return
        rows = np.random.default_rng(seed).permutation(len(data))[:_ROWS]
        tensors = (torch.tensor(a, device=self._device()) for a in data.take(slice(None)))
        batch = Batch(*tensors, 1.0, float(data.weights.sum()))
        own = Data(data.X[rows], data.y[rows], data.weights[rows])
        own.scale_as(data.x_scaler, data.y_scaler)
        spreads = np.exp(_LOG_SPREADS) if self._has_spread(plans) else None
        densities, of_spreads = [], []  # at the members' own spread; of those that leave rows out
        seen = {}  # what the others say of rows that they have seen
        for k, i in enumerate(chosen):
            density = models[i].left_out(batch, rows, spreads)
            if density is None:
                member = members[i].holding(models[i], draws[i][:_DRAWS])
                seen[k], density = self._with_and_without(member, own)
            elif spreads is not None:
                of_spreads.append(density)
                (density,) = density[_LOG_SPREADS == 0.0]
            densities.append(density)
        densities, most = np.stack(densities), np.array([plans[i].most for i in chosen])
        knows = np.isin(np.arange(len(chosen)), list(seen))
        said = np.stack([seen.get(k, density) for k, density in enumerate(densities)])
        most *= trust(said, own.weights, knows, own.y.shape[1])
        shares = stack(densities, own.weights, most)
        spread = 1.0
        if of_spreads:
            honest = shares[~knows]
            log_spread = best_spread(np.stack(of_spreads, 1), honest, own.weights, _LOG_SPREADS)
            # they cannot tell how wide the others should be, where these are nearly all
            spread = float(np.exp(log_spread * min(1.0, honest.sum() / _ENOUGH)))
        for i, share in zip(chosen, shares):
            members[i].weight, members[i].spread = share, spread

    def _with_and_without(self, member, data):
        """Log-densities of a deep model's training rows, (2, n_rows); nearly left out the second time."""
        model, size = member.model(self._device()), rows_at_once([member])
        tensors = [torch.tensor(part, device=self._device()) for part in data.take(slice(None))]
        draws = torch.tensor(member.draws, device=self._device())
        pieces = zip(*(part.split(size) for part in tensors))
        return np.concatenate([model.with_and_without(*piece, draws) for piece in pieces], 1)


def best_spread(log_density, shares, weights, log_spreads):
    """By what to multiply the spread of all members, for the highest log-density of the mixture.

    A mixture of calibrated models is too wide, for it adds their disagreement to what each of
    them is unsure of; narrower members make up for it (Gneiting and Ranjan, 2013, section 3.2).

    Parameters
    ----------
    log_density : ndarray of shape (n_spreads, n_models, n_rows)
        Of rows that were left out.
    shares : ndarray of shape (n_models,)
        Relative to each other.
    weights : ndarray of shape (n_rows,)
        How often each row counts.
    log_spreads : ndarray of shape (n_spreads,)
        Equally spaced.

    Returns
    -------
    log_spread : float
        By a parabola through the best of `log_spreads` and the two next to it; zero leaves the members
        as they are.
    """
    if not np.isfinite(log_density).all():
        return 0.0
    mixed = np.logaddexp.reduce(log_density + np.log(shares)[:, None], axis=1)
    score = mixed @ weights - 0.5 * np.square(log_spreads / _PRIOR_SPREAD)
    best = int(np.argmax(score))
    if best in (0, len(score) - 1):
        return log_spreads[best]
    below, top, above = score[best - 1 : best + 2]
    step = 0.5 * (below - above) / (below - 2.0 * top + above)
    log_spread = log_spreads[best] + step * (log_spreads[1] - log_spreads[0])
    return 0.0 if abs(log_spread) < _NEGLIGIBLE else log_spread


def trust(log_density, weights, knows, n_outputs=1):
    """Factors of the largest shares of models that have seen the rows: small if they know them by heart.

    With `p` free numbers a model of `n` targets says about `p / 2n` nats more than the truth of one that
    it has seen, and as much less of one that it has not: a nat lies between the two if there is a
    number for each target. So a model should not say a nat more than the best mixture of all others.
    One of these has to have seen the rows, too: where models of this kind alone are right, they do
    not lose their shares.

    Parameters
    ----------
    log_density : ndarray of shape (n_models, n_rows)
    weights : ndarray of shape (n_rows,)
        How often each row counts.
    knows : ndarray of shape (n_models,), dtype bool
        Which models have seen the rows. A single one keeps its share.
    n_outputs : int, default=1
        Targets of a row.

    Returns
    -------
    factors : ndarray of shape (n_models,)
    """
    factors = np.ones(len(knows))
    if knows.sum() < 2:
        return factors
    start, end = _TOO_GOOD
    for i in np.flatnonzero(knows):
        others = np.arange(len(knows)) != i
        shares = stack(log_density[others], weights)
        mixture = np.logaddexp.reduce(log_density[others] + np.log(shares)[:, None])
        excess = np.average(log_density[i] - mixture, weights=weights) / n_outputs
        factors[i] = np.clip((end - excess) / (end - start), _HARDLY, 1.0)
    return factors


def stack(log_density, weights, most=1.0):
    """Shares that maximize the log-density of the mixture (Yao et al., 2018), by EM.

    Parameters
    ----------
    log_density : ndarray of shape (n_models, n_rows)
        Of rows that were left out.
    weights : ndarray of shape (n_rows,)
        How often each row counts.
    most : float or ndarray of shape (n_models,)
        The largest share that each model can have; together at least one.

    Returns
    -------
    shares : ndarray of shape (n_models,)
        They add up to one.
    """
    p = np.exp(log_density - log_density.max(0))
    most = np.broadcast_to(most, len(p))
    shares = np.full(len(p), 1.0 / len(p))
    for _ in range(_N_ITER):
        responsible = shares[:, None] * p
        counts = (responsible / responsible.sum(0)) @ weights + _PRIOR_ROWS / len(p)
        shares = _limited(counts, most)
    return shares


def _limited(counts, most):
    """Shares that are proportional to the counts, apart from those that would exceed their limit."""
    limited = np.zeros(len(counts), dtype=bool)
    while True:
        rest = 1.0 - most[limited].sum()
        shares = np.where(limited, most, rest * counts / counts[~limited].sum())
        if limited.sum() == len(counts) - 1 or not (shares > most * (1.0 + 1e-12)).any():
            return shares
        limited |= shares > most
