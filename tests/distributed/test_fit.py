"""Ranks that divide minibatches end with the estimator of a single process."""

import contextlib
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.distributed import fit
from skdgp.distributed.fitting import _checked
from skdgp.estimators import base
from skdgp.fitting import mixture as fit_module
from skdgp.inference import (
    AEP,
    DSVI,
    NNGP,
    SGHMC,
    DeepInverseWishart,
    GlobalInducing,
    RandomFeatures,
    StructuredVI,
)
from skdgp.training import budget, pretraining, trainer

pytestmark = pytest.mark.filterwarnings("ignore")


def _data(kind="regressor"):
    rng = np.random.RandomState(0)
    X = rng.randn(61, 2)
    y, w = np.sin(2 * X[:, 0]) + 0.1 * rng.randn(61), rng.randint(1, 4, 61).astype(float)
    return X, y if kind == "regressor" else (y > 0).astype(int), w


def _estimator(kind="regressor", **params):
    cls = DeepGPRegressor if kind == "regressor" else DeepGPClassifier
    settings = {"max_iter": 25, "batch_size": 20, "random_state": 0, "inference": "dsvi"}
    settings |= {"n_predict_draws": 4, "standardize": True}
    if not isinstance(params.get("inference"), RandomFeatures):
        settings["n_inducing"] = 8  # more of them are nearly dependent, and amplify rounding
    return cls(**{**settings, **params})


def _numbers(model, X, kind):
    """Predictions, draws and the objective."""
    mean = model.predict(X) if kind == "regressor" else model.predict_proba(X)
    loss = [member.record.loss_curve[-1] for member in model.members_]
    return np.concatenate([np.ravel(mean), np.ravel(model.sample_y(X[:5], 2)), loss])


def fitted(rank, bounds, kind, weighted, params):
    """What a rank comes to with its rows of the data."""
    X, y, w = _data(kind)
    rows = slice(bounds[rank], bounds[rank + 1])
    model = _estimator(kind, **params[rank])
    fit(model, X[rows], y[rows], w[rows] if weighted else None)
    return _numbers(model, X, kind)


_SCHEMES = [
    ("regressor", {"inference": DSVI(n_draws=2), "n_layers": 3, "width": 2}),
    ("regressor", {"inference": DSVI(), "batch_size": 1}),  # fewer rows than ranks
    ("regressor", {"inference": SGHMC(n_samples=8), "batch_size": 3}),  # or than halves of ranks
    ("regressor", {"inference": StructuredVI(n_warmup=5)}),
    ("classifier", {"inference": StructuredVI("full", natural_gradient=False), "n_layers": 3}),
    ("regressor", {"inference": AEP(), "input_connected": True}),
    ("classifier", {"inference": AEP(prediction="sampling")}),
    ("regressor", {"inference": RandomFeatures(10), "max_iter": 60}),  # lazy steps, too
    ("classifier", {"inference": RandomFeatures(10, "resampled", covariance="diagonal")}),
    ("regressor", {"inference": DeepInverseWishart(n_draws=2), "n_layers": 3}),
    ("classifier", {"inference": NNGP(exact=False)}),
    ("regressor", {"inference": GlobalInducing()}),
    ("regressor", {"inference": SGHMC(n_samples=8)}),  # halves of minibatches
    ("classifier", {"inference": SGHMC(n_samples=8, n_hidden_draws=2)}),
    ("regressor", {"inference": SGHMC(n_samples=8), "batch_size": 61, "likelihood": "gaussian"}),
    ("regressor", {"inference": SGHMC.published().set_params(n_samples=4, n_learn=12, spacing=2)}),
]


@pytest.mark.parametrize(("kind", "params"), _SCHEMES, ids=lambda part: str(part)[:60])
def test_two_ranks_fit_what_one_process_fits(ranks, kind, params):
    X, y, w = _data(kind)
    alone = _estimator(kind, **params).fit(X, y, w)
    first, second = ranks(fitted, (0, 20, 61), kind, True, [params, params])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, _numbers(alone, X, kind), atol=1e-8)


def test_a_rank_without_rows(ranks):
    X, y, _ = _data()
    found = ranks(fitted, (0, 61, 61), "regressor", False, [{}, {}])
    np.testing.assert_allclose(
        found[1], _numbers(_estimator().fit(X, y), X, "regressor"), atol=1e-8
    )


def counted(rank, params):
    """Bytes of each reduction in a fit."""
    sizes, reduce = [], dist.all_reduce

    def count(tensor):
        sizes.append(tensor.nbytes)
        return reduce(tensor)

    with mock.patch.object(dist, "all_reduce", count):
        fitted(rank, (0, 20, 61), "regressor", False, [params] * 2)
    return sizes


def _reductions(rank, params):
    """Reductions and their bytes in ten steps."""
    few, many = (counted(rank, {**params, "max_iter": n}) for n in (60, 70))
    return len(many) - len(few), sum(many) - sum(few)


