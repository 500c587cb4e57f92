"""Likelihoods of classes; targets are class indices of shape (n, 1)."""

import math

import torch
from torch.autograd.function import once_differentiable

from ...linalg import at_once, is_exporting
from ...quadrature import gauss_legendre, normal_nodes
from .base import LOG_2PI, Expectations, Likelihood, first_axis, trapezoid
from .softmax_integrals import log_probabilities

POWER_NODES = 100  #: of a step of one function, with a standard deviation of 10 on each side
_TINY = 1e-12
_REACH = 9.0  #: standard deviations to which the trapezoidal rule goes on both sides
_MOST_STEPS = 300  #: of it, on each side
_WIDEST = 29.0  #: standard deviation for which these are enough
_WIDE = 6.0  #: standard deviations beyond which a Gaussian has ended
_N_SEARCH = 256  #: of a lower bound that a search maximizes, if there is no grid
_N_VARIANCE = 1024  #: nodes for variances of probabilities: deviations to .001
_LEAST_GRID = 5  #: nodes an axis
_BUDGET = 2_000_000  #: numbers that one integral needs at once
_CACHED = 100_000  #: likewise, where it has no gradients: more leave the cache


def _largest_deviation(v):
    """The largest root of some variances; for a program, the largest for which rules are made."""
    if is_exporting():
        return _WIDEST
    return float(v.detach().max().sqrt()) if v.numel() else 0.0


class ClassLikelihood(Likelihood):
    """Base class of the likelihoods of classes."""

    is_class = True
    log_concave = False  #: in the latent functions
    one_function = False  #: whether one latent function decides, with a smooth log density

    def check_n_classes(self, n_classes):
        """Refuse a number of classes, or parameters.

        Raises
        ------
        ValueError
            If the likelihood cannot serve so many classes, or a parameter is out of its range.
        """

    def for_labels(self, labels, order=None):
        """This likelihood for sorted labels, which the user's target may have in another order."""
        return self

    def n_latents(self, n_classes):
        return 1 if self.one_function else n_classes

    def bind(self, y, weights, scale):
        return self.with_values()

    def _nodes(self, m, v, n_nodes=None):
        sd = _largest_deviation(v) if self.one_function else math.nan
        if n_nodes is not None or not 1.0 < sd < math.inf:  # also if it is NaN
            return super()._nodes(m, v, n_nodes)
        # the trapezoidal rule, for functions without poles closer to the real line than 2.8; where
        # both rules may serve, they differ by less than 1e-8
        half = min(_MOST_STEPS, math.ceil(_REACH * (1.15 * sd + 0.25 / sd)))
        z, log_weights = trapezoid(2 * half + 1, _REACH, m)
        return m + v.sqrt() * z, log_weights

    def in_noise(self, factor, m, v):
        """Latents in units of the noise that decides between classes."""
        factor = factor.mean(-1, keepdim=True)
        return self, m / factor.sqrt(), v / factor

    def conditional_mean(self, f):
        return self.log_probabilities(f, torch.zeros_like(f)).exp()

    def sample(self, f, generator):
        cumulative = self.conditional_mean(f).cumsum(-1)
        like = {"dtype": f.dtype, "device": generator.device}
        u = torch.rand(f.shape[:-1], generator=generator, **like).to(f.device)
        return (u[..., None] * cumulative[..., -1:] > cumulative).sum(-1, keepdim=True).to(f.dtype)


class Bernoulli(ClassLikelihood):
    r"""Two classes: the second one has probability :math:`\Phi(f)` or :math:`1 / (1 + e^{-f})`.

    The success is the second class in the order of `classes_`, which is sorted.

    Parameters
    ----------
    link : {"probit", "logit"}, default="probit"
        The first of these functions, or the second.
    """

    log_concave = one_function = True
    n_power_nodes = POWER_NODES

    def __init__(self, link="probit"):
        self.link = link

    def check_n_classes(self, n_classes):
        if self.link not in ("probit", "logit"):
            raise ValueError(f"link of Bernoulli must be 'probit' or 'logit'; got {self.link!r}.")
        if n_classes != 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"The Bernoulli likelihood is for two classes, but y has {n_classes}; use 'softmax' or "
                "'robustmax'."
            )

    def log_density(self, y, f):
        f = (2.0 * y - 1.0) * f
        is_probit = self.link == "probit"
        return torch.special.log_ndtr(f) if is_probit else torch.nn.functional.logsigmoid(f)

    def conditional_mean(self, f):
        return torch.cat([self.log_density(c, f) for c in (0.0, 1.0)], -1).exp()

    def log_partition(self, y, m, v, alpha=1.0):
        if self.link == "probit" and alpha == 1.0:
            return torch.special.log_ndtr((2.0 * y - 1.0) * m / torch.sqrt(1.0 + v)).sum(-1)
        return super().log_partition(y, m, v, alpha)

    def log_probabilities(self, m, v):
        each = [self.log_partition(torch.full_like(m, c), m, v) for c in (0.0, 1.0)]
        return torch.stack(each, -1)


