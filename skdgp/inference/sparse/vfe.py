"""Shallow sparse GPs with their posterior in closed form, and what they become for classes."""

from typing import Annotated

import torch

from ...gp.likelihoods import Bernoulli, Gaussian, Softmax
from ...gp.rows import log_marginal_likelihood
from ...linalg import LOG_2PI, cholesky, gradient_of_gram, gram, inverse_triangular
from ...optim.quasi_newton import backward
from ..base import FRACTION, NOT_NEGATIVE, POSITIVE, Scheme
from .concave import ConcaveGP
from .full_batch import FullBatchGP, solve_posterior

_EXACT = 1500  #: rows up to which all of them are inducing inputs
_OF_CLASSES = 300  #: inducing points, in all latent functions of classes together
_FEWEST_OF_CLASS = 50


class VFE(Scheme):
    """Variational free energy of a shallow Gaussian process (Titsias, 2009).

    For one layer and Gaussian noise, the best posterior at the inducing inputs is known. What is
    left, the hyperparameters of kernel and noise, is found by L-BFGS on all rows at once. With as many
    inducing points as there are rows this is the exact Gaussian process; that is the default up to
    1,500 rows.

    For classes (probit, logit, softmax) the best Gaussian posterior is found by natural gradients
    for every trial of L-BFGS; see :class:`~skdgp.SparseGPClassifier`. That takes longer: by default there
    are 300 inducing points for two classes, otherwise 300 over the number of classes, but at least 50.

    Parameters
    ----------
    train_inducing : bool, default=False
        Whether inducing inputs are optimized, too, instead of staying at the centers of the rows.
    tol : float, default=1e-8
        L-BFGS has converged when an iteration improves the lower bound per row by less, relative to the
        larger of 1 and its size.
    deviation : float or None, default=None
        Scale of Cauchy priors of what the kernel has for each column: of the deviations of logarithms from
        their mean. They keep many columns from overfitting few rows; the default classifier has 0.5.
        `loss_curve_` counts them, `lower_bound_` does not. None leaves all to the lower bound.

    References
    ----------
    M. Titsias (2009). Variational learning of inducing variables in sparse Gaussian processes.
    AISTATS 5.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = DeepGPRegressor(n_layers=1, inference="vfe", kernel="matern52", random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.99)
    True
    """

    uses = frozenset({"n_inducing", "init"})
    takes_chunks = False
    leaves_one_out = True  # for classes
    _alpha = 0.0  # of power expectation propagation, of which this is the limit

    train_inducing: Annotated[bool, "boolean"] = False
    tol: Annotated[float, NOT_NEGATIVE] = 1e-8
    deviation: Annotated[float | None, POSITIVE, None] = None

    def max_iter(self, n_rows):
        return 100

    def batch_size(self, n_rows):
        return n_rows

    def n_inducing(self, n_rows, n_classes=None):
        if n_classes is not None:  # what all functions cost together is kept in bounds
            return max(_FEWEST_OF_CLASS, _OF_CLASSES // (n_classes if n_classes > 2 else 1))
        if n_rows <= _EXACT:
            return n_rows
        return 500 if n_rows <= 10_000 else 300

    def cubes(self, n_rows, n_inducing):
        size = n_rows * n_inducing**2
        return 8.0 * size, 10.0 * size

    def build(self, architecture, likelihood):
        name = type(self).__name__
        if architecture.widths:
            raise ValueError(f"{name} is for shallow models; set n_layers=1.")
        if isinstance(likelihood, Gaussian):
            return CollapsedGP(architecture, likelihood, self)
        if self._alpha == 0.0 and isinstance(likelihood, (Bernoulli, Softmax)):
            return ConcaveGP(architecture, likelihood, self)
        raise ValueError(
            f"{name} is for Gaussian noise{', probit, logit and softmax' * (self._alpha == 0.0)}; "
            f"for {type(likelihood).__name__} use inference='dsvi'."
        )


class PowerEP(VFE):
    """Power expectation propagation for a shallow Gaussian process (Bui, Yan and Turner, 2017).

    Each row has a factor of its own. For Gaussian noise the fixed point is known, and its energy
    takes the place of the lower bound of :class:`VFE`: with ``d = diag(K_ff - Q_ff)``,

    ``log N(y; 0, Q_ff + alpha diag(d) + s I) - (1 - alpha) / (2 alpha) sum log(1 + alpha d / s)``.

    Parameters
    ----------
    alpha : float in (0, 1], default=0.5
        1 is FITC, the fully independent training conditional (Snelson and Ghahramani, 2006); the
        limit of small values is :class:`VFE`. Positive values do not give a lower bound, and large ones
        can drive the noise to its floor (Bauer et al., 2016), a millionth of the target's variance.
    train_inducing, tol, deviation
        As for :class:`VFE`.

    References
    ----------
    T. Bui, J. Yan and R. Turner (2017). A unifying framework for Gaussian process pseudo-point
    approximations using power expectation propagation. Journal of Machine Learning Research 18,
    equation 27.

    M. Bauer, M. van der Wilk and C. Rasmussen (2016). Understanding probabilistic sparse Gaussian
    process approximations. Advances in Neural Information Processing Systems 29.

    Examples
    --------
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inference import PowerEP
    >>> model = DeepGPRegressor(n_layers=1, inference=PowerEP(alpha=1.0), n_inducing=20)
    """

    leaves_one_out = False

    alpha: Annotated[float, FRACTION] = 0.5

    def __init__(self, alpha=0.5, train_inducing=False, tol=1e-8, deviation=None):
        super().__init__(train_inducing, tol, deviation)
        self.alpha = alpha

    @property
    def _alpha(self):
        return self.alpha


def _all_among(X, Z):
    """Whether every row of `X` is a row of `Z`."""
    distances = torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist")
    return bool((distances.amin(1) == 0.0).all())


class CollapsedGP(FullBatchGP):
    """The model of :class:`VFE` and :class:`PowerEP` for Gaussian noise.

    Given its value at the inducing inputs, the k-th output of a row has the noise ``s_k t_k`` with
    ``t_k = 1 + alpha d / s_k``; up to one term, the objective is the marginal likelihood of a linear model in
    the columns of ``A = L^{-1} K_uf`` with this noise.
    """

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(architecture, likelihood, scheme)
        self.alpha = scheme._alpha
        self._seen = None  # rows, and whether all of them are inducing inputs

    def lower_bound(self, batch):
        if not self._is_exact(batch.X):
            return self.collapsed(batch.X, batch.y, batch.weight)
        value = self.exact(batch.X.double(), batch.y, batch.weight)
        backward((value, torch.ones_like(value)))
        return float(value.detach())

    def natural_parameters(self, batch):
        layer = self.layers[0]
        noise = self.likelihood().variance.expand(batch.y.shape[1])
        L = cholesky(layer.kernel()(layer.Z, layer.Z), layer.jitter)
        G, b, *_ = self._sums(self.pieces(batch.X, L), batch.y, batch.weight, noise)
        return self._natural(G, b, noise)

    def _noise_factors(self, k_ff, A, noise):
        """``d`` (n,) and ``t`` (k, n)."""
        d = k_ff.detach() - A.square().sum(0)
        return d, 1.0 + self.alpha * d / noise[:, None]

    @torch.no_grad()
    def _sums(self, pieces, y, weight, noise):
        """Sums of ``A diag(w / t_k) A^T``, ``A (w y_k / t_k)``, -2 objectives, and ``w d``."""
        G = b = fit = residual = 0.0
        for rows, _, k_ff, A in pieces:
            d, t = self._noise_factors(k_ff, A, noise)
            r, y_c = weight[rows] / t, y[rows].T
            G = G + gram(A, r if self.alpha > 0.0 else r[:1])
            b = b + A @ (r * y_c).T
            residual = residual + weight[rows] @ d
            excess = d / noise[:, None]
            if self.alpha > 0.0:
                excess = torch.log1p(self.alpha * excess) / self.alpha
            fit = fit + (weight[rows] * excess + r * y_c.square() / noise[:, None]).sum()
        return G, b.T[..., None], fit, residual

    @staticmethod
    def _natural(G, b, noise):
        """Precision of the posterior, and precision times mean."""
        noise = noise[:, None, None]
        P = G / noise
        P.diagonal(dim1=-2, dim2=-1).add_(1.0)
        return P, b / noise

    def collapsed(self, X, y, weight):
        """The objective by Titsias (2009, eq. 9) or Bui et al. (2017, eq. 27), and gradients."""
        layer, variance = self.layers[0], self.likelihood().variance.expand(y.shape[1])
        noise = variance.detach()  # k
        K_uu = layer.kernel()(layer.Z, layer.Z)
        L = cholesky(K_uu.detach(), layer.jitter)
        passes = self.passes(X, L)
        G, b, fit, residual = self._sums(passes(), y, weight, noise)
        P, h = self._natural(G, b, noise)
        L_P, mu, log_det = solve_posterior(P, h)
        fit = fit + weight.sum() * (LOG_2PI + noise.log()).sum() + log_det
        if torch.is_grad_enabled():
            P_inv = torch.cholesky_inverse(L_P)
            T = (P_inv + mu @ mu.mT).sum(0)
            T.diagonal().sub_(len(P))
            if self.alpha > 0.0:
                d_noise = self._pep_gradients(passes, K_uu, L, y, weight, noise, mu, P_inv, T)
            else:
                T += P.sum(0)
                T.diagonal().sub_(len(P))
                squares = self._vfe_gradients(passes, K_uu, L, y, weight, noise, mu, P_inv, T)
                # tr(P^{-1} G) with G = s (P - I): the variance that the posterior leaves
                kept = noise * (len(L) - torch.diagonal(P_inv, dim1=-2, dim2=-1).sum(-1))
                d_noise = -0.5 * (weight.sum() - (squares + residual + kept) / noise) / noise
            backward((variance, d_noise))
        return -0.5 * float(fit - (h * mu).sum())

    def _vfe_gradients(self, passes, K_uu, L, y, weight, noise, mu, P_inv, T):
        """Gradients for kernel and inducing inputs; returns the squared errors of each output."""
        squares = torch.zeros_like(noise)

        def row_gradients(rows, A):
            w, error = weight[rows], y[rows].T - mu[..., 0] @ A  # k, n
            squares.add_((w * error.square()).sum(1))
            return w * error / noise[:, None], -0.5 * w / noise[:, None]

        self.variational_gradients(passes, K_uu, L, mu, P_inv, row_gradients, T)
        return squares

    def _pep_gradients(self, passes, K_uu, L, y, weight, noise, mu, P_inv, T):
        """Gradients for kernel and inducing inputs; returns those for the noise.

        The expected squared error ``e = (y - m)^2 + a^T P^{-1} a`` of a row under the posterior of
        its conditional mean is weighed against its noise ``s t``.
        """
        L_inv, s, d_noise = inverse_triangular(L), noise[:, None], torch.zeros_like(noise)
        for rows, K_uf, k_ff, A in passes():
            d, t = self._noise_factors(k_ff, A, noise)
            w, error, PA = weight[rows], y[rows].T - mu[..., 0] @ A, P_inv @ A
            e, r = error.square() + (A * PA).sum(1), w / (s * t)  # k, n
            g_d = (r * (1.0 - self.alpha * e / (s * t))).sum(0)  # times -1/2
            dA = mu[..., 0].T @ (r * error) + A * g_d - (PA * r[:, None]).sum(0)
            T = T + gram(A, g_d[None])[0]
            d_noise -= 0.5 * (w / s - r * d / s - r * e / (s * t)).sum(1)
            backward((K_uf, L_inv.T @ dA), (k_ff, -0.5 * g_d))
        backward((K_uu, gradient_of_gram(L_inv, T)))
        return d_noise

    def exact(self, X, y, weight):
        """The log marginal likelihood of all rows, for inducing inputs that are these rows."""
        layer, k = self.layers[0], y.shape[1]
        noise = self.likelihood().variance.expand(k)[:, None]
        return log_marginal_likelihood(y.mT, layer.kernel()(X, X), noise, weight, layer.jitter)

    def _is_exact(self, X):
        """Whether all rows are inducing inputs, and stay so."""
        Z = self.layers[0].Z
        if Z.requires_grad or len(X) > len(Z):
            return False
        if self._seen is None or self._seen[0] is not X:
            self._seen = X, _all_among(X.double(), Z)
        return self._seen[1]
