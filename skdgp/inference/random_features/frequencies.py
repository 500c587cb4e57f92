"""Draws of the frequencies of random features."""

import numpy as np
from scipy.special import gammaincinv

from ...random import sobol_normal

SAMPLINGS = ("auto", "sobol", "orthogonal", "independent")


def draw_frequencies(n_inputs, n, rng, sampling="auto"):
    """Directions of random features (n_inputs, n); every single one is standard normal.

    They are scrambled Sobol points, orthogonal blocks (Yu et al., 2016) with stratified lengths, or
    independent. ``"auto"`` takes Sobol points for at most 4 inputs, for at most 8 from 128
    frequencies on, and else orthogonal ones: they halve the error of the kernel, or better.
    """
    if sampling == "auto":
        few = n_inputs <= 4 or (n_inputs <= 8 and n >= 128)
        sampling = "sobol" if few else "orthogonal"
    if sampling == "independent":
        return rng.standard_normal((n_inputs, n))
    if sampling == "sobol":
        return sobol_normal(n, n_inputs, rng.randint(2**31 - 1)).T
    blocks = []
    for _ in range(-(-n // n_inputs)):
        Q, R = np.linalg.qr(rng.standard_normal((n_inputs, n_inputs)))
        blocks.append(Q * np.sign(np.diag(R)))  # without the signs not uniform over rotations
    return np.hstack(blocks)[:, :n] * np.sqrt(stratified_chi2(n_inputs, n, rng))


def stratified_chi2(df, n, rng):
    """`n` draws of a chi-square variable, one from each of `n` equally likely intervals."""
    u = (rng.permutation(n) + rng.uniform(size=n)) / n
    return 2.0 * gammaincinv(0.5 * df, u.clip(1e-12, 1.0 - 1e-12))
