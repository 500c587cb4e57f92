"""The members of a fitted estimator: models as numpy, with their torch modules made when needed."""

import contextlib
from dataclasses import dataclass
from numbers import Integral

import torch
from sklearn.base import clone

from .._warnings import warn
from ..gp.kernels import Kernel, as_kernel
from ..gp.kernels.base import Pair
from ..gp.likelihoods import Likelihood
from ..inference import SCHEMES, Scheme
from ..training.checkpoint import fingerprint

_FEW_ROWS = 4000  #: rows up to which a deep model may overfit
_MOST_ROWS = 100_000  #: rows up to which shallow GPs on all of them take part
_MOST_COLUMNS = 30  #: with an ANOVA kernel, beyond which it takes too long
_LOOSE = 0.1  #: start of hidden posteriors that keeps more of the prior
_WIDEST = 30  #: outputs of a hidden layer unless the user gives them
_SHAPE = ("n_layers", "width", "mean", "input_connected", "inference")
_PRESET = ("kernel", "n_inducing", "standardize", "likelihood")


@dataclass
class Plan:
    """What a member is to be, before the shape of the data is known.

    Attributes
    ----------
    scheme : Scheme
    likelihood : Likelihood
    n_layers : int
    width : int, sequence of int or None
    kernel : str, Kernel or sequence of these
    n_inducing : int or None
        Inducing points of each layer, before there are too few rows; None for the scheme's choice.
    mixture_weight : float
        Weight in the mixture, relative to others.
    most : float or None
        The largest mixture weight that stacking can give it; None if it keeps its own.
    """

    scheme: Scheme
    likelihood: Likelihood = None
    n_layers: int = 1
    width: object = None
    kernel: object = "auto"
    n_inducing: int = None
    mixture_weight: float = 1.0
    most: float = None

    def widths(self, n_features):
        """Outputs of the hidden layers."""
        n_hidden = self.n_layers - 1
        width = min(n_features, _WIDEST) if self.width is None else self.width
        if isinstance(width, Integral):
            return (int(width),) * n_hidden
        widths = tuple(width)
        if len(widths) != n_hidden or not all(isinstance(w, Integral) and w > 0 for w in widths):
            raise ValueError(
                f"width must be a positive int or one for each of the {n_hidden} hidden layers; got {width!r}."
            )
        return tuple(int(w) for w in widths)

    def _given_kernels(self):
        if isinstance(self.kernel, str) and self.kernel == "auto":
            return self.scheme.auto_kernel
        return self.kernel

    def last_kernel(self):
        """The kernel of the last layer."""
        kernels = self._given_kernels()
        return as_kernel(kernels if isinstance(kernels, (str, Kernel)) else kernels[-1])

    def kernels(self, architecture, columns, n_columns):
        """Kernels of the layers, bound to their number of inputs.

        Parameters
        ----------
        architecture : Architecture
        columns : ndarray of int
            Columns of X that the model sees.
        n_columns : int
            All of them, for which the user may have given hyperparameters.
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
        made = [
            kernel.of_columns(columns, n_columns) if n == len(columns) else kernel
            for kernel, n in zip(made, layer_inputs)
        ]
        if architecture.linear_mean:  # without it, kernels are all that hidden layers have
            for given, kernel in zip(kernels[:-1], made):
                if isinstance(given, str) and hasattr(kernel, "variance"):
                    kernel.variance = self.scheme.inner_variance
        return [kernel.bind(n) for kernel, n in zip(made, layer_inputs)]


@contextlib.contextmanager
def all_or_nothing(estimator):
    """What fails leaves the estimator as it was."""
    before = estimator.__dict__.copy()
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        for member in before.get("members_", ()):
            member.release()  # its module may have been trained
        raise


def takes_chunks(estimator):
    """Whether the estimator has ``partial_fit``; raises AttributeError, with the reason, if not."""
    scheme = estimator.inference
    scheme = SCHEMES.get(scheme, scheme) if isinstance(scheme, str) else scheme
    if not getattr(scheme, "takes_chunks", True):
        name = scheme.__name__ if isinstance(scheme, type) else type(scheme).__name__
        raise AttributeError(
            f"{name} needs all rows at once; partial_fit is for schemes that learn from minibatches, as "
            "inference='dsvi'."
        )
    return True


def _parts(kernel):
    """The class of a kernel, with those of the parts of sums and products."""
    if isinstance(kernel, Pair):
        return type(kernel), *(_parts(as_kernel(part)) for part in (kernel.left, kernel.right))
    return type(kernel)


def warm_start_sources(plans, members):
    """For each plan the member that it goes on with: the first one left with its scheme and kernel, or None.

    A single plan may have other settings of the scheme than the member.

    Raises
    ------
    ValueError
        If there is none for a single plan.
    """

    def akin(plan, member, of_scheme=repr):
        kernels = plan.last_kernel(), member.architecture.kernels[-1]
        schemes = plan.scheme, member.scheme
        return len({*map(of_scheme, schemes)}) == 1 and len({*map(_parts, kernels)}) == 1

    left, sources = list(members), []
    for plan in plans:
        same = [member for member in left if akin(plan, member)]
        sources.append(same[0] if same else None)
        left = [member for member in left if member is not sources[-1]]
    if members and len(plans) == 1 and sources[0] is None:
        sources = [member for member in members if akin(plans[0], member, of_scheme=type)][:1]
        if not sources:
            raise ValueError(
                f"warm_start=True goes on with the model of the last fit, and none was trained by "
                f"{type(plans[0].scheme).__name__}; set warm_start=False to start anew."
            )
    return sources


def lasting(estimator):
    """Digests of the parameters that cannot change while the same model learns on."""
    return {name: fingerprint(getattr(estimator, name)) for name in (*_SHAPE, *_PRESET)}


def _changed(estimator, names):
    before, now = getattr(estimator, "_lasting", {}), lasting(estimator)
    return " and ".join(name for name in names if before.get(name, now[name]) != now[name])


def check_lasting(estimator):
    """Raise ValueError if what a warm start cannot change is not as in the last fit."""
    changed = _changed(estimator, _PRESET)  # shapes are compared member by member
    if changed:
        raise ValueError(
            f"warm_start=True goes on with the model of the last fit, so {changed} must stay "
            "as before; set warm_start=False to start anew."
        )


def check_chunk(estimator):
    """Refuse what ``partial_fit`` would ignore, and warn of members that it drops."""
    if estimator.early_stopping:
        raise ValueError("partial_fit does not support early_stopping=True")
    if not hasattr(estimator, "members_"):
        return
    changed = _changed(estimator, (*_SHAPE, *_PRESET))
    if changed:
        raise ValueError(
            f"partial_fit goes on with the model of the calls before, so {changed} must stay as before; use "
            "sklearn.base.clone to start anew."
        )
    if len(estimator.members_) > 1:
        warn(
            "partial_fit goes on with the first model of the mixture alone, and the others are dropped; set "
            "inference='dsvi' before fit to train one model from the start.",
            UserWarning,
        )


@contextlib.contextmanager
def at_rest(models):
    """Between steps: what predictions need and rows do not change is kept."""
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model in models:
            model.train()


def with_needed_draws(members, models, draws):
    """Members, their models, and of their draws those that predictions need with the members' weights."""
    total = sum(member.mixture_weight for member in members)
    for member, model, own in zip(members, models, draws):
        yield member, model, model.needed(own, member.mixture_weight / total)


