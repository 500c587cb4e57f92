"""The members of a mixture: plans before the fit, fitted models as numpy after it."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from sklearn.base import clone

from .._threads import on_cpu
from ..gp.kernels import Kernel, as_kernel
from ..gp.kernels.base import check_gradients
from ..gp.kernels.columns import located
from ..gp.kernels.indicator import with_levels
from ..gp.likelihoods import Likelihood
from ..inference.base import Architecture, Scheme

_FEWEST_DRAWS = 8  #: of a member of a mixture
_NOTICED = 0.01  #: nats a row, a tenth of the standard error of a hundred test rows
_WIDEST = 30  #: outputs of a hidden layer unless the user gives them: beyond it, steps get dear


@dataclass
class Plan:
    """Plan of a member, before the shape of the data is known."""

    scheme: Scheme
    likelihood: Likelihood | None = None
    n_layers: int = 1
    width: int | Sequence[int] | None = None
    kernel: str | Kernel | Sequence[str | Kernel] = "auto"
    n_inducing: int | None = None  #: before there are too few rows; None for the scheme's choice
    max_iter: int | None = None  #: steps; None for the scheme's choice
    learning_rate: float | None = None  #: likewise
    #: blocks of steps without a better log density of held-out rows after which training stops, with the best
    #: state; None makes all steps
    patience: int | None = None
    seconds: float = 1.0  #: predicted CPU time, by which members share a budget

    def widths(self, n_features: int) -> tuple:
        """Outputs of the hidden layers; raises ValueError if the user's width does not fit."""
        n_hidden = self.n_layers - 1
        width = min(n_features, _WIDEST) if self.width is None else self.width
        if isinstance(width, int | np.integer):
            return (int(width),) * n_hidden
        widths = tuple(width)
        if len(widths) != n_hidden or not all(
            isinstance(w, int | np.integer) and w > 0 for w in widths
        ):
            raise ValueError(
                f"width must be a positive int or one for each of the {n_hidden} hidden layers; got {width!r}."
            )
        return tuple(int(w) for w in widths)

    def _given_kernels(self):
        if isinstance(self.kernel, str) and self.kernel == "auto":
            return self.scheme.auto_kernel
        return self.kernel

    def last_kernel(self) -> Kernel:
        """The kernel of the last layer."""
        kernels = self._given_kernels()
        return as_kernel(kernels if isinstance(kernels, (str, Kernel)) else kernels[-1])

    def kernels(self, architecture: Architecture, columns, names: tuple, scale, codes=()) -> list:
        """Kernels of the layers, bound to the number of their inputs.

        `columns` are those of X that the model sees, of all that have `names`, and for which there may be
        hyperparameters; they are divided by `scale`. Inputs `codes` hold those of levels, whose effects are
        added if models have some, and no distances.
        """
        kernels, layer_inputs = self._given_kernels(), architecture.layer_inputs()
        if isinstance(kernels, (str, Kernel)):
            kernels = [kernels] * len(layer_inputs)
        if len(kernels) != len(layer_inputs):
            raise ValueError(
                f"kernel must be one kernel or one for each of the {len(layer_inputs)} layers; got "
                f"{len(kernels)}."
            )
        made = [clone(as_kernel(kernel)) for kernel in kernels]
        for i, n in enumerate(layer_inputs):
            if made[i].is_bound:
                continue
            made[i] = located(made[i], None if i else names, n if i else len(names))
            if n == len(columns):
                of_layer = columns if i or not len(codes) else np.delete(columns, codes)
                made[i] = made[i].of_columns(of_layer, len(names))
        bound = made[0].is_bound
        made[0] = made[0].in_units(np.delete(scale, codes) if len(codes) and not bound else scale)
        if architecture.linear_mean:  # without it, kernels are all that hidden layers have
            for given, kernel in zip(kernels[:-1], made):
                if isinstance(given, str) and "variance" in kernel.get_params(deep=False):
                    kernel.variance = self.scheme.inner_variance
        if len(codes) and not bound:
            made[0] = with_levels(made[0], codes, len(columns), self.scheme.has_effects)
        made = [kernel.bind(n) for kernel, n in zip(made, layer_inputs)]
        for kernel, n in zip(made, layer_inputs):
            check_gradients(kernel, n)
        return made


@dataclass
class Record:
    """Record of the training of one member."""

    n_iter: int = 0
    loss_curve: list = field(default_factory=list)
    validation_scores: list = field(default_factory=list)
    seconds: float = 0.0  #: CPU time
    log_density: float = np.nan  #: mean of unseen rows, in the target's units; NaN if unknown


