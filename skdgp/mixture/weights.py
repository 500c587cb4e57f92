"""Mixture weights of models, and their dispersion, from densities of rows that they did not see."""

import numpy as np
import torch

from ..estimators.data import Data
from ..inference.base import Batch
from .predictive import rows_at_once

_ROWS = 2000  #: rows that decide
_DRAWS = 16  #: draws of a member that cannot leave rows out
_PRIOR_ROWS = 10.0  #: rows that speak for equal mixture weights
_PRIOR_DISPERSION = 0.05  #: how far the logarithm of the dispersion is expected to be from zero
_LOG_DISPERSIONS = 0.05 * np.arange(-14, 7)  #: those that are tried
_NEGLIGIBLE = 0.005  #: a logarithm of the dispersion that is taken for zero
_ENOUGH = 0.6  #: mixture weight of the members that may speak for all
_N_ITER = 500
_TOO_GOOD = (
    1.0,
    1.5,
)  #: nats for each target seen, from which on a mixture weight shrinks, and is none
_HARDLY = 0.01  #: what is left of it then


class StackingMixin:
    """Mixtures whose members are weighted by what they say of rows that they did not see."""

    def _has_dispersion(self, plans):
        """Whether the members' widths are a matter of the mixture."""
        return False

    def _stack(self, plans, members, models, draws, data, seed):
        """Set the mixture weights of the members, and their dispersion."""
        chosen = [i for i, plan in enumerate(plans) if plan.most is not None]
        if len(chosen) < 2:
            return
        rows = np.random.default_rng(seed).permutation(len(data))[:_ROWS]
        tensors = (torch.tensor(a, device=self._device()) for a in data.take(slice(None)))
        batch = Batch(*tensors, 1.0, float(data.weights.sum()))
        own = Data(data.X[rows], data.y[rows], data.weights[rows])
        own.scale_as(data.x_scaler, data.y_scaler)
        dispersions = np.exp(_LOG_DISPERSIONS) if self._has_dispersion(plans) else None
        densities, of_dispersions = (
            [],
            [],
        )  # at the members' own dispersion; of those that leave rows out
        seen = {}  # what the others say of rows that they have seen
        for k, i in enumerate(chosen):
            density = models[i].loo_log_density(batch, rows, dispersions)
            if density is None:
                member = members[i].holding(models[i], draws[i][:_DRAWS])
                seen[k], density = self._with_and_without(member, own)
            elif dispersions is not None:
                of_dispersions.append(density)
                (density,) = density[_LOG_DISPERSIONS == 0.0]
            densities.append(density)
        densities, most = np.stack(densities), np.array([plans[i].most for i in chosen])
        knows = np.isin(np.arange(len(chosen)), list(seen))
        said = np.stack([seen.get(k, density) for k, density in enumerate(densities)])
        most *= trust(said, own.weights, knows, own.y.shape[1])
        mixture_weights = stack(densities, own.weights, most)
        dispersion = 1.0
        if of_dispersions:
            honest = mixture_weights[~knows]
            log_dispersion = best_dispersion(
                np.stack(of_dispersions, 1), honest, own.weights, _LOG_DISPERSIONS
            )
            # they cannot tell how wide the others should be, where these are nearly all
            dispersion = float(np.exp(log_dispersion * min(1.0, honest.sum() / _ENOUGH)))
        for i, mixture_weight in zip(chosen, mixture_weights):
            members[i].mixture_weight, members[i].dispersion = mixture_weight, dispersion

    def _with_and_without(self, member, data):
        """Log-densities of a deep model's training rows, (2, n_rows); nearly leave-one-out the second time."""
        model, size = member.model(self._device()), rows_at_once([member])
        tensors = [torch.tensor(part, device=self._device()) for part in data.take(slice(None))]
        draws = torch.tensor(member.draws, device=self._device())
        pieces = zip(*(part.split(size) for part in tensors))
        return np.concatenate([model.with_and_without(*piece, draws) for piece in pieces], 1)


