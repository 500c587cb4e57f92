"""Deep Gaussian processes with global inducing points."""

import math
from typing import Annotated

import torch
from torch import nn

from ...gp.inducing import linear_map
from ...random import normal
from ..base import COUNT, FRACTION, OF_LAYERS
from ..batch import whole
from ..posterior import Latent
from .diwp import KernelScheme
from .model import KernelModel
from .posterior import ProcessPosterior, Residual, of_draws, some
from .process import Level
from .sites import Whitened

#: Of the pseudo-observations of hidden layers: the first draws are near their means.
_START_PRECISION = 100.0


class GlobalInducing(KernelScheme):
    r"""Deep Gaussian process with global inducing points (Ober and Aitchison, 2021).

    There are inducing inputs for the first layer only. Their images go through all layers as the rows do, and
    each layer's posterior follows from its kernel at them and from pseudo-observations there:
    :math:`q(u | F) \propto N(u; 0, K(F)) N(v; u, \Lambda^{-1})`. So layers depend on each other a posteriori.
    Kernels have one lengthscale for all inputs beyond the first layer.

    Parameters
    ----------
    n_draws : int, default=1
        Draws of all inducing variables in a step.
    natural_step : float, default=0.1
        Size of the natural-gradient steps of the output layer.

    References
    ----------
    S. Ober and L. Aitchison (2021). Global inducing point variational posteriors for Bayesian neural
    networks and deep Gaussian processes. ICML 38.

    Examples
    --------
    >>> from skdgp.inference import GlobalInducing
    >>> GlobalInducing(n_draws=2)
    GlobalInducing(n_draws=2)
    """

    uses = KernelScheme.uses | OF_LAYERS - {"input_connected"}

    n_draws: Annotated[int, COUNT] = 1
    natural_step: Annotated[float, FRACTION] = 0.1

    def build(self, architecture, likelihood):
        return GlobalModel(architecture, likelihood, self)


class GlobalModel(KernelModel):
    """The model of :class:`GlobalInducing`."""

    roles = {**KernelModel.roles, "log_root": "posterior_shape"}

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(architecture, likelihood, scheme)
        P, real = architecture.n_inducing, torch.float64
        self.widths, self.linear_mean = tuple(architecture.widths), architecture.linear_mean
        self.v, self.roots = nn.ParameterList(), nn.ParameterList()
        log_root = 0.5 * math.log(_START_PRECISION)
        self.log_root = nn.Parameter(torch.full((len(self.widths),), log_root, dtype=real))
        for i, (n, width) in enumerate(zip((self.n_features, *self.widths), self.widths)):
            self.v.append(torch.zeros(P, width, dtype=real))
            self.roots.append(torch.eye(P, dtype=real))
            self.register_buffer(f"W{i}", torch.zeros(n, width, dtype=real))

    def start(self, X, weights, rng):
        """Place the inducing inputs, and let hidden layers begin near linear maps."""
        super().start(X, weights, rng)
        A, Z = X, self.Z.detach().clone()
        with torch.no_grad():
            for i, width in enumerate(self.widths):
                W = linear_map(A, width, weights)
                A, Z = A @ W, Z @ torch.as_tensor(W)
                if self.linear_mean:
                    getattr(self, f"W{i}").copy_(torch.as_tensor(W))
                else:
                    self.v[i].copy_(Z)

    def hidden(self, i, level):
        """The posterior of a hidden layer, whose units share their precisions."""
        root = self.roots[i].tril() * self.log_root[i].exp()
        return Whitened.of(level.L, root @ (root.mT @ self.v[i]), (root @ root.mT)[None])

    def path(self, base):
        """Levels, features of the inducing points below them, whitened hidden draws, and divergences."""
        F, levels, features, w, kl = self.inputs(self.Z)[None], [], [], [], 0.0
        for i, kernel in enumerate(self.kernel_objects()):
            F = F / F.shape[-1] ** 0.5
            level = Level.of(kernel, F @ F.mT, self.jitter)[0]
            levels.append(level)
            features.append(F)
            if i < len(self.widths):
                q = self.hidden(i, level)
                w.append(q.sample(base.normal(tuple(self.v[i].shape), level.L)))
                F, kl = self._next(i, F) + level.L @ w[-1], kl + q.kl
        return levels, features, w, kl

    def _next(self, i, F):
        """The mean function of features over the root of their number."""
        return F.shape[-1] ** 0.5 * F @ getattr(self, f"W{i}")

    def mean_functions(self):
        """Copies of the linear mean functions of the hidden layers."""
        return [getattr(self, f"W{i}").clone() for i in range(len(self.widths))]

    def sample_moments(self, X, base, draw=whole):
        path = self.path(base)
        like, W = path[0][0].L, self.mean_functions()
        shapes = [(len(X), width) for width in self.widths]
        noise = [draw(lambda s: base.normal(s, like), shape) for shape in shapes]
        mean, var, kl = self.last_moments(path[0][-1], *rows(path, self.inputs(X), W, noise))
        return mean, var, path[-1] + kl

    def fixed_dim(self):
        return sum(self.widths) * (len(self.Z) + 1)

    def draws(self, n, seed):
        return super().draws(n if self.widths else 1, seed)

    def _frozen(self, draws, as_trained):
        return GlobalPosterior(self, self.fixed(draws))


