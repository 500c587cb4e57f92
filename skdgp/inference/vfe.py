"""The shallow sparse GP with its posterior in closed form."""

import math

import torch

from ..gp.likelihoods import Gaussian
from ..lbfgs import LBFGS
from ..linalg import add_diagonal, cholesky, root_of_inverse
from .base import Scheme
from .dsvi import DSVI, DeepSparseGP

_LOG_2PI = math.log(2.0 * math.pi)
_EXACT = 1500  #: rows up to which all of them are inducing inputs


class VFE(Scheme):
    """Variational free energy of a shallow Gaussian process (Titsias, 2009).

    For one layer and Gaussian noise, the best posterior at the inducing inputs is known. What is
    left, the numbers of kernel and noise, is found by L-BFGS on all rows at once. With as many
    inducing points as there are rows this is the exact Gaussian process; that is the default up to
    1,500 rows.

    Parameters
    ----------
    train_inducing : bool, default=False
        Whether inducing inputs are optimized, too, instead of staying at the centers of the rows.

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

    def __init__(self, train_inducing=False):
        self.train_inducing = train_inducing

    def max_iter(self, n_rows):
        return 100

    def batch_size(self, n_rows):
        return n_rows

    def n_inducing(self, n_rows):
        if n_rows <= _EXACT:
            return n_rows
        return 500 if n_rows <= 10_000 else 300

    def build(self, architecture, likelihood):
        if architecture.widths:
            raise ValueError("inference='vfe' is for shallow models; set n_layers=1.")
        if not isinstance(likelihood, Gaussian):
            raise ValueError(
                f"inference='vfe' is for Gaussian noise; {type(likelihood).__name__} needs 'dsvi'."
            )
        return CollapsedGP(architecture, likelihood, self)


def _rounding(P):
    """What rounding may take from the eigenvalues of `P`."""
    return 1e-14 * float(torch.diagonal(P.detach(), dim1=-2, dim2=-1).max())


def _all_among(X, Z):
    """Whether every row of `X` is a row of `Z`."""
    distances = torch.cdist(X, Z, compute_mode="donot_use_mm_for_euclid_dist")
    return bool((distances.amin(1) == 0.0).all())


class _LogNormal(torch.autograd.Function):
    """Sum of ``log N(y_k; 0, K_k)`` over `k`, for y (k, n) and K (k, n, n)."""

    @staticmethod
    def forward(ctx, y, K):
        L = cholesky(K, _rounding(K))
        a = torch.cholesky_solve(y[..., None], L)  # k, n, 1
        ctx.save_for_backward(L, a)
        log_det = 2.0 * torch.diagonal(L, dim1=-2, dim2=-1).log().sum()
        return -0.5 * ((y * a[..., 0]).sum() + log_det + y.numel() * _LOG_2PI)

    @staticmethod
    def backward(ctx, g):
        L, a = ctx.saved_tensors
        return None, 0.5 * g * (a @ a.mT - torch.cholesky_inverse(L))


class CollapsedGP(DeepSparseGP):
    """The model that :class:`VFE` builds."""

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(architecture, likelihood, DSVI())
        self.layers[0].Z.requires_grad_(bool(scheme.train_inducing))
        self._search = LBFGS()
        self._seen = None  # rows, and whether all of them are inducing inputs
        self._unsolved = None  # rows whose posterior is still to be found

    def prepare(self, learning_rate, dtype):
        pass  # everything is in float64

    def bound(self, X, y, weight):
        """The collapsed bound of all rows, and the posterior of the whitened inducing variables.

        Returns
        -------
        bound : tensor of shape ()
            Titsias (2009), equation 9; a row of weight w stands for w rows.
        P : tensor of shape (k, M, M)
            Precision for each output.
        h : tensor of shape (k, M, 1)
            Precision times mean.
        """
        layer, k = self.layers[0], y.shape[1]
        kernel, noise = layer.kernel(), self.likelihood().variance
        noise = noise.expand(k)[:, None, None]
        root_w = weight.sqrt()
        L = cholesky(kernel(layer.Z, layer.Z), layer.jitter)
        A = torch.linalg.solve_triangular(L, kernel(layer.Z, X) * root_w, upper=False)  # M, n
        AAT = A @ A.mT
        P = AAT / noise
        P = P + torch.eye(len(L), dtype=P.dtype, device=P.device)
        h = (A @ (root_w[:, None] * y)).mT[..., None] / noise  # k, M, 1
        L_P = cholesky(P, _rounding(P))
        c = torch.linalg.solve_triangular(L_P, h, upper=False)
        squares = (weight @ y.square())[:, None, None] / noise
        fit = weight.sum() * (_LOG_2PI + noise.log()) + squares
        log_det = 2.0 * torch.diagonal(L_P, dim1=-2, dim2=-1).log().sum()
        left_out = (weight @ kernel.diag(X) - torch.diagonal(AAT).sum()) / noise
        bound = -0.5 * (fit.sum() + log_det - c.square().sum() + left_out.sum())
        return bound, P.detach(), h.detach()

    def exact(self, X, y, weight):
        """The log evidence of all rows, for inducing inputs that are these rows."""
        layer, k = self.layers[0], y.shape[1]
        kernel, noise = layer.kernel(), self.likelihood().variance
        noise = noise.expand(k)[:, None] / weight  # k, n
        K = kernel(X, X) + torch.diag_embed(noise + layer.jitter)
        repeated = (weight * (noise * weight).log() - noise.log()).sum()
        repeated = repeated + k * (weight.sum() - len(X)) * _LOG_2PI
        return _LogNormal.apply(y.mT, K) - 0.5 * repeated

    def step(self, batch, generator, rate=1.0):
        parameters = [p for p in self.parameters() if p.requires_grad]

        def evaluate(x):
            torch.nn.utils.vector_to_parameters(x, parameters)
            for parameter in parameters:
                parameter.grad = None
            try:
                value = self._objective(batch)
                value.backward()
            except torch.linalg.LinAlgError:  # L-BFGS tries a smaller step
                return math.inf, torch.zeros_like(x)
            return float(value.detach()), torch.cat([p.grad.flatten() for p in parameters])

        self._unsolved, search = batch, self._search
        if not parameters:  # all numbers are given
            with torch.no_grad():
                return float(self._objective(batch))
        if search.x is None:
            x = torch.nn.utils.parameters_to_vector(parameters).detach().clone()
            search.start(x, evaluate)
        try:
            search.step(evaluate)
        finally:  # also after an interrupt no numbers stay that were only tried
            torch.nn.utils.vector_to_parameters(search.x, parameters)
        return search.f

    def _objective(self, batch):
        """Negative bound per row."""
        X, y, weight = batch.X.double(), batch.y, batch.weight
        bound = self.exact(X, y, weight) if self._is_exact(X) else self.bound(X, y, weight)[0]
        return -bound / weight.sum()

    def _is_exact(self, X):
        """Whether all rows are inducing inputs, and stay so."""
        Z = self.layers[0].Z
        if Z.requires_grad or len(X) > len(Z):
            return False
        if self._seen is None or self._seen[0] is not X:
            self._seen = X, _all_among(X, Z)
        return self._seen[1]

    @torch.no_grad()
    def _solve(self):
        """Set the posterior to the best one for the present numbers."""
        if self._unsolved is None:
            return
        batch, self._unsolved = self._unsolved, None
        _, P, h = self.bound(batch.X.double(), batch.y, batch.weight)
        root, q = root_of_inverse(P), self.layers[0].q
        if root is None:  # numbers of very different size
            root = root_of_inverse(add_diagonal(P, 1e3 * _rounding(P)))
        q.root.copy_(root)
        q.mean.copy_((root @ (root.mT @ h))[..., 0].T)

    def divergence(self):
        self._solve()
        return super().divergence()

    def predictive(self, X, draws):
        self._solve()
        return super().predictive(X, draws)

    def functions(self, n, generator, n_features):
        self._solve()
        return super().functions(n, generator, n_features)

    def state(self):
        self._solve()
        return super().state()

    def training_state(self):
        return self._search.state()

    def load_training_state(self, arrays):
        self._search.load(arrays, self.layers[0].Z)
