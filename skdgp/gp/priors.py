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


def around(hyperparameters, centers, n_kernel, spread, deviation):
    """Minus the log-density, up to a constant, of log-normal priors around given centers.

    Of what a kernel has for each column, the level, that is the mean of the logarithms, has such a prior, and
    the deviations from it have those of :func:`of_deviations`: many columns cannot overfit few rows, and
    yet some may matter much more than all others.

    Parameters
    ----------
    hyperparameters, centers : list of tensor
        Logarithms; those of the kernel come first.
    n_kernel : int
        How many these are.
    spread : float
        Standard deviation of the logarithms.
    deviation : float or None
        Scale of the deviations; None leaves normal priors to all.
    """
    off, total = [(p - c.to(p)).flatten() for p, c in zip(hyperparameters, centers)], 0.0
    if not off:
        return total
    for i in range(n_kernel if deviation else 0):
        total = total + of_deviations(off[i], deviation)
        off[i] = off[i].mean(0, keepdim=True)
    return total + 0.5 * (torch.cat(off) / spread).square().sum()
