"""Noise that has one scale before it may vary."""

import numpy as np
import torch

_FLOOR = 1e-12  #: variance of a latent function that is held at its mean


class HomoscedasticWarmup:
    """For models whose last latent functions may be scales of the noise: zero in the first steps.

    Otherwise noise that may vary explains what kernels have not found yet, and they never find it.
    What has been learned before, by an earlier fit or by another model, is not undone.

    Attributes
    ----------
    n_warmup : int
        Steps with one scale of the noise.
    """

    n_warmup = 0
    _n_made = 0  #: steps, also those of earlier fits
    _is_homoscedastic = False

    def _n_means(self):
        """Number of latent functions that are means of the target."""
        return self.likelihood().n_means(self.layers[-1].n_outputs)

    def step(self, batch, generator, rate=1.0):
        self._is_homoscedastic = False
        if self._n_made < self.n_warmup:
            log_scales = self.layers[-1].q.mean[:, self._n_means() :]
            self._is_homoscedastic = log_scales.numel() > 0 and not log_scales.any()
        before = self._n_steps
        loss = super().step(batch, generator, rate)
        self._n_made += self._n_steps - before
        return loss

    def _homoscedastic(self, mean, var):
        """Moments of the latent functions, (..., n_latents), with scales of the noise that are held."""
        if not self._is_homoscedastic:
            return mean, var
        n = self._n_means()
        mean = torch.cat([mean[..., :n], torch.zeros_like(mean[..., n:])], -1)
        return mean, torch.cat([var[..., :n], torch.full_like(var[..., n:], _FLOOR)], -1)

    def _lacks(self):
        """What the first steps have not come to."""
        return ["noise has the same size everywhere"] if self._is_homoscedastic else []

    def unfinished(self):
        lacks = self._lacks()
        if not lacks:
            return None
        return (
            f"Training ended after {self._n_made} steps, the first ones, and {' and '.join(lacks)}; make "
            f"max_iter or max_time larger, or n_warmup of the scheme smaller than {self.n_warmup}."
        )

    def state(self):
        if not self._n_made:
            return super().state()
        return {**super().state(), "progress": np.array([self._n_made, self._is_homoscedastic])}

    def load_state(self, arrays):
        arrays = dict(arrays)
        self._n_made, is_homoscedastic = map(int, arrays.pop("progress", (0, 0)))
        self._is_homoscedastic = bool(is_homoscedastic)
        super().load_state(arrays)
