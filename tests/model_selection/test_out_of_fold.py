"""Distributions of rows that were left out."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.model_selection import cross_val_distribution

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (30, 2))
Y = np.sin(3.0 * X[:, 0]) + 0.1 * RNG.standard_normal(30)
MODEL = SparseGPRegressor(n_inducing=10, max_iter=10, random_state=0)


def test_each_row_is_predicted_without_it():
    cv, weights = KFold(3, shuffle=True, random_state=1), RNG.uniform(0.5, 2.0, 30)
    given = {"alpha": [0.1, 0.5], "params": {"sample_weight": weights}}
    found = cross_val_distribution(MODEL, X, Y, cv=cv, **given)
    for train, test in cv.split(X):
        model = MODEL.fit(X[train], Y[train], weights[train])
        mean, std = model.predict(X[test], return_std=True)
        assert_allclose(found.mean[test], mean), assert_allclose(found["std"][test], std)
        assert_allclose(found.quantiles[test], model.predict_quantiles(X[test], [0.1, 0.5]))
        density = model.log_predictive_density(X[test], Y[test])
        assert_allclose(found.log_density[test], density)


def test_other_regressors_are_gaussian():
    model = make_pipeline(StandardScaler(), BayesianRidge())
    found = cross_val_distribution(model, X, Y, alpha=0.9, n_jobs=2)
    assert_allclose(found.quantiles[:, 0], found.mean + found["std"] * norm.ppf(0.9))
    assert_allclose(found.log_density, norm.logpdf(Y, found.mean, found["std"]))


def test_frames_groups_and_several_outputs():
    frame = pd.DataFrame({"a": X[:, 0], "b": np.array(list("xyz"))[np.arange(30) % 3]})
    groups, cv = np.arange(30) % 3, GroupKFold(3)
    two = pd.DataFrame({"first": Y, "second": -Y})
    found = cross_val_distribution(MODEL, frame, two, groups=groups, cv=cv)
    assert found.mean.shape == (30, 2) and found.quantiles.shape == (30, 2, 2)
    train, test = next(cv.split(frame, groups=groups))
    model = MODEL.fit(frame.iloc[train], two.iloc[train])
    assert_allclose(found.mean[test], model.predict(frame.iloc[test]))


def test_classes_of_which_a_fold_has_none():
    labels = np.array(["a", "b"])[(X[:, 0] > 0.0).astype(int)]
    labels[0] = "c"
    model = SparseGPClassifier(n_inducing=5, max_iter=5, random_state=0)
    found = cross_val_distribution(model, X, labels, cv=KFold(3))
    assert found.proba.shape == found["std"].shape == (30, 3)
    assert_allclose(found.proba.sum(1), 1.0)
    assert found.proba[0, 2] == 0.0 and found.log_density[0] == -np.inf
    own = np.searchsorted(["a", "b", "c"], labels)
    assert_allclose(found.log_density[1:], np.log(found.proba[np.arange(1, 30), own[1:]]))
    with pytest.raises(TypeError, match="cross_val_predict"):
        cross_val_distribution(LogisticRegression(), X, labels, cv=KFold(3))


def test_metadata_are_routed():
    e = RNG.uniform(1.0, 9.0, 30)
    y, cv = RNG.poisson(2.0 * e), KFold(2)
    settings = {"max_iter": 5, "n_inducing": 5, "random_state": 0}
    model = DeepGPRegressor(1, likelihood="poisson", inference="dsvi", **settings)
    plain = cross_val_distribution(model, X, y, cv=cv, params={"exposure": e})
    half = model.fit(X[15:], y[15:], exposure=e[15:])
    assert_allclose(plain.mean[:15], half.predict(X[:15], exposure=e[:15]))
    with config_context(enable_metadata_routing=True):
        model = model.set_fit_request(exposure=True).set_predict_request(exposure=True)
        pipe = make_pipeline(StandardScaler(with_mean=False, with_std=False), model)
        found = cross_val_distribution(pipe, X, y, cv=cv, params={"exposure": e})
        assert_allclose(found.mean, plain.mean)
        assert_allclose(found.log_density, plain.log_density)
        model = model.set_score_request(exposure=True)
        for inside in (
            model,
            make_pipeline(StandardScaler(with_mean=False, with_std=False), model),
        ):
            search = GridSearchCV(inside, {}, cv=2)
            found = cross_val_distribution(search, X, y, cv=cv, params={"exposure": e})
            assert_allclose(found.log_density, plain.log_density)


def test_rows_are_left_out_at_most_once():
    with pytest.raises(ValueError, match="left out more than once"):
        cross_val_distribution(MODEL, X, Y, cv=ShuffleSplit(20, random_state=0))
    with pytest.raises(ValueError, match="alpha must hold numbers between 0 and 1"):
        cross_val_distribution(MODEL, X, Y, alpha=90)


def test_searches_without_metadata_routing():
    search, cv = GridSearchCV(MODEL, {"kernel": ["rbf", "matern32"]}, cv=2), KFold(3)
    for estimator in (search, make_pipeline(StandardScaler(), search)):
        weights = RNG.uniform(0.5, 2.0, 30)
        name = "sample_weight" if estimator is search else "gridsearchcv__sample_weight"
        found = cross_val_distribution(estimator, X, Y, cv=cv, params={name: weights})
        for train, test in cv.split(X):
            best = clone(estimator).fit(X[train], Y[train], **{name: weights[train]})
            best = best if estimator is search else best[-1]
            rows = X[test]
            if estimator is not search:
                rows = StandardScaler().fit(X[train]).transform(rows)
            mean, std = best.best_estimator_.predict(rows, return_std=True)
            assert_allclose(found.mean[test], mean), assert_allclose(found["std"][test], std)
