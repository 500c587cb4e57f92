"""Kernels whose inputs are warped."""

import numpy as np
import torch

from .base import Kernel, as_kernel, tensor_like


class Warped(Kernel):
    r"""A kernel of inputs that are warped, column by column, by increasing functions.

    .. math:: k(x, x') = k_0(w(x), w(x')), \qquad w_q(x) = \int_0^x s_q(u) \, du

    with piecewise constant slopes :math:`s_q`, so that functions may be steep in a part of a column, as at a
    threshold, and flat elsewhere (compare Snoek et al., 2014). Pieces are between quantiles of the training
    rows, or between values of a column with few of them. Slopes of one at the start leave inputs as they are.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the warped inputs.
    n_pieces : int, default=8
        Largest number of pieces of a column.
    slope : array of shape (n_features, n_pieces) or None, default=None
        Slopes :math:`s_q`, from the lowest piece to the highest. None stands for ones.
    knots : array of shape (n_features, n_pieces - 1) or None, default=None
        Ends of the pieces in units of the standardized inputs, the same ones again where a column has fewer.
        None takes them from the training rows.
    trainable : bool or list of str, default=True
        Whether training changes the slopes.

    References
    ----------
    J. Snoek, K. Swersky, R. Zemel and R. Adams (2014). Input warping for Bayesian optimization of
    non-stationary functions. ICML 31.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.kernels import SquaredExponential, Warped
    >>> kernel = Warped(SquaredExponential(lengthscale=1.0), 2, slope=[[0.1, 1.0]], knots=[[0.0]])
    >>> X = torch.tensor([[-2.0], [0.0], [2.0]], dtype=torch.float64)
    >>> kernel(X, X[1:2]).numpy().round(3).ravel()  # flat on the left, steep on the right
    array([0.98 , 1.   , 0.135])
    """

    _parts = ("kernel",)
    _positive = {"slope": 0.0}
    _from_rows = ("knots",)
    _of_length = {}

    def __init__(self, kernel, n_pieces=8, slope=None, knots=None, trainable=True):
        self.kernel = kernel
        self.n_pieces = n_pieces
        self.slope = slope
        self.knots = knots
        self.trainable = trainable

    @property
    def extrapolates(self):
        return as_kernel(self.kernel).extrapolates

    def bind(self, n_features):
        if self.n_pieces < 2:
            raise ValueError(f"n_pieces of Warped must be at least 2; got {self.n_pieces!r}.")
        self = self.resolved()
        values = self._parts_by("bind", n_features)
        for name, width, default in (("slope", 0, 1.0), ("knots", -1, 0.0)):
            shape, value = (n_features, self.n_pieces + width), getattr(self, name)
            value = (
                np.full(shape, default) if value is None else np.asarray(value, dtype=np.float64)
            )
            if value.shape != shape:
                raise ValueError(
                    f"{name} of Warped has shape {value.shape}, but {n_features} inputs with {self.n_pieces} "
                    f"pieces need {shape}."
                )
            values[name] = value
        return self.with_values(**values)

    def of_columns(self, columns, n_features):
        values = self._parts_by("of_columns", columns, n_features)
        for name in ("slope", "knots"):
            value = getattr(self, name)
            if value is not None and len(value) == n_features:
                values[name] = np.asarray(value)[columns]
        return self.with_values(**values)

    def with_inputs(self, n_features):
        values, n = self._parts_by("with_inputs", n_features), n_features - len(self.slope)
        slope = np.vstack([self.slope, np.ones((n, self.n_pieces))])
        knots = np.vstack([self.knots, np.zeros((n, self.n_pieces - 1))])
        return self.with_values(**values, slope=slope, knots=knots)

    def from_rows(self, X, weights):
        levels, found = np.linspace(0.0, 1.0, self.n_pieces + 1), []
        for x in X.T:
            values, index = np.unique(x, return_inverse=True)
            if len(values) > self.n_pieces + 1:
                below = np.cumsum(np.bincount(index, weights))
                chosen = np.searchsorted(below, levels * below[-1])
                values = np.unique(values[chosen.clip(0, len(values) - 1)])
            inner = values[1:-1] if len(values) > 2 else values[:1]
            found.append(np.pad(inner, (0, self.n_pieces - 1 - len(inner)), "edge"))
        return {"knots": np.array(found)}

    def warp(self, X):
        """Warped rows, (..., n_features)."""
        slope, knots = tensor_like(self.slope, X), tensor_like(self.knots, X)
        if slope.ndim > 2:  # of several states
            J, (d, n) = len(slope), knots.shape[-2:]
            states = X.expand(J, *X.shape[-2:]), slope.reshape(J, d, n + 1), knots.expand(J, d, n)
            states = zip(*states)
            return torch.stack([self.with_values(slope=s, knots=k).warp(x) for x, s, k in states])
        zero = torch.zeros_like(knots[:, :1])
        left = torch.cat([knots[:, :1], knots], 1)  # the first piece has no left end
        lengths = slope[:, 1:-1] * knots.diff(dim=1)
        at_left = torch.cat([zero, zero, lengths.cumsum(1)], 1)

        def value(x):  # n_features, n
            piece = torch.searchsorted(knots.contiguous(), x.contiguous())
            return at_left.gather(1, piece) + slope.gather(1, piece) * (x - left.gather(1, piece))

        rows = X.flatten(0, -2).T
        return (value(rows) - value(zero)).T.reshape(X.shape)

    def __call__(self, X, Z):
        H = self.warp(X)
        return self.kernel(H, H if X is Z else self.warp(Z))

    def between(self, X, Z):
        return self.kernel.between(self.warp(X), self.warp(Z))

    def within(self, X):
        return self.kernel.within(self.warp(X))

    def diag(self, X):
        return self.kernel.diag(self.warp(X))

    def features(self, *args, **kwargs):
        phi = self.kernel.features(*args, **kwargs)
        return lambda X: phi(self.warp(X))

    @property
    def slopes(self):
        """Slopes of the kernel, times the mean squares of the slopes of the pieces."""
        squares = torch.as_tensor(self.slope, dtype=torch.float64).square()
        used = torch.as_tensor(self.knots, dtype=torch.float64).diff(dim=1) > 0.0
        ends = used.new_ones(len(used), 1)
        used = torch.cat([ends, used, ends], 1)
        mean = (squares * used).sum(1) / used.sum(1)
        return torch.as_tensor(self.kernel.slopes, dtype=torch.float64) * mean
