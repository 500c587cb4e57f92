"""Fits that the ranks of a process group of ``torch.distributed`` share."""

from .fitting import fit
from .parquet import read_parquet

__all__ = ["fit", "read_parquet"]
