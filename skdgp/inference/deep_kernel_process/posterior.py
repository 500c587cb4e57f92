"""Frozen posteriors of kernel processes: everything but new rows is computed once."""

from typing import NamedTuple

import numpy as np
import torch

from ...random import normal, spawn
from .process import Level, Whitened, diagonal
from .wishart import degrees, inverse_wishart_root

_N_FEATURES = 256  #: random features of what is left of a kernel between inducing points
_LEAST_SIZE = 0.01  #: of squared lengths of features, relative to what they should be
_TINY = 1e-10  #: white noise of layers without randomness, where features of them are wanted
_AT_ONCE = 2_000_000  #: numbers that one piece of the rows of function draws needs


class Latent(NamedTuple):
    """Gaussian mixture of the latent functions at rows."""

    log_weights: torch.Tensor  #: (C,)
    mean: torch.Tensor  #: (C, n, k)
    var: torch.Tensor  #: (C, n, k)


class FrozenPosterior:
    """Base class: attributes that all have, and pieces of rows of function draws."""

    def __init__(self, model, n_components):
        with torch.no_grad():
            self.likelihood = model.likelihood()
            self.kernels = [kernel.fitted() for kernel in model.kernels]
            self.inducing_inputs = [model.Z.numpy(force=True).copy()]
            self.log_scale, self.shift = (
                model.log_scale.detach().clone(),
                model.shift.detach().clone(),
            )
        self.log_weights = torch.full_like(self.shift[:1], -np.log(n_components)).repeat(
            n_components
        )
        self.inflation = torch.ones_like(self.log_weights)

    def inputs(self, X):
        X = torch.as_tensor(X, dtype=torch.float64, device=self.shift.device)
        return X * self.log_scale.exp() + self.shift

    def covariance(self, X):
        return None

    def loo_log_density(self, rows, dispersions=None):
        return None


class KernelPosterior(FrozenPosterior):
    """Mixture over draws of Gram matrices; Gaussian given one of them.

    Attributes
    ----------
    delta : ndarray of shape (n_layers,), or None
        How near to a fixed function of the one below each Gram matrix is; the first belongs to the metric
        of the inputs.
    """

    def __init__(self, model, draws):
        with torch.no_grad():
            base = model.fixed(draws)
            self.path = path = model.path(base)
            super().__init__(model, base.n_draws)
            self.delta = model.log_delta.exp().numpy(force=True) if model.random else None
            self._noise = []
            for level in path.levels[:-1] if model.random else ():
                P = level.L.shape[-1]
                eps = base.normal((P, 1), level.L)
                self._noise.append((eps, base.chi2(level.delta + P + 2.0, (1,))))
            self.q = model.output(path.levels[-1])

    def _covariances(self, X):
        return self.path.rows(self.inputs(X), lambda i, level, n: self._noise[i])

    @torch.no_grad()
    def latent(self, X):
        last = self.path.levels[-1]
        mean, var = self.q.moments(*last.schur(*self._covariances(X)))
        return Latent(self.log_weights, mean, var)

    @torch.no_grad()
    def covariance(self, X):
        """Covariances (k, n, n) of the latent functions; None if Gram matrices are random."""
        if self.delta is not None:
            return None
        A = self.path.levels[-1].J @ self._covariances(X)[0]
        F = self.path.map(self.inputs(X))
        G = F @ F.mT
        for level in self.path.levels:
            G = level.kernel.from_gram(G)
        rest, A_q = G - A.mT @ A, self.q.J @ A[:, None]
        K = (rest[:, None] + A_q.mT @ A_q)[0]
        diagonal(K).add_(self.path.levels[-1].white)
        return K

    def functions(self, n, generator):
        """`n` functions, each of a draw of the Gram matrices at the inducing points."""
        with torch.no_grad():
            return GramFunctions(self, n, generator)


