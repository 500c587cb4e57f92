"""Counts that come in clusters."""

from itertools import pairwise

import torch
from scipy import special

from ...quadrature import gauss_legendre, peak
from ...random import gamma
from ..kernels.base import tensor_like
from .base import LARGEST, LOG_2PI, first_axis
from .counts import RAREST, Counts, exposed


class NegativeBinomial(Counts):
    r"""Counts with mean :math:`\mu = r e^f` and variance :math:`\mu + a \mu^2`.

    A Poisson variable whose rate varies like a gamma variable of variance :math:`a` around the
    prediction: counts that come in clusters. Many zeros beside large counts are a sign of a large :math:`a`.
    Where zeros have a cause of their own, let a classifier tell them from other counts, and model those alone.

    Parameters
    ----------
    rate : float, array of shape (n_outputs,) or None, default=None
        Starting value of :math:`r`; None stands for the mean of the target.
    overdispersion : float, array of shape (n_outputs,) or None, default=None
        Starting value of :math:`a`, larger than 1e-4; with 0 it would be the Poisson distribution. None stands
        for half of what explains the variance of the target without a model, between 0.05 and 1.
    trainable : bool or list of str, default=True
        Whether training changes both, or the names of those that it changes.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.likelihoods import NegativeBinomial
    >>> likelihood = NegativeBinomial(rate=2.0, overdispersion=0.5)
    >>> likelihood.log_prob(torch.tensor([[3.0]]), torch.tensor([[0.0]])).numpy().round(4)
    array([-2.0794], dtype=float32)
    """

    n_nodes = 56  # its logarithm has poles at a distance of pi from the real line
    _positive = {"rate": 0.0, "overdispersion": 1e-4}

    def __init__(self, rate=None, overdispersion=None, trainable=True):
        self.rate = rate
        self.overdispersion = overdispersion
        self.trainable = trainable

    def log_density(self, y, f):
        y, f = exposed(y, f)
        size = self._size(f)
        x = self._log_rate(f) - size.log()
        log_choose = torch.lgamma(y + size) - torch.lgamma(size) - torch.lgamma(y + 1.0)
        return log_choose + y * x - (y + size) * torch.nn.functional.softplus(x)

    def log_partition(self, y, m, v, alpha=1.0):
        y, m = exposed(y, m)
        # p(y | f)^alpha N(f; m, v) is log-concave, and falls from its mode faster than a Gaussian of variance v
        with torch.no_grad():
            size, sd = self._size(m), v.sqrt()
            shift = self._log_rate(m) - size.log() - m

            def log_joint(f):
                x = f + shift
                log_p = y * x - (y + size) * torch.nn.functional.softplus(x)
                return alpha * log_p - 0.5 * (f - m).square() / v

            def rises(f):
                return alpha * (y - (y + size) * torch.sigmoid(f + shift)) > (f - m) / v

            ends = m - alpha * v * size, m + alpha * v * y
            low, mode, high = peak(log_joint, rises, *ends, sd)
        nodes, weights = (first_axis(part, m) for part in gauss_legendre(self.n_nodes // 2, m))
        nodes, log_weights = 0.5 * (1.0 + nodes), (0.5 * weights).log()
        log_z = []
        for a, b in pairwise((low, mode, high)):
            f = torch.lerp(a, b, nodes)
            log_p = alpha * self.log_density(y, f) - 0.5 * (f - m).square() / v
            log_z.append(log_p + log_weights + (b - a).clamp_min(torch.finfo(m.dtype).tiny).log())
        return (torch.logsumexp(torch.cat(log_z), 0) - 0.5 * (LOG_2PI + v.log())).sum(-1)

    def _incomplete(self, n, log_rate, size, above=False):
        n, size = (tensor_like(part, log_rate) for part in (n, size))
        odds = (log_rate - size.log()) * (1.0 if above else -1.0)
        shapes = (n, size) if above else (size, n)
        parts = (part.cpu().numpy() for part in (*shapes, torch.sigmoid(odds)))
        return torch.as_tensor(special.betainc(*parts)).to(log_rate)

    def _ratio(self, log_rate, size):
        size = tensor_like(size, log_rate)
        most = RAREST / size
        odds = torch.minimum(log_rate - size.log(), most + torch.log(-torch.expm1(-most)))
        none = torch.exp(-size * torch.nn.functional.softplus(odds))
        return none, size * torch.sigmoid(odds)

    def _log_density(self, shape, size, d):
        # what is left of large shapes that cancel: of the smaller one
        k, d = shape.clamp_max(size), torch.where(shape < size, d, -d)
        total = shape + size
        return k * d - total * torch.log1p(k / total * torch.expm1(d))

    def sample(self, f, generator):
        a = tensor_like(self.overdispersion, f)
        log_rate = self._log_rate(f).clamp_max(LARGEST)
        mixing = gamma(1.0 / a, f.shape, generator, f) * a
        return self._draw(log_rate.exp() * mixing, generator, f)
