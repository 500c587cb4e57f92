"""Base class of kernels, and their sums and products."""

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch

from ..component import Component, Trainable

_EQUAL = 1e-9  #: difference of logarithms that is rounding
BY_NAME: dict[
    str, Callable[[], "Kernel"]
] = {}  #: classes, or functions without arguments that make kernels


class Kernel(Component):
    """Base class of the kernels; ``+`` and ``*`` combine them.

    Attributes
    ----------
    metric : float, or array or tensor of shape (n_features,)
        Units of the inputs in which near rows are alike. Only of kernels whose hyperparameters are all given.
    slopes : float, or array or tensor of shape (n_features,)
        Variances of the slopes of functions along the inputs; up to a factor, of rough functions. Likewise.
    extrapolates : bool
        Whether functions go on in straight lines, or as powers, far from all rows.
    """

    extrapolates = False
    #: whether it is that of a fitted model: of its inputs, and with effects of levels
    is_bound = False

    _allowed: ClassVar[
        dict[str, tuple]
    ] = {}  #: for some constructor arguments, the values that they may have
    #: for each hyperparameter with one number for each input, its default as a function of their number
    _of_inputs: ClassVar[dict[str, Callable[[int], float]]] = {}
    #: hyperparameters that may differ between inputs, and the powers of their number that make them one
    _of_length: ClassVar[dict[str, float]] = {"lengthscale": -0.5}

    def __sklearn_clone__(self):
        new = super().__sklearn_clone__()
        return new.with_values(is_bound=True) if self.is_bound else new

    @property
    def metric(self):
        return 1.0 / self.slopes**0.5

    @property
    def slopes(self):
        return getattr(self, "variance", 1.0) / getattr(self, "lengthscale", 1.0) ** 2

    def __add__(self, other):
        return Sum(self, _other_kernel(other))

    def __mul__(self, other):
        return Product(self, _other_kernel(other))

    __radd__, __rmul__ = __add__, __mul__  # for what is no kernel, and is refused

    @property
    def learns_lengths(self):
        """Whether training changes hyperparameters that may differ between inputs."""
        if self._parts:
            return any(as_kernel(getattr(self, part)).learns_lengths for part in self._parts)
        return any(name in self.trained() for name in self._of_length)

    def bind(self, n_features):
        """This kernel with one number for each input where hyperparameters differ between inputs.

        Raises
        ------
        ValueError
            If there is another number of them, or an argument has none of the values that it may have.
        """
        self.trained()  # which refuses settings that are none
        self = self.resolved()
        if not isinstance(getattr(self, "ard", True), bool | np.bool_):
            raise ValueError(
                f"ard of {type(self).__name__} must be True or False; got {self.ard!r}."
            )
        for name, allowed in self._allowed.items():
            if getattr(self, name) not in allowed:
                *others, last = map(str, allowed)
                raise ValueError(
                    f"{name} of {type(self).__name__} must be {', '.join(others)} or {last}; got "
                    f"{getattr(self, name)!r}."
                )
        values = self._parts_by("bind", n_features)
        for name, default in self._of_inputs.items():
            value = getattr(self, name)
            value = np.asarray(default(n_features) if value is None else value, dtype=np.float64)
            if value.ndim == 0 and self.ard:
                value = np.full(n_features, float(value))
            if value.shape not in ((), (n_features,)):
                raise ValueError(
                    f"{name} of {type(self).__name__} has shape {value.shape}, but the layer has "
                    f"{n_features} inputs; give one number or one for each input."
                )
            values[name] = value
        return self.with_values(**values)

    def in_units(self, scale):
        """This kernel for inputs that are divided by `scale` (n_features,)."""
        return self.with_values(**self._parts_by("in_units", scale))

    def of_columns(self, columns, n_features):
        """This kernel with the hyperparameters of some columns, where it was given one for each of all."""
        self = self.resolved()
        values = self._parts_by("of_columns", columns, n_features)
        for name in self._of_inputs:
            value = getattr(self, name)
            if np.shape(value) == (n_features,):
                values[name] = np.asarray(value)[columns]
        return self.with_values(**values)

    def with_inputs(self, n_features):
        """This bound kernel for more inputs: new ones have the geometric mean of what others have."""
        values = self._parts_by("with_inputs", n_features)
        for name in self._positive:
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.ndim:
                mean = np.exp(np.log(value).mean())
                values[name] = np.append(value, np.full(n_features - len(value), mean))
        return self.with_values(**values)

    def between(self, X, Z):
        """Covariances (..., n, P) of rows (..., n, n_features) and (..., P, n_features), group by group.

        The first dimension of rows and hyperparameters is that of states, see :func:`stacked`.
        """
        return self(X, Z)

    def within(self, X):
        """Covariances within groups of rows: (..., P, n_features) to (..., P, P).

        With hyperparameters of states, see :func:`stacked`, the last dimension of groups is theirs, or 1.
        """
        return self(X, X)

    def of_groups(self, X):
        """Covariances within groups of rows (B, q, n_features), shape (B, q, q): few large ones, or many."""
        if X.shape[1] == 1:
            return self.diag(X)[..., None]
        return self(X[0], X[0])[None] if len(X) == 1 else self.within(X)

    def from_gram(self, G, left=None, right=None):
        """The kernel as a function of inner products, for one lengthscale that all inputs share.

        Parameters
        ----------
        G : tensor of shape (..., P, n)
            Inner products of rows.
        left, right : tensors of shape (..., P) and (..., n), optional
            Squared norms of the rows on both sides. Without them `G` is a Gram matrix, whose diagonal
            they are, and the diagonal of the result is exact.

        Returns
        -------
        K : tensor of shape (..., P, n)

        References
        ----------
        L. Aitchison, A. Yang and S. Ober (2021). Deep kernel processes. ICML 38.
        """
        is_square = left is None
        if is_square:
            left = right = torch.diagonal(G, dim1=-2, dim2=-1)
        K = self._of_products(G, left, right)
        if not is_square:
            return K
        itself = torch.eye(K.shape[-1], dtype=torch.bool, device=K.device)
        return torch.where(itself, self.diag_from_gram(left)[..., None], K)

    def _of_products(self, G, left, right):
        """Covariances from inner products and squared norms, up to rounding where rows are the same."""
        raise ValueError(
            f"{type(self).__name__} is not a function of inner products, as kernel processes need it; use "
            "stationary, arc-cosine or linear kernels, and sums and products of these."
        )

    def diag_from_gram(self, d):
        """Variances at rows whose squared norms are `d`."""
        raise NotImplementedError

    def of_gram(self, n_features):
        """This kernel, bound to so many inputs, for Gram matrices that are divided by their number.

        Hyperparameters that differ between inputs become their geometric mean, see :meth:`log_scale`.
        """
        values = self._parts_by("of_gram", n_features)
        for name, power in self._of_length.items():
            value = np.exp(np.log(np.asarray(getattr(self, name), dtype=np.float64)).mean())
            values[name] = float(value * n_features**power)
        return self.with_values(**values)

    def of_rows(self, n_features, scale=1.0):
        """The inverse of :meth:`of_gram`, for rows whose columns are multiplied by `scale` before."""
        values = self._parts_by("of_rows", n_features, scale)
        for name, power in self._of_length.items():
            values[name] = getattr(self, name) * n_features**-power * scale ** (2.0 * power)
        return self.with_values(**values)

    def log_scale(self, n_features):
        """Return the logarithms of the factors of the inputs, less their mean, shape (n_features,).

        Raises
        ------
        ValueError
            If parts of the kernel multiply them by different numbers.
        """
        found = list(self._parts_by("log_scale", n_features).values())
        for name, power in self._of_length.items():
            log = np.log(np.asarray(getattr(self, name), dtype=np.float64)) / (2.0 * power)
            found.append(np.broadcast_to(log - log.mean(), n_features))
        varied = [scale for scale in found if np.abs(scale).max() > _EQUAL]
        if any(np.abs(scale - varied[0]).max() > _EQUAL for scale in varied):
            raise ValueError(
                "Kernel processes scale each input by one number, but the parts of the kernel have different "
                "ratios of lengthscales; give them the same."
            )
        return varied[0] if varied else np.zeros(n_features)

    def _parts_by(self, method, *args, **kwargs):
        """For each part, the result of a method of it."""
        parts = {part: as_kernel(getattr(self, part)) for part in self._parts}
        return {name: getattr(part, method)(*args, **kwargs) for name, part in parts.items()}


