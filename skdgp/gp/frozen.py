"""Layers of sparse Gaussian processes at rest: everything that new rows do not change is computed once."""

import math

import torch

from ..linalg import cholesky, inverse_triangular, is_exporting
from ..random import normal
from .draws import prior_functions
from .gaussian import sample


def _factors(Q, L_inv):
    """Rows P and signs s of ``L_inv^T Q L_inv = P^T diag(s) P``."""
    if not torch.isfinite(Q).all():  # there are no eigenvalues, and predictions are NaN
        return torch.full_like(Q, torch.nan), torch.ones_like(Q[0])
    values, vectors = torch.linalg.eigh(Q)
    return (vectors * values.abs().sqrt()).T @ L_inv, torch.where(values < 0.0, -1.0, 1.0).to(Q)


class Outputs:
    """Outputs of a layer: its processes and the mean function ``h W``, with noise."""

    def parts(self):
        """The layers of one kernel that this one is made of: itself, or its units."""
        return [self]

    def process_moments(self, H, *q):
        """Mean (P, D) and variance, (P, D) or (P, 1), without mean function and noise."""
        raise NotImplementedError

    def scales(self):
        """Number that each process is multiplied by, (n_outputs,), or None for 1."""

    def scaled(self, mean, var):
        """Moments of processes times their scales."""
        scales = self.scales()
        if scales is None:
            return mean, var
        scales = scales.to(mean.dtype)
        return mean * scales, var * scales.square()

    def mean_function(self, H):
        return 0.0 if self.W is None else H @ self.W.to(H.dtype)

    def shared_moments(self, H, *q):
        """Mean and variance of the outputs; one column of variances if all outputs have the same."""
        moments = self.process_moments(H.flatten(0, -2), *q)
        mean, var = (part.unflatten(0, H.shape[:-1]) for part in moments)
        return mean + self.mean_function(H), var + self.noise()

    def moments(self, H, *q):
        """Mean and variance (..., n_outputs) at rows (..., n_inputs) (Salimbeni and Deisenroth, 2017)."""
        mean, var = self.shared_moments(H, *q)
        return mean, var.expand_as(mean)


class FrozenLayer(Outputs):
    """A layer of sparse Gaussian processes at rest; see :class:`~skdgp.gp.layer.SparseLayer`."""

    def __init__(self, kernel, Z, q_mean, q_root, jitter, W=None, noise=0.0, scales=None):
        self.kernel, self.Z, self.jitter = kernel, Z, jitter
        self.q_mean, self.q_root, self.W = q_mean, q_root, W
        self._noise, self._scales = noise, scales
        self.n_outputs = q_mean.shape[1]
        self.L = cholesky(kernel(Z, Z), jitter)
        self.L_inv = inverse_triangular(self.L)

    def noise(self):
        """Variance that is added to the outputs."""
        return self._noise

    def scales(self):
        return self._scales

    def whiten(self, K):
        """``L^{-1} K``."""
        if is_exporting():
            return self.L_inv @ K
        return torch.linalg.solve_triangular(self.L, K, upper=False)

    def whitened(self, H):
        """``L^{-1} k(Z, H)``, (M, ...), and ``k(H, H)``, (...), of rows (..., n_inputs)."""
        rows = H.flatten(0, -2)
        A, k_ff = self.whiten(self.kernel(self.Z, rows)), self.kernel.diag(rows)
        return A.unflatten(1, H.shape[:-1]), k_ff.view(H.shape[:-1])

    def excess(self):
        """Covariances of the whitened inducing variables, less the prior's."""
        Q = self.q_root @ self.q_root.mT
        Q.diagonal(dim1=-2, dim2=-1).sub_(1.0)
        return Q

    def covariance(self, H):
        """Covariances of rows, (D, P, P), of the outputs without noise."""
        return self.covariance_of_groups(H[None])[:, 0]

    def covariance_of_groups(self, H):
        """Covariances within groups of rows (B, q, n_inputs), (D, B, q, q), of the outputs without noise."""
        A = self.whitened(H)[0].transpose(0, 1)  # B, M, q
        cov = self.kernel.of_groups(H) + A.mT @ self.excess()[:, None] @ A
        cov = cov.expand(self.n_outputs, *cov.shape[1:])
        return cov if self._scales is None else self._scales.square()[:, None, None, None] * cov

    def functions(self, n, n_features, generator, v=None, center=None):
        """Draws of functions by pathwise conditioning (Wilson et al., 2020), without noise.

        A random-feature draw of the prior is corrected by its residual at the inducing inputs.
        """
        kernel, Z, (M, D) = self.kernel, self.Z, self.q_mean.shape
        prior = prior_functions(kernel, n, D, generator, Z, n_features)
        v = sample(self.q_mean, self.q_root, n, generator) if v is None else v
        center = self.q_mean.expand(n, M, D) if center is None else center
        at_Z = prior(Z) + math.sqrt(self.jitter) * normal((n, M, D), generator, Z)
        update = v - center - torch.linalg.solve_triangular(self.L, at_Z, upper=False)
        both = torch.cat([center, update], -1)
        both = torch.linalg.solve_triangular(self.L.T, both, upper=True)  # n, M, 2 D

        def f(H):
            K = kernel(H.flatten(0, 1), Z).view(n, -1, M)
            mean, deviation = (K @ both).split(D, -1)
            deviation = deviation + prior(H)
            if self._scales is not None:
                mean, deviation = self._scales * mean, self._scales * deviation
            return mean + self.mean_function(H), deviation

        return f


class FormLayer(FrozenLayer):
    """A layer whose variances are quadratic forms of the kernel, by one large product."""

    def __init__(self, *args):
        super().__init__(*args)
        self._weights, self._excess = self.L_inv.T @ self.q_mean, super().excess()
        rows, signs = zip(*(_factors(Q, self.L_inv) for Q in self._excess))
        self._rows, self._signs = torch.cat(rows), torch.stack(signs)[:, None]

    def excess(self):
        return self._excess

    def process_moments(self, H):
        K_uf, k_ff = self.kernel(self.Z, H), self.kernel.diag(H)
        squares = (self._rows @ K_uf).square_().view(len(self._signs), len(K_uf), -1)
        var = torch.bmm(self._signs, squares)[:, 0].T
        return self.scaled((self._weights.T @ K_uf).T, var + k_ff[:, None])
