import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPRegressor
from skdgp.inspection import LossCurveDisplay
from skdgp.inspection.loss_curve import moving_median


def heaviest(model):
    return max(model.members_, key=lambda member: member.mixture_weight).record


@pytest.fixture(scope="module")
def validated(data):
    """A fit of 120 steps, and scores after 50, 100 and 120."""
    X, y = data
    return DeepGPRegressor(
        max_iter=120, n_inducing=5, batch_size=20, early_stopping=True, random_state=0
    ).fit(X, y)


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize(("n", "window"), [(30, 7), (30, 8), (30, 1), (5, 50), (1, 50), (2, 3)])
def test_moving_median_by_brute_force(n, window, falling):
    values = np.random.default_rng(n).standard_normal(n)
    values = np.exp(-np.arange(float(n))) if falling else values
    expected = []
    for i in range(n):
        half = min(window // 2, i, n - 1 - i)
        expected.append(np.median(values[i - half : i + half + 1]))
    assert_array_equal(moving_median(values, window), expected)
    assert not falling or expected == values.tolist()


def test_artists_show_the_curves(plt, validated):
    display = LossCurveDisplay.from_estimator(validated, smooth=11)
    steps = np.arange(1, 121)
    loss = np.array(heaviest(validated).loss_curve)
    assert_array_equal(display.line_.get_xydata(), np.c_[steps, loss])
    assert_array_equal(display.smooth_line_.get_xydata(), np.c_[steps, moving_median(loss, 11)])
    assert display.line_.get_linewidth() < display.smooth_line_.get_linewidth()
    assert_array_equal(display.validation_line_.get_xdata(), [50, 100, 120])
    scores = heaviest(validated).validation_scores
    assert_array_equal(display.validation_line_.get_ydata(), scores)
    best = int(np.argmax(scores))
    assert_array_equal(display.best_.get_xydata(), [[[50, 100, 120][best], scores[best]]])
    assert display.ax_.get_xlabel() == "Step"
    assert display.ax_.get_ylabel() == "Loss per row"
    labels = [text.get_text() for text in display.validation_ax_.get_legend().get_texts()]
    best = max(validated.members_, key=lambda member: member.mixture_weight)
    name = f"DeepGPRegressor ({type(best.scheme).__name__}, weight {best.mixture_weight:.2f})"
    assert labels == [f"{name}, loss", f"{name}, validation"]
    assert display.ax_.get_legend() is None


def test_without_validation_and_smoothing(plt, regressor):
    display = LossCurveDisplay.from_estimator(regressor, name="plain")
    assert display.validation_ax_ is display.validation_line_ is display.best_ is None
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["plain, loss"]
    assert len(display.figure_.axes) == 1
    display = LossCurveDisplay.from_estimator(regressor, smooth=None, color="red")
    assert display.smooth_line_ is None
    assert display.line_.get_color() == "red"
    assert display.line_.get_label() == "DeepGPRegressor, loss"
    assert_array_equal(display.line_.get_ydata(), heaviest(regressor).loss_curve)


def test_limits_hold_all_curves_but_for_their_first_steps(plt):
    loss = np.linspace(2.0, 1.0, 1000)
    loss[:5] = 1e6
    low, high = LossCurveDisplay(loss).plot().ax_.get_ylim()
    assert 0.9 < low < 1.0 and 1.9 < high < 2.1
    _, ax = plt.subplots()
    LossCurveDisplay(np.full(100, 5.0)).plot(ax)
    LossCurveDisplay(np.full(300, -1.0)).plot(ax)
    low, high = ax.get_ylim()
    assert low < -1.0 and high > 5.0 and ax.get_xlim()[1] >= 300


@pytest.mark.parametrize("loss", [[np.inf, np.inf, 1.0, 0.5], [np.inf], [0.3], []])
def test_odd_curves(plt, loss):
    display = LossCurveDisplay(loss).plot()
    display.figure_.canvas.draw()
    assert np.isfinite(display.ax_.get_ylim()).all()


def test_a_score_that_is_no_number_is_not_the_best(plt):
    display = LossCurveDisplay([1.0, 0.5], [np.nan]).plot()
    assert display.best_ is None
    assert np.isnan(display.validation_line_.get_ydata()).all()
    display = LossCurveDisplay(np.ones(150), [1.0, np.nan, 2.0]).plot()
    assert_array_equal(display.best_.get_xydata(), [[150.0, 2.0]])


def test_two_fits_share_both_axes(plt, validated, regressor):
    _, ax = plt.subplots()
    first = LossCurveDisplay.from_estimator(validated, ax=ax, name="a")
    plain = LossCurveDisplay.from_estimator(regressor, ax=ax, name="b")
    second = LossCurveDisplay.from_estimator(validated, ax=ax, name="c")
    assert first.validation_ax_ is second.validation_ax_
    assert len(ax.figure.axes) == 2
    labels = [text.get_text() for text in first.validation_ax_.get_legend().get_texts()]
    assert labels == ["a, loss", "b, loss", "c, loss", "a, validation", "c, validation"]
    colors = {display.smooth_line_.get_color() for display in (first, plain, second)}
    assert len(colors) == 3
    for display in (first, second):
        color = display.smooth_line_.get_color()
        assert display.line_.get_color() == display.validation_line_.get_color() == color


def test_one_legend_if_the_second_fit_is_validated(plt, validated, regressor):
    _, ax = plt.subplots()
    LossCurveDisplay.from_estimator(regressor, ax=ax)
    display = LossCurveDisplay.from_estimator(validated, ax=ax)
    assert ax.get_legend() is None
    assert len(display.validation_ax_.get_legend().get_texts()) == 3


def test_panels_with_a_common_axis_stay_apart(plt, validated):
    _, axes = plt.subplots(2, 1, sharex=True)
    displays = [LossCurveDisplay.from_estimator(validated, ax=ax) for ax in axes]
    assert displays[0].validation_ax_ is not displays[1].validation_ax_
    assert_allclose(displays[1].validation_ax_.bbox.bounds, axes[1].bbox.bounds)


def test_pipeline_and_classifier(plt, data, validated, classifier):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), clone(validated).set_params(max_iter=7)).fit(X, y)
    display = LossCurveDisplay.from_estimator(pipeline)
    assert_array_equal(display.line_.get_ydata(), heaviest(pipeline[-1]).loss_curve)
    display = LossCurveDisplay.from_estimator(classifier)
    assert_array_equal(display.line_.get_ydata(), heaviest(classifier).loss_curve)


def test_plot_again(plt, validated):
    display = LossCurveDisplay.from_estimator(validated, c="red", lw=7)
    assert display.smooth_line_.get_color() == "red"
    assert display.smooth_line_.get_linewidth() == 7
    old = display.ax_
    display.plot(name="new")
    assert display.ax_ is not old
    assert display.smooth_line_.get_label() == "new, loss"


def test_smoothing_over_nothing(plt, validated):
    with pytest.raises(ValueError, match="smooth == 0, must be >= 1"):
        LossCurveDisplay.from_estimator(validated, smooth=0)
