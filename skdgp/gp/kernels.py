"""Covariance functions.

A kernel object holds plain numbers. ``kernel(X, Z)`` is the matrix of covariances,
``kernel.diag(X)`` its diagonal, ``kernel.features(n, ...)`` a random feature map whose inner
products estimate it.
"""

import math

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from ..linalg import current_workspace
from ..random import gamma, normal
from .component import Component
from .psi import SquaredExponentialPsi

_LARGEST_NORM = 1e6  #: squared, of scaled rows; rounding takes 1e-10 from their distances
_LEAST_DISTANCE = 1e-20  #: squared, where roots of it are differentiated


class _Scaled:
    """Rows divided by lengthscales, their squared distances, and the way back through both."""

    def __init__(self, X, Z, lengthscale):
        center = Z.mean(0)  # rounding errors grow with the norms, so make them small
        self.X, self.Z, self.lengthscale = (
            (X - center) / lengthscale,
            (Z - center) / lengthscale,
            lengthscale,
        )

    def squared_distances(self, out=None):
        of_X, of_Z = self.X.square().sum(1), self.Z.square().sum(1)
        if self._differ_too_little(of_X, of_Z):
            exact = torch.cdist(self.X, self.Z, compute_mode="donot_use_mm_for_euclid_dist")
            return torch.square(exact, out=out)
        norms = torch.add(of_X[:, None], of_Z, out=out)
        return norms.addmm_(self.X, self.Z.T, alpha=-2.0).clamp_min_(0.0)

    @staticmethod
    def _differ_too_little(of_X, of_Z):
        """Whether lengthscales are so short that differences of norms would not be distances."""
        if of_X.dtype != torch.float64 or of_X.device.type != "cpu":  # a GPU is not waited for
            return False
        return max(float(norms.max()) for norms in (of_X, of_Z) if len(norms)) > _LARGEST_NORM

    def backward(self, G, needed):
        """Gradients of X, Z and lengthscale, from that of the squared distances."""
        X, Z, lengthscale = self.X, self.Z, self.lengthscale
        dX = torch.addmm(X * G.sum(1)[:, None], G, Z, alpha=-1.0)
        dZ = torch.addmm(Z * G.sum(0)[:, None], G.T, X, alpha=-1.0)
        d_lengthscale = None
        if needed[2]:
            d_log = (X * dX).sum(0).add_((Z * dZ).sum(0))
            d_lengthscale = d_log.mul_(-2.0).div_(lengthscale).sum_to_size(lengthscale.shape)
        factor = 2.0 / lengthscale
        return (
            dX.mul_(factor) if needed[0] else None,
            dZ.mul_(factor) if needed[1] else None,
            d_lengthscale,
        )


class _SquaredDistance(torch.autograd.Function):
    """Squared distances of scaled rows, by products of matrices in both directions."""

    @staticmethod
    def forward(ctx, X, Z, lengthscale):
        ctx.scaled = _Scaled(X, Z, lengthscale)
        return ctx.scaled.squared_distances()

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        return ctx.scaled.backward(G, ctx.needs_input_grad)


class _Radial(torch.autograd.Function):
    """``variance * profile(squared distance)``, for kernels with no other numbers.

    One pass over the matrix in each direction; slopes in the squared distance are finite at zero.
    """

    @staticmethod
    def forward(ctx, X, Z, lengthscale, variance, kernel):
        ctx.scaled, ctx.kernel, ctx.space = _Scaled(X, Z, lengthscale), kernel, current_workspace()
        shape = len(X), len(Z)
        r2 = ctx.scaled.squared_distances(ctx.space.take(shape, X))
        K = kernel.write_profile(r2, ctx.space.take(shape, X)).mul_(variance)
        ctx.save_for_backward(variance)
        ctx.large = K, r2
        return K.detach()  # another name for the same memory, which the graph may have

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        (variance,), (K, r2), space = ctx.saved_tensors, ctx.large, ctx.space
        G = torch.mul(G, K, out=space.take(tuple(K.shape), K))
        d_variance = G.sum() / variance
        G = ctx.kernel.scale_by_slope(G, r2)
        gradients = ctx.scaled.backward(G, ctx.needs_input_grad)
        space.give(G)
        ctx.large = space.give(K), space.give(r2)
        return *gradients, d_variance, None


