"""Frozen posteriors of kernel processes: everything but new rows is computed once."""

import torch

from ...linalg import pieces
from ...random import gamma, normal
from ..posterior import Functions, Latent, Posterior, equal_weights
from .process import Level, among, composed, diagonal
from .sites import Whitened
from .wishart import degrees, inverse_wishart_root

_LEAST_SIZE = 0.01  #: of squared lengths of features, relative to what they should be
_TINY = 1e-10  #: white noise of layers without randomness, where features of them are wanted
_AT_ONCE = 2_000_000  #: numbers that one piece of the rows of function draws needs


class ProcessPosterior(Posterior):
    """Mixture over draws of a `path`; Gaussian given one of them, and rows share the noise of each layer."""

    n_features = 128  #: random features of a kernel conditioned on the inducing points

    def __init__(self, model, path, q, noise=()):
        like = model.log_scale
        super().__init__(
            model.likelihood.fitted(),
            model.fitted_kernels(),
            [model.Z.numpy(force=True).copy()],
            equal_weights(len(q.mean), like),
        )
        self.path, self.q, self._noise, self.delta = path, q, noise, model.delta()
        self._scale = like.detach().exp()

    def inputs(self, X):
        return X.to(torch.float64) * self._scale

    def _covariances(self, X):
        return self.path.rows(self.inputs(X), self._noise)

    def latent(self, X):
        mean, var = self.q.moments(*self.path.levels[-1].schur(*self._covariances(X)))
        return Latent(self._log_weights, mean, var)

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

    def _output(self, which):
        """The output layer in the draws `which`."""
        return Whitened(some(self.q.mean, which), some(self.q.J, which), None)


class GramPosterior(ProcessPosterior):
    """Mixture over draws of Gram matrices."""

    @torch.no_grad()
    def covariance(self, X):
        """Covariances (k, n, n) of the latent functions; None if Gram matrices are random."""
        if self.delta is not None:
            return None
        A, F = self.path.levels[-1].J @ self._covariances(X)[0], self.path.map(self.inputs(X))
        G = composed([level.kernel for level in self.path.levels], F[0], F @ F.mT)
        rest, A_q = G - A.mT @ A, self.q.J @ A[:, None]
        K = (rest[:, None] + A_q.mT @ A_q)[0]
        diagonal(K).add_(self.path.levels[-1].white)
        return K

    def _of_draws(self, which, generator):
        """By random features.

        A Gram matrix that is linear in features, ``r Omega r^T`` with an inverse Wishart `Omega`, is an
        inverse Wishart process (Eaton, 1983). So what the inducing points leave open has finitely many
        random variables, which are drawn once; any row, at any time, is a function of them.
        """
        path, n, n_more, size, layers = self.path, len(which), 0, 1, []
        metric = None if path.metric is None else path.metric[which]
        F = F_first = some(path.F, which)
        G = F @ F.mT
        same = path.same(F, G, diagonal(G))
        for level in path.levels:
            level, K = of_draws(level, which), level.kernel.from_gram(G)
            if level.J is None:  # a layer without randomness is factorized for functions alone
                level = Level.factorized(level.kernel, G, among(same, K, diagonal(K)), _TINY)[0]
            residual = Residual(level, F, n_more, n, self.n_features, generator)
            layers.append((residual, *_random(level, residual.n_features, n, generator)))
            F, n_more = level.L if level.C is None else level.C, residual.n_features
            G = among(same, K, diagonal(K)) if level.C is None else F @ F.mT
            size = max(size, 3 * (F.shape[-1] + n_more))
        q = self._output(which)
        w = q.sample(normal((n, *q.mean.shape[1:]), generator, F)) - q.mean
        omega = normal((n, n_more, w.shape[-1]), generator, F)

        def f(X):
            X = self.inputs(X)
            F = X.expand(n, *X.shape) / X.shape[-1] ** 0.5
            F = F if metric is None else F @ metric
            G_it, G_tt = F_first @ F.mT, F.square().sum(-1)
            same = path.same(F, G_it, G_tt)
            for residual, root, E in layers:
                level = residual.level
                K_it, K_tt = level.covariances(G_it, G_tt, same)
                A, r = residual(F, K_it, K_tt)
                if residual is layers[-1][0]:
                    return A.mT @ q.mean, A.mT @ w + r @ omega
                if root is None:
                    F, G_it, G_tt = torch.cat([A.mT, r], -1), K_it, K_tt - level.white[..., None]
                    continue
                r = r @ root
                U = level.W @ (A + E @ r.mT)
                F = torch.cat([U.mT, level.delta.sqrt() * r], -1)
                G_it, G_tt = level.C @ U, F.square().sum(-1)

        return f, size


def _random(level, D, n, generator):
    """The random variables of an inverse Wishart layer: ``M^{-1}`` and the Gaussian matrix."""
    if level.C is None:
        return None, None
    P, like = level.C.shape[-1], level.C
    c2 = 2.0 * gamma(0.5 * degrees(level.delta + P + D + 1.0, D), (n, D), generator, like)
    eye = torch.eye(D).to(like).expand(n, D, D)
    root = inverse_wishart_root(eye, normal((n, D, D), generator, like), c2)
    return root, normal((n, P, D), generator, like)


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
        parts = pieces(F, max(1, _AT_ONCE // (n * d)), 1)  # many inducing points take much memory
        more = [torch.nn.functional.pad(piece.expand(n, -1, -1), (0, n_more)) for piece in parts]
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
