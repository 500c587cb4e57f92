"""Ranks that divide minibatches end with the estimator of a single process."""

import multiprocessing
import socket
from datetime import timedelta

import numpy as np
import pytest
import torch.distributed as dist

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.distributed import _checked, fit
from skdgp.inference import DSVI


def _data():
    rng = np.random.RandomState(0)
    X = rng.randn(61, 2)
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.randn(61), rng.randint(1, 4, 61).astype(float)


def _estimator(kind, **params):
    cls = DeepGPRegressor if kind == "regressor" else DeepGPClassifier
    settings = {"n_layers": 2, "n_inducing": 8, "max_iter": 25, "batch_size": 20}
    settings |= {"dtype": "float64", "random_state": 0, "inference": "dsvi", "n_threads": 1}
    return cls(**{**settings, **params})


def _predict(model, X, kind):
    return model.predict(X) if kind == "regressor" else model.predict_proba(X)


def _rank(rank, port, bounds, kind, weighted, params, queue):
    address = f"tcp://127.0.0.1:{port}"
    settings = {"rank": rank, "world_size": len(bounds) - 1, "timeout": timedelta(seconds=60)}
    dist.init_process_group("gloo", init_method=address, **settings)
    X, y, w = _data()
    y = y if kind == "regressor" else (y > 0).astype(int)
    rows = slice(bounds[rank], bounds[rank + 1])
    try:
        model = _estimator(kind, **params[rank])
        fit(model, X[rows], y[rows], w[rows] if weighted else None)
        queue.put((rank, _predict(model, X, kind)))
    except ValueError as error:
        queue.put((rank, str(error)))
    dist.destroy_process_group()


def _run(bounds, kind="regressor", weighted=False, params=None):
    context = multiprocessing.get_context("spawn")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    size, queue = len(bounds) - 1, context.Queue()
    params = params or [{}] * size
    tasks = [
        context.Process(target=_rank, args=(r, port, bounds, kind, weighted, params, queue))
        for r in range(size)
    ]
    for task in tasks:
        task.start()
    try:
        found = dict(queue.get(timeout=120) for _ in tasks)
    finally:
        for task in tasks:
            task.join(5)
            task.kill()
    return [found[r] for r in range(size)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("bounds", "kind", "weighted", "params"),
    [
        ((0, 20, 61), "regressor", True, {}),
        ((0, 61, 61), "classifier", False, {}),
        ((0, 20, 61), "regressor", False, {"batch_size": 1}),  # fewer rows than ranks
    ],
)
def test_two_ranks_fit_what_one_process_fits(bounds, kind, weighted, params):
    X, y, w = _data()
    y = y if kind == "regressor" else (y > 0).astype(int)
    alone = _estimator(kind, **params).fit(X, y, w if weighted else None)
    first, second = _run(bounds, kind, weighted, [params, params])
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, _predict(alone, X, kind), atol=1e-8)


def test_error_of_one_rank_reaches_all():
    found = _run((0, 20, 61), params=[{}, {"random_state": None}])
    assert found[0] == found[1]
    assert "Rank 1" in found[0] and "random_state" in found[0]


def test_settings_are_compared_by_their_values():
    X, y, w = _data()
    same = [_checked(_estimator("regressor", inference=DSVI()), X, y, w)[0] for _ in range(2)]
    assert same[0] == same[1]
    widths = [3] * 50, [3] * 40 + [2] + [3] * 9  # which scikit-learn shortens to the same text
    deep = [_estimator("regressor", n_layers=51, width=width) for width in widths]
    assert repr(deep[0]) == repr(deep[1])
    assert _checked(deep[0], X, y, w)[0] != _checked(deep[1], X, y, w)[0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"inference": "structured"}, "only inference='dsvi'"),
        ({"inference": "auto"}, "only inference='dsvi'"),
        ({"random_state": None}, "random_state must be an integer"),
        ({"max_time": 3.0}, "max_time is not supported"),
        ({"checkpoint": "fit.npz"}, "checkpoint is not supported"),
        ({"warm_start": True}, "warm_start=True is not supported"),
    ],
)
def test_other_settings_are_refused(params, message):
    with pytest.raises(ValueError, match=message):
        _checked(_estimator("regressor", **params), *_data())
