"""Base class of all estimators: validation, fitting, prediction."""

import copy
import datetime
import os
import time as clock
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from .._parameters import check_settable
from .._threads import ERRSTATE, computing
from .._warnings import warn
from ..fitting import plan as recipe
from ..fitting.fitted import FittedMixture
from ..fitting.held_rows import HeldRows
from ..fitting.member import Plan
from ..fitting.mixture import fit_mixture
from ..fitting.problem import Problem
from ..fitting.settings import Settings, Start, Task
from ..gp.kernels import Kernel
from ..gp.likelihoods import Likelihood, as_likelihood
from ..inference import DSVI, Scheme, as_scheme
from ..predictive.predictor import Predictor
from ..preprocessing.constant_columns import warn_of_changed
from ..preprocessing.scaling import Scaling
from ..training.checkpoint import Checkpoint
from ..training.interrupts import note_interrupt
from ._sklearn import CallbackSupportMixin, FitProgress, _fit_context
from .arrays import check_inputs
from .diagnostics import warn_if_light, warn_of_chains, warn_of_pathologies
from .exposures import check_has_rate
from .importances import Pending, compute_if_cheap, importances
from .known_noise import with_known_noise
from .later_rows import warn_if_later
from .left_out import LeftOut
from .lengthscales import lengthscales
from .parameters import CONSTRAINTS, check_all_used, with_objects
from .persistence import with_version, without_version
from .rows import held_out_rows, raw_arguments, read_rows, read_targets
from .summary import column_kinds, html_summary, input_names, summary
from .warm_start import all_or_nothing, check_lasting, init_source, lasting


