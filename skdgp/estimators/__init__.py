"""The scikit-learn face of skdgp."""

from .classifier import DeepGPClassifier
from .regressor import DeepGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPRegressor"]
