"""Inputs, kernels, output layer, training and fixed draws of all kernel processes."""

import math

import numpy as np
import torch
from torch import nn

from ...gp.component import Trainable
from ...gp.inducing import centers
from ...optim.gradient_steps import GradientSteps
from ...random import latin_normal
from ..base import Model
from ..batch import whole
from .posterior import GramPosterior
from .process import JITTER, Level, Path, among, diagonal, draw_metric
from .sites import Sites, Whitened
from .wishart import Fixed, Fresh, degrees

_START_V = 0.1  #: of the factor V, as a multiple of the identity
_FOR_DIVERGENCE = 16  #: draws, seeds of which stay the same


class KernelModel(Model):
    """Base class: inducing inputs, scaled inputs, Gram kernels, likelihood and the output layer's sites."""

    roles = {"Z": "inducing_input", "log_scale": "lengthscale"}

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(GradientSteps(scheme.natural_step))
        a, real = architecture, torch.float64
        self.n_draws, self.jitter = scheme.n_draws, JITTER
        self.n_features, self.n_layers = a.n_features, len(a.kernels)
        self.layers = nn.ModuleList()  # of which each would have inducing inputs of its own
        self.layer_inputs = a.layer_inputs()
        kernels = [k.of_gram(n) for k, n in zip(a.kernels, self.layer_inputs)]
        for kernel, n in zip(a.kernels[1:], self.layer_inputs[1:]):
            if not kernel.learns_lengths and kernel.log_scale(n).any():
                raise ValueError(
                    "A kernel process has one lengthscale for all inputs of a later layer, and the kernel that "
                    f"is to stay as it is, {kernel!r}, has several; let it be trained, or give one."
                )
        for kernel in kernels:
            kernel.from_gram(torch.ones(1, 1))  # which refuses what is none of Gram matrices
        self.kernels = nn.ModuleList(Trainable(kernel) for kernel in kernels)
        self.likelihood = Trainable(likelihood)
        self.Z = nn.Parameter(torch.zeros(a.n_inducing, a.n_features, dtype=real))
        # what the first kernel multiplies inputs by, relative to its mean
        first = a.kernels[0]
        log_scale = torch.tensor(first.log_scale(a.n_features), dtype=real)
        learns = getattr(first, "ard", True) and first.learns_lengths
        self.log_scale = nn.Parameter(log_scale, bool(learns))
        self.sites = Sites(a.n_inducing, a.n_latents)

    @torch.no_grad()
    def load_fewer_inputs(self, arrays, rng):
        super().load_fewer_inputs(arrays, rng)
        # Gram matrices are divided by the number of inputs
        self.log_scale.add_(0.5 * math.log(self.n_features / len(arrays["log_scale"])))

    def inputs(self, X):
        """Scaled rows, in float64."""
        return X.double() * self.log_scale.exp()

    def start(self, X, weights, rng):
        """Place the inducing inputs at centers of the rows."""
        with torch.no_grad():
            self.Z.copy_(torch.as_tensor(centers(X, weights, len(self.Z), "kmeans", rng)))

    def blocks(self):
        return [self.sites]

    def kernel_objects(self):
        """The kernels of all layers: in the graph in training, and else copies that do not change."""
        return [k() if torch.is_grad_enabled() else k.frozen() for k in self.kernels]

    def fitted_kernels(self):
        """Kernels with fitted hyperparameters, as for rows of features."""
        scales = [self.log_scale.exp().numpy(force=True)] + [1.0] * (self.n_layers - 1)
        parts = zip(self.kernels, self.layer_inputs, scales)
        return [kernel.fitted().of_rows(n, scale) for kernel, n, scale in parts]

    def path(self, base):
        """Draws of what all rows share, with `levels`, `kl`, `noise` and `rows` as :class:`Path` has."""
        raise NotImplementedError

    def output(self, level):
        """The posterior of the output layer given its level."""
        return Whitened.of(level.L, self.sites.h, self.sites.Lambda)

    def last_moments(self, level, K_it, K_tt):
        """Moments of the latent functions (S, n, k), and the divergence (S,) of the output layer."""
        q = self.output(level)
        if not torch.is_grad_enabled():
            return *q.moments(*level.schur(K_it, K_tt)), q.kl
        mean, var = q.of_step(level.J, K_it, K_tt)
        J = level.J.detach()
        self.sites.collect((J.mT @ J) @ K_it.detach(), mean, var)
        return mean, var, q.kl

    def expected_log_likelihood(self, batch, generator):
        """Estimate of the lower bound itself, because divergences depend on the draws, too."""
        mean, var, kl = self.sample_moments(batch.X, Fresh(self.n_draws, generator), batch.draw)
        ell = self.likelihood().expected_log_prob(batch.y, mean, var)  # S, n
        return batch.scale / len(ell) * (batch.weight * ell).sum() - batch.share * kl.mean()

    def sample_moments(self, X, base, draw=whole):
        """Moments of the last layer (S, n, k), divergences (S,); `draw` makes what belongs to rows."""
        path = self.path(base)
        K_it, K_tt = path.rows(self.inputs(X), path.noise(base, len(X), draw))
        mean, var, kl = self.last_moments(path.levels[-1], K_it, K_tt)
        return mean, var, path.kl + kl

    def fixed_dim(self):
        """Normal variables that a fixed path needs."""
        raise NotImplementedError

    def draws(self, n, seed):
        """Seed, number and count of the draws, from which they are made when needed: they are many."""
        n = n if self.fixed_dim() else 1
        return np.column_stack([np.full(n, seed), np.arange(n), np.full(n, n)]).astype(np.float64)

    def fixed(self, draws):
        """The base randomness that :meth:`draws` stands for."""
        draws = torch.as_tensor(draws).cpu().numpy()
        seed, n = int(draws[0, 0]), int(draws[0, 2])
        which = draws[:, 1].astype(np.int64)
        return Fixed(latin_normal(n, self.fixed_dim(), seed)[which])

    @torch.no_grad()
    def divergence(self):
        """Mean of the divergences of all layers, over draws that stay the same."""
        with self.averaged():
            fixed = self.fixed(self.draws(_FOR_DIVERGENCE, 0))
            return self.sample_moments(self.Z[:1], fixed)[2].mean()

    def delta(self):
        """Closeness of each Gram matrix to a fixed function of the one below; None if none is random."""

    def _frozen(self, draws, as_trained):
        base = self.fixed(draws)
        path = self.path(base)
        return self.frozen_class(self, path, self.output(path.levels[-1]), path.noise(base, 1))


