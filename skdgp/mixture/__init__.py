"""Mixtures of models: members, their weights, and what the mixture predicts."""

from .member import Member

__all__ = ["Member"]
