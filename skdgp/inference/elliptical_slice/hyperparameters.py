"""Kernels and likelihoods of many states at once, from vectors of logarithms."""

import torch

_SPREAD = 1.0, 2.0  #: standard deviations a priori of logarithms, of kernels and of likelihoods


class Hyperparameters:
    """Sampled logarithms, normal around their starts; first those of layers with sampled values."""

    def __init__(self, kernels, likelihood, sampled, n_sampled_layers):
        modules = {f"layer{i + 1}": kernel for i, kernel in enumerate(kernels)}
        self._modules = {**modules, "likelihood": likelihood}
        self._fixed, self._places = None, {}  # floor and columns by name
        centers, spreads = ([torch.zeros(0, dtype=torch.float64)] for _ in range(2))
        for i, (name, module) in enumerate(self._modules.items()):
            if i == n_sampled_layers:
                self.n_of_values = sum(map(len, centers))
            for of_one, floor, raw, prior in _logarithms(
                module, name, i < len(kernels) - 1, sampled
            ):
                start = sum(map(len, centers))
                self._places[of_one] = floor, slice(start, start + raw.numel())
                centers.append(raw.detach().flatten().clone())
                spread = prior.of_each if prior else _SPREAD[module is likelihood]
                spreads.append(torch.full_like(centers[-1], spread))
        self.center, self.spread = torch.cat(centers), torch.cat(spreads)
        self.sampled = len(self.center) > 0

    def log_prior(self, phi):
        """Log-density of vectors (S, P) up to a constant, shape (S,)."""
        return -0.5 * ((phi - self.center) / self.spread).square().sum(1)

    def values(self, phi):
        """The sampled values (S, d) by name, from vectors (S, P)."""
        return {name: floor + phi[..., at].exp() for name, (floor, at) in self._places.items()}

    def components(self, phi):
        """Kernels and likelihood with the numbers `phi`, (P,), or (S, P) for shapes (S, 1, ...)."""
        if self.sampled or self._fixed is None:
            values = self.values(phi)
            *kernels, likelihood = (
                _filled(module, name, values, phi.ndim > 1)
                for name, module in self._modules.items()
            )
            self._fixed = kernels, likelihood
        return self._fixed

    def refresh(self, convert=lambda x: x):
        """Forget what was made of numbers that are not sampled, and move the others."""
        self._fixed = None
        self.center, self.spread = convert(self.center), convert(self.spread)


def _logarithms(module, prefix, hidden, sampled):
    """Name, floor, logarithm and given prior of each sampled hyperparameter.

    Variances of hidden layers stay.
    """
    for name in module.component._parts:
        yield from _logarithms(getattr(module, name), f"{prefix}_{name}", hidden, sampled)
    for name, floor in module._floors.items():
        if sampled and not (hidden and name == "variance"):
            own = f"log_{name}"
            yield f"{prefix}_{name}", floor, getattr(module, own), module.priors.get(own)


def _filled(module, prefix, values, batched):
    """The component of a module with sampled values."""
    filled = {
        name: _filled(getattr(module, name), f"{prefix}_{name}", values, batched)
        for name in module.component._parts
    }
    filled.update({name: value.clone() for name, value in module._buffers.items()})
    for name, floor in module._floors.items():
        raw, value = getattr(module, f"log_{name}").detach(), values.get(f"{prefix}_{name}")
        if value is None:
            filled[name] = floor + raw.exp()
        else:
            filled[name] = value[:, None, :] if batched else value.view(raw.shape)
    return module.component.with_values(**filled)
