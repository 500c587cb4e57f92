"""Kernels of some of the inputs."""

from numbers import Integral

import numpy as np
import torch

from .base import Kernel, as_kernel


class OnColumns(Kernel):
    """A kernel that looks at some of the columns alone.

    Sums of such kernels stand for sums of functions, as a trend of time and all that other columns explain.

    Parameters
    ----------
    kernel : Kernel
        The kernel of these columns.
    columns : sequence of str or int
        Names or positions of columns of X. Of a date that is encoded as several inputs, the first is meant, its
        trend.
    exclude : bool, default=False
        Whether the kernel looks at all other inputs instead, circles of dates included; at all inputs if there
        are no others.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.kernels import OnColumns, SquaredExponential
    >>> kernel = OnColumns(SquaredExponential(lengthscale=1.0), [1])
    >>> X = torch.tensor([[0.0, 2.0], [9.0, 2.0], [0.0, 3.0]])
    >>> kernel(X, X[:1]).numpy().round(3).ravel()
    array([1.   , 1.   , 0.607], dtype=float32)
    """

    _parts = ("kernel",)
    _of_length = {}

    def __init__(self, kernel, columns, exclude=False):
        self.kernel = kernel
        self.columns = columns
        self.exclude = exclude

    @property
    def extrapolates(self):
        return as_kernel(self.kernel).extrapolates

    def bind(self, n_features):
        if self.exclude:
            return self.of_columns(np.arange(n_features), n_features).bind(n_features)
        columns = np.asarray(self.columns)
        if columns.ndim != 1 or columns.dtype.kind not in "iu":
            raise ValueError(
                f"columns of OnColumns must be a list of positions of inputs; got {self.columns!r}."
            )
        if ((columns < 0) | (columns >= n_features)).any():
            raise ValueError(
                f"columns of OnColumns are {columns.tolist()}, but the layer has {n_features} inputs."
            )
        return self.with_values(n_features=n_features, **self._parts_by("bind", len(columns) or 1))

    def in_units(self, scale):
        scale = np.asarray(scale)[self.columns] if len(self.columns) else np.ones(1)
        return self.with_values(**self._parts_by("in_units", scale))

    def of_columns(self, columns, n_features):
        """This kernel by positions among the inputs, whose `columns` of X are given.

        Columns that were constant are none of the inputs.
        """
        sources = np.asarray(columns)
        first = [int(np.flatnonzero(sources == j)[0]) for j in self.columns if j in sources]
        if self.exclude:
            first = sorted(set(range(len(sources))) - set(first)) or list(range(len(sources)))
        return self.with_values(columns=first or np.empty(0, np.intp), exclude=False)

    def of_parts(self, factor):
        if not factor.ndim:
            return factor
        return factor[..., self.columns] if len(self.columns) else factor.new_ones(1)

    def with_inputs(self, n_features):
        return self.with_values(n_features=n_features)

    def chosen(self, X):
        """The inputs that the kernel looks at, (..., n_columns), or one of zeros if all were constant."""
        return X[..., self.columns] if len(self.columns) else torch.zeros_like(X[..., :1])

    def __call__(self, X, Z):
        H = self.chosen(X)
        return self.kernel(H, H if X is Z else self.chosen(Z))

    def between(self, X, Z):
        return self.kernel.between(self.chosen(X), self.chosen(Z))

    def within(self, X):
        return self.kernel.within(self.chosen(X))

    def diag(self, X):
        return self.kernel.diag(self.chosen(X))

    def features(self, n, n_features, *args, **kwargs):
        phi = self.kernel.features(n, len(self.columns) or 1, *args, **kwargs)
        return lambda X: phi(self.chosen(X))

    @property
    def slopes(self):
        slopes = torch.as_tensor(self.kernel.slopes, dtype=torch.float64)
        whole = slopes.new_zeros(*slopes.shape[:-1], self.n_features)
        if len(self.columns):
            whole[..., self.columns] = slopes
        return whole


def located(kernel, names, n_columns):
    """A kernel with positions of columns in the place of names, and of `on`.

    Columns of X have `names`; None if the inputs are those of a hidden layer.
    """
    made = {
        part: located(as_kernel(getattr(kernel, part)), names, n_columns) for part in kernel._parts
    }
    on = kernel.columns if isinstance(kernel, OnColumns) else getattr(kernel, "on", None)
    if on is None:
        return kernel.with_values(**made)
    if not np.iterable(on):
        raise ValueError(f"{kernel!r} needs a list of columns.")
    if not len(on):
        raise ValueError(f"{kernel!r} looks at no column; name one.")
    positions = [_position(column, names, n_columns, kernel) for column in on]
    if isinstance(kernel, OnColumns):
        return kernel.with_values(**made, columns=positions)
    return OnColumns(kernel.with_values(**made, on=None), positions)


def _position(column, names, n_columns, kernel):
    if not isinstance(column, str):
        if not isinstance(column, Integral) or isinstance(column, (bool, np.bool)):
            raise ValueError(f"{kernel!r} looks at {column!r}; give names or positions of columns.")
        if not 0 <= column < n_columns:
            raise ValueError(
                f"{kernel!r} looks at position {column}, and there are {n_columns} columns, from 0 on."
            )
        return column
    if names is None:
        raise ValueError(
            f"{kernel!r} names a column, which the inputs of hidden layers are not; give one kernel for each "
            "layer."
        )
    if column not in names:
        raise ValueError(f"X has no column {column!r}, which {kernel!r} looks at.")
    return list(names).index(column)