def components(n, n_components, generator):
    """The component of each of `n` functions: as even as can be, in random order."""
    order = torch.randperm(n_components, generator=generator, device=generator.device)
    return order.repeat(-(-n // n_components))[:n]


class Residual:
    """Random features of what the inducing points leave open of a kernel.

    Features of the kernel less what features of the inducing points predict of them; their inner products
    are in the mean ``K_tt - K_ti K_ii^{-1} K_it``. Their lengths are made exact, and so is the
    distribution of each single row.

    Parameters
    ----------
    level : Level
        With one draw for each function.
    F : tensor of shape (n, P, d)
        Features of the inducing points, whose inner products are the Gram matrix below.
    generator : torch.Generator
    """

    def __init__(self, level, F, generator):
        self.level = level
        shape = len(F), _N_FEATURES
        self._phi = level.kernel.features(shape, F.shape[-1], generator, F)
        self._of_inducing = level.J @ self._features(F)
        self.n_features = self._of_inducing.shape[-1]

    def _features(self, F):
        return self._phi(F).flatten(-2) / _N_FEATURES**0.5

    def __call__(self, F, K_it, K_tt):
        """``A = J K_it`` (n, P, rows) and residual features (n, rows, D)."""
        A, s = self.level.schur(K_it, K_tt)
        r = self._features(F) - A.mT @ self._of_inducing
        size = r.square().sum(-1)
        # at an inducing point there is nothing but rounding errors, which stay as small as they are
        return A, r * (s / torch.maximum(size, _LEAST_SIZE * s)).sqrt()[..., None]


def of_draws(level, which):
    """The level with the draws `which`."""
    parts = {
        name: value if value is None or len(value) == 1 else value[which]
        for name, value in vars(level).items()
        if name not in ("kernel", "delta")
    }
    return Level(level.kernel, **parts, delta=level.delta)


class InPieces:
    """Functions of few rows at a time, so that memory does not grow with their number."""

    n_functions = 1
    size = 1  #: numbers for each row

    def __call__(self, X, noise=None):
        """Means and deviations (n_functions, n_rows, k); there is no noise of hidden layers."""
        n = max(1, _AT_ONCE // (self.n_functions * self.size))
        with torch.no_grad():
            pieces = [self._of_some(x) for x in torch.as_tensor(X).split(n)]
        return tuple(torch.cat(part, 1) for part in zip(*pieces))


class GramFunctions(InPieces):
    """Draws of functions through random Gram matrices.

    A Gram matrix that is linear in features, ``r Omega r^T`` with an inverse Wishart `Omega`, is an inverse
    Wishart process (Eaton, 1983). So what the inducing points leave open has finitely many random numbers,
    which are drawn once; any row, at any time, is a function of them.
    """

    def __init__(self, posterior, n, generator):
        self._posterior, self.n_functions = posterior, n
        device = posterior.shift.device
        which = components(n, len(posterior.log_weights), generator).to(device)
        path = posterior.path
        self._metric = None if path.metric is None else path.metric[which]
        F = path.F.expand(n, -1, -1) if len(path.F) == 1 else path.F[which]
        generator = torch.Generator().manual_seed(spawn(generator))
        self._F, self._layers, G = F, [], F @ F.mT
        for level in path.levels:
            level = of_draws(level, which)
            if level.J is None:  # a layer without randomness is factorized for functions alone
                level = Level.of(level.kernel, G[:1], _TINY)[0]
            residual = Residual(level, F, generator)
            self._layers.append((residual, *self._random(level, residual, n, generator)))
            root = level.L if level.C is None else level.C
            G = level.kernel.from_gram(G) if level.C is None else root @ root.mT
            root = root.expand(n, -1, -1)
            F = torch.nn.functional.pad(root, (0, residual.n_features))
            self.size = max(getattr(self, "size", 1), 3 * F.shape[-1])
        q, like = posterior.q, F
        k = q.mean.shape[-1]
        q = Whitened(*(x if len(x) == 1 else x[which] for x in (q.mean, q.J)), None)
        self._mean = q.mean
        self._w = q.sample(normal((n, *q.mean.shape[1:]), generator, like)) - q.mean
        self._omega = normal((n, residual.n_features, k), generator, like)

    @staticmethod
    def _random(level, residual, n, generator):
        """The random numbers of an inverse Wishart layer: ``M^{-1}`` and the Gaussian matrix."""
        if level.C is None:
            return None, None
        P, D, like = level.C.shape[-1], residual.n_features, level.C
        dof = degrees(level.delta + P + D + 1.0, D)
        c2 = 2.0 * torch._standard_gamma((0.5 * dof).expand(n, D).cpu(), generator=generator)
        eye = torch.eye(D).to(like).expand(n, D, D)
        root = inverse_wishart_root(eye, normal((n, D, D), generator, like), c2.to(like))
        return root, normal((n, P, D), generator, like)

    def _of_some(self, X):
        X = self._posterior.inputs(X)
        F = X.expand(self.n_functions, *X.shape) / X.shape[-1] ** 0.5
        F = F if self._metric is None else F @ self._metric
        G_it, G_tt = self._F @ F.mT, F.square().sum(-1)
        for residual, root, E in self._layers:
            level = residual.level
            K_it, K_tt = level.covariances(G_it, G_tt)
            A, r = residual(F, K_it, K_tt)
            if residual is self._layers[-1][0]:
                break
            if root is None:
                F, G_it, G_tt = torch.cat([A.mT, r], -1), K_it, K_tt - level.white[..., None]
                continue
            r = r @ root
            U = level.W @ (A + E @ r.mT)
            F = torch.cat([U.mT, level.delta.sqrt() * r], -1)
            G_it, G_tt = level.C @ U, F.square().sum(-1)
        return A.mT @ self._mean, A.mT @ self._w + r @ self._omega
