"""The order of the columns does not matter where no draw belongs to one of them."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.fitting.table import column_order

RNG = np.random.default_rng(0)
N, PERMUTED = 90, [3, 1, 4, 0, 2]
X = RNG.standard_normal((N, 5)) * [1.0, 10.0, 0.1, 1.0, 3.0] + [0.0, 50.0, 0.0, -3.0, 9.0]
X[:, 3] = np.round(X[:, 3])
Y = np.sin(2.0 * X[:, 0]) + 0.05 * X[:, 1] * X[:, 2] + 0.1 * X[:, 4] + 0.1 * RNG.standard_normal(N)
NEW = X[:30] + 0.1 * RNG.standard_normal((30, 5)) * X.std(0)
FRAME = pd.DataFrame(X.copy(), columns=list("abcde"))
FRAME["d"] = np.where(X[:, 3] > -3.0, "high", np.where(X[:, 3] > -4.0, "middle", "low"))
FRAME.loc[::7, "c"] = np.nan
FEW = {"max_iter": 30, "random_state": 0}
MODELS = {
    **{
        name: DeepGPRegressor(1, inference=name, **FEW)
        for name in ("exact", "vecchia", "dsvi", "aep", "nngp", "vfe")
    },
    "sparse": SparseGPRegressor(20, **FEW),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_predictions_do_not_depend_on_it(name):
    found = [
        np.stack(MODELS[name].fit(X[:, order], Y).predict(NEW[:, order], return_std=True))
        for order in (slice(None), PERMUTED)
    ]
    assert_allclose(*found, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["exact", "dsvi"])
def test_predictions_of_frames_do_not_depend_on_it(name):
    found = [
        np.stack(MODELS[name].fit(rows, Y).predict(rows[:30], return_std=True))
        for rows in (FRAME, FRAME.iloc[:, PERMUTED])
    ]
    assert_allclose(*found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inference", ["vecchia", "dsvi"])
def test_classes_do_not_depend_on_it(inference):
    labels, found = np.digitize(Y, [-0.5, 0.5]), []
    for order in (slice(None), PERMUTED):
        model = DeepGPClassifier(1, inference=inference, **FEW)
        found.append(model.fit(X[:, order], labels).predict_proba(NEW[:, order]))
    assert_allclose(*found, rtol=1e-5, atol=1e-6)


def test_the_order_by_what_columns_hold():
    weights, y = np.ones(N), Y[:, None]
    order = column_order(X, y, weights)
    permuted = column_order(X[:, PERMUTED], y, weights)
    assert [PERMUTED[j] for j in permuted] == order.tolist()
    shuffled = RNG.permutation(N)
    both = np.hstack([y, y[::-1] ** 2])
    assert_allclose(column_order(X[shuffled], y[shuffled], weights), order)
    assert_allclose(column_order(X, -3e4 * y + 2.0, weights), order)
    assert_allclose(column_order(X, both[:, ::-1], weights), column_order(X, both, weights))
    twice = column_order(np.repeat(X, 2, 0), np.repeat(y, 2, 0), np.full(2 * N, 0.5))
    assert_allclose(twice, order)
    for cells in (1.0, np.nan):
        same = column_order(np.full((3, 2), cells), np.ones((3, 1)), np.ones(3))
        assert same.tolist() == [0, 1]