class _ArcCosine(torch.autograd.Function):
    """``sin(t) + (pi - t) cos(t)`` as a function of ``c = cos(t)``; its slope is ``pi - t``."""

    @staticmethod
    def forward(ctx, c):
        c = c.clamp(-1.0, 1.0)
        complement = math.pi - torch.arccos(c)
        ctx.save_for_backward(complement)
        return torch.sqrt(1.0 - c * c) + complement * c

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class Kernel(Component):
    """Base class of the kernels; ``+`` and ``*`` combine them.

    Attributes
    ----------
    psi : callable or None
        ``psi(Z, m, v)`` gives expectations under Gaussian inputs, where they have a closed form.
    """

    psi = None

    def __add__(self, other):
        return Sum(self, other)

    def __mul__(self, other):
        return Product(self, other)

    def bind(self, n_features):
        """This kernel with one number for each input where numbers differ between inputs."""
        raise NotImplementedError

    def within(self, X):
        """Covariances within groups of rows: (..., P, n_features) to (..., P, P)."""
        return self(X, X)

    def _per_feature(self, value, default, n_features, name):
        if value is None:
            value = default
        value = np.asarray(value, dtype=np.float64)
        if value.ndim == 0 and self.ard:
            value = np.full(n_features, float(value))
        if value.shape not in ((), (n_features,)):
            raise ValueError(
                f"{name} of {type(self).__name__} has shape {value.shape}, but the layer has "
                f"{n_features} inputs; give one number or one for each input."
            )
        return value


class Stationary(Kernel):
    """Kernels of ``r^2 = sum_q (x_q - z_q)^2 / lengthscale_q^2``."""

    _positive = {"lengthscale": 0.0, "variance": 0.0}

    def __init__(self, lengthscale=None, variance=1.0, ard=True, trainable=True):
        self.lengthscale = lengthscale
        self.variance = variance
        self.ard = ard
        self.trainable = trainable

    def bind(self, n_features):
        lengthscale = self._per_feature(
            self.lengthscale, math.sqrt(n_features), n_features, "lengthscale"
        )
        return self.with_values(lengthscale=lengthscale)

    def __call__(self, X, Z):
        return _Radial.apply(X, Z, _like(self.lengthscale, X), _like(self.variance, X), self)

    def within(self, X):
        X = (X - X[..., -1:, :]) / _like(self.lengthscale, X)
        norms = X.square().sum(-1)
        r2 = norms[..., :, None] + norms[..., None, :] - 2.0 * X @ X.mT
        # at zero the slope of a root is infinite, and that of no profile matters
        return _like(self.variance, X) * self.profile(r2.clamp_min(_LEAST_DISTANCE))

    def profile(self, r2):
        """The kernel for unit variance as a function of the squared distance."""
        raise NotImplementedError

    def write_profile(self, r2, out):
        """:meth:`profile`, written over `out`."""
        return out.copy_(self.profile(r2))

    def scale_by_slope(self, G, r2):
        """Multiply `G` in place by the derivative of the logarithm of the profile."""
        raise NotImplementedError

    def diag(self, X):
        return _like(self.variance, X).expand(X.shape[:-1])

    def features(self, n, n_features, generator, like):
        """Random sine and cosine features (Rahimi and Recht, 2008).

        Parameters
        ----------
        n : tuple of int
            ``(..., R)``: numbers of independent maps and of draws in each.
        n_features : int
            Number of inputs.
        generator : torch.Generator
        like : tensor
            Gives dtype and device.

        Returns
        -------
        phi : callable
            Maps (..., P, n_features) to (..., P, R, c); the covariance of two rows is the mean over
            R of the inner products over c.
        """
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        omega = (
            omega
            * self._frequency_scale(n, generator, like)
            / _like(self.lengthscale, like)[..., None]
        )
        root = _like(self.variance, like).sqrt()

        def phi(X):
            angle = X @ omega
            return root * torch.stack([angle.cos(), angle.sin()], -1)

        return phi

    def _frequency_scale(self, n, generator, like):
        return 1.0


class SquaredExponential(Stationary):
    r"""Squared exponential kernel, :math:`\sigma^2 \exp(-r^2 / 2)`.

    Parameters
    ----------
    lengthscale : float, array of shape (n_features,) or None
        None stands for the square root of the number of inputs.
    variance : float
    ard : bool
        One lengthscale for each input (automatic relevance determination) or a common one.
    trainable : bool
        Whether training changes the numbers.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.kernels import SquaredExponential
    >>> kernel = SquaredExponential(lengthscale=0.5, variance=2.0)
    >>> X = torch.tensor([[0.0], [0.5]])
    >>> kernel(X, X).numpy().round(3)
    array([[2.   , 1.213],
           [1.213, 2.   ]], dtype=float32)
    """

    def profile(self, r2):
        return torch.exp(-0.5 * r2)

    def write_profile(self, r2, out):
        return torch.mul(r2, -0.5, out=out).exp_()

    def scale_by_slope(self, G, r2):
        return G.mul_(-0.5)

    def psi(self, Z, m, v):
        """Psi statistics for inputs ``N(m, diag(v))``, see :class:`~skdgp.gp.psi.SquaredExponentialPsi`.

        Parameters
        ----------
        Z : tensor of shape (M, n_features)
        m, v : tensors of shape (P, n_features)
        """
        return SquaredExponentialPsi(Z, m, v, _like(self.lengthscale, Z), _like(self.variance, Z))


