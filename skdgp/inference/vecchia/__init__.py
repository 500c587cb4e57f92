"""Nearest-neighbor Gaussian processes."""

from .vecchia import Vecchia

__all__ = ["Vecchia"]
