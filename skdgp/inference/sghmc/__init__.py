"""Stochastic gradient Hamiltonian Monte Carlo over inducing outputs."""

from .scheme import SGHMC

__all__ = ["SGHMC"]
