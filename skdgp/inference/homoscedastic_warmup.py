"""Noise that has one scale before it may vary."""

import numpy as np
import torch

_FLOOR = 1e-12  #: variance of a latent function that is held at its mean


def without_scales(mean, var, n_means, floor=_FLOOR):
    """Moments of latent functions, (..., n_latents), in which scales of the noise stay at zero."""
    mean = torch.cat([mean[..., :n_means], torch.zeros_like(mean[..., n_means:])], -1)
    return mean, torch.cat([var[..., :n_means], torch.full_like(var[..., n_means:], floor)], -1)


class HomoscedasticWarmup:
    """First steps in which latent functions that are scales of the noise stay at zero.

    Otherwise noise that may vary explains what kernels have not found yet, and they never find it.
    What has been learned before, by an earlier fit or by another model, is not undone.

    Parameters
    ----------
    n_steps : int

    Attributes
    ----------
    n_made : int
        Steps, also those of earlier fits.
    active : bool
        Whether noise has the same size everywhere, after the last step.
    """

    def __init__(self, n_steps):
        self.n_steps, self.n_made, self.active = n_steps, 0, False

    def start_step(self, log_scales):
        """Before each step, with the posterior means of the scales at the inducing inputs."""
        early = self.n_made < self.n_steps and log_scales.numel() > 0
        self.active = bool(early and not log_scales.any())

    def lacks(self):
        """What the first steps have not come to."""
        return ["noise has the same size everywhere"] if self.active else []

    def unfinished(self, lacks):
        """A sentence for the user on what the first steps have not come to, or None."""
        if not lacks:
            return None
        return (
            f"Training ended after {self.n_made} steps, the first ones, and {' and '.join(lacks)}; make "
            f"max_iter or max_time larger, or n_warmup of the scheme smaller than {self.n_steps}."
        )

    def state(self):
        """As a dict of arrays; empty without steps."""
        return {"progress": np.array([self.n_made, self.active])} if self.n_made else {}

    def load(self, arrays):
        """Take what is its own out of the arrays."""
        self.n_made, active = map(int, arrays.pop("progress", (0, 0)))
        self.active = bool(active)
