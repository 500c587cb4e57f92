"""Shallow sparse Gaussian processes on all rows at once."""

from .vfe import VFE, PowerEP

__all__ = ["VFE", "PowerEP"]
