"""Elliptical slice sampling of small deep Gaussian processes."""

from .scheme import EllipticalSlice

__all__ = ["EllipticalSlice"]
