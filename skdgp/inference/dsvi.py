"""Doubly stochastic variational inference with a mean-field posterior."""

import math
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import clone
from torch import nn

from ..gp.component import Trainable
from ..gp.layer import SparseLayer
from ..random import normal, sobol_normal
from .base import Scheme
from .gradient_model import GradientModel
from .homoscedastic_warmup import HomoscedasticWarmup

_LEAST_REST = 0.02  #: of the precision of a latent function, when a row is taken off
_FEW_ROWS = 4000  #: rows up to which little is to be learned by larger models
#: Rows up to which fewer steps do: with more of them, models overfit.
_SOON_ROWS = 1000
#: Rows up to which it takes another start to prevent that, and more steps.
_CAREFUL_ROWS = 400
_CAREFUL_STEPS = 1000
_ENOUGH_STEPS = 300  #: fewer do not come far from there, and do not overfit
_WARMUP = 0.25  #: share of these steps in which noise has one size


class DSVI(Scheme):
    """Doubly stochastic variational inference (Salimbeni and Deisenroth, 2017).

    Every layer is a sparse Gaussian process with a Gaussian posterior over its whitened inducing
    variables. The lower bound is estimated from minibatches and from draws that are propagated through
    the layers; the last layer is integrated by the likelihood.

    Parameters
    ----------
    n_draws : int, default=1
        Draws for each row and step in training.
    shared_covariance : bool, default=True
        Whether the units of a hidden layer share one posterior covariance of their inducing
        variables; their means differ in any case. A step of a wide layer then costs no more than
        that of a single unit. The published scheme has separate covariances.
    inner_noise : float, default=1e-5
        Start of the variance, learned, that is added to the outputs of hidden layers; 0 for none.
        In units of the standardized inputs.
    inner_scale : float or None, default=None
        Start of the posterior standard deviations of hidden layers, relative to the prior's. None for
        0.1 with at most 400 rows and at least 300 steps, and 1e-5 else. From the latter, few noisy
        targets are overfitted, and error bars are too narrow.
    inner_variance : float or None, default=None
        Start of the variances of the kernels of hidden layers with a linear mean, where kernels are
        given by name; objects come with their own. Small ones start near a shallow model, whose fit the
        layers improve. None for 0.001 in regression where `inner_scale` is 0.1 by default, and 1 else.
    n_warmup : int or None, default=None
        First steps in which noise has the same size everywhere, lest noise that may vary explains what
        kernels have not found yet. None for a quarter of the steps in regression where `inner_scale` is
        0.1 by default, and 0 else.
    natural_gradient : {"last", "all", "none"}, default="last"
        The layers whose posterior takes natural-gradient steps (Salimbeni et al., 2018) instead of
        Adam's.
        With ``"all"``, covariances are separate.
    natural_step : float, default=0.1
        Their step size, approached over the first five steps. A step of size 1 is exact for one
        layer, a Gaussian likelihood and full batches.

    References
    ----------
    H. Salimbeni and M. Deisenroth (2017). Doubly stochastic variational inference for deep Gaussian
    processes. Advances in Neural Information Processing Systems 30.

    H. Salimbeni, S. Eleftheriadis and J. Hensman (2018). Natural gradients in practice:
    non-conjugate variational inference in Gaussian process models. AISTATS 21.

    Examples
    --------
    >>> from skdgp.inference import DSVI
    >>> DSVI(n_draws=5)
    DSVI(n_draws=5)
    """

    uses = frozenset({"n_inducing", "init", "mean", "learning_rate", "batch_size", "dtype"})

    def __init__(
        self,
        n_draws=1,
        shared_covariance=True,
        inner_noise=1e-5,
        inner_scale=None,
        inner_variance=None,
        n_warmup=None,
        natural_gradient="last",
        natural_step=0.1,
    ):
        self.n_draws = n_draws
        self.shared_covariance = shared_covariance
        self.inner_noise = inner_noise
        self.inner_scale = inner_scale
        self.inner_variance = inner_variance
        self.n_warmup = n_warmup
        self.natural_gradient = natural_gradient
        self.natural_step = natural_step

    def auto_likelihood(self, n_classes=None, n_layers=2):
        # in a shallow model, noise that may grow explains what slow lengthscales do not yet
        if n_classes is None and n_layers > 1:
            return "heteroscedastic_student_t"
        return super().auto_likelihood(n_classes, n_layers)

    def for_data(self, n_rows, n_classes=None, max_iter=None):
        n_steps = max_iter or _CAREFUL_STEPS
        careful = n_rows <= _CAREFUL_ROWS and n_steps >= _ENOUGH_STEPS
        real = careful and n_classes is None
        usual = {
            "inner_scale": 0.1 if careful else 1e-5,
            "inner_variance": 0.001 if real else 1.0,
            "n_warmup": int(_WARMUP * n_steps) if real else 0,
        }
        missing = {name: value for name, value in usual.items() if getattr(self, name) is None}
        return clone(self).set_params(**missing)

    def max_iter(self, n_rows):
        if self.n_warmup and n_rows <= _FEW_ROWS:
            return _CAREFUL_STEPS
        if _CAREFUL_ROWS < n_rows <= _SOON_ROWS:
            return 350
        return 500 if n_rows <= _FEW_ROWS else 1500

    def n_inducing(self, n_rows, n_classes=None):
        return 100 if n_rows <= _FEW_ROWS else 200

    def validate(self):
        self.check("n_draws", Integral, lambda n: n >= 1, "an int of at least 1")
        self.check_boolean("shared_covariance")
        self.check("inner_noise", Real, lambda x: 0.0 <= x < math.inf, "a number of at least 0")
        for name in ("inner_scale", "inner_variance"):
            if getattr(self, name) is not None:
                self.check(name, Real, lambda x: 0.0 < x < math.inf, "a positive number or None")
        if self.n_warmup is not None:
            self.check("n_warmup", Integral, lambda n: n >= 0, "an int of at least 0 or None")
        self.check("natural_step", Real, lambda x: 0.0 < x <= 1.0, "a number in (0, 1]")
        if self.natural_gradient not in ("last", "all", "none"):
            raise ValueError(
                "natural_gradient of DSVI must be 'last', 'all' or 'none'; got "
                f"{self.natural_gradient!r}."
            )

    def build(self, architecture, likelihood):
        return DeepSparseGP(architecture, likelihood, self.for_data(math.inf))


