"""Predictions of a deep Gaussian process from states of chains at all rows."""

from typing import NamedTuple

import numpy as np
import torch

from ...gp.component import to_numpy
from ...gp.draws import prior_functions
from ...gp.stack import FrozenStack
from ...linalg import whitened
from ...random import normal
from ..chains import pick_states
from ..posterior import Functions, Latent, Posterior, equal_weights
from ..rows.conditioned import ConditionedGP
from ..rows.near_rows import GaussianTargets, NearRows
from ..rows.unique_inputs import NeighborSearch

JITTER = 1e-6  #: on the diagonals of layers whose values are sampled
_AT_ONCE = 40_000_000  #: numbers of factors that are kept, by as many states as they allow


class SlicedPosterior(Posterior):
    """A mixture of some states of the chains, each a process given all rows.

    `kernels` and `likelihood` have posterior means. Tempering leaves `powers`, the last one 0, and
    `log_likelihoods` (n_chains, n_draws, T + 1).
    """

    @torch.no_grad()
    def __init__(self, model, states, draws):
        v, phi, n_chains = states["v"], states["phi"], model.n_chains
        each, n_layers = len(v) // n_chains, len(model.widths) + model.integrates
        N, n_neighbors = len(model.rows[0]), model.scheme.n_neighbors
        size = N * (N if n_neighbors is None else model.n_hidden() + 1)
        most = max(1, _AT_ONCE // (size * n_layers * n_chains))
        place = np.linspace(0, each - 1, min(each, most)).round().astype(int)
        chosen = np.add.outer(each * np.arange(n_chains), place).ravel()
        kernels, likelihood = model.logarithms.components(phi.exp().mean(0).log())
        rows = model.rows[0].cpu().numpy().copy()  # which the first layer is known at
        log_weights = equal_weights(len(chosen), v)
        super().__init__(to_numpy(likelihood), map(to_numpy, kernels), [rows], log_weights)
        self.n_chains = n_chains
        self.powers = torch.cat([model.powers, model.powers.new_zeros(1)])
        self.log_likelihoods = None
        if "log_lik" in states:
            levels = torch.cat([states["log_lik"], states["prior_log_lik"][:, None]], 1)
            self.log_likelihoods = levels.unflatten(0, (n_chains, each))
        self._W = [None if layer.W is None else layer.W.clone() for layer in model.layers]
        self._layers = [_condition(model, v[s], phi[s]) for s in chosen]
        _, self._likelihoods = model.logarithms.components(phi[chosen])
        self.hyperparameters = model.logarithms.values(phi[chosen])
        widths = model.widths[: n_layers - 1]
        self._eps = torch.as_tensor(draws)[chosen].to(v).split(widths, 1) if widths else ()
        self._search = None
        if n_neighbors is not None:
            self._search = NeighborSearch(model.rows[0], model.metric(), n_neighbors)

    def likelihood_of(self, components=slice(None)):
        batched = {
            name: value[components]
            for name, value in vars(self._likelihoods).items()
            if isinstance(value, torch.Tensor) and value.ndim == 3
        }
        return self._likelihoods.with_values(**batched)

    def latent(self, X):
        X = X.to(torch.float64)
        near = self._near(X)
        mean, var = zip(*(self._moments(X, s, near) for s in range(len(self._layers))))
        return Latent(self._log_weights, torch.stack(mean), torch.stack(var))

    def _near(self, X):
        """Return the neighbors of the rows, in a tuple; an empty one if layers condition on all rows."""
        return () if self._search is None else (self._search(X),)

    def _moments(self, X, s, near):
        def moments(i, layer, H):
            mean, var = (moment.mT for moment in layer.gp.moments(H, *near))
            return mean + self._mean_function(H, i), var

        def visit(i, layer, H):
            mean, var = moments(i, layer, H)
            return mean + var.sqrt() * self._eps[i][s] if i < len(self._eps) else (mean, var)

        mean, var = self._layers[s].walk(X, visit)
        return mean, var.expand_as(mean)

    def _mean_function(self, H, i):
        return 0.0 if self._W[i] is None else H @ self._W[i]

    def functions(self, n, generator, X=None):
        """By pathwise conditioning on the values of some states at all rows."""
        picked = pick_states(len(self._layers), n, generator)
        paths = [
            [gp.paths(1, generator, noise, self.n_features) for gp, noise in self._layers[s]]
            for s in picked.tolist()
        ]
        paths = [FrozenStack(path, self._layers[0].input_connected) for path in paths]

        def evaluate(X, noise=None):
            X = X.to(torch.float64)
            near = self._near(X)
            values = [self._follow(path, X, near) for path in paths]
            return tuple(torch.stack(part) for part in zip(*values))

        return Functions(evaluate, self._log_weights.new_ones(n), picked)

    def _follow(self, path, X, near):
        """Mean and deviation of one function."""

        def visit(i, function, H):
            mean, (deviation,) = function(H, *near)
            mean = mean + self._mean_function(H, i)
            return (mean, deviation) if i == len(path) - 1 else mean + deviation

        return path.walk(X, visit)


class _Layer(NamedTuple):
    """A layer of one state given all rows, and the noise of what is known there, (1 or k, N)."""

    gp: "ConditionedGP | _NearGP"
    noise: torch.Tensor


class _NearGP(NearRows):
    """A layer of one state, of which rows see what it is at their neighbors, as :class:`ConditionedGP`."""

    def moments(self, H, near):
        mean, sd, _, _ = self.say(H, near)
        return tuple(part.mT for part in self.observed.latents(mean, sd.square()))

    def paths(self, n, generator, noise, n_features):
        k = self.y.shape[1]
        prior = prior_functions(self.kernel, n, k, generator, self.Z, n_features)
        seen = prior(self.Z) + normal((n, *self.y.shape), generator, self.Z) * noise.T.sqrt()

        def path(H, near):
            mean, _, L, _ = self.say(H, near)
            z = whitened(L.expand(n, *L.shape), seen[:, near].mT)
            return mean, prior(H) - (L[..., -1, :-1] * z).sum(-1)

        return path


def _condition(model, v, phi):
    """The layers of one state, a FrozenStack."""
    kernels, likelihood = model.logarithms.components(phi)
    X, y, weight = model.rows
    parts, layers = v.split(model.widths, -1) if model.widths else (), []

    def add(kernel, H, values, variance, weight, root):
        noise = variance[:, None] / weight
        if model.scheme.n_neighbors is None:
            a = torch.cholesky_solve(values.T[..., None], root.L)[..., 0]
            gp = ConditionedGP(kernel, _as_it_is, H, root.L, a)
        else:
            gp = _NearGP(kernel, H, values, weight, GaussianTargets(variance))
        layers.append(_Layer(gp, noise))

    def visit(i, layer, H):
        if i < len(parts):
            root = model.root(kernels[i], H[None])
            values = root.product(parts[i][None])[0]
            add(kernels[i], H, values, weight.new_full((1,), JITTER), torch.ones_like(weight), root)
            return values + layer.mean_function(H)
        variance = torch.as_tensor(likelihood.variance).view(-1).to(y)
        root = model.root_of_targets(H[None], kernels[i], likelihood)
        add(kernels[i], H, y, variance, weight, root[0])

    model.layers.walk(X, visit)
    return FrozenStack(layers, model.layers.input_connected)


def _as_it_is(H):
    return H
