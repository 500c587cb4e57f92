"""Covariance functions.

A kernel object holds plain numbers. ``kernel(X, Z)`` is the matrix of covariances,
``kernel.diag(X)`` its diagonal, ``kernel.features(n, ...)`` a random feature map whose inner
products estimate it.
"""

import math

import numpy as np
import torch

from ..random import gamma, normal, uniform
from .component import Component
from .covariances import ArcCosineProfile, FactorProduct, Radial, SquaredDistance
from .psi import SquaredExponentialPsi
from .tail import into_tail

_LEAST_DISTANCE = 1e-20  #: squared, where roots of it are differentiated


class Kernel(Component):
    """Base class of the kernels; ``+`` and ``*`` combine them.

    Attributes
    ----------
    psi : callable or None
        ``psi(Z, m, v)`` gives expectations under Gaussian inputs, where they have a closed form.
    metric : float, or array or tensor of shape (n_features,)
        Units of the inputs in which near rows are alike. Only of kernels whose numbers are all given.
    slopes : float, or array or tensor of shape (n_features,)
        Variances of the slopes of functions along the inputs; up to a factor, of rough functions. Likewise.
    """

    psi = None

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


def _other_kernel(other):
    if not isinstance(other, Kernel):
        raise TypeError(
            f"Kernels can be added to and multiplied by kernels only; got {other!r}. Constants and factors "
            "are numbers of kernels, as bias and variance."
        )
    return other


class Stationary(Kernel):
    """Kernels of ``r^2 = sum_q (x_q - z_q)^2 / lengthscale_q^2``."""

    slope_factor = 1.0  #: what :meth:`scale_by_slope` leaves out, for where numbers are few
    distances_count = True  #: in :meth:`scale_by_slope`; else the profile may be written over them
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
        return Radial.apply(X, Z, _like(self.lengthscale, X), _like(self.variance, X), self)

    def within(self, X):
        # around the mean of all but the last row, which alone may be far from the others
        center = X[..., :-1, :].mean(-2, keepdim=True) if X.shape[-2] > 1 else X
        X = (X - center) / _like(self.lengthscale, X)
        norms = X.square().sum(-1)
        r2 = norms[..., :, None] + norms[..., None, :] - 2.0 * X @ X.mT
        itself = torch.eye(X.shape[-2], dtype=torch.bool, device=X.device)
        r2 = r2.masked_fill(itself, 0.0)  # exactly, however far the last row is
        # at zero the slope of a root is infinite, and that of no profile matters
        return _like(self.variance, X) * self.profile(r2.clamp_min(_LEAST_DISTANCE))

    def profile(self, r2):
        """The kernel for unit variance as a function of the squared distance."""
        raise NotImplementedError

    def write_profile(self, r2, out):
        """:meth:`profile`, written over `out`."""
        return out.copy_(self.profile(r2))

    def scale_by_slope(self, G, r2):
        """Multiply `G` in place by the derivative of the profile's logarithm, over :attr:`slope_factor`."""
        raise NotImplementedError

    def diag(self, X):
        return _like(self.variance, X).expand(X.shape[:-1])

    def features(self, n, n_features, generator, like, tail=0.0):
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
        tail : float in [0, 1)
            Fraction of the features that are drawn where rough kernels have few, at high frequencies,
            and count for as much less. Functions that are known at many rows differ in these alone.

        Returns
        -------
        phi : callable
            Maps (..., P, n_features) to (..., P, R, c); the covariance of two rows is the mean over
            R of the inner products over c.
        """
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        scale, weight = self._frequency_scale(n, generator, like, tail)
        omega = omega * scale / _like(self.lengthscale, like)[..., None]
        return _cos_sin(omega, _like(self.variance, like) * weight)

    def _frequency_scale(self, n, generator, like, tail):
        """What multiplies Gaussian frequencies, and the weights of the features."""
        return 1.0, 1.0


class SquaredExponential(Stationary):
    r"""Squared exponential kernel, :math:`\sigma^2 \exp(-r^2 / 2)`.

    Parameters
    ----------
    lengthscale : float, array of shape (n_features,) or None, default=None
        None stands for the square root of the number of inputs.
    variance : float, default=1.0
    ard : bool, default=True
        One lengthscale for each input (automatic relevance determination) or a common one.
    trainable : bool, default=True
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

    slope_factor = -0.5
    distances_count = False

    def profile(self, r2):
        return torch.exp(-0.5 * r2)

    def write_profile(self, r2, out):
        return torch.mul(r2, -0.5 / math.log(2.0), out=out).exp2_()  # sooner than powers of e

    def scale_by_slope(self, G, r2):
        return G

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
    nu : {1.5, 2.5}, default=1.5
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
            return G.div_(1.0 + s)
        return G.mul_((1.0 + s) / (1.0 + s + s * s / 3.0))

    @property
    def slope_factor(self):
        return -1.5 if self.nu == 1.5 else -5.0 / 6.0

    def _frequency_scale(self, n, generator, like, tail):
        # a multivariate t distribution: one chi-square for each frequency, shared by all inputs
        half = gamma(self.nu, (*n[:-1], 1, n[-1]), generator, like)
        always = torch.ones_like(half)
        half, _, weight = into_tail(half, always > 0.0, always, self.nu, tail, generator)
        return (self.nu / half).sqrt(), weight


