"""Draws through layers of random features."""

import torch


def propagate(layers, X, eps, xi, input_connected, weights=None):
    """Moments of the last layer.

    Parameters
    ----------
    layers : sequence of FeatureLayer
    X : tensor of shape (n, n_features)
    eps : list of tensors of shape (S, n, width) or (S, 1, width)
        Standard normal draws for the hidden layers.
    xi : list of tensors of shape (S, n_inputs, R), or of None
        Standard normal draws for the frequencies of all layers.
    input_connected : bool
    weights : tensor of shape (n_weights, n_latents), optional
        Weights of the last layer, in place of their posterior.

    Returns
    -------
    mean, var : tensors of shape (S, n, n_latents); S is 1 if nothing is drawn
    """
    H, moments, last = X, None, len(layers) - 1
    for i, layer in enumerate(layers):
        if moments is not None:
            mean, var = moments
            H = mean + var.clamp_min(1e-12).sqrt() * eps[i - 1]  # S, n, width
            if input_connected:
                H = torch.cat([H, X.expand(len(H), *X.shape)], -1)
        moments = layer.moments(H, xi[i], weights if i == last else None)
    mean, var = (m if m.ndim == 3 else m[None] for m in moments)
    return mean, var.clamp_min(1e-12)
