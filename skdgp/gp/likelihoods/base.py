"""The interface of likelihoods for inference schemes and prediction."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch

from ...linalg import LOG_2PI
from ...quadrature import gauss_hermite
from ..component import Component
from ..kernels.base import tensor_like
from ..priors import Fixed

LARGEST = 300.0  #: bound on logarithms whose exponentials are added up


class Expectations(NamedTuple):
    """Expected log-likelihoods of rows whose latent functions have one variance, and derivatives."""

    value: torch.Tensor  #: (n,)
    gradient: torch.Tensor  #: (n, n_latents), in the means
    #: (n,), expected, negative, and averaged over directions of the functions
    curvature: torch.Tensor
    #: (n, n_latents), expected probabilities, or None: coupled functions have the curvature ``diag(p) - p p^T``
    shares: torch.Tensor | None = None


class Likelihood(Component):
    """Base class of the likelihoods.

    Targets `y` have shape (n, k), or (n, 1) with class indices. Latent moments `m` and `v`, and
    latent values `f`, have shape (..., n, n_latents(k)). Results for whole rows are summed over
    the k outputs and have shape (..., n); results for single outputs have shape (..., n, k).

    Where outputs are independent and have one latent function each, :meth:`log_density` is enough: integrals
    are by Gauss-Hermite quadrature. Closed forms, and other likelihoods, override the methods that use it.
    """

    _role = "noise"

    n_nodes = 20
    n_power_nodes = 20  #: of powers of the density, whose integrals have no closed form

    #: whether the estimator standardizes the target
    scales_target = False
    #: whether the target takes values on the integers only
    discrete = False
    #: whether targets are those of deterministic simulators
    is_noiseless = False
    #: whether targets are classes, which have :meth:`log_probabilities`; others have :meth:`moments`
    is_class = False
    #: whether densities of targets given the functions' values have gradients that lead to larger ones
    has_gradients = True
    #: for each number, the power of the target's unit in which it is measured
    _units: ClassVar[dict[str, float]] = {}
    #: for each number, its value for a standardized target if the user gives None
    _defaults: ClassVar[dict[str, float]] = {}

    def n_latents(self, n_outputs):
        """Number of latent functions for `n_outputs` targets."""
        return n_outputs

    def n_means(self, n_latents):
        """Number of latent functions that are means of targets, or of classes; others are about the noise."""
        return n_latents // self.n_latents(1)

    def check_target(self, y):
        """Refuse targets that have no probability.

        Raises
        ------
        ValueError
            If some values of `y` have none.
        """

    def bind(self, y, weights, scale):
        """This likelihood with one number for each output.

        Parameters
        ----------
        y : ndarray of shape (n, k)
            Training targets as the scheme sees them.
        weights : ndarray of shape (n,)
        scale : ndarray of shape (k,)
            Units of the user's target in one unit of `y`.

        Raises
        ------
        ValueError
            If there is another number of values than outputs, or if one is not positive and finite, or too
            small beside the target while it is not trained.
        """
        self = self.resolved()
        k, hyperparameters = len(scale), {}
        self.trained()  # which refuses settings that are none
        for name in self._positive:
            value = getattr(self, name)
            if value is None:
                value = self._default(name, y, weights, k)
            else:
                value = np.asarray(value, dtype=np.float64)
                if value.shape not in ((), (k,)):
                    raise ValueError(
                        f"{name} of {type(self).__name__} has shape {value.shape}, but there are {k} "
                        "outputs; give one number or one for each output."
                    )
                if name in self._units and not ((value > 0.0) & np.isfinite(value)).all():
                    raise ValueError(  # before it is in other units than the user's
                        f"{name} of {type(self).__name__} must be larger than 0 and finite; got "
                        f"{getattr(self, name)!r}."
                    )
                value = self._above(name, value / scale ** self._units.get(name, 0), scale)
            hyperparameters[name] = np.broadcast_to(value, (k,)).copy()
        return self.with_values(**hyperparameters)

    def _above(self, name, value, scale):
        """A number in units of `y`, if it is not too small beside the target; a start is raised."""
        floor, unit = self.floor(name), scale ** self._units.get(name, 0)
        tiny = (value > 0.0) & (value <= floor) & (name in self._units)
        if tiny.any() and name not in self.trained():
            least, given = ((a * unit)[tiny].flat[0] for a in np.broadcast_arrays(floor, value))
            raise ValueError(
                f"{name} of {type(self).__name__} must be larger than {least:.3g}, which is {floor:g} for a "
                f"standardized target; got {given:.3g}."
            )
        return np.where(tiny, 2.0 * floor, value)

    def in_units(self, scale):
        """The fitted hyperparameters in the user's units; the inverse of :meth:`bind`."""
        with np.errstate(over="ignore"):  # squares of the largest numbers are infinite
            values = {name: getattr(self, name) * scale**p for name, p in self._units.items()}
        for name, value in values.items():
            if isinstance(self._priors.get(name), Fixed):  # without rounding
                values[name] = np.broadcast_to(self._priors[name].start, value.shape).copy()
        return self.with_values(**values)

    def in_noise(self, factor, m, v):
        """This likelihood and latent moments for `factor` (n, k) times the variance of noise, row by row."""
        values = {
            name: tensor_like(getattr(self, name), factor) * factor ** (0.5 * power)
            for name, power in self._units.items()
        }
        return self.with_values(**values), m, v

    def dispersed(self, factor, m, v):
        """This likelihood and latent moments for `factor` times the deviations of targets from their means."""
        noise = tensor_like(factor**2, m)
        likelihood, m, v = self.in_noise(noise, m, v)
        k = self.n_means(v.shape[-1])
        return likelihood, m, torch.cat([noise * v[..., :k], v[..., k:]], -1)

    def of_rows(self, rows):
        """This likelihood for a slice of its rows, if noise differs by row, see :meth:`in_noise`."""
        values = {name: getattr(self, name) for name in self._units}
        values = {name: v for name, v in values.items() if np.ndim(v) > 1 and v.shape[-2] > 1}
        return self.with_values(**{name: v[..., rows, :] for name, v in values.items()})

    def _default(self, name, y, weights, k):
        return self._defaults[name]

    def on_link_scale(self, f):
        """Latent functions in the units in which users see them, such as logarithms of rates."""
        return f

    def at_one_exposure(self, y):
        """Targets (n, k) as if all rows had the same exposure."""
        return y

    def log_density(self, y, f):
        """``log p(y | f)`` element by element, where each output has one latent function."""
        raise NotImplementedError

    def log_prob(self, y, f):
        """``log p(y | f)``, shape (..., n)."""
        return self.log_density(y, f).sum(-1)

    def _nodes(self, m, v, n_nodes=None):
        nodes, log_weights = hermite(n_nodes or self.n_nodes, m)
        return m + v.sqrt() * nodes, log_weights

    def expected_log_prob(self, y, m, v):
        """``E log p(y | f)`` for ``f ~ N(m, v)``, shape (..., n)."""
        f, log_weights = self._nodes(m, v)
        return (log_weights.exp() * self.log_density(y, f)).sum(0).sum(-1)

    def n_directions(self, n_latents):
        """Number of directions of the latent functions that matter."""
        return n_latents

    def expectations(self, y, m, v):
        """Expectations for ``f ~ N(m, v)`` with one variance (n, 1) for all functions of a row.

        Returns
        -------
        found : Expectations
            The curvature is ``-2`` times the derivative in the variance (Price, 1958).
        """
        with torch.enable_grad():
            m, v = m.detach().requires_grad_(), v.detach().requires_grad_()
            value = self.expected_log_prob(y, m, v.expand_as(m))
            gradient, slope = torch.autograd.grad(value.sum(), (m, v))
        curvature = (-2.0 / self.n_directions(m.shape[-1])) * slope[:, 0]
        return Expectations(value.detach(), gradient, curvature.clamp_min(0.0))

    def log_partition(self, y, m, v, alpha=1.0):
        """``log E p(y | f)^alpha`` for ``f ~ N(m, v)``, shape (..., n).

        At alpha = 1 the predictive log-density.
        """
        f, log_weights = self._nodes(m, v, None if alpha == 1.0 else self.n_power_nodes)
        return torch.logsumexp(log_weights + alpha * self.log_density(y, f), 0).sum(-1)

    def moments(self, m, v):
        """Mean and variance of `y` given latent moments, shape (..., n, k)."""
        raise NotImplementedError

    def conditional_mean(self, f):
        """``E[y | f]``, or the probabilities of the classes, shape (..., n, k)."""
        return self.moments(f, torch.zeros_like(f))[0]

    def variance_of_mean(self, m, v):
        """Variance of ``E[y | f]`` for ``f ~ N(m, v)``, shape (..., n, k): that without noise."""
        f, log_weights = self._nodes(m, v)
        weights, means = log_weights.exp(), self.conditional_mean(f)
        return (weights * (means - (weights * means).sum(0)).square()).sum(0)

    def cdf(self, y, m, v):
        """Distribution function of `y` given latent moments, shape (..., n, k)."""
        raise NotImplementedError

    def tail(self, y, m, v, above):
        """Probability that `y` is exceeded, or that it is not, exact to a relative error where it is rare."""
        raise NotImplementedError

    def components(self, m, v):
        """The mixture of Gaussians that `y` follows given latent moments, or None if it follows none.

        Returns
        -------
        log_weights : tensor that broadcasts against `means`
        means, variances : tensors of shape (c, ..., n, k)
        """

    @property
    def has_components(self):
        """Whether targets follow mixtures of Gaussians, see :meth:`components`."""
        return type(self).components is not Likelihood.components

    def log_probabilities(self, m, v):
        """Logarithms of the class probabilities given latent moments, shape (..., n, n_classes)."""
        raise NotImplementedError

    def finer(self, n_latents):
        """This likelihood with integrals whose errors a search does not exploit, if they cost little."""
        return self

    def for_prediction(self, n_draws):
        """This likelihood with integrals good enough for predictions from so many draws."""
        return self

    def sample(self, f, generator):
        """A draw of `y` given latent values, shape (..., n, k)."""
        raise NotImplementedError


