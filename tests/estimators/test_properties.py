"""Promises of all schemes, likelihoods and target maps, on random small data."""

import os
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from sklearn.base import clone
from torch.utils._python_dispatch import TorchDispatchMode

from skdgp import DeepGPRegressor
from skdgp.inference import SCHEMES
from skdgp.model_selection import freeze_hyperparameters
from skdgp.training import budget
from skdgp.training.trainer import Trainer

pytestmark = pytest.mark.filterwarnings("ignore")

N_EXAMPLES = int(
    os.environ.get("SKDGP_EXAMPLES", 6)
)  #: of each promise; hundreds search for faults
few = settings(
    max_examples=N_EXAMPLES, deadline=None, derandomize=N_EXAMPLES < 10, database=None,
    suppress_health_check=list(HealthCheck), phases=[Phase.generate],
)  # fmt: skip
COUNTS = ("poisson", "negative_binomial")
NOISE = ("gaussian", "heteroscedastic", "student_t", "heteroscedastic_student_t")
MAPS = (None, "log", "exponential-normal", "yeo-johnson")
ALL = tuple(sorted(SCHEMES))
SHALLOW = ("exact", "pep", "vecchia", "vfe")
OF_GAUSSIAN_NOISE = {"collapsed": 2, "exact": 2, "vecchia": 2, "vfe": 1, "pep": 1}
IN_CLOSED_FORM = ("exact", "nngp", "vfe", "pep")  #: posteriors that hyperparameters decide
LEVELS = np.array([0.03, 0.25, 0.5, 0.75, 0.97])
N_DRAWS = 1500


@st.composite
def cases(draw, schemes=ALL, counts=True):
    """A model and positive data."""
    scheme = draw(st.sampled_from(schemes))
    allowed = NOISE[: OF_GAUSSIAN_NOISE[scheme]] if scheme in OF_GAUSSIAN_NOISE else NOISE
    if counts and scheme not in OF_GAUSSIAN_NOISE:
        allowed += COUNTS
    likelihood, of_target = draw(st.sampled_from(allowed)), {}
    if likelihood not in COUNTS:
        of_target = {"target_transform": draw(st.sampled_from(MAPS))}
    model = DeepGPRegressor(
        1 if scheme in SHALLOW else draw(st.integers(1, 2)),
        inference=scheme, likelihood=likelihood, n_predict_draws=4, random_state=0,
        max_iter=draw(st.integers(4, 12)), standardize=draw(st.sampled_from([True, "warp", False])),
        **of_target,
    )  # fmt: skip
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = np.exp(rng.normal(size=(22, 2)))
    mean = np.exp(1.0 + np.sin(X[:, 0]))
    y = rng.poisson(mean) if likelihood in COUNTS else rng.gamma(draw(st.integers(1, 9)), mean)
    return model, X, y


def within(draws, expected, what):
    """Whether means over draws, the last axis, are as expected, to five standard errors."""
    error = draws.std(-1) / np.sqrt(draws.shape[-1])
    off = np.abs(draws.mean(-1) - expected)
    assert (off <= 5.0 * error + 1e-3 * np.abs(expected)).all(), (what, off / error)


@few
@given(cases())
def test_all_predictions_are_of_one_distribution(case):
    model, X, y = case
    model.fit(X, y)
    T = np.vstack([X[:3], [[0.1, 5.0]]])
    mean, std = model.predict(T, return_std=True)
    draws = model.sample_y(T, N_DRAWS, random_state=1)
    within(draws, mean, "mean")
    within((draws - mean[:, None]) ** 2, std**2, "variance")
    assert_allclose(model.predict_var(T), std**2, rtol=1e-9)
    assert_allclose(np.diag(model.predict(T, return_cov=True)[1]), std**2, rtol=1e-6)
    middle, *parts = model.predict(T, return_std=True, decompose=True)
    assert_allclose(middle, mean, rtol=1e-6)
    assert_allclose(np.square(parts).sum(0), std**2, rtol=1e-6)
    assert_allclose(model.predict(T[2:3]), mean[2:3], rtol=1e-7)
    quantiles = model.predict_quantiles(T, LEVELS)
    below = np.stack([model.predict_cdf(T, q) for q in quantiles.T], 1)
    above = np.stack([model.predict_cdf(T, q, complement=True) for q in quantiles.T], 1)
    assert_allclose(below + above, 1.0, atol=1e-7)
    # draws of mapped targets end two standard deviations from their centers; few chain states have heavy tails
    own = slice(None) if vars(model).get("target_transform") is None else slice(1, 4)
    share = (draws[:, None] <= quantiles[..., None]) + 0.0
    within(share[:, own], below[:, own], "cdf")
    latent = model.sample_y(T, N_DRAWS, latent=True)
    within(latent, model.predict(T, latent=True), "latent mean")
    if model.likelihood in COUNTS:
        assert (below >= LEVELS - 1e-9).all()
        k = np.arange(60)
        masses = np.exp([model.log_predictive_density(np.tile(t, (60, 1)), k) for t in T])
        sums = [model.predict_cdf(T, np.full(4, j)) for j in (0, 3, 12)]
        assert_allclose(masses.cumsum(1)[:, [0, 3, 12]].T, sums, atol=1e-5)
        return
    assert_allclose(below, np.broadcast_to(LEVELS, below.shape), atol=2e-6)
    for row, (low, *_, high) in zip(T, quantiles):  # Simpson's rule
        grid = np.linspace(low, high, 401)
        density = np.exp(model.log_predictive_density(np.tile(row, (401, 1)), grid))
        weights = np.where(np.arange(401) % 2, 4.0, 2.0)
        weights[[0, -1]] = 1.0
        total = (high - low) / 1200.0 * (weights @ density)
        assert total == pytest.approx(LEVELS[-1] - LEVELS[0], abs=0.01)
    if model.target_transform in ("log", "exponential-normal"):
        assert min(quantiles.min(), mean.min(), draws.min(), latent.min()) > 0.0


