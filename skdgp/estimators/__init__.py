"""The scikit-learn face of skdgp."""

from .classifier import DeepGPClassifier
from .regressor import DeepGPRegressor
from .sparse import SparseGPRegressor
from .sparse_classifier import SparseGPClassifier

__all__ = ["DeepGPClassifier", "DeepGPRegressor", "SparseGPClassifier", "SparseGPRegressor"]
