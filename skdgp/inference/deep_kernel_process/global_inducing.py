"""Deep Gaussian processes with global inducing points."""

import math
from typing import Annotated, NamedTuple

import torch
from torch import nn

from ...gp.inducing import linear_map
from ...random import normal
from ..base import COUNT, FRACTION, OF_LAYERS
from ..batch import whole
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


class GlobalPath(NamedTuple):
    """Draws of the hidden layers at the inducing points."""

    levels: list
    features: list  #: (S, P, d) below each level, over the root of their number
    w: list  #: (S, P, width), whitened draws
    W: list  #: (d, width), linear mean functions
    kl: torch.Tensor

    def noise(self, base, n, draw=whole):
        """Draw the noise of `n` rows in each hidden layer; `draw` makes the part that belongs to rows."""
        like, shapes = self.levels[0].L, [(n, W.shape[1]) for W in self.W]
        return [draw(lambda s: base.normal(s, like), shape) for shape in shapes]

    def rows(self, X, noise):
        """Covariances of scaled rows with the inducing points, and variances, for the last kernel."""
        F = X[None]
        for i, (level, F_i) in enumerate(zip(self.levels, self.features)):
            root = F.shape[-1] ** 0.5
            K_it, K_tt = level.covariances(F_i @ F.mT / root, F.square().mean(-1))
            if i == len(self.w):
                return K_it, K_tt
            A, s = level.schur(K_it, K_tt)
            F = F @ self.W[i] + A.mT @ self.w[i] + s.sqrt()[..., None] * noise[i]


class GlobalPosterior(ProcessPosterior):
    """Mixture over draws of the hidden layers."""

    def _of_draws(self, which, generator):
        """Layer by layer: at the inducing points, and by random features between them."""
        path, n, size, q = self.path, len(which), 1, self._output(which)
        xi = normal((n, *q.mean.shape[1:]), generator, q.mean)
        layers = []
        for level, F, w_i in zip(path.levels, path.features, [*path.w, None]):
            w_i = q.sample(xi) - q.mean if w_i is None else w_i[which]
            F = some(F, which)
            residual = Residual(of_draws(level, which), F, 0, n, self.n_features, generator)
            omega = normal((n, residual.n_features, w_i.shape[-1]), generator, F)
            layers.append((residual, F, w_i, omega))
            size = max(size, 3 * (F.shape[1] + residual.n_features))

        def f(X):
            F = self.inputs(X)
            F = F.expand(n, *F.shape)
            for (residual, F_i, w_i, omega), W in zip(layers, [*path.W, None]):
                X, F = F, F / F.shape[-1] ** 0.5
                A, r = residual(F, *residual.level.covariances(F_i @ F.mT, F.square().sum(-1)))
                deviation = A.mT @ w_i + r @ omega
                F = deviation if W is None else X @ W + deviation
            return A.mT @ q.mean, F

        return f, size


class GlobalModel(KernelModel):
    """The model of :class:`GlobalInducing`."""

    roles = {**KernelModel.roles, "log_root": "posterior_shape"}
    frozen_class = GlobalPosterior

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
        F, levels, features, w, kl = self.inputs(self.Z)[None], [], [], [], 0.0
        W = [getattr(self, f"W{i}").clone() for i in range(len(self.widths))]
        for i, kernel in enumerate(self.kernel_objects()):
            size = F.shape[-1] ** 0.5
            F = F / size
            G = F @ F.mT
            level, _ = Level.factorized(kernel, G, kernel.from_gram(G), self.jitter)
            levels.append(level)
            features.append(F)
            if i < len(self.widths):
                q = self.hidden(i, level)
                w.append(q.sample(base.normal(tuple(self.v[i].shape), level.L)))
                F, kl = size * F @ W[i] + level.L @ w[-1], kl + q.kl
        return GlobalPath(levels, features, w, W, kl)

    def fixed_dim(self):
        return sum(self.widths) * (len(self.Z) + 1)
