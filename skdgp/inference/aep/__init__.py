"""Approximate expectation propagation."""

from .aep import AEP

__all__ = ["AEP"]
