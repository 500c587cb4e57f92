"""Asynchronous steps: one worker is a single process, and no gradient is older than allowed."""

import time
from unittest import mock

import numpy as np
import pytest
import torch
from process_group import Ranks

from skdgp import DeepGPRegressor
from skdgp.distributed import fit
from skdgp.distributed.fitting import _checked
from skdgp.inference import AEP, DSVI, RandomFeatures
from skdgp.inference.deep import DeepSparseGP
from skdgp.optim.gradient_steps import GradientSteps
from skdgp.training import Checkpoint


def _data():
    rng = np.random.RandomState(0)
    X = rng.uniform(-2, 2, (90, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.randn(90)


def _model(**params):
    settings = {"inference": "dsvi", "max_iter": 40, "batch_size": 20, "random_state": 0}
    if not isinstance(params.get("inference"), RandomFeatures):
        settings["n_inducing"] = 8
    return DeepGPRegressor(**{**settings, "n_predict_draws": 4, **params})


def _fitted(rank, staleness, slow, params, shard="auto"):
    """Predictions, the objective at the end, and staleness; rank 2 is slow."""
    X, y = _data()
    rows = slice(*((0, 30), (30, 90), (90, 90))[rank])
    step = DeepSparseGP.expected_log_likelihood

    def slowly(self, batch, generator):
        if slow and rank == 2:
            time.sleep(0.05)
        return step(self, batch, generator)

    with mock.patch.object(DeepSparseGP, "expected_log_likelihood", slowly):
        model = fit(_model(**params), X[rows], y[rows], shard=shard, staleness=staleness)
    return model.predict(X), np.array(model.members_[0].record.loss_curve), model.staleness_


_SCHEMES = [
    DSVI(n_draws=2),
    DSVI(natural_gradient="none"),
    RandomFeatures(10),  # late steps leave the last layer alone
    RandomFeatures(10, "resampled", covariance="diagonal"),
]


@pytest.mark.parametrize("inference", _SCHEMES, ids=str)
def test_one_worker_is_a_single_process(ranks, inference):
    params = {"inference": inference, "max_iter": 60}
    (first, curve, staleness), second = ranks(_fitted, 0, False, params)
    alone = _model(**params).fit(*_data())
    np.testing.assert_array_equal(first, second[0])
    np.testing.assert_array_equal(staleness, np.zeros(60))
    np.testing.assert_allclose(curve, alone.members_[0].record.loss_curve, atol=1e-8)
    np.testing.assert_allclose(first, alone.predict(_data()[0]), atol=1e-8)


@pytest.mark.parametrize("bound", [0, 1, 6])
def test_staleness_is_bounded(three, bound):
    found = three(_fitted, bound, True, {"max_iter": 30})
    for predicted, curve, staleness in found:
        assert len(curve) == len(staleness) == 30 and np.isfinite(curve).all()
        assert (staleness <= bound).all() and staleness.any() == (bound > 0)
        np.testing.assert_array_equal(predicted, found[0][0])


def _all_taken(rank, params):
    """Whether each step of the server takes as many tensors as the worker has sent."""
    X, y = _data()
    take, left = GradientSteps.take, []

    def counted(self, model, sums):
        sums = iter(sums)
        take(self, model, sums)
        left.append(len(list(sums)))

    with mock.patch.object(GradientSteps, "take", counted):
        fit(_model(**params), X[rank::3], y[rank::3], staleness=4)
    return left


def test_old_gradients_are_of_the_blocks_that_moved(three):
    """Late steps of random features leave the last layer alone, by their number."""
    left = three(_all_taken, {"inference": RandomFeatures(10), "max_iter": 80})[0]
    assert left == [0] * 80


def test_two_workers_learn_what_one_process_learns(three):
    X, params = _data()[0], {"max_iter": 250}
    predicted, _, staleness = three(_fitted, 8, False, params)[0]
    alone, truth = _model(**params).fit(*_data()).predict(X), np.sin(2 * X[:, 0])
    error, of_alone = (np.sqrt(np.mean((p - truth) ** 2)) for p in (predicted, alone))
    assert staleness.any() and of_alone < 0.1
    assert error < of_alone + 0.05  # half the deviation of the noise


def _broken(rank, what):
    X, y = _data()
    step = DeepSparseGP.expected_log_likelihood

    def breaking(self, batch, generator):
        if self.steps.n_made == 23:
            error = RuntimeError if what == "error" else torch.linalg.LinAlgError
            raise error("rank 1 is on fire")
        return step(self, batch, generator)

    with mock.patch.object(DeepSparseGP, "expected_log_likelihood", breaking):
        return fit(_model(), X[rank::2], y[rank::2], staleness=3).predict(X)


def test_a_worker_that_fails():
    both = Ranks()
    try:
        for error in both(_broken, "error"):
            assert "rank 1 is on fire" in str(error)
        both.begin()
        for predicted in both(_broken, "factorization"):
            assert np.isfinite(predicted).all()
    finally:
        both.end()


def _continued(rank, path):
    X, y = _data()
    for n in (25, 40):  # the second goes on
        model = _model(max_iter=n, checkpoint=Checkpoint(path / str(n), 10))
        fit(model, X[rank::2], y[rank::2], staleness=0)
        fit(model, X[rank::2], y[rank::2], staleness=0)
    return model.predict(X)


def test_checkpoints_and_early_stopping(ranks, tmp_path):
    (tmp_path / "25").mkdir()
    (tmp_path / "40").mkdir()
    first, second = ranks(_continued, tmp_path)
    np.testing.assert_array_equal(first, second)
    assert len(list(tmp_path.rglob("*.npz"))) == 2
    params = {"early_stopping": True, "n_iter_no_change": 1, "tol": 1e9, "max_iter": 200}
    for _, curve, staleness in ranks(_fitted, 0, False, params):
        assert len(curve) == len(staleness) < 200


@pytest.mark.parametrize(
    ("params", "shard", "message"),
    [
        ({"inference": AEP()}, "auto", "staleness is for"),
        ({"inference": "auto", "n_inducing": None}, "auto", "staleness is for"),
        ({}, "given", "shard='auto'"),
    ],
)
def test_other_schemes_and_rows_of_their_own_are_refused(ranks, params, shard, message):
    for error in ranks(_fitted, 1, False, params, shard):
        assert message in str(error)


def test_time_ends_the_steps_of_all(ranks):
    for _, curve, staleness in ranks(_fitted, 0, False, {"max_time": 1.0, "max_iter": 10**6}):
        assert 0 < len(curve) == len(staleness) < 10**6


@pytest.mark.parametrize("staleness", [-1, 1.5, "yes"])
def test_bounds_are_checked(staleness):
    with pytest.raises(ValueError, match="staleness must be None or an integer"):
        _checked(_model(), *_data(), staleness=staleness)
