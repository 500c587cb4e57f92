"""Layers one after another: the only place where rows walk through a deep model."""

import itertools

import numpy as np
import torch
from torch import nn

from ..random import normal
from .component import Trainable, hyperparameters
from .frozen import Outputs
from .inducing import centers, linear_map

_FLOOR = 1e-12  #: least variance of an output
_NOTHING = 0.01  #: deviation of a process that changes nothing, in lengthscales of the next layer


class _Walk:
    """The walk of rows through layers, `input_connected` to the rows themselves or not.

    Schemes differ by the outputs of a layer: draws, moments, states of a sampler, functions.
    """

    def inputs(self, H, X):
        """Inputs of a layer, from the outputs of the one before and the rows."""
        if not self.input_connected:
            return H
        return torch.cat([H, X.expand(*H.shape[:-1], X.shape[-1])], -1)

    def walk(self, X, visit):
        """Pass rows through ``visit(i, layer, H)``; leading dimensions are draws."""
        H = X
        for i, layer in enumerate(self):
            H = visit(i, layer, self.inputs(H, X) if i else H)
        return H

    def moments(self, X, eps, of_layer=None):
        """Moments of the last layer given draws of hidden ones (Salimbeni and Deisenroth, 2017)."""
        last = len(self) - 1

        def visit(i, layer, H):
            mean, var = layer.shared_moments(H) if of_layer is None else of_layer(i, layer, H)
            var = var.clamp_min(_FLOOR)
            return (mean, var) if i == last else torch.addcmul(mean, var.sqrt(), eps[i])

        mean, var = self.walk(X, visit)
        return (mean, var) if mean.ndim == 3 else (mean[None], var[None])


class Layer(Outputs, nn.Module):
    """Base class of layers: a kernel, and a fixed matrix `W` or None; ``frozen()`` is the layer at rest."""

    roles = {"W": "mean"}
    n_inducing = 0  #: rows of `Z` that start at centers of the rows

    def __init__(self, kernel, n_inputs, n_outputs, linear_mean=False):
        super().__init__()
        self.n_outputs = n_outputs
        if kernel is not None:  # else units have kernels of their own
            self.kernel = Trainable(kernel)
        W = torch.zeros(n_inputs, n_outputs, dtype=torch.float64) if linear_mean else None
        self.register_buffer("W", W)

    @torch.no_grad()
    def start(self, Z, W, rng):
        """Take inducing inputs, and a mean function, or None, of outputs of the layer before."""
        if self.n_inducing:
            self.Z.copy_(Z)
        self.start_mean(W)

    @torch.no_grad()
    def start_mean(self, W):
        """Take a mean function, or None."""
        if self.W is not None and W is not None:
            self.W.zero_()
            self.W[: len(W)].copy_(W)


class Stack(_Walk, nn.ModuleList):
    """The layers of a deep Gaussian process."""

    def __init__(self, layers=(), input_connected=False):
        super().__init__(layers)
        self.input_connected = input_connected

    def __getitem__(self, index):
        if isinstance(index, slice):
            return Stack(list(self)[index], self.input_connected)
        return super().__getitem__(index)

    @torch.no_grad()
    def start(self, X, weights, rng, method="kmeans"):
        """Place the inducing inputs, and set the mean functions of hidden layers.

        The inducing inputs of the first layer are centers of the rows, or of a sample; those of
        later layers are the same centers, pushed through the mean functions, as are the inputs of
        the last layer that are returned.
        """
        n, M = len(X), self[0].n_inducing
        Z = centers(X, weights, M, method, rng) if M else X[:0]

        def visit(i, layer, H):
            W = None
            for part in layer.parts():
                if isinstance(getattr(part, "kernel", None), Trainable):
                    part.kernel.find(H[:n].numpy(), weights)
            if i < len(self) - 1:
                A = H[:n, : self[i - 1].n_outputs] if i else H[:n]
                W = torch.as_tensor(linear_map(A.numpy(), layer.n_outputs, weights))
            layer.start(H[n:], W, rng)
            return H[:n].numpy() if W is None else H[:, : len(W)] @ W

        return self.walk(torch.as_tensor(np.vstack([X, Z])).double(), visit)

    @torch.no_grad()
    def vanished(self):
        """Whether all hidden layers hand on their mean functions and no more.

        Deviations of their processes are then a hundredth of the next layer's lengthscales, at most.
        """
        for layer, above in itertools.pairwise(self):
            found = hyperparameters(above, buffers=True)
            logs = [one.parameter for one in found if one.role == "lengthscale"]
            if layer.W is None or not logs:
                return False
            n = layer.n_outputs
            shortest = torch.stack(
                [p.exp()[:n].expand(n) for p in map(torch.atleast_1d, logs)]
            ).amin(0)
            if bool((layer.deviations() > _NOTHING * shortest).any()):
                return False
        return len(self) > 1

    @torch.no_grad()
    def frozen(self, of_layer=lambda layer: layer.frozen()):
        """The layers at rest, by ``of_layer(layer)``: a :class:`FrozenStack`."""
        return FrozenStack(map(of_layer, self), self.input_connected)


class FrozenStack(_Walk, list):
    """The layers of a deep Gaussian process at rest, which threads can share."""

    def __init__(self, layers, input_connected):
        super().__init__(layers)
        self.input_connected = input_connected

    def functions(self, n, functions):
        """Compose draws of deep functions from those of layers, means and deviations."""
        last = len(self) - 1

        def evaluate(X, noise=None):
            def visit(i, layer, H):
                mean, deviation = functions[i](H)
                if i == last:
                    return mean, deviation
                H, variance = mean + deviation, layer.noise()
                if noise is not None and variance > 0.0:
                    H = H + variance**0.5 * normal(H.shape, noise, H)
                return H

            return self.walk(X.to(torch.float64).expand(n, *X.shape), visit)

        return evaluate
