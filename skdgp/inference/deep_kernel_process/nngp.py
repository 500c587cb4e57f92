"""Neural network Gaussian processes: deep kernels without randomness."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import torch
from torch import nn

from ...gp.likelihoods import Gaussian
from ...gp.rows import log_marginal_likelihood
from ...linalg import LOG_2PI, cholesky, rounding
from ...optim.quasi_newton import QuasiNewtonSteps, backward
from ..base import FRACTION, NOT_NEGATIVE, Model
from ..rows.conditioned import ConditionedGP, ConditionedLeaveOneOut
from ..rows.unique_inputs import NeighborSearch, gather
from .diwp import KernelScheme
from .model import GramModel
from .posterior import GramPosterior
from .process import composed, diagonal
from .sites import Whitened

_EXACT = 2000  #: rows up to which a Cholesky factorization of all of them takes a second or so


class NNGP(KernelScheme):
    r"""Neural network Gaussian process: a Gaussian process whose kernel is a composition of `n_layers` kernels.

    The limit of infinite widths of deep Gaussian processes and neural networks (Lee et al., 2018), and of large
    :math:`\delta` in :class:`DeepInverseWishart`. For Gaussian noise and few rows the log marginal likelihood
    is maximized by L-BFGS; else there are inducing points and minibatches.

    Parameters
    ----------
    exact : bool or None, default=None
        Whether all rows are looked at at once, with Gaussian noise. None for up to 2,000 rows with such noise.
        ``partial_fit`` needs False.
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
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> model = DeepGPRegressor(3, inference="nngp", kernel="arc_cosine", random_state=0)
    >>> bool(model.fit(X, np.sin(6 * X[:, 0])).score(X, np.sin(6 * X[:, 0])) > 0.99)
    True
    """

    delta, n_draws = None, 1

    exact: Annotated[bool | None, "boolean", None] = None
    natural_step: Annotated[float, FRACTION] = 0.1
    tol: Annotated[float, NOT_NEGATIVE] = 1e-8

    @property
    def takes_chunks(self):
        return self.exact is False  # what chunks lead to is no exact process

    def for_data(self, n_rows, n_classes=None, max_iter=None, likelihood=None):
        gaussian = isinstance(likelihood, Gaussian) or (likelihood is None and n_classes is None)
        if self.exact and not gaussian:
            raise ValueError(
                f"NNGP(exact=True) is for Gaussian noise; got {type(likelihood).__name__}. Leave exact at None."
            )
        return self._with_defaults(exact=bool(n_rows <= _EXACT and gaussian))

    def max_iter(self, n_rows):
        return 100 if self.exact else super().max_iter(n_rows)

    def batch_size(self, n_rows):
        return n_rows if self.exact else super().batch_size(n_rows)

    def cubes(self, n_rows, n_inducing):
        return (12.0 * n_rows**3, 14.0 * n_rows**3) if self.exact else (0.0, 0.0)

    def build(self, architecture, likelihood):
        return (ExactNNGP if self.exact else GramModel)(architecture, likelihood, self)


class ExactNNGP(Model):
    """The model of :class:`NNGP` with inducing points at all rows, which observe the targets."""

    roles = {"X": "rows", "y": "rows", "weight": "rows"}
    is_full_batch = True

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(QuasiNewtonSteps(scheme.tol))
        self.process = GramModel(replace(architecture, n_inducing=1), likelihood, scheme)
        self.process.Z.requires_grad_(False)
        self.layers = nn.ModuleList()
        self._has_rows = False
        sizes = {"X": (architecture.n_features,), "y": (architecture.n_latents,), "weight": ()}
        for name, size in sizes.items():
            self.register_buffer(name, torch.zeros(0, *size, dtype=torch.float64))

    @property
    def likelihood(self):
        return self.process.likelihood

    def start(self, X, weights, rng):
        """Nothing: there are no inducing inputs to place."""

    def _keep(self, X, y, weight):
        for name, value in (("X", X), ("y", y), ("weight", weight)):
            setattr(self, name, value.detach().to(self.process.Z))

    def hold(self, batch):
        if not self._has_rows:
            self._keep(batch.X, batch.y, batch.weight)
            self._has_rows = True

    def step(self, batch, generator, rate=1.0):
        if batch.scale != 1.0 or batch.share < 1.0:
            raise ValueError(
                "NNGP(exact=True) needs all rows in every step; leave batch_size at None, or set exact=False "
                "for minibatches and partial_fit."
            )
        return super().step(batch, generator, rate)

    def _noise(self):
        """Variances (k, n) of the means of as many targets as rows count for."""
        return self._noise_of_one() / self.weight

    def _noise_of_one(self):
        return self.likelihood().variance.expand(self.y.shape[1])[:, None]

    def _prior(self):
        """Covariance of the functions at the rows (n, n), and the variance of white noise beside it."""
        X = self.process.inputs(self.X)
        kernels = [kernel() for kernel in self.process.kernels]
        G = composed(kernels, X, X @ X.mT / X.shape[1])
        return G, self.process.jitter * diagonal(G).mean()

    def covariances(self):
        """Covariances of the rows (k, n, n), noise included."""
        G, white = self._prior()
        return G + torch.diag_embed(self._noise() + white)

    def lower_bound(self, batch):
        """The log marginal likelihood; a row of weight w stands for w rows."""
        self.hold(batch)
        value = self._log_marginal_likelihood()
        backward((value, torch.ones_like(value)))
        return float(value.detach())

    objective = lower_bound

    def _log_marginal_likelihood(self):
        (G, white), noise = self._prior(), self._noise_of_one()
        return log_marginal_likelihood(self.y.mT, G, noise, self.weight, white)

    @torch.no_grad()
    def divergence(self):
        """Return the expected log-likelihood of the rows, less their log marginal likelihood."""
        noise, K, y, w = self._noise(), self.covariances(), self.y.mT, self.weight
        L = cholesky(K, rounding(K))
        a, of_rows = torch.cholesky_solve(y[..., None], L)[..., 0], torch.cholesky_inverse(L)
        squares = (noise * a).square() + noise - noise.square() * diagonal(of_rows)
        expected = -0.5 * w * (LOG_2PI + (noise * w).log() + squares / (noise * w))
        return expected.sum() - self._log_marginal_likelihood()

    @torch.no_grad()
    def known_bound(self):
        """The log marginal likelihood, as of the last step."""
        is_last = self.steps.search.x is not None and self.unsolved is not None
        if is_last and not self.given_priors():
            return -self.steps.search.f * float(self.weight.sum())
        return float(self._log_marginal_likelihood())

    def _frozen(self, draws, as_trained):
        process, precision = self.process, 1.0 / self._noise()
        path = process.path(None, self.X)
        h, Lambda = (precision * self.y.mT).mT, torch.diag_embed(precision)
        return ExactPosterior(self, path, Whitened.of(path.levels[-1].L, h, Lambda))

    def load_state(self, arrays):
        super().load_state(arrays)
        self.unsolved, self._has_rows = None, False


class ExactPosterior(GramPosterior):
    """A posterior that has its training rows at hand."""

    def __init__(self, model, path, q):
        super().__init__(model.process, path, q)
        self.inducing_inputs = [model.X.numpy(force=True).copy()]
        self._process, self._noise = model.process, model._noise_of_one()[:, 0]
        self._rows = model.X, model.y, model.weight

    @torch.no_grad()
    def loo_log_density(self, rows, dispersions=None):
        unique, training_rows = gather(*self._rows)
        L = self._process.path(None, unique["Z"]).levels[-1].L
        noise = self._noise[:, None] / unique["weight"]
        K = L @ L.mT + torch.diag_embed(noise)
        root = cholesky(K, rounding(K))
        a = torch.cholesky_solve(unique["y"].mT[..., None], root)[..., 0]
        layer = SimpleNamespace(y=unique["y"], weight=unique["weight"])
        gp, alike = ConditionedGP(None, None, None, root, a), NeighborSearch(unique["Z"], 1.0, 0)
        loo = ConditionedLeaveOneOut([gp], training_rows, layer, self._noise, alike)
        if dispersions is not None:
            dispersions = torch.as_tensor(dispersions).to(a)
        return loo.log_density(None, *loo.parts(np.asarray(rows)), dispersions).numpy(force=True)
