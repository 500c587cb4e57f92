"""Draws from the prior of a deep Gaussian process."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np
from scipy.linalg.lapack import dpstrf
from sklearn.gaussian_process.kernels import RBF
from sklearn.utils import check_random_state, check_scalar

from ._checks import check_noise, layer_widths, make_inputs


def make_deep_gp(
    n_samples: int,
    *,
    lengthscales: Sequence[float],
    width: int | Sequence[int] = 1,
    variance: float = 1.0,
    hidden_noise: float = 0.0,
    noise: float = 0.01,
    n_features: int = 1,
    interval: tuple[float, float] = (0.0, 10.0),
    return_hidden: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> tuple:
    r"""Generate a draw from a deep Gaussian process with known lengthscales.

    With :math:`h_0 = x`, each output of layer :math:`l` is an independent draw

    .. math:: h_l(x) = f_l(h_{l-1}(x)) + \epsilon_l,
        \quad f_l \sim GP(0, v \exp(-|a - b|^2 / (2 \lambda_l^2)))

    at all rows jointly. A long lengthscale below a short one gives functions that vary slowly in
    places and fast in others ([1]_, section 4.2, with 2,500 rows and the lengthscales 5 and 0.025).

    Parameters
    ----------
    n_samples : int
        Number of rows. Time grows with its cube at worst.
    lengthscales : sequence
        For each layer a positive number, or one for each of its inputs; the first layer comes
        first. Its length is the number of layers.
    width : int or sequence of int, default=1
        Outputs of each hidden layer.
    variance : float, default=1.0
        Variance :math:`v` of every function.
    hidden_noise : float, default=0.0
        Standard deviation of the noise of hidden layers.
    noise : float, default=0.01
        Standard deviation of the noise of the target.
    n_features : int, default=1
        Number of inputs. A single one is equally spaced; several are uniform draws.
    interval : tuple of two floats, default=(0.0, 10.0)
        Range of each input.
    return_hidden : bool, default=False
        Whether to return the hidden layers too.
    random_state : int, RandomState instance or None, default=None
        Determines inputs, functions and noise.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
    hidden : list of ndarray of shape (n_samples, width)
        What the hidden layers hand on, noise included. Only if `return_hidden` is True.

    References
    ----------
    .. [1] S. Pascual Diaz (2017). Pathologies of deep sparse Gaussian process regression. MPhil
       dissertation, University of Cambridge.

    Examples
    --------
    >>> from skdgp.datasets import make_deep_gp
    >>> X, y, hidden = make_deep_gp(
    ...     200, lengthscales=[5.0, 0.1], width=2, return_hidden=True, random_state=0
    ... )
    >>> X.shape, y.shape, [h.shape for h in hidden]
    ((200, 1), (200,), [(200, 2)])
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(n_features, "n_features", Integral, min_val=1)
    check_scalar(variance, "variance", Real, min_val=0.0, include_boundaries="neither")
    check_noise(hidden_noise, "hidden_noise")
    check_noise(noise)
    if not np.iterable(lengthscales) or len(lengthscales) == 0:
        raise ValueError(
            f"lengthscales must be a list with one entry for each layer; got {lengthscales!r}."
        )
    n_hidden = len(lengthscales) - 1
    widths = layer_widths(width, n_hidden, "hidden layers")
    rng = check_random_state(random_state)
    X = make_inputs(n_samples, n_features, interval, rng)
    layers = [X]
    for lengthscale, n_outputs in zip(lengthscales, [*widths, 1]):
        f = np.sqrt(variance) * _draw(layers[-1], lengthscale, n_outputs, rng)
        std = noise if len(layers) > n_hidden else hidden_noise
        layers.append(f + std * rng.standard_normal(f.shape))
    y = layers[-1][:, 0]
    return (X, y, layers[1:-1]) if return_hidden else (X, y)


def _draw(X, lengthscale, n_outputs, rng):
    """Draws of a Gaussian process of unit variance, shape (n_samples, n_outputs)."""
    lengthscale = np.asarray(lengthscale, dtype=np.float64)
    if lengthscale.shape not in ((), (X.shape[1],)) or not (lengthscale > 0.0).all():
        raise ValueError(
            f"Each of the lengthscales must be a positive number, or one for each of the "
            f"{X.shape[1]} inputs of its layer; got {lengthscale}."
        )
    # pivoting stops at the numerical rank of K, so that K needs no jitter
    factor, pivots, rank, _ = dpstrf(RBF(lengthscale)(X), lower=1)
    draws = np.empty((len(X), n_outputs))
    draws[pivots - 1] = np.tril(factor)[:, :rank] @ rng.standard_normal(draws.shape)[:rank]
    return draws
