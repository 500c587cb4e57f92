import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PowerTransformer

from skdgp import DeepGPRegressor
from skdgp.inspection import PredictiveDisplay


def edges(band):
    """Lower and upper edge of what fill_between has drawn."""
    vertices = band.get_paths()[0].vertices
    n = (len(vertices) - 3) // 2
    return np.column_stack([vertices[1 : n + 1, 1], vertices[n + 2 : 2 * n + 2, 1][::-1]])


@pytest.fixture
def grid(data):
    X, _ = data
    grid = np.empty((50, 2))
    grid[:, 0] = np.linspace(X[:, 0].min(), X[:, 0].max(), 50)
    grid[:, 1] = np.median(X[:, 1])
    return grid


def test_artists_show_what_the_estimator_predicts(plt, data, regressor, grid):
    X, y = data
    settings = {"n_points": 50, "coverage": [0.9, 0.5], "n_functions": 3, "random_state": 7}
    display = PredictiveDisplay.from_estimator(regressor, X, y, **settings)
    assert_allclose(display.line_.get_xydata(), np.c_[grid[:, 0], regressor.predict(grid)])
    for band, coverage in zip(display.bands_, [0.9, 0.5]):
        assert_allclose(edges(band), regressor.predict_interval(grid, coverage))
        assert band.get_label() == f"{100 * coverage:g}% interval"
    draws = regressor.sample_y(grid, 3, random_state=7, latent=True)
    for line, draw in zip(display.function_lines_, draws.T, strict=True):
        assert_allclose(line.get_ydata(), draw)
    assert_array_equal(display.scatter_.get_offsets(), np.c_[X[:, 0], y])
    assert display.ax_.get_xlabel() == "x0"
    assert display.ax_.get_ylabel() == "y"
    assert display.figure_ is display.ax_.figure


def test_one_coverage_and_several(plt, data, regressor, grid):
    display = PredictiveDisplay.from_estimator(regressor, data[0], n_points=50, coverage=0.8)
    assert_allclose(edges(display.bands_[0]), regressor.predict_interval(grid, 0.8))
    assert display.scatter_ is None and display.function_lines_ == []
    display = PredictiveDisplay.from_estimator(regressor, data[0], coverage=(0.5, 0.99, 0.8))
    alphas = [band.get_alpha() for band in display.bands_]
    assert alphas[1] < alphas[2] < alphas[0]  # inner bands are darker


def test_another_feature_and_range(plt, data, regressor):
    X, _ = data
    settings = {"feature": 1, "feature_range": (2.0, 4.0), "n_points": 5}
    display = PredictiveDisplay.from_estimator(regressor, X, **settings)
    grid = np.column_stack([np.full(5, np.median(X[:, 0])), [2.0, 2.5, 3.0, 3.5, 4.0]])
    assert_allclose(display.line_.get_xydata(), np.c_[grid[:, 1], regressor.predict(grid)])
    assert display.ax_.get_xlabel() == "x1"


def test_latent(plt, data, regressor, grid):
    settings = {"n_points": 50, "coverage": 0.95, "latent": True}
    display = PredictiveDisplay.from_estimator(regressor, *data, **settings)
    mean, std = regressor.predict(grid, return_std=True, latent=True)
    assert_allclose(display.line_.get_ydata(), mean)
    latent = regressor.predict_dist(grid).latent
    assert_allclose(edges(display.bands_[0]), latent.interval(0.95))
    assert_allclose(latent.std, std)
    assert display.ax_.get_ylabel() == "latent function of y"


def test_outputs(plt, data, joint_regressor, grid):
    X, y = data
    y = np.column_stack([y, 3.0 - y / 1e3])
    settings = {"output": 1, "n_points": 50, "coverage": 0.9, "n_functions": 2}
    display = PredictiveDisplay.from_estimator(joint_regressor, X, y, **settings)
    assert_allclose(display.line_.get_ydata(), joint_regressor.predict(grid)[:, 1])
    assert_allclose(edges(display.bands_[0]), joint_regressor.predict_interval(grid, 0.9)[:, 1])
    draws = joint_regressor.sample_y(grid, 2, random_state=0, latent=True)[:, 1]
    assert_allclose([line.get_ydata() for line in display.function_lines_], draws.T)
    assert_array_equal(display.scatter_.get_offsets()[:, 1], y[:, 1])
    assert display.ax_.get_ylabel() == "y1"
    with pytest.raises(ValueError, match="There are 2 outputs; choose one"):
        PredictiveDisplay.from_estimator(joint_regressor, X)
    with pytest.raises(ValueError, match="int from 0 to 1"):
        PredictiveDisplay.from_estimator(joint_regressor, X, output=2)


