"""ImportanceDisplay and EffectsDisplay: what is known of simple functions."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.estimators.importances import shares, total_effects
from skdgp.inspection import EffectsDisplay, ImportanceDisplay, PredictiveDisplay
from skdgp.inspection._plotting import in_lines

rng = np.random.default_rng(0)
X = rng.uniform(-1.0, 1.0, (150, 4))
NAMES = ["wave", "slope", "square", "nothing"]
PARTS = [np.sin(3.0 * X[:, 0]), -X[:, 1], 2.0 * X[:, 2] ** 2, np.zeros(150)]
#: variances of these for columns that are uniform on [-1, 1]
VARIANCES = np.array([0.5 - np.sin(6.0) / 12.0, 1.0 / 3.0, 4.0 * (1.0 / 5.0 - 1.0 / 9.0), 0.0])


@pytest.fixture(scope="module")
def additive():
    y = 50.0 + 10.0 * (np.sum(PARTS, 0) + 0.1 * rng.standard_normal(150))
    model = DeepGPRegressor(1, inference="exact", kernel="anova", random_state=0)
    return model.fit(pd.DataFrame(X, columns=NAMES), y)


@pytest.fixture(scope="module")
def linear():
    """A linear kernel and noise so large that slopes are not sure."""
    y = 300.0 + X @ [30.0, 20.0, 0.0, 0.0] + 60.0 * rng.standard_normal(150)
    model = DeepGPRegressor(1, inference="exact", kernel="linear", standardize=True)
    return model.fit(X, y)


@pytest.fixture(scope="module")
def labeled():
    labels = np.where(X[:, 1] + 0.2 * rng.standard_normal(150) > 0.0, "yes", "no")
    return DeepGPClassifier(1, inference="dsvi", n_inducing=15, max_iter=60).fit(X, labels)


def slopes(model):
    """Mean (4,) and covariance (4, 4) of the slopes of a linear function, in closed form."""
    corners = np.vstack([np.zeros(4), np.eye(4)])
    mean, cov = model.predict(corners, return_cov=True, latent=True)
    differences = np.hstack([-np.ones((4, 1)), np.eye(4)])
    return differences @ mean, differences @ cov @ differences.T


def test_importances_of_an_additive_function(plt, additive):
    """Its Sobol indices are the variances of its parts."""
    rows = pd.DataFrame(rng.uniform(-1.0, 1.0, (2000, 4)), columns=NAMES)
    display = ImportanceDisplay.from_estimator(additive, rows, n_draws=16)
    assert_allclose(display.importances_mean, VARIANCES / VARIANCES.sum(), atol=0.03)
    assert_allclose(display.importances_mean.sum(), 1.0)
    assert (display.importances_std < 0.02).all() and display.feature_names == NAMES
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels == ["nothing", "slope", "square", "wave"]
    widths = [bar.get_width() for bar in display.bars_]
    assert_allclose(widths, np.sort(display.importances_mean))
    assert "Importance" in display.ax_.get_xlabel()


def test_importances_of_an_uncertain_linear_function(plt, linear):
    """Total effects are squared slopes times variances of columns; slopes are normal."""
    display = ImportanceDisplay.from_estimator(linear, n_draws=512)
    variances = total_effects(lambda rows: rows[:, :, None] * np.eye(4), linear._pairs)
    w = np.random.default_rng(1).multivariate_normal(*slopes(linear), 100_000)
    expected = shares(np.diag(variances)[:, None] * w.T**2)
    assert expected.std(1).max() > 0.05
    of_mean = shares(np.diag(variances) * slopes(linear)[0] ** 2)
    assert_allclose(display.importances_mean, of_mean, rtol=1e-6)
    # about four standard errors
    assert_allclose(display.importances_std, expected.std(1), rtol=0.25)


def test_effects_of_a_linear_function(plt, linear):
    """The effect is the slope times the distance from the mean, the band that of a normal slope."""
    display = EffectsDisplay.from_estimator(linear, features=[0, 2], n_draws=512)
    mean, cov = slopes(linear)
    for j, grid, effect, band in zip([0, 2], display.grids, display.effects, display.bands):
        center = grid[0] - effect[0] / mean[j]
        assert_allclose(effect, mean[j] * (grid - center), rtol=1e-6)
        assert abs(center) < 0.3
        half = norm.ppf(0.95) * np.sqrt(cov[j, j]) * np.abs(grid - center)
        assert_allclose(0.5 * np.ptp(band, axis=1), half, rtol=0.2)  # four standard errors
        assert ((band[:, 0] <= effect) & (effect <= band[:, 1]))[half > 1.0].all()


def test_effects_of_an_additive_function(plt, additive):
    frame = pd.DataFrame(X, columns=NAMES)
    names = ["square", "wave", "nothing"]
    display = EffectsDisplay.from_estimator(additive, frame, names, coverage=0.99)
    assert display.feature_names == names and len(display.axes_) == 3
    truths = [lambda x: 20.0 * x**2, lambda x: 10.0 * np.sin(3.0 * x), lambda x: 0.0 * x]
    for grid, effect, band, truth in zip(display.grids, display.effects, display.bands, truths):
        off = truth(grid) - effect
        off -= off.mean()  # the rows over which effects are averaged are not known here
        inside = (band[:, 0] - 0.1 <= effect + off) & (effect + off <= band[:, 1] + 0.1)
        assert inside.mean() > 0.9 and np.abs(off).max() < 1.5
    assert [axis.get_xlabel() for axis in display.axes_] == display.feature_names
    assert display.axes_[0].get_ylabel() == "Effect on y"
    assert_allclose(display.lines_[1].get_ydata(), display.effects[1])
    by_default = EffectsDisplay.from_estimator(additive, n_points=3, n_draws=2)
    assert set(by_default.feature_names) == set(NAMES)
    display.plot(by_default.axes_[:3], color="red")
    assert display.lines_[0].get_color() == "red"
    with pytest.raises(ValueError, match="one Axes for each of the 3 panels; got 1"):
        display.plot(by_default.axes_[0])


def test_classifiers(plt, labeled):
    draws = np.moveaxis(labeled._draw_centers(X[:20], 1000, 0), 0, -1)
    assert draws.shape == (20, 2, 1000)
    errors = draws.mean(-1) - labeled.predict_proba(X[:20])
    assert (np.abs(errors) < 4.0 * draws.std(-1) / np.sqrt(1000) + 0.005).all()
    display = ImportanceDisplay.from_estimator(labeled, max_features=2)
    assert np.argmax(display.importances_mean) == 1 and len(display.bars_) == 2
    assert (display.importances_std > 0.0).all()
    assert display.importances_mean is labeled.feature_importances_
    effects = EffectsDisplay.from_estimator(labeled, features=1, n_points=5)
    assert effects.target_name == "P(yes)"
    assert effects.effects[0][0] < -0.3 and effects.effects[0][-1] > 0.3
    other = EffectsDisplay.from_estimator(labeled, features=[1], n_points=5, output=0)
    assert_allclose(other.effects[0], -effects.effects[0], atol=1e-9)


def test_log_odds_are_those_of_a_logistic_regression(plt):
    """Slopes and their errors, from maximum likelihood, on the whole range of the columns."""
    logistic = pytest.importorskip("statsmodels.api").Logit
    rng = np.random.RandomState(0)
    X = rng.uniform(-1.0, 1.0, (600, 2))
    labels = rng.uniform(size=600) < 1.0 / (1.0 + np.exp(-(2.5 * X[:, 0] - 1.0 * X[:, 1])))
    model = DeepGPClassifier(1, inference="dsvi", kernel="linear", n_inducing=3, max_iter=300)
    model.set_params(random_state=0, standardize=True).fit(X, labels)
    of_mle = logistic(labels.astype(float), np.column_stack([np.ones(600), X])).fit(disp=0)
    settings = {"features": [0, 1], "n_points": 3, "n_draws": 400, "log_odds": True}
    display = EffectsDisplay.from_estimator(model, **settings)
    assert display.target_name == "log-odds of True"
    for j in range(2):
        slope, error = of_mle.params[j + 1], of_mle.bse[j + 1]
        reach = np.ptp(display.grids[j])
        found = (display.effects[j][-1] - display.effects[j][0]) / reach
        assert abs(found - slope) < 0.5 * error
        # half of the range is on each side of the mean, where the effect is zero
        ends = 0.5 * np.ptp(display.bands[j], axis=1)[[0, -1]] / (0.5 * reach)
        assert_allclose(ends, 1.645 * error, rtol=0.3)
    faded = EffectsDisplay.from_estimator(model, **{**settings, "log_odds": False})
    assert np.ptp(faded.effects[0]) < 1.0 < np.ptp(display.effects[0])


def test_pipelines_counts_and_several_outputs(plt):
    few = {"inference": "dsvi", "max_iter": 20, "n_inducing": 10, "random_state": 0}
    two = np.c_[X[:, 0], 7.0 * X[:, 1]]
    frame = pd.DataFrame(X, columns=NAMES)
    pipeline = make_pipeline(StandardScaler(), DeepGPRegressor(**few)).fit(frame, two)
    assert ImportanceDisplay.from_estimator(pipeline, frame).feature_names == NAMES
    display = EffectsDisplay.from_estimator(pipeline, frame, ["slope"], output=1, n_points=4)
    assert display.target_name == "y1" and np.ptp(display.effects[0]) > 2.0
    with pytest.raises(ValueError, match="There are 2 outputs"):
        EffectsDisplay.from_estimator(pipeline, frame, ["slope"])
    counts = rng.poisson(np.exp(1.0 + X[:, 0]))
    model = DeepGPRegressor(1, likelihood="poisson", **few).fit(X, counts)
    effect = EffectsDisplay.from_estimator(model, X[:50], [0], n_points=3).effects[0]
    rows = np.repeat(X[None, :50], 2, 0)
    rows[:, :, 0] = [[X[:50, 0].min()], [X[:50, 0].max()]]
    means = [model.predict(part).mean() for part in rows]
    assert_allclose(effect[-1] - effect[0], means[1] - means[0], rtol=1e-9)


def test_bad_arguments(plt, additive):
    for display in (ImportanceDisplay, EffectsDisplay):
        with pytest.raises(ValueError, match="n_draws == 1, must be >= 2"):
            display.from_estimator(additive, n_draws=1)
    with pytest.raises(ValueError, match="feature='size' is no column of X"):
        EffectsDisplay.from_estimator(additive, features=["size"])
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1"):
        EffectsDisplay.from_estimator(additive, coverage=90)
    with pytest.raises(ValueError, match="log_odds=True is for classifiers"):
        EffectsDisplay.from_estimator(additive, log_odds=True)


def test_draws_are_those_of_functions(additive):
    whole, part = (additive._draw_centers(rows, 3, 5) for rows in (X[:4], X[2:4]))
    assert_allclose(whole[:, 2:], part, rtol=1e-10)  # products of more rows round otherwise


def test_units_names_and_columns_with_few_values(plt):
    """A mapped target whose effects are known: factors of exp(1) and exp(flag)."""
    flag = (np.arange(150) % 3 == 0).astype(float)
    frame = pd.DataFrame({"slope": X[:, 0], "a flag": flag})
    target = pd.Series(np.exp(1.0 + X[:, 0] + flag), name="claims (EUR)")
    model = DeepGPRegressor(1, inference="exact", kernel="linear", target_transform="log")
    display = EffectsDisplay.from_estimator(model.fit(frame, target), n_draws=16)
    assert display.axes_[0].get_ylabel() == "Effect on claims (EUR)"
    j = display.feature_names.index("a flag")
    assert display.discrete == [name == "a flag" for name in display.feature_names]
    assert display.lines_[j].get_linestyle() == "None"
    one, other = (model.predict(frame.assign(**{"a flag": value})).mean() for value in (1.0, 0.0))
    assert_allclose(np.ptp(display.effects[j]), one - other, rtol=0.1)
    assert_allclose(one - other, np.mean(np.exp(1.0 + X[:, 0])) * (np.e - 1.0), rtol=0.1)
    along = PredictiveDisplay.from_estimator(model, frame, feature="a flag")
    assert_array_equal(along.x, [0.0, 1.0])
    assert along.discrete and along.ax_.get_ylabel() == "claims (EUR)"


def test_draws_of_mapped_targets_have_the_predicted_mean():
    target = np.exp(X[:, 0] + 0.5 * rng.standard_normal(150))
    model = DeepGPRegressor(1, inference="exact", target_transform="log").fit(X[:, :1], target)
    draws, rows = model._draw_centers(X[:10, :1], 2000, 0)[..., 0], X[:10, :1]
    errors = (draws.mean(0) - model.predict(rows)) / (draws.std(0) / np.sqrt(2000))
    assert np.abs(errors).max() < 5.0


def test_long_names_keep_all_letters():
    name = "share_of_households_with_an_income_below_half_of_the_median"
    assert in_lines(name).replace("\n", "") == name
    assert max(map(len, in_lines(name).split("\n"))) <= 30
    assert in_lines("age") == "age" and len(in_lines("x" * 500).split("\n")) == 3


def test_levels_of_categories_are_on_the_axis(plt):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"kind": rng.choice(["red", "green"], 60), "size": rng.uniform(size=60)})
    y = X["size"] + (X["kind"] == "red")
    model = DeepGPRegressor(1, inference="exact", max_iter=10, random_state=0).fit(X, y)
    display = EffectsDisplay.from_estimator(model, features=["kind", "size"], n_draws=4)
    assert [label.get_text() for label in display.axes_[0].get_xticklabels()] == ["green", "red"]
    assert display.effects[0][1] - display.effects[0][0] == pytest.approx(1.0, abs=0.1)
    assert display.levels[1] is None
