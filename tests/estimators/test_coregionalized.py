"""Outputs that belong together: coregionalization, missing targets, joint draws."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal

from skdgp import DeepGPRegressor
from skdgp.inference.batch import Batch
from skdgp.model_selection import freeze_hyperparameters

pytestmark = pytest.mark.filterwarnings("ignore::skdgp.inspection.PathologyWarning")


def table(n=40, noise=0.1):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 2))
    f = np.sin(5.0 * X[:, 0]) + X[:, 1] ** 2
    y = np.column_stack([f, X[:, 1] - f]) + noise * rng.standard_normal((n, 2))
    return X, y * [1.0, 50.0]


def missing():
    X, y = table()
    y[::4, 0] = y[1::4, 1] = np.nan
    return X, y


def regressor(**settings):
    settings = {"max_iter": 30, "random_state": 0, "target_transform": None, **settings}
    return DeepGPRegressor(1, inference="exact", multi_output="coregionalized", **settings)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*missing())


@pytest.fixture(scope="module")
def opposite():
    """One output is another one times -2, noise included."""
    X, y = table()
    return regressor(max_iter=None).fit(X, np.column_stack([y[:, 0], -2.0 * y[:, 0]]))


def parts(model):
    """The trained model, standardized rows, targets, and covariances of outputs."""
    own = model.members_[0].model()
    X, y, _ = (part.numpy() for part in own.training_table())
    with torch.no_grad():
        root = own.rows.kernel().root.numpy()
        noise = own.likelihood().covariance(own.rows.Z).numpy()
    return own, X, y, root @ root.T, noise


def kernel(model, X, Z):
    (found,) = model.kernels_
    return np.asarray(found(torch.as_tensor(X), torch.as_tensor(Z)))


def dense(model, X_new, X, y, B, noise):
    """Mean and covariance of all outputs at new rows, and the log density of the targets."""
    there = ~np.isnan(y.ravel())
    K = np.kron(kernel(model, X, X), B)
    K += np.kron(np.eye(len(X)), noise + 1e-6 * np.eye(len(B)))
    K, seen = K[np.ix_(there, there)], y.ravel()[there]
    cross = np.kron(kernel(model, X, X_new), B)[there]
    cov = np.kron(kernel(model, X_new, X_new), B) - cross.T @ np.linalg.solve(K, cross)
    density = multivariate_normal.logpdf(seen, np.zeros(len(seen)), K)
    return cross.T @ np.linalg.solve(K, seen), cov, density


@pytest.mark.parametrize("data", [table, missing])
def test_dense_kronecker_gp(data, fitted):
    model = fitted if data is missing else regressor().fit(*data())
    own, X, y, B, noise = parts(model)
    X_new = np.random.default_rng(1).standard_normal((6, 2))
    mean, cov, density = dense(model, X_new, X, y, B, noise)
    posterior = model.members_[0].posterior()
    found = posterior.latent(torch.tensor(X_new))
    assert_allclose(found.mean.flatten(), mean, atol=1e-8)
    assert_allclose(found.var.flatten(), np.diag(cov), atol=1e-8)
    found_mean, found_cov = posterior.joint_of_outputs(torch.tensor(X_new)[None])
    assert_allclose(found_mean.flatten(), mean, atol=1e-8)
    assert_allclose(found_cov.reshape(12, 12), cov, atol=1e-8)
    own.hold(batch(X, y))
    assert_allclose(own.log_marginal_likelihood().item(), density, atol=1e-8 * len(X))


def batch(X, y, weight=None):
    weight = np.ones(len(X)) if weight is None else weight
    return Batch(*map(torch.tensor, (X, y, weight)), 1.0, float(weight.sum()))


def test_weights_are_repeated_rows(fitted):
    own, X, y, *_ = parts(fitted)
    weight = np.where(np.arange(len(X)) < 5, 3.0, 1.0)
    values = []
    for rows, w in (
        (np.arange(len(X)), weight),
        (np.repeat(np.arange(len(X)), weight.astype(int)), None),
    ):
        own.condition(batch(X[rows], y[rows], w))
        values.append(own.log_marginal_likelihood().item())
    assert_allclose(*values, rtol=1e-10)


def test_draws_are_joint_over_rows_and_outputs(fitted):
    _, X, y, B, noise = parts(fitted)
    X_new = np.array([[0.1, 0.2], [0.15, 0.2], [0.9, 0.9]])
    scaled = fitted._x_scaler.transform(X_new)
    _, cov, _ = dense(fitted, scaled, X, y, B, noise)
    scale = np.tile(fitted._y_scaler.scale, 3)
    n = 1000
    for latent in (True, False):
        expected = cov if latent else cov + np.kron(np.eye(3), noise)
        draws = fitted.sample_y(X_new, n, latent=latent).reshape(6, n) / scale[:, None]
        sd = np.sqrt(np.diag(expected))
        error = (np.cov(draws) - expected) / np.outer(sd, sd)
        assert np.abs(error).max() < 5.0 * np.sqrt(2.0 / n)  # standard errors


def test_one_output_is_minus_twice_the_other(opposite):
    X, _ = table()
    for rows, latent in ((X[:5] + 0.01, True), (X[:5] + 0.01, False), (np.tile(X, (8, 1)), False)):
        draws = opposite.sample_y(rows, 100, latent=latent)
        assert max(np.corrcoef(row)[0, 1] for row in draws[:5]) < -0.99
    mean, std = opposite.predict(X, return_std=True)
    assert_allclose(mean[:, 1], -2.0 * mean[:, 0], atol=0.01)
    assert_allclose(std[:, 1], 2.0 * std[:, 0], rtol=0.05)
    f = np.sin(5.0 * X[:, 0]) + X[:, 1] ** 2
    assert np.sqrt(np.mean((mean[:, 0] - f) ** 2)) < 0.1  # the noise


def test_half_of_an_output_may_be_missing():
    X, y = table(60)
    y = np.column_stack([y[:, 0], -2.0 * y[:, 0] + X[:, 0]])
    X_test, f = (part[:, None] if part.ndim == 1 else part for part in table(500, noise=0.0))
    truth = -2.0 * f[:, 0] + X_test[:, 0]
    errors = []
    for hidden in (0, 30):
        some = y.copy()
        some[:hidden, 1] = np.nan
        predicted = regressor(max_iter=None).fit(X, some).predict(X_test)[:, 1]
        errors.append(np.sqrt(np.mean((predicted - truth) ** 2)))
    assert errors[1] < 1.1 * errors[0]


def test_conditioning_and_persistence(fitted):
    X, y = missing()
    new = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[np.nan, 20.0], [1.0, np.nan]])
    later = fitted.condition_on(*new)
    _, scaled, z, B, noise = parts(later)
    assert len(z) == len(X) + 2 and np.isnan(z).sum() == np.isnan(y).sum() + 2
    mean = dense(later, fitted._x_scaler.transform(X), scaled, z, B, noise)[0].reshape(-1, 2)
    expected = fitted._y_scaler.inverse(mean)
    assert_allclose(later.predict(X), expected, atol=1e-8 * fitted._y_scaler.scale.max())
    again = pickle.loads(pickle.dumps(fitted))
    assert_allclose(again.predict(X), fitted.predict(X), rtol=1e-12)


def test_frames_have_missing_targets(fitted):
    X, y = missing()
    frame = pd.DataFrame(y, columns=["a", "b"]).astype("Float64")
    found = regressor().fit(pd.DataFrame(X, columns=["u", "v"]), frame)
    assert_allclose(
        found.predict(pd.DataFrame(X, columns=["u", "v"])), fitted.predict(X), rtol=1e-6
    )


def test_categories_are_encoded_by_targets_that_are_there():
    X, y = missing()
    frame = pd.DataFrame({"u": X[:, 0], "kind": pd.Categorical(np.where(X[:, 1] > 0.5, "a", "b"))})
    model = regressor().fit(frame, y)
    assert np.isfinite(model.predict(frame)).all()


def test_maps_of_targets_that_are_missing():
    X, y = missing()
    model = regressor(target_transform="log").fit(X, np.exp(y / [1.0, 50.0]))
    assert model.target_transform_ == ["log", "log"]
    assert (model.predict(X) > 0.0).all()


def test_refusals(fitted):
    X, y = missing()
    with pytest.raises(ValueError, match="NaN"):
        DeepGPRegressor(1, inference="exact").fit(X, y)
    with pytest.raises(ValueError, match="needs inference='exact'"):
        regressor().set_params(inference="vecchia").fit(X, y)
    with pytest.raises(ValueError, match="early_stopping"):
        regressor(early_stopping=True).fit(X, y)
    with pytest.raises(ValueError, match="without all their targets"):
        regressor().fit(X, y, X_val=X, y_val=y)
    y_none = np.where(np.arange(len(X))[:, None] == 3, np.nan, y)
    with pytest.raises(ValueError, match="Rows 3 of y have no target"):
        regressor().fit(X, y_none)
    with pytest.raises(ValueError, match="Outputs 1 of y"):
        regressor().fit(X, np.column_stack([X[:, 0], np.full(len(X), np.nan)]))
    with pytest.raises(ValueError, match="NaN"):
        fitted.log_predictive_density(X, y)
    with pytest.raises(ValueError, match="Leave-one-out"):
        fitted.loo_predict()
    with pytest.raises(ValueError, match="covariances between outputs"):
        freeze_hyperparameters(fitted)


def test_messages_name_what_outputs_together_lack():
    X, y = np.arange(4.0)[:, None], np.arange(8.0).reshape(4, 2)
    model = DeepGPRegressor(1, inference="exact", multi_output="coregionalized", max_iter=1)
    with pytest.raises(ValueError, match="with multi_output=None"):
        model.fit(X, y).loo_predict()
    with pytest.raises(ValueError, match="of constant size, if outputs are coregionalized"):
        model.set_params(likelihood="heteroscedastic").fit(X, y)
