"""Predictions of any estimator, checks of arguments and averages, for metrics and scorers."""

from inspect import signature
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import norm
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest
from sklearn.utils.validation import check_is_fitted

from ._checks import _same_shape, check_coverage

_SEARCH = GridSearchCV.__base__  #: of all searches


def is_own(model):
    """Whether a fitted model is one of skdgp."""
    return "members_" in getattr(model, "__dict__", {})


def check_fitted(estimator):
    """As scikit-learn's ``check_is_fitted``, which objects without its tags need not pass."""
    try:
        check_is_fitted(estimator)
    except AttributeError:
        if isinstance(estimator, BaseEstimator):
            raise


def take_apart(estimator, X=None):
    """The best estimator of a search, the last step of a pipeline, and the rows that it sees."""
    estimator, transforms = _innermost(estimator)
    if X is not None:
        for transform in transforms:
            X = transform.transform(X)
    return estimator, X


def take_apart_to_score(estimator, X, given):
    """As :func:`take_apart`; ValueError if predictions need what is not `given`, as the exposure of counts."""
    estimator, X = take_apart(estimator, X)
    check = getattr(estimator, "_check_given", None)
    if check is not None:
        check(given)
    return estimator, X


def unfitted(estimator):
    """The estimator inside a search or pipeline that is not fitted, and the prefix of its metadata."""
    prefix = ""
    while True:
        if isinstance(estimator, (_SEARCH, FrozenEstimator)):
            estimator = estimator.estimator
        elif isinstance(estimator, Pipeline):
            name, estimator = estimator.steps[-1]
            prefix += f"{name}__"
        else:
            return estimator, prefix


class LatentMixture(NamedTuple):
    """Latent functions at some rows, as a mixture of Gaussians in units of the target."""

    weights: np.ndarray  #: (C,)
    mean: np.ndarray  #: (C, n, k)
    sd: np.ndarray  #: (C, n, k)
    n_chains: int  #: whose states the components are, one after another; 0 if they are none
    posterior: object = None  #: of the only member


def latent_mixture(estimator, X, caller):
    """The mixture over latent functions, of target means or classes, of a fitted estimator of skdgp."""
    model, X = take_apart(estimator, X)
    check_fitted(model)
    if not is_own(model):
        raise ValueError(f"{caller} is for estimators of skdgp; got {type(model).__name__}.")
    X, device, parts = model._x_scaler.transform(model._check_X(X)), model._prediction_device(), []
    with model._threads(), torch.no_grad():
        for member in model.members_:
            posterior = member.posterior(device)
            log_weights, mean, var = posterior.latent(torch.as_tensor(X, device=device))
            means = slice(posterior.likelihood.n_means(mean.shape[-1]))
            weights = member.mixture_weight * log_weights.exp()
            mean = posterior.likelihood_of().on_link_scale(mean[..., means])
            sd = member.dispersion * var[..., means].sqrt()
            parts.append(tuple(part.numpy(force=True) for part in (weights, mean, sd)))
    weights, mean, sd = map(np.concatenate, zip(*parts))
    posterior = posterior if len(parts) == 1 else None
    n_chains = posterior.n_chains if posterior else 0
    center, scale = model._y_scaler.center, model._y_scaler.scale
    weights = weights / weights.sum()
    return LatentMixture(weights, center + scale * mean, scale * sd, n_chains, posterior)


def column_names(estimator):
    """Names of the columns that the last step sees; None if it is the first, or some steps tell none."""
    names = None
    for transform in _innermost(estimator)[1]:
        try:
            names = transform.get_feature_names_out(names)
        except AttributeError:
            return None
    return names


def _innermost(estimator):
    """Return the estimator inside searches and pipelines, and the steps before it."""
    transforms = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, _SEARCH):
            check_is_fitted(estimator)
            raise ValueError(
                f"{type(estimator).__name__} has no best estimator because of refit=False; set refit=True."
            )
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif isinstance(estimator, Pipeline):
            if len(estimator) > 1:
                transforms.append(estimator[:-1])
            estimator = estimator[-1]
        else:
            return estimator, transforms


def _log_density(estimator, X, y, given):
    """Log density of each row, all outputs together."""
    if hasattr(estimator, "log_predictive_density"):
        return estimator.log_predictive_density(X, y, **given)
    y, mean, std = _same_shape(y, **_normal(estimator, X, given))
    if not std.all():
        raise ValueError(
            f"{type(estimator).__name__} predicts a standard deviation of zero for some rows, "
            "so there is no density; give it a noise term."
        )
    return norm.logpdf(y, mean, std).sum(1)


def _normal(estimator, X, given):
    """Mean and standard deviation that a regressor predicts."""
    predict = getattr(estimator, "predict", None)
    if predict is None or "return_std" not in signature(predict).parameters:
        raise TypeError(
            f"{type(estimator).__name__} predicts no distribution of the target; the scorer needs a "
            "regressor of skdgp, or one with predict(X, return_std=True)."
        )
    mean, std = predict(X, return_std=True, **given)
    return {"mean": np.asarray(mean), "std": np.asarray(std)}


def has_quantiles(estimator):
    """Whether the estimator predicts quantiles of its own."""
    return hasattr(estimator, "predict_quantiles")


def _predict_quantiles(estimator, X, alpha, given):
    estimator, X = take_apart(estimator, X)
    if has_quantiles(estimator):
        return estimator.predict_quantiles(X, alpha, **given)
    normal = _normal(estimator, X, given)
    return normal["mean"][..., None] + normal["std"][..., None] * ndtri(np.asarray(alpha))


def _predict_interval(estimator, X, coverage, given):
    check_coverage(coverage)
    ends = [0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)]
    return np.moveaxis(_predict_quantiles(estimator, X, ends, given), -1, 0)


# Routing


class Requesting:
    """A scorer with its requests for scikit-learn's metadata routing.

    The function `score` takes a fitted estimator, rows, targets, `sample_weight`, and what predictions take, as
    `exposure`; requests are those of ``set_score_request`` of scorers that ``make_scorer`` makes.
    """

    def __init__(self, score, **requests):
        self.score, self.requests = score, {"sample_weight": None, "exposure": None, **requests}

    def __repr__(self):
        given = ", ".join(f"{name}={value!r}" for name, value in self.requests.items())
        return f"{self.score.__name__}.set_score_request({given})"

    def __call__(self, *args, **kwargs):
        return self.score(*args, **kwargs)

    def set_score_request(self, **requests):
        return Requesting(self.score, **{**self.requests, **requests})

    def get_metadata_routing(self):
        routing = MetadataRequest(owner=self.score.__name__)
        for name, value in self.requests.items():
            routing.score.add_request(param=name, alias=value)
        return routing

    def _accept_sample_weight(self):  # several scorers are asked if nothing is routed
        return True


def requesting(score):
    """Let a scorer take part in the routing of metadata, and stay a function."""
    unset = Requesting(score)
    for name in ("set_score_request", "get_metadata_routing", "_accept_sample_weight"):
        setattr(score, name, getattr(unset, name))
    return score
