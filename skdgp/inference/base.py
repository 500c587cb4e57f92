"""The contract between inference schemes and everything above them."""

import contextlib
import time
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import ClassVar, get_args

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, make_constraint
from torch import nn

from .._parameters import check_settable
from ..gp.component import hyperparameters
from ..gp.priors import negative_log_prior
from ..gp.stack import Stack
from ..random import sobol_normal

#: constructor arguments that shape hidden layers which have features
OF_LAYERS = frozenset({"width", "mean", "input_connected"})

# settings of schemes
COUNT, COUNT_OR_ZERO = (Interval(Integral, least, None, closed="left") for least in (1, 0))
POSITIVE, NOT_NEGATIVE = (Interval(Real, 0, None, closed=ends) for ends in ("neither", "left"))
FRACTION, INNER_FRACTION = (Interval(Real, 0, 1, closed=ends) for ends in ("right", "neither"))


@dataclass
class Architecture:
    """Shape of a deep Gaussian process, the same for all schemes."""

    n_features: int  #: inputs of the first layer
    widths: tuple  #: outputs of the hidden layers
    n_latents: int  #: outputs of the last layer
    n_inducing: int
    kernels: list  #: one for each layer, bound to the number of its inputs
    linear_mean: bool  #: whether hidden layers have a linear mean function, or zero
    #: whether later layers have the inputs of the first one beside the outputs of the layer before
    input_connected: bool

    def layer_inputs(self):
        """Number of inputs of every layer."""
        extra = self.n_features if self.input_connected else 0
        return [self.n_features] + [width + extra for width in self.widths]

    def stack(self, make, settings=lambda i: {}):
        """A stack of layers ``make(kernel, n_inputs, n_outputs, n_inducing, **settings(i))``."""
        outputs = (*self.widths, self.n_latents)

        def layer(i, *shape):
            linear = self.linear_mean and i < len(self.widths)
            return make(*shape, self.n_inducing, linear_mean=linear, **settings(i))

        shapes = enumerate(zip(self.kernels, self.layer_inputs(), outputs))
        return Stack([layer(i, *shape) for i, shape in shapes], self.input_connected)


