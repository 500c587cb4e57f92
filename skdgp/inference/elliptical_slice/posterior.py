"""Predictions of a deep Gaussian process from states of chains at all rows."""

import math
from typing import NamedTuple

import torch

from ...gp.component import to_numpy
from ...gp.kernels import Kernel
from ...gp.layer import draw_functions
from ...random import normal
from ..chains import Latent, pick_states

JITTER = 1e-6  #: on the diagonals of layers whose values are sampled
_LEAST_VARIANCE = 1e-12
_N_FEATURES = 1024  #: random features of a function
_AT_ONCE = 60_000_000  #: numbers of factors that are kept


class _Layer(NamedTuple):
    """One layer of one state, given all rows.

    Attributes
    ----------
    kernel : Kernel
    H : tensor of shape (N, n_inputs)
        What the layer sees of the rows.
    root : tensor of shape (N, N) or (k, N, N)
        Factor of the covariance of what is known.
    v : tensor of shape (N, D)
        What is known, whitened.
    """

    kernel: Kernel
    H: torch.Tensor
    root: torch.Tensor
    v: torch.Tensor


class SlicedPosterior:
    """A mixture with one component for each state of the chains; nothing changes after it is made.

    Noise that was sampled is its posterior mean in `likelihood`; each state conditions on its own.

    Parameters
    ----------
    model : SlicedDeepGP
    states : dict of str to tensor
        ``v`` (S, N, H) and ``phi`` (S, P), and what tempering has left: ``log_lik`` (S, T)
        and ``prior_log_lik`` (S,).
    draws : tensor of shape (S, n_hidden)
        The values of hidden units, one draw for each state, shared by all rows.

    Attributes
    ----------
    n_chains : int
        How many chains the states are of; those of a chain follow each other.
    powers : tensor of shape (T + 1,)
        Powers of the likelihood, the last one 0.
    log_likelihoods : tensor of shape (n_chains, n_draws, T + 1) or None
        Of the states that were kept, at all powers.
    """

    @torch.no_grad()
    def __init__(self, model, states, draws):
        self._rows, self._widths, self._integrates = model.rows, model.widths, model.integrates
        self._input_connected = model.input_connected
        self._W = [getattr(model, f"W{i}") for i in range(len(model.widths))]
        self._hyper, self._root = model.hyperparameters, model.root
        self._v, self._phi = states["v"], states["phi"]
        draws = torch.as_tensor(draws).to(self._v)
        self._eps = draws.split(self._widths[: len(self._W) - (not self._integrates)], 1)
        center = self._hyper.components(self._phi.exp().mean(0).log())
        self.kernels, self.likelihood = [to_numpy(k) for k in center[0]], to_numpy(center[1])
        self.inducing_inputs, self.n_chains = [], model.n_chains
        self.inflation = torch.ones(len(self._v), dtype=torch.float64)
        self.powers = torch.cat([model.powers, torch.zeros(1, dtype=torch.float64)])
        self.log_likelihoods = None
        if "log_lik" in states and "prior_log_lik" in states:
            levels = torch.cat([states["log_lik"], states["prior_log_lik"][:, None]], 1)
            self.log_likelihoods = levels.unflatten(0, (model.n_chains, -1))
        n = len(self._rows[0])
        few = len(self._v) * n * n * (len(self._widths) + 1) <= _AT_ONCE
        self._given = [self._condition(s) for s in range(len(self._v))] if few else None

    def _beside(self, F, X, i):
        if i == 0 or not self._input_connected:
            return F
        return torch.cat([F, X], -1)

    def _mean_function(self, H, i):
        return H @ self._W[i] if i < len(self._W) and self._W[i] is not None else 0.0

    def _condition(self, s):
        """The layers of state `s`."""
        kernels, likelihood = self._hyper.components(self._phi[s])
        X, y, weight = self._rows
        F, layers = X, []
        for i, v in enumerate(self._v[s].split(self._widths, -1) if self._widths else ()):
            H = self._beside(F, X, i)
            layers.append(_Layer(kernels[i], H, self._root(kernels[i], H[None])[0], v))
            F = self._mean_function(H, i) + layers[-1].root @ v
        if self._integrates:
            H = self._beside(F, X, len(self._widths))
            noise = torch.as_tensor(likelihood.variance).view(-1, 1) / weight
            root = torch.linalg.cholesky(kernels[-1](H, H) + torch.diag_embed(noise))
            v = torch.linalg.solve_triangular(root, y.T[..., None], upper=False)[..., 0]
            layers.append(_Layer(kernels[-1], H, root, v.T))
        return layers

    def _layers(self, s):
        return self._condition(s) if self._given is None else self._given[s]

    @torch.no_grad()
    def latent(self, X):
        """Moments of the latent functions under each state; rows do not see each other."""
        X, S = torch.as_tensor(X).to(self._v), len(self._v)
        moments = [self._moments(X, s) for s in range(S)]
        mean, var = (torch.stack(part) for part in zip(*moments))
        log_weights = torch.full((S,), 1.0 / S, dtype=torch.float64).log()
        return Latent(log_weights, mean, var.clamp_min(_LEAST_VARIANCE).expand_as(mean))

    def _moments(self, X, s):
        F = X
        for i, layer in enumerate(self._layers(s)):
            H = self._beside(F, X, i)
            K = layer.kernel(layer.H, H)
            K = K.expand(*layer.root.shape[:-2], *K.shape)
            A = torch.linalg.solve_triangular(layer.root, K, upper=False)
            if layer.root.ndim == 3:  # k, N, n
                mean = (A * layer.v.T[..., None]).sum(1).T
            else:
                mean = A.T @ layer.v
            mean = mean + self._mean_function(H, i)
            var = layer.kernel.diag(H) - A.square().sum(-2)
            var = var.T if var.ndim == 2 else var[:, None]
            if i < len(self._eps):
                F = mean + var.clamp_min(_LEAST_VARIANCE).sqrt() * self._eps[i][s]
        return mean, var

    @torch.no_grad()
    def functions(self, n, generator):
        """Draws of functions: states, and draws of all layers given them (Wilson et al., 2020)."""
        picked = pick_states(len(self._v), n, generator).tolist()
        paths = [self._path(s, generator) for s in picked]

        @torch.no_grad()
        def f(X, noise=None):
            X = torch.as_tensor(X).to(self._v)
            values = [path(X) for path in paths]
            return tuple(torch.stack(part) for part in zip(*values))

        return f

    def _path(self, s, generator):
        layers, n_sampled = self._layers(s), len(self._widths)
        steps = [
            draw_functions(
                layer.kernel, layer.H, layer.v.shape[1], lambda v=layer.v: v[None], JITTER,
                1, _N_FEATURES, generator,
            )
            for layer in layers[:n_sampled]
        ]  # fmt: skip
        last = layers[-1]
        if self._integrates:
            final = self._integrated_path(last, s, generator)
        else:
            weights = torch.linalg.solve_triangular(last.root.T, last.v, upper=True)

        def path(X):
            F = X
            for i, step in enumerate(steps):
                H = self._beside(F, X, i)
                F = step(H[None])[0] + self._mean_function(H, i)
            if self._integrates:
                return final(self._beside(F, X, n_sampled))
            mean = last.kernel(H, last.H) @ weights
            return mean, F - mean

        return path

    def _integrated_path(self, layer, s, generator):
        """Pathwise draw of the last layer given targets with noise."""
        k, n_inputs = layer.v.shape[1], layer.H.shape[1]
        phi = layer.kernel.features((1, _N_FEATURES), n_inputs, generator, layer.H, 0.5)
        basis = phi(layer.H[None])[0].flatten(-2)
        w = normal((basis.shape[-1], k), generator, layer.H) / math.sqrt(_N_FEATURES)
        variance = torch.as_tensor(self._hyper.components(self._phi[s])[1].variance)
        noise = (variance / self._rows[2][:, None]).sqrt() * normal(
            (len(basis), k), generator, layer.H
        )
        seen = (basis @ w + noise).T[..., None]  # k, N, 1
        a = torch.linalg.solve_triangular(layer.root.mT, layer.v.T[..., None], upper=True)[..., 0].T
        b = torch.cholesky_solve(seen, layer.root)[..., 0].T

        def path(H):
            K = layer.kernel(H, layer.H)
            return K @ a, phi(H[None])[0].flatten(-2) @ w - K @ b

        return path

    def covariance(self, X):
        """None: there is no closed form."""

    def loo_log_density(self, rows, dispersions=None):
        """None: no cheap exact form."""
