"""A local scale of variances, estimated from near rows; schemes, models and posteriors that may have one."""

import copy
import math
from itertools import starmap

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ...gp.component import Trainable, hyperparameters
from ...gp.kernels.base import tensor_like
from ...gp.likelihoods import Gaussian, HeteroscedasticGaussian
from ...gp.likelihoods.base import GaussianMixture, split
from ...gp.priors import DEVIATION, SPREAD, with_priors
from ...gp.rows import RowsLayer
from ...gp.stack import Stack
from ...linalg import LOG_2PI, is_exporting
from ...optim.lbfgs import minimize, of_parameters
from ...random import gamma
from ..base import Model, Scheme
from ..posterior import Latent, Posterior, equal_weights, frozen_parts
from .unique_inputs import gather

START_COUNT = 10.0  #: the neighbors that the prior of the local scale is worth at first
_SPREAD = 3.0  #: standard deviation of the logarithms of what is learned, a priori
_REACH = 20.0  #: rounding: of the grid of local scales, in logarithms, on both sides
_LEAST_DOF = 2.1  #: from neighbors; below 2 there is no variance
_FEWEST_SCALES = 64  #: rounding: points of this grid
_STEPS = 50  #: rounding: to learn it
_TOL = 1e-6  #: rounding: likewise


class LocalScale(nn.Module):
    r"""An unknown scale of the variances around a row, with an inverse-gamma prior.

    Let :math:`z_1, \dots, z_k` be the whitened errors of near rows. Given these, targets follow a
    Student-t distribution with :math:`a + \rho k` degrees of freedom. Its squared scale is
    :math:`c\,(a + \rho z^\top z) / (a + \rho k)`, see :class:`~skdgp.inference.Vecchia`. With
    `n_factors`, outputs have a factor `c` each. A prediction has `n_near` neighbors.
    """

    def __init__(self, n_factors=None):
        super().__init__()
        zero = torch.zeros((), dtype=torch.float64)
        self.log_count = nn.Parameter(zero + math.log(START_COUNT))
        self.log_odds = nn.Parameter(zero.clone())
        has_factor = n_factors is not None
        self.log_factor = nn.Parameter(zero.new_zeros(n_factors)) if has_factor else None
        self.n_near = 0

    def counts(self):
        """Return the degrees of freedom of the prior, and those that each neighbor adds."""
        least = min(1.0, _LEAST_DOF / max(self.n_near, 1))
        return self.log_count.exp(), least + (1.0 - least) * torch.sigmoid(self.log_odds)

    def dof(self, k=None):
        """Degrees of freedom given `k` neighbors, or those of predictions."""
        prior, each = self.counts()
        return prior + each * (self.n_near if k is None else k)

    def squared(self, z):
        """Estimate of the squared scale, from whitened neighbors (..., k)."""
        prior, each = self.counts()
        scale = (prior + each * z.square().sum(-1)) / self.dof(z.shape[-1])
        return scale if self.log_factor is None else self.log_factor.exp() * scale

    def learn(self, log_density, total):
        """Maximize ``log_density()``, of `total` rows, with weak priors of the hyperparameters."""
        if total <= 1.0:  # one target, which is its own center
            return
        learned = list(self.parameters())
        prior = parameters_to_vector(learned).detach().zero_()
        prior[0] = math.log(START_COUNT)

        def loss():
            deviations = (parameters_to_vector(learned) - prior) / _SPREAD
            return (0.5 * deviations.square().sum() - log_density()) / total

        self.requires_grad_(True)
        try:
            vector_to_parameters(prior.clone(), learned)
            minimize(of_parameters(loss, learned), learned, _STEPS, _TOL)
        finally:
            self.requires_grad_(False)


