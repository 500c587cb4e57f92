"""Conditioning and leave-one-out predictions are those of refits with the same hyperparameters."""

import pickle

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, t

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.inference.rows.marginal_likelihood import MarginalLikelihoodGP
from skdgp.model_selection import freeze_hyperparameters

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
N = 30


def table(n_outputs=None):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(N + 6, 2)) * [1.0, 100.0]
    y = np.sin(6.0 * X[:, 0]) + X[:, 1] / 100.0 + 0.05 * rng.standard_normal(len(X))
    return X, (y if n_outputs is None else np.column_stack([y, X[:, 0] - y]))


def fitted(scheme, likelihood, X, y, **settings):
    n_layers = 2 if scheme == "collapsed" else 1
    settings = {"max_iter": 10, "random_state": 0, "target_transform": None, **settings}
    return DeepGPRegressor(n_layers, inference=scheme, likelihood=likelihood, **settings).fit(X, y)


def moments(model, X):
    return np.stack(model.predict(X, return_std=True))


def refit(model, X, y, **settings):
    frozen = freeze_hyperparameters(model)
    return DeepGPRegressor(inference="exact", random_state=0, **frozen, **settings).fit(X, y)


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_conditioning_is_a_fit_with_frozen_hyperparameters(n_outputs):
    X, y = table(n_outputs)
    model = fitted("exact", "gaussian", X[:N], y[:N])
    before = moments(model, X)
    found, expected = model.condition_on(X[N:], y[N:]), refit(model, X, y)
    assert_allclose(moments(found, X), moments(expected, X), rtol=1e-8, atol=1e-8)
    assert_allclose(found.loo_predict(), expected.loo_predict(), rtol=1e-8, atol=1e-8)
    assert np.array_equal(moments(model, X), before)
    assert abs(before[0] - moments(found, X)[0]).max() > 1e-3


