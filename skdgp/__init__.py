"""Deep Gaussian processes with the interface of scikit-learn."""

from ._version import __version__
from .estimators import (
    DeepGPClassifier,
    DeepGPRegressor,
    MultiFidelityRegressor,
    SparseGPClassifier,
    SparseGPRegressor,
)

__all__ = [
    "DeepGPClassifier",
    "DeepGPRegressor",
    "MultiFidelityRegressor",
    "SparseGPClassifier",
    "SparseGPRegressor",
    "__version__",
]
