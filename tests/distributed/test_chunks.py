"""Chunks that ranks have in parts are learned as in a single process."""

import numpy as np
import pytest

from skdgp import DeepGPClassifier, DeepGPRegressor, distributed
from skdgp.inference import NNGP, RandomFeatures

pytestmark = pytest.mark.filterwarnings("ignore")
_PARTS = [(0, 20, 50), (0, 0, 40), (0, 31, 31)]  #: bounds of the ranks' rows of each chunk


def _model(scheme, n_classes):
    settings = {} if isinstance(scheme, RandomFeatures) else {"n_inducing": 8}
    cls = DeepGPClassifier if n_classes else DeepGPRegressor
    return cls(inference=scheme, batch_size=16, random_state=0, n_predict_draws=4, **settings)


def _chunks(n_classes):
    rng = np.random.RandomState(0)
    for i, bounds in enumerate(_PARTS):
        X, w = rng.randn(bounds[-1], 2) + 0.5 * i, rng.randint(1, 4, bounds[-1]).astype(float)
        y = np.sin(2 * X[:, 0]) + 0.1 * rng.randn(len(X))
        yield X, (y > 0).astype(int) if n_classes else y, w


def _numbers(model):
    X = np.random.RandomState(1).randn(10, 2)
    mean = model.predict(X) if isinstance(model, DeepGPRegressor) else model.predict_proba(X)
    return np.concatenate(
        [np.ravel(mean), np.ravel(model.sample_y(X, 2)), model._stream["loss_curve"]]
    )


def _learned(rank, scheme, n_classes):
    model = _model(scheme, n_classes)
    classes = np.arange(n_classes) if n_classes else None
    for bounds, chunk in zip(_PARTS, _chunks(n_classes)):
        rows = slice(bounds[rank], bounds[rank + 1])
        distributed.partial_fit(model, *(part[rows] for part in chunk), classes=classes)
    return _numbers(model)


@pytest.mark.parametrize(
    ("scheme", "n_classes"),
    [
        ("dsvi", 0),
        ("dsvi", 2),
        ("structured", 0),
        ("aep", 2),
        (RandomFeatures(10), 0),
        ("diwp", 0),
        ("global", 2),
        (NNGP(exact=False), 0),
    ],
    ids=str,
)
def test_ranks_learn_what_one_process_learns(ranks, scheme, n_classes):
    alone = _model(scheme, n_classes)
    given = {"classes": np.arange(n_classes)} if n_classes else {}
    for X, y, w in _chunks(n_classes):
        alone.partial_fit(X, y, sample_weight=w, **given)
    first, second = ranks(_learned, scheme, n_classes)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, _numbers(alone), atol=1e-8)


def _after_fit(rank):
    (X, y, w), (X_new, y_new, w_new), _ = _chunks(0)
    model = _model("dsvi", 0).set_params(max_iter=20)
    distributed.fit(model, X[rank::2], y[rank::2], w[rank::2])
    return _numbers(distributed.partial_fit(model, X_new[rank::2], y_new[rank::2], w_new[rank::2]))


def test_a_chunk_after_fit(ranks):
    first, second = ranks(_after_fit)
    np.testing.assert_array_equal(first, second)
    (X, y, w), (X_new, y_new, w_new), _ = _chunks(0)
    order, of_new = (np.r_[0:n:2, 1:n:2] for n in (len(X), len(X_new)))
    alone = _model("dsvi", 0).set_params(max_iter=20).fit(X[order], y[order], w[order])
    alone.partial_fit(X_new[of_new], y_new[of_new], w_new[of_new])
    np.testing.assert_allclose(first, _numbers(alone), atol=1e-8)


def _refused(rank, params):
    X, y, _ = next(_chunks(0))
    model = _model("dsvi", 0).set_params(**params)
    return distributed.partial_fit(model, X, y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"warm_start": True}, "warm_start=True is not supported"),
        ({"early_stopping": True}, "early_stopping"),
    ],
)
def test_settings_that_are_refused(ranks, params, message):
    for error in ranks(_refused, params):
        assert isinstance(error, ValueError) and message in str(error)
