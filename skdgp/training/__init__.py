"""The training loop and everything around it."""

from .checkpoint import Checkpoint

__all__ = ["Checkpoint"]
