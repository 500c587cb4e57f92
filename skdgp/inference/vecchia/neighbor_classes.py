"""Nearest-neighbor Gaussian processes for classes."""

import math

import torch
from torch import nn

from .neighbors import NeighborGP

_START_CONCENTRATION = 0.1


class NeighborClasses(NeighborGP):
    r"""The model that :class:`Vecchia` builds for classes.

    A unique input with :math:`n_c` rows of class `c` says of its class probabilities that they are
    Dirichlet with concentrations :math:`n_c + \alpha`, and so of the logarithm of the gamma variable of
    each class, approximately, that it is normal with (Milios et al., 2018)

    .. math:: s_c^2 = \log(1 + 1 / (n_c + \alpha)), \qquad y_c = \log(n_c + \alpha) - s_c^2 / 2.

    So there is a GP regression for each class, all with one kernel. From its moments `m` and `v` at
    a row the latent functions are :math:`b_c + t m_c` with variances :math:`u v_c`; for two classes in one
    latent function, their difference. The hyperparameters :math:`\alpha, b, t, u` are learned with those of the
    kernel. The priors are those of :class:`NeighborGP`; but `b` has a normal one around the logarithms of
    the shares of the classes, which is what is predicted far from all rows.

    References
    ----------
    D. Milios, R. Camoriano, P. Michiardi, L. Rosasco and M. Filippone (2018). Dirichlet-based Gaussian
    processes for large-scale calibrated classification. Advances in Neural Information Processing
    Systems 31.
    """

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(architecture, likelihood, scheme)
        n_classes = max(2, architecture.n_latents)
        rows = self.rows
        rows.y = rows.y.new_empty(0, n_classes)
        self._one_latent = architecture.n_latents == 1
        zero = torch.zeros((), dtype=torch.float64)
        self.log_concentration = nn.Parameter(zero + math.log(_START_CONCENTRATION))
        self.log_slope, self.log_factor = nn.Parameter(zero.clone()), nn.Parameter(zero.clone())
        self.log_prior = nn.Parameter(zero.expand(n_classes).clone())
        self._medians = [number.detach().clone() for number in self._hyperparameters()]

    def _hyperparameters(self):
        """All that have a prior; the constants come last."""
        own = self.log_concentration, self.log_slope, self.log_factor, self.log_prior
        return [*self.rows.kernel.parameters(), *own]

    def _hold(self, batch):
        if self._training_rows is not None:
            return
        is_new, n_classes = len(self.rows.Z) == 0, len(self.log_prior)
        y = nn.functional.one_hot(batch.y[:, 0].long(), n_classes)
        super()._hold(batch._replace(y=y))
        counts = (batch.weight[:, None] * y).sum(0) + 1.0
        self._medians[-1] = torch.log(counts / counts.sum())
        if is_new:
            with torch.no_grad():
                self.log_prior.copy_(self._medians[-1])

    def _seen(self, y, weight):
        counts = (y * weight[..., None]).clamp_min(0.0) + self.log_concentration.exp()
        variance = torch.log1p(1.0 / counts)
        return counts.log() - 0.5 * variance - self.log_prior, variance.mT

    def _own_noise(self, like):
        return like.new_zeros(len(self.log_prior))

    def _values(self, value):
        """Values of the latent functions from those of the regressions."""
        value = self.log_prior + self.log_slope.exp() * value
        return value[..., 1:] - value[..., :1] if self._one_latent else value

    def _variances(self, variance):
        """The same for variances."""
        variance = self.log_factor.exp() * variance
        return variance.sum(-1, keepdim=True) if self._one_latent else variance

    def _log_density(self, y, mean, sd, z):
        label = y.argmax(-1, keepdim=True).to(mean)
        m, v = self._values(mean), self._variances(sd.square())
        likelihood = self.likelihood()
        if not torch.is_grad_enabled():  # leave-one-out for good
            likelihood = likelihood.for_prediction(1)
        return likelihood.log_partition(label, m, v)

    def _moments(self, X, nearest, mixing):
        mean, sd, _, _ = self._given_neighbors(X, nearest)
        return self._values(mean)[None], self._variances(sd.square())[None]

    def _path(self, mean, deviation):
        spread = (0.5 * self.log_factor - self.log_slope).exp()
        return self._values(mean + spread * deviation)
