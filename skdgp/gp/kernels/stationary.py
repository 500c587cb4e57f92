"""Kernels of the scaled distance."""

import math

import torch

from ...linalg import is_exporting
from ...random import gamma, normal
from ..covariances import (
    LEAST_DISTANCE,
    DistanceWithin,
    GramRadial,
    Radial,
    SquaredDistance,
    centered,
    squared_distances,
)
from ..draws import importance_sampled
from .base import Kernel, over_rows, tensor_like

_SMALL_ALPHA = 1000.0  #: of powers that an ordinary logarithm gives to 1e-13


class Stationary(Kernel):
    """Kernels of ``r^2 = sum_q (x_q - z_q)^2 / lengthscale_q^2``.

    A subclass gives :meth:`profile`, by operations of torch, and names hyperparameters of its own in
    ``_positive``. If it has none and gives :meth:`scale_by_slope`, gradients take fewer products.
    """

    slope_factor = 1.0  #: what :meth:`scale_by_slope` leaves out, for where hyperparameters are few
    distances_count = True  #: in :meth:`scale_by_slope`; else the profile may be written over them
    #: whether the profile has an infinite slope at zero, where distances must be exact
    is_rough = False
    _positive = {"lengthscale": 0.0, "variance": 0.0}
    _roles = {"lengthscale": "lengthscale", "variance": "variance"}
    _of_inputs = {"lengthscale": math.sqrt}
    #: whether covariances have no other hyperparameters, and slopes in closed form, as for :class:`Radial`
    is_radial = False

    def __init_subclass__(cls, **kwargs):
        """Drop the methods of another profile from a class that has its own."""
        super().__init_subclass__(**kwargs)
        if "profile" in vars(cls):
            for name in ("write_profile", "scale_by_slope", "_frequency_scale"):
                if name not in vars(cls):
                    setattr(cls, name, getattr(Stationary, name))
        has_slope = cls.scale_by_slope is not Stationary.scale_by_slope
        cls.is_radial = has_slope and cls._positive.keys() == Stationary._positive.keys()

    def __init__(self, lengthscale=None, variance=1.0, ard=True, trainable=True, on=None):
        self.lengthscale = lengthscale
        self.variance = variance
        self.ard = ard
        self.trainable = trainable
        self.on = on

    def __call__(self, X, Z):
        lengthscale, variance = tensor_like(self.lengthscale, X), tensor_like(self.variance, X)
        if is_exporting():
            return self._of_rows(X, Z, lengthscale)
        if self.is_radial:
            return Radial.apply(X, Z, lengthscale, variance, self)
        r2 = SquaredDistance.apply(X, Z, lengthscale, self.is_rough)
        if self.is_rough:  # an infinite slope at equal rows, which count for nothing
            r2 = r2.clamp_min(2.0 * LEAST_DISTANCE)
        return self._covariances(r2)

    def between(self, X, Z):
        if X.ndim == Z.ndim == 2:
            return self(X, Z)
        return self._of_rows(X, Z, tensor_like(self.lengthscale, X))

    def _of_rows(self, X, Z, lengthscale, center=None):
        rows, norms, _ = centered(X, Z, lengthscale, center)
        return self._covariances(squared_distances(*rows, *norms, rough=self.is_rough))

    def _covariances(self, r2):
        """The kernel at squared distances, in their place if there is no gradient."""
        variance = tensor_like(self.variance, r2)
        if torch.is_grad_enabled() or is_exporting():
            return variance * self.profile(r2)
        return self.write_profile(r2, r2).mul_(variance)

    def within(self, X):
        lengthscale = tensor_like(self.lengthscale, X)
        if is_exporting():
            return self._of_rows(X, X, lengthscale, X[..., -1:, :])
        # at zero the slope of a root is infinite, and that of no profile matters
        if torch.is_grad_enabled():
            r2 = DistanceWithin.apply(X, lengthscale, self.is_rough)
            return self._covariances(r2.clamp_min(LEAST_DISTANCE))
        X = X / lengthscale
        r = torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist")
        return self._covariances(r.square_().clamp_min_(LEAST_DISTANCE))

    def _of_products(self, G, left, right):
        lengthscale, variance = tensor_like(self.lengthscale, G), tensor_like(self.variance, G)
        if self.is_radial:
            return GramRadial.apply(G, left, right, lengthscale, variance, self)
        r2 = left[..., :, None] + right[..., None, :] - 2.0 * G
        r2 = r2.clamp_min(LEAST_DISTANCE) / lengthscale.square()
        return variance * self.profile(r2)

    def diag_from_gram(self, d):
        return tensor_like(self.variance, d).expand(d.shape)

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
        return over_rows(self.variance, X)

    def features(self, n, n_features, generator, like, importance=0.0):
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
        importance : float in [0, 1)
            Fraction of the features that are drawn where rough kernels have few, at high frequencies,
            and count for as much less. Functions that are known at many rows differ in these alone.

        Returns
        -------
        phi : callable
            Maps (..., P, n_features) to (..., P, R, c); the covariance of two rows is the mean over
            R of the inner products over c.
        """
        omega = normal((*n[:-1], n_features, n[-1]), generator, like)
        scale, weight = self._frequency_scale(n, generator, like, importance)
        omega = omega * scale / tensor_like(self.lengthscale, like)[..., None]
        return cos_sin(omega, tensor_like(self.variance, like) * weight)

    def _frequency_scale(self, n, generator, like, importance):
        """Return the factor of Gaussian frequencies, and the weights of the features."""
        raise ValueError(
            f"{type(self).__name__} has no random features, of which draws of functions are made; give it the "
            "method _frequency_scale, as CONTRIBUTING.rst says, or take a kernel of skdgp."
        )


class SquaredExponential(Stationary):
    r"""Squared exponential kernel, :math:`\sigma^2 \exp(-r^2 / 2)`.

    Parameters
    ----------
    lengthscale : float, array of shape (n_features,), Prior or None, default=None
        None stands for the square root of the number of inputs. Here, as for all hyperparameters, a prior or a
        fixed number may stand, see :mod:`skdgp.gp.priors`.
    variance : float, default=1.0
    ard : bool, default=True
        One lengthscale for each input (automatic relevance determination) or a common one.
    trainable : bool or list of str, default=True
        Whether training changes the hyperparameters, or the names of those that it changes.
    on : sequence of str or int, or None, default=None
        Columns of X that the kernel looks at, by name or position; None for all. See :class:`OnColumns`.

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

    def _frequency_scale(self, n, generator, like, importance):
        return 1.0, 1.0