class Scheme(BaseEstimator):
    """Base class of the inference schemes: parameter objects that build models.

    Attributes
    ----------
    uses : frozenset of str
        The constructor arguments of the estimators that mean something to this scheme, beyond those
        that every scheme understands.
    takes_chunks : bool
        Whether a model can learn from rows that come in chunks.
    widens : bool
        Whether hidden layers around linear means get a unit more for each column that comes to vary.
    fewer_draws : bool
        Whether a model with a small weight in a mixture may predict with fewer draws.
    leaves_one_out : bool
        Whether posteriors have exact log densities of training rows given all others.
    leaves_groups_out : bool
        Whether they have such densities given the rows of all other groups.
    has_effects : bool
        Whether models have effects of levels: a variance between groups, and between levels with few rows.
    """

    uses: ClassVar[frozenset[str]] = frozenset()
    takes_chunks = True
    widens = False
    fewer_draws = True
    leaves_one_out = False
    leaves_groups_out = False
    has_effects = False

    #: names of the likelihoods that ``"auto"`` stands for in regression, of shallow and of deep models
    auto_noise = "gaussian", "gaussian"

    def auto_likelihood(self, n_classes=None, n_layers=2):
        """Name of the likelihood that ``"auto"`` stands for; `n_classes` is None for regression."""
        if n_classes is None:
            return self.auto_noise[n_layers > 1]
        return "probit" if n_classes == 2 else "softmax"

    #: name of the kernel that ``"auto"`` stands for
    auto_kernel = "squared_exponential"
    #: start of the variances of hidden layers' kernels that are given by name, around a linear mean
    inner_variance = 1.0
    #: first steps in which noise has the same size everywhere
    n_warmup = 0

    def for_data(self, n_rows, n_classes=None, max_iter=None, likelihood=None):
        """The scheme with values that depend on the data in the place of None.

        Parameters
        ----------
        n_rows : int or float
            Infinite if the number is unknown.
        n_classes : int or None
            None for regression.
        max_iter : int, optional
            Number of steps, if the user gives it.
        likelihood : Likelihood, optional
        """
        return self

    def _with_defaults(self, **values):
        """A copy with these values in the place of None."""
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return clone(self).set_params(**missing)

    def max_iter(self, n_rows):
        """Number of steps unless the user gives one."""
        return 1500

    def learning_rate(self, n_rows):
        """Step size of the optimizer unless the user gives one."""
        return 0.01

    def batch_size(self, n_rows):
        """Rows of a minibatch unless the user gives them."""
        return 1000

    def n_inducing(self, n_rows, n_classes=None):
        """Inducing points of each layer unless the user gives them; `n_classes` is None for regression."""
        return 100

    def beyond_hyperparameters(self, architecture, likelihood):
        """Name the trained parts of the prior beside point estimates of hyperparameters, or None.

        Other models cannot be given it, see :func:`~skdgp.model_selection.freeze_hyperparameters`.
        """

    def cubes(self, n_rows, n_inducing):
        """Cost of a step and of what follows the last one, in factorizations of a matrix over its rows' cube.

        Only where it grows with the square of the rows or more, so that one step may take longer than there is
        time; a budget of time is held by fewer rows then.
        """
        return 0.0, 0.0

    #: for each setting, the values that it may have, as in scikit-learn
    _parameter_constraints: ClassVar[dict[str, tuple]] = {}

    def __init_subclass__(cls, **kwargs):
        """Make the constructor from settings ``name: Annotated[type, *values] = default``."""
        super().__init_subclass__(**kwargs)
        is_given = "__init__" in vars(cls)
        dataclass(eq=False, repr=False)(cls)
        if not is_given:  # documentation shows defaults alone
            cls.__init__.__annotations__ = {}
        of_fields = {field.name: get_args(field.type)[1:] for field in fields(cls)}
        cls._parameter_constraints = {**cls._parameter_constraints, **of_fields}

    def __setattr__(self, name, value):
        check_settable(self, name)
        super().__setattr__(name, value)

    def validate(self):
        """Raise ValueError if a setting makes no sense."""
        for name, allowed in self._parameter_constraints.items():
            value, constraints = getattr(self, name), [make_constraint(a) for a in allowed]
            number = not isinstance(value, bool) or "boolean" in allowed
            if not (number and any(c.is_satisfied_by(value) for c in constraints)):
                raise ValueError(
                    f"{name} of {type(self).__name__} must be {' or '.join(map(str, constraints))}; got "
                    f"{value!r}."
                )

    def build(self, architecture, likelihood):
        """A model of the given shape, with starting values that do not depend on data.

        Parameters
        ----------
        architecture : Architecture
        likelihood : Likelihood
            Bound to the target.

        Returns
        -------
        model : Model
        """
        raise NotImplementedError


