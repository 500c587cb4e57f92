"""Priors of numbers that are learned."""

import torch


def of_deviations(numbers, scale):
    """Minus the log-density, up to a constant, of how far logarithms are from their mean.

    The deviations have Cauchy distributions: most numbers stay together, and yet a few may go far.

    Parameters
    ----------
    numbers : tensor
        Logarithms of what a kernel has for each column.
    scale : float
    """
    return torch.log1p(((numbers - numbers.mean()) / scale).square()).sum()
