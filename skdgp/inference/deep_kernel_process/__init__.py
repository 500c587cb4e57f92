"""Deep kernel processes: kernels that are random, instead of features (Aitchison et al., 2021)."""

from .diwp import DeepInverseWishart
from .global_inducing import GlobalInducing
from .nngp import NNGP

__all__ = ["NNGP", "DeepInverseWishart", "GlobalInducing"]