class DeepSparseGP(HomoscedasticWarmup, GradientModel):
    """The model that :class:`DSVI` builds."""

    _layer_type = SparseLayer

    def __init__(self, architecture, likelihood, scheme):
        super().__init__(natural_step=scheme.natural_step)
        self.n_draws = scheme.n_draws
        self.n_warmup = scheme.n_warmup
        self.input_connected = architecture.input_connected
        self.likelihood = Trainable(likelihood)
        self.layers = nn.ModuleList(self._layers(architecture, scheme))

    def _layers(self, architecture, scheme):
        outputs = (*architecture.widths, architecture.n_latents)
        for i, n_inputs in enumerate(architecture.layer_inputs()):
            last = i == len(outputs) - 1
            natural = scheme.natural_gradient == "all" or (
                scheme.natural_gradient == "last" and last
            )
            yield self._layer_type(
                architecture.kernels[i],
                n_inputs,
                outputs[i],
                architecture.n_inducing,
                linear_mean=architecture.linear_mean and not last,
                noise=0.0 if last else scheme.inner_noise,
                scale=1.0 if last else scheme.inner_scale,
                natural=natural,
                shared=scheme.shared_covariance and not last and not natural,
            )

    def blocks(self):
        return [layer.q for layer in self.layers]

    def propagate(self, X, eps):
        """Moments of the last layer (report, equations 3.9 and 3.10).

        Parameters
        ----------
        X : tensor of shape (n, n_features)
        eps : list of tensors of shape (S, n, width) or (S, 1, width)
            Standard normal draws for the hidden layers.

        Returns
        -------
        mean, var : tensors of shape (S, n, n_latents); S is 1 without hidden layers
        """
        mean, var = self._layer_moments(self.layers[-1], *self._hidden(X, eps), X)
        return self._homoscedastic(mean, var.clamp_min(1e-12))

    def _hidden(self, X, eps):
        """Draws of the last layer's inputs, and how many there are."""
        H, S = X, 1
        for layer, e in zip(self.layers, eps):  # all but the last
            mean, var = self._layer_moments(layer, H, S, X)
            H = torch.addcmul(mean, var.clamp_min(1e-12).sqrt(), e)  # S, n, width
            S = len(e)
        return H, S

    def _layer_moments(self, layer, H, S, X, q=None):
        n = len(X)
        if H is not X and self.input_connected:
            H = torch.cat([H, X.expand(S, *X.shape)], -1)
        mean, var = layer.shared_moments(H.reshape(-1, H.shape[-1]), q)
        return mean.reshape(-1, n, layer.n_outputs), var.reshape(-1, n, var.shape[1])

    def _draw_widths(self):
        """Dimensions of the draws that propagation needs, layer by layer."""
        return [layer.n_outputs for layer in self.layers][:-1]

    def expected_log_likelihood(self, batch, generator):
        eps = [
            normal((self.n_draws, len(batch.X), width), generator, batch.X)
            for width in self._draw_widths()
        ]
        mean, var = self.propagate(batch.X, eps)
        ell = self.likelihood().expected_log_prob(batch.y, mean, var)  # S, n
        return batch.scale / len(ell) * (batch.weight * ell).sum()

    def draws(self, n, seed):
        widths = self._draw_widths()
        return sobol_normal(n, sum(widths), seed) if widths else np.zeros((1, 0))

    def _split(self, draws):
        """Draws of :meth:`draws`, layer by layer."""
        widths = self._draw_widths()
        return [e[:, None] for e in draws.split(widths, 1)] if widths else []

    def predictive(self, X, draws):
        with torch.no_grad():
            return self.propagate(X, self._split(draws))

    @torch.no_grad()
    def with_and_without(self, X, y, weight, draws):
        """Log-densities of training rows, with and without what each has added to the last layer.

        At the optimum, a row with the latent moments `m` and `v` adds to the precision of its latent function
        ``-2 g_v``, and to precision times mean ``g_m - 2 g_v m``, where `g` are the gradients of its expected
        log-likelihood. One count of it is taken off again (Opper and Winther, 2000), for each draw. What
        hidden layers and hyperparameters know of the row stays.

        Parameters
        ----------
        X : tensor of shape (n, n_features)
        y : tensor of shape (n, k)
        weight : tensor of shape (n,)
            How often the rows count.
        draws : tensor
            From :meth:`draws`.

        Returns
        -------
        log_density : ndarray of shape (2, n)
        """
        last, (H, S) = self.layers[-1], self._hidden(X, self._split(draws))
        m, v = self._layer_moments(last, H, S, X)
        known = torch.zeros_like(last.q.mean), -torch.eye(len(last.Z)).to(last.Z)[None]
        own = v - self._layer_moments(last, H, S, X, known)[1]  # what q(v) leaves open
        with torch.enable_grad():
            moments = m.clone().requires_grad_(), v.clamp_min(1e-12).requires_grad_()
            ell = self.likelihood().expected_log_prob(y, *moments)
            g_m, g_v = torch.autograd.grad((weight.clamp_max(1.0) * ell).sum(), moments)
        rest = (1.0 + 2.0 * g_v * own).clamp_min(_LEAST_REST)
        likelihood = self.likelihood().for_prediction(len(m))
        both = (m, v), (m - g_m * own / rest, v + own / rest - own)
        densities = [likelihood.log_partition(y, m, v.clamp_min(1e-12)) for m, v in both]
        return (torch.logsumexp(torch.stack(densities), 1) - math.log(len(m))).numpy(force=True)

    @torch.no_grad()
    def covariance(self, X):
        return self.layers[0].covariance(X) if len(self.layers) == 1 else None

    def functions(self, n, generator, n_features, dispersion=1.0):
        with torch.no_grad():
            layers = self._layer_functions(n, generator, n_features)
            if dispersion != 1.0:
                layers[-1] = self._dispersed(layers[-1], dispersion)

        def f(X, noise=None):
            with torch.no_grad():
                X = X.expand(n, *X.shape)
                H = layers[0](X)
                for layer, function in zip(self.layers, layers[1:]):
                    if noise is not None:
                        H = H + torch.as_tensor(layer.noise()).sqrt() * normal(H.shape, noise, H)
                    H = function(torch.cat([H, X], -1) if self.input_connected else H)
                return self._homoscedastic(H, H)[0]

        return f

    def _dispersed(self, function, dispersion):
        """Functions of the last layer whose deviations from the mean, in means of the target, are scaled."""
        layer = self.layers[-1]
        kernel, n_latents = layer.kernel(), layer.n_outputs
        weights = torch.linalg.solve_triangular(
            layer.inducing_root().T, layer.q.moments()[0], upper=True
        )
        factor = torch.ones_like(weights[0])
        factor[: self.likelihood().n_means(n_latents)] = dispersion

        def f(H):
            expected = kernel(H.flatten(0, 1), layer.Z) @ weights
            expected = expected.view(*H.shape[:2], n_latents) + layer.mean_function(H)
            return expected + factor * (function(H) - expected)

        return f

    def _layer_functions(self, n, generator, n_features):
        return [layer.function(n, n_features, generator) for layer in self.layers]
