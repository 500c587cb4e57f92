"""The ANOVA kernel."""

import torch

from ...linalg import is_exporting
from ...random import gamma, normal, uniform
from ..draws import importance_sampled
from ..factor_products import FactorProduct, product_of_factors, product_of_roots
from .base import Kernel, over_rows, tensor_like
from .stationary import cos_sin

#: rows on both sides; of fewer, the functions of each side take longer than products save
_MANY_ROWS = 16


class Anova(Kernel):
    r"""Sums of functions of one input, of two, and so on: a product with one factor for each input.

    .. math:: k(x, x') = \sigma^2 \prod_q \frac{1 + a_q k_q(x_q, x_q')}{1 + a_q}

    with Matern kernels :math:`k_q` of one input (Duvenaud et al., 2011, with all orders; Durrande et al.,
    2013). The product has a term for every subset of the inputs. Where a target is made of parts that
    depend on few inputs each, rows that agree in these inputs have similar parts, at any distance in the
    others. A kernel of one distance cannot represent this.

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
    trainable : bool or list of str, default=True
        Whether training changes the hyperparameters, or the names of those that it changes.
    on : sequence of str or int, or None, default=None
        As for :class:`SquaredExponential`.

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
    _roles = {"lengthscale": "lengthscale", "strength": "strength", "variance": "variance"}
    _allowed = {"nu": (0.5, 1.5, 2.5)}
    _of_inputs = {"lengthscale": lambda n: 1.0, "strength": lambda n: 1.0 / n}
    ard = True

    def __init__(
        self, nu=1.5, lengthscale=1.0, strength=None, variance=1.0, trainable=True, on=None
    ):
        self.nu = nu
        self.lengthscale = lengthscale
        self.strength = strength
        self.variance = variance
        self.trainable = trainable
        self.on = on

    def _hyperparameters(self, like):
        return (tensor_like(getattr(self, name), like) for name in self._positive)

    def __call__(self, X, Z):
        if is_exporting():
            return product_of_factors(X, Z, *self._hyperparameters(X), self)
        return FactorProduct.apply(X, Z, *self._hyperparameters(X), self)

    def between(self, X, Z):
        if X.ndim == Z.ndim == 2:
            return self._between(X, Z, *self._hyperparameters(X))
        states = zip(X, Z.expand(len(X), -1, -1), zip(*self._hyperparameters(X)))
        return torch.stack([self._between(x, z, l[0], a[0], v[0, 0]) for x, z, (l, a, v) in states])

    def _between(self, X, Z, lengthscale, strength, variance):
        if is_exporting():
            return product_of_factors(X, Z, lengthscale, strength, variance, self)
        has_roots = self.nu == 1.5 and X.dtype == torch.float64 and not torch.is_grad_enabled()
        if has_roots and min(len(X), len(Z)) >= _MANY_ROWS:
            return product_of_roots(X, Z, 3.0**0.5 / lengthscale, strength, variance)
        return FactorProduct.apply(X, Z, lengthscale, strength, variance, self)

    def within(self, X):
        if is_exporting():
            return product_of_factors(X, X, *self._hyperparameters(X), self)
        hyperparameters = tuple(self._hyperparameters(X))
        if all(each.ndim < 3 for each in hyperparameters):
            return self._within(X, *hyperparameters)
        numbers = [torch.atleast_1d(each) for each in hyperparameters]
        numbers = [each[:, 0] if each.ndim == 3 else each[None] for each in numbers]
        n = max(X.shape[-3], *map(len, numbers))  # states
        X = X.expand(*X.shape[:-3], n, *X.shape[-2:])
        lengthscale, strength, variance = (each.expand(n, -1) for each in numbers)
        states = zip(X.unbind(-3), lengthscale, strength, variance[:, 0])
        return torch.stack([self._within(*state) for state in states], -3)

    def _within(self, X, lengthscale, strength, variance):
        *groups, P, n_features = X.shape
        i, j = torch.tril_indices(P, P, device=X.device)
        left, right = (X[..., rows, :].reshape(-1, n_features) for rows in (i, j))
        K = FactorProduct.apply(left, right, lengthscale, strength, variance, self, True)
        place = torch.empty((P, P), dtype=torch.long, device=X.device)
        place[i, j] = place[j, i] = torch.arange(len(i), device=X.device)
        return K.reshape(*groups, -1).index_select(-1, place.flatten()).reshape(*groups, P, P)

    def write_profile(self, s, e, out):
        """The kernel of one input at distance r, for ``s = sqrt(2 nu) r`` and ``e = exp(-s)``."""
        if self.nu == 0.5:
            return out.copy_(e)
        if self.nu == 1.5:
            return torch.addcmul(e, s, e, out=out)
        return torch.addcmul(s, s, s, value=1.0 / 3.0, out=out).add_(1.0).mul_(e)

    def multiply_slope(self, W, s, e):
        """Multiply `W` in place by minus the derivative with respect to `s`."""
        if self.nu == 0.5:
            return W.mul_(e)
        return W.mul_(e).mul_(s if self.nu == 1.5 else (s + s * s).div_(3.0))

    @property
    def slopes(self):
        """Close by, ``-log k`` is a sum over inputs of ``a / (1 + a)`` times that of `k_q`."""
        return super().slopes * self.strength / (1.0 + self.strength)

    def diag(self, X):
        return over_rows(self.variance, X)

    def features(self, n, n_features, generator, like, importance=0.0):
        lengthscale, strength, variance = self._hyperparameters(like)
        shape = (*n[:-1], n_features, n[-1])
        half = gamma(self.nu, shape, generator, like)
        omega = normal(shape, generator, like)
        # with probability 1 / (1 + a_q) a feature does not depend on the input
        share = (strength / (1.0 + strength))[:, None]
        present = uniform(shape, generator, like) < share
        half, present, weight = importance_sampled(
            half, present, share, self.nu, importance, generator
        )
        omega = omega * (self.nu / half).sqrt() * present / lengthscale[:, None]
        return cos_sin(omega, variance * weight)