class FrozenScale:
    """A local scale at rest, as a mixture over a grid (n_draws,) from :func:`scale_grid`."""

    @torch.no_grad()
    def __init__(self, local_scale, grid, k=None):
        self._dof = dof = local_scale.dof(k)
        factor = 1.0 if local_scale.log_factor is None else local_scale.log_factor.exp()
        self._prior, self._each = (factor * count / dof for count in local_scale.counts())
        # For precisions l ~ Gamma(dof / 2, dof / 2), the trapezoidal rule in log(l) converges exponentially.
        # The points are dense where the distribution is, and go on to where far outliers are explained.
        half = 0.5 * dof
        spread = half.rsqrt()  # of log(l)
        u = torch.asinh(_REACH / spread) * grid
        log_l = half.log() + spread * torch.sinh(u)
        self.log_weights = torch.log_softmax(half * log_l - log_l.exp() + torch.cosh(u).log(), 0)
        # of the squared scale over its estimate
        self._log_mixing = (half.log() - log_l).view(-1, 1, 1, 1)
        self._mixing = self._log_mixing.exp()
        self.mean_mixing = self.log_weights.exp() @ self._mixing.flatten()

    def mixing(self, ndim):
        """Logarithms of weights, and squared scales over their estimates, with more dimensions."""
        shape = (-1,) + (1,) * ndim
        return self.log_weights.view(shape), self._mixing.view(shape)

    def squared(self, z):
        """Estimates of squared scales from the whitened errors (..., k) of near rows."""
        return torch.addcmul(self._prior, self._each, z.square().sum(-1))

    def components(self, mean, var, squared):
        """Moments (n_draws * J, n, 2 k) of functions, and of logarithms of squared scales."""
        if mean.requires_grad or is_exporting():
            log_squared, var = squared.log() + self._log_mixing, var * squared * self._mixing
            means = torch.cat([mean.expand_as(log_squared), log_squared], -1)
            variances = torch.cat([var, torch.zeros_like(var)], -1)
            return means.flatten(0, 1), variances.flatten(0, 1)
        k, shape = mean.shape[-1], (len(self._mixing), *mean.shape[:-1], 2 * mean.shape[-1])
        means, variances = mean.new_empty(shape), mean.new_zeros(shape)
        means[..., :k] = mean
        torch.add(squared.log(), self._log_mixing, out=means[..., k:])
        torch.mul(var * squared, self._mixing, out=variances[..., :k])
        return means.flatten(0, 1), variances.flatten(0, 1)

    def mixed(self, mean, var, squared):
        """The mixture of :meth:`components` as one component (J, n, 2 k) of a :class:`ScaleMixture`."""
        var = var * squared * self.mean_mixing
        return torch.cat([mean, squared], -1), torch.cat([var, torch.zeros_like(var)], -1)

    def roots(self, squared):
        """Standard deviations over those for unit scale."""
        return (squared * (self._dof / (self._dof - 2.0))).sqrt()

    def draws(self, n, generator, like):
        """Draw the squared scale over its estimate, `n` times, each for all rows and outputs: (n, 1, 1)."""
        half = 0.5 * self._dof
        return half / gamma(half, (n, 1, 1), generator, like)

    @staticmethod
    def scaled(mean, deviation, squared):
        """Means and deviations (n, n_rows, 2 k) of draws with squared scales (n, n_rows, k)."""
        return (
            torch.cat([mean, squared.log()], -1),
            torch.cat([squared.sqrt() * deviation, torch.zeros_like(squared)], -1),
        )


class ScaleMixture(GaussianMixture):
    """Gaussian noise and functions of one unknown scale, whose mixture is taken here."""

    def __init__(self, variance, scale):
        self.variance, self.scale = variance, scale

    def n_latents(self, n_outputs):
        return 2 * n_outputs

    def dispersed(self, factor, m, v):
        """This mixture with `factor` times the deviations from its means."""
        square, k = factor**2, m.shape[-1] // 2
        return self, torch.cat([m[..., :k], square * m[..., k:]], -1), square * v

    def _variances(self, m, v):
        """Means, and variances of the target for unit mixing."""
        (f, squared), (var, _) = split(m), split(v)
        return f, var / self.scale.mean_mixing + tensor_like(self.variance, m) * squared

    def components(self, m, v):
        f, total = self._variances(m, v)
        log_weights, mixing = self.scale.mixing(f.ndim)
        total = mixing * total
        return log_weights, f.expand_as(total), total

    def moments(self, m, v):
        f, total = self._variances(m, v)
        return f, self.scale.mean_mixing * total

    def log_partition(self, y, m, v, alpha=1.0):
        f, total = self._variances(m, v)
        log_weights, mixing = self.scale.mixing(f.ndim - 1)
        ratio = ((y - f).square() / total).sum(-1)
        log_z = log_weights - 0.5 * (f.shape[-1] * mixing.log() + ratio / mixing)
        return torch.logsumexp(log_z, 0) - 0.5 * (total.log() + LOG_2PI).sum(-1)