class RationalQuadratic(Stationary):
    r"""Rational quadratic kernel, :math:`\sigma^2 (1 + r^2 / (2 \alpha))^{-\alpha}`.

    Parameters
    ----------
    alpha : float, default=1.0
        Small values mix many lengthscales; the limit of large ones is the squared exponential.
    lengthscale, variance, ard, trainable
        As for :class:`SquaredExponential`.
    """

    _positive = {**Stationary._positive, "alpha": 0.0}

    def __init__(self, alpha=1.0, lengthscale=None, variance=1.0, ard=True, trainable=True):
        super().__init__(lengthscale, variance, ard, trainable)
        self.alpha = alpha

    def __call__(self, X, Z):
        r2 = SquaredDistance.apply(X, Z, _like(self.lengthscale, X))
        return _like(self.variance, X) * self.profile(r2)

    def profile(self, r2):
        alpha = _like(self.alpha, r2)
        return torch.exp(-alpha * torch.log1p(r2 / (2.0 * alpha)))

    def _frequency_scale(self, n, generator, like, tail):
        alpha = _like(self.alpha, like)
        return (gamma(alpha, (*n[:-1], 1, n[-1]), generator, like) / alpha).sqrt(), 1.0


class Anova(Kernel):
    r"""Sums of functions of one input, of two, and so on: a product with one factor for each input.

    .. math:: k(x, x') = \sigma^2 \prod_q \frac{1 + a_q k_q(x_q, x_q')}{1 + a_q}

    with Matern kernels :math:`k_q` of one input (Duvenaud et al., 2011, with all orders; Durrande et al.,
    2013). The product has a term for every subset of the inputs. Where a target is made of parts that
    depend on few inputs each, rows that agree in these inputs speak for each other, however far they are
    in the others, which no kernel of one distance can see.

    Parameters
    ----------
    nu : {0.5, 1.5, 2.5}, default=1.5
        Smoothness.
    lengthscale : float or array of shape (n_features,), default=1.0
        One number stands for equal starting values.
    strength : float, array of shape (n_features,) or None, default=None
        :math:`a_q`. Small values leave little but sums, large ones little but the full interaction. None
        stands for one over the number of inputs.
    variance : float, default=1.0
    trainable : bool, default=True
        Whether training changes the numbers.

    References
    ----------
    D. Duvenaud, H. Nickisch and C. Rasmussen (2011). Additive Gaussian processes. Advances in Neural
    Information Processing Systems 24.

    N. Durrande, D. Ginsbourger, O. Roustant and L. Carraro (2013). ANOVA kernels and RKHS of zero mean
    functions for model-based sensitivity analysis. Journal of Multivariate Analysis 115.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.kernels import Anova
    >>> kernel = Anova().bind(2)
    >>> X = torch.tensor([[0.0, 0.0], [0.0, 9.0]])  # far in one input, equal in the other
    >>> kernel(X, X).numpy().round(3)
    array([[1.   , 0.667],
           [0.667, 1.   ]], dtype=float32)
    """

    _positive = {"lengthscale": 0.0, "strength": 0.0, "variance": 0.0}
    ard = True

    def __init__(self, nu=1.5, lengthscale=1.0, strength=None, variance=1.0, trainable=True):
        self.nu = nu
        self.lengthscale = lengthscale
        self.strength = strength
        self.variance = variance
        self.trainable = trainable

    def bind(self, n_features):
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"nu of Anova must be 0.5, 1.5 or 2.5; got {self.nu!r}.")
        values = {"lengthscale": 1.0, "strength": 1.0 / n_features}
        return self.with_values(
            **{
                name: self._per_feature(getattr(self, name), default, n_features, name)
                for name, default in values.items()
            }
        )

    def _numbers(self, like):
        return (_like(value, like) for value in (self.lengthscale, self.strength, self.variance))

    def __call__(self, X, Z):
        return FactorProduct.apply(X, Z, *self._numbers(X), self)

    def within(self, X):
        *groups, P, n_features = X.shape
        i, j = torch.tril_indices(P, P, device=X.device)
        left, right = (X[..., rows, :].reshape(-1, n_features) for rows in (i, j))
        K = FactorProduct.apply(left, right, *self._numbers(X), self, True)
        place = torch.empty((P, P), dtype=torch.long, device=X.device)
        place[i, j] = place[j, i] = torch.arange(len(i), device=X.device)
        return K.reshape(*groups, -1).index_select(-1, place.flatten()).reshape(*groups, P, P)

    def profile(self, s):
        """The kernel of one input, at ``s = sqrt(2 nu) r``."""
        return self._polynomials(s)[0] * torch.exp(-s)

    def profile_and_slope(self, s):
        """:meth:`profile`, and minus its derivative."""
        e = torch.exp(-s)
        value, slope = self._polynomials(s)
        return value * e, slope * e

    def _polynomials(self, s):
        if self.nu == 0.5:
            return 1.0, 1.0
        if self.nu == 1.5:
            return 1.0 + s, s
        return 1.0 + s + s * s / 3.0, (s + s * s) / 3.0

    @property
    def slopes(self):
        """Close by, ``-log k`` is a sum over inputs of ``a / (1 + a)`` times that of `k_q`."""
        return super().slopes * self.strength / (1.0 + self.strength)

    def diag(self, X):
        return _like(self.variance, X).expand(X.shape[:-1])

    def features(self, n, n_features, generator, like, tail=0.0):
        lengthscale, strength, variance = self._numbers(like)
        shape = (*n[:-1], n_features, n[-1])
        half = gamma(self.nu, shape, generator, like)
        omega = normal(shape, generator, like)
        # with probability 1 / (1 + a_q) a feature does not depend on the input
        share = (strength / (1.0 + strength))[:, None]
        present = uniform(shape, generator, like) < share
        half, present, weight = into_tail(half, present, share, self.nu, tail, generator)
        omega = omega * (self.nu / half).sqrt() * present / lengthscale[:, None]
        return _cos_sin(omega, variance * weight)


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
    bias : float, default=1.0
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
        angle = ArcCosineProfile.apply((X @ Z.mT + bias2) / norms)
        return _like(self.variance, X) / math.pi * norms * angle

    def diag(self, X):
        return _like(self.variance, X) * self._scaled(X)[2]

    def features(self, n, n_features, generator, like, tail=0.0):
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        omega = omega / _like(self.lengthscale, like)[..., None]
        shift = _like(self.bias, like) * normal((*n[:-1], 1, n[-1]), generator, like)
        root = (2.0 * _like(self.variance, like)).sqrt()
        return lambda X: root * (X @ omega + shift).clamp_min(0.0)[..., None]


