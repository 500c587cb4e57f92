"""Kernels and likelihoods as objects, and their trainable counterparts."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import nn

from .._parameters import check_settable
from .priors import Fixed, LogNormal, Prior


class Hyperparameter(NamedTuple):
    """A trainable hyperparameter, or another parameter of a model.

    Roles decide about priors, step sizes, starts and warm starts: ``"lengthscale"``, ``"variance"``,
    ``"strength"`` and ``"shape"`` of kernels, ``"noise"``, ``"mean"``, ``"inducing_input"``, ``"posterior"``.
    """

    name: str
    role: str
    parameter: nn.Parameter
    prior: LogNormal | None = None  #: of the exponential of the parameter


def hyperparameters(module, role="posterior", prefix="", buffers=False):
    """Parameters of a module and its parts, by the maps `roles` and `priors` of each module."""
    roles, priors = getattr(module, "roles", {}), getattr(module, "priors", {})
    own = list(module.named_parameters(recurse=False))
    own += module.named_buffers(recurse=False) if buffers else ()
    found = [
        Hyperparameter(prefix + name, roles.get(name, role), tensor, priors.get(name))
        for name, tensor in own
    ]
    for name, part in module.named_children():
        found += hyperparameters(part, roles.get(name, role), f"{prefix}{name}.", buffers)
    return found


class Component(BaseEstimator):
    """Base class of kernels and likelihoods.

    An object holds hyperparameters, and formulas in these hyperparameters. The formulas work for floats, numpy
    arrays and tensors alike; :class:`Trainable` hands out copies of the object in which every
    positive number is a tensor of the computational graph.

    """

    _positive: ClassVar[
        dict[str, float]
    ] = {}  #: for each trainable constructor argument, the value that it always exceeds
    _least_fixed: ClassVar[dict[str, float]] = {}  #: likewise of those that training leaves alone
    _may_be_zero: ClassVar[
        tuple[str, ...]
    ] = ()  #: those of them that can be 0, which leaves a term out for good
    _parts: ClassVar[tuple[str, ...]] = ()  #: constructor arguments that are components themselves
    _from_rows: ClassVar[
        tuple[str, ...]
    ] = ()  #: arrays among them, zero by default, that :meth:`from_rows` finds
    _roles: ClassVar[dict[str, str]] = {}  #: of trainable constructor arguments
    _role = "shape"  #: of those that are not among these
    _priors: ClassVar[
        dict[str, Prior]
    ] = {}  #: of trainable constructor arguments that have become numbers, as they were given

    def __setattr__(self, name, value):
        check_settable(self, name)
        super().__setattr__(name, value)

    def hyperparameters(self):
        """List of (name, role, value) of trainable constructor arguments, also those of parts."""
        found = []
        for part in self._parts:
            of_part = getattr(self, part).hyperparameters()
            found += [(f"{part}.{name}", *rest) for name, *rest in of_part]
        for name in self._positive:
            found.append((name, self._roles.get(name, self._role), getattr(self, name)))
        return found

    def from_rows(self, X, weights):
        """Arrays that depend on training rows (n, n_features), by name."""
        return {}

    @property
    def learns(self):
        """Whether training changes any hyperparameter, of the parts included."""
        if self._parts:
            return any(getattr(self, part).learns for part in self._parts)
        return bool(self.trained())

    def trained(self):
        """Names of the hyperparameters that training changes, those of parts apart.

        Raises
        ------
        ValueError
            If `trainable` is neither a bool nor a list, tuple or set of names.
        """
        if not self._positive:
            return ()
        given, names = self.trainable, tuple(self._positive)
        free = [name for name in names if not isinstance(self._prior(name), Fixed)]
        if isinstance(given, bool | np.bool_):
            return tuple(free) if given else ()
        if isinstance(given, list | tuple | set | frozenset) and all(
            isinstance(name, str) and name in names for name in given
        ):
            return tuple(name for name in free if name in given)
        raise ValueError(
            f"trainable of {type(self).__name__} must be True, False or a list of names among "
            f"{list(names)}; got {given!r}."
        )

    def _prior(self, name):
        return self._priors.get(name, getattr(self, name))

    def resolved(self):
        """This component with numbers in the place of its priors, which it remembers."""
        found = {name: getattr(self, name) for name in self._positive}
        found = {name: value for name, value in found.items() if isinstance(value, Prior)}
        if not found:
            return self
        starts = {name: prior.start for name, prior in found.items()}
        return self.with_values(**starts, _priors={**self._priors, **found})

    def of_parts(self, factor):
        """Select the factors of those inputs that the parts have; a number is one for all."""
        return factor

    def floor(self, name):
        """The value that a trainable constructor argument always exceeds."""
        floor = self._positive[name]
        return floor if name in self.trained() else self._least_fixed.get(name, floor)

    def with_values(self, **values):
        """A shallow copy with some attributes replaced."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.__dict__.update(values)
        return new


