"""Approximate expectation propagation: power EP with one factor for all rows."""

import math
from typing import Annotated

import numpy as np
import torch
from sklearn.utils._param_validation import StrOptions
from torch.autograd.function import once_differentiable

from ...gp.layer import SparseLayer
from ..base import COUNT_OR_ZERO, FRACTION, NOT_NEGATIVE, OF_LAYERS, POSITIVE, Scheme
from ..deep import DeepPosterior, DeepSparseGP
from .matching import check_matching, match, matched_moments
from .posterior import MatchedPosterior

_LIMIT = 1e-8  #: power up to which rounding is larger than the difference from the limit of 0
#: share of the steps in which hyperparameters are trained by a smaller power than the posterior
_LEARN = 2 / 3


class AEP(Scheme):
    r"""Approximate expectation propagation (Bui et al., 2016), with power.

    Each row contributes a factor to the posterior of the inducing variables; here all factors are
    the same one, so that memory does not grow with the rows. Rows are propagated through the layers
    as Gaussians with the right moments, without draws. The objective approximates the log marginal likelihood,
    but is no bound on it: choose between models by held-out density.

    Parameters
    ----------
    alpha : float in (0, 1], default=0.5
        Power of the factors. 1 is expectation propagation in the model of the FITC approximation; in the
        limit of 0 the objective is the variational one.
    learning_alpha : float in (0, 1], default=0.5
        Largest power by which hyperparameters and inducing inputs are trained. With a larger `alpha` they
        rest in the last steps, in which the posterior goes on with `alpha` itself: under power 1 the energy
        rises as the noise goes to zero wherever inducing inputs lie on rows (Bauer et al., 2016). 1 trains
        everything by `alpha` throughout, as published.
    n_learn : int or None, default=None
        Steps in which hyperparameters and inducing inputs are trained. None for two thirds of `max_iter` if
        `alpha` is larger than `learning_alpha`, and else for all.
    prediction : {"moment-matching", "sampling"}, default="moment-matching"
        Whether a prediction is one Gaussian that is propagated as in training, or a mixture over
        draws from the hidden layers. With two layers, both have the same mean and variance of the
        latent functions. The Gaussian is what training makes likely; the mixture has the shape that
        the model implies, several modes for instance, and is the fairer one away from the data.
        Draws of functions have the same distribution at every row.
    inner_noise : float, default=1e-5
        Start of the variance, learned, that is added to the outputs of hidden layers; 0 for none.
        In units of the standardized inputs.
    inner_scale : float, default=0.1
        Start of the posterior standard deviations of hidden layers, relative to the prior's.

    References
    ----------
    T. D. Bui, D. Hernandez-Lobato, J. M. Hernandez-Lobato, Y. Li and R. E. Turner (2016). Deep
    Gaussian processes for regression using approximate expectation propagation. ICML 33.

    M. Bauer, M. van der Wilk and C. E. Rasmussen (2016). Understanding probabilistic sparse Gaussian
    process approximations. Advances in Neural Information Processing Systems 29.

    T. D. Bui, J. Yan and R. E. Turner (2017). A unifying framework for Gaussian process
    pseudo-point approximations using power expectation propagation. JMLR 18.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import DeepGPRegressor
    >>> from skdgp.inference import AEP
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> model = DeepGPRegressor(inference=AEP(alpha=0.5), max_iter=200, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.99)
    True
    """

    widens = True
    uses = OF_LAYERS | {"n_inducing", "init", "learning_rate", "batch_size"}

    alpha: Annotated[float, FRACTION] = 0.5
    prediction: Annotated[str, StrOptions({"moment-matching", "sampling"})] = "moment-matching"
    learning_alpha: Annotated[float, FRACTION] = 0.5
    n_learn: Annotated[int | None, COUNT_OR_ZERO, None] = None
    inner_noise: Annotated[float, NOT_NEGATIVE] = 1e-5
    inner_scale: Annotated[float, POSITIVE] = 0.1

    def for_data(self, n_rows, n_classes=None, max_iter=None, likelihood=None):
        if self.alpha <= self.learning_alpha:
            return self
        steps = self.max_iter(n_rows) if max_iter is None else max_iter
        return self._with_defaults(n_learn=math.ceil(_LEARN * steps))

    def batch_size(self, n_rows):
        return 250

    def auto_likelihood(self, n_classes=None, n_layers=2):
        name = super().auto_likelihood(n_classes, n_layers)
        return "robustmax" if name == "softmax" else name

    def build(self, architecture, likelihood):
        for kernel, width in zip(architecture.kernels[1:], architecture.widths):
            check_matching(kernel, width)
        # natural steps can leave the region where an energy makes sense
        n_hidden = len(architecture.widths)
        inner = {"noise": self.inner_noise, "scale": self.inner_scale}
        layers = architecture.stack(SparseLayer, lambda i: inner if i < n_hidden else {})
        return DeepPowerEP(architecture, likelihood, layers, self)