def best_dispersion(log_density, mixture_weights, weights, log_dispersions):
    """By what to multiply the dispersion of all members, for the highest log-density of the mixture.

    A mixture of calibrated models is too wide, for it adds their disagreement to what each of
    them is unsure of; narrower members make up for it (Gneiting and Ranjan, 2013, section 3.2).

    Parameters
    ----------
    log_density : ndarray of shape (n_dispersions, n_models, n_rows)
        Leave-one-out, or of rows held out.
    mixture_weights : ndarray of shape (n_models,)
        Relative to each other.
    weights : ndarray of shape (n_rows,)
        How often each row counts.
    log_dispersions : ndarray of shape (n_dispersions,)
        Equally spaced.

    Returns
    -------
    log_dispersion : float
        By a parabola through the best of `log_dispersions` and the two next to it; zero leaves the members
        as they are.
    """
    if not np.isfinite(log_density).all():
        return 0.0
    mixed = np.logaddexp.reduce(log_density + np.log(mixture_weights)[:, None], axis=1)
    score = mixed @ weights - 0.5 * np.square(log_dispersions / _PRIOR_DISPERSION)
    best = int(np.argmax(score))
    if best in (0, len(score) - 1):
        return log_dispersions[best]
    below, top, above = score[best - 1 : best + 2]
    step = 0.5 * (below - above) / (below - 2.0 * top + above)
    log_dispersion = log_dispersions[best] + step * (log_dispersions[1] - log_dispersions[0])
    return 0.0 if abs(log_dispersion) < _NEGLIGIBLE else log_dispersion


def trust(log_density, weights, knows, n_outputs=1):
    """Factors of the largest mixture weights of models that have seen the rows: small if they overfit.

    With `p` free numbers a model of `n` targets says about `p / 2n` nats more than the truth of one that
    it has seen, and as much less of one that it has not: a nat lies between the two if there is a
    number for each target. So a model should not say a nat more than the best mixture of all others.
    One of these has to have seen the rows, too: where models of this kind alone are right, they do
    not lose their mixture weights.

    Parameters
    ----------
    log_density : ndarray of shape (n_models, n_rows)
    weights : ndarray of shape (n_rows,)
        How often each row counts.
    knows : ndarray of shape (n_models,), dtype bool
        Which models have seen the rows. A single one keeps its mixture weight.
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
        mixture_weights = stack(log_density[others], weights)
        mixture = np.logaddexp.reduce(log_density[others] + np.log(mixture_weights)[:, None])
        excess = np.average(log_density[i] - mixture, weights=weights) / n_outputs
        factors[i] = np.clip((end - excess) / (end - start), _HARDLY, 1.0)
    return factors


def stack(log_density, weights, most=1.0):
    """Mixture weights that maximize the log-density of the mixture (Yao et al., 2018), by EM.

    Parameters
    ----------
    log_density : ndarray of shape (n_models, n_rows)
        Leave-one-out, or of rows held out.
    weights : ndarray of shape (n_rows,)
        How often each row counts.
    most : float or ndarray of shape (n_models,)
        The largest mixture weight that each model can have; together at least one.

    Returns
    -------
    mixture_weights : ndarray of shape (n_models,)
        They add up to one.
    """
    p = np.exp(log_density - log_density.max(0))
    most = np.broadcast_to(most, len(p))
    mixture_weights = np.full(len(p), 1.0 / len(p))
    for _ in range(_N_ITER):
        responsible = mixture_weights[:, None] * p
        counts = (responsible / responsible.sum(0)) @ weights + _PRIOR_ROWS / len(p)
        mixture_weights = _limited(counts, most)
    return mixture_weights


def _limited(counts, most):
    """Mixture weights that are proportional to the counts, apart from those that would exceed their limit."""
    limited = np.zeros(len(counts), dtype=bool)
    while True:
        rest = 1.0 - most[limited].sum()
        mixture_weights = np.where(limited, most, rest * counts / counts[~limited].sum())
        if limited.sum() == len(counts) - 1 or not (mixture_weights > most * (1.0 + 1e-12)).any():
            return mixture_weights
        limited |= mixture_weights > most