def scale_grid(local_scale, n):
    """Base randomness of predictions: a grid of scales, equal for all rows; nothing without a local scale."""
    if local_scale is None:
        return np.zeros((1, 0))
    return np.linspace(-1.0, 1.0, max(n, _FEWEST_SCALES))[:, None]


class LocalScaleModel(Model):
    """Base class of models that hold all training rows, by unique inputs, perhaps with a local scale.

    With `of_outputs`, each output has a local scale of its own, which steps do not change.
    """

    #: of priors that are not given, see :class:`~skdgp.gp.priors.LogNormal`
    _spreads = SPREAD, DEVIATION

    def __init__(self, steps, architecture, likelihood, hidden=(), of_outputs=False):
        super().__init__(steps)
        self.likelihood = Trainable(likelihood)
        has_local_scale = isinstance(likelihood, HeteroscedasticGaussian)
        n_outputs = architecture.n_latents // (2 if has_local_scale else 1)
        rows = RowsLayer(architecture.kernels[-1], architecture.n_features, n_outputs)
        self.layers = Stack([*hidden, rows], architecture.input_connected)
        self.local_scale = None
        if has_local_scale:
            self.local_scale = LocalScale(n_outputs if of_outputs else None)
            self.local_scale.requires_grad_(not of_outputs)
        self._training_rows = None
        self._priors = with_priors(LocalScaleModel._learned(self), *self._spreads)

    @property
    def rows(self):
        """The last layer, which holds the unique inputs."""
        return self.layers[-1]

    def _learned(self):
        """The hyperparameters that have a prior."""
        scale = [] if self.local_scale is None else hyperparameters(self.local_scale, "noise")
        scale = [part for part in scale if part.parameter.requires_grad]
        return self.rows.kernel.hyperparameters() + self.likelihood.hyperparameters() + scale

    def with_priors(self):
        return self._priors

    def given_priors(self):
        return []  # the objective has all priors

    def draws(self, n, seed):
        return scale_grid(self.local_scale, n)

    def hold(self, batch):
        if self._training_rows is None:
            rows = (part.to(self.rows.Z) for part in (batch.X, batch.y, batch.weight))
            self._keep(*gather(*rows, batch.group, batch.forward, batch.noise))

    def _keep(self, unique, training_rows):
        """Take unique inputs, and the rows that they are made of."""
        self.rows.hold(**unique)
        self._training_rows = training_rows

    def training_table(self):
        """Rows, targets and weights that it holds, of distinct rows."""
        return self.rows.Z, self.rows.y, self.rows.weight

    def condition(self, batch, posterior=None):
        """Take these training rows in the place of others; hyperparameters stay.

        The `posterior` of these others may save work if they are among the rows.
        """
        self._training_rows = None
        self.hold(batch)
        self._count_near()

    def _count_near(self):
        if self.local_scale is not None:
            self.local_scale.n_near = min(self.n_neighbors, len(self.rows.Z))

    def load_state(self, arrays):
        if self._training_rows is not None:
            if self.rows.differ(arrays, f"layers.{len(self.layers) - 1}."):
                self._training_rows = None
        super().load_state(arrays)
        self._count_near()


