"""Scores of predictive distributions, and scorers for model selection.

The functions take arrays, and smaller is better unless stated otherwise. The scorers take a fitted
estimator and rows, as ``cross_val_score(scoring=...)`` wants them, and greater is better always.

Where scikit-learn routes metadata, a scorer must say whether it weights the rows, by
``crps_scorer.set_score_request(sample_weight=True)``, which is a scorer, too. What ``functools.partial``
makes of one cannot say so, and does not weight them then.
"""

from .crps import crps_gaussian, crps_gaussian_mixture
from .joint import energy_score, variogram_score
from .scorers import (
    calibration_scorer,
    coverage_scorer,
    crps_scorer,
    interval_score_scorer,
    log_predictive_density_scorer,
    pinball_scorer,
)
from .scores import (
    calibration_error,
    coverage_score,
    interval_score,
    negative_log_predictive_density,
    pinball_loss,
)

__all__ = [
    "calibration_error",
    "calibration_scorer",
    "coverage_score",
    "coverage_scorer",
    "crps_gaussian",
    "crps_gaussian_mixture",
    "crps_scorer",
    "energy_score",
    "interval_score",
    "interval_score_scorer",
    "log_predictive_density_scorer",
    "negative_log_predictive_density",
    "pinball_loss",
    "pinball_scorer",
    "variogram_score",
]
