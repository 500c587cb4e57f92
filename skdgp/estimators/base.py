"""What all estimators share: validation, scaling, training, members, state."""

import math
import os
import time
from numbers import Integral, Real

import numpy as np
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from .._version import __version__
from .._warnings import warn
from ..gp.kernels import Kernel, as_kernel
from ..gp.likelihoods import Likelihood, as_likelihood
from ..inference import Scheme, as_scheme
from ..inference.quasi_newton import QuasiNewton
from ..mixture.member import (
    Plan,
    all_or_nothing,
    at_rest,
    check_chunk,
    check_lasting,
    lasting,
    warm_start_sources,
    with_needed_draws,
)
from ..mixture.predictive import Predictive, rows_at_once
from ..mixture.weights import StackingMixin
from ..training import init as initialization
from ..training.checkpoint import Checkpoint, fingerprint
from ..training.interrupts import note_interrupt
from ..training.pretraining import PreTraining
from ..training.together import RowsTogether, Together
from ..training.trainer import BLOCK, Trainer
from ._sklearn import (
    CallbackSupportMixin,
    FitProgress,
    Interval,
    StrOptions,
    _fit_context,
    check_sample_weight,
)
from .data import Data, Minibatches
from .diagnostics import warn_if_light, warn_of_pathologies
from .inflation import InflationMixin
from .prediction import PredictionMixin, as_numpy
from .starts import StartsMixin, warn_if_far

_BOUND_ROWS = 10_000  #: rows on which the final lower bound is evaluated if training sees batches
_BOUND_DRAWS = 100_000  #: draws of all these rows together
_DTYPES = {"auto": torch.float64, "float64": torch.float64, "float32": torch.float32}
#: arguments that not every scheme understands, and their defaults
_MAY_MEAN_NOTHING = {
    "n_inducing": None,
    "init": "kmeans",
    "mean": "linear",
    "learning_rate": None,
    "batch_size": None,
    "dtype": "auto",
}


