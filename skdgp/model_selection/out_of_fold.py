"""Predictive distributions of rows that were left out, by cross-validation."""

from inspect import signature
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import Bunch, _safe_indexing, check_consistent_length
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from .._arrays import as_numpy
from .._checks import check_alpha
from .._scoring import (
    _log_density,
    _normal,
    _predict_quantiles,
    take_apart,
    take_apart_to_score,
    unfitted,
)


def cross_val_distribution(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    cv: Any = None,
    alpha: ArrayLike = (0.05, 0.95),
    n_jobs: int | None = None,
    params: dict | None = None,
) -> Bunch:
    """Predict the distribution of each row by a model that was trained without it.

    As :func:`~sklearn.model_selection.cross_val_predict`, with all that an estimator predicts of a row in one
    pass over the folds.

    Parameters
    ----------
    estimator : estimator
        An estimator of skdgp, another regressor with ``predict(X, return_std=True)``, or a pipeline or search
        around one of these. It is cloned for each fold.
    X : array-like of shape (n_samples, n_features)
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
    groups : array-like of shape (n_samples,), optional
        Rows of a group are left out together, with a splitter for groups.
    cv : int, splitter or iterable, default=None
        As in :func:`~sklearn.model_selection.cross_val_predict`; None is five folds. Each row is left out at
        most once, as by :class:`~sklearn.model_selection.TimeSeriesSplit`.
    alpha : float or array-like of floats in (0, 1)
        Orders of the quantiles.
    n_jobs : int or None, default=None
        Folds that are trained at the same time.
    params : dict, optional
        Metadata such as `sample_weight` and `exposure`. They go where metadata routing sends them; without
        routing to ``fit``, of a pipeline by the names of its steps, as ``deepgpregressor__exposure``, and to
        predictions if these take them.

    Returns
    -------
    distribution : Bunch
        Of regressors `mean` and `std` of the shape of `y`, and `quantiles` with one more axis of `alpha`. Of
        classifiers of skdgp `proba` and `std` of shape (n_samples, n_classes), for sorted labels. Of both
        `log_density`, shape (n_samples,): that of the target, or the log probability of the label. NaN for
        rows that no fold leaves out.

    Raises
    ------
    ValueError
        If a row is left out more than once, or an order of quantiles is not between 0 and 1.
    TypeError
        If the estimator predicts no distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from skdgp import SparseGPRegressor
    >>> from skdgp.model_selection import cross_val_distribution
    >>> X = np.linspace(0, 1, 40)[:, None]
    >>> y = np.sin(6 * X[:, 0])
    >>> found = cross_val_distribution(SparseGPRegressor(random_state=0), X, y, cv=4)
    >>> found.mean.shape, found.quantiles.shape
    ((40,), (40, 2))
    """
    check_consistent_length(X, y, groups)
    y, orders = as_numpy(y), check_alpha(alpha)
    X = as_numpy(X)
    splitter = check_cv(cv, y, classifier=is_classifier(estimator))
    to_split, to_fit, to_predict = _routed(estimator, splitter, params or {})
    to_predict = {name: value for name, value in to_predict.items() if value is not None}
    if groups is not None:
        to_split = {**to_split, "groups": groups}
    splits = list(splitter.split(X, y, **to_split))
    left_out = np.concatenate([test for _, test in splits])
    if len(np.unique(left_out)) < len(left_out):
        raise ValueError(
            "Some rows are left out more than once; choose a cv that leaves each out at most once."
        )
    tasks = (
        delayed(_of_fold)(clone(estimator), X, y, train, test, orders, to_fit, to_predict)
        for train, test in splits
    )
    folds = Parallel(n_jobs=n_jobs)(tasks)
    if is_classifier(estimator):
        _align(folds, np.unique(y))

    def of_rows(name):
        values = np.concatenate([fold[name] for fold in folds])
        whole = np.full((len(y), *values.shape[1:]), np.nan)
        whole[left_out] = values
        return whole

    return Bunch(**{name: of_rows(name) for name in folds[0]})


def _routed(estimator, splitter, params):
    """Metadata for the splitter, for ``fit`` and for predictions."""
    inner, prefix = unfitted(estimator)
    if not get_config()["enable_metadata_routing"]:
        own = {name: name.removeprefix(prefix) for name in params if name.startswith(prefix)}
        return {}, params, {short: params[name] for name, short in own.items()}
    router = MetadataRouter(owner="cross_val_distribution")
    router.add(estimator=estimator, method_mapping=MethodMapping().add(caller="fit", callee="fit"))
    mapping = MethodMapping().add(caller="fit", callee="predict")
    router.add(inner=inner, method_mapping=mapping)  # searches route nothing to predictions
    mapping = MethodMapping().add(caller="fit", callee="split")
    router.add(splitter=splitter, method_mapping=mapping)
    routed = process_routing(router, "fit", **params)
    return routed.splitter.split, routed.estimator.fit, routed.inner.predict


def _of_fold(estimator, X, y, train, test, orders, to_fit, to_predict):
    """All that is predicted of the rows of one fold."""

    def part(values, rows):
        whole = np.ndim(values) > 0 and len(values) == len(y)
        return _safe_indexing(values, rows) if whole else values

    fit_params = {name: part(value, train) for name, value in to_fit.items()}
    given = {name: part(value, test) for name, value in to_predict.items()}
    estimator.fit(_safe_indexing(X, train), _safe_indexing(y, train), **fit_params)
    model, rows = take_apart(estimator, _safe_indexing(X, test))
    targets, takes = _safe_indexing(y, test), signature(model.predict).parameters
    given = {name: value for name, value in given.items() if name in takes}
    if is_classifier(model):
        if "return_std" not in signature(model.predict_proba).parameters:
            raise TypeError(
                f"{type(model).__name__} predicts no distribution of probabilities; use "
                "sklearn.model_selection.cross_val_predict."
            )
        proba, std = model.predict_proba(rows, return_std=True)
        known = np.isin(targets, model.classes_)
        log_density = np.full(len(proba), -np.inf)
        if known.any():
            index = np.searchsorted(model.classes_, np.asarray(targets)[known])
            with np.errstate(divide="ignore"):
                log_density[known] = np.log(proba[known, index])
        return {"proba": proba, "std": std, "log_density": log_density, "classes": model.classes_}
    take_apart_to_score(model, rows, given)
    return {
        **_normal(model, rows, given),
        "quantiles": _predict_quantiles(model, rows, orders, given),
        "log_density": _log_density(model, rows, targets, given),
    }


def _align(folds, classes):
    """Give all folds a column for each class: one that was missing in training has probability 0."""
    for fold in folds:
        columns = np.searchsorted(classes, fold.pop("classes"))
        for name in ("proba", "std"):
            values = np.zeros((len(fold[name]), len(classes)))
            values[:, columns] = fold[name]
            fold[name] = values
