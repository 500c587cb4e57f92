"""Diagnoses of fitted models, and plots in scikit-learn's display convention.

Pictures need matplotlib, and diagnostics of chains ArviZ.
"""

from .covariance import CovarianceDisplay
from .coverage import CoverageDisplay
from .diagnosis import Diagnosis, PathologyWarning, diagnose
from .effects import EffectsDisplay
from .forecast import ForecastDisplay
from .importance import ImportanceDisplay
from .layers import LayersDisplay
from .leave_one_out import LeaveOneOutDisplay
from .loss_curve import LossCurveDisplay
from .mcmc import ChainDiagnostics, mcmc_diagnostics, to_arviz
from .predictive import PredictiveDisplay
from .sensitivity import sobol_indices

__all__ = [
    "ChainDiagnostics",
    "CovarianceDisplay",
    "CoverageDisplay",
    "Diagnosis",
    "EffectsDisplay",
    "ForecastDisplay",
    "ImportanceDisplay",
    "LayersDisplay",
    "LeaveOneOutDisplay",
    "LossCurveDisplay",
    "PathologyWarning",
    "PredictiveDisplay",
    "diagnose",
    "mcmc_diagnostics",
    "sobol_indices",
    "to_arviz",
]