@few
@given(cases())
def test_a_frozen_copy_predicts_the_same_or_refuses(case):
    model, X, y = case
    model.fit(X, y)
    try:
        frozen = freeze_hyperparameters(model)
    except ValueError as error:
        frozen, refusal = None, str(error)
    if frozen is None:
        assert "freeze a model of another scheme" in refusal
        return
    names = ("inference", "max_iter", "random_state", "n_predict_draws")
    own = {name: getattr(model, name) for name in names}
    copy = clone(DeepGPRegressor(**own, **frozen)).fit(X, y)
    assert (copy.target_transform_, copy.n_layers) == (model.target_transform_, model.n_layers)
    assert_allclose(copy._x_scaler.transform(X), model._x_scaler.transform(X))
    for one, two in zip((*copy.kernels_, copy.likelihood_), (*model.kernels_, model.likelihood_)):
        for name in one._positive:
            assert_allclose(getattr(one, name), getattr(two, name), rtol=1e-8)
    if model.inference in IN_CLOSED_FORM and model.likelihood in NOISE[:2]:
        T = X + 0.1
        for one, two in zip(copy.predict(T, return_std=True), model.predict(T, return_std=True)):
            assert_allclose(one, two, rtol=1e-8, atol=1e-8 * np.abs(two).max())
        densities = (m.log_predictive_density(T, y) for m in (copy, model))
        assert_allclose(*densities, rtol=1e-8, atol=1e-8)


@few
@given(cases())
def test_weights_are_repeated_rows(case):
    model, X, y = case
    counts = np.arange(len(X)) % 3
    rows = np.repeat(np.arange(len(X)), counts)
    weighted = model.fit(X, y, sample_weight=counts)
    repeated = clone(model).fit(X[rows], y[rows])
    moments = (m.predict(X, return_std=True) for m in (weighted, repeated))
    for one, two in zip(*moments):
        assert_allclose(one, two, rtol=1e-6)
    assert_allclose(weighted.feature_importances_, repeated.feature_importances_, rtol=1e-6)


@settings(few, max_examples=(N_EXAMPLES + 1) // 2)
@given(cases(SHALLOW, counts=False), st.floats(1.0, 4.0))
def test_totals_of_positive_targets(case, shape):
    """Predicted means add up to what fresh targets do, whatever map the fit chooses."""
    model, _, y = case
    rng = np.random.default_rng(len(y) + model.max_iter)
    X = rng.uniform(size=(400, 2))
    fresh = rng.gamma(shape, np.exp(1.5 * X[:, 0]), (200, 400)) / shape
    model.set_params(target_transform="auto", standardize=True, max_iter=None)
    total = model.fit(X, fresh[0]).predict(X).sum()
    # the targets of the fit are one draw of many, with an error of 5 % for the smallest shape
    assert total == pytest.approx(fresh.mean(0).sum(), rel=0.1)


class SlowMachine(TorchDispatchMode):
    """A machine whose clock advances with the arithmetic of torch alone."""

    def __init__(self, speed):
        super().__init__()
        self.speed, self.now = speed, 0.0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out, name = function(*args, **kwargs or {}), function.overloadpacket.__name__
        first = next((x for x in torch.utils._pytree.tree_leaves(out) if torch.is_tensor(x)), None)
        if first is not None:
            cost = first.numel()
            if name in ("mm", "bmm", "addmm", "baddbmm"):
                cost *= 2 * args[-1].shape[-2]
            elif any(word in name for word in ("cholesky", "triangular", "eigh")):
                cost *= args[0].shape[-1]
            self.now += cost / self.speed
        return out


@pytest.mark.parametrize("scheme", ["auto", *ALL])
def test_a_fit_ends_in_its_time(scheme, monkeypatch):
    """All schemes have time for a few steps only, and one step of some takes all of it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 2))
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(250)
    settings = {"target_transform": None, "standardize": True, "random_state": 0, "max_time": 60.0}
    trained, run = [], Trainer.run
    faster = {"auto": 2, "diwp": 20, "global": 10, "rff": 10, "structured": 10}.get(scheme, 1)
    with SlowMachine(6e6 * faster) as machine, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        monkeypatch.setitem(budget._SECONDS_OF_CUBE, "cpu", 1.0 / machine.speed)
        monkeypatch.setattr(
            Trainer, "run", lambda self: (run(self), trained.append(machine.now))[0]
        )
        for name in ("monotonic", "perf_counter"):
            monkeypatch.setattr(f"time.{name}", lambda: machine.now)
        DeepGPRegressor(1 if scheme in SHALLOW else 2, inference=scheme, **settings).fit(X, y)
    if machine.now > 73.0:
        assert any("had passed" in str(warning.message) for warning in caught)
    assert machine.now <= 1.2 * max(60.0, trained[-1]) + 1.0
