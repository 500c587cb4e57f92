"""Priors of hyperparameters that are learned."""

import torch


def of_deviations(hyperparameters, scale):
    """Minus the log-density, up to a constant, of how far logarithms are from their mean.

    The deviations have Cauchy distributions: most hyperparameters stay together, and yet a few may go far.

    Parameters
    ----------
    hyperparameters : tensor
        Logarithms of what a kernel has for each column.
    scale : float
    """
    return torch.log1p(((hyperparameters - hyperparameters.mean()) / scale).square()).sum()
