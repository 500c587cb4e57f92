"""Predictive distributions: mixtures of components, in the units of the target."""

from .distribution import PredictiveDistribution

__all__ = ["PredictiveDistribution"]
