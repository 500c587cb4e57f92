"""Neural network Gaussian processes: deep kernels without randomness."""

import math
from dataclasses import replace
from numbers import Real

import numpy as np
import torch
from sklearn.base import clone

from ...gp.likelihoods import Gaussian
from ...optim.lbfgs import LBFGS
from ..base import Model
from ..sparse.full_batch import QuasiNewton
from .diwp import KernelScheme
from .model import GramModel
from .posterior import KernelPosterior
from .process import factorize

_EXACT = (
    2000  #: rows up to which the time of a Cholesky factorization of all of them is a second or so
)
_LOG_2PI = math.log(2.0 * math.pi)


class NNGP(KernelScheme):
    r"""Neural network Gaussian process: a Gaussian process whose kernel is a composition of `n_layers` kernels.

    The limit of infinite widths of deep Gaussian processes and neural networks (Lee et al., 2018), and of large
    :math:`\delta` in :class:`DeepInverseWishart`. For Gaussian noise and few rows the log marginal likelihood
    is maximized by L-BFGS; else there are inducing points and minibatches.

    Parameters
    ----------
    exact : bool or None, default=None
        Whether all rows are looked at at once, with Gaussian noise. None for up to 2,000 rows.
    natural_step : float, default=0.1
        Size of the natural-gradient steps of the posterior, where there are inducing points.
    tol : float, default=1e-8
        L-BFGS has converged when an iteration improves the log marginal likelihood per row by less, relative
        to the larger of 1 and its size.

    References
    ----------
    J. Lee, Y. Bahri, R. Novak, S. Schoenholz, J. Pennington and J. Sohl-Dickstein (2018). Deep neural
    networks as Gaussian processes. ICLR.

    Examples
    --------
    >>> from skdgp.inference.deep_kernel_process import NNGP
    >>> NNGP(exact=False)
    NNGP(exact=False)
    """

    delta, n_draws = None, 1

    def __init__(self, exact=None, natural_step=0.1, tol=1e-8):
        self.exact = exact
        self.natural_step = natural_step
        self.tol = tol

    def for_data(self, n_rows, n_classes=None, max_iter=None):
        if self.exact is not None:
            return self
        return clone(self).set_params(exact=bool(n_rows <= _EXACT and n_classes is None))

    def max_iter(self, n_rows):
        return 100 if self.exact else super().max_iter(n_rows)

    def batch_size(self, n_rows):
        return n_rows if self.exact else super().batch_size(n_rows)

    def validate(self):
        super().validate()
        self.check("tol", Real, lambda x: 0.0 <= x < math.inf, "a number of at least 0")
        if self.exact is not None:
            self.check_boolean("exact")

    def build(self, architecture, likelihood):
        if self.exact and isinstance(likelihood, Gaussian):
            return ExactNNGP(architecture, likelihood, self)
        return GramModel(architecture, likelihood, self)


