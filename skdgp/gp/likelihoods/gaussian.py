"""Gaussian noise, of constant variance or of one that is a function of the input."""

import math

import torch

from ...linalg import is_exporting
from ...random import normal
from ..kernels.base import tensor_like
from .base import (
    LARGEST,
    LOG_2PI,
    GaussianMixture,
    components_of_noise,
    constant_noise,
    first_axis,
    log_normal,
    split,
    trapezoid,
)

_WIDE = 8.5  #: standard deviations of the logarithm of a size
_BEYOND = 7.5  #: standard deviations of it on both sides of all modes
_OF_ROUNDING = 1e-10  #: share of the target's variance that is left where there is no noise
_NEGLIGIBLE = 25.0  #: below the largest, in logarithms, an integrand is left out


def _varies(variances):
    """Whether some variances are not zero; a program is for all of them."""
    return is_exporting() or bool(variances.any())


class Gaussian(GaussianMixture):
    r"""Gaussian noise of constant variance.

    Parameters
    ----------
    variance : float, array of shape (n_outputs,) or None, default=None
        Starting value, in squared units of the target. None stands for a twentieth of the target's
        variance.
    trainable : bool or list of str, default=True
        Whether training changes the variance.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.likelihoods import Gaussian
    >>> y, m, v = torch.tensor([[1.0]]), torch.tensor([[0.5]]), torch.tensor([[0.2]])
    >>> Gaussian(variance=0.1).expected_log_prob(y, m, v).numpy().round(4)
    array([-2.0176], dtype=float32)
    """

    _positive, _least_fixed = {"variance": 1e-6}, {"variance": 1e-14}
    _units = {"variance": 2}
    _defaults = {"variance": 0.05}

    def __init__(self, variance=None, trainable=True):
        self.variance = variance
        self.trainable = trainable

    def log_density(self, y, f):
        return log_normal(y, f, tensor_like(self.variance, f))

    def expected_log_prob(self, y, m, v):
        variance = tensor_like(self.variance, m)
        return (-0.5 * (LOG_2PI + variance.log() + ((y - m).square() + v) / variance)).sum(-1)

    def log_partition(self, y, m, v, alpha=1.0):
        variance = tensor_like(self.variance, m)
        spread = alpha * v / variance
        log_z = -0.5 * (
            alpha * (LOG_2PI + variance.log())
            + torch.log1p(spread)
            + alpha * (y - m).square() / (variance * (1.0 + spread))
        )
        return log_z.sum(-1)

    def components(self, m, v):
        return m.new_zeros(()), m[None], (v + tensor_like(self.variance, m))[None]

    def sample(self, f, generator):
        return f + tensor_like(self.variance, f).sqrt() * normal(f.shape, generator, f)


