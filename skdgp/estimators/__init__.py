"""The scikit-learn face of skdgp."""

from .classifier import DeepGPClassifier
from .multi_fidelity import MultiFidelityRegressor
from .regressor import DeepGPRegressor
from .sparse import SparseGPClassifier, SparseGPRegressor

__all__ = [
    "DeepGPClassifier",
    "DeepGPRegressor",
    "MultiFidelityRegressor",
    "SparseGPClassifier",
    "SparseGPRegressor",
]