class BaseDeepGP(
    CallbackSupportMixin, StartsMixin, StackingMixin, InflationMixin, PredictionMixin, BaseEstimator
):
    """Base class of the deep Gaussian process estimators."""

    _parameter_constraints = {
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "width": [Interval(Integral, 1, None, closed="left"), "array-like", None],
        "n_inducing": [Interval(Integral, 1, None, closed="left"), None],
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
        "standardize": ["boolean", StrOptions({"auto", "warp"})],
        "checkpoint": [str, os.PathLike, Checkpoint, None],
        "device": [str],
        "dtype": [StrOptions(set(_DTYPES))],
        "n_threads": [Interval(Integral, 1, None, closed="left"), None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_layers=2,
        *,
        width=None,
        n_inducing=None,
        kernel="auto",
        mean="linear",
        input_connected=False,
        likelihood="auto",
        inference="auto",
        init="kmeans",
        max_iter=None,
        max_time=None,
        batch_size=None,
        learning_rate=None,
        n_predict_draws=64,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=0.0,
        warm_start=False,
        standardize="auto",
        checkpoint=None,
        device="auto",
        dtype="auto",
        n_threads=None,
        random_state=None,
        verbose=0,
    ):
        self.n_layers = n_layers
        self.width = width
        self.n_inducing = n_inducing
        self.kernel = kernel
        self.mean = mean
        self.input_connected = input_connected
        self.likelihood = likelihood
        self.inference = inference
        self.init = init
        self.max_iter = max_iter
        self.max_time = max_time
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_predict_draws = n_predict_draws
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.standardize = standardize
        self.checkpoint = checkpoint
        self.device = device
        self.dtype = dtype
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

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
        makers = {
            "inference": as_scheme,
            "kernel": as_kernel,
            "likelihood": lambda name: as_likelihood(name, self._likelihoods),
        }
        for name, make in makers.items():
            if any(isinstance(key, str) and key.startswith(f"{name}__") for key in params):
                given = value = params.get(name, getattr(self, name))
                if not isinstance(value, (str, list, tuple)):
                    continue
                inference = params.get("inference", self.inference)
                if value == "auto" and name == "inference":
                    value = "dsvi"
                elif value == "auto" and name == "kernel" and inference != "auto":
                    value = as_scheme(inference).auto_kernel
                if not isinstance(value, str) or value == "auto":
                    raise ValueError(
                        f"Parameters of the {name} cannot be set while it is {given!r}; name it first."
                    )
                params[name] = make(value)
        return super().set_params(**params)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    # Fitting

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None, sample_weight_val=None):
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
        X_val, y_val : array-likes, optional
            Held-out rows. Training stops when their log-density no longer improves, and the best
            state is kept.
        sample_weight_val : array-like, optional
            Weights of the held-out rows.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        started = time.monotonic()
        reset = not (self.warm_start and hasattr(self, "members_"))
        with self._threads(), all_or_nothing(self):
            X, y, weights = self._validate(X, y, sample_weight, reset)
            raw = {
                "X": X,
                "y": y,
                "metadata": None if sample_weight is None else {"sample_weight": weights},
            }
            data = self._counting(X, y, weights, reset).merged()
            if sample_weight is not None:
                warn_if_light(weights)
            held_out = self._validation_data(X_val, y_val, sample_weight_val)
            self._fit(data, held_out, raw, started)
        return self

    def _validate(self, X, y, sample_weight, reset):
        X, y = validate_data(
            self,
            as_numpy(X),
            as_numpy(y),
            reset=reset,
            dtype=[np.float64, np.float32],
            **self._y_checks,
        )
        if sample_weight is None:
            return X, y, np.broadcast_to(1.0, len(X))  # takes no memory
        return X, y, check_sample_weight(as_numpy(sample_weight), X)

    def _counting(self, X, y, weights, reset, classes=None):
        """The rows of positive weight, with targets as likelihoods see them."""
        rows = slice(None) if weights.all() else weights > 0
        return Data(X[rows], self._encode(y, reset, classes, rows), weights[rows])

    def _validation_data(self, X_val, y_val, sample_weight_val):
        if X_val is None and y_val is None and sample_weight_val is None:
            return None
        if X_val is None or y_val is None:
            raise ValueError(
                "X_val and y_val must be given together, and sample_weight_val only with both."
            )
        parts = self._validate(X_val, y_val, sample_weight_val, reset=False)
        return self._counting(*parts, reset=False)

    def _fit(self, data, held_out, raw, started):
        rng = check_random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        if held_out is None and self.early_stopping:
            if len(data) < 2:
                raise ValueError(
                    "early_stopping=True holds rows out, and needs at least 2 distinct ones; got 1 sample."
                )
            data, held_out = data.split(self.validation_fraction, rng)
        old = self.members_ if self.warm_start and hasattr(self, "members_") else None
        if old is not None:
            check_lasting(self)
        plans = self._plans(data)
        for plan in plans:
            plan.scheme = plan.scheme.for_data(len(data), self._n_classes(), self.max_iter)
        if held_out is not None:
            self._check_likelihood(plans[0].likelihood, held_out.y)
        init_source = self._init_source() if old is None else None
        if old is None:
            self._scale(data, plans[0].likelihood, init_source, rng)
        else:
            data.scale_as(self._x_scaler, self._y_scaler)
            warn_if_far(data)
        pretraining = PreTraining(self.max_time, started)
        checkpoint = self._checkpoint_file(seed, data, held_out, old, init_source)
        pretraining.skipped = checkpoint is not None and checkpoint.exists()
        members, models = zip(
            *(
                self._start(plan, data, rng, pretraining, source)
                for plan, source in zip(plans, warm_start_sources(plans, old or ()))
            )
        )
        draws = [model.draws(self.n_predict_draws, seed) for model in models]
        trainer = self._trainer(models, data, plans, seed)
        trainer.max_time, trainer.elapsed = self.max_time, time.monotonic() - started
        trainer.interrupted = pretraining.interrupted
        trainer.checkpoint = checkpoint
        if held_out is not None:
            held_out.scale_as(data.x_scaler, data.y_scaler)

            def validate():
                with at_rest(models):
                    self._stack(plans, members, models, draws, data, seed)
                    parts = with_needed_draws(members, models, draws)
                    live = [member.holding(*own) for member, *own in parts]
                    return self._log_density_of(live, held_out)

            trainer.validate = validate

        def attributes(stacked=True):
            if stacked:
                with at_rest(models):
                    self._stack(plans, members, models, draws, data, seed)
            parts = with_needed_draws(members, models, draws)
            fitted = [member.fitted(*own) for member, *own in parts]
            return self._fitted_attributes(fitted, data, trainer)

        progress = FitProgress(self, math.ceil(trainer.max_iter / BLOCK), raw)
        trainer.on_block = lambda stop: progress.block_ends(attributes, stop)
        trainer.train()
        trainer.on_block = trainer.validate = None  # which refer to the trainer

        def conclude(stacked=True):
            self.__dict__.update(attributes(stacked))
            self._lasting = lasting(self)
            self.__dict__.pop("_stream", None)
            self._describe(data)

        self.__dict__.pop("lower_bound_", None)  # of an earlier fit
        try:
            conclude()
            for reason in filter(None, (model.unfinished() for model in models)):
                warn(reason, ConvergenceWarning)
            self._set_lower_bound(data, draws[0], rng)
            warn_of_pathologies(self, data, trainer.n_iter)
            progress.end(attributes)
        except KeyboardInterrupt:
            if trainer.n_iter == 0:
                raise
            if not trainer.interrupted:
                note_interrupt()
            conclude(stacked=False)
            warn(
                "fit was interrupted after training; the model is trained, but mixture weights may be those "
                "planned, and lower_bound_ and the diagnosis may be missing.",
                ConvergenceWarning,
            )

    def _partial_fit(self, X, y, sample_weight, classes=None):
        """Make one pass over a chunk of rows; scaling and start come from the first chunk."""
        self._validate_params()
        check_chunk(self)
        first = not hasattr(self, "members_")
        with self._threads(), all_or_nothing(self):
            parts = self._validate(X, y, sample_weight, reset=first)
            rows = self._counting(*parts, first, classes)
            data = rows.merged()
            if first:
                rng = check_random_state(self.random_state)
                if len(rows) < 2:
                    raise ValueError(
                        "The first call of partial_fit needs at least 2 rows, because scaling and inducing "
                        "inputs come from it; got 1 sample."
                    )
                plan = self._plans(data)[0]
                plan.scheme = plan.scheme.for_data(math.inf)
                self._scale(data, plan.likelihood, self._init_source(), rng)
                member, model = self._start(plan, data, rng, PreTraining(None, 0.0))
                self._stream = {
                    "seed": int(rng.randint(2**31 - 1)),
                    "n_rows": 0.0,
                    "n_iter": 0,
                    "loss_curve": [],
                }
            else:
                data.scale_as(self._x_scaler, self._y_scaler)
                plan = Plan(self.members_[0].scheme)
                member = self.members_[0]
                self._check_likelihood(member.likelihood, data.y)
                model = member.model(self._device()).train()
            if not hasattr(self, "_stream"):  # the first chunk after fit
                self._stream = {
                    "seed": 0,
                    "n_rows": self._n_rows,
                    "n_iter": self.n_iter_,
                    "loss_curve": self.loss_curve_,
                }
            stream = dict(self._stream)
            stream["n_rows"] += float(rows.weights.sum())
            seed = (stream["seed"] + stream["n_iter"]) % 2**31
            draws = model.draws(self.n_predict_draws, stream["seed"])
            trainer = self._trainer([model], data, [plan], seed, total=stream["n_rows"])
            trainer.max_iter, trainer.decay = trainer.rows.spread().n_batches, False
            trainer.train()
            trainer.n_iter += stream["n_iter"]
            trainer.loss_curve = stream["loss_curve"] + trainer.loss_curve
            stream.update(n_iter=trainer.n_iter, loss_curve=trainer.loss_curve)
            member = member.fitted(model, draws)
            member.dispersion = 1.0  # that of a mixture, before the first chunk
            member.hold(model.eval())
            self._stream, self._lasting = stream, lasting(self)
            self.__dict__.update(self._fitted_attributes([member], data, trainer))
            self._describe(data)
            self.__dict__.pop("lower_bound_", None)
            if model.divergence() is not None:
                per_row = -trainer.loss_curve[-1] - np.log(data.y_scaler.scale).sum()
                self.lower_bound_ = stream["n_rows"] * per_row
        return self

    def _plans(self, data):
        """What to train; the first is the one that `n_layers` and most attributes speak of."""
        if self.inference == "auto":
            plans = self._recipe(data)
        else:
            plans = [self._plan(clone(as_scheme(self.inference)), data)]
        plans[0].scheme.validate()
        return plans

    def _plan(self, scheme, data):
        for name, default in _MAY_MEAN_NOTHING.items():
            if name not in scheme.uses and getattr(self, name) != default:
                raise ValueError(
                    f"{name} means nothing to {type(scheme).__name__}; leave it at {default!r}."
                )
        likelihood = self.likelihood
        if isinstance(likelihood, str) and likelihood == "auto":
            likelihood = self._auto_likelihood(scheme, data)
        likelihood = as_likelihood(likelihood, self._likelihoods)
        return Plan(scheme, likelihood, self.n_layers, self.width, self.kernel, self.n_inducing)

    def _trainer(self, models, data, plans, seed, total=None):
        device, n, known, rows = self._device(), len(data), {}, []
        for model, plan in zip(models, plans):
            scheme = plan.scheme
            rate = scheme.learning_rate(n) if self.learning_rate is None else self.learning_rate
            dtype, batch_size = torch.float64, scheme.batch_size(n)
            if "dtype" in scheme.uses:
                dtype = _DTYPES[self.dtype]
            if "batch_size" in scheme.uses and self.batch_size is not None:
                batch_size = self.batch_size
            model.to(device).prepare(rate, dtype)
            if (dtype, batch_size) not in known:
                known[dtype, batch_size] = Minibatches(data, batch_size, seed, dtype, device, total)
            rows.append(known[dtype, batch_size])
        steps = [self.max_iter or plan.scheme.max_iter(n) for plan in plans]
        if len(models) > 1:
            early = [plan.scheme.early for plan in plans]
            models, rows = [Together(models)], [RowsTogether(rows, steps, early)]
        return Trainer(
            models[0],
            rows[0],
            torch.Generator().manual_seed(seed),
            max_iter=steps[0],
            tol=self.tol,
            patience=self.n_iter_no_change,
            verbose=self.verbose,
        )

    def _checkpoint_file(self, seed, data, held_out, old, init_source):
        checkpoint = self.checkpoint
        if checkpoint is None:
            return None
        if not isinstance(checkpoint, Checkpoint):
            checkpoint = Checkpoint(checkpoint)
        unimportant = ("checkpoint", "verbose", "n_threads", "random_state")
        params = self.get_params(deep=False)
        settings = {name: value for name, value in params.items() if name not in unimportant}
        settings["init"] = self.init if init_source is None else "estimator"
        rows = [[part.X, part.y, part.weights] for part in (data, held_out) if part is not None]
        # without a seed of the user's, any fit of these data may go on
        seed = None if self.random_state is None else seed
        states = [member.arrays for member in old or getattr(init_source, "members_", ())]
        return checkpoint.open(fingerprint(settings, seed, rows, states))

    def _fitted_attributes(self, members, data, trainer):
        return {
            "members_": members,
            "_n_rows": float(data.weights.sum()),
            "n_iter_": trainer.n_iter,
            "loss_curve_": list(trainer.loss_curve),
            "validation_scores_": list(trainer.validation_scores),
            "device_": str(self._device()),
            "warp_": data.x_scaler.curvature(self.n_features_in_),
            "_x_scaler": data.x_scaler,
            "_y_scaler": data.y_scaler,
        }

    def _describe(self, data):
        """The fitted hyperparameters, as attributes."""
        member = self.members_[0]
        self.kernels_ = member.kernels
        self.likelihood_ = member.fitted_likelihood.in_units(data.y_scaler.scale)
        first, *others = member.inducing_inputs
        self.inducing_inputs_ = [data.x_scaler.inverse_transform(first), *others]

    def _set_lower_bound(self, data, draws, rng):
        model = self.members_[0].model(self.device_)
        divergence = model.divergence()
        if divergence is None:
            return
        rows = Data(data.X, data.y, data.weights).scale_as(data.x_scaler, data.y_scaler)
        most = len(data) if isinstance(model, QuasiNewton) else _BOUND_ROWS
        X, y, weights = rows.sample(most, rng)
        total = float(data.weights.sum())
        draws = draws[: 2 ** int(np.log2(max(1, min(len(draws), _BOUND_DRAWS // len(X)))))]
        first = [self.members_[0].holding(model, draws)]
        size, expected = rows_at_once(first), 0.0
        with model.as_trained():
            for part in (slice(i, i + size) for i in range(0, len(X), size)):
                predictive = Predictive(first, X[part], self.device_)
                expected += float(weights[part] @ predictive.expected_log_prob(y[part]))
        per_row = expected / weights.sum() - np.log(data.y_scaler.scale).sum()
        bound = total * per_row - float(divergence)
        self.lower_bound_ = max(float(bound), -np.finfo(np.float64).max)  # rates may overflow

    def __getstate__(self):
        return {**super().__getstate__(), "_skdgp_version": __version__}
