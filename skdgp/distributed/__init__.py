"""Fits that the ranks of a process group of ``torch.distributed`` share."""

from .fitting import fit, partial_fit
from .parquet import read_parquet

__all__ = ["fit", "partial_fit", "read_parquet"]