class Trainable(nn.Module):
    """The trainable hyperparameters of a component, positive by a shifted exponential.

    Calling the module returns the component with tensors in the place of hyperparameters.
    """

    def __init__(self, component):
        super().__init__()
        self.component = component = component.resolved()
        for name in component._parts:
            self.add_module(name, Trainable(getattr(component, name)))
        for name in component._from_rows:
            self.register_buffer(name, torch.as_tensor(np.array(getattr(component, name))))
        self._floors, self.roles, self.priors = {}, {}, {}
        trained = component.trained()
        for name in component._positive:
            floor = component.floor(name)
            value = torch.as_tensor(np.array(getattr(component, name), dtype=np.float64))
            absent = name in component._may_be_zero and not value.any()
            if not absent and not (torch.isfinite(value) & (value > floor)).all():
                raise ValueError(
                    f"{name} of {type(component).__name__} must be "
                    f"{'finite' if value.isinf().any() else f'larger than {floor}'}; got "
                    f"{getattr(component, name)}."
                )
            if absent or name not in trained:
                self.register_buffer(name, value)
                continue
            self._floors[name] = floor
            self.roles[f"log_{name}"] = component._roles.get(name, component._role)
            self.register_parameter(f"log_{name}", nn.Parameter(torch.log(value - floor)))
            prior = component._priors.get(name)
            if prior is not None:  # around the start, which may be in other units
                self.priors[f"log_{name}"] = prior.around(torch.log(value - floor))

    def forward(self):
        values = {name: getattr(self, name)() for name in self.component._parts}
        values.update(self._buffers)
        for name, floor in self._floors.items():
            value = torch.exp(getattr(self, f"log_{name}"))
            values[name] = floor + value if floor else value
        return self.component.with_values(**values)

    @torch.no_grad()
    def find(self, X, weights):
        """Find what a component and its parts have from training rows, unless it was given."""
        for part in self.modules():
            names = part.component._from_rows if isinstance(part, Trainable) else ()
            if any(getattr(part, name).any() for name in names):
                continue
            for name, found in part.component.from_rows(X, weights).items() if names else ():
                getattr(part, name).copy_(torch.as_tensor(found))

    @torch.no_grad()
    def restart(self):
        """Take the hyperparameters of the component that it was made of; arrays found from rows stay."""
        for own, first in zip(self.parameters(), Trainable(self.component).parameters()):
            own.copy_(first)

    def hyperparameters(self):
        """Logarithms of trainable hyperparameters, with their roles: a list of :class:`Hyperparameter`."""
        return hyperparameters(self)

    @torch.no_grad()
    def multiply(self, role, factor, parts=True):
        """Multiply hyperparameters of a role without a floor above zero; return if there are any.

        The factor is a number, or an array with one for each input.
        """
        if self.component._parts and not parts:
            return False
        factor = self.component.of_parts(torch.as_tensor(factor, dtype=torch.float64))
        own = self.named_parameters(recurse=False)
        scaled = [parameter for name, parameter in own if self.roles.get(name) == role]
        for parameter in scaled:
            factors = factor.max() if factor.ndim > parameter.ndim else factor
            parameter.add_(factors.log())
        return any([bool(scaled), *(part.multiply(role, factor) for part in self.children())])

    def fitted(self):
        """The component with its present hyperparameters, as floats and numpy arrays."""
        with torch.no_grad():
            return to_numpy(self())

    def frozen(self):
        """The component with its present hyperparameters, as tensors of their own without a graph."""
        with torch.no_grad():
            return _with_values(self(), torch.Tensor.clone)

    def assign(self, **values):
        """Overwrite hyperparameters, for instance by starting values found from data."""
        with torch.no_grad():
            for name, value in values.items():
                if name in self._floors:
                    value = torch.as_tensor(value, dtype=torch.float64) - self._floors[name]
                    raw = getattr(self, f"log_{name}")
                    raw.copy_(torch.log(value.clamp_min(1e-12)).expand_as(raw))


def to_numpy(component):
    """The component with floats and arrays in the place of tensors."""
    return _with_values(component, _as_number)


def _as_number(value):
    value = value.cpu().numpy().copy()
    return float(value) if value.ndim == 0 else value


def _with_values(component, convert):
    """The component with all tensors converted."""
    values = {}
    for name, value in component.__dict__.items():
        if isinstance(value, torch.Tensor):
            values[name] = convert(value)
        elif name in component._parts:
            values[name] = _with_values(value, convert)
    return component.with_values(**values)