class Member:
    """One model of the mixture that an estimator predicts with.

    Parameters
    ----------
    scheme : Scheme
    architecture : Architecture
    likelihood : Likelihood
        Bound, with the hyperparameters at the start.
    mixture_weight : float
        Weight in the mixture.

    Attributes
    ----------
    dispersion : float
        What the standard deviation of each component is multiplied by: below one where the mixture
        would be too wide otherwise.
    arrays : dict of ndarray
        State of the fitted model.
    draws : ndarray of shape (n_draws, ...)
        The base randomness that all predictions share.
    """

    def __init__(self, scheme, architecture, likelihood, mixture_weight=1.0):
        self.scheme = scheme
        self.architecture = architecture
        self.likelihood = likelihood
        self.mixture_weight = mixture_weight
        self.dispersion = 1.0
        self._model = None

    def __getstate__(self):
        return {**self.__dict__, "_model": None}

    def __repr__(self):
        weights = f"mixture_weight={self.mixture_weight:.3g}, dispersion={self.dispersion:.3g}"
        return f"Member({self.scheme!r}, {weights})"

    def build(self):
        """A new torch module of this member's shape."""
        return self.scheme.build(self.architecture, self.likelihood)

    def fitted(self, model, draws):
        """A copy that holds the present state of `model`."""
        new = self._like()
        new.arrays, new.draws = model.state(), draws
        return new

    def holding(self, model, draws):
        """A member that predicts with `model` itself, whatever its state."""
        new = self._like()
        new.draws = draws
        new.hold(model)
        return new

    def _like(self):
        new = Member(self.scheme, self.architecture, self.likelihood, self.mixture_weight)
        new.dispersion = self.dispersion
        return new

    def hold(self, model):
        """Take a model that is in the state of `arrays`, instead of building one."""
        self._model = next(model.parameters()).device, model

    def release(self):
        """Forget the module; the next one is made from `arrays`."""
        self._model = None

    def model(self, device):
        """The fitted torch module on a device."""
        device = torch.empty(0, device=device).device  # "cuda" with its index, as tensors have it
        if self._model is None or self._model[0] != device:
            with torch.inference_mode(False):  # it may be trained later
                model = self.build()
                model.load_state(self.arrays)
                self._model = device, model.to(device).eval()
        return self._model[1]

    def _at_hand(self):
        return self.model("cpu") if self._model is None else self._model[1]

    @property
    def kernels(self):
        """Kernels of the layers with fitted hyperparameters, in units of the standardized inputs."""
        return [layer.kernel.fitted() for layer in self._at_hand().layers]

    @property
    def fitted_likelihood(self):
        """The likelihood with fitted hyperparameters, in units of the standardized target."""
        return self._at_hand().likelihood.fitted()

    @property
    def inducing_inputs(self):
        """Inducing inputs of the layers, in units of the standardized inputs."""
        return [
            layer.Z.detach().flatten(0, -2).cpu().numpy().copy() for layer in self._at_hand().layers
        ]
