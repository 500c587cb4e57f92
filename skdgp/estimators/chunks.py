"""``partial_fit``: one model that learns from chunks of rows."""

from dataclasses import replace

from .._warnings import warn
from ..fitting.partial_fit import Chunk, learn_chunk
from ..fitting.sample import TrainingSample
from ..fitting.settings import Settings
from ..inference import SCHEMES
from .diagnostics import warn_if_not_learned
from .exposures import check_has_rate
from .warm_start import PRESET, SHAPE, all_or_nothing, changed_since_fit


def takes_chunks(estimator):
    """Whether the estimator has ``partial_fit``; raises AttributeError, with the reason, if not."""
    scheme = estimator.inference
    scheme = SCHEMES[scheme]() if isinstance(scheme, str) and scheme in SCHEMES else scheme
    if not getattr(scheme, "takes_chunks", True):
        name = type(scheme).__name__
        raise AttributeError(
            f"{name} needs all rows at once; partial_fit is for schemes that learn from minibatches, as "
            "inference='dsvi'."
        )
    return True


def check_chunk(estimator):
    """Refuse what ``partial_fit`` would ignore, and warn of members that it drops."""
    if estimator.early_stopping:
        raise ValueError("partial_fit does not support early_stopping=True")
    if not estimator._is_fitted():
        return
    changed = changed_since_fit(estimator, (*SHAPE, *PRESET))
    if changed:
        raise ValueError(
            f"partial_fit goes on with the model of the calls before, so {changed} must stay as before; use "
            "sklearn.base.clone to start anew."
        )
    if estimator._atoms is not None:
        raise ValueError(
            "partial_fit learns with one model, and many targets of fit were equal and have a probability of "
            "their own; set likelihood='heteroscedastic' before fit."
        )
    if len(estimator.members_) > 1:
        warn(
            "partial_fit goes on with one model of the mixture alone, and the others are dropped; set "
            "inference='dsvi' before fit to train one model from the start.",
            UserWarning,
        )


def learn_rows(estimator, X, y, sample_weight, classes=None, exposure=None):
    """Make one pass over a chunk of rows; scaling and start come from the first chunk."""
    estimator._validate_params()
    with estimator._threads(), all_or_nothing(estimator) as new:
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
        sample = TrainingSample(table.X, table.weights, n_columns=new.n_features_in_)
        x_scaler = learned.fitted.x_scaler.with_rows(sample.rows)
        new._take(replace(learned.fitted, x_scaler=x_scaler), sample)
        new._stream = learned.stream
        if learned.is_new:
            warn_if_not_learned(new.members_, table, new.device_)
    return estimator
