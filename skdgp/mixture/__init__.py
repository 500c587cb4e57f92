"""Mixtures of models: members, their weights, and what the mixture predicts."""
