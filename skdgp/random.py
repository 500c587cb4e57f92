"""Random numbers: everything stochastic comes from a seed or a generator that is handed in."""

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import qmc


def sobol_normal(n, dim, seed):
    """Scrambled Sobol points mapped to standard normal variables.

    Parameters
    ----------
    n : int
        Number of points; a power of two keeps the points balanced.
    dim : int
    seed : int

    Returns
    -------
    points : ndarray of shape (n, dim), float64
    """
    if dim == 0:
        return np.zeros((n, 0))
    engine = qmc.Sobol(dim, scramble=True, rng=np.random.default_rng(seed))
    power = int(np.ceil(np.log2(max(n, 1))))
    uniform = engine.random_base2(power)[:n]
    return ndtri(uniform.clip(1e-12, 1 - 1e-12))


def spawn(generator):
    """A non-negative integer seed, drawn from a torch generator."""
    return int(torch.randint(2**31 - 1, (), generator=generator, device=generator.device))


def normal(shape, generator, like):
    """Independent standard normal draws in the dtype and on the device of `like`."""
    draws = torch.randn(shape, generator=generator, dtype=like.dtype, device=generator.device)
    return draws.to(like.device)


def gamma(concentration, shape, generator, like):
    """Independent draws of gamma variables of rate one."""
    concentration = torch.as_tensor(concentration, dtype=like.dtype, device=generator.device)
    draws = torch._standard_gamma(concentration.expand(shape).contiguous(), generator=generator)
    return draws.to(like.device)
