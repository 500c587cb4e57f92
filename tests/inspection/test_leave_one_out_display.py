import numpy as np
import pytest
from numpy.testing import assert_allclose

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inspection import LeaveOneOutDisplay


@pytest.fixture(scope="module")
def emulator():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(25, 2))
    y = np.column_stack([np.sin(6.0 * X[:, 0]), X[:, 1] + 0.1 * rng.standard_normal(25)])
    settings = {"inference": "exact", "likelihood": "gaussian", "max_iter": 5, "random_state": 0}
    return DeepGPRegressor(1, **settings).fit(X, y), y


def test_points_are_leave_one_out_predictions(plt, emulator):
    model, y = emulator
    mean, std = model.loo_predict(return_std=True)
    display = LeaveOneOutDisplay.from_estimator(model, output=1)
    assert_allclose(display.line_.get_xydata(), np.column_stack([mean[:, 1], y[:, 1]]))
    ends = np.array([segment[:, 0] for segment in display.bars_.get_segments()])
    assert_allclose(ends, mean[:, 1:] + 1.959963984540054 * std[:, 1:] * [[-1.0, 1.0]])
    assert display.ax_.get_title() == "DeepGPRegressor"


def test_errors_are_standardized(plt, emulator):
    model, y = emulator
    mean, std = model.loo_predict(return_std=True)
    kind = "residual_vs_predicted"
    display = LeaveOneOutDisplay.from_estimator(model, output=0, kind=kind, coverage=0.5)
    errors = (y[:, 0] - mean[:, 0]) / std[:, 0]
    assert_allclose(display.line_.get_ydata(), errors)
    assert display.outside == np.mean(np.abs(errors) > 0.67449)
    assert display.bars_ is None


def test_bad_input(plt, emulator):
    model, _ = emulator
    with pytest.raises(ValueError, match="There are 2 outputs"):
        LeaveOneOutDisplay.from_estimator(model)
    with pytest.raises(ValueError, match="kind must be one of"):
        LeaveOneOutDisplay.from_estimator(model, kind="qq")
    X = np.arange(10.0)[:, None]
    deep = DeepGPRegressor(inference="dsvi", max_iter=2).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="cross_val_distribution"):
        LeaveOneOutDisplay.from_estimator(deep)
    classifier = DeepGPClassifier(1, inference="vecchia", max_iter=2).fit(X, X[:, 0] > 4.0)
    with pytest.raises(ValueError, match="shows regressors"):
        LeaveOneOutDisplay.from_estimator(classifier)
