"""Random numbers: everything stochastic comes from a seed or a generator that is handed in."""

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import qmc

_AT_ONCE = 4096  #: variables of a Latin hypercube, for the sake of memory


def sobol_normal(n, dim, seed):
    """Scrambled Sobol points as normal variables; beyond 21,201 dimensions, independent draws."""
    if dim == 0:
        return np.zeros((n, 0))
    if dim > qmc.Sobol.MAXDIM:
        return np.random.default_rng(seed).standard_normal((n, dim))
    engine = qmc.Sobol(dim, scramble=True, rng=np.random.default_rng(seed))
    power = int(np.ceil(np.log2(max(n, 1))))
    uniform = engine.random_base2(power)[:n]
    return ndtri(uniform.clip(1e-12, 1 - 1e-12))


def latin_normal(n, dim, seed):
    """A Latin hypercube (n, dim) as normal variables, the same with all versions of libraries."""
    points, stream = np.empty((n, dim)), _mix(np.uint64(seed))
    for first in range(0, dim, _AT_ONCE):
        columns = slice(first, min(first + _AT_ONCE, dim))
        places = np.arange(n * columns.start, n * columns.stop, dtype=np.uint64).reshape(-1, n)
        bits = _mix(_mix(places) ^ stream)
        strata = np.empty(bits.shape)
        np.put_along_axis(strata, bits.argsort(1), np.arange(float(n))[None], 1)
        within = (_mix(bits) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        points[:, columns] = ndtri(((strata + within) / n).clip(1e-12, 1.0 - 1e-12)).T
    return points


class RowNoise:
    """Standard normal draws that belong to a row: hashes of the row, the seed and a place."""

    def __init__(self, X, seed):
        self._stream = _mix(np.uint64(seed))
        self._rows = np.full(len(X), self._stream)
        for column in (X + 0.0).astype(np.float64).T:  # which makes -0.0 the same as 0.0
            self._rows = _mix(self._rows ^ np.ascontiguousarray(column).view(np.uint64))

    def draw(self, shape):
        """Draws of shape (n_draws, n_rows, n_units); different ones in every call."""
        n_draws, _, n_units = shape
        places = np.arange(1, n_draws * n_units + 1, dtype=np.uint64).reshape(n_draws, 1, n_units)
        self._stream = _mix(self._stream)
        bits = _mix(self._rows[:, None] ^ _mix(places ^ self._stream))
        return ndtri(((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


def _mix(x):
    """The finalizer of SplitMix64, a bijection of 64-bit integers."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def normal(shape, generator, like):
    """Independent standard normal draws in the dtype and on the device of `like`."""
    if isinstance(generator, RowNoise):
        return torch.as_tensor(generator.draw(shape)).to(like)
    draws = torch.randn(shape, generator=generator, dtype=like.dtype, device=generator.device)
    return draws.to(like.device)


def uniform(shape, generator, like):
    """Independent uniform draws from the unit interval, in the dtype and on the device of `like`."""
    draws = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
    return draws.to(like)


def gamma(concentration, shape, generator, like):
    """Independent draws of gamma variables of rate one."""
    concentration = torch.as_tensor(concentration, dtype=like.dtype, device=generator.device)
    draws = torch._standard_gamma(concentration.expand(shape).contiguous(), generator=generator)
    return draws.to(like.device)
