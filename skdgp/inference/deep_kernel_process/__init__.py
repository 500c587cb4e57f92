"""Deep kernel processes: kernels that are random, instead of features (Aitchison et al., 2021)."""

from .diwp import DeepInverseWishart

__all__ = ["DeepInverseWishart"]
