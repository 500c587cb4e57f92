"""Likelihoods of real numbers and counts."""

import math

import numpy as np
import torch

from ...quadrature import gauss_hermite
from ...random import gamma, normal
from ..kernels.base import tensor_like
from .base import Likelihood, OneLatent, split
from .noise_scale_quadrature import noise_scales_of_t

_LOG_2PI = math.log(2.0 * math.pi)
_LARGEST = 300.0  #: bound on logarithms whose exponentials are added up
_N_GAMMAS = 62  #: steps of a rule for them
_N_LOGARITHMS = 48  #: nodes for the mean of a logarithm
_WIDE = 8.5  #: standard deviations of the logarithm of a size
_BEYOND = 7.5  #: standard deviations of it on both sides of all modes
_NEGLIGIBLE = 25.0  #: below the largest, in logarithms, an integrand is left out
_LONG = 1e18  #: counts to which samples are integers
_MIXING_STEP = 0.4  #: between nodes of a gamma variable's logarithm, at most
_NEWTON = 30  #: iterations, from a start where they converge monotonically


def _log_normal(y, mean, var):
    return -0.5 * (_LOG_2PI + var.log() + (y - mean).square() / var)


def _size_nodes(m_g, v_g, n_nodes):
    """Nodes for the logarithm of the size of noise, and their log-weights."""
    nodes, log_weights = gauss_hermite(n_nodes if v_g.any() else 1, m_g)  # 1 where it is known
    shape = (-1,) + (1,) * m_g.ndim
    g = (m_g + v_g.sqrt() * nodes.view(shape)).clamp(-_LARGEST, _LARGEST)
    return g, log_weights.view(shape)


class GaussianMixture(Likelihood):
    """Likelihoods under which `y`, given latent moments, is a finite mixture of Gaussians.

    A subclass gives :meth:`components`.
    """

    scales_target = True

    def components(self, m, v):
        """The mixture that `y` follows given latent moments.

        Returns
        -------
        log_weights : tensor that broadcasts against `means`
        means, variances : tensors of shape (c, ..., n, k)
        """
        raise NotImplementedError

    def log_partition(self, y, m, v, alpha=1.0):
        if alpha != 1.0:
            return super().log_partition(y, m, v, alpha)
        log_weights, means, variances = self.components(m, v)
        return torch.logsumexp(log_weights + _log_normal(y, means, variances), 0).sum(-1)

    def moments(self, m, v):
        """Mean and variance of `y`, shape (..., n, k)."""
        log_weights, means, variances = self.components(m, v)
        weights = log_weights.exp()
        mean = (weights * means).sum(0)
        return mean, (weights * (variances + (means - mean).square())).sum(0)

    def cdf(self, y, m, v):
        """Distribution function of `y`, shape (..., n, k)."""
        log_weights, means, variances = self.components(m, v)
        return (log_weights.exp() * torch.special.ndtr((y - means) / variances.sqrt())).sum(0)


