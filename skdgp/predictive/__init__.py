"""Predictive distributions: mixtures of components, in the units of the target."""
