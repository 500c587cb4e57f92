"""The scikit-learn face of skdgp."""

from .classifier import DeepGPClassifier
from .members import Member
from .regressor import DeepGPRegressor
from .sparse import SparseGPClassifier, SparseGPRegressor

__all__ = [
    "DeepGPClassifier",
    "DeepGPRegressor",
    "Member",
    "SparseGPClassifier",
    "SparseGPRegressor",
]
