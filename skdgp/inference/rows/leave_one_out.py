"""Densities of training rows, each given all others."""

import math

import numpy as np
import torch

from ...linalg import LOG_2PI


def log_density(local_scale, y, mean, sd, z):
    """Log density of rows, all outputs together; with a local scale that of a multivariate t."""
    error, ell = (y - mean).square() / sd.square(), -sd.log()
    if local_scale is None:
        return (ell - 0.5 * (LOG_2PI + error)).sum(-1)
    dof, scale, k = local_scale.dof(z.shape[-1]), local_scale.squared(z), y.shape[-1]
    ell = (ell - 0.5 * (scale.log() + (dof * math.pi).log())).sum(-1)
    ell = ell + torch.lgamma(0.5 * (dof + k)) - torch.lgamma(0.5 * dof)
    return ell - 0.5 * (dof + k) * torch.log1p((error / (scale * dof)).sum(-1))


class LeaveOneOut:
    """Base class of log densities of training rows, each given all others."""

    def __init__(self, rows, search, n_at_once=None):
        self.rows, self.search, self._n_at_once = rows, search, n_at_once

    def without(self, chosen):
        """Targets (n, k), moments and whitened errors of the neighbors of some rows, given all others."""
        raise NotImplementedError

    def density(self, local_scale, y, mean, sd, z):
        """Log density of rows from the results of :meth:`without`."""
        return log_density(local_scale, y, mean, sd, z)

    def parts(self, chosen):
        """Results of :meth:`without` for pieces of chosen rows, and the order that brings the rows back."""
        groups, pieces = self.rows.alike(chosen, self.search.n_neighbors), []
        for group in groups:
            pieces += np.array_split(
                chosen[group], -(-len(group) // (self._n_at_once or len(group)))
            )
        return map(self.without, pieces), np.concatenate(groups).argsort()

    def log_density(self, local_scale, parts, order, dispersions=None):
        """Log density of each row of the parts: (n,), or (n_dispersions, n)."""
        densities = []
        for y, mean, sd, z in parts:
            if dispersions is not None:
                sd = dispersions.view(-1, *(1,) * sd.ndim) * sd
            densities.append(self.density(local_scale, y, mean, sd, z))
        return torch.cat(densities, -1)[..., torch.as_tensor(order, device=y.device)]

    @staticmethod
    def errors(parts, order):
        """Targets of the rows of the parts less their predicted means: (n, k)."""
        errors = [y - (mean if mean.ndim == 2 else mean.mean(0)) for y, mean, _, _ in parts]
        return torch.cat(errors)[torch.as_tensor(order, device=errors[0].device)]
