"""Frozen posteriors of kernel processes: everything but new rows is computed once."""

import torch

from ...random import gamma, normal
from ..posterior import Functions, Latent, Posterior, equal_weights
from .process import Level, among, diagonal, equal_rows
from .sites import Whitened
from .wishart import degrees, inverse_wishart_root

_LEAST_SIZE = 0.01  #: of squared lengths of features, relative to what they should be
_TINY = 1e-10  #: white noise of layers without randomness, where features of them are wanted
_AT_ONCE = 2_000_000  #: numbers that one piece of the rows of function draws needs


class ProcessPosterior(Posterior):
    """Base class: scaled inputs, equal weights of draws, and pieces of rows of function draws."""

    n_features = 128  #: random features of a kernel conditioned on the inducing points

    def __init__(self, model, n_components):
        like = model.log_scale
        super().__init__(
            model.likelihood.fitted(),
            model.fitted_kernels(),
            [model.Z.numpy(force=True).copy()],
            equal_weights(n_components, like),
        )
        self._scale = like.detach().exp()

    def inputs(self, X):
        return X.to(torch.float64) * self._scale

    @torch.no_grad()
    def functions(self, n, generator, X=None):
        """`n` functions, each of a draw at the inducing points."""
        n_components = len(self._log_weights)
        order = torch.randperm(n_components, generator=generator)  # as even as can be
        which = order.repeat(-(-n // n_components))[:n].to(self._scale.device)
        f, size = self._of_draws(which, generator)
        rows = max(1, _AT_ONCE // (n * size))

        def evaluate(X, noise=None):  # there is no noise of hidden layers
            return tuple(torch.cat(part, 1) for part in zip(*map(f, X.split(rows))))

        return Functions(evaluate, self.inflation[:1].expand(n))

    def _of_draws(self, which, generator):
        """Functions of the components `which`, and how many numbers they need for a row."""
        raise NotImplementedError


class GramPosterior(ProcessPosterior):
    """Mixture over draws of Gram matrices; rows share the `noise` of each random layer."""

    def __init__(self, model, path, q, noise):
        super().__init__(model, len(q.mean))
        self.path, self.q, self._noise, self.delta = path, q, noise, model.delta()

    def _covariances(self, X):
        return self.path.rows(self.inputs(X), lambda i, level, n: self._noise[i])

    @torch.no_grad()
    def latent(self, X):
        mean, var = self.q.moments(*self.path.levels[-1].schur(*self._covariances(X)))
        return Latent(self._log_weights, mean, var)

    @torch.no_grad()
    def covariance(self, X):
        """Covariances (k, n, n) of the latent functions; None if Gram matrices are random."""
        if self.delta is not None:
            return None
        A = self.path.levels[-1].J @ self._covariances(X)[0]
        F = self.path.map(self.inputs(X))
        G = F @ F.mT
        same = equal_rows(F[0], F[0], G[0], diagonal(G)[0], diagonal(G)[0])
        for level in self.path.levels:
            G = level.kernel.from_gram(G)
            G = among(same, G, diagonal(G))
        rest, A_q = G - A.mT @ A, self.q.J @ A[:, None]
        K = (rest[:, None] + A_q.mT @ A_q)[0]
        diagonal(K).add_(self.path.levels[-1].white)
        return K

    def _of_draws(self, which, generator):
        f = GramFunctions(self, which, generator)
        return f, f.size


class Residual:
    """Random features of a kernel conditioned on the inducing points.

    Features of the kernel less what features of the inducing points predict of them; their inner
    products are in the mean ``K_tt - K_ti K_ii^{-1} K_it``. Their lengths are made exact, and so is
    the distribution of each single row. `level` has one draw for each of `n` functions, or one for
    all. F (n or 1, P, d) are features of the inducing points, whose inner products are the Gram
    matrix below; `n_more` further features of rows are zero there.
    """

    def __init__(self, level, F, n_more, n, n_features, generator):
        self.level, self._root = level, n_features**-0.5
        d = F.shape[-1] + n_more
        self._phi = level.kernel.features((n, n_features), d, generator, F)
        pieces = F.split(max(1, _AT_ONCE // (n * d)), 1)  # many inducing points take much memory
        more = [torch.nn.functional.pad(piece.expand(n, -1, -1), (0, n_more)) for piece in pieces]
        self._of_inducing = level.J @ torch.cat([self._features(piece) for piece in more], 1)
        self.n_features = self._of_inducing.shape[-1]

    def _features(self, F):
        return self._phi(F).flatten(-2) * self._root

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


def some(x, which):
    """The draws `which` of a tensor that may have one for all."""
    return x if len(x) == 1 else x[which]


class GramFunctions:
    """Draws of functions through random Gram matrices.

    A Gram matrix that is linear in features, ``r Omega r^T`` with an inverse Wishart `Omega`, is an inverse
    Wishart process (Eaton, 1983). So what the inducing points leave open has finitely many random variables,
    which are drawn once; any row, at any time, is a function of them.
    """

    def __init__(self, posterior, which, generator):
        self._posterior, self._n, n = posterior, len(which), len(which)
        path = posterior.path
        self._metric = None if path.metric is None else path.metric[which]
        F, n_more, self._layers, self.size = some(path.F, which), 0, [], 1
        self._F, G = F, F @ F.mT
        same = path.same(F, G, diagonal(G))
        for level in path.levels:
            level, K = of_draws(level, which), level.kernel.from_gram(G)
            if level.J is None:  # a layer without randomness is factorized for functions alone
                level = Level.factorized(level.kernel, G, among(same, K, diagonal(K)), _TINY)[0]
            residual = Residual(level, F, n_more, n, posterior.n_features, generator)
            self._layers.append((residual, *self._random(level, residual.n_features, n, generator)))
            F, n_more = level.L if level.C is None else level.C, residual.n_features
            G = among(same, K, diagonal(K)) if level.C is None else F @ F.mT
            self.size = max(self.size, 3 * (F.shape[-1] + n_more))
        q = Whitened(some(posterior.q.mean, which), some(posterior.q.J, which), None)
        self._mean, k = q.mean, q.mean.shape[-1]
        self._w = q.sample(normal((n, *q.mean.shape[1:]), generator, F)) - q.mean
        self._omega = normal((n, n_more, k), generator, F)

    @staticmethod
    def _random(level, D, n, generator):
        """The random variables of an inverse Wishart layer: ``M^{-1}`` and the Gaussian matrix."""
        if level.C is None:
            return None, None
        P, like = level.C.shape[-1], level.C
        c2 = 2.0 * gamma(0.5 * degrees(level.delta + P + D + 1.0, D), (n, D), generator, like)
        eye = torch.eye(D).to(like).expand(n, D, D)
        root = inverse_wishart_root(eye, normal((n, D, D), generator, like), c2)
        return root, normal((n, P, D), generator, like)

    def __call__(self, X):
        """Means and deviations (n, n_rows, k)."""
        X = self._posterior.inputs(X)
        F = X.expand(self._n, *X.shape) / X.shape[-1] ** 0.5
        F = F if self._metric is None else F @ self._metric
        G_it, G_tt = self._F @ F.mT, F.square().sum(-1)
        same = self._posterior.path.same(F, G_it, G_tt)
        for residual, root, E in self._layers:
            level = residual.level
            K_it, K_tt = level.covariances(G_it, G_tt, same)
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