class ExactNNGP(QuasiNewton, Model):
    """The model of :class:`NNGP` that has all training rows.

    Its predictions are those of inducing points at these rows, whose pseudo-observations are the targets.
    """

    def __init__(self, architecture, likelihood, scheme):
        super().__init__()
        self.process = GramModel(replace(architecture, n_inducing=1), likelihood, scheme)
        self.process.Z.requires_grad_(False)
        self._lbfgs = LBFGS(tol=scheme.tol)
        self._keep(torch.zeros(0, architecture.n_features), torch.zeros(0, architecture.n_latents))

    @property
    def likelihood(self):
        return self.process.likelihood

    def start(self, X, weights, rng):
        """Nothing: there are no inducing inputs to place."""

    def _keep(self, X, y, weight=None):
        weight = X.new_ones(len(X)) if weight is None else weight
        for name, value in (("X", X), ("y", y), ("weight", weight)):
            self.register_buffer(name, value.detach().double())

    def step(self, batch, generator, rate=1.0):
        if abs(float(batch.weight.sum()) - batch.total) > 1e-6 * batch.total:
            raise ValueError(
                "NNGP(exact=True) needs all rows in every step; leave batch_size at None, or set exact=False "
                "for minibatches and partial_fit."
            )
        if self.X.shape != batch.X.shape:
            self._keep(*batch[:3])
        return super().step(batch, generator, rate)

    def _noise(self):
        """Variances (k, n) of the rows' means of as many targets as they count for."""
        return self.likelihood().variance.expand(self.y.shape[1])[:, None] / self.weight

    def covariances(self):
        """Covariances of the rows (k, n, n), noise included."""
        inner, X = self.process, self.process.inputs(self.X)
        G = X @ X.mT / X.shape[1]
        for kernel in inner.kernels:
            G = kernel().from_gram(G)
        return factorize(G[None], inner.jitter)[0] + torch.diag_embed(self._noise())

    def lower_bound(self, batch):
        """The log marginal likelihood; a row of weight w stands for w rows."""
        K, (k, w) = self.covariances(), (self.y.shape[1], self.weight)
        with torch.no_grad():
            L = factorize(K, 0.0)[2]
            y = self.y.T[..., None]
            a = torch.cholesky_solve(y, L)
            log_det = 2.0 * torch.diagonal(L, dim1=-2, dim2=-1).log().sum()
            value = -0.5 * ((y * a).sum() + log_det + y.numel() * _LOG_2PI)
            G = 0.5 * (a @ a.mT - torch.cholesky_inverse(L))
        noise = self._noise()
        repeated = -0.5 * (
            (w * (noise * w).log() - noise.log()).sum() + k * (w - 1.0).sum() * _LOG_2PI
        )
        wanted = [
            (t, g) for t, g in ((K, G), (repeated, torch.ones_like(repeated))) if t.requires_grad
        ]
        if wanted and torch.is_grad_enabled():
            torch.autograd.backward(*zip(*wanted))
        return float(value + repeated.detach())

    def draws(self, n, seed):
        return np.zeros((1, 2))

    @torch.no_grad()
    def posterior(self, draws):
        inner, precision = self.process, 1.0 / self._noise()
        inner.Z.data = self.X
        inner.sites.h.data = (precision * self.y.T).T
        inner.sites.Lambda.data = torch.diag_embed(precision)
        posterior = ExactPosterior(inner, draws)
        posterior.of_rows = self.covariances, self.y, self.weight
        for parameter in (inner.Z, inner.sites.h, inner.sites.Lambda):  # which are no state
            parameter.data = parameter.data[..., :1, :1].clone()
        return posterior

    def load_state(self, arrays):
        self._keep(*(torch.tensor(arrays[name]) for name in ("X", "y", "weight")))
        super().load_state(arrays)

    def load_training_state(self, arrays):
        self._lbfgs.load(arrays, self.process.Z)


class ExactPosterior(KernelPosterior):
    """A posterior that has its training rows at hand."""

    def loo_log_density(self, rows, dispersions=None):
        """Log-densities of training rows given all others; see the contract of posteriors."""
        covariances, y, weight = self.of_rows
        with torch.no_grad():
            K_inv = torch.cholesky_inverse(factorize(covariances(), 0.0)[2])
            var = 1.0 / torch.diagonal(K_inv, dim1=-2, dim2=-1)  # of means of targets
            mean = y.T - (K_inv @ y.T[..., None])[..., 0] * var  # k, n
            noise = self.likelihood.variance.expand(len(mean))[:, None]
            var = var + noise * (1.0 - 1.0 / weight)
            spread = torch.as_tensor(1.0 if dispersions is None else dispersions).to(y)
            var = spread.square()[..., None, None] * var
            log_density = -0.5 * (_LOG_2PI + var.log() + (y.T - mean).square() / var)
            return log_density.sum(-2).numpy(force=True)[..., rows]
