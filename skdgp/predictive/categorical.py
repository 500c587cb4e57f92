"""Distributions of classes."""

import math

import numpy as np
import torch

from .base import Distribution

LEAST = 1e-15  #: probability of a class: of less, float64 would make 0 beside 1


class Categorical(Distribution):
    """Probabilities of classes at n rows, by a mixture over members."""

    def __init__(self, base):
        self.base = base

    def log_probabilities(self):
        """Logarithms of the probabilities, (n, n_classes), none of which is 0 or 1."""
        log_p = self.base.log_probabilities()
        log_total = math.log1p(LEAST * log_p.shape[-1])
        return torch.logaddexp(log_p, torch.full_like(log_p, math.log(LEAST))) - log_total

    def probabilities(self):
        return self.log_probabilities().exp()

    def std(self):
        """Standard deviations (n, n_classes) of the probabilities over the functions."""
        return self.base.std_of_probabilities()

    def log_prob(self, y):
        """Log-probabilities (n,) of the numbers of classes (n, 1)."""
        index = torch.from_numpy(np.asarray(y[:, 0], dtype=np.int64))
        log_p = self.log_probabilities()
        return log_p.gather(1, index[:, None].to(log_p.device))[:, 0]