class HeteroscedasticGaussian(GaussianMixture):
    r"""Gaussian noise whose variance is a function of the input: :math:`y \sim N(f, \sigma^2 e^g)`.

    Each output has two latent functions; all :math:`f` come first, then all :math:`g`.

    Parameters
    ----------
    variance : float, array of shape (n_outputs,) or None, default=None
        Starting value of :math:`\sigma^2`, in squared units of the target. None stands for a
        twentieth of the target's variance.
    trainable : bool or list of str, default=True
        Whether training changes :math:`\sigma^2`.
    """

    n_nodes = 36
    n_partition_nodes = 44
    _positive, _least_fixed = Gaussian._positive, Gaussian._least_fixed
    _units, _defaults = Gaussian._units, Gaussian._defaults

    __init__ = Gaussian.__init__

    def n_latents(self, n_outputs):
        return 2 * n_outputs

    def log_prob(self, y, f):
        f, g = split(f)
        return constant_noise(self, Gaussian, g).log_prob(y, f)

    def sample(self, f, generator):
        f, g = split(f)
        return constant_noise(self, Gaussian, g).sample(f, generator)

    def components(self, m, v):
        return components_of_noise(m, v, self._noise_nodes)

    def expected_log_prob(self, y, m, v):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        variance = tensor_like(self.variance, m)
        scaled = ((y - m_f).square() + v_f) * (torch.exp(-m_g + 0.5 * v_g) / variance)
        return (-0.5 * (LOG_2PI + variance.log() + m_g + scaled)).sum(-1)

    def _noise_nodes(self, m_g, v_g):
        # equal steps go further out than as many Gauss-Hermite nodes: far errors belong to large sizes
        n_nodes, reach = (self.n_nodes, _WIDE) if _varies(v_g) else (1, 0.0)  # 1 where it is known
        z, log_weights = trapezoid(n_nodes, reach, m_g)
        g = (m_g + v_g.sqrt() * z).clamp(-LARGEST, LARGEST)
        return log_weights, tensor_like(self.variance, m_g) * g.exp()

    def moments(self, m, v):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        if _varies(v_g):
            return super().moments(m, v)
        # the size of the noise is known: no quadrature
        return m_f, v_f + tensor_like(self.variance, m_g) * m_g.clamp(-LARGEST, LARGEST).exp()

    def log_partition(self, y, m, v, alpha=1.0):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        square = (y - m_f).square()
        if _varies(v_g):
            low, high = self._ends(square, v_f, m_g, v_g, alpha)
            steps = torch.linspace(0.0, 1.0, self.n_partition_nodes, dtype=m.dtype, device=m.device)
            z = torch.lerp(low, high, first_axis(steps, m_g))
            log_weights = torch.log((high - low) * steps[1]) - 0.5 * (z.square() + LOG_2PI)
            g = (m_g + v_g.sqrt() * z).clamp(-LARGEST, LARGEST)
        else:
            g, log_weights = m_g.clamp(-LARGEST, LARGEST)[None], 0.0
        noise = tensor_like(self.variance, m_g) * g.exp()
        # N(y; f, s)^alpha is N(y; f, s / alpha) up to a factor
        total = v_f + noise / alpha
        log_z = log_weights - 0.5 * (total.log() + square / total)
        if alpha != 1.0:
            log_z = log_z + 0.5 * (1.0 - alpha) * noise.log()
        factor = -0.5 * (alpha * LOG_2PI + math.log(alpha))
        return (torch.logsumexp(log_z, 0) + factor).sum(-1)

    @torch.no_grad()
    def _ends(self, square, v_f, m_g, v_g, alpha):
        """Between which standard deviations of `g` the integrand of :meth:`log_partition` matters.

        Its modes are between ``-alpha sd / 2`` and the larger of ``(1 - alpha) sd / 2`` and the only one
        that it has for ``v_f = 0``, where Lambert's function gives it. Far below a mode that explains a large
        error, noise is too small for it.
        """
        square, v_g = square.clamp_min(1e-30), v_g.clamp_min(1e-12)
        sd, scale = v_g.sqrt(), tensor_like(self.variance, m_g)
        log_ratio = square.log() - scale.log() - m_g + math.log(alpha)
        a = (log_ratio + (0.5 * v_g).log() + 0.5 * alpha * v_g).clamp_min(-60.0)
        w = torch.nn.functional.softplus(a)
        for _ in range(3):  # w + log(w) = a
            w = w * (1.0 + a - w.log()) / (1.0 + w)
        mode = w / sd - 0.5 * alpha * sd
        peak = mode.clamp_min(0.0)
        log_noise = scale.log() + m_g + sd * peak
        total = v_f + log_noise.clamp(-LARGEST, LARGEST).exp() / alpha
        largest = (1.0 - alpha) * log_noise - total.log() - square / total - peak.square()
        # below, it is at most a constant + (alpha x - exp(x)) / 2, with the total square / exp(x)
        least = 2.0 * _NEGLIGIBLE - largest - alpha * square.log() + (1.0 - alpha) * math.log(alpha)
        x = least.clamp_min(1.0).log()
        for _ in range(3):  # exp(x) - alpha x = least
            x = torch.log((least + alpha * x).clamp_min(1.0))
        noise = alpha * (square * torch.exp(-x) - v_f)
        tiny = 1e-300 if noise.dtype == torch.float64 else 1e-37
        cut = (noise.clamp_min(tiny).log() - scale.log() - m_g) / sd
        high = torch.maximum(peak, 0.5 * (1.0 - alpha) * sd) + _BEYOND
        low = torch.maximum(cut, -0.5 * alpha * sd - _BEYOND)
        return torch.minimum(low, high - 0.5 * _BEYOND), high


def noiseless():
    """Noise of a local size around next to none, which training leaves: for deterministic runs."""
    likelihood = HeteroscedasticGaussian(trainable=False)
    return likelihood.with_values(_defaults={"variance": _OF_ROUNDING}, is_noiseless=True)
