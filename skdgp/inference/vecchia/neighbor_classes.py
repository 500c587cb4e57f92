"""Nearest-neighbor Gaussian processes for classes."""

import copy
import math

import torch
from torch import nn

from ...gp.component import Hyperparameter
from ...gp.priors import with_priors
from .neighbors import NeighborGP

_START_CONCENTRATION = 0.1  #: of the Dirichlet distribution a priori


class NeighborClasses(NeighborGP):
    r"""The model that :class:`Vecchia` builds for classes.

    Given :math:`n_c` rows of class `c`, the class probabilities of a unique input have a Dirichlet
    distribution with concentrations :math:`n_c + \alpha`. The logarithm of the gamma variable of each class
    is then approximately normal, with (Milios et al., 2018)

    .. math:: s_c^2 = \log(1 + 1 / (n_c + \alpha)), \qquad y_c = \log(n_c + \alpha) - s_c^2 / 2.

    So there is a GP regression for each class, all with one kernel. From its moments `m` and `v` at
    a row the latent functions are :math:`b_c + t m_c` with variances :math:`u v_c`; for two classes in one
    latent function, their difference. The hyperparameters :math:`\alpha, b, t, u` are learned with those of the
    kernel. The priors are those of :class:`NeighborGP`; but `b` has a normal one around the logarithms of
    the shares of the classes, which are the predictions far from all rows.
    """

    _own = ("log_concentration", "log_slope", "log_factor", "log_prior")
    roles = {**NeighborGP.roles, **dict.fromkeys(_own, "noise")}

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(architecture, likelihood, scheme)
        n_classes = max(2, architecture.n_latents)
        self.rows.y = self.rows.y.new_empty(0, n_classes)
        self._one_latent = architecture.n_latents == 1
        zero = torch.zeros((), dtype=torch.float64)
        self.log_concentration = nn.Parameter(zero + math.log(_START_CONCENTRATION))
        self.log_slope, self.log_factor = nn.Parameter(zero.clone()), nn.Parameter(zero.clone())
        self.log_prior = nn.Parameter(zero.expand(n_classes).clone())
        own = [Hyperparameter(name, "noise", getattr(self, name)) for name in self._own]
        self._priors = with_priors(self.rows.kernel.hyperparameters() + own, *self._spreads)

    def hold(self, batch):
        if self._training_rows is not None:
            return
        is_new, n_classes = len(self.rows.Z) == 0, len(self.log_prior)
        y = nn.functional.one_hot(batch.y[:, 0].long(), n_classes)
        super().hold(batch._replace(y=y))
        counts = (batch.weight[:, None] * y).sum(0) + 1.0
        center, last = torch.log(counts / counts.sum()), self._priors[-1]  # of the constants
        self._priors[-1] = last._replace(prior=last.prior.around(center))
        if is_new:
            with torch.no_grad():
                self.log_prior.copy_(center)

    def _observed(self):
        own = self.log_concentration, self.log_slope, self.log_factor
        return DirichletTargets(*(p.exp() for p in own), 1.0 * self.log_prior, self._one_latent)

    def _log_density(self):
        likelihood, observed = self.likelihood(), self._observed()
        if not torch.is_grad_enabled():  # leave-one-out for good
            likelihood = copy.deepcopy(self.likelihood)().for_prediction(1)

        def log_density(local_scale, y, mean, sd, z):
            label = y.argmax(-1, keepdim=True).to(mean)
            return likelihood.log_partition(label, *observed.latents(mean, sd.square()))

        return log_density


class DirichletTargets:
    """Counts of classes as targets of a regression for each class."""

    def __init__(self, concentration, slope, factor, log_prior, one_latent):
        self._concentration, self._slope, self._factor = concentration, slope, factor
        self._log_prior, self._one_latent = log_prior, one_latent
        self.noise = torch.zeros_like(log_prior)

    def targets(self, y, weight):
        """As of :class:`~skdgp.inference.near_rows.GaussianTargets`."""
        counts = (y * weight[..., None]).clamp_min(0.0) + self._concentration
        variance = torch.log1p(1.0 / counts)
        return counts.log() - 0.5 * variance - self._log_prior, variance.mT

    def latents(self, mean, var):
        """Likewise."""
        mean, var = self._log_prior + self._slope * mean, self._factor * var
        if self._one_latent:
            return mean[..., 1:] - mean[..., :1], var.sum(-1, keepdim=True)
        return mean, var

    def values(self, mean, deviation):
        """Likewise."""
        mean, deviation = self._log_prior + self._slope * mean, self._factor.sqrt() * deviation
        if self._one_latent:
            return mean[..., 1:] - mean[..., :1], deviation[..., 1:] - deviation[..., :1]
        return mean, deviation
