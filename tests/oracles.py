"""Brute force and statistics that tests of several folders compare with."""

import math

import numpy as np
import torch
from scipy import stats


def expectation(g, m, v):
    """``E g(f)`` for ``f ~ N(m, v)`` by equal steps, whose error vanishes exponentially for smooth `g`."""
    z, step = np.linspace(-12.0, 12.0, 4001, retstep=True)
    return float(g(m + math.sqrt(v) * z) @ stats.norm.pdf(z)) * step


def condition(k, X, y, x, noise):
    """Mean and covariance of a process with kernel `k` at rows `x`, given values `y` with noise at rows `X`."""
    cross = k(X, x)
    solution = np.linalg.solve(k(X, X) + np.diag(np.broadcast_to(noise, len(X))), cross)
    return solution.T @ y, k(x, x) - solution.T @ cross


def leave_one_out(K, y):
    """Mean and variance of each target given all others (Rasmussen and Williams, 2006, equation 5.12).

    `K` is the covariance of targets.
    """
    precision = np.linalg.inv(K)
    var = 1.0 / np.diag(precision)
    return y - var * (precision @ y), var


def in_standard_errors(draws, expected, n=None):
    """The largest deviation of means of draws (n, ...) from what is expected, in standard errors."""
    n = len(draws) if n is None else n
    return float(((draws.mean(0) - expected) / draws.std(0)).abs().max()) * math.sqrt(n)


def of_mixture(draws, mean, var, powers=(1, 2), n=None):
    """The same for moments around the mean of a mixture, whose components have these moments (s, ...)."""
    center = mean.mean(0)
    off, between = draws - center, mean - center
    expected = {1: between, 2: var + between**2, 3: between**3 + 3.0 * between * var}
    return max(in_standard_errors(off**power, expected[power].mean(0), n) for power in powers)


def units(parameter):
    """Directions along each entry of a parameter."""
    eye = torch.eye(parameter.numel(), dtype=parameter.dtype)
    return eye.view(-1, *parameter.shape)


@torch.no_grad()
def slope(value, parameter, direction, step=1e-5):
    """Central difference of ``value()`` along a direction of a parameter."""
    before, values = parameter.clone(), []
    for size in (step, -step):
        parameter.copy_(before + size * direction)
        values.append(float(value()))
    parameter.copy_(before)
    return (values[0] - values[1]) / (2.0 * step)


def check_gradients(value, named, *, rtol=1e-5, atol=1e-5, step=1e-5, directions=units):
    """Gradients that parameters hold, against central differences of ``value()``."""
    for name, parameter, gradient in [(n, p, p.grad.clone()) for n, p in named]:
        for direction in directions(parameter):
            found = float((gradient * direction).sum())
            expected = slope(value, parameter, direction, step)
            assert abs(found - expected) <= max(atol, rtol * abs(expected)), (name, found, expected)


class _Call(torch.nn.Module):
    def __init__(self, module, function):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, *inputs):
        return self.function(*inputs)


def gradcheck(module, function, *inputs, of=lambda name: True):
    """Gradients of a function, of its inputs and of parameters of a module, by finite differences."""
    named = [(name, p.detach().clone()) for name, p in module.named_parameters() if of(name)]
    names, n = [f"module.{name}" for name, _ in named], len(inputs)

    def f(*values):
        parameters = dict(zip(names, values[n:], strict=True))
        return torch.func.functional_call(_Call(module, function), parameters, values[:n])

    values = [x.detach().requires_grad_() for x in (*inputs, *(p for _, p in named))]
    assert torch.autograd.gradcheck(f, values)
