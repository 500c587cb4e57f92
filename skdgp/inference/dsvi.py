"""Doubly stochastic variational inference with a mean-field posterior."""

import math

from sklearn.base import clone
from sklearn.utils._param_validation import StrOptions

from ..gp.layer import SparseLayer
from .base import COUNT, COUNT_OR_ZERO, FRACTION, NOT_NEGATIVE, OF_LAYERS, POSITIVE, Scheme
from .deep import DeepSparseGP

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

    uses = OF_LAYERS | {"n_inducing", "init", "learning_rate", "batch_size", "dtype"}

    _parameter_constraints = {
        "n_draws": [COUNT],
        "shared_covariance": ["boolean"],
        "inner_noise": [NOT_NEGATIVE],
        "inner_scale": [POSITIVE, None],
        "inner_variance": [POSITIVE, None],
        "n_warmup": [COUNT_OR_ZERO, None],
        "natural_gradient": [StrOptions({"last", "all", "none"})],
        "natural_step": [FRACTION],
    }

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

    def for_data(self, n_rows, n_classes=None, max_iter=None, likelihood=None):
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

    def build(self, architecture, likelihood):
        scheme, everything = self.for_data(math.inf), self.natural_gradient == "all"
        inner = {
            "noise": scheme.inner_noise,
            "scale": scheme.inner_scale,
            "natural": everything,
            "shared": scheme.shared_covariance and not everything,
        }
        last = {"natural": scheme.natural_gradient != "none"}
        n_hidden = len(architecture.widths)
        layers = architecture.stack(SparseLayer, lambda i: inner if i < n_hidden else last)
        return DeepSparseGP(
            architecture, likelihood, layers, scheme.n_draws, scheme.natural_step, scheme.n_warmup
        )