def _other_kernel(other):
    if not isinstance(other, Kernel):
        raise TypeError(
            f"Kernels can be added to and multiplied by kernels only; got {other!r}. Constants and factors "
            "are hyperparameters of kernels, as bias and variance."
        )
    return other


def _joining(method):
    """A method of pairs that joins the results of both parts."""

    def joined(self, *args, **kwargs):
        return self._joined(*self._parts_by(method, *args, **kwargs).values())

    return joined


class Pair(Kernel):
    """Base class of the kernels that are made of two, whose values are joined."""

    _parts = ("left", "right")
    _of_length = {}

    def __init__(self, left, right):
        self.left = left
        self.right = right

    def _joined(self, left, right):
        raise NotImplementedError

    __call__, between, within, diag = map(_joining, ("__call__", "between", "within", "diag"))
    from_gram, diag_from_gram = map(_joining, ("from_gram", "diag_from_gram"))

    def features(self, *args, **kwargs):
        left, right = self._parts_by("features", *args, **kwargs).values()
        return lambda X: self._joined_features(left(X), right(X))

    def _slopes_of_parts(self):
        return [torch.as_tensor(p.slopes, dtype=torch.float64) for p in (self.left, self.right)]


class Sum(Pair):
    """Sum of two kernels; written ``left + right``."""

    @property
    def extrapolates(self):
        return any(as_kernel(part).extrapolates for part in (self.left, self.right))

    def _joined(self, left, right):
        return left + right

    def _joined_features(self, left, right):
        return torch.cat([left, right], -1)

    @property
    def slopes(self):
        return sum(self._slopes_of_parts())


