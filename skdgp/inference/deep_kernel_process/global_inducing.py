"""Deep Gaussian processes with global inducing points."""

import math

import torch
from torch import nn

from ...gp.means import linear_map
from ...random import normal, spawn
from .diwp import KernelScheme
from .model import KernelModel
from .posterior import FrozenPosterior, InPieces, Latent, Residual, components, of_draws
from .process import Level, Whitened

_START_PRECISION = (
    100.0  #: of the pseudo-observations of hidden layers: the first draws are near their means
)


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
    >>> from skdgp.inference.deep_kernel_process import GlobalInducing
    >>> GlobalInducing(n_draws=2)
    GlobalInducing(n_draws=2)
    """

    uses = KernelScheme.uses | {"mean"}

    def __init__(self, n_draws=1, natural_step=0.1):
        self.n_draws = n_draws
        self.natural_step = natural_step

    def build(self, architecture, likelihood):
        if architecture.input_connected:
            raise ValueError(
                "GlobalInducing has no layers that see the inputs again; set input_connected=False."
            )
        return GlobalModel(architecture, likelihood, self)


class GlobalModel(KernelModel):
    """The model of :class:`GlobalInducing`."""

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
        for i, kernel in enumerate(self.kernels):
            F = F / F.shape[-1] ** 0.5
            level = Level.of(kernel(), F @ F.mT, self.jitter)[0]
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

    def rows(self, path, X, noise):
        """Covariances with the inducing points, and variances, for the kernel of the last layer."""
        levels, features, w, _ = path
        F = self.inputs(X)[None]
        for i, (level, F_i) in enumerate(zip(levels, features)):
            F = F / F.shape[-1] ** 0.5
            K_it, K_tt = level.covariances(F_i @ F.mT, F.square().sum(-1))
            if i == len(w):
                return K_it, K_tt
            A, s = level.schur(K_it, K_tt)
            F = self._next(i, F) + A.mT @ w[i] + s.sqrt()[..., None] * noise(i, len(X))

    def sample_moments(self, X, base):
        path = self.path(base)
        like = path[0][0].L
        K_it, K_tt = self.rows(path, X, lambda i, n: base.normal((n, self.widths[i]), like))
        mean, var, kl = self.last_moments(path[0][-1], K_it, K_tt, torch.is_grad_enabled())
        return mean, var, path[-1] + kl

    def fixed_dim(self):
        return sum(self.widths) * (len(self.Z) + 1)

    def draws(self, n, seed):
        return super().draws(n if self.widths else 1, seed)

    def posterior(self, draws):
        """What predicts, frozen."""
        return GlobalPosterior(self, draws)


class GlobalPosterior(FrozenPosterior):
    """Mixture over draws of the hidden layers; Gaussian given one of them."""

    def __init__(self, model, draws):
        with torch.no_grad():
            base = model.fixed(draws)
            self._path = model.path(base)
            super().__init__(model, base.n_draws)
            like = self._path[0][0].L
            self._noise = [base.normal((1, width), like) for width in model.widths]
            self.q = model.output(self._path[0][-1])
            self._frozen = _Maps(model)

    @torch.no_grad()
    def latent(self, X):
        X = torch.as_tensor(X, dtype=torch.float64, device=self.shift.device)
        K_it, K_tt = GlobalModel.rows(self._frozen, self._path, X, lambda i, n: self._noise[i])
        return Latent(self.log_weights, *self.q.moments(*self._path[0][-1].schur(K_it, K_tt)))

    def functions(self, n, generator):
        """`n` functions, each of a draw of the hidden layers at the inducing points."""
        with torch.no_grad():
            return GlobalFunctions(self, n, generator)


class _Maps:
    """Copies of what rows need of the model: the scaled inputs, and mean functions."""

    inputs, _next = FrozenPosterior.inputs, GlobalModel._next

    def __init__(self, model):
        self.log_scale, self.shift = model.log_scale.detach().clone(), model.shift.detach().clone()
        for i in range(len(model.widths)):
            setattr(self, f"W{i}", getattr(model, f"W{i}").clone())


class GlobalFunctions(InPieces):
    """Draws of functions layer by layer: at the inducing points, and by random features between them."""

    def __init__(self, posterior, n, generator):
        levels, features, w, _ = posterior._path
        self._maps, self.n_functions = posterior._frozen, n
        which = components(n, len(posterior.log_weights), generator).to(posterior.shift.device)
        generator = torch.Generator().manual_seed(spawn(generator))
        self._layers, q = [], posterior.q
        own = [x[which].expand(n, -1, -1) if len(x) > 1 else x.expand(n, -1, -1) for x in features]
        w = [x[which] for x in w]
        J = q.J if len(q.J) == 1 else q.J[which]
        self._mean = q.mean if len(q.mean) == 1 else q.mean[which]
        last = Whitened(self._mean, J, None)
        w.append(last.sample(normal((n, *q.mean.shape[1:]), generator, q.mean)) - self._mean)
        for level, F, w_i in zip(levels, own, w):
            residual = Residual(of_draws(level, which), F, generator)
            omega = normal((n, residual.n_features, w_i.shape[-1]), generator, F)
            self._layers.append((residual, F, w_i, omega))
            self.size = max(self.size, 3 * (F.shape[1] + residual.n_features))

    def _of_some(self, X):
        F = self._maps.inputs(X).expand(self.n_functions, *X.shape)
        for i, (residual, F_i, w, omega) in enumerate(self._layers):
            F = F / F.shape[-1] ** 0.5
            K = residual.level.covariances(F_i @ F.mT, F.square().sum(-1))
            A, r = residual(F, *K)
            deviation = A.mT @ w + r @ omega
            if i == len(self._layers) - 1:
                return A.mT @ self._mean, deviation
            F = self._maps._next(i, F) + deviation