class ScaledPosterior(Posterior):
    """Base class of mixtures of J Gaussian processes, with a local scale or without.

    ``_of_states(X)`` gives means and variances (J, n, k) of pieces of rows and, with `_scale`,
    estimates of its square. Without training rows, `loo` is None.
    """

    @torch.no_grad()
    def __init__(self, model, draws, loo, n_states=1):
        self._loo, self._grid = loo, torch.as_tensor(draws).to(model.rows.Z)[:, :1]
        log_weights, local_scale = model.rows.Z.new_zeros(1), copy.deepcopy(model.local_scale)
        self._local_scale, self._scale = local_scale, None
        if local_scale is not None:
            local_scale.requires_grad_(False)
            self._scale = FrozenScale(local_scale, torch.as_tensor(draws).to(log_weights)[:, 0])
            log_weights = self._scale.log_weights
        log_weights = log_weights.repeat_interleave(n_states) - math.log(n_states)
        super().__init__(*frozen_parts(model), log_weights)

    def latent(self, X):
        parts = self._of_states(X)
        if self._scale is not None:
            parts = starmap(self._scale.components, parts)
        return Latent.of_pieces(self._log_weights, parts)

    def compact(self, X):
        if self._scale is None:
            return super().compact(X)
        parts = list(starmap(self._scale.mixed, self._of_states(X)))
        log_weights = equal_weights(len(parts[0][0]), self._log_weights)
        likelihood = ScaleMixture(self.likelihood.variance, self._scale)
        return Latent.of_pieces(log_weights, parts), likelihood

    def loo_log_density(self, rows, dispersions=None):
        return self.left_out(rows, dispersions)[0]

    @torch.no_grad()
    def left_out_components(self, rows, dispersion=1.0):
        """Weights, means and variances (C, n, k) of the targets of training rows given all others."""
        parts, order = self._loo.parts(np.asarray(rows))
        found = [self._components_of(*part[1:], dispersion) for part in parts]
        order = torch.as_tensor(order, device=self._log_weights.device)
        return tuple(torch.cat(column, 1)[:, order] for column in zip(*found))

    def _components_of(self, mean, sd, z, dispersion):
        mean, var = (part.reshape(-1, *part.shape[-2:]) for part in (mean, (dispersion * sd) ** 2))
        if self._scale is None:
            return torch.full_like(mean, 1.0 / len(mean)), mean, var
        scale = FrozenScale(self._local_scale, self._grid[:, 0], z.shape[-1])
        log_weights, mixing = scale.mixing(3)
        var = (mixing * var * scale.squared(z.reshape(-1, *z.shape[-3:]))).flatten(0, 1)
        weights = log_weights.exp().expand(-1, len(mean), *mean.shape[1:]).flatten(0, 1)
        return weights / len(mean), mean.repeat(len(mixing), 1, 1), var

    @torch.no_grad()
    def left_out(self, rows, dispersions=None):
        if self._loo is None:
            return None, None
        if dispersions is not None:
            dispersions = torch.as_tensor(dispersions).to(self._log_weights)
        parts, order = self._loo.parts(np.asarray(rows))
        parts = list(parts)
        densities = self._loo.log_density(self._local_scale, parts, order, dispersions)
        return densities.numpy(force=True), self._loo.errors(parts, order).numpy(force=True)


class LocalScaleScheme(Scheme):
    """Base class of schemes for all rows at once, with a local scale from near rows."""

    takes_chunks = False
    fewer_draws = False  # a grid is no sample
    leaves_one_out = leaves_groups_out = True
    _serves = "Gaussian noise, of constant or varying size"
    _shallow = True

    auto_noise = "heteroscedastic", "heteroscedastic"

    def batch_size(self, n_rows):
        return n_rows

    def build(self, architecture, likelihood):
        name = type(self).__name__
        if self._shallow and architecture.widths:
            raise ValueError(f"{name} is for shallow models; set n_layers=1.")
        model = self._model_for(likelihood)
        if model is None:
            raise ValueError(
                f"{name} is for {self._serves}; for {type(likelihood).__name__} use inference='dsvi'."
            )
        return model(architecture, likelihood, self)

    def _model_for(self, likelihood):
        """Return the class of the model; None if the scheme has none for this likelihood."""
        raise NotImplementedError

    @staticmethod
    def _is_gaussian(likelihood):
        return isinstance(likelihood, (Gaussian, HeteroscedasticGaussian))