class Linear(Kernel):
    r"""Linear kernel, :math:`b^2 + \sum_q \sigma_q^2 x_q x'_q`.

    Parameters
    ----------
    variance : float, array of shape (n_features,) or None, default=None
        None stands for one over the number of inputs.
    bias : float, default=1.0
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

    @property
    def slopes(self):
        return self.variance

    def diag(self, X):
        return (X.square() * _like(self.variance, X)).sum(-1) + _like(self.bias, X).square()

    def features(self, n, n_features, generator, like, tail=0.0):
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
        left, right = (as_kernel(part).bind(n_features) for part in (self.left, self.right))
        return self.with_values(left=left, right=right)

    def _slopes_of_parts(self):
        return [torch.as_tensor(p.slopes, dtype=torch.float64) for p in (self.left, self.right)]


class Sum(_Pair):
    """Sum of two kernels; written ``left + right``."""

    def __call__(self, X, Z):
        return self.left(X, Z) + self.right(X, Z)

    @property
    def slopes(self):
        left, right = self._slopes_of_parts()
        return left + right

    def within(self, X):
        return self.left.within(X) + self.right.within(X)

    def diag(self, X):
        return self.left.diag(X) + self.right.diag(X)

    def features(self, n, n_features, generator, like, tail=0.0):
        left, right = (
            part.features(n, n_features, generator, like, tail) for part in (self.left, self.right)
        )
        return lambda X: torch.cat([left(X), right(X)], -1)


class Product(_Pair):
    """Product of two kernels; written ``left * right``."""

    def __call__(self, X, Z):
        return self.left(X, Z) * self.right(X, Z)

    @property
    def slopes(self):
        """At the origin plus one standard deviation of each standardized input."""
        left, right = self._slopes_of_parts()
        X = torch.ones_like(left + right).reshape(1, -1)
        return left * self.right.diag(X) + right * self.left.diag(X)

    def within(self, X):
        return self.left.within(X) * self.right.within(X)

    def diag(self, X):
        return self.left.diag(X) * self.right.diag(X)

    def features(self, n, n_features, generator, like, tail=0.0):
        left, right = (
            part.features(n, n_features, generator, like, tail) for part in (self.left, self.right)
        )
        return lambda X: (left(X)[..., :, None] * right(X)[..., None, :]).flatten(-2)


def _cos_sin(omega, variance):
    """Features ``sqrt(variance) (cos, sin)`` of frequencies (..., n_features, R)."""
    root = variance.sqrt()[..., None]

    def phi(X):
        angle = X @ omega
        return root * torch.stack([angle.cos(), angle.sin()], -1)

    return phi


def _like(value, tensor):
    return torch.as_tensor(value, dtype=tensor.dtype, device=tensor.device)


_BY_NAME = {
    "anova": Anova,
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
