"""Toy problems of the deep Gaussian process literature, and one real data set."""

from .cars import load_cars
from .deep_gp import make_deep_gp
from .functions import make_piecewise_linear, make_step
from .kernel_processes import make_deep_kernel_process
from .mountain_car import make_mountain_car

__all__ = [
    "load_cars",
    "make_deep_gp",
    "make_deep_kernel_process",
    "make_mountain_car",
    "make_piecewise_linear",
    "make_step",
]
