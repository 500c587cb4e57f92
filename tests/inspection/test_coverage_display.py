import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom, norm
from sklearn.linear_model import BayesianRidge

from skdgp import DeepGPRegressor
from skdgp.inspection import CoverageDisplay
from skdgp.metrics import calibration_error

LEVELS = np.arange(1, 20) / 20


def test_counts_by_hand(plt):
    lower, upper = np.tile([0.0, -1.0], (4, 1)), np.tile([1.0, 2.0], (4, 1))
    y = [0.0, 1.0, 2.0, 2.1]  # of which three lie on ends, which belong to the intervals
    display = CoverageDisplay.from_predictions(y, lower, upper, [0.25, 0.8])
    assert_array_equal(display.line_.get_xydata(), [[0.25, 0.5], [0.8, 0.75]])
    assert display.calibration_error == pytest.approx((0.25 + 0.05) / 2)
    assert display.line_.get_label() == "calibration error = 0.150"
    shuffled = CoverageDisplay.from_predictions(y, lower[:, ::-1], upper[:, ::-1], [0.8, 0.25])
    assert_array_equal(shuffled.line_.get_xydata(), display.line_.get_xydata())


def test_estimator_against_its_intervals(plt, data, regressor):
    X, y = data
    display = CoverageDisplay.from_estimator(regressor, X, y)
    assert_allclose(display.nominal, LEVELS)
    expected = []
    for level in LEVELS:
        lower, upper = regressor.predict_interval(X, level).T
        expected.append(np.mean((lower <= y) & (y <= upper)))
    assert_array_equal(display.line_.get_ydata(), expected)
    orders = np.concatenate([0.5 - LEVELS / 2, 0.5 + LEVELS / 2])
    metric = calibration_error(y, regressor.predict_quantiles(X, orders), orders)
    assert display.calibration_error == pytest.approx(metric, rel=1e-12)
    assert display.n_samples == 70


def test_gaussian_intervals_of_other_regressors(plt, data):
    X, y = data
    model = BayesianRidge().fit(X, y)
    display = CoverageDisplay.from_estimator(model, X, y, n_levels=4)
    mean, std = model.predict(X, return_std=True)
    levels = np.array([0.2, 0.4, 0.6, 0.8])
    inside = np.abs(y - mean)[:, None] <= norm.ppf(0.5 + 0.5 * levels) * std[:, None]
    assert_allclose(display.nominal, levels)
    assert_array_equal(display.empirical, inside.mean(0))


def test_several_outputs(plt, data, joint_regressor):
    X, y = data
    y = np.column_stack([y, 3.0 - y / 1e3 + 0.1 * np.cos(X[:, 0])])
    display = CoverageDisplay.from_estimator(joint_regressor, X, y, output=1, n_levels=3)
    lower, upper = joint_regressor.predict_interval(X, 0.5)[:, 1].T
    assert display.empirical[1] == np.mean((lower <= y[:, 1]) & (y[:, 1] <= upper))
    with pytest.raises(ValueError, match="There are 2 outputs"):
        CoverageDisplay.from_estimator(joint_regressor, X, y)


def test_band_is_the_binomial_one(plt):
    """Brute force: from the probabilities of all counts, at every level."""
    n = 30
    display = CoverageDisplay(LEVELS, LEVELS, n).plot()
    vertices = display.band_.get_paths()[0].vertices
    for level in LEVELS:
        ends = np.unique(vertices[np.isclose(vertices[:, 0], level), 1])
        low, high = np.round(ends * n).astype(int)
        probabilities = binom.pmf(np.arange(n + 1), n, level)
        assert_allclose(ends * n, [low, high], atol=1e-9)
        assert probabilities[low : high + 1].sum() >= 0.95
        # no smaller band leaves at most 2.5 % on each side
        assert probabilities[:low].sum() <= 0.025 < probabilities[: low + 1].sum()
        assert probabilities[high + 1 :].sum() <= 0.025 < probabilities[high:].sum()


def test_too_narrow_intervals_lie_below_the_diagonal(plt):
    y = np.random.default_rng(0).standard_normal(400)
    ends = np.tile(0.5 * norm.ppf(0.5 + 0.5 * LEVELS), (400, 1))  # half as far as they should be
    narrow = CoverageDisplay.from_predictions(y, -ends, ends, LEVELS)
    exact = 2.0 * norm.cdf(0.5 * norm.ppf(0.5 + 0.5 * LEVELS)) - 1.0
    error = np.sqrt(exact * (1.0 - exact) / 400)
    assert np.all(np.abs(narrow.empirical - exact) < 4.0 * error)
    assert np.all(narrow.empirical < narrow.nominal)