def test_local_scales_follow_new_rows(monkeypatch):
    """As in a fit whose hyperparameters, those of the local scale included, stay."""
    X, y = table()
    y[N:] += 0.5  # a cliff, which raises the scale
    model = fitted("exact", "heteroscedastic", X[:N], y[:N])
    state = model.members_[0].arrays

    def keep(gp, loo):
        gp._count_near()
        names = dict(gp.local_scale.named_parameters())
        for name, parameter in names.items():
            parameter.copy_(torch.as_tensor(state[f"local_scale.{name}"]))

    monkeypatch.setattr(MarginalLikelihoodGP, "_learn_scale", keep)
    found, expected = model.condition_on(X[N:], y[N:]), refit(model, X, y)
    assert_allclose(moments(found, X), moments(expected, X), rtol=1e-8, atol=1e-8)
    assert (moments(found, X[N:])[1] > moments(model, X[N:])[1]).any()


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic"])
@pytest.mark.parametrize("scheme", ["exact", "vecchia", "collapsed"])
def test_rows_may_come_in_turn(scheme, likelihood):
    X, y = table()
    model = fitted(scheme, likelihood, X[:N], y[:N])
    at_once = model.condition_on(X[N:], y[N:])
    one = model.condition_on(X[N : N + 2], y[N : N + 2])
    in_turn = pickle.loads(pickle.dumps(one)).condition_on(X[N + 2 :], y[N + 2 :])
    assert_allclose(moments(in_turn, X), moments(at_once, X), rtol=1e-8, atol=1e-8)
    for part in (np.stack(at_once.loo_predict(return_std=True)), at_once.loo_log_density()):
        assert part.shape[-1] == len(X)
    expected = np.stack(at_once.loo_predict(return_std=True))
    assert_allclose(np.stack(in_turn.loo_predict(return_std=True)), expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("scheme", ["exact", "collapsed", "coregionalized"])
def test_new_rows_extend_the_factors(scheme, monkeypatch):
    """One row and several cost no factorization of all rows, and leave what one would find."""
    outputs = None
    if scheme == "coregionalized":
        scheme, outputs = "exact", 2
    X, y = table(outputs)
    settings = {} if outputs is None else {"multi_output": "coregionalized"}
    model = fitted(scheme, "gaussian", X[:N], y[:N], **settings)
    model.predict(X[:1])  # makes the posterior
    again = pickle.loads(pickle.dumps(model))  # which has none, and solves for all rows
    parts, expected = [slice(N, N + 1), slice(N + 1, N + 6)], again
    for part in parts:
        expected.members_[0].release()
        expected = expected.condition_on(X[part], y[part])
    with monkeypatch.context() as patch:
        patch.delattr(MarginalLikelihoodGP, "_conditioned")
        found = model
        for part in parts:
            found = found.condition_on(X[part], y[part])
        near = {"rtol": 1e-8, "atol": 1e-8}
        assert_allclose(moments(found, X), moments(expected, X), **near)
        if outputs is None:
            assert_allclose(found.loo_log_density(), expected.loo_log_density(), **near)
            loo = (np.stack(m.loo_predict(return_std=True)) for m in (found, expected))
            assert_allclose(*loo, **near)
    # a repeated row changes the weight of an input: all are solved for
    twice = found.condition_on(X[:1], y[:1] + 0.1)
    assert len(twice.members_[0].posterior().gps[0].H) == len(
        found.members_[0].posterior().gps[0].H
    ) + (outputs or 0)


def test_weights_count_rows():
    X, y = table()
    model = fitted("exact", "gaussian", X[:N], y[:N])
    twice = model.condition_on(np.repeat(X[N:], 2, axis=0), np.repeat(y[N:], 2))
    weighed = model.condition_on(X[N:], y[N:], sample_weight=np.full(6, 2.0))
    assert_allclose(moments(twice, X), moments(weighed, X), rtol=1e-8)


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_left_out_rows_are_those_of_refits(n_outputs):
    X, y = table(n_outputs)
    order = np.random.default_rng(1).permutation(len(X))  # rows come back in the user's order
    X, y = X[order], y[order]
    model = fitted("exact", "gaussian", X, y)
    mean, std = model.loo_predict(return_std=True)
    density = model.loo_log_density()
    for i in (0, 7, 20):
        rest = np.arange(len(X)) != i
        again = refit(model, X[rest], y[rest])
        expected = again.predict(X[[i]], return_std=True)
        assert_allclose((mean[i], std[i]), [part[0] for part in expected], rtol=1e-8, atol=1e-8)
        log_p = again.log_predictive_density(X[[i]], y[[i]])
        assert_allclose(density[i], log_p[0], rtol=1e-8, atol=1e-8)
    assert_allclose(density, norm.logpdf(y, mean, std).reshape(len(X), -1).sum(1), atol=1e-9)


def test_groups_leave_together():
    X, y = table()
    groups = np.arange(len(X)) % 9
    model = fitted("exact", "gaussian", X, y)
    settings = freeze_hyperparameters(model)
    grouped = DeepGPRegressor(inference="exact", random_state=0, **settings)
    mean, std = grouped.fit(X, y, groups=groups).loo_predict(return_std=True)
    for group in (0, 4):
        out = groups == group
        expected = moments(refit(model, X[~out], y[~out]), X[out])
        assert_allclose((mean[out], std[out]), expected, rtol=1e-8, atol=1e-8)
    assert_array_equal(
        grouped.predict(X, groups=groups), grouped.predict(X)
    )  # as frozen: no effects


def test_mixtures_of_the_local_scale_have_the_density_of_their_moments():
    """Densities are closed forms, and moments those of a mixture: a student's t has both."""
    X, y = table()
    model = fitted("exact", "heteroscedastic", X, y)
    mean, std = model.loo_predict(return_std=True)
    posterior = model.members_[0].posterior()
    dof = float(posterior._local_scale.dof())
    scale = std * np.sqrt((dof - 2.0) / dof)
    assert_allclose(model.loo_log_density(), t.logpdf(y, dof, mean, scale), atol=1e-6)


def test_units_of_mapped_targets():
    X, y = table()
    y = np.exp(y)
    model = fitted("exact", "gaussian", X, y, target_transform="log")
    plain = fitted("exact", "gaussian", X, np.log(y))
    assert_allclose(
        model.loo_log_density(), plain.loo_log_density() - np.log(y), rtol=1e-6, atol=1e-6
    )
    mean, std = plain.loo_predict(return_std=True)
    assert_allclose(model.loo_predict(), np.exp(mean + 0.5 * std**2), rtol=1e-3)


def test_what_holds_no_rows_says_so():
    X, y = table()
    sparse = SparseGPRegressor(max_iter=5).fit(X, y)
    deep = DeepGPRegressor(inference="dsvi", max_iter=5).fit(X, y)
    for model in (sparse, deep):
        with pytest.raises(ValueError, match="condition_on is for models that hold"):
            model.condition_on(X, y)
        with pytest.raises(ValueError, match="cross_val_distribution"):
            model.loo_predict()
    timed = fitted("exact", "gaussian", X, y)
    timed.fit(X, y, time=np.arange(len(X)))
    with pytest.raises(ValueError, match="TimeSeriesSplit"):
        timed.loo_log_density()
    model = fitted("exact", "gaussian", X, y)
    with pytest.raises(ValueError, match="features"):
        model.condition_on(X[:, :1], y)
    with pytest.raises(ValueError, match="outputs"):
        model.condition_on(X, np.column_stack([y, y]))