@pytest.mark.parametrize(
    "model",
    [GaussianProcessRegressor(RBF(3.0) + WhiteKernel(0.1), normalize_y=True), BayesianRidge()],
    ids=lambda model: type(model).__name__,
)
def test_gaussian_bands_of_other_regressors(plt, data, grid, model):
    X, y = data
    model = clone(model).fit(X, y)
    display = PredictiveDisplay.from_estimator(model, X, y, n_points=50, coverage=0.5)
    mean, std = model.predict(grid, return_std=True)
    quartile = 0.6744897501960817
    assert_allclose(display.line_.get_ydata(), mean)
    expected = np.column_stack([mean - quartile * std, mean + quartile * std])
    assert_allclose(edges(display.bands_[0]), expected)
    for settings in ({"n_functions": 1}, {"latent": True}):
        with pytest.raises(ValueError, match="need a regressor of skdgp"):
            PredictiveDisplay.from_estimator(model, X, **settings)


def test_pipeline_and_search_show_their_own_intervals(plt, data, regressor, grid):
    X, y = data
    pipeline = make_pipeline(PowerTransformer(), clone(regressor).set_params(max_iter=10))
    search = GridSearchCV(pipeline, {"deepgpregressor__max_iter": [9]}, cv=2).fit(X, y)
    pipeline = search.best_estimator_
    expected = pipeline[-1].predict_interval(pipeline[:-1].transform(grid), 0.9)
    for model in (pipeline, search, FrozenEstimator(pipeline)):
        display = PredictiveDisplay.from_estimator(model, X, n_points=50, coverage=0.9)
        assert_allclose(edges(display.bands_[0]), expected)
        assert_allclose(display.line_.get_xydata(), np.c_[grid[:, 0], pipeline.predict(grid)])
        assert display.line_.get_label() == "DeepGPRegressor"


def test_data_frame_with_all_kinds_of_columns(plt, data):
    pd = pytest.importorskip("pandas")
    X, y = data
    i = np.arange(70)
    frame = pd.DataFrame({"count": (X[:, 1] > 3.1).astype(int), "open": i % 4 > 0})
    frame["day"] = pd.Categorical(np.where(i % 3, "mon", "sun"))
    frame["town"], frame["size"] = np.where(i % 5, "Bath", "York"), X[:, 0]
    encode = OneHotEncoder(), ["day", "town", "open"]
    encoder = make_column_transformer(encode, remainder="passthrough")
    model = make_pipeline(encoder, BayesianRidge()).fit(frame, y)
    sales = pd.Series(y, name="sales")
    display = PredictiveDisplay.from_estimator(model, frame, sales, feature="size", n_points=20)
    sizes = np.linspace(X[:, 0].min(), X[:, 0].max(), 20)
    grid = pd.DataFrame({"count": 0, "open": True, "day": "mon", "town": "Bath", "size": sizes})
    assert_allclose(display.line_.get_xydata(), np.c_[grid["size"], model.predict(grid)])
    assert display.ax_.get_xlabel() == "size"
    assert display.ax_.get_ylabel() == "sales"
    by_position = PredictiveDisplay.from_estimator(model, frame, feature=4, n_points=20)
    assert_array_equal(by_position.line_.get_xydata(), display.line_.get_xydata())
    with pytest.raises(ValueError, match="feature='town' is not numeric"):
        PredictiveDisplay.from_estimator(model, frame, feature="town")
    with pytest.raises(ValueError, match=r"feature='weight' is no column of X; .*'size'\]"):
        PredictiveDisplay.from_estimator(model, frame, feature="weight")


@pytest.mark.parametrize(("names", "output"), [(("a", "b"), 1), (("name", "depth"), 0)])
def test_frame_of_targets_names_the_axis(plt, data, joint_regressor, names, output):
    pd = pytest.importorskip("pandas")
    X, y = data
    y = pd.DataFrame(dict(zip(names, (y, 3.0 - y / 1e3))))
    display = PredictiveDisplay.from_estimator(joint_regressor, X, y, output=output)
    assert display.ax_.get_ylabel() == names[output]
    assert_array_equal(display.y_data, y[names[output]])


