"""Noise that has one scale before it may vary."""

import torch
from torch import nn

_FLOOR = 1e-12  #: variance of a latent function that is held at its mean


def without_scales(mean, var, n_means, floor=_FLOOR):
    """Moments of latent functions, (..., n_latents), in which scales of the noise stay at zero."""
    mean = torch.cat([mean[..., :n_means], torch.zeros_like(mean[..., n_means:])], -1)
    return mean, torch.cat([var[..., :n_means], torch.full_like(var[..., n_means:], floor)], -1)


class HomoscedasticWarmup(nn.Module):
    """First `n_steps` in which latent functions that are scales of the noise stay at zero.

    Otherwise varying noise explains variation that kernels do not explain yet, and they never do.
    Scales from an earlier fit, or from another model, are not reset.
    """

    roles = {"progress": "progress"}

    def __init__(self, n_steps):
        super().__init__()
        self.n_steps = n_steps
        self.register_buffer("progress", torch.zeros(2, dtype=torch.int64))

    @property
    def n_made(self):
        return int(self.progress[0])

    @property
    def active(self):
        return bool(self.progress[1])

    def start_step(self, log_scales):
        """Before each step, with the posterior means of the scales at the inducing inputs."""
        if self.active or self.n_made < self.n_steps:
            early = self.n_made < self.n_steps and log_scales.numel() > 0
            self.progress[1] = early and not log_scales.any()

    def end_step(self, accepted):
        """After each step."""
        self.progress[0] += accepted

    def lacks(self):
        """Return the restrictions that the first steps have not lifted."""
        return ["noise has the same size everywhere"] if self.active else []

    def unfinished(self, lacks):
        """A sentence for the user on the restrictions that remain, or None."""
        if not lacks:
            return None
        return (
            f"Training ended after {self.n_made} steps, the first ones, and {' and '.join(lacks)}; make "
            f"max_iter or max_time larger, or n_warmup of the scheme smaller than {self.n_steps}."
        )
