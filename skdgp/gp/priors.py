"""Priors of trainable hyperparameters."""

import torch

#: roles of what a kernel may have for each column
OF_COLUMNS = frozenset({"lengthscale", "variance", "strength", "shape"})


def of_deviations(logarithms, scale):
    """Minus the log-density, up to a constant, of how far logarithms are from their mean.

    The deviations have Cauchy distributions: most hyperparameters stay together, and yet a few may go far.

    Parameters
    ----------
    logarithms : tensor
        Of what a kernel has for each column.
    scale : float
    """
    return torch.log1p(((logarithms - logarithms.mean()) / scale).square()).sum()


def around(hyperparameters, centers, spread, deviation):
    """Minus the log-density, up to a constant, of log-normal priors around given centers.

    Of what a kernel has for each column, the level, that is the mean of the logarithms, has such a prior, and
    the deviations from it have those of :func:`of_deviations`: many columns cannot overfit few rows, and
    yet some may matter much more than all others.

    Parameters
    ----------
    hyperparameters : list of Hyperparameter
        Logarithms, with their roles.
    centers : list of tensor
    spread : float
        Standard deviation of the logarithms.
    deviation : float or None
        Scale of the deviations; None leaves normal priors to all.
    """
    off, total = [], 0.0
    for (_, role, logarithms), center in zip(hyperparameters, centers):
        differences = (logarithms - center.to(logarithms)).flatten()
        if deviation and role in OF_COLUMNS:
            total = total + of_deviations(differences, deviation)
            differences = differences.mean(0, keepdim=True)
        off.append(differences)
    return total + 0.5 * (torch.cat(off) / spread).square().sum() if off else total
