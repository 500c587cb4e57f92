"""What people look at: diagnoses, and pictures in scikit-learn's display convention.

Pictures need matplotlib.
"""

from .covariance import CovarianceDisplay
from .coverage import CoverageDisplay
from .diagnosis import Diagnosis, PathologyWarning, diagnose
from .layers import LayersDisplay
from .loss_curve import LossCurveDisplay
from .predictive import PredictiveDisplay

__all__ = [
    "CovarianceDisplay",
    "CoverageDisplay",
    "Diagnosis",
    "LayersDisplay",
    "LossCurveDisplay",
    "PathologyWarning",
    "PredictiveDisplay",
    "diagnose",
]
