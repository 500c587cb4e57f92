"""Kernels and likelihoods of many states at once, from vectors of logarithms."""

import torch

_SPREAD = 1.0, 2.0  #: standard deviations a priori of logarithms, of kernels and of likelihoods


class Hyperparameters:
    """Sampled logarithms, normal around their starts; first those of layers with sampled values."""

    def __init__(self, kernels, likelihood, sampled, n_sampled_layers):
        self.kernels, self.likelihood, self.sampled = kernels, likelihood, sampled
        self._fixed = None
        centers, spreads = ([torch.zeros(0, dtype=torch.float64)] for _ in range(2))
        for i, module in enumerate([*kernels, likelihood]):
            of_likelihood = module is likelihood
            if i == n_sampled_layers:
                self.n_of_values = sum(map(len, centers))
            for raw in self._raw(module, hidden=i < len(kernels) - 1):
                centers.append(raw.detach().flatten().clone())
                spreads.append(torch.full_like(centers[-1], _SPREAD[of_likelihood]))
        self.center, self.spread = torch.cat(centers), torch.cat(spreads)
        self.sampled = len(self.center) > 0

    def _raw(self, module, hidden):
        """Parameters of a component that are sampled, in the order of :meth:`_filled`."""
        for name in module.component._parts:
            yield from self._raw(getattr(module, name), hidden)
        for name in module._floors:
            if self.sampled and not (hidden and name == "variance"):
                yield getattr(module, f"log_{name}")

    def log_prior(self, phi):
        """Log-density of vectors (S, P) up to a constant, shape (S,)."""
        return -0.5 * ((phi - self.center) / self.spread).square().sum(1)

    def components(self, phi):
        """Kernels and likelihood with the numbers `phi`, (P,), or (S, P) for shapes (S, 1, ...)."""
        if not self.sampled and self._fixed is not None:
            return self._fixed
        place, last = _columns(phi), self.kernels[-1]
        kernels = [self._filled(k, place, phi.ndim > 1, k is not last) for k in self.kernels]
        self._fixed = kernels, self._filled(self.likelihood, place, phi.ndim > 1, False)
        return self._fixed

    def refresh(self, convert=lambda x: x):
        """Forget what was made of numbers that are not sampled, and move the others."""
        self._fixed = None
        self.center, self.spread = convert(self.center), convert(self.spread)

    def _filled(self, module, place, batched, hidden):
        values = {
            name: self._filled(getattr(module, name), place, batched, hidden)
            for name in module.component._parts
        }
        values.update({name: value.clone() for name, value in module._buffers.items()})
        for name, floor in module._floors.items():
            raw = getattr(module, f"log_{name}").detach()
            if not self.sampled or (hidden and name == "variance"):
                values[name] = floor + raw.exp()
                continue
            value = floor + place(raw.numel()).exp()
            values[name] = value[:, None, :] if batched else value.view(raw.shape)
        return module.component.with_values(**values)


def states_of(likelihood, states):
    """The likelihood of some states, of one that :meth:`Hyperparameters.components` made for all."""
    batched = {name: value[states] for name, value in _batched(likelihood)}
    return likelihood.with_values(**batched)


def sampled(component, prefix):
    """Names and sampled values (S, d) of a component and of its parts."""
    for name, value in _batched(component):
        yield f"{prefix}_{name}", value[:, 0]
    for name in component._parts:
        yield from sampled(getattr(component, name), f"{prefix}_{name}")


def _batched(component):
    for name, value in vars(component).items():
        if isinstance(value, torch.Tensor) and value.ndim == 3:
            yield name, value


def _columns(phi):
    """A function that hands out the next columns of `phi`."""
    start = 0

    def take(n):
        nonlocal start
        start += n
        return phi[..., start - n : start]

    return take
