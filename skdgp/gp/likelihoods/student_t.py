"""Student-t noise, of constant scale or of one that is a function of the input."""

import math

import torch

from ...random import gamma, normal
from ..kernels.base import tensor_like
from .base import (
    LARGEST,
    GaussianMixture,
    components_of_noise,
    constant_noise,
    first_axis,
    hermite,
    split,
)
from .noise_scale_quadrature import noise_scales_of_t
from .t_density import log_t_density

_N_LOGARITHMS = 48  #: nodes for the mean of a logarithm
_MIXING_STEP = 0.4  #: between nodes of a gamma variable's logarithm, at most


def _log_t(square, df, scale):
    """Log-density of Student's t at a squared distance from its center."""
    constant = (
        torch.lgamma(0.5 * (df + 1.0)) - torch.lgamma(0.5 * df) - 0.5 * torch.log(math.pi * df)
    )
    return constant - scale.log() - 0.5 * (df + 1.0) * torch.log1p(square / (df * scale.square()))


def _expected_log1p(m, v, size):
    """``E log(1 + f^2 / size)`` for ``f ~ N(m, v)``, element by element.

    Let `r` be the mean of ``f^2 / size``. The result is ``log(1 + r)`` plus the integral of
    ``(exp(-t r) - E exp(-t f^2 / size)) exp(-t) / t`` over `t` from 0 on. The expectation in it has
    a closed form. The trapezoidal rule in log(t) has errors of 1e-6 at most where standard
    deviations are up to 10,000 times the root of `size`. The poles of the logarithm are far from
    its nodes, but close to nodes over `f`.
    """
    ratio = (m.square() + v) / size
    width = torch.log1p(ratio.detach())
    step = (13.5 + width) / (_N_LOGARITHMS - 1)
    nodes = torch.arange(_N_LOGARITHMS, dtype=m.dtype, device=m.device)
    t = torch.exp(step * first_axis(nodes, ratio) - 10.0 - width)
    spread = 1.0 + 2.0 * t * (v / size)
    expected = spread.rsqrt() * torch.exp(-t * (m.square() / size) / spread)
    change = (torch.exp(-t * ratio) - expected) * torch.exp(-t)
    return torch.log1p(ratio) + step * change.sum(0)


def _mixing(df, like):
    """Nodes log(l) and their log-weights, for l that follows Gamma(df / 2, df / 2).

    Student's t is a mixture of N(f, scale^2 / l) over l. The trapezoidal rule in log(l) converges
    exponentially; with the lowest node at -24 it is right to 1e4 scales.
    """
    log_l = torch.arange(-24.0, 4.0, _MIXING_STEP, dtype=df.dtype, device=df.device)
    spread = (8.0 / df.detach()).sqrt().clamp_max(1.0)  # of log(l), for many degrees of freedom
    log_l = first_axis(log_l, like) * spread
    log_weights = 0.5 * df * (log_l - log_l.exp())
    return log_l, log_weights - torch.logsumexp(log_weights, 0)


def _log_t_partition(y, m, v, df, scale, alpha):
    """``log E t(y; f, df, scale)^alpha`` for ``f ~ N(m, v)``, element by element."""
    # (1 + x)^-b is the mean of exp(-l b x) over l ~ Gamma(b, b). For small b, log(l) has a long
    # tail below, where y does not matter any more: there the rule has only a weight, in closed form.
    b = 0.5 * alpha * (df + 1.0)
    step = 0.4 * float((4.0 / b.detach()).sqrt().clamp_max(1.0).min())
    log_l = torch.arange(-24.0, 4.0, step, dtype=m.dtype, device=m.device)
    log_l = first_axis(log_l, m) - b.detach().clamp_max(1.0).log()
    log_weights = b * (log_l - log_l.exp()) - b * log_l[0]
    log_tail = -b * step - torch.log(-torch.expm1(-b * step))
    precision = 2.0 * b * log_l.exp() / (df * scale.square())
    spread = 1.0 + precision * v
    log_z = log_weights - 0.5 * (spread.log() + precision * (y - m).square() / spread)
    log_tail = log_tail.expand_as(log_z[:1])
    log_z = torch.logsumexp(torch.cat([log_z, log_tail]), 0)
    total = torch.cat([log_weights.expand(len(log_l), *m.shape), log_tail])
    return log_z - torch.logsumexp(total, 0) + alpha * _log_t(torch.zeros_like(m), df, scale)


