"""Draws from the priors of deep kernel processes."""

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state, check_scalar

from ..gp.kernels import Kernel, as_kernel
from ._checks import check_noise, layer_widths, make_inputs

_KINDS = ("dgp", "dwp", "diwp", "bnn")
_JITTER = 1e-8  #: white noise of kernels, relative to the mean of their diagonal


def make_deep_kernel_process(
    n_samples: int = 100,
    *,
    kind: str = "diwp",
    n_layers: int = 3,
    width: int = 5,
    delta: float = 5.0,
    kernel: str | Kernel | None = None,
    n_features: int = 1,
    interval: tuple[float, float] = (-2.0, 2.0),
    noise: float = 0.01,
    return_layers: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> Any:
    r"""Generate a draw from a deep kernel process ([1]_, figures 1 and 2).

    Layer by layer there is a Gram matrix of all rows, :math:`G_1, \dots, G_L`, where `L` is `n_layers`, and
    the target is a draw of :math:`N(0, K(G_L))` with noise. With :math:`K_1 = X X^T / N_0` and
    :math:`K_\ell = K(G_{\ell-1})`,

    - ``"dgp"``, a deep Gaussian process, has :math:`G_\ell = F_\ell F_\ell^T / N_\ell` for `width` features
      that are draws of :math:`N(0, K_\ell)`;
    - ``"dwp"``, a deep Wishart process, has :math:`G_\ell \sim W(K_\ell / N_\ell, N_\ell)`, the same;
    - ``"diwp"``, a deep inverse Wishart process, has
      :math:`G_\ell \sim W^{-1}(\delta K_\ell, \delta + P + 1)`;
    - ``"bnn"``, a neural network of rectified linear units, is a deep Gaussian process of its own features.

    Parameters
    ----------
    n_samples : int, default=100
        Number of rows. Time grows with its cube.
    kind : {"dgp", "dwp", "diwp", "bnn"}, default="diwp"
    n_layers : int, default=3
        Number of Gram matrices, and of applications of the kernel.
    width : int or sequence of int, default=5
        Features of each layer, except for ``"diwp"``. Wide layers are nearly fixed functions of those below.
    delta : float, default=5.0
        The same for ``"diwp"``: the larger, the nearer to a fixed function.
    kernel : str, Kernel or None, default=None
        A function of Gram matrices, see :mod:`skdgp.gp.kernels`. None stands for the squared exponential;
        networks have none.
    n_features : int, default=1
        Number of inputs. A single one is equally spaced; several are uniform draws.
    interval : tuple of two floats, default=(-2.0, 2.0)
        Range of each input.
    noise : float, default=0.01
        Standard deviation of the noise of the target.
    return_layers : bool, default=False
        Whether to return Gram matrices and features, too.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
    grams : list of ndarray of shape (n_samples, n_samples)
        Only if `return_layers` is True.
    features : list of ndarray of shape (n_samples, width)
        Likewise; empty where there are none.

    References
    ----------
    .. [1] L. Aitchison, A. Yang and S. Ober (2021). Deep kernel processes. ICML 38.

    Examples
    --------
    >>> from skdgp.datasets import make_deep_kernel_process
    >>> X, y, grams, features = make_deep_kernel_process(
    ...     20, kind="dgp", n_layers=2, width=3, return_layers=True, random_state=0
    ... )
    >>> X.shape, y.shape, [G.shape for G in grams], [F.shape for F in features]
    ((20, 1), (20,), [(20, 20), (20, 20)], [(20, 3), (20, 3)])
    """
    sizes = {"n_samples": n_samples, "n_layers": n_layers, "n_features": n_features}
    for name, value in sizes.items():
        check_scalar(value, name, Integral, min_val=1)
    check_scalar(delta, "delta", Real, min_val=0.0, include_boundaries="neither")
    check_noise(noise)
    if kind not in _KINDS:
        raise ValueError(f"kind must be one of {_KINDS}; got {kind!r}.")
    if kind == "bnn" and kernel is not None:
        raise ValueError("A network has no kernel; leave kernel at None for kind='bnn'.")
    widths = layer_widths(width, n_layers, "layers")
    rng = check_random_state(random_state)
    X = make_inputs(n_samples, n_features, interval, rng)
    of_gram = as_kernel("squared_exponential" if kernel is None else kernel).bind(1).of_gram(1)
    root, grams, features = X / np.sqrt(n_features), [], []  # root root^T is the kernel
    for N in widths:
        if kind in ("dgp", "bnn"):
            F = root @ rng.standard_normal((root.shape[1], N))
            features.append(F)
            G = F @ F.T / N
        else:
            p = root.shape[1]
            C = root @ (_wishart_root(p, N, rng) if kind == "dwp" else _inverse_root(p, delta, rng))
            G = C @ C.T
        grams.append(G)
        root = np.sqrt(2.0 / N) * np.maximum(F, 0.0) if kind == "bnn" else _root(of_gram, G)
    y = root @ rng.standard_normal(root.shape[1]) + noise * rng.standard_normal(n_samples)
    return (X, y, grams, features) if return_layers else (X, y)


def _root(kernel, G):
    K = kernel.from_gram(torch.as_tensor(G)).numpy()
    return np.linalg.cholesky(K + _JITTER * K.diagonal().mean() * np.eye(len(K)))


def _wishart_root(p, N, rng):
    """Bartlett's factor (p, min(p, N)) of a draw from ``W(I / N, N)``, which may be singular."""
    A = np.tril(rng.standard_normal((p, min(p, N))), -1)
    i = np.arange(min(p, N))
    A[i, i] = np.sqrt(rng.chisquare(N - i))
    return A / np.sqrt(N)


def _inverse_root(p, delta, rng):
    """A factor of a draw from ``W^{-1}(delta I, delta + p + 1)``."""
    M = np.tril(rng.standard_normal((p, p)), -1)
    M[np.arange(p), np.arange(p)] = np.sqrt(rng.chisquare(delta + 2.0 + np.arange(p)))
    return np.sqrt(delta) * np.linalg.inv(M)
