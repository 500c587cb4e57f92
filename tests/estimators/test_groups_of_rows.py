"""Groups as an array: known ones are predicted with their effects, new ones with their variance."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.model_selection import GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.estimators.group_codes import codes_of
from skdgp.fitting import table
from skdgp.gp.kernels import SquaredExponential
from skdgp.metrics import crps_scorer
from skdgp.model_selection import cross_val_distribution
from skdgp.torch import as_module

N_GROUPS, SIZE = 12, 5
GROUPS = np.repeat(np.arange(N_GROUPS), SIZE)
KERNEL = SquaredExponential(lengthscale=0.4, variance=0.7, trainable=False)


def panel():
    """A column of the row, and an effect of the group that no column tells."""
    rng = np.random.default_rng(0)
    x, effect = rng.uniform(-2.0, 2.0, (len(GROUPS), 1)), rng.normal(size=N_GROUPS)
    return x, np.sin(2.0 * x[:, 0]) + effect[GROUPS] + 0.1 * rng.normal(size=len(x))


X, Y = panel()


def model_of(inference="exact", **settings):
    settings = {"kernel": KERNEL, "likelihood": "gaussian", "random_state": 0, **settings}
    plain = {"standardize": False, "target_transform": None}
    return DeepGPRegressor(1, inference=inference, **{**plain, **settings})


@pytest.fixture(scope="module")
def fitted():
    return model_of().fit(X, Y, groups=GROUPS)


def mixed_model(model, rows, groups):
    """Mean and covariance of a Gaussian process with random intercepts, by dense matrices."""
    (member,), (kernel,) = model.members_, model.kernels_
    variance, noise = kernel.right.kernel.variance, model.likelihood_.variance[0]

    def cov(A, B, of_a, of_b):
        smooth = 0.7 * np.exp(-0.5 * np.subtract.outer(A[:, 0], B[:, 0]) ** 2 / 0.4**2)
        return smooth + variance * np.equal.outer(of_a, of_b)

    K = cov(X, X, GROUPS, GROUPS) + noise * np.eye(len(X))
    k = cov(rows, X, groups, GROUPS)
    own = cov(rows, rows, groups, groups)
    total = own - k @ np.linalg.solve(K, k.T) + noise * np.eye(len(rows))
    return k @ np.linalg.solve(K, Y), member.dispersion**2 * total


def test_predictions_are_those_of_a_mixed_model(fitted):
    rows, groups = X[::4] + 0.3, np.where(np.arange(15) % 3 == 2, 99, GROUPS[::4])
    mean, cov = mixed_model(fitted, rows, groups)
    found, std = fitted.predict(rows, return_std=True, groups=groups)
    assert_allclose(found, mean, rtol=0, atol=1e-8)
    assert_allclose(std, np.sqrt(np.diag(cov)), rtol=1e-8)
    assert std[groups == 99].min() > 2.0 * std[groups != 99].max()
    assert_allclose(fitted.predict(rows, return_cov=True, groups=groups)[1], cov, atol=1e-8)
    found = fitted.predict(rows, return_std=True)
    mean, cov = mixed_model(fitted, rows, np.full(15, -1))
    assert_allclose(found, (mean, np.sqrt(np.diag(cov))), rtol=1e-8, atol=1e-8)


def test_new_groups_are_independent_of_each_other(fitted):
    rows, groups = X[:4] + 0.3, np.array([98, 99, 98, 3])
    expected = mixed_model(fitted, rows, groups)[1]
    found = fitted.predict(rows, return_cov=True, groups=groups)[1]
    assert_allclose(found, expected, atol=1e-8)
    draws = fitted.sample_y(rows, 4000, groups=groups)
    size = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert_allclose(np.cov(draws) / size, expected / size, rtol=0, atol=5.0 * 2.0**0.5 / 4000**0.5)


def test_all_that_is_predicted_has_the_groups(fitted):
    rows, given = X[:8] + 0.3, {"groups": GROUPS[:8]}
    mean, cov = mixed_model(fitted, rows, GROUPS[:8])
    var, std, y = np.diag(cov), np.sqrt(np.diag(cov)), Y[:8]
    assert_allclose(fitted.predict_dist(rows, **given).mean, mean, atol=1e-8)
    assert_allclose(fitted.predict_var(rows, **given), var, rtol=1e-7)
    quantiles = fitted.predict_quantiles(rows, [0.5, 0.8413447], **given)
    assert_allclose(quantiles, np.stack([mean, mean + std], 1), atol=1e-5)
    assert_allclose(fitted.predict(rows, quantiles=[0.5], **given)[:, 0], mean, atol=1e-5)
    assert_allclose(fitted.predict_interval(rows, 0.6826895, **given)[:, 1], mean + std, atol=1e-5)
    assert_allclose(fitted.predict_cdf(rows, mean, **given), 0.5, atol=1e-7)
    log_density = -0.5 * np.square(y - mean) / var - 0.5 * np.log(2.0 * np.pi * var)
    assert_allclose(fitted.log_predictive_density(rows, y, **given), log_density, atol=1e-6)
    assert fitted.score(rows, y, **given) == pytest.approx(
        1.0 - np.square(y - mean).sum() / np.square(y - y.mean()).sum()
    )
    draws = fitted.sample_y(rows, 2000, **given)
    assert_allclose(draws.mean(1), mean, atol=4.0 * std.max() / 2000**0.5)
    step = 1e-5
    slope = (mixed_model(fitted, rows + step, GROUPS[:8])[0] - mean) / step
    gradient = fitted.predict_gradient(rows, **given)
    assert gradient.shape == (8, 1)
    assert_allclose(gradient[:, 0], slope, atol=1e-3)
    assert crps_scorer(fitted, rows, y, **given) > crps_scorer(fitted, rows, y) + 0.1


def test_columns_are_those_of_X(fitted):
    assert fitted.n_features_in_ == 1
    assert fitted.feature_importances_.shape == fitted.warp_.shape == (1,)
    assert list(fitted.lengthscales_.index) == ["x0"]
    assert fitted.column_kinds_ == {"x0": "number"}
    assert "groups" not in fitted.summary()
    module = as_module(fitted)
    assert_allclose(module(torch.as_tensor(X[:3]))[1][0].numpy(), fitted.predict(X[:3]), atol=1e-8)
    copy = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(copy.predict(X, groups=GROUPS), fitted.predict(X, groups=GROUPS))
    sparse = SparseGPRegressor(random_state=0).fit(X, Y, groups=GROUPS)
    assert sparse.inducing_inputs_[0].shape[1] == 1
    assert_array_equal(sparse.predict(X, groups=GROUPS), sparse.predict(X))


def test_missing_groups_are_new(fitted):
    given = np.where(GROUPS < 3, None, GROUPS.astype(object))
    new = fitted.predict(X)
    for groups in (given, pd.Series(given), np.where(GROUPS < 3, np.nan, GROUPS)):
        found = fitted.predict(X, groups=groups)
        assert_allclose(found[:15], new[:15], rtol=1e-12)
        assert np.abs(found[15:] - new[15:]).mean() > 0.1


def test_frames_with_categories_and_gaps():
    frame = pd.DataFrame({"x": X[:, 0], "c": pd.Categorical(np.array(["a", "b", "c"])[GROUPS % 3])})
    frame.loc[4, "x"] = np.nan
    model = DeepGPRegressor(1, inference="exact", max_iter=10, random_state=0)
    model.fit(frame, Y, groups=GROUPS)
    error, of_new = (
        np.abs(model.predict(frame, groups=groups) - Y).mean() for groups in (GROUPS, None)
    )
    assert error < 0.5 * of_new
    frame = pd.DataFrame({"x": X[:, 0], "groups": Y})
    model.fit(frame.to_numpy()[:, :1], Y, groups=GROUPS)
    rows = X[:4].copy()
    rows[0] = np.nan  # no gap in training
    assert np.isfinite(model.predict(rows, groups=GROUPS[:4])).all()


def test_further_rows_have_known_and_new_groups(fitted):
    more = fitted.condition_on(X[:2], [3.0, -3.0], groups=[70, 80])
    up, down, new = more.predict(X[[9, 9, 9]], groups=[70, 80, 90])
    assert up > new + 0.5 > down + 1.0
    assert fitted.predict(X[[9]], groups=[70]) == pytest.approx(fitted.predict(X[[9]]))
    with pytest.raises(ValueError, match="The first rows had groups, and these have none"):
        fitted.condition_on(X[:2], [3.0, -3.0])


def test_warm_starts_learn_new_groups(fitted):
    model = model_of(warm_start=True, max_iter=3).fit(X, Y, groups=GROUPS)
    model.fit(X, Y, groups=np.where(GROUPS == 3, 33, GROUPS))
    assert model.predict(X[[15]], groups=[33]) == pytest.approx(Y[15], abs=0.3)
    with pytest.raises(ValueError, match="The first rows had groups, and these have none"):
        model.fit(X, Y)
    model.set_params(warm_start=False).fit(X, Y)
    with pytest.raises(ValueError, match="fit was given no array of groups"):
        model.predict(X, groups=GROUPS)
    with pytest.raises(ValueError, match="fit was given no array of groups"):
        model.condition_on(X[:2], Y[:2], groups=GROUPS[:2])


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        (GROUPS[1:], "one group for each of the 60 rows; got 59"),
        (np.column_stack([GROUPS, GROUPS]), r"groups must have one value for each row; got shape"),
    ],
)
def test_wrong_shapes(fitted, groups, match):
    for predict in (fitted.predict, fitted.predict_dist, fitted.sample_y):
        with pytest.raises(ValueError, match=match):
            predict(X, groups=groups)


def test_chunks_have_no_groups():
    model = DeepGPRegressor(1, inference="dsvi", max_iter=5, random_state=0)
    model.fit(X, Y, groups=GROUPS).partial_fit(X, Y)
    assert np.isfinite(model.predict(X, groups=GROUPS)).all()
    model = DeepGPRegressor(1, inference="dsvi", random_state=0).partial_fit(X, Y)
    with pytest.raises(ValueError, match="fit was given no array of groups"):
        model.predict(X, groups=GROUPS)


def test_pipelines_searches_and_folds():
    model = model_of(max_iter=3)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, Y, deepgpregressor__groups=GROUPS)
    with_groups = pipeline.predict(X, groups=GROUPS)
    assert np.abs(with_groups - Y).mean() < 0.3 * np.abs(pipeline.predict(X) - Y).mean()
    known = cross_val_distribution(model, X, Y, cv=KFold(3, shuffle=True, random_state=0))
    told = cross_val_distribution(
        model, X, Y, cv=KFold(3, shuffle=True, random_state=0), params={"groups": GROUPS}
    )
    assert told.std.mean() < 0.7 * known.std.mean()
    with config_context(enable_metadata_routing=True):
        routed = model.set_fit_request(groups=True)
        new = cross_val_score(routed, X, Y, params={"groups": GROUPS}, cv=GroupKFold(3))
        both = routed.set_predict_request(groups=True)
        cv, params = KFold(3, shuffle=True, random_state=0), {"groups": GROUPS}
        found = cross_val_distribution(both, X, Y, cv=cv, params=params)
    assert_allclose(found.mean, told.mean, atol=1e-6)
    assert new.max() < 0.9


def test_point_masses_see_no_codes():
    model = DeepGPRegressor(max_iter=2, random_state=0)
    model.fit(X, np.maximum(Y, 0.0), groups=GROUPS)
    assert_array_equal(model.atoms_, [0.0])
    assert_array_equal(model._atoms.classes.x_scaler.columns, [0])
    assert np.isfinite(model.predict(X, groups=GROUPS)).all()


def test_tables_that_are_read_where_they_are(monkeypatch):
    monkeypatch.setattr(table, "PRELOAD", 1)
    rows = table.with_column(X, GROUPS)
    assert rows.shape == (60, 2)
    assert_array_equal(rows[[3, 50]], np.column_stack([X, GROUPS])[[3, 50]])


def test_names_that_say_numbers_are_those_numbers(fitted):
    assert_array_equal(codes_of(fitted, ["3", 3, "4.0"], False), codes_of(fitted, [3, 3, 4], False))