class Matern(Stationary):
    r"""Matern kernel with smoothness 3/2 or 5/2.

    :math:`\sigma^2 (1 + s) e^{-s}` with :math:`s = \sqrt 3 r`, or
    :math:`\sigma^2 (1 + s + s^2/3) e^{-s}` with :math:`s = \sqrt 5 r`.

    Parameters
    ----------
    nu : {1.5, 2.5}
    lengthscale, variance, ard, trainable
        As for :class:`SquaredExponential`.
    """

    def __init__(self, nu=1.5, lengthscale=None, variance=1.0, ard=True, trainable=True):
        super().__init__(lengthscale, variance, ard, trainable)
        self.nu = nu

    def bind(self, n_features):
        if self.nu not in (1.5, 2.5):
            raise ValueError(f"nu of Matern must be 1.5 or 2.5; got {self.nu!r}.")
        return super().bind(n_features)

    def profile(self, r2):
        s = (2.0 * self.nu * r2).sqrt()
        return (1.0 + s if self.nu == 1.5 else 1.0 + s + s * s / 3.0) * torch.exp(-s)

    def scale_by_slope(self, G, r2):
        s = (2.0 * self.nu * r2).sqrt()
        if self.nu == 1.5:
            return G.mul_(-1.5).div_(1.0 + s)
        return G.mul_(-5.0 / 6.0).mul_((1.0 + s) / (1.0 + s + s * s / 3.0))

    def _frequency_scale(self, n, generator, like):
        # a multivariate t distribution: one chi-square for each frequency, shared by all inputs
        chi2 = 2.0 * gamma(self.nu, (*n[:-1], 1, n[-1]), generator, like)
        return (2.0 * self.nu / chi2).sqrt()


class RationalQuadratic(Stationary):
    r"""Rational quadratic kernel, :math:`\sigma^2 (1 + r^2 / (2 \alpha))^{-\alpha}`.

    Parameters
    ----------
    alpha : float
        Small values mix many lengthscales; the limit of large ones is the squared exponential.
    lengthscale, variance, ard, trainable
        As for :class:`SquaredExponential`.
    """

    _positive = {**Stationary._positive, "alpha": 0.0}

    def __init__(self, alpha=1.0, lengthscale=None, variance=1.0, ard=True, trainable=True):
        super().__init__(lengthscale, variance, ard, trainable)
        self.alpha = alpha

    def __call__(self, X, Z):
        r2 = _SquaredDistance.apply(X, Z, _like(self.lengthscale, X))
        return _like(self.variance, X) * self.profile(r2)

    def profile(self, r2):
        alpha = _like(self.alpha, r2)
        return torch.exp(-alpha * torch.log1p(r2 / (2.0 * alpha)))

    def _frequency_scale(self, n, generator, like):
        alpha = _like(self.alpha, like)
        return (gamma(alpha, (*n[:-1], 1, n[-1]), generator, like) / alpha).sqrt()


class ArcCosine(Kernel):
    r"""Arc-cosine kernel of order 1 (Cho and Saul, 2009).

    The limit of a wide layer of rectified linear units. With :math:`u = (x / \ell, b)`,
    :math:`k = \frac{\sigma^2}{\pi} |u| |u'| (\sin t + (\pi - t) \cos t)`
    where :math:`t` is the angle between :math:`u` and :math:`u'`. The diagonal is
    :math:`\sigma^2 |u|^2`.

    Parameters
    ----------
    lengthscale, variance, ard, trainable
        As for :class:`SquaredExponential`.
    bias : float
        The constant input :math:`b`; 0 for none.
    """

    _positive = {"lengthscale": 0.0, "variance": 0.0, "bias": 0.0}
    _may_be_zero = ("bias",)

    def __init__(self, lengthscale=None, variance=1.0, bias=1.0, ard=True, trainable=True):
        self.lengthscale = lengthscale
        self.variance = variance
        self.bias = bias
        self.ard = ard
        self.trainable = trainable

    def bind(self, n_features):
        lengthscale = self._per_feature(
            self.lengthscale, math.sqrt(n_features), n_features, "lengthscale"
        )
        return self.with_values(lengthscale=lengthscale)

    def _scaled(self, X):
        X = X / _like(self.lengthscale, X)
        bias2 = _like(self.bias, X).square()
        return X, bias2, ((X * X).sum(-1) + bias2).clamp_min(1e-12)

    def __call__(self, X, Z):
        X, bias2, norm_x = self._scaled(X)
        Z, _, norm_z = self._scaled(Z)
        norms = (norm_x[..., :, None] * norm_z[..., None, :]).sqrt()
        angle = _ArcCosine.apply((X @ Z.mT + bias2) / norms)
        return _like(self.variance, X) / math.pi * norms * angle

    def diag(self, X):
        return _like(self.variance, X) * self._scaled(X)[2]

    def features(self, n, n_features, generator, like):
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        omega = omega / _like(self.lengthscale, like)[..., None]
        shift = _like(self.bias, like) * normal((*n[:-1], 1, n[-1]), generator, like)
        root = (2.0 * _like(self.variance, like)).sqrt()
        return lambda X: root * (X @ omega + shift).clamp_min(0.0)[..., None]