class Product(Pair):
    """Product of two kernels; written ``left * right``."""

    @property
    def extrapolates(self):
        return all(as_kernel(part).extrapolates for part in (self.left, self.right))

    def _joined(self, left, right):
        return left * right

    def _joined_features(self, left, right):
        return (left[..., :, None] * right[..., None, :]).flatten(-2)

    @property
    def slopes(self):
        """At the origin plus one standard deviation of each standardized input."""
        left, right = self._slopes_of_parts()
        X = torch.ones_like(left + right).reshape(1, -1)
        return left * self.right.diag(X) + right * self.left.diag(X)


def tensor_like(value, tensor):
    """A number or an array in the dtype and on the device of a tensor."""
    return torch.as_tensor(value, dtype=tensor.dtype, device=tensor.device)


def stacked(kernels):
    """One kernel from J states, whose hyperparameters are (J, 1, 1), or (J, 1, n_features)."""
    first, values = kernels[0], {}
    for name in first._parts:
        values[name] = stacked([getattr(kernel, name) for kernel in kernels])
    for name in first._positive:
        values[name] = torch.stack([getattr(kernel, name).view(1, -1) for kernel in kernels])
    return first.with_values(**values)


def check_gradients(kernel, n_features):
    """Raise ValueError if covariances have no gradient in a hyperparameter that is to be trained."""
    module = Trainable(kernel)
    names, parameters = zip(*module.named_parameters()) if kernel.learns else ((), ())
    X = torch.arange(3.0 * n_features, dtype=torch.float64).sin().view(3, n_features)
    with torch.enable_grad():
        total = module()(X, X[:2]).sum()
        gradients = [None] * len(names)
        if total.requires_grad:
            gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    lost = [name.replace("log_", "") for name, g in zip(names, gradients) if g is None]
    if lost:
        raise ValueError(
            f"Training cannot change {', '.join(lost)} of {kernel!r}: covariances have no gradient in it. "
            "Compute them by operations of torch, without float() and numpy, or leave it out of trainable."
        )


def over_rows(value, X):
    """A number as one for each row of `X`, shape (..., n); each state of it may have its own."""
    return tensor_like(value, X).expand_as(X[..., :1])[..., 0]


def as_kernel(kernel):
    """A kernel object from its name; objects pass through."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel not in BY_NAME:
            raise ValueError(f"Unknown kernel {kernel!r}; the names are {sorted(BY_NAME)}.")
        return BY_NAME[kernel]()
    raise TypeError(f"kernel must be a string or an object of skdgp.gp.kernels; got {kernel!r}.")
