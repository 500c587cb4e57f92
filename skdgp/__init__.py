"""Deep Gaussian processes with the interface of scikit-learn."""

from ._version import __version__
from .estimators import DeepGPClassifier, DeepGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPRegressor", "__version__"]
