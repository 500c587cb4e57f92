"""Doubly stochastic variational inference with a mean-field posterior."""

from typing import Annotated

import torch
from sklearn.utils._param_validation import StrOptions

from ..gp.layer import SparseLayer
from ..gp.units import UnitsLayer
from .base import COUNT, COUNT_OR_ZERO, FRACTION, NOT_NEGATIVE, OF_LAYERS, POSITIVE, Scheme
from .deep import DeepSparseGP

_FEW_ROWS = 4000  #: rows up to which little is to be learned by larger models
_DEVIATION = 0.1  #: of hidden outputs at the start, in units of the standardized inputs
#: Steps by rows: few rows take more of them, and between 400 and 1,000 more steps overfit.
_STEPS = (400, 1000), (1000, 350), (_FEW_ROWS, 500)


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
    shared_kernel : bool, default=True
        Whether the units of a hidden layer share one kernel and its inducing inputs, as in the published
        scheme. Otherwise each unit learns its own, and sees the inputs with lengthscales of its own; the
        covariances of units are then separate, too. A hidden layer takes as many times longer as it has units.
    unit_scales : bool, default=False
        Whether each unit of a hidden layer has a variance of its own beside the shared kernel, so that units
        that are not needed hand on the mean function alone. The published scheme has one for all. Kernels that
        are not trained, and those of single units, come without. No other scheme can be given such variances.
    inner_noise : float, default=1e-5
        Start of the variance, learned, that is added to the outputs of hidden layers; 0 for none.
        In units of the standardized inputs.
    inner_scale : float or None, default=None
        Start of the posterior standard deviations of hidden layers, relative to the prior's. None for
        deviations of 0.1 in units of the standardized inputs, and at most those of the prior. With those of
        the prior there is no divergence from it: training starts at the lower bound of a shallow model
        less what little noise in its inputs costs. The published scheme has 1e-5, whose
        divergence of 11 nats for each inducing variable takes many thousands of steps to go.
    inner_variance : float, default=0.01
        Start of the variances of the kernels of hidden layers with a linear mean, where kernels are
        given by name; objects come with their own. Small ones start near a shallow model, whose fit the
        layers improve. The published scheme has 1.
    n_warmup : int, default=0
        First steps in which noise has the same size everywhere, lest noise that may vary explains what
        kernels have not found yet.
    n_restart : int, default=0
        Step before which hidden layers around linear means start once more if all of their processes have
        vanished by then: the last layer has found a shallow model, around which they learn more than before.
        0, as published, for never.
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

    widens = True
    uses = OF_LAYERS | {"n_inducing", "init", "learning_rate", "batch_size", "dtype"}

    n_draws: Annotated[int, COUNT] = 1
    shared_covariance: Annotated[bool, "boolean"] = True
    shared_kernel: Annotated[bool, "boolean"] = True
    unit_scales: Annotated[bool, "boolean"] = False
    inner_noise: Annotated[float, NOT_NEGATIVE] = 1e-5
    inner_scale: Annotated[float | None, POSITIVE, None] = None
    inner_variance: Annotated[float, POSITIVE] = 0.01
    n_warmup: Annotated[int, COUNT_OR_ZERO] = 0
    n_restart: Annotated[int, COUNT_OR_ZERO] = 0
    natural_gradient: Annotated[str, StrOptions({"last", "all", "none"})] = "last"
    natural_step: Annotated[float, FRACTION] = 0.1

    # in a shallow model, noise that may grow explains what slow lengthscales do not yet
    auto_noise = "gaussian", "heteroscedastic_student_t"

    def max_iter(self, n_rows):
        return next((steps for rows, steps in _STEPS if n_rows <= rows), 1500)

    def n_inducing(self, n_rows, n_classes=None):
        return 100 if n_rows <= _FEW_ROWS else 200

    def beyond_hyperparameters(self, architecture, likelihood):
        hidden = architecture.kernels[:-1]
        if not any(kernel.learns for kernel in hidden):
            return None
        if not self.shared_kernel:
            return "a kernel for each hidden unit"
        scales = any(map(self._has_scales, hidden, architecture.widths))
        return "a variance for each hidden unit" if scales else None

    def _has_scales(self, kernel, width):
        return self.unit_scales and width > 1 and kernel.learns

    def build(self, architecture, likelihood):
        everything, n_hidden = self.natural_gradient == "all", len(architecture.widths)
        inner = {
            "noise": self.inner_noise,
            "natural": everything,
            "shared": self.shared_covariance and not everything,
            "of_units": not self.shared_kernel,
        }

        def settings(i):
            if i == n_hidden:
                return {"natural": self.natural_gradient != "none"}
            kernel, n_inputs = architecture.kernels[i], architecture.layer_inputs()[i]
            own = {"scale": self.inner_scale or start_scale(kernel, n_inputs)}
            if self.shared_kernel:
                own["scales"] = self._has_scales(kernel, architecture.widths[i])
            return inner | own

        layers = architecture.stack(_layer, settings)
        first = self.n_warmup, self.n_restart
        return DeepSparseGP(
            architecture, likelihood, layers, self.n_draws, self.natural_step, *first
        )


def _layer(*shape, of_units=False, **settings):
    return UnitsLayer(*shape, **settings) if of_units else SparseLayer(*shape, **settings)


def start_scale(kernel, n_inputs):
    """Deviation of 0.1 for inputs of unit size, relative to that of the prior, and at most the latter."""
    variance = float(kernel.diag(torch.ones(1, n_inputs, dtype=torch.float64)))
    return _DEVIATION / max(variance, _DEVIATION**2) ** 0.5
