"""Layers whose units share nothing: each has a kernel and inducing inputs of its own."""

import torch
from torch import nn

from .frozen import FormLayer, Outputs
from .layer import SparseLayer, noise_parameter
from .stack import Layer


class Kernels(nn.ModuleList):
    """The trainable kernels of units, in the place of one."""

    def fitted(self):
        """A list of kernels with their present hyperparameters."""
        return [kernel.fitted() for kernel in self]


class UnitsLayer(Layer):
    """Sparse layers of one output each, side by side; see :class:`~skdgp.gp.layer.SparseLayer`.

    All `units` start with the same kernel and the same inducing inputs. The mean function ``h W`` and the
    noise belong to the layer.
    """

    roles = {**Layer.roles, "log_noise": "noise"}

    def __init__(self, kernel, n_inputs, n_outputs, n_inducing, linear_mean=False, noise=0.0, **q):
        super().__init__(None, n_inputs, n_outputs, linear_mean)
        shape = kernel, n_inputs, 1, n_inducing
        self.units = nn.ModuleList([SparseLayer(*shape, **q) for _ in range(n_outputs)])
        self.log_noise = noise_parameter(noise)

    noise = SparseLayer.noise

    def parts(self):
        return list(self.units)

    @property
    def n_inducing(self):
        return self.units[0].n_inducing

    @property
    def kernel(self):
        return Kernels([unit.kernel for unit in self.units])

    @property
    def Z(self):
        """Inducing inputs of all units, one after another."""
        return torch.cat([unit.Z for unit in self.units])

    def start(self, Z, W, rng):
        self.start_mean(W)
        for unit in self.units:
            unit.start(Z, None, rng)

    def restart(self):
        for unit in self.units:
            unit.restart()

    def deviations(self):
        return torch.cat([unit.deviations() for unit in self.units])

    @torch.no_grad()
    def relocate(self, H, n):
        means, maps = zip(*(unit.relocate(H, n) for unit in self.units))
        return torch.cat(means, -1) + self.mean_function(H), torch.cat(maps)

    def carry(self, B):
        for unit, own in zip(self.units, B):
            unit.carry(own[None])

    def process_moments(self, H):
        return joined(unit.process_moments(H) for unit in self.units)

    @torch.no_grad()
    def frozen(self, make=FormLayer):
        W = None if self.W is None else self.W.clone()
        noise = torch.as_tensor(self.noise()).to(self.units[0].Z)
        return FrozenUnits([unit.frozen(make) for unit in self.units], W, noise)


class FrozenUnits(Outputs):
    """A :class:`UnitsLayer` at rest."""

    def __init__(self, units, W, noise):
        self.units, self.W, self._noise = units, W, noise
        self.n_outputs = len(units)

    def noise(self):
        return self._noise

    def parts(self):
        return self.units

    def process_moments(self, H):
        return joined(unit.process_moments(H) for unit in self.units)

    def functions(self, n, n_features, generator, v=None):
        """Draws of functions, see :meth:`FrozenLayer.functions <skdgp.gp.frozen.FrozenLayer.functions>`."""
        units = [unit.functions(n, n_features, generator) for unit in self.units]

        def f(H):
            mean, deviation = joined(unit(H) for unit in units)
            return mean + self.mean_function(H), deviation

        return f


def joined(pairs):
    """Pairs of columns as two matrices."""
    return tuple(torch.cat(part, -1) for part in zip(*pairs))
