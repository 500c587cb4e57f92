"""The start from the median distance, as in the literature on expectation propagation."""

import numpy as np
import torch
from scipy.spatial.distance import pdist

from ..linalg import cholesky, root_of_inverse
from .greedy import inducing_inputs, kernels

_ROWS = 1000  #: rows whose distances are looked at


@torch.no_grad()
def median(model, X, rng):
    """The default start of Pascual Diaz (2017), section 5.1.2.

    First layer: the median distance of the rows as lengthscale, a variance of 0.25. Later layers:
    inducing inputs on the diagonal of the cube from -1 to 1, lengthscale and variance 1. Everywhere,
    the posterior is that of targets from -1 to 1, equally spaced over the inducing inputs, under
    noise of a random variance below 0.5 at each. A noise variance of 0.01 for the data.

    Hidden layers with a linear mean function have a posterior mean of zero instead, and inducing
    inputs of later layers where the mean function puts them.

    Parameters
    ----------
    model : Model
        With `layers`; inducing inputs and mean functions are set.
    X : ndarray of shape (n_rows, n_features)
    rng : numpy.random.RandomState
    """
    some = X if len(X) <= _ROWS else X[rng.choice(len(X), _ROWS, replace=False)]
    distance = np.median(pdist(some)) if len(some) > 1 else 1.0
    linear = False  # whether the layer before has a linear mean function
    for i, layer in enumerate(model.layers):
        for kernel in kernels(layer):
            if i == 0:
                kernel.assign(lengthscale=max(distance, 1e-3), variance=0.25)
            else:
                kernel.assign(lengthscale=1.0 + 0.1 * rng.uniform(), variance=1.0)
        if i and not linear:
            n_hidden = model.layers[i - 1].n_outputs  # inputs beside them stay
            diagonal = torch.linspace(-1.0, 1.0, layer.Z.shape[-2], dtype=layer.Z.dtype)
            layer.Z[..., :n_hidden] = diagonal[:, None]
        linear = getattr(layer, "W", None) is not None
        _set_posterior(layer, rng, centered=linear)
    model.likelihood.assign(variance=0.01)


def _set_posterior(layer, rng, centered):
    """The exact posterior for noisy targets at the inducing inputs, in whitened form."""
    Z, D = inducing_inputs(layer), layer.n_outputs
    M = len(Z)
    L = cholesky(kernels(layer)[0]()(Z, Z), layer.jitter)
    precision = 1.0 / (0.5 * torch.tensor(rng.uniform(size=(len(layer.q.root), M))).clamp_min(1e-3))
    LT = L.mT * precision[:, None]  # L^T times the precision of the noise
    P = LT @ L + torch.eye(M, dtype=L.dtype)
    root = root_of_inverse(P)
    mean = root @ (root.mT @ (LT @ torch.linspace(-1.0, 1.0, M, dtype=L.dtype)[:, None]))
    layer.q.root.copy_(root)
    layer.q.mean.copy_(torch.zeros(M, D) if centered else mean[..., 0].T.expand(M, D))
