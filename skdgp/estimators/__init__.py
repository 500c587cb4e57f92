"""The scikit-learn face of skdgp."""

from .classifier import DeepGPClassifier
from .regressor import DeepGPRegressor
from .sparse import SparseGPClassifier, SparseGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPRegressor", "SparseGPClassifier", "SparseGPRegressor"]
