"""Distributions of rows left out, splitters with test rows away from the others, comparisons of posteriors."""

from ..fitting.projection import ProjectionSplit
from .out_of_fold import cross_val_distribution
from .posteriors import (
    PosteriorComparison,
    compare_posteriors,
    freeze_hyperparameters,
    log_marginal_likelihood,
)

__all__ = [
    "PosteriorComparison",
    "ProjectionSplit",
    "compare_posteriors",
    "cross_val_distribution",
    "freeze_hyperparameters",
    "log_marginal_likelihood",
]