class Matern(Stationary):
    r"""Matern kernel with smoothness 1/2, 3/2 or 5/2.

    :math:`\sigma^2 e^{-r}`, :math:`\sigma^2 (1 + s) e^{-s}` with :math:`s = \sqrt 3 r`, or
    :math:`\sigma^2 (1 + s + s^2/3) e^{-s}` with :math:`s = \sqrt 5 r`.

    Parameters
    ----------
    nu : {0.5, 1.5, 2.5}, default=1.5
    lengthscale, variance, ard, trainable, on
        As for :class:`SquaredExponential`.
    """

    _allowed = {"nu": (0.5, 1.5, 2.5)}

    def __init__(self, nu=1.5, lengthscale=None, variance=1.0, ard=True, trainable=True, on=None):
        super().__init__(lengthscale, variance, ard, trainable, on)
        self.nu = nu

    @property
    def is_rough(self):
        return self.nu == 0.5

    def profile(self, r2):
        s = (2.0 * self.nu * r2).sqrt()
        if self.nu == 0.5:
            return torch.exp(-s)
        return (1.0 + s if self.nu == 1.5 else 1.0 + s + s * s / 3.0) * torch.exp(-s)

    def scale_by_slope(self, G, r2):
        s = (2.0 * self.nu * r2).sqrt()
        if self.nu == 0.5:  # an infinite slope at equal rows, which count for nothing
            return G.mul_(torch.where(s > LEAST_DISTANCE**0.5, 1.0 / s, 0.0))
        if self.nu == 1.5:
            return G.div_(1.0 + s)
        return G.mul_((1.0 + s) / (1.0 + s + s * s / 3.0))

    @property
    def slope_factor(self):
        return {0.5: -0.5, 1.5: -1.5, 2.5: -5.0 / 6.0}[self.nu]

    def _frequency_scale(self, n, generator, like, importance):
        # a multivariate t distribution: one chi-square for each frequency, shared by all inputs
        half = gamma(self.nu, (*n[:-1], 1, n[-1]), generator, like)
        always = torch.ones_like(half)
        half, _, weight = importance_sampled(
            half, always > 0.0, always, self.nu, importance, generator
        )
        return (self.nu / half).sqrt(), weight


class RationalQuadratic(Stationary):
    r"""Rational quadratic kernel, :math:`\sigma^2 (1 + r^2 / (2 \alpha))^{-\alpha}`.

    Parameters
    ----------
    alpha : float, default=1.0
        Small values mix many lengthscales; the limit of large ones is the squared exponential.
    lengthscale, variance, ard, trainable, on
        As for :class:`SquaredExponential`.
    """

    _positive = {**Stationary._positive, "alpha": 0.0}

    def __init__(
        self, alpha=1.0, lengthscale=None, variance=1.0, ard=True, trainable=True, on=None
    ):
        super().__init__(lengthscale, variance, ard, trainable, on)
        self.alpha = alpha

    def profile(self, r2):
        return _RationalQuadratic.apply(r2, tensor_like(self.alpha, r2))

    def write_profile(self, r2, out):
        alpha = tensor_like(self.alpha, r2)
        u = torch.div(r2, 2.0 * alpha, out=out)
        log = u.add_(1.0).log_() if alpha.max() <= _SMALL_ALPHA else u.log1p_()
        return log.mul_(-alpha).exp_()

    def _frequency_scale(self, n, generator, like, importance):
        alpha = tensor_like(self.alpha, like)
        return (gamma(alpha, (*n[:-1], 1, n[-1]), generator, like) / alpha).sqrt(), 1.0


class _RationalQuadratic(torch.autograd.Function):
    """``(1 + r2 / (2 alpha))^-alpha``, with a gradient of few products."""

    @staticmethod
    def forward(ctx, r2, alpha):
        u = r2 / (2.0 * alpha)
        log = u.log1p()
        k = torch.exp(-alpha * log)
        ctx.save_for_backward(u, log, k, alpha)
        return k

    @staticmethod
    def backward(ctx, G):
        u, log, k, alpha = ctx.saved_tensors
        Gk, one = G * k, u + 1.0
        d_r2 = -0.5 * Gk / one
        d_alpha = None
        if ctx.needs_input_grad[1]:
            d_alpha = (Gk * (u / one - log)).sum_to_size(alpha.shape)
        return d_r2, d_alpha


def cos_sin(omega, variance):
    """Features ``sqrt(variance) (cos, sin)`` of frequencies (..., n_features, R)."""
    root = variance.sqrt()[..., None]

    def phi(X):
        angle = X @ omega
        return root * torch.stack([angle.cos(), angle.sin()], -1)

    return phi
