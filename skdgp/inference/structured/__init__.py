"""Structured variational inference (Lindinger et al., 2020)."""

from .structured import StructuredGP, StructuredVI

__all__ = ["StructuredGP", "StructuredVI"]