@pytest.mark.parametrize(
    ("params", "numbers"),
    [
        # the objective, M d + M D + C M^2 of both layers, and hyperparameters
        ({"likelihood": "gaussian"}, 1 + (16 + 16 + 64) + (16 + 8 + 64) + 2 * 3 + 2),
        ({"inference": RandomFeatures(10)}, None),
    ],
)
def test_one_reduction_a_step(ranks, params, numbers):
    for n_calls, n_bytes in ranks(_reductions, params):
        assert n_calls == 10
        assert numbers is None or n_bytes == 80 * numbers


def test_error_of_one_rank_reaches_all(ranks):
    found = ranks(fitted, (0, 20, 61), "regressor", False, [{}, {"random_state": None}])
    assert str(found[0]) == str(found[1])
    assert "Rank 1" in str(found[0]) and "random_state" in str(found[0])


def test_schemes_without_minibatches_are_refused(ranks):
    for error in ranks(fitted, (0, 20, 61), "regressor", False, [{"inference": NNGP()}] * 2):
        assert "does not learn from minibatches" in str(error)


def test_settings_are_compared_by_their_values():
    X, y, w = _data()
    same = [_checked(_estimator(inference=DSVI()), X, y, w)[0] for _ in range(2)]
    assert same[0] == same[1]
    widths = [3] * 50, [3] * 40 + [2] + [3] * 9  # which scikit-learn shortens to the same text
    deep = [_estimator(n_layers=51, width=width) for width in widths]
    assert repr(deep[0]) == repr(deep[1])
    assert _checked(deep[0], X, y, w)[0] != _checked(deep[1], X, y, w)[0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"random_state": None}, "random_state must be an integer"),
        ({"max_time": 3.0, "inference": "auto"}, "max_time on several ranks is for one model"),
        ({"warm_start": True}, "warm_start=True is not supported"),
    ],
)
def test_other_settings_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        _checked(_estimator(**params), *_data())


def test_members_of_the_default_are_spread(ranks):
    X, y, w = _data()
    params = {"inference": "auto", "batch_size": None, "max_iter": 10}
    alone = _estimator(**params).fit(X, y, w)
    assert len(alone.members_) > 1
    for found in ranks(fitted, (0, 20, 61), "regressor", True, [params] * 2):
        np.testing.assert_allclose(found, _numbers(alone, X, "regressor"), atol=1e-8)


def test_bytes_of_a_step_are_those_of_the_guide(ranks):
    params = {"inference": "dsvi", "width": 3, "max_iter": 4, "likelihood": "gaussian"}
    params["target_transform"] = None
    M, layers = 8, [(2, 3, 1), (3, 1, 1)]  # inputs, outputs, covariances
    numbers = sum(M * d + M * D + C * M**2 for d, D, C in layers)
    hyperparameters = sum(d + 1 for d, _, _ in layers) + 2  # with two kinds of noise
    assert ranks(counted, params) == [[8 * (1 + numbers + hyperparameters)] * 4] * 2


class _Clock:
    """A clock that goes on with each look at it, faster on the second rank."""

    perf_counter, process_time = time.perf_counter, time.process_time

    def __init__(self, rank):
        self._now, self._tick = 1000.0 * rank, 0.1 + 0.3 * rank

    def monotonic(self):
        self._now += self._tick
        return self._now


def _timed(rank, params):
    X, y, w = _data()
    rows, model = slice(*((0, 20), (20, 61))[rank]), _estimator(**params, max_iter=300)
    with contextlib.ExitStack() as stack:
        for module in (trainer, pretraining, budget, fit_module, base):
            name = "clock" if module is base else "time"  # which names a parameter there
            stack.enter_context(mock.patch.object(module, name, _Clock(rank)))
        fit(model.set_params(max_time=10.0), X[rows], y[rows], w[rows])
    return model.n_iter_, _numbers(model, X, "regressor"), getattr(model, "lower_bound_", 0.0)


@pytest.mark.parametrize(
    "params",
    [
        {"inference": StructuredVI(n_inflation_splits=1)},
        {"init": "greedy"},
        {"inference": RandomFeatures(10)},
        {"inference": SGHMC(n_samples=8)},
    ],
    ids=str,
)
def test_ranks_stop_at_the_same_step(ranks, params):
    """The clock of the first one counts."""
    first, second = ranks(_timed, params)
    assert 0 < first[0] == second[0] < 300
    np.testing.assert_array_equal(first[1], second[1])
    assert first[2] == second[2]


def _ring(rank):
    """A sum of the benchmark's messages, and how many arrive one after another."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from benchmarks import latency

    total, waits = torch.arange(7.0, dtype=torch.float64) * (rank + 1.0), []
    with mock.patch.object(latency.time, "sleep", waits.append):
        latency.late_ring(0.5)(total)
    return total.numpy(), waits


@pytest.mark.parametrize(("group", "size"), [("ranks", 2), ("three", 3)])
def test_late_messages_of_the_benchmark_add_up(request, group, size):
    for total, waits in request.getfixturevalue(group)(_ring):
        np.testing.assert_array_equal(total, np.arange(7.0) * size * (size + 1) / 2)
        assert waits == [0.5] * 2 * (size - 1)
