"""Priors of trainable hyperparameters."""

import torch

#: roles of hyperparameters that a kernel may have for each column
OF_COLUMNS = frozenset({"lengthscale", "variance", "strength", "shape"})


def of_deviations(logarithms, scale):
    """Minus the log-density of Cauchy deviations of logarithms from their mean."""
    return torch.log1p(((logarithms - logarithms.mean()) / scale).square()).sum()


def around(hyperparameters, centers, spread, deviation):
    """Minus the log-density, up to a constant, of log-normal priors around given centers.

    A kernel may have a hyperparameter for each column. The mean of its logarithms has such a prior
    then, and the deviations from the mean have those of :func:`of_deviations`, or None leaves
    normal priors to all. Many columns cannot overfit few rows, and yet some may matter much more
    than all others.
    """
    off, total = [], 0.0
    for (_, role, logarithms), center in zip(hyperparameters, centers):
        differences = (logarithms - center.to(logarithms)).flatten()
        if deviation and role in OF_COLUMNS:
            total = total + of_deviations(differences, deviation)
            differences = differences.mean(0, keepdim=True)
        off.append(differences)
    return total + 0.5 * (torch.cat(off) / spread).square().sum() if off else total