@pytest.mark.parametrize("output", [2, -1, "u", 1.0])
def test_outputs_that_a_frame_does_not_have(plt, data, joint_regressor, output):
    pd = pytest.importorskip("pandas")
    X, y = data
    y = pd.DataFrame({"height": y, "depth": -y})
    with pytest.raises(ValueError, match=r"int from 0 to 1, the last output; got"):
        PredictiveDisplay.from_estimator(joint_regressor, X, y, output=output)


@pytest.mark.parametrize(("given", "shown"), [(0, "0"), ("height", "height"), (None, "y")])
def test_series_of_targets_names_the_axis(plt, data, regressor, given, shown):
    pd = pytest.importorskip("pandas")
    X, y = data
    for target in (pd.Series(y, name=given), pd.DataFrame({shown: y})):
        display = PredictiveDisplay.from_estimator(regressor, X, target)
        assert display.ax_.get_ylabel() == shown


def test_missing_values_do_not_matter_where_a_pipeline_fills_them(plt, data):
    from sklearn.impute import SimpleImputer

    X, y = data
    X = X.copy()
    X[3, 0] = X[5, 1] = np.nan
    model = make_pipeline(SimpleImputer(), BayesianRidge()).fit(X, y)
    display = PredictiveDisplay.from_estimator(model, X, y, n_points=3)
    x = np.linspace(np.nanmin(X[:, 0]), np.nanmax(X[:, 0]), 3)
    grid = np.column_stack([x, np.full(3, np.nanmedian(X[:, 1]))])
    assert_allclose(display.line_.get_ydata(), model.predict(grid))


@pytest.mark.parametrize("dtype", ["string", object, "category"])
def test_columns_without_any_values(plt, data, dtype):
    pd = pytest.importorskip("pandas")
    X, y = data
    frame = pd.DataFrame({"a": X[:, 0], "note": pd.Series([None] * 70, dtype=dtype)})
    encoder = make_column_transformer(("passthrough", ["a"]), remainder="drop")
    model = make_pipeline(encoder, BayesianRidge()).fit(frame, y)
    display = PredictiveDisplay.from_estimator(model, frame, y, n_points=3)
    assert_allclose(display.mean, model[-1].predict(display.x[:, None]))


def test_subsample(plt, data, regressor):
    X, y = data
    display = PredictiveDisplay.from_estimator(regressor, X, y, subsample=20)
    rows = {tuple(row) for row in np.c_[X[:, 0], y]}
    shown = {tuple(row) for row in np.asarray(display.scatter_.get_offsets())}
    assert len(shown) == 20
    assert shown < rows
    again = PredictiveDisplay.from_estimator(regressor, X, y, subsample=20)
    assert_array_equal(again.x_data, display.x_data)
    other = PredictiveDisplay.from_estimator(regressor, X, y, subsample=20, random_state=1)
    assert set(other.x_data) != set(display.x_data)
    assert len(PredictiveDisplay.from_estimator(regressor, X, y, subsample=None).x_data) == 70


def test_two_models_on_one_axes(plt, data, regressor):
    from matplotlib.colors import to_rgba

    X, y = data
    _, ax = plt.subplots()
    first = PredictiveDisplay.from_estimator(regressor, X, ax=ax, name="deep", n_functions=1)
    second = PredictiveDisplay.from_estimator(BayesianRidge().fit(X, y), X, ax=ax)
    assert first.ax_ is second.ax_ is ax
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"deep", "BayesianRidge"} < set(labels)
    assert first.line_.get_color() != second.line_.get_color()
    for display in (first, second):
        color = to_rgba(display.line_.get_color())
        for band in display.bands_:
            assert to_rgba(band.get_facecolor()[0], alpha=1.0) == color
        for line in display.function_lines_:
            assert to_rgba(line.get_color()) == color


def test_plot_again_with_other_style(plt, data, regressor):
    display = PredictiveDisplay.from_estimator(regressor, data[0], name="one", c="red")
    assert display.line_.get_color() == "red"
    assert display.line_.get_label() == "one"
    old = display.ax_
    display.plot(name="two", color="black", lw=5)
    assert display.ax_ is not old
    assert display.line_.get_color() == "black"
    assert display.line_.get_linewidth() == 5
    assert display.line_.get_label() == "two"


