"""Deep Gaussian processes with the interface of scikit-learn."""

__version__ = "0.1.0.dev0"

from .estimators import DeepGPClassifier, DeepGPRegressor

__all__ = ["DeepGPClassifier", "DeepGPRegressor", "__version__"]