class Member:
    """One model of the mixture that an estimator predicts with.

    Parameters
    ----------
    scheme : Scheme
    architecture : Architecture
    likelihood : Likelihood
        Bound, with the hyperparameters at the start.

    Attributes
    ----------
    mixture_weight : float
        Weight in the mixture; those of all members add up to one.
    dispersion : float
        What the standard deviation of each component is multiplied by: below one where the mixture
        would be too wide otherwise.
    arrays : dict of ndarray
        State of the fitted model.
    draws : ndarray of shape (n_draws, ...)
        The base randomness that all predictions share.
    record : Record
        Of the training.
    """

    def __init__(self, scheme, architecture, likelihood):
        self.scheme, self.architecture, self.likelihood = scheme, architecture, likelihood
        self.mixture_weight = self.dispersion = 1.0
        self.arrays, self.draws, self.record = {}, np.zeros((1, 0)), Record()
        self._posteriors, self._solution, self._lock = {}, {}, threading.Lock()

    def __getstate__(self):
        state = dict(self.__dict__)
        del state["_posteriors"], state["_lock"]
        posterior = next(iter(self._posteriors.values()), None)
        if posterior is not None:
            state["_solution"] = posterior.solution()
        return state

    def __setstate__(self, state):
        self.__dict__.update({"_solution": {}, **state})
        self._posteriors, self._lock = {}, threading.Lock()

    def __repr__(self):
        return (
            f"Member({type(self.scheme).__name__}, layers={len(self.architecture.kernels)}, "
            f"mixture_weight={self.mixture_weight:.3g})"
        )

    def build(self):
        """A new torch module of this member's shape."""
        return self.scheme.build(self.architecture, self.likelihood)

    def model(self, device="cpu"):
        """A torch module in the fitted state, to train on."""
        with torch.inference_mode(False), on_cpu():
            model = self.build()
            model.load_state(self.arrays)
            return model.to(device)

    def fitted(self, model, draws, record):
        """A member that holds the present state of `model`."""
        new = Member(self.scheme, self.architecture, self.likelihood)
        new.arrays, new.draws, new.record = model.state(), draws, record
        return new

    def release(self):
        """Forget the posteriors; the next one is made from `arrays`."""
        self._posteriors = {}

    def holding(self, posterior, device="cpu"):
        """A member that predicts with this posterior."""
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        new._posteriors = {torch.empty(0, device=device).device: posterior}
        return new

    def with_needed_draws(self, errors):
        """This member with the fewest of its first draws that give rows the density of all of them.

        A power of two, at which the error, weighted as in the mixture, is a hundredth of a nat at most.
        `errors` (n_draws,) are those of log densities with the first draws alone, or None.
        """
        if errors is not None and len(errors) == len(self.draws):  # one component for each draw
            n = _FEWEST_DRAWS
            while n < len(errors) and not self.mixture_weight * errors[n - 1] <= _NOTICED:
                n *= 2
            self.draws, self._posteriors = self.draws[:n], {}
        return self

    def posterior(self, device="cpu"):
        """The frozen posterior on a device, made once."""
        device = torch.empty(0, device=device).device  # "cuda" with its index, as tensors have it
        posterior = self._posteriors.get(device)
        if posterior is None:
            with self._lock, torch.inference_mode(False), torch.no_grad(), on_cpu():
                if device not in self._posteriors:
                    draws = torch.tensor(self.draws, device=device)
                    model = self.model(device)
                    model.solution, self._solution = self._solution, {}
                    self._posteriors[device] = model.posterior(draws)
                posterior = self._posteriors[device]
        return posterior

    def known_posterior(self, device="cpu"):
        """The frozen posterior on a device if it is made already, else None."""
        return self._posteriors.get(torch.empty(0, device=device).device)

    @property
    def has_posterior(self):
        """Whether a posterior was made, which takes time."""
        return bool(self._posteriors)

    def _at_hand(self):
        """The posterior on any device, or a new one."""
        return next(iter(self._posteriors.values()), None) or self.posterior()

    @property
    def kernels_(self) -> list:
        """Kernels of the layers with fitted hyperparameters, in units of the standardized inputs."""
        return self._at_hand().kernels

    @property
    def likelihood_(self) -> Likelihood:
        """The likelihood with fitted hyperparameters, in units of the standardized target."""
        return self._at_hand().likelihood

    @property
    def priors_(self) -> dict:
        """Priors of hyperparameters by path, with medians in units of the standardized inputs and target.

        Those of the user and those of the scheme are :class:`~skdgp.gp.priors.LogNormal` alike. Given to a
        kernel or likelihood, they are the priors of another fit.
        """
        model = self.build()
        names = {id(one.parameter): one.name for one in model.hyperparameters()}
        found = {names[id(one.parameter)]: one.prior for one in model.with_priors()}
        return {name.replace("log_", ""): prior for name, prior in found.items() if "log_" in name}

    @property
    def inducing_inputs_(self) -> list:
        """Inducing inputs of the layers, in units of the standardized inputs."""
        return self._at_hand().inducing_inputs