@dataclass(eq=False, repr=False)
class BaseDeepGP(CallbackSupportMixin, BaseEstimator):
    """Base class of the deep Gaussian process estimators, with the parameters of deep ones."""

    n_layers: int = 2
    _: KW_ONLY
    width: int | Sequence[int] | None = None
    n_inducing: int | None = None
    kernel: str | Kernel | Sequence[str | Kernel] = "auto"
    mean: str = "linear"
    input_connected: bool = False
    likelihood: str | Likelihood = "auto"
    inference: str | Scheme = "auto"
    init: str | BaseEstimator = "kmeans"
    budget: str | float = "default"
    max_iter: int | None = None
    max_time: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    n_predict_draws: int = 64
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    tol: float = 0.0
    warm_start: bool = False
    standardize: bool | str | Scaling = "auto"
    categorical_features: str | Sequence | None = "from_dtype"
    groups: str | int | None = None
    time: str | int | None = None
    horizon: float | datetime.timedelta | np.timedelta64 | None = None
    checkpoint: str | os.PathLike | Checkpoint | None = None
    device: str = "auto"
    dtype: str = "auto"
    n_jobs: int | None = None
    n_threads: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    _gives_state = True  #: may stand for `init` of another estimator
    _atoms = None  #: values with a probability of their own
    _stream = None  #: state of learning from chunks
    _known_noise = None  #: mean of the variances that ``fit`` was given
    _held = None  #: training rows, if models can leave one out
    #: parameters that may name a column of X, see :mod:`.row_columns`
    _row_columns: ClassVar[tuple[str, ...]] = ("groups", "time")
    #: times that predictions are meant for, by position of the column
    _latest: ClassVar[dict[int, float]] = {}
    _groups: ClassVar[list] = []  #: groups of the column of groups, in the order of their codes
    _row_positions: ClassVar[dict[str, int]] = {}  #: positions of these columns, by parameter
    _exposed = False  #: whether counts were fitted with exposures
    _lengthscales = None  #: what a notebook shows of them

    _parameter_constraints = CONSTRAINTS

    def __setattr__(self, name, value):
        check_settable(self, name)
        super().__setattr__(name, value)

    def set_params(self, **params: Any) -> Self:
        """Set the parameters of this estimator.

        A string that stands for an object with its defaults becomes that object when one of its own
        parameters is set: ``set_params(inference__n_draws=5)``. The kernel ``"auto"`` becomes that of
        the scheme; a mixture has several, and one of them must be named first.

        Parameters
        ----------
        **params : dict
            Estimator parameters.

        Returns
        -------
        self : estimator instance
        """
        params = with_objects(self, params)
        # on copies first, because a name that is wrong is noticed after others have been set
        nested = any("__" in name for name in params)
        trial = copy.deepcopy(params) if nested else params
        super(BaseDeepGP, clone(self)).set_params(**trial)
        return super().set_params(**params)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        return tags

    def _is_fitted(self):
        return "members_" in self.__dict__

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        time: ArrayLike | None = None,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
        sample_weight_val: ArrayLike | None = None,
        exposure_val: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training inputs, unscaled. A memory map is read in minibatches.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Training targets.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts: a weight of two is the row twice. Weights of which only the
            ratios mean something should have a mean of one. Of a row of weight zero, only the class
            is known.
        exposure : array-like of shape (n_samples,), optional
            Of counts: the time, area or number of people in which each row was counted. Rates are per
            unit of it. Scores need that of their rows, too; the parameter `exposure` names a column instead.
        groups : array-like of shape (n_samples,), optional
            The group of each row, such as a patient or a shop, if predictions are for new groups, too. Mixture
            weights, the dispersion and early stopping then go by groups that are left out as a whole.
            Regressors have effects of groups, and rows of known ones are predicted with theirs, as
            ``predict(X, groups=groups)``. Leave columns that name the group out of `X`, or name one by the
            parameter `groups`. Chunks of ``partial_fit`` have no groups.
        time : array-like of shape (n_samples,), optional
            The time of each row, numbers or dates, if predictions are for later times. Weights, the dispersion
            and early stopping then go by blocks of the future, of the length `horizon`: each block is predicted
            from the rows before it alone. The parameter `time` names a column instead, which the models see.
        noise_variance : array-like of shape (n_samples,), optional
            Of regressors: known variances of the noise, in squared units of y. New rows have their mean.
        X_val, y_val : array-likes, optional
            Held-out rows. Training stops when their log-density no longer improves, and the best
            state is kept.
        sample_weight_val, exposure_val : array-likes, optional
            Weights and exposures of the held-out rows.

        Returns
        -------
        self : estimator
            Fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data make no sense.
        """
        started = clock.monotonic()
        reset = not (self.warm_start and self._is_fitted())
        with self._threads(), all_or_nothing(self) as new:
            own = {"left_out": LeftOut(groups, time), "noise_variance": noise_variance}
            table, X, y = new._rows(X, y, sample_weight, exposure, reset, **own)
            if sample_weight is not None:
                warn_if_light(table.weights)
            if not reset:
                check_lasting(new)
            held_out = held_out_rows(new, X_val, y_val, sample_weight_val, exposure_val)
            raw = raw_arguments(X, y, sample_weight, exposure, noise_variance)
            problem = Problem(
                table.merged(),
                new._plans,
                Settings.of(new),
                new._task(),
                held_out,
                new._start(last=not reset),
                new._finds_masses(),
                lambda *rows: new._rows(*rows, reset=False)[0],
                started,
            )
            progress = FitProgress(self, raw, vars(new))
            new._keep(fit_mixture(problem, progress), progress, started)
        return self

    def _fitted(self):
        return FittedMixture.of_estimator(self)

    def _task(self):
        return Task(self.n_features_in_, self._n_classes(), tuple(input_names(self)))

    def _start(self, last):
        """The fits that this one goes on with; `last` is whether the last one is among them."""
        if last:
            return Start(last=self._fitted())
        source = init_source(self)
        return Start(given=None if source is None else source._fitted())

    def _keep(self, outcome, progress, started):
        """Take what a fit has found, and look whether it is as it should be."""
        complete = outcome.complete
        try:
            self._take(outcome.fitted, outcome.sample)
            self._held = HeldRows.of(outcome.table, self.members_)
            if complete:
                self._look_at(outcome, started)
                progress.end(self._fitted)
        except KeyboardInterrupt:
            note_interrupt()
            self._take(outcome.fitted, outcome.sample)
            complete = False
        if not complete:
            warn(
                "fit was interrupted after training; lower_bound_ and the diagnosis may be missing.",
                ConvergenceWarning,
            )

    def _look_at(self, outcome, started):
        if len(self.members_) == 1:
            warn_of_chains(self, outcome.table)
        warn_of_pathologies(self, outcome.table, outcome.settled)
        compute_if_cheap(self, clock.monotonic() - started, outcome.left())

    def _take(self, fitted, sample):
        fitted.assign(self)
        self._stream = self._held = None
        self._pairs, self._importances, self._table = sample, None, None
        self._lasting = lasting(self)

    def _rows(self, X, y, sample_weight, exposure, reset, **more):
        """The table of rows as given, and these validated; on reset, readers and shapes are learned."""
        return read_rows(self, X, y, sample_weight, exposure, reset, **more)

    def _finds_masses(self):
        """Whether values that many targets equal get a probability of their own."""
        return False

    def _warps(self):
        """Whether inputs are warped if the user leaves it open."""
        return False

    def _first_plan(self, table):
        """The plan of the only member that learns from chunks."""
        auto = self.inference == "auto"
        return self._plan(DSVI() if auto else clone(as_scheme(self.inference)), table)

    def _plans(self, data):
        """Return the plans of the members to train."""
        plan, auto = self._first_plan(data), self.inference == "auto"
        if not auto or not isinstance(self.init, str) or self.init == "greedy":
            return [plan]
        return self._recipe(plan, data, recipe.seconds_of(self.budget, len(data)))

    def _plan(self, scheme, data):
        scheme.validate()
        check_all_used(self, scheme, BaseDeepGP)
        likelihood = self.likelihood
        if isinstance(likelihood, str) and likelihood == "auto":
            likelihood = self._auto_likelihood(scheme, data)
        likelihood = with_known_noise(self, as_likelihood(likelihood, self._likelihoods))
        check_has_rate(likelihood, data.log_exposure)
        plan = Plan(scheme, likelihood, self.n_layers, self.width, self.kernel, self.n_inducing)
        plan.widths(1)  # an error of the user's, whichever members there is time for
        return plan

    def summary(self) -> str:
        """Return a table of the fit: one line for each model.

        Returns
        -------
        table : str
            Scheme, layers, kernel of the first layer, mixture weight, mean log density of held-out rows in
            units of the target, and CPU seconds of training. The last entry is about means at training rows:
            the columns with which they vary most, and those in which they are flat. Maps of the targets are
            listed above. A notebook shows the table below the diagram of the estimator.
        """
        check_is_fitted(self)
        with self._threads():
            return summary(self)

    def _get_fitted_attr_html(self, doc_link=""):
        shown = copy.copy(self)  # the table reads all attributes, which is not to compute any
        if self._importances is None:
            shown._importances = Pending()
        if not all(member.has_posterior for member in self.members_):
            shown._lengthscales = Pending()
        return super(BaseDeepGP, shown)._get_fitted_attr_html(doc_link)

    def _html_repr(self):
        diagram = super()._html_repr()
        if not self._is_fitted():
            return diagram
        with self._threads():
            return diagram + html_summary(self)

    @property
    def feature_importances_(self) -> np.ndarray:
        """Shares of the columns in the variation of predicted means, or of predicted probabilities.

        Total-effect Sobol indices, scaled to add up to one: how much predictions change, in units of the
        target, if one column takes values of other training rows. Rows count as often as they were given, and
        as their weights say. Every column of an interaction gets full credit for it. They are computed once,
        by ``fit`` if that takes a small share of its time, else at the first access. For their uncertainty, see
        :class:`~skdgp.inspection.ImportanceDisplay`.

        Returns
        -------
        importances : ndarray of shape (n_features,)
            Zeros if predictions are constant.
        """
        check_is_fitted(self)
        if self._importances is None:
            self._importances = importances(self)
        return self._importances

    column_kinds_, lengthscales_ = property(column_kinds), property(lengthscales)

    def _threads(self):
        # one thread: matrices are small, and idle threads of OpenMP spin
        return computing(self.n_threads or 1)

    def _check_X(self, X):
        check_is_fitted(self)
        X = check_inputs(self, X)
        with np.errstate(**ERRSTATE):
            warn_of_changed(X, self._x_scaler, vars(self).get("feature_names_in_"))
            warn_if_later(self, X)
        return X

    def _check_y(self, X, y):
        """Targets (n, k) that belong to rows, as likelihoods see them."""
        return read_targets(self, X, y)

    def _predictor(self):
        """The mixture that predicts, with the scalings of inputs and targets."""
        device, n_threads = self._prediction_device(), self.n_threads or 1
        is_class = self._n_classes() is not None
        scalers = self._x_scaler, self._y_scaler
        return Predictor(self.members_, *scalers, device, n_threads, is_class, self._atoms)

    def _draw_centers(self, X, n, seed):
        """Draws (n, n_rows, k) of the functions of which :meth:`_centers` has the means."""
        return self._predictor().draw_means(X, n, seed)

    def _prediction_device(self):
        """Return the device for prediction: that of the fit, or the CPU if this machine has no such GPU."""
        device, n = torch.device(self.device_), torch.cuda.device_count
        return self.device_ if device.type == "cpu" or (device.index or 0) < n() else "cpu"

    def __getstate__(self):
        return with_version(super().__getstate__())

    def __setstate__(self, state):
        super().__setstate__(without_version(state, type(self).__name__))
