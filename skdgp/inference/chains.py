"""Chains of samplers, whose states are kept."""

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import rankdata

from ..exceptions import TrainingFailed
from ..random import sobol_normal
from .base import Model, Scheme

#: between the 1.01 of Vehtari et al. (2021) and the 1.1 of Gelman et al. (2013)
LARGEST_RHAT = 1.05
LEAST_SIZE = 400.0  #: independent draws, by Vehtari et al. (2021): errors of 5 % of a deviation


class ChainScheme(Scheme):
    """Base class of samplers, which keep `n_samples` states of `n_chains` chains."""

    takes_chunks = False
    fewer_draws = False

    def _states_of_each(self):
        return -(-self.n_samples // self.n_chains)


class ChainModel(Model):
    """A model whose steps move several `chains` at once, and keep some of their states.

    A model that goes on with the states of an earlier fit forgets those that were `kept`.
    """

    def __init__(self, n_chains, n_samples):
        super().__init__()
        self.n_chains = n_chains
        self.n_kept = -(-n_samples // n_chains)  #: states that each chain is to keep
        self.chains, self.kept, self.n_steps = {}, {}, 0

    def _apply(self, fn, recurse=True):  # which moves modules to devices
        self.chains = {name: fn(value) for name, value in self.chains.items()}
        self.kept = {name: [fn(v) for v in values] for name, values in self.kept.items()}
        return super()._apply(fn, recurse)

    def _device(self):
        return next(iter(self.state_dict().values())).device

    @property
    def finished(self):
        return self._count() >= self.n_kept

    def _count(self):
        return len(next(iter(self.kept.values()), ()))

    def keep(self, **values):
        """Keep states, all or, if interrupted, none of them."""
        self.kept = {
            name: [*self.kept.get(name, ()), value.clone()] for name, value in values.items()
        }

    def states(self):
        """States that predict, chain after chain: the present ones before any is kept."""
        if not self.chains:
            raise TrainingFailed(
                "There are no states to predict from: no step of a chain was made."
            )
        if not self.kept:
            return dict(self.chains)
        return {name: torch.stack(v, 1).flatten(0, 1) for name, v in self.kept.items()}

    def n_hidden(self):
        """Hidden units of all layers, each of which needs one number of a predictive draw."""
        return sum(self.draw_widths())

    def draws(self, n, seed):
        """One point for each state that is to be kept, whatever `n` is."""
        return sobol_normal(self.n_kept * self.n_chains, self.n_hidden(), seed)

    @property
    def unfinished(self):
        if self.finished:
            return None
        made = self._count() * self.n_chains
        rest = "burn-in was not over" if made == 0 else f"{made} of {self.n_kept * self.n_chains}"
        return f"Sampling ended before all states were kept ({rest}); raise max_iter or max_time."

    def state(self):
        arrays = {f"chains/{k}": v.cpu().numpy().copy() for k, v in self.chains.items()}
        kept = {f"kept/{k}": torch.stack(v).cpu().numpy() for k, v in self.kept.items()}
        return {**super().state(), **arrays, **kept}

    def load_state(self, arrays):
        super().load_state({name: array for name, array in arrays.items() if "/" not in name})
        parts, device = {"chains": {}, "kept": {}}, self._device()
        for key, value in arrays.items():
            part, _, name = key.rpartition("/")
            if part:
                parts[part][name] = torch.tensor(value, device=device)
        self.chains = parts["chains"]
        self.kept = {name: list(value) for name, value in parts["kept"].items()}

    def training_state(self):
        return {"n_steps": np.array(self.n_steps)}

    def load_training_state(self, arrays):
        self.n_steps = int(arrays["n_steps"]) if arrays else 0


def pick_states(n_states, n, generator):
    """States that `n` functions are of: each as often as any other, up to one."""
    rounds = [torch.randperm(n_states, generator=generator) for _ in range(-(-n // n_states))]
    return torch.cat(rounds)[:n]


def split_rhat(draws):
    """Split R-hat (Gelman et al., 2013, section 11.4) of draws (n_chains, n_draws, ...)."""
    split = _split(draws)
    n, within, between = split.shape[1], split.var(1, ddof=1).mean(0), split.mean(1).var(0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((n - 1) / n + between / within)


def rank_rhat(draws):
    """Rank-normalized split R-hat, the larger one of location and of scale (Vehtari et al., 2021)."""
    split = _split(draws)
    folded = np.abs(split - np.median(split, (0, 1)))
    return np.fmax(*(split_rhat(_normal_scores(part)) for part in (split, folded)))


def sample_sizes(draws):
    """Effective sample sizes of bulk and tails (Vehtari et al., 2021, sections 3.2 and 4.3)."""
    split = _split(draws)
    low, high = (split <= np.quantile(split, p, (0, 1)) for p in (0.05, 0.95))
    tails = (_independent(part.astype(float)) for part in (low, high))
    return _independent(_split(_normal_scores(split))), np.fmin(*tails)


def _independent(x):
    """Effective number of independent draws in chains (n_chains, n_draws, ...), by Geyer's rule."""
    C, n = x.shape[:2]
    off = x - x.mean(1, keepdims=True)
    power = np.abs(np.fft.rfft(off, 2 * n, axis=1)) ** 2
    covariance = np.fft.irfft(power, axis=1)[:, :n].mean(0) / n
    within = covariance[0] * n / (n - 1)
    total = within * (n - 1) / n + x.mean(1).var(0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = 1.0 - (within - covariance) / total
    rho[0] = np.where(total > 0.0, 1.0, np.nan)
    pairs = rho[0 : n - n % 2 : 2] + rho[1::2]
    pairs = np.where(np.cumprod(pairs > 0.0, 0), np.minimum.accumulate(pairs, 0), 0.0 * pairs)
    return C * n / np.maximum(2.0 * pairs.sum(0) - 1.0, 1.0 / np.log10(C * n))


def _split(draws):
    draws = np.asarray(draws, dtype=np.float64)
    n = draws.shape[1] // 2
    return np.concatenate([draws[:, :n], draws[:, -n:]])


def _normal_scores(draws):
    """Draws as two halves that follow each other, replaced by normal quantiles of their ranks."""
    C, n = draws.shape[0] // 2, draws.shape[1]
    ranks = rankdata(draws.reshape(-1, *draws.shape[2:]), axis=0).reshape(draws.shape)
    scores = ndtri((ranks - 0.375) / (2 * C * n + 0.25))
    return np.concatenate([scores[:C], scores[C:]], 1)
