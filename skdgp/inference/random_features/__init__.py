"""Deep Gaussian processes as networks of random features."""

from .rff import RandomFeatures

__all__ = ["RandomFeatures"]