class Gaussian(GaussianMixture, OneLatent):
    r"""Gaussian noise of constant variance.

    Parameters
    ----------
    variance : float, array of shape (n_outputs,) or None, default=None
        Starting value, in squared units of the target. None stands for a twentieth of the target's
        variance.
    trainable : bool, default=True
        Whether training changes the variance.

    Examples
    --------
    >>> import torch
    >>> from skdgp.gp.likelihoods import Gaussian
    >>> y, m, v = torch.tensor([[1.0]]), torch.tensor([[0.5]]), torch.tensor([[0.2]])
    >>> Gaussian(variance=0.1).expected_log_prob(y, m, v).numpy().round(4)
    array([-2.0176], dtype=float32)
    """

    _positive = {"variance": 1e-6}
    _units = {"variance": 2}
    _defaults = {"variance": 0.05}

    def __init__(self, variance=None, trainable=True):
        self.variance = variance
        self.trainable = trainable

    def log_density(self, y, f):
        return _log_normal(y, f, tensor_like(self.variance, f))

    def expected_log_prob(self, y, m, v):
        variance = tensor_like(self.variance, m)
        return (-0.5 * (_LOG_2PI + variance.log() + ((y - m).square() + v) / variance)).sum(-1)

    def log_partition(self, y, m, v, alpha=1.0):
        variance = tensor_like(self.variance, m)
        spread = alpha * v / variance
        log_z = -0.5 * (
            alpha * (_LOG_2PI + variance.log())
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
    trainable : bool, default=True
        Whether training changes :math:`\sigma^2`.
    """

    n_nodes = 36
    n_partition_nodes = 44
    _positive = {"variance": 1e-6}
    _units = {"variance": 2}
    _defaults = {"variance": 0.05}

    def __init__(self, variance=None, trainable=True):
        self.variance = variance
        self.trainable = trainable

    def n_latents(self, n_outputs):
        return 2 * n_outputs

    def log_prob(self, y, f):
        f, g = split(f)
        return _log_normal(y, f, tensor_like(self.variance, f) * g.exp()).sum(-1)

    def expected_log_prob(self, y, m, v):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        variance = tensor_like(self.variance, m)
        precision = torch.exp(-m_g + 0.5 * v_g) / variance
        return (
            -0.5 * (_LOG_2PI + variance.log() + m_g + precision * ((y - m_f).square() + v_f))
        ).sum(-1)

    def _noise_nodes(self, m_g, v_g):
        # equal steps go further out than as many Gauss-Hermite nodes: far errors tell of large sizes
        n_nodes, reach = (self.n_nodes, _WIDE) if v_g.any() else (1, 0.0)  # 1 where it is known
        z = torch.linspace(-reach, reach, n_nodes, dtype=m_g.dtype, device=m_g.device)
        z = z.view((-1,) + (1,) * m_g.ndim)
        g = (m_g + v_g.sqrt() * z).clamp(-_LARGEST, _LARGEST)
        log_weights = torch.log_softmax(-0.5 * z.square(), 0)
        return log_weights, tensor_like(self.variance, m_g) * g.exp()

    def components(self, m, v):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        log_weights, noise = self._noise_nodes(m_g, v_g)
        return log_weights, m_f.expand_as(noise), v_f + noise

    def log_partition(self, y, m, v, alpha=1.0):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        square = (y - m_f).square()
        if v_g.any():
            low, high = self._ends(square, v_f, m_g, v_g, alpha)
            steps = torch.linspace(0.0, 1.0, self.n_partition_nodes, dtype=m.dtype, device=m.device)
            z = torch.lerp(low, high, steps.view((-1,) + (1,) * m_g.ndim))
            log_weights = torch.log((high - low) * steps[1]) - 0.5 * (z.square() + _LOG_2PI)
            g = (m_g + v_g.sqrt() * z).clamp(-_LARGEST, _LARGEST)
        else:
            g, log_weights = m_g.clamp(-_LARGEST, _LARGEST)[None], 0.0
        noise = tensor_like(self.variance, m_g) * g.exp()
        # N(y; f, s)^alpha is N(y; f, s / alpha) up to a factor
        total = v_f + noise / alpha
        log_z = log_weights - 0.5 * (total.log() + square / total)
        if alpha != 1.0:
            log_z = log_z + 0.5 * (1.0 - alpha) * noise.log()
        factor = -0.5 * (alpha * _LOG_2PI + math.log(alpha))
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
        total = v_f + log_noise.clamp(-_LARGEST, _LARGEST).exp() / alpha
        largest = (1.0 - alpha) * log_noise - total.log() - square / total - peak.square()
        # below, it is at most a constant + (alpha x - exp(x)) / 2, with the total square / exp(x)
        least = 2.0 * _NEGLIGIBLE - largest - alpha * square.log() + (1.0 - alpha) * math.log(alpha)
        x = least.clamp_min(1.0).log()
        for _ in range(3):  # exp(x) - alpha x = least
            x = torch.log((least + alpha * x).clamp_min(1.0))
        noise = alpha * (square * torch.exp(-x) - v_f)
        cut = (
            noise.clamp_min(1e-300 if noise.dtype == torch.float64 else 1e-37).log()
            - scale.log()
            - m_g
        ) / sd
        high = torch.maximum(peak, 0.5 * (1.0 - alpha) * sd) + _BEYOND
        low = torch.maximum(cut, -0.5 * alpha * sd - _BEYOND)
        return torch.minimum(low, high - 0.5 * _BEYOND), high

    def sample(self, f, generator):
        f, g = split(f)
        return f + (tensor_like(self.variance, f) * g.exp()).sqrt() * normal(f.shape, generator, f)


def _log_t(square, df, scale):
    """Log-density of Student's t at a squared distance from its center."""
    constant = (
        torch.lgamma(0.5 * (df + 1.0)) - torch.lgamma(0.5 * df) - 0.5 * torch.log(math.pi * df)
    )
    return constant - scale.log() - 0.5 * (df + 1.0) * torch.log1p(square / (df * scale.square()))


def _expected_log1p(m, v, size):
    """``E log(1 + f^2 / size)`` for ``f ~ N(m, v)``, element by element.

    The mean of the square goes inside by an integral that makes up for it, of
    ``(exp(-t r) - E exp(-t f^2 / size)) exp(-t) / t`` over `t` from 0 on, where `r` is that mean;
    the expectation has a closed form. The trapezoidal rule in log(t) has errors of 1e-6 at most where
    standard deviations are up to 10,000 times the root of `size`, since the poles of the logarithm
    are nowhere near, as they are to nodes over `f`.
    """
    ratio = (m.square() + v) / size
    width = torch.log1p(ratio.detach())
    step = (13.5 + width) / (_N_LOGARITHMS - 1)
    nodes = torch.arange(_N_LOGARITHMS, dtype=m.dtype, device=m.device)
    nodes = nodes.view((-1,) + (1,) * ratio.ndim)
    t = torch.exp(step * nodes - 10.0 - width)
    spread = 1.0 + 2.0 * t * (v / size)
    expected = spread.rsqrt() * torch.exp(-t * (m.square() / size) / spread)
    change = (torch.exp(-t * ratio) - expected) * torch.exp(-t)
    return torch.log1p(ratio) + step * change.sum(0)


def _mixing(df, ndim, lowest=-24.0):
    """Nodes log(l) and their log-weights, for l that follows Gamma(df / 2, df / 2).

    Student's t is a mixture of N(f, scale^2 / l) over l. The trapezoidal rule in log(l) converges
    exponentially; with the lowest node at -24 it reaches tails of 1e4 scales.
    """
    log_l = torch.arange(lowest, 4.0, _MIXING_STEP, dtype=df.dtype, device=df.device)
    spread = (8.0 / df.detach()).sqrt().clamp_max(1.0)  # of log(l), for many degrees of freedom
    log_l = log_l.view((-1,) + (1,) * ndim) * spread
    log_weights = 0.5 * df * (log_l - log_l.exp())
    return log_l, log_weights - torch.logsumexp(log_weights, 0)


def _log_t_partition(y, m, v, df, scale, alpha):
    """``log E t(y; f, df, scale)^alpha`` for ``f ~ N(m, v)``, element by element."""
    # (1 + x)^-b is the mean of exp(-l b x) over l ~ Gamma(b, b). For small b, log(l) has a long
    # tail below, where y does not matter any more: there the rule has only a weight, in closed form.
    b = 0.5 * alpha * (df + 1.0)
    step = 0.4 * float((4.0 / b.detach()).sqrt().clamp_max(1.0).min())
    log_l = torch.arange(-24.0, 4.0, step, dtype=m.dtype, device=m.device)
    log_l = log_l.view((-1,) + (1,) * m.ndim) - b.detach().clamp_max(1.0).log()
    log_weights = b * (log_l - log_l.exp()) - b * log_l[0]
    log_tail = -b * step - torch.log(-torch.expm1(-b * step))
    precision = 2.0 * b * log_l.exp() / (df * scale.square())
    spread = 1.0 + precision * v
    log_z = log_weights - 0.5 * (spread.log() + precision * (y - m).square() / spread)
    log_tail = log_tail.expand_as(log_z[:1])
    log_z = torch.logsumexp(torch.cat([log_z, log_tail]), 0)
    total = torch.cat([log_weights.expand(len(log_l), *m.shape), log_tail])
    return log_z - torch.logsumexp(total, 0) + alpha * _log_t(torch.zeros_like(m), df, scale)


class StudentT(GaussianMixture, OneLatent):
    r"""Student-t noise, for targets with outliers.

    Parameters
    ----------
    df : float, default=4.0
        Starting value of the degrees of freedom, larger than 2 so that the variance exists.
    scale : float, array of shape (n_outputs,) or None, default=None
        Starting value of the scale, in units of the target. None stands for a fifth of the target's
        standard deviation.
    trainable : bool, default=True
        Whether training changes both.
    """

    _positive = {"df": 2.0, "scale": 1e-4}
    _units = {"scale": 1}
    _defaults = {"scale": 0.2}

    def __init__(self, df=4.0, scale=None, trainable=True):
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
        log_l, log_weights = _mixing(tensor_like(self.df, m), m.ndim)
        variances = v + tensor_like(self.scale, m).square() * torch.exp(-log_l)
        return log_weights, m.expand_as(variances), variances

    def log_partition(self, y, m, v, alpha=1.0):
        if alpha == 1.0:
            return super().log_partition(y, m, v)
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        return _log_t_partition(y, m, v, df, scale, alpha).sum(-1)

    def moments(self, m, v):
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        return m, v + scale.square() * df / (df - 2.0)

    def sample(self, f, generator):
        return _sample_t(f, tensor_like(self.df, f), tensor_like(self.scale, f), generator)


def _sample_t(f, df, scale, generator):
    mixing = gamma(0.5 * df, f.shape, generator, f) / (0.5 * df)
    return f + scale * normal(f.shape, generator, f) / mixing.sqrt()


class HeteroscedasticStudentT(GaussianMixture):
    r"""Student-t noise whose scale is a function of the input: :math:`y = f + s\, e^{g/2}\, t_\nu`.

    Noise that differs from place to place, with heavier tails than a Gaussian: where the model
    thinks that it knows the size of the noise, it may still be wrong. Each output has two latent
    functions; all :math:`f` come first, then all :math:`g`.

    Parameters
    ----------
    df : float, default=4.0
        Starting value of the degrees of freedom, larger than 2.1 so that the variance exists.
    scale : float, array of shape (n_outputs,) or None, default=None
        Starting value of the scale :math:`s`, in units of the target. None stands for a fifth of the
        target's standard deviation.
    trainable : bool, default=True
        Whether training changes both.

    Notes
    -----
    The expected log-likelihood is replaced by a lower bound in closed form, and the lower bound of the
    marginal likelihood stays one: t noise is Gaussian noise of variance :math:`s^2 e^g / l` with
    :math:`l \sim \mathrm{Gamma}(\nu/2, \nu/2)`, and the lower bound is that of the best posterior of
    :math:`l` for each row.
    """

    n_nodes = 12
    _positive = {"df": 2.1, "scale": 1e-4}
    _units = {"scale": 1}
    _defaults = {"scale": 0.2}

    def __init__(self, df=6.0, scale=None, trainable=True):
        self.df = df
        self.scale = scale
        self.trainable = trainable

    def n_latents(self, n_outputs):
        return 2 * n_outputs

    def log_prob(self, y, f):
        f, g = split(f)
        scale = tensor_like(self.scale, f) * torch.exp(0.5 * g)
        return _log_t((y - f).square(), tensor_like(self.df, f), scale).sum(-1)

    def expected_log_prob(self, y, m, v):
        """A lower bound of ``E log p(y | f)`` for ``f ~ N(m, v)``, shape (..., n)."""
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        # -log(1 + x / df) is convex in x: the mean of x may go inside
        square = ((y - m_f).square() + v_f) * torch.exp(0.5 * v_g - m_g)
        return (_log_t(square, df, scale) - 0.5 * m_g).sum(-1)

    def components(self, m, v):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        log_weights, noise = self._noise_nodes(m_g, v_g)
        return log_weights, m_f.expand_as(noise), v_f + noise

    def _noise_nodes(self, m_g, v_g):
        """Variances of the noise, and their log-weights.

        Distribution functions are good to 1e-5 up to `v_g` = 6, sizes of noise known to a factor of 130.
        """
        df, scale2 = tensor_like(self.df, m_g), tensor_like(self.scale, m_g).square()
        u, log_weights = noise_scales_of_t(df, v_g)
        return log_weights, scale2 * (m_g + u).clamp(-_LARGEST, _LARGEST).exp()

    def log_partition(self, y, m, v, alpha=1.0):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        g, log_weights = _size_nodes(m_g, v_g, self.n_nodes)
        scales = tensor_like(self.scale, m_g) * torch.exp(0.5 * g)
        df = tensor_like(self.df, m_g)
        if alpha == 1.0:
            smallest = float(df.detach().min())
            lowest = 2.0 * math.log(1e-16) / smallest - 1.0
            spread = min(1.0, math.sqrt(8.0 / smallest))
            # the largest error tells of a small l; more nodes of the same grid go as far
            with torch.no_grad():
                typical = tensor_like(self.scale, m_g).square() * m_g.exp()
                far = ((y - m_f).square() / (v_f + typical)).amax().clamp_max(1e30)
            mode = math.log((smallest + 1.0) / (smallest + max(1.0, float(far))))
            beyond = mode + 2.0 * math.log(1e-8) / (smallest + 1.0) - 1.0 - lowest
            n_more = max(0, math.ceil(-beyond / spread / _MIXING_STEP))
            lowest = lowest / spread - n_more * _MIXING_STEP
            log_l, more = _mixing(df, m_g.ndim, max(-24.0, lowest))
            inverse, log_z = torch.exp(-log_l), []
            for scale in scales:  # one after the other, which is easy on the cache
                variances = v_f + scale.square() * inverse
                log_z.append(torch.logsumexp(more + _log_normal(y, m_f, variances), 0))
            log_z = torch.stack(log_z)
        else:
            df = tensor_like(self.df, scales)
            log_z = _log_t_partition(y, m_f.expand_as(scales), v_f, df, scales, alpha)
        return torch.logsumexp(log_weights + log_z, 0).sum(-1)

    def moments(self, m, v):
        (m_f, m_g), (v_f, v_g) = split(m), split(v)
        df, scale = tensor_like(self.df, m), tensor_like(self.scale, m)
        size = torch.exp((m_g + 0.5 * v_g).clamp_max(_LARGEST))
        return m_f, v_f + scale.square() * size * df / (df - 2.0)

    def sample(self, f, generator):
        f, g = split(f)
        scale = tensor_like(self.scale, f) * torch.exp(0.5 * g)
        return _sample_t(f, tensor_like(self.df, f), scale, generator)


def _over_rates(shape, log_rate, sd):
    """``P(Gamma(shape) > rate)``, where the log of the rate is N(log_rate, sd^2).

    The trapezoidal rule over the rate; good to 1e-8 for deviations below half of that of the gamma
    variable's logarithm.
    """
    total, norm = 0.0, 0.0
    for z in np.arange(-8, 9) * 0.8:
        weight = math.exp(-0.5 * z * z)
        rate = (log_rate + z * sd).clamp_max(_LARGEST).exp()
        total = total + weight * torch.special.gammaincc(shape, rate)
        norm += weight
    return total / norm


def _over_gammas(shape, log_rate, sd):
    """The same by the trapezoidal rule over the gamma variable, for larger deviations."""
    spread = shape.rsqrt()
    level = (shape.log() - log_rate) / sd
    # few gamma variables of a small shape are as small as this: less than 1e-8
    lowest = -6.0 - 12.8 * spread
    step = (6.0 - lowest) / _N_GAMMAS
    total, norm = 0.0, 0.0
    for i in range(_N_GAMMAS + 1):
        x = (lowest + i * step) * spread  # log(Gamma / shape)
        weight = torch.exp(shape * (x - torch.expm1(x)))
        total = total + weight * torch.special.ndtr(level + x / sd)
        norm = norm + weight
    return total / norm


class Poisson(OneLatent):
    r"""Counts with rate :math:`r e^f`.

    Parameters
    ----------
    rate : float, array of shape (n_outputs,) or None, default=None
        Starting value of :math:`r`; None stands for the mean of the target.
    trainable : bool, default=True
        Whether training changes :math:`r`.
    """

    discrete = True
    _positive = {"rate": 0.0}

    def __init__(self, rate=None, trainable=True):
        self.rate = rate
        self.trainable = trainable

    def check_target(self, y):
        if (y < 0).any():
            raise ValueError(
                "Some values of y are negative, but the Poisson likelihood is for counts."
            )

    def _default(self, name, y, weights):
        return np.maximum(np.average(y, axis=0, weights=weights), 1e-3)

    def log_density(self, y, f):
        rate = tensor_like(self.rate, f)
        return y * (f + rate.log()) - rate * f.exp() - torch.lgamma(y + 1.0)

    def expected_log_prob(self, y, m, v):
        rate = tensor_like(self.rate, m)
        return (y * (m + rate.log()) - rate * torch.exp(m + 0.5 * v) - torch.lgamma(y + 1.0)).sum(
            -1
        )

    def log_partition(self, y, m, v, alpha=1.0):
        # adaptive Gauss-Hermite: nodes around the mode of p(y | f)^alpha N(f; m, v), as wide as it is
        rate = tensor_like(self.rate, m)
        with torch.no_grad():
            f = torch.minimum(m + alpha * v * y, torch.maximum(m, torch.log(y / rate)))
            # at a mode above 0, rate e^f = y + (m - f) / (alpha v): no start is further off
            most = (y + m.clamp_min(0.0) / (alpha * v)) / rate
            f = torch.minimum(f, most.log().clamp_min(0.0))
            for _ in range(_NEWTON):  # from the right, where Newton's method is monotone
                excess = alpha * rate * f.exp()
                f = f - ((f - m) / v - alpha * y + excess) / (1.0 / v + excess)
            sd = (1.0 / v + alpha * rate * f.exp()).rsqrt()
        nodes, log_weights = gauss_hermite(self.n_nodes, m)
        shape = (-1,) + (1,) * m.ndim
        nodes = nodes.view(shape)
        x = f + sd * nodes
        log_z = alpha * self.log_density(y, x) + 0.5 * (nodes.square() - (x - m).square() / v)
        log_z = torch.logsumexp(log_weights.view(shape) + log_z, 0)
        return (log_z + sd.log() - 0.5 * v.log()).sum(-1)

    def moments(self, m, v):
        log_rate = m + tensor_like(self.rate, m).log()
        mean = (log_rate + 0.5 * v).clamp_max(_LARGEST).exp()
        # of the rate: mean^2 (e^v - 1), where neither factor may overflow alone
        log_var = 2.0 * log_rate + v + torch.log(-torch.expm1(-v)) + v
        return mean, mean + log_var.clamp_max(2.0 * _LARGEST).exp()

    def cdf(self, y, m, v):
        # a count exceeds y where a gamma variable of shape y + 1 is below the rate; the difference
        # of their logarithms is integrated over that of the two which is narrower
        shape = torch.floor(y.clamp_min(0.0)) + 1.0
        log_rate = m + tensor_like(self.rate, m).log()
        shape, log_rate, sd = torch.broadcast_tensors(shape, log_rate, v.sqrt())
        known = shape.sqrt() * sd < 0.5
        inside = torch.empty_like(log_rate, memory_format=torch.contiguous_format)
        for which, integral in ((known, _over_rates), (~known, _over_gammas)):
            inside[which] = integral(shape[which], log_rate[which], sd[which])
        return torch.where(y >= 0.0, inside, 0.0)

    def sample(self, f, generator):
        rate = (f + tensor_like(self.rate, f).log()).clamp_max(_LARGEST).exp()
        rate = rate.to(generator.device)
        counts = torch.poisson(rate.clamp_max(_LONG), generator=generator)
        # what no integer holds differs from its rate by parts in a billion
        return torch.where(rate > _LONG, rate, counts).to(f.device)