class Model(nn.Module):
    """Base class of the models that schemes build.

    All randomness comes in through arguments; no global seed is read or set. A model that is trained by
    gradients gives :meth:`expected_log_likelihood`, :meth:`blocks` and :meth:`_frozen`; a sampler makes its own
    :meth:`step`.

    Once a model is `finished`, further steps would change nothing.
    """

    moves_inducing_inputs = False  #: whether there is ``cover(X, n)``
    solution: ClassVar[
        dict[str, torch.Tensor]
    ] = {}  #: see :meth:`~skdgp.inference.posterior.Posterior.solution`
    is_full_batch = False  #: whether each step looks at all rows
    homoscedastic = False  #: whether noise that may vary has the same size everywhere as yet
    unsolved = None  #: rows whose posterior is still to be found
    unfinished = None  #: a sentence for the user if the model is not yet what it is to be
    _seconds = None

    def __init__(self, steps=None):
        super().__init__()
        self.steps, self.learning_rate = steps, 0.01

    @property
    def finished(self):
        return self.steps is not None and self.steps.finished

    def start(self, X, weights, rng, method="kmeans"):
        """Set what depends on rows; the default places the inducing inputs of the `layers`."""
        return self.layers.start(X, weights, rng, method)

    def prepare(self, learning_rate, dtype):
        """Called once before training, with the dtype of inputs and of large products."""
        self.learning_rate = learning_rate
        for block in self.blocks():
            if not block.natural:
                block.to_dtype(dtype)

    def limit(self, seconds, cubes):
        """Called before training: the time there is, also in the unit of :meth:`Scheme.cubes`."""
        self._seconds, self._limited = seconds, time.monotonic()

    def is_late(self, share=1.0):
        """Whether a share of the time has passed, which single steps that are long do not wait for."""
        seconds = self._seconds
        return seconds is not None and time.monotonic() - self._limited > share * seconds

    def known_bound(self):
        """The lower bound of all rows, in units of the standardized target, where it is known already."""
        return None

    def hold(self, batch):
        """Take the training rows, unless that is done: a model that comes from a file has not seen them."""

    def step(self, batch, generator, rate=1.0):
        """Make one update of `rate`, in (0, 1], times the full size; return the loss per row."""
        return self.steps.step(self, batch, generator, rate)

    def expected_log_likelihood(self, batch, generator):
        """Estimate, unbiased for all rows, of the expected log-likelihood.

        A sum over the rows of the batch; terms without rows are multiplied by ``batch.share``, and draws for
        rows come from ``batch.draw``. Estimates of ranks that have a part of the rows each then add up.
        """
        raise NotImplementedError

    def blocks(self):
        """The Gaussian blocks of the posterior."""
        return []

    def moving(self):
        """The blocks that this step changes."""
        return [block for block in self.blocks() if not block.held]

    def kl(self):
        """Divergence of the blocks from the prior."""
        return sum(block.kl() for block in self.blocks())

    def averaged(self):
        """A context in which the parameters are what predictions are made with."""
        return contextlib.nullcontext() if self.steps is None else self.steps.averaged(self)

    def draws(self, n, seed):
        """Base randomness of a predictive distribution, as numpy, shape (n_draws, ...)."""
        widths = self.draw_widths()
        return sobol_normal(n, sum(widths), seed) if widths else np.zeros((1, 0))

    def draw_widths(self):
        """Dimensions of the draws that propagation needs, layer by layer."""
        return [layer.n_outputs for layer in self.layers][:-1]

    def posterior(self, draws, as_trained=False):
        """The frozen posterior that predicts with these draws; `as_trained`, without inflation."""
        self._solve()
        with self.averaged(), torch.no_grad():
            return self._frozen(draws, as_trained)

    def _solve(self):
        """Find the posterior for the present hyperparameters, if rows are left `unsolved`."""

    def accept(self):
        """Called when a search for hyperparameters has come to stay where it has looked last."""

    def _frozen(self, draws, as_trained):
        """The posterior for the present parameters."""
        raise NotImplementedError

    def hyperparameters(self):
        """All parameters with their roles: a list of :class:`~skdgp.gp.component.Hyperparameter`."""
        return hyperparameters(self)

    def with_priors(self):
        """The hyperparameters that have a prior, with it."""
        return [one for one in self.hyperparameters() if one.prior is not None]

    def given_priors(self):
        """Hyperparameters of :meth:`with_priors` whose priors the steps add to the objective."""
        return self.with_priors()

    def prior_log_density(self):
        """Log density of :meth:`given_priors`, up to a constant."""
        return -negative_log_prior(self.given_priors())

    def divergence(self):
        """Difference of the expected log-likelihood and the lower bound; None if there is none."""
        return None

    def state(self):
        """Everything that prediction needs, as a dict of numpy arrays."""
        self._solve()
        with self.averaged():
            return {
                name: tensor.detach().cpu().numpy().copy()
                for name, tensor in self.state_dict().items()
            }

    def state_in_training(self):
        """:meth:`state`, perhaps without what follows from it and the training rows."""
        return self.state()

    def load_state(self, arrays):
        """The inverse of :meth:`state`."""
        if self.steps is not None:
            self.steps.forget()
        for name, role, buffer, _ in hyperparameters(self, buffers=True):
            if role == "rows":  # of any number, and shared with frozen posteriors
                part, _, own = name.rpartition(".")
                setattr(self.get_submodule(part), own, buffer.new_empty(arrays[name].shape))
        self.load_state_dict({name: torch.tensor(array) for name, array in arrays.items()})

    def load_fewer_inputs(self, arrays, rng):
        """Load the state of a model with fewer inputs: others, the last ones, were zero so far."""
        state = self.state()
        for name, old in arrays.items():
            if name in state and old.shape != state[name].shape:
                state[name][tuple(map(slice, old.shape))] = old
            else:
                state[name] = old
        self.load_state(state)

    def training_state(self):
        """Return the arrays beyond :meth:`state` from which training resumes without a difference."""
        return {} if self.steps is None else self.steps.state(self)

    def load_training_state(self, arrays):
        """The inverse of :meth:`training_state`."""
        if self.steps is not None:
            self.steps.load(self, arrays)
