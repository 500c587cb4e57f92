"""Base class of all estimators: validation, fitting, prediction."""

import copy
import os
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from .._arrays import as_numpy
from .._parameters import check_settable
from .._threads import ERRSTATE, computing
from .._warnings import warn
from ..fitting import plan as recipe
from ..fitting.fitted import FittedMixture
from ..fitting.member import Plan
from ..fitting.mixture import fit_mixture
from ..fitting.partial_fit import Chunk, learn_chunk
from ..fitting.problem import Problem
from ..fitting.sample import TrainingSample
from ..fitting.settings import DTYPES, Settings, Start, Task
from ..fitting.table import Table, some_rows
from ..gp.kernels import Kernel
from ..gp.likelihoods import Likelihood, as_likelihood
from ..inference import DSVI, Scheme, as_scheme
from ..predictive.predictor import Predictor
from ..preprocessing.constant_columns import warn_of_changed
from ..preprocessing.scaling import Scaling
from ..training import init as initialization
from ..training.checkpoint import Checkpoint
from ..training.interrupts import note_interrupt
from ._sklearn import (
    CallbackSupportMixin,
    FitProgress,
    Interval,
    StrOptions,
    _fit_context,
    check_sample_weight,
)
from .arrays import check_inputs
from .diagnostics import warn_if_light, warn_if_not_learned, warn_of_chains, warn_of_pathologies
from .exposures import check_has_rate, fitted_exposure
from .importances import Pending, compute_if_cheap, importances
from .left_out import LeftOut
from .parameters import check_all_used, with_objects
from .persistence import with_version, without_version
from .row_columns import positions
from .summary import (
    column_kinds,
    feature_names,
    html_summary,
    names_of_targets,
    summary,
)
from .targets import check_size
from .warm_start import all_or_nothing, check_chunk, check_lasting, init_source, lasting


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
    checkpoint: str | os.PathLike | Checkpoint | None = None
    device: str = "auto"
    dtype: str = "auto"
    n_jobs: int | None = None
    n_threads: int | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    target_transform = None  # a parameter of regressors
    _gives_state = True  #: may stand for `init` of another estimator
    _atoms = None  #: values with a probability of their own
    _stream = None  #: state of learning from chunks
    _row_columns = ("groups",)  #: parameters that may name a column of X, see :mod:`.row_columns`
    _row_positions = {}  #: positions of these columns, by parameter
    _exposed = False  #: whether counts were fitted with exposures

    _parameter_constraints = {
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "width": [Interval(Integral, 1, None, closed="left"), "array-like", None],
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
        "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
        "groups": [str, Interval(Integral, 0, None, closed="left"), None],
        "kernel": [str, Kernel, list, tuple],
        "mean": [StrOptions({"linear", "zero"})],
        "input_connected": ["boolean"],
        "likelihood": [str, Likelihood],
        "inference": [str, Scheme],
        "init": [StrOptions(set(initialization.STARTS)), BaseEstimator],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), None],
        "n_predict_draws": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "warm_start": ["boolean"],
        "standardize": ["boolean", StrOptions({"auto", "warp"}), Scaling],
        "checkpoint": [str, os.PathLike, Checkpoint, None],
        "device": [str],
        "dtype": [StrOptions(set(DTYPES))],
        "n_jobs": [Integral, None],
        "n_threads": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __setattr__(self, name, value):
        check_settable(self, name)
        super().__setattr__(name, value)

    def set_params(self, **params):
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
        X,
        y,
        sample_weight=None,
        *,
        exposure=None,
        groups=None,
        X_val=None,
        y_val=None,
        sample_weight_val=None,
        exposure_val=None,
    ):
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
            The group of each row, such as a patient or a shop, if predictions are for new groups. Mixture
            weights, the dispersion and early stopping then go by groups that are left out as a whole.
            Leave columns that name the group out of `X`, or name one by the parameter `groups`. Chunks of
            ``partial_fit`` have no groups.
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
        started = time.monotonic()
        reset = not (self.warm_start and self._is_fitted())
        with self._threads(), all_or_nothing(self) as new:
            table, X, y = new._rows(X, y, sample_weight, exposure, reset, left_out=LeftOut(groups))
            if sample_weight is not None:
                warn_if_light(table.weights)
            if not reset:
                check_lasting(new)
            held_out = new._validation_rows(X_val, y_val, sample_weight_val, exposure_val)
            given = {"sample_weight": sample_weight, "exposure": exposure}
            metadata = {name: value for name, value in given.items() if value is not None}
            raw = {"X": X, "y": y, "metadata": metadata or None}
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
        return Task(self.n_features_in_, self._n_classes(), tuple(feature_names(self)))

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
            if complete:
                self._look_at(outcome, started)
                progress.end(self._fitted)
        except KeyboardInterrupt:
            note_interrupt()
            self._take(outcome.fitted, outcome.sample)
            complete = False
        if not complete:
            warn(
                "fit was interrupted after training; the model is trained, but lower_bound_ and the diagnosis "
                "may be missing.",
                ConvergenceWarning,
            )

    def _look_at(self, outcome, started):
        if len(self.members_) == 1:
            warn_of_chains(self, outcome.table)
        warn_of_pathologies(self, outcome.table, outcome.settled)
        compute_if_cheap(self, time.monotonic() - started, outcome.left())

    def _take(self, fitted, sample):
        fitted.assign(self)
        self._stream = None
        self._pairs, self._importances, self._table = sample, None, None
        self._lasting = lasting(self)

    def _rows(
        self, X, y, sample_weight, exposure, reset, extend=False, classes=None, left_out=None
    ):
        """The rows of positive weight, with targets as likelihoods see them; and all, validated."""
        X = as_numpy(X)
        if reset:
            self._target_names = names_of_targets(y)
            self._row_positions = positions(self, X)
        offset = fitted_exposure(self, X, exposure, reset)
        given = X
        X, y = check_inputs(self, X, as_numpy(y), reset, extend, **self._y_checks)
        weights, rows = np.broadcast_to(1.0, len(X)), slice(None)  # which take no memory
        if sample_weight is not None:
            weights = check_sample_weight(as_numpy(sample_weight), X)
            rows = rows if weights.all() else np.flatnonzero(weights > 0)
        kinds = None if self._reader is None or self._reader.plain else self._reader.kinds
        targets = self._encode(y, reset, classes, rows)
        check_size(targets)
        offset = offset if offset is None else offset[rows]
        groups = None if left_out is None else left_out.numbers(self, given, rows)
        return Table(some_rows(X, rows), targets, weights[rows], kinds, offset, groups), X, y

    def _validation_rows(self, X_val, y_val, sample_weight_val, exposure_val):
        given = X_val, y_val, sample_weight_val, exposure_val
        if all(part is None for part in given):
            return None
        if X_val is None or y_val is None:
            others = "sample_weight_val and exposure_val only with both"
            raise ValueError(f"X_val and y_val must be given together, and {others}.")
        try:
            return self._rows(*given, reset=False)[0]
        except ValueError as error:
            names = "(X_val, y_val, sample_weight_val, exposure_val)"
            raise ValueError(f"Held-out rows {names}: {error}") from error

    def _finds_masses(self):
        """Whether values that many targets equal get a probability of their own."""
        return False

    def _warps(self):
        """Whether inputs are warped if the user leaves it open."""
        return False

    def _partial_fit(self, X, y, sample_weight, classes=None, exposure=None):
        """Make one pass over a chunk of rows; scaling and start come from the first chunk."""
        self._validate_params()
        with self._threads(), all_or_nothing(self) as new:
            check_chunk(new)
            first = not new._is_fitted()
            rows, *_ = new._rows(X, y, sample_weight, exposure, first, extend=True, classes=classes)
            if not first:
                check_has_rate(new.members_[0].likelihood, rows.log_exposure)
            chunk = Chunk(
                rows,
                new._first_plan,
                Settings.of(new),
                new._task(),
                new._start(last=not first),
                None if first else new._stream,
                None if first else new._pairs.rows,
            )
            learned = learn_chunk(chunk)
            table = learned.table
            sample = TrainingSample(table.X, table.weights)
            x_scaler = learned.fitted.x_scaler.with_rows(sample.rows)
            new._take(replace(learned.fitted, x_scaler=x_scaler), sample)
            new._stream = learned.stream
            if learned.is_new:
                warn_if_not_learned(new.members_, table, new.device_)
        return self

    def _first_plan(self, table):
        """The plan of the only member that learns from chunks."""
        auto = self.inference == "auto"
        return self._plan(DSVI() if auto else clone(as_scheme(self.inference)), table)

    def _plans(self, data):
        """Return the plans of the members to train."""
        plan, auto = self._first_plan(data), self.inference == "auto"
        if not auto or not isinstance(self.init, str) or self.init == "greedy":
            return [plan]
        return self._recipe(plan, data, recipe.budget(len(data), self.max_time))

    def _plan(self, scheme, data):
        scheme.validate()
        check_all_used(self, scheme, BaseDeepGP)
        likelihood = self.likelihood
        if isinstance(likelihood, str) and likelihood == "auto":
            likelihood = self._auto_likelihood(scheme, data)
        likelihood = as_likelihood(likelihood, self._likelihoods)
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
        return super(BaseDeepGP, shown)._get_fitted_attr_html(doc_link)

    def _html_repr(self):
        diagram = super()._html_repr()
        if not self._is_fitted():
            return diagram
        with self._threads():
            return diagram + html_summary(self)

    @property
    def column_kinds_(self) -> dict:
        """Kind of each column of X, as inferred by the fit.

        Returns
        -------
        kinds : dict of str to str
            By name: "number", "boolean", "category", "ordered", "date", "time", "duration"; of columns of long
            texts that are left out, "text"; of columns that `exposure` or `groups` names, that name.
        """
        check_is_fitted(self)
        return column_kinds(self)

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

    def _threads(self):
        # one thread by default: matrices are small, and idle threads of OpenMP spin
        return computing(self.n_threads or 1)

    def _check_X(self, X):
        check_is_fitted(self)
        X = check_inputs(self, X)
        with np.errstate(**ERRSTATE):
            warn_of_changed(X, self._x_scaler, vars(self).get("feature_names_in_"))
        return X

    def _check_y(self, X, y):
        """Targets (n, k) that belong to rows, as likelihoods see them."""
        y = check_array(as_numpy(y), ensure_2d=False, dtype=None, input_name="y")
        check_consistent_length(X, y)
        y = self._encode(y, reset=False)
        self._check_likelihood(self.members_[0].likelihood, y)
        return y

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
