"""Draws of functions from the prior, by random features."""

import math

import torch

from ..random import normal, uniform

IMPORTANCE_FRACTION = 0.5  #: fraction of the features of a function that are at high frequencies
N_FEATURES = 512  #: of a function: values are exactly Gaussian, correlations good to 3 %
_AT_ONCE = 64  #: rows
#: range of log squared frequencies at high frequencies: so much, and so much over `nu`
_REACH = 17.0, 6.0


def prior_functions(kernel, n, n_outputs, generator, like, n_features):
    """`n` functions from the prior, by random features (Wilson et al., 2020)."""
    phi = kernel.features((n, n_features), like.shape[1], generator, like, IMPORTANCE_FRACTION)
    width = phi(like.new_zeros(1, 1, like.shape[1])).shape[-1]
    w = normal((n, n_features * width, n_outputs), generator, like) / math.sqrt(n_features)

    def f(X):
        """Values (n, P, n_outputs) at rows (P, n_inputs), or at rows of each function (n, P, n_inputs)."""
        parts = X.expand(n, *X.shape[-2:]).split(_AT_ONCE, 1)
        return torch.cat([phi(H).flatten(-2) @ w for H in parts], 1)

    return f


def importance_sampled(half, present, share, nu, importance, generator):
    """Features of which more have high frequencies, with weights that leave the kernel as it is.

    A fraction `importance` of the features depends on one input of which `half`, one half of the
    chi-square variable that frequencies are divided by, is small: its logarithm is uniform. The
    weights are the density under the kernel over that of the draws.
    """
    if importance == 0.0:
        return half, present, 1.0
    *groups, n_inputs, R = half.shape
    order, within = uniform((2, *groups, 1, R), generator, half)
    # stratified; below 1 at high frequencies
    level = (order.argsort(-1) + within) / (R * importance)
    which = (n_inputs * uniform((*groups, 1, R), generator, half)).floor()
    chosen = torch.arange(n_inputs, device=half.device)[:, None] == which
    chosen = chosen & (level < 1.0)
    reach = _REACH[0] + _REACH[1] / nu
    half = torch.where(chosen, nu * torch.exp(-reach * level), half)
    present = present | chosen
    inside = present & (half < nu) & (half > nu * math.exp(-reach))
    ratio = torch.exp(math.lgamma(nu) + half - nu * half.log()) / (reach * share)
    ratio = torch.where(inside, ratio, 0.0).mean(-2, keepdim=True)
    return half, present, 1.0 / (1.0 - importance + importance * ratio)