def first_axis(values, like):
    """Nodes or weights (n,) along an axis before those of `like`."""
    return values.view((-1,) + (1,) * like.ndim)


def hermite(n, like):
    """Nodes and log-weights of the Gauss-Hermite rule along a first axis."""
    return (first_axis(values, like) for values in gauss_hermite(n, like))


def trapezoid(n, reach, like):
    """Nodes from `-reach` to `reach` and log-weights for a standard normal variable, likewise."""
    z = torch.linspace(-reach, reach, n, dtype=like.dtype, device=like.device)
    z = first_axis(z, like)
    return z, torch.log_softmax(-0.5 * z.square(), 0)


def log_normal(y, mean, var):
    """Log-density of a Gaussian, element by element."""
    return -0.5 * (LOG_2PI + var.log() + (y - mean).square() / var)


class GaussianMixture(Likelihood):
    """Likelihoods that are finite mixtures of Gaussians; latent means come first."""

    scales_target = True

    def log_partition(self, y, m, v, alpha=1.0):
        if alpha != 1.0:
            return super().log_partition(y, m, v, alpha)
        log_weights, means, variances = self.components(m, v)
        return torch.logsumexp(log_weights + log_normal(y, means, variances), 0).sum(-1)

    def moments(self, m, v):
        """Mean and variance of `y`, shape (..., n, k)."""
        log_weights, means, variances = self.components(m, v)
        weights = log_weights.exp()
        mean = (weights * means).sum(0)
        return mean, (weights * (variances + (means - mean).square())).sum(0)

    def conditional_mean(self, f):
        return f[..., : self.n_means(f.shape[-1])]

    def variance_of_mean(self, m, v):
        return v[..., : self.n_means(v.shape[-1])]

    def cdf(self, y, m, v):
        """Distribution function of `y`, shape (..., n, k)."""
        return self.tail(y, m, v, above=False)

    def tail(self, y, m, v, above):
        log_weights, means, variances = self.components(m, v)
        off = (y - means if above else means - y) / (2.0 * variances).sqrt()
        # torch's ndtr is one minus the rest far out
        return (0.5 * log_weights.exp() * torch.special.erfc(off)).sum(0)


# Noise whose size is a function of the input: all latents `f` come first, then all `g`


def constant_noise(likelihood, kind, g):
    """The likelihood, of the class `kind`, of noise that has ``e^g`` times the variance of another one."""
    noise = {
        name: tensor_like(getattr(likelihood, name), g) * torch.exp(0.5 * power * g)
        for name, power in likelihood._units.items()
    }
    return kind().with_values(**vars(likelihood) | noise)


def components_of_noise(m, v, noise_nodes):
    """Components where ``noise_nodes(m_g, v_g)`` has the log-weights and variances of the noise."""
    (m_f, m_g), (v_f, v_g) = split(m), split(v)
    log_weights, noise = noise_nodes(m_g, v_g)
    return log_weights, m_f.expand_as(noise), v_f + noise


def split(latents):
    """The last axis, split in the middle."""
    k = latents.shape[-1] // 2
    return latents[..., :k], latents[..., k:]
