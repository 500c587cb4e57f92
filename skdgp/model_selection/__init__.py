"""Splitters that ask models to leave the region of their training data."""

from .projection import ProjectionSplit

__all__ = ["ProjectionSplit"]
