"""The kernel of effects of levels."""

import numpy as np

from ...random import normal
from .base import Kernel, Sum, as_kernel, over_rows, tensor_like
from .columns import OnColumns
from .stationary import cos_sin

_FREQUENCY = 1e12  #: of random features: differences of inputs down to 1e-11 are differences


class Indicator(Kernel):
    r"""Indicator of the same level, :math:`\sigma^2` where all inputs are equal, and zero elsewhere.

    Functions have an independent value at each level, as random intercepts of mixed models have. Rows of a
    level determine its value; at a level without rows, the value has its prior variance.

    Parameters
    ----------
    variance : float, default=1.0
        Variance between levels.
    trainable : bool or list of str, default=True
        As for :class:`SquaredExponential`.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.kernels import Indicator
    >>> levels = torch.tensor([[0.0], [1.0], [0.0]])
    >>> Indicator(variance=2.0)(levels, levels).numpy()
    array([[2., 0., 2.],
           [0., 2., 0.],
           [2., 0., 2.]], dtype=float32)
    """

    _positive = {"variance": 0.0}
    _roles = {"variance": "variance"}
    _of_length = {}

    def __init__(self, variance=1.0, trainable=True):
        self.variance = variance
        self.trainable = trainable

    def __call__(self, X, Z):
        same = (X[..., :, None, :] == Z[..., None, :, :]).all(-1)
        return tensor_like(self.variance, X) * same

    def diag(self, X):
        return over_rows(self.variance, X)

    @property
    def slopes(self):
        """Zero: levels do not change which rows are near."""
        return 0.0

    def features(self, n, n_features, generator, like, importance=0.0):
        """Random waves, so short that rows of different levels have nothing in common."""
        omega = _FREQUENCY * normal((*n[:-1], n_features, n[-1]), generator, like)
        return cos_sin(omega, tensor_like(self.variance, like))


def with_levels(kernel, codes, n_inputs, has_effects=True):
    """A kernel of the other inputs, and effects of the levels that each of the inputs `codes` holds."""
    if not len(codes):
        return kernel
    others = np.delete(np.arange(n_inputs), codes)
    whole = OnColumns(kernel, (others if len(others) else np.asarray(codes)).tolist())
    for j in codes if has_effects else ():
        whole = whole + OnColumns(Indicator(), [int(j)])
    return whole


def without_levels(kernel):
    """The kernel that :func:`with_levels` was given; others as they are."""
    while isinstance(kernel, Sum) and columns_of_levels(kernel.right):
        kernel = kernel.left
    return kernel.kernel if isinstance(kernel, OnColumns) else kernel


def columns_of_levels(kernel):
    """Inputs whose levels have effects of their own: lists of columns, one for each indicator."""
    if isinstance(kernel, OnColumns) and isinstance(kernel.kernel, Indicator):
        return [list(kernel.columns)]
    parts = (as_kernel(getattr(kernel, name)) for name in kernel._parts)
    return [columns for part in parts for columns in columns_of_levels(part)]