class Linear(Kernel):
    r"""Linear kernel, :math:`b^2 + \sum_q \sigma_q^2 x_q x'_q`.

    Parameters
    ----------
    variance : float, array of shape (n_features,) or None
        None stands for one over the number of inputs.
    bias : float
        Standard deviation of the constant; 0 for none.
    ard, trainable
        As for :class:`SquaredExponential`.
    """

    _positive = {"variance": 0.0, "bias": 0.0}
    _may_be_zero = ("bias",)

    def __init__(self, variance=None, bias=1.0, ard=True, trainable=True):
        self.variance = variance
        self.bias = bias
        self.ard = ard
        self.trainable = trainable

    def bind(self, n_features):
        variance = self._per_feature(self.variance, 1.0 / n_features, n_features, "variance")
        return self.with_values(variance=variance)

    def __call__(self, X, Z):
        return (X * _like(self.variance, X)) @ Z.mT + _like(self.bias, X).square()

    def diag(self, X):
        return (X.square() * _like(self.variance, X)).sum(-1) + _like(self.bias, X).square()

    def features(self, n, n_features, generator, like):
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        omega = omega * _like(self.variance, like).sqrt()[..., None]
        shift = _like(self.bias, like) * normal((*n[:-1], 1, n[-1]), generator, like)
        return lambda X: (X @ omega + shift)[..., None]


class _Pair(Kernel):
    _parts = ("left", "right")
    trainable = True

    def __init__(self, left, right):
        self.left = left
        self.right = right

    def bind(self, n_features):
        return self.with_values(left=self.left.bind(n_features), right=self.right.bind(n_features))


class Sum(_Pair):
    """Sum of two kernels; written ``left + right``."""

    def __call__(self, X, Z):
        return self.left(X, Z) + self.right(X, Z)

    def within(self, X):
        return self.left.within(X) + self.right.within(X)

    def diag(self, X):
        return self.left.diag(X) + self.right.diag(X)

    def features(self, n, n_features, generator, like):
        left, right = (
            part.features(n, n_features, generator, like) for part in (self.left, self.right)
        )
        return lambda X: torch.cat([left(X), right(X)], -1)


class Product(_Pair):
    """Product of two kernels; written ``left * right``."""

    def __call__(self, X, Z):
        return self.left(X, Z) * self.right(X, Z)

    def within(self, X):
        return self.left.within(X) * self.right.within(X)

    def diag(self, X):
        return self.left.diag(X) * self.right.diag(X)

    def features(self, n, n_features, generator, like):
        left, right = (
            part.features(n, n_features, generator, like) for part in (self.left, self.right)
        )
        return lambda X: (left(X)[..., :, None] * right(X)[..., None, :]).flatten(-2)


def _like(value, tensor):
    return torch.as_tensor(value, dtype=tensor.dtype, device=tensor.device)


_BY_NAME = {
    "squared_exponential": SquaredExponential,
    "rbf": SquaredExponential,
    "matern32": lambda: Matern(nu=1.5),
    "matern52": lambda: Matern(nu=2.5),
    "rational_quadratic": RationalQuadratic,
    "arc_cosine": ArcCosine,
    "linear": Linear,
}


def as_kernel(kernel):
    """A kernel object from its name; objects pass through.

    Raises
    ------
    ValueError
        If the name is unknown.
    TypeError
        If `kernel` is neither a string nor a kernel.
    """
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel not in _BY_NAME:
            raise ValueError(f"Unknown kernel {kernel!r}; the names are {sorted(_BY_NAME)}.")
        return _BY_NAME[kernel]()
    raise TypeError(f"kernel must be a string or an object of skdgp.gp.kernels; got {kernel!r}.")
