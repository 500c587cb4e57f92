"""Layers of sparse Gaussian processes at rest: everything that new rows do not change is computed once."""

import math
from typing import NamedTuple

import torch

from ..linalg import cholesky, inverse_triangular
from ..random import normal
from .gaussian import sample

IMPORTANCE_FRACTION = 0.5  #: fraction of the features of a function that are at high frequencies


class _Form(NamedTuple):
    """The quadratic form ``diag(K^T (P^T P - N^T N) K)`` of the columns of `K`: one large product."""

    rows: torch.Tensor  #: N above P
    n_negative: int

    @classmethod
    def of(cls, Q, L_inv):
        """That of ``L_inv^T Q L_inv``."""
        if not torch.isfinite(Q).all():  # of which there are no eigenvalues; who predicts sees NaN
            return cls(torch.full_like(Q, torch.nan), 0)
        values, vectors = torch.linalg.eigh(Q)  # ascending
        return cls((vectors * values.abs().sqrt()).T @ L_inv, int((values < 0.0).sum()))

    def __call__(self, K):
        squares = (self.rows @ K).square_()
        return squares[self.n_negative :].sum(0) - squares[: self.n_negative].sum(0)


class FrozenUnits:
    """Outputs of a layer that share kernel and inducing inputs, without means and noise.

    Parameters
    ----------
    kernel : Kernel
    Z : tensor of shape (M, n_inputs)
    q_mean : tensor of shape (M, D)
        Of the whitened inducing variables.
    q_root : tensor of shape (D, M, M) or (1, M, M), or None
        Roots of their covariances, if the outputs are independent of other layers.
    jitter : float
    """

    def __init__(self, kernel, Z, q_mean, q_root, jitter):
        self.kernel, self.Z, self.jitter = kernel, Z, jitter
        self.q_mean, self.q_root = q_mean, q_root
        self.L = cholesky(kernel(Z, Z), jitter)

    def moments(self, H):
        """Mean (P, D) and variance, (P, D) or (P, 1), at rows (P, n_inputs)."""
        raise NotImplementedError

    def excess(self):
        """Covariances of the whitened inducing variables, less the prior's."""
        Q = self.q_root @ self.q_root.mT
        Q.diagonal(dim1=-2, dim2=-1).sub_(1.0)
        return Q

    def covariance(self, H):
        """Covariances of rows, (D, P, P)."""
        A = torch.linalg.solve_triangular(self.L, self.kernel(self.Z, H), upper=False)
        cov = self.kernel(H, H) + A.T @ self.excess() @ A
        return cov.expand(self.q_mean.shape[1], -1, -1)

    def functions(self, n, n_features, generator, v=None, center=None):
        """Draws of functions by pathwise conditioning (Wilson et al., 2020).

        A random-feature draw of the prior is corrected by its residual at the inducing inputs.

        Parameters
        ----------
        n, n_features : int
            Functions, and random features of each.
        generator : torch.Generator
        v : tensor of shape (n, M, D), optional
            Draws of the whitened inducing variables; None to draw them here.
        center : tensor of shape (n, M, D), optional
            Their means, where these are not those of q(v).

        Returns
        -------
        f : callable
            Maps (n, P, n_inputs) to mean and deviation, (n, P, D).
        """
        kernel, Z, (M, D) = self.kernel, self.Z, self.q_mean.shape
        phi = kernel.features((n, n_features), Z.shape[1], generator, Z, IMPORTANCE_FRACTION)
        basis = phi(Z.expand(n, *Z.shape)).flatten(-2)  # n, M, R c
        w = normal((n, basis.shape[-1], D), generator, Z) / math.sqrt(n_features)
        v = sample(self.q_mean, self.q_root, n, generator) if v is None else v
        center = self.q_mean.expand(n, M, D) if center is None else center
        prior = basis @ w + math.sqrt(self.jitter) * normal((n, M, D), generator, Z)
        update = v - center - torch.linalg.solve_triangular(self.L, prior, upper=False)
        both = torch.cat([center, update], -1)
        both = torch.linalg.solve_triangular(self.L.T, both, upper=True)  # n, M, 2 D

        def f(H):
            K = kernel(H.flatten(0, 1), Z).view(n, -1, M)
            mean, deviation = (K @ both).split(D, -1)
            return mean, deviation + phi(H).flatten(-2) @ w

        return f


class FormUnits(FrozenUnits):
    """Units whose variances are quadratic forms of the kernel, of one large product each."""

    def __init__(self, *args):
        super().__init__(*args)
        L_inv = inverse_triangular(self.L)
        self._weights = L_inv.T @ self.q_mean
        self.forms = [_Form.of(Q, L_inv) for Q in self.excess()]

    def moments(self, H):
        K_uf, k_ff = self.kernel(self.Z, H), self.kernel.diag(H)
        var = torch.stack([form(K_uf) for form in self.forms], 1)
        return (self._weights.T @ K_uf).T, var.add_(k_ff[:, None])


class FrozenLayer:
    """A layer of sparse Gaussian processes at rest, see :meth:`~skdgp.gp.layer.SparseLayer.frozen`.

    Attributes
    ----------
    units : list of FrozenUnits
        Those that share kernel and inducing inputs; one after the other, all outputs.
    W : tensor of shape (n_inputs, n_outputs) or None
        The linear mean function.
    """

    def __init__(self, units, W, noise):
        self.units, self.W, self._noise = units, W, noise
        self.n_outputs = sum(part.q_mean.shape[1] for part in units)

    def noise(self):
        """Variance that is added to the outputs, a tensor."""
        return self._noise

    def mean_function(self, H):
        return 0.0 if self.W is None else H @ self.W

    def shared_moments(self, H):
        """Mean and variance of the outputs; one column of variances if all outputs have the same."""
        mean, var = (torch.cat(part, 1) for part in zip(*(unit.moments(H) for unit in self.units)))
        return mean + self.mean_function(H), var + self._noise

    def moments(self, H):
        """Mean and variance of the outputs at rows (P, n_inputs), each of shape (P, n_outputs)."""
        mean, var = self.shared_moments(H)
        return mean, var.expand_as(mean)

    def covariance(self, H):
        """Covariances of rows, (n_outputs, P, P), of the outputs without noise."""
        return torch.cat([unit.covariance(H) for unit in self.units])

    def functions(self, n, n_features, generator, v=None, center=None):
        """Draws of the outputs as functions without noise, see :meth:`FrozenUnits.functions`."""
        parts = [unit.functions(n, n_features, generator, v, center) for unit in self.units]

        def f(H):
            mean, deviation = (torch.cat(part, -1) for part in zip(*(part(H) for part in parts)))
            return mean + self.mean_function(H), deviation

        return f


def compose(functions, noises, n, input_connected):
    """Draws of deep functions from those of their layers.

    Parameters
    ----------
    functions : list of callable
        For each layer, mean and deviation at (n, P, n_inputs).
    noises : list of tensors of shape (), or of None
        Variances that hidden layers add to their outputs.
    n : int
    input_connected : bool

    Returns
    -------
    evaluate : callable
        As in :class:`~skdgp.inference.posterior.Functions`.
    """

    def evaluate(X, noise=None):
        X = X.to(torch.float64).expand(n, *X.shape)
        mean, deviation = functions[0](X)
        for function, variance in zip(functions[1:], noises):
            H = mean + deviation
            if noise is not None and variance is not None:
                H = H + variance.sqrt() * normal(H.shape, noise, H)
            mean, deviation = function(torch.cat([H, X], -1) if input_connected else H)
        return mean, deviation

    return evaluate