def rows(path, F, W, noise):
    """Covariances of scaled rows F with the inducing points, and variances, for the last kernel."""
    levels, features, w, _ = path
    F = F[None]
    for i, (level, F_i) in enumerate(zip(levels, features)):
        root = F.shape[-1] ** 0.5
        K_it, K_tt = level.covariances(F_i @ F.mT / root, F.square().mean(-1))
        if i == len(w):
            return K_it, K_tt
        A, s = level.schur(K_it, K_tt)
        F = F @ W[i] + A.mT @ w[i] + s.sqrt()[..., None] * noise[i]


class GlobalPosterior(ProcessPosterior):
    """Mixture over draws of the hidden layers; Gaussian given one of them."""

    def __init__(self, model, base):
        self._path, self._W = model.path(base), model.mean_functions()
        super().__init__(model, base.n_draws)
        like = self._path[0][0].L
        self._noise = [base.normal((1, width), like) for width in model.widths]
        self._q = model.output(self._path[0][-1])

    @torch.no_grad()
    def latent(self, X):
        K = rows(self._path, self.inputs(X), self._W, self._noise)
        return Latent(self._log_weights, *self._q.moments(*self._path[0][-1].schur(*K)))

    def _of_draws(self, which, generator):
        """Layer by layer: at the inducing points, and by random features between them."""
        (levels, features, w, _), n, size = self._path, len(which), 1
        q = Whitened(some(self._q.mean, which), some(self._q.J, which), None)
        xi = normal((n, *q.mean.shape[1:]), generator, q.mean)
        layers = []
        for level, F, w_i in zip(levels, features, [*w, None]):
            w_i = q.sample(xi) - q.mean if w_i is None else w_i[which]
            F = some(F, which)
            residual = Residual(of_draws(level, which), F, 0, n, self.n_features, generator)
            omega = normal((n, residual.n_features, w_i.shape[-1]), generator, F)
            layers.append((residual, F, w_i, omega))
            size = max(size, 3 * (F.shape[1] + residual.n_features))

        def f(X):
            F = self.inputs(X)
            F = F.expand(n, *F.shape)
            for (residual, F_i, w_i, omega), W in zip(layers, [*self._W, None]):
                X, F = F, F / F.shape[-1] ** 0.5
                A, r = residual(F, *residual.level.covariances(F_i @ F.mT, F.square().sum(-1)))
                deviation = A.mT @ w_i + r @ omega
                F = deviation if W is None else X @ W + deviation
            return A.mT @ q.mean, F

        return f, size