class _ExpectedLogSumExp(torch.autograd.Function):
    """``E log sum_c exp(f_c)`` for ``f = m + roots z``, matrices or vectors, with its gradient."""

    @staticmethod
    def forward(ctx, m, roots, nodes, weights):
        diagonal, nodes_t = roots.ndim == m.ndim, nodes.T.contiguous()
        f = roots[..., None] * nodes_t if diagonal else roots @ nodes_t  # ..., n, C, nodes
        f.add_(m[..., None])
        largest = f.amax(-2, keepdim=True)
        p = f.sub_(largest).exp_()
        total = p.sum(-2, keepdim=True)
        value = ((largest + total.log()) @ weights)[..., 0]
        p.mul_(weights / total)  # softmax, weighted
        g_m = p.sum(-1)
        ctx.save_for_backward(g_m, p.mul_(nodes_t).sum(-1) if diagonal else p @ nodes)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        g_m, g_roots = ctx.saved_tensors
        g = g[..., None]
        return g * g_m, (g if g_roots.ndim == g_m.ndim else g[..., None]) * g_roots, None, None


def _roots(v):
    """Roots (..., C, C - 1) of the covariance of C independent variables less their common part.

    The common part needs no nodes: softmax does not change if the same is added to all latents.
    Less ``sum_c w_c f_c`` with `w` in proportion to precisions, they are independent of that sum and
    vary in C - 1 directions only.
    """
    sd = v.clamp_min(_TINY).sqrt()
    common = 1.0 / sd.square().reciprocal().sum(-1, keepdim=True).sqrt()
    u = common / sd  # unit vectors; a reflection has -u as the column that is left out
    i = v.shape[-1] // 2  # the middle one: three classes in reverse order have the same nodes
    rest = torch.cat([u[..., :i], u[..., i + 1 :]], -1)[..., None, :]
    eye = torch.eye(v.shape[-1], dtype=v.dtype, device=v.device)
    eye = torch.cat([eye[:, :i], eye[:, i + 1 :]], 1)
    pivot = u[..., i, None, None]
    w = torch.cat([u[..., :i], u[..., i : i + 1] + 1.0, u[..., i + 1 :]], -1)[..., None]
    return sd[..., None] * (eye - w * rest / (1.0 + pivot))


def _contrasts(C):
    """Orthonormal columns (C, C - 1) whose entries add up to zero."""
    eye = torch.eye(C, dtype=torch.float64)
    return torch.linalg.qr(eye[:, 1:] - 1.0 / C)[0]