def test_latent_function_in_other_units(plt, data, poisson):
    X, y = data
    with pytest.raises(ValueError, match=r"Poisson .* n_functions needs latent=True"):
        PredictiveDisplay.from_estimator(poisson, X, n_functions=2)
    with pytest.raises(ValueError, match=r"Poisson .* leave y out"):
        PredictiveDisplay.from_estimator(poisson, X, y, latent=True)
    settings = {"n_functions": 200, "n_points": 5, "coverage": 0.9, "latent": True}
    display = PredictiveDisplay.from_estimator(poisson, X, **settings)
    mean, std = display.functions.mean(1), display.functions.std(1)
    assert_array_equal(np.abs(mean - display.mean) < 5.0 * std / np.sqrt(200), True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"feature": 2}, "int from 0 to 1"),
        ({"feature": -1}, "int from 0 to 1"),
        ({"feature": 0.0}, "a name, or an int"),
        ({"feature": "a"}, "the columns of X have none"),
        ({"feature_range": (1.0, 1.0)}, r"pair \(low, high\)"),
        ({"feature_range": (0.0,)}, r"pair \(low, high\) of increasing, finite numbers"),
        ({"feature_range": 1.0}, r"pair \(low, high\) of increasing, finite numbers"),
        ({"feature_range": (0.0, np.inf)}, r"pair \(low, high\) of increasing, finite numbers"),
        ({"feature_range": (np.nan, 1.0)}, r"pair \(low, high\) of increasing, finite numbers"),
        ({"coverage": 1.0}, "numbers between 0 and 1"),
        ({"n_points": 1}, "n_points == 1, must be >= 2"),
        ({"n_functions": -1}, "n_functions == -1, must be >= 0"),
        ({"subsample": 0}, "subsample == 0, must be >= 1"),
        ({"output": 1}, "int from 0 to 0"),
    ],
)
def test_bad_arguments(plt, data, regressor, arguments, message):
    with pytest.raises(ValueError, match=message):
        PredictiveDisplay.from_estimator(regressor, *data, **arguments)


def test_bad_data(plt, data, regressor):
    X, y = data
    constant = X.copy()
    constant[:, 0] = 1.0
    with pytest.raises(ValueError, match="feature='x0' is constant in X"):
        PredictiveDisplay.from_estimator(regressor, constant)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        PredictiveDisplay.from_estimator(regressor, X, y[:-1])
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        PredictiveDisplay.from_estimator(regressor, X[0])
    with pytest.raises(ValueError, match="expecting 2 features"):
        PredictiveDisplay.from_estimator(regressor, X[:, :1])


def test_models_that_cannot_be_shown(plt, data, classifier):
    X, y = data
    with pytest.raises(NotFittedError):
        PredictiveDisplay.from_estimator(make_pipeline(PowerTransformer(), DeepGPRegressor()), X)
    with pytest.raises(ValueError, match=r"got DeepGPClassifier\. For the prob"):
        PredictiveDisplay.from_estimator(classifier, X)
    for model in (
        RandomForestRegressor(n_estimators=2),
        TransformedTargetRegressor(BayesianRidge(), func=np.log, inverse_func=np.exp),
    ):
        match = rf"predict\(return_std=True\); got {type(model).__name__}"
        with pytest.raises(ValueError, match=match):
            PredictiveDisplay.from_estimator(model.fit(X, np.abs(y)), X)


def test_matplotlib_is_imported_late():
    code = "import sys, skdgp.inspection; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_polars_frames_are_as_pandas_frames(plt):
    """Names, medians of numbers, and modes of the others."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    columns = {"a": rng.uniform(-1, 1, 60), "b": rng.uniform(-1, 1, 60), "c": ["u", "v", "v"] * 20}
    encode = make_column_transformer((OneHotEncoder(), ["c"]), remainder="passthrough")
    gp = GaussianProcessRegressor(RBF(1.0) + WhiteKernel(0.1))
    lines = []
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        model = make_pipeline(clone(encode), clone(gp)).fit(frame, columns["b"])
        display = PredictiveDisplay.from_estimator(model, frame, feature="b", n_points=20)
        assert display.ax_.get_xlabel() == "b"
        lines.append(display.line_.get_ydata())
    assert_allclose(*lines, rtol=1e-12)
    with pytest.raises(ValueError, match="'c' is not numeric"):
        PredictiveDisplay.from_estimator(model, frame, feature="c")
