"""Splitters with test rows outside the region of the training rows, and comparisons of posteriors."""

from .posteriors import (
    PosteriorComparison,
    compare_posteriors,
    freeze_hyperparameters,
    log_marginal_likelihood,
)
from .projection import ProjectionSplit

__all__ = [
    "PosteriorComparison",
    "ProjectionSplit",
    "compare_posteriors",
    "freeze_hyperparameters",
    "log_marginal_likelihood",
]