class Softmax(ClassLikelihood):
    r"""Several classes with probabilities :math:`e^{f_c} / \sum_j e^{f_j}`.

    Predictions are good to .001 in every probability, as a rule: from few Gaussian components by an integral
    over one variable, from many by nodes that differ from component to component, so that errors cancel.

    Parameters
    ----------
    n_nodes : int, default=64
        Points of the integration over the latent values in training: a Gauss-Hermite grid over their
        differences for few classes, a fixed Sobol sequence for many.
    """

    log_concave = True
    _predicts = False  #: whether integrals are good enough for predictions, and without gradients

    def __init__(self, n_nodes=64):
        self.n_nodes = n_nodes

    def check_n_classes(self, n_classes):
        if self.n_nodes < 2:
            raise ValueError(f"n_nodes of Softmax must be at least 2; got {self.n_nodes}.")

    def _rule(self, m, v):
        """Roots of covariances as :func:`_roots` has them if there is a grid, and nodes with log-weights."""
        C = m.shape[-1]
        if self.n_nodes >= _LEAST_GRID ** (C - 1):
            return _roots(v), *normal_nodes(C - 1, self.n_nodes, m)
        return v.clamp_min(_TINY).sqrt(), *normal_nodes(C, self.n_nodes, m)

    def _nodes(self, m, v):
        """Latent values, shape (n_nodes, ..., n, C), up to what is common to them, and log-weights."""
        roots, nodes, log_weights = self._rule(m, v)
        log_weights = first_axis(log_weights, m[..., 0])
        if roots.ndim == m.ndim:
            f = roots * nodes.view(*log_weights.shape, m.shape[-1])
        else:
            f = torch.tensordot(nodes, roots, ([1], [m.ndim]))
        return m + f, log_weights

    def finer(self, n_latents):
        grid = _LEAST_GRID ** (n_latents - 1)
        enough = min(grid, _N_SEARCH) if self.n_nodes < grid else self.n_nodes
        return self.with_values(n_nodes=max(self.n_nodes, enough))

    def for_prediction(self, n_draws):
        return self.with_values(_predicts=True)

    def _in_pieces(self, integral, m, *others, dim=-1, at_most=_BUDGET):
        """Evaluate an integral for as many rows at a time, the axis `dim` of the result, as memory allows."""
        size = max(1, at_most // max(1, self.n_nodes * math.prod(m.shape[:-2]) * m.shape[-1]))
        n = max(array.shape[-2] for array in (m, *others))
        arrays = [array.expand(*array.shape[:-2], n, array.shape[-1]) for array in (m, *others)]
        if is_exporting() or n <= size:
            return integral(*arrays)
        pieces = zip(*(array.split(size, -2) for array in arrays))
        return torch.cat([integral(*piece) for piece in pieces], dim)

    def _log_mean(self, log_of, m, v, *others, dim=-1):
        """Logarithm of the mean of what has the logarithm ``log_of(f, *others)``."""

        def integral(m, v, *others):
            f, log_weights = self._nodes(m, v)
            log_values = log_of(f, *others)
            log_weights = log_weights.view(len(f), *[1] * (log_values.ndim - 1))
            return torch.logsumexp(log_weights + log_values, 0)

        return self._in_pieces(integral, m, v, *others, dim=dim)

    def conditional_mean(self, f):
        return torch.softmax(f, -1)

    def variance_of_mean(self, m, v):
        finer = self.with_values(n_nodes=max(self.n_nodes, _N_VARIANCE))

        def integral(m, v):
            f, log_weights = finer._nodes(m, v)
            weights, p = log_weights[..., None].exp(), torch.softmax(f, -1)
            return (weights * (p - (weights * p).sum(0)).square()).sum(0)

        return finer._in_pieces(integral, m, v, dim=-2)

    def log_prob(self, y, f):
        return _pick(torch.log_softmax(f, -1), y)

    def expected_log_prob(self, y, m, v):
        def integral(m, v):
            roots, nodes, log_weights = self._rule(m, v)
            return _ExpectedLogSumExp.apply(m, roots, nodes, log_weights.exp())

        return _pick(m, y) - self._in_pieces(integral, m, v)

    def n_directions(self, n_latents):
        return n_latents - 1  # a common part of all functions changes nothing

    def expectations(self, y, m, v):
        C = m.shape[-1]
        nodes, log_weights = normal_nodes(C - 1, self.n_nodes, m)
        contrasts, weights = _contrasts(C).to(m) @ nodes.T, log_weights.exp()  # C, nodes

        def integral(m, v):
            f = m[..., None] + v.sqrt()[..., None] * contrasts
            largest = f.amax(-2, keepdim=True)
            p = f.sub_(largest).exp_()
            total = p.sum(-2, keepdim=True)
            value = (largest + total.log())[:, 0] @ weights
            p.div_(total)
            squares = p.square().sum(-2) @ weights
            return torch.cat([value[:, None], squares[:, None], p @ weights], 1)

        at_most = at_once(_CACHED, m.device)
        found = self._in_pieces(integral, m, v, dim=0, at_most=at_most)
        value, squares, p = found.split([1, 1, C], 1)
        gradient = -p
        gradient.scatter_add_(1, y.long(), torch.ones_like(value))
        curvature = (1.0 - squares[:, 0]).clamp_min(0.0) / (C - 1)
        return Expectations(_pick(m, y) - value[:, 0], gradient, curvature, p)

    def log_partition(self, y, m, v, alpha=1.0):
        if self._predicts and alpha == 1.0:
            return _pick(log_probabilities(m, v), y)

        return self._log_mean(lambda f, y: alpha * self.log_prob(y, f), m, v, y)

    def log_probabilities(self, m, v):
        if self._predicts:
            return log_probabilities(m, v)

        return self._log_mean(lambda f: torch.log_softmax(f, -1), m, v, dim=-2)

    def curvature(self, m, v):
        """Expected second derivatives of ``-log p(y | f)``, shape (..., n, C, C), equal for all `y`."""
        f, log_weights = self._nodes(m, v)
        p = torch.softmax(f, -1)
        weighted = p * log_weights.exp()[..., None]
        return torch.diag_embed(weighted.sum(0)) - torch.einsum("s...i,s...j->...ij", weighted, p)


class RobustMax(ClassLikelihood):
    r"""Several classes: the largest latent value wins, but for some wrong labels.

    Parameters
    ----------
    epsilon : float, default=1e-3
        Probability that a label is not that of the largest latent value.
    n_nodes : int, default=32
        Gauss-Legendre nodes of the integration.
    """

    has_gradients = False  # steps, whose height alone decides

    def __init__(self, epsilon=1e-3, n_nodes=32):
        self.epsilon = epsilon
        self.n_nodes = n_nodes

    def check_n_classes(self, n_classes):
        if not 0.0 < self.epsilon < 1.0:
            raise ValueError(f"epsilon of RobustMax must lie between 0 and 1; got {self.epsilon}.")

    def _win(self, y, m, v):
        """``P(f_y > f_c for all other c)``, shape (..., n).

        The density of f_y times the probability that all others are smaller is integrated where the
        latter rises from 0 to 1; beyond, it is 1.
        """
        sd = v.clamp_min(_TINY).sqrt()
        own = torch.nn.functional.one_hot(y[..., 0].long(), m.shape[-1]).bool()
        m_y, sd_y = _pick(m, y), _pick(sd, y)
        with torch.no_grad():  # what is left out is so small that its changes do not matter
            ends = (m - _WIDE * sd, m + _WIDE * sd)
            rises, has_risen = (end.masked_fill(own, -torch.inf).amax(-1) for end in ends)
            a = torch.maximum(rises, m_y - _WIDE * sd_y)
            b = torch.maximum(a, torch.minimum(has_risen, m_y + _WIDE * sd_y))
        nodes, weights = (first_axis(part, a) for part in gauss_legendre(self.n_nodes, m))
        x = 0.5 * (a + b) + 0.5 * (b - a) * nodes  # nodes, ..., n
        z = ((x[..., None] - m) / sd).clamp_min(-1e6)  # beyond, its derivative is lost
        log_cdf = torch.special.log_ndtr(z).masked_fill(own, 0.0).sum(-1)
        log_pdf = -0.5 * ((x - m_y) / sd_y).square() - sd_y.log() - 0.5 * LOG_2PI
        inside = 0.5 * (b - a) * (weights * (log_cdf + log_pdf).exp()).sum(0)
        return (inside + torch.special.ndtr((m_y - b) / sd_y)).clamp(0.0, 1.0)

    def _levels(self, m):
        return math.log1p(-self.epsilon), math.log(self.epsilon / (m.shape[-1] - 1))

    def log_prob(self, y, f):
        right, wrong = self._levels(f)
        return torch.where(f.argmax(-1) == y[..., 0].long(), right, wrong).to(f.dtype)

    def expected_log_prob(self, y, m, v):
        right, wrong = self._levels(m)
        return wrong + (right - wrong) * self._win(y, m, v)

    def log_partition(self, y, m, v, alpha=1.0):
        right, wrong = self._levels(m)
        win = self._win(y, m, v)
        return torch.log(win * math.exp(alpha * right) + (1.0 - win) * math.exp(alpha * wrong))

    def variance_of_mean(self, m, v):
        wrong, right = (math.exp(level) for level in sorted(self._levels(m)))
        p = self.log_probabilities(m, v).exp()
        return ((p - wrong) * (right - p)).clamp_min(0.0)

    def log_probabilities(self, m, v):
        right, wrong = self._levels(m)
        like = m[..., :1]
        each = [self._win(torch.full_like(like, c), m, v) for c in range(m.shape[-1])]
        win = torch.stack(each, -1)
        win = win / win.sum(-1, keepdim=True)
        return torch.log(math.exp(wrong) + win * (math.exp(right) - math.exp(wrong)))


def _pick(values, y):
    """The entries of the last axis that belong to the classes `y`, shape (..., n)."""
    index = y.long().expand(*values.shape[:-1], 1)
    return values.gather(-1, index)[..., 0]