class GramModel(KernelModel):
    """Deep kernel processes on Gram matrices: inverse Wishart layers, or none of them random."""

    roles = {**KernelModel.roles, "log_delta": "shape", "log_gamma": "posterior_shape"}
    frozen_class = GramPosterior

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(architecture, likelihood, scheme)
        self.random = scheme.delta is not None
        if not self.random:
            return
        sizes = [self.n_features] + [len(self.Z)] * (self.n_layers - 1)
        start = [_START_V * math.sqrt(p) * torch.eye(p, dtype=torch.float64) for p in sizes]
        self.V = nn.ParameterList(start)  # over the root of the size
        log_delta = torch.full((self.n_layers,), math.log(scheme.delta), dtype=torch.float64)
        self.log_delta = nn.Parameter(log_delta)
        self.log_gamma = nn.Parameter(torch.zeros_like(log_delta))

    def _degrees(self, i):
        """Delta and gamma of a layer, and its scaled `V`."""
        return self.log_delta[i].exp(), self.log_gamma[i].exp(), self.V[i] / len(self.V[i]) ** 0.5

    def _base_of_inducing(self, i, base):
        delta, gamma, V = self._degrees(i)
        p = len(V)
        n, dof = base.lower(p, V), degrees(delta + gamma + p + 1.0, p)
        return delta, gamma, V, n, base.chi2(dof, (p,))

    def path(self, base, Z=None):
        """A :class:`Path`, for other inducing inputs if these are given."""
        Z, metric = self.inputs(self.Z if Z is None else Z), None
        kl = Z.new_zeros(1)
        if self.random:
            metric, kl = draw_metric(*self._base_of_inducing(0, base))
        path = Path(Z, metric, [], kl)
        path.F = path.map(Z)
        G = path.F @ path.F.mT
        same = path.same(path.F, G, diagonal(G))
        for i, kernel in enumerate(self.kernel_objects(), 1):
            K = kernel.from_gram(G)
            K = among(same, K, diagonal(K))
            if i < self.n_layers and not self.random:
                d, G = diagonal(G).clone(), K
                path.levels.append(Level(kernel, d, torch.zeros_like(d[:, 0])))
                continue
            level, K = Level.factorized(kernel, G, K, self.jitter)
            path.levels.append(level)
            if i < self.n_layers:
                G, kl = level.draw_inducing(K, *self._base_of_inducing(i, base))
                path.kl = path.kl + kl
        return path

    def fixed_dim(self):
        n, P = self.n_features, len(self.Z)
        layer = P * (P + 1) // 2 + P + 1
        return n * (n + 1) // 2 + (self.n_layers - 1) * layer if self.random else 0

    def delta(self):
        return self.log_delta.exp().numpy(force=True).copy() if self.random else None
