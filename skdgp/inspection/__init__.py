"""Pictures of fitted models, in scikit-learn's display convention; they need matplotlib."""

from .covariance import CovarianceDisplay
from .coverage import CoverageDisplay
from .layers import LayersDisplay
from .loss_curve import LossCurveDisplay
from .predictive import PredictiveDisplay

__all__ = [
    "CovarianceDisplay",
    "CoverageDisplay",
    "LayersDisplay",
    "LossCurveDisplay",
    "PredictiveDisplay",
]