class _Cavity(torch.autograd.Function):
    r"""Cavity distribution: ``q`` without the share `a` of its data, by mean and excess covariance.

    Let :math:`q = N(\mu, S)` with :math:`S = I + X`, and :math:`A = I + a X`. The cavity has the
    precision :math:`(1 - a) S^{-1} + a I`. So its mean is :math:`(1 - a) A^{-1} \mu`, and its
    covariance is :math:`I + (1 - a) X A^{-1}`. No inverse of `S` is needed, and no difference of
    nearly equal numbers. The third result is the part of the energy that does not depend on rows, plus the
    divergence of `q` from the prior:

    .. math:: \frac12 \Big[\mathrm{tr} X - \frac1a \log|A| + \mu^\top \mu
              - (1 - a)\, \mu^\top A^{-1} \mu\Big]

    It vanishes with `a`, where the energy becomes the variational lower bound.
    """

    @staticmethod
    def forward(ctx, q_mean, X, a):
        b = 1.0 - a
        A = a * X
        A.diagonal(dim1=-2, dim2=-1).add_(1.0)
        R = torch.linalg.cholesky(A)
        A_inv = torch.cholesky_inverse(R)
        mean = b * (A_inv @ q_mean.T[..., None])[..., 0].T  # M, D
        XB = X @ A_inv
        XB = 0.5 * (XB + XB.mT)
        squares = q_mean.square().sum() - (q_mean * mean).sum()
        ctx.save_for_backward(q_mean, A_inv, XB)
        ctx.a = a
        return mean, b * XB, 0.5 * (_trace_excess(X, R, a) + squares)

    @staticmethod
    @once_differentiable
    def backward(ctx, g_mean, g_Q, g):
        (q_mean, A_inv, XB), a = ctx.saved_tensors, ctx.a
        b = 1.0 - a
        Bm = (A_inv @ q_mean.T[..., None])[..., 0]  # D, M
        Bg = (A_inv @ g_mean.T[..., None])[..., 0]
        d_mean = b * Bg.T + g * (q_mean - b * Bm.T)
        dX = A_inv @ g_Q @ A_inv - a * Bg[:, :, None] * Bm[:, None, :]
        dX = (0.5 * b) * (dX + dX.mT)
        dX = dX + (0.5 * a * g) * (XB + b * Bm[:, :, None] * Bm[:, None, :])
        return d_mean, dX, None


def _trace_excess(X, R, a):
    """``tr X - log|I + a X| / a``, summed over matrices; `R` is the root of ``I + a X``."""
    log_det = 2.0 * torch.diagonal(R, dim1=-2, dim2=-1).log().sum(-1) / a
    exact = torch.diagonal(X, dim1=-2, dim2=-1).sum(-1) - log_det
    squares = X.square().sum((-2, -1))
    # where rounding is divided by a
    series = a * squares / 2.0 - a**2 * (X @ X * X).sum((-2, -1)) / 3.0
    return torch.where(a * squares.sqrt() < 1e-4, series, exact).sum()


class DeepPowerEP(DeepSparseGP):
    """The model that :class:`AEP` builds."""

    def __init__(self, architecture, likelihood, layers, scheme):
        super().__init__(architecture, likelihood, layers)
        self.alpha = float(scheme.alpha)
        self.samples = scheme.prediction == "sampling"
        self._n_learn, self._powers = scheme.n_learn, (self.alpha, float(scheme.learning_alpha))

    def step(self, batch, generator, rate=1.0):
        if self._n_learn is not None:
            is_learning = self.steps.n_made < self._n_learn
            self.alpha = min(self._powers) if is_learning else self._powers[0]
            for parameter in () if is_learning else self._hyperparameters():
                parameter.requires_grad_(False)
        return super().step(batch, generator, rate)

    def _hyperparameters(self):
        """All parameters outside of the posterior."""
        of_posterior = {id(p) for block in self.blocks() for p in block.parameters()}
        return [p for p in self.parameters() if id(p) not in of_posterior]

    def match(self, X, posteriors):
        """Moments of the last layer, given mean and excess covariance of all posteriors."""

        def moments(i, layer, m, v, n_random):
            if i == 0:
                return layer.moments(m, posteriors[0])
            return matched_moments(layer, posteriors[i], m, v, n_random)

        return match(self.layers, X, moments)

    def expected_log_likelihood(self, batch, generator):
        """The energy, unbiased for all rows, without the divergence of q from the prior."""
        a = min(self.alpha / batch.total, 1.0)  # the fraction of all rows that is left out
        cavities = [_Cavity.apply(*q.moments(), a) for q in self.blocks()]
        mean, var = self.match(batch.X, [cavity[:2] for cavity in cavities])
        likelihood = self.likelihood()
        if self.alpha > _LIMIT:
            log_z = likelihood.log_partition(batch.y, mean, var, self.alpha) / self.alpha
        else:
            log_z = likelihood.expected_log_prob(batch.y, mean, var)
        of_rows = batch.scale * (batch.weight * log_z).sum()
        return of_rows + batch.share * sum(cavity[2] for cavity in cavities)

    def divergence(self):
        return None  # the energy is no lower bound

    def draws(self, n, seed):
        return super().draws(n, seed) if self.samples else np.zeros((1, 0))

    def _frozen(self, draws, as_trained):
        return DeepPosterior(self, draws) if self.samples else MatchedPosterior(self)
