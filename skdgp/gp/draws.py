"""Draws of functions from the prior."""

import math

import torch

from ..random import normal

IMPORTANCE_FRACTION = 0.5  #: fraction of the features of a function that are at high frequencies
N_FEATURES = (
    512  #: of a function: values of the prior are exactly Gaussian, correlations good to 3 %
)
_AT_ONCE = 64  #: rows


def prior_functions(kernel, n, n_outputs, generator, like, n_features):
    """`n` functions from the prior, by random features (Wilson et al., 2020).

    They map (n_rows, n_inputs) to (n, n_rows, n_outputs).
    """
    phi = kernel.features((n, n_features), like.shape[1], generator, like, IMPORTANCE_FRACTION)
    width = phi(like.new_zeros(1, 1, like.shape[1])).shape[-1]
    w = normal((n, n_features * width, n_outputs), generator, like) / math.sqrt(n_features)
    return lambda X: torch.cat(
        [phi(H.expand(n, *H.shape)).flatten(-2) @ w for H in X.split(_AT_ONCE)], 1
    )