class StudentT(GaussianMixture):
    r"""Student-t noise, for targets with outliers.

    Parameters
    ----------
    df : float, default=6.0
        Starting value of the degrees of freedom, larger than 2 so that the variance exists.
    scale : float, array of shape (n_outputs,) or None, default=None
        Starting value of the scale, in units of the target. None stands for a fifth of the target's
        standard deviation.
    trainable : bool or list of str, default=True
        Whether training changes both, or the names of those that it changes.
    """

    _positive = {"df": 2.0, "scale": 1e-4}
    _units = {"scale": 1}
    _defaults = {"scale": 0.2}

    def __init__(self, df=6.0, scale=None, trainable=True):
        self.df = df
        self.scale = scale
        self.trainable = trainable

    def log_density(self, y, f):
        return _log_t((y - f).square(), tensor_like(self.df, f), tensor_like(self.scale, f))

    def expected_log_prob(self, y, m, v):
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        spread = _expected_log1p(y - m, v, df * scale.square())
        return (_log_t(torch.zeros_like(m), df, scale) - 0.5 * (df + 1.0) * spread).sum(-1)

    def components(self, m, v):
        log_l, log_weights = _mixing(tensor_like(self.df, m), m)
        variances = v + tensor_like(self.scale, m).square() * torch.exp(-log_l)
        return log_weights, m.expand_as(variances), variances

    def log_partition(self, y, m, v, alpha=1.0):
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        if alpha != 1.0:
            return _log_t_partition(y, m, v, df, scale, alpha).sum(-1)
        return log_t_density(y - m, v, df, scale.square()).sum(-1)

    def moments(self, m, v):
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        return m, v + scale.square() * df / (df - 2.0)

    def sample(self, f, generator):
        df, scale = tensor_like(self.df, f), tensor_like(self.scale, f)
        mixing = gamma(0.5 * df, f.shape, generator, f) / (0.5 * df)
        return f + scale * normal(f.shape, generator, f) / mixing.sqrt()


class HeteroscedasticStudentT(GaussianMixture):
    r"""Student-t noise whose scale is a function of the input: :math:`y = f + s\, e^{g/2}\, t_\nu`.

    The noise differs from place to place and has heavier tails than a Gaussian. The tails allow for
    errors in the size of the noise, also where its posterior is narrow. Each output has two latent
    functions; all :math:`f` come first, then all :math:`g`.

    Parameters
    ----------
    df : float, default=6.0
        Starting value of the degrees of freedom, larger than 2.1 so that the variance exists.
    scale : float, array of shape (n_outputs,) or None, default=None
        Starting value of the scale :math:`s`, in units of the target. None stands for a fifth of the
        target's standard deviation.
    trainable : bool or list of str, default=True
        Whether training changes both, or the names of those that it changes.

    Notes
    -----
    The expected log-likelihood is replaced by a lower bound in closed form, and the lower bound of the
    marginal likelihood stays one: t noise is Gaussian noise of variance :math:`s^2 e^g / l` with
    :math:`l \sim \mathrm{Gamma}(\nu/2, \nu/2)`, and the lower bound is that of the best posterior of
    :math:`l` for each row.
    """

    n_nodes = 20  #: of powers of the density
    _positive = {"df": 2.1, "scale": 1e-4}
    _units, _defaults = StudentT._units, StudentT._defaults

    __init__ = StudentT.__init__

    def n_latents(self, n_outputs):
        return 2 * n_outputs

    def log_prob(self, y, f):
        f, g = split(f)
        return constant_noise(self, StudentT, g).log_prob(y, f)

    def sample(self, f, generator):
        f, g = split(f)
        return constant_noise(self, StudentT, g).sample(f, generator)

    def components(self, m, v):
        return components_of_noise(m, v, self._noise_nodes)

    def expected_log_prob(self, y, m, v):
        """A lower bound of ``E log p(y | f)`` for ``f ~ N(m, v)``, shape (..., n)."""
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        # -log(1 + x / df) is convex in x: the mean of x may go inside
        square = ((y - m_f).square() + v_f) * torch.exp(0.5 * v_g - m_g)
        return (_log_t(square, df, scale) - 0.5 * m_g).sum(-1)

    def _noise_nodes(self, m_g, v_g):  # good to 1e-5 up to v_g = 6
        df, scale2 = tensor_like(self.df, m_g), tensor_like(self.scale, m_g).square()
        u, log_weights = noise_scales_of_t(df, v_g)
        return log_weights, scale2 * (m_g + u).clamp(-LARGEST, LARGEST).exp()

    def log_partition(self, y, m, v, alpha=1.0):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        if alpha == 1.0:
            scale2 = scale.square() * m_g.clamp(-LARGEST, LARGEST).exp()
            return log_t_density(y - m_f, v_f, df, scale2, v_g).sum(-1)
        nodes, log_weights = hermite(self.n_nodes, m_g)
        g = (m_g + v_g.sqrt() * nodes).clamp(-LARGEST, LARGEST)
        scales = scale * torch.exp(0.5 * g)
        log_z = _log_t_partition(y, m_f.expand_as(g), v_f, df, scales, alpha)
        return torch.logsumexp(log_weights + log_z, 0).sum(-1)

    def moments(self, m, v):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        size = torch.exp((m_g + 0.5 * v_g).clamp_max(LARGEST))
        return m_f, v_f + scale.square() * size * df / (df - 2.0)
