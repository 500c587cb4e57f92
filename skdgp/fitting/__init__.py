"""Fitting: from a table of rows to a mixture of trained models."""

from .member import Member

__all__ = ["Member"]
