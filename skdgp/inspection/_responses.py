"""Common access to all kinds of fitted estimators."""

import inspect
from numbers import Integral

import numpy as np
from sklearn.base import is_regressor

from .._scoring import (
    _predict_quantiles,
    check_fitted,
    column_names,
    has_quantiles,
    is_own,
    take_apart,
)
from ..estimators.summary import feature_names, names_of_targets
from ..fitting.sample import N_ROWS, TrainingSample


def unwrap_deep_gp(estimator, X, caller):
    """The model inside searches and pipelines, and the rows that it sees, for a look inside."""
    check_fitted(estimator)
    model, X = take_apart(estimator, X)
    if not is_own(model):
        raise ValueError(f"{caller} shows the estimators of skdgp; got {type(model).__name__}.")
    return model, X


def model_and_pairs(estimator, X, caller, n_rows=N_ROWS):
    """A model of this package, pairs of rows (of training rows if X is None), and names of the columns."""
    model, X = unwrap_deep_gp(estimator, X, caller)
    pairs = model._pairs if X is None else TrainingSample(model._check_X(X), None, n_rows)
    names = column_names(estimator)
    names = feature_names(model) if names is None else [str(name) for name in names]
    return model, pairs, names


def target_name(model, output=None, y=None):
    """Name of a target: that of the given ones, else that of the training targets, else ``"y"``."""
    names = names_of_targets(y)
    if names is None:
        names = vars(model).get("_target_names")
    if names is None:
        return "y" if output is None else f"y{output}"
    return names[output or 0]


def member_name(model, member):
    """The class of a model and, of a mixture, the member by which it is shown."""
    name = type(model).__name__
    if len(model.members_) == 1:
        return name
    return f"{name} ({type(member.scheme).__name__}, weight {member.mixture_weight:.2f})"


def heaviest(members, fits, caller, what):
    """The member with the largest weight of those that a display can show, and its model.

    Raises ValueError if there is none.
    """
    for member in sorted(members, key=lambda member: -member.mixture_weight):
        model = member.model()
        if fits(model):
            return member, model
    names = " and ".join(sorted({type(member.scheme).__name__ for member in members}))
    raise ValueError(f"{caller} shows {what}, and {names} has none in some layer.")


def unwrap_regressor(estimator, X, caller):
    """As :func:`unwrap_deep_gp`, of any regressor with a predictive distribution."""
    check_fitted(estimator)
    model, X = take_apart(estimator, X)
    if not _is_regressor(model):
        raise ValueError(
            f"{caller} shows regressors; got {type(model).__name__}. For the probabilities of a "
            "classifier see sklearn.calibration.CalibrationDisplay and "
            "sklearn.inspection.DecisionBoundaryDisplay."
        )
    predict = getattr(model, "predict", None)
    if predict is None or not (
        has_quantiles(model) or "return_std" in inspect.signature(predict).parameters
    ):
        raise ValueError(
            f"{caller} needs a regressor with predict, and with predict_quantiles or predict(return_std=True); "
            f"got {type(model).__name__}."
        )
    return model, X


def _is_regressor(model):
    try:
        return is_regressor(model)
    except AttributeError:  # has none of scikit-learn's tags
        return getattr(model, "_estimator_type", "regressor") == "regressor"


def central_intervals(model, X, coverage, output, latent=False, given=None):
    """Central intervals (n_coverage, n_rows, 2) of the predictive distribution.

    They come from one pass over the rows, and are Gaussian where the model has no quantiles. Predictions of
    targets take what is `given`.
    """
    if not ((coverage > 0.0) & (coverage < 1.0)).all():
        raise ValueError(f"coverage must hold numbers between 0 and 1; got {coverage}.")
    orders = np.stack([0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)], -1)
    if latent:
        quantiles = model.predict_dist(X).latent.quantile(orders.ravel())
    else:
        quantiles = _predict_quantiles(model, X, orders.ravel(), given or {})
    quantiles = select_output(quantiles, output, ndim=2)
    return np.moveaxis(quantiles.reshape(len(quantiles), -1, 2), 0, 1)


def pit_shares(model, X, y, output, levels, given):
    """Shares (n_levels,) of targets whose distribution function is at most each level.

    Those up to the quantiles of models of others, which are Gaussian where a model has none.
    """
    if is_own(model):
        return uniform_share(*pit(model, X, y, output, given), levels)
    quantiles = select_output(_predict_quantiles(model, X, levels, given), output, ndim=2)
    return (y[:, None] <= quantiles).mean(0)


def pit(model, X, y, output, given):
    """Probabilities (n_rows,) of less than the targets, and of no more; equal unless targets count."""

    def cdf(y):
        table = y if output is None else np.repeat(y[:, None], model._n_outputs, 1)
        return select_output(model.predict_cdf(X, table, **given), output)

    up_to = cdf(y)
    if model._atoms is not None:
        X, predictor = model._check_X(X), model._predictor()
        return up_to - predictor.over(X, lambda d, y: d.mass(y), y[:, None])[:, 0], up_to
    is_count = model.members_[0].likelihood.discrete
    return cdf(y - 1.0) if is_count else up_to, up_to


def uniform_share(below, up_to, levels):
    """Shares of variables at or below `levels` that are uniform between two numbers each, or equal to both."""
    gap = (up_to - below)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.clip((levels - below[:, None]) / gap, 0.0, 1.0)
    return np.where(gap > 0.0, inside, up_to[:, None] <= levels).mean(0)


def select_output(values, output, ndim=1):
    """Values of one output, from an array of shape (n_rows, ...) or (n_rows, n_outputs, ...).

    `output` is None if there is one only; `ndim` is the number of axes without that of the outputs.
    """
    values = np.asarray(values)  # some models answer in data frames
    n_outputs = 1 if values.ndim == ndim else values.shape[1]
    if output is None and n_outputs > 1:
        raise ValueError(f"There are {n_outputs} outputs; choose one with output=0, 1, ...")
    output = 0 if output is None else output
    if not isinstance(output, Integral) or not 0 <= output < n_outputs:
        raise ValueError(
            f"output must be an int from 0 to {n_outputs - 1}, the last output; got {output!r}."
        )
    return values if values.ndim == ndim else values[:, output]