def test_two_models_on_one_axes(plt, data, regressor):
    X, y = data
    _, ax = plt.subplots()
    first = CoverageDisplay.from_estimator(regressor, X, y, ax=ax, name="deep")
    second = CoverageDisplay.from_estimator(BayesianRidge().fit(X, y), X, y, ax=ax)
    third = CoverageDisplay.from_estimator(regressor, X[:20], y[:20], ax=ax, name="few")
    assert first.reference_line_ is not None
    assert second.reference_line_ is second.band_ is third.reference_line_ is None
    assert third.band_ is not None
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [
        "perfectly calibrated",
        "95% band, n = 70",
        f"deep (calibration error = {first.calibration_error:.3f})",
        f"BayesianRidge (calibration error = {second.calibration_error:.3f})",
        "95% band, n = 20",
        f"few (calibration error = {third.calibration_error:.3f})",
    ]
    assert first.line_.get_color() != second.line_.get_color()
    assert_array_equal(first.reference_line_.get_xydata(), [[0, 0], [1, 1]])


def test_plot_again_with_other_style(plt, data, regressor):
    display = CoverageDisplay.from_estimator(regressor, *data, c="red", marker="s")
    assert display.line_.get_color() == "red"
    assert display.line_.get_marker() == "s"
    display.plot(name="again")
    assert display.line_.get_label().startswith("again (")
    assert display.reference_line_ is not None  # on new axes


def test_bad_arguments(plt, data, regressor):
    X, y = data
    lower, upper = np.zeros((70, 2)), np.ones((70, 2))
    with pytest.raises(ValueError, match="one column for each coverage"):
        CoverageDisplay.from_predictions(y, lower, upper, [0.5])
    with pytest.raises(ValueError, match="numbers between 0 and 1"):
        CoverageDisplay.from_predictions(y, lower, upper, [0.5, 1.0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CoverageDisplay.from_predictions(y[1:], lower, upper, [0.5, 0.6])
    with pytest.raises(ValueError, match="n_levels == 0, must be >= 1"):
        CoverageDisplay.from_estimator(regressor, X, y, n_levels=0)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        CoverageDisplay.from_estimator(regressor, X, y[1:])


def test_transforms_of_calibrated_models_are_uniform(plt, data, regressor):
    X, _ = data
    rows = np.repeat(X, 10, axis=0)
    y = regressor.sample_y(X, 10).ravel()
    display = CoverageDisplay.from_estimator(regressor, rows, y, kind="pit")
    assert_allclose(display.nominal, LEVELS)
    expected = [(regressor.predict_cdf(rows, y) <= level).mean() for level in LEVELS]
    assert_array_equal(display.line_.get_ydata(), expected)
    errors = np.sqrt(LEVELS * (1.0 - LEVELS) / len(y))  # draws of a row share no noise
    assert display.ax_.get_xlabel() == "Probability integral transform"
    higher = CoverageDisplay.from_estimator(regressor, rows, y + 10.0 * np.ptp(y), kind="pit")
    assert_array_equal(higher.empirical, 0.0)
    gaussian = BayesianRidge().fit(X, data[1])
    mean, std = gaussian.predict(rows, return_std=True)
    y = mean + std * np.random.default_rng(0).standard_normal(len(rows))
    display = CoverageDisplay.from_estimator(gaussian, rows, y, kind="pit")
    assert (np.abs(display.empirical - LEVELS) < 4.0 * errors).all()


def test_transforms_of_counts_are_uniform(plt):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (40, 1))
    model = DeepGPRegressor(
        1, inference="dsvi", likelihood="poisson", max_iter=20, n_inducing=10, random_state=0
    ).fit(X, rng.poisson(np.exp(X[:, 0])))
    (row,), n = X[:1], 800
    y, rows = model.sample_y([row], n)[0], np.repeat([row], n, axis=0)
    display = CoverageDisplay.from_estimator(model, rows, y, kind="pit")
    errors = np.sqrt(LEVELS * (1.0 - LEVELS) / n)
    assert (np.abs(display.empirical - LEVELS) < 4.0 * errors).all()
    with pytest.raises(ValueError, match="kind must be 'interval' or 'pit'"):
        CoverageDisplay.from_estimator(model, rows, y, kind="histogram")


def test_one_of_several_outputs_is_transformed(plt, joint_regressor, data):
    X, _ = data
    y = joint_regressor.predict(X)
    display = CoverageDisplay.from_estimator(joint_regressor, X, y, kind="pit", output=1)
    right = joint_regressor.predict_cdf(X, y)[:, 1]
    assert_allclose(display.empirical, [(right <= level).mean() for level in LEVELS])
