"""The oracle is the textbook's dense form of a sparse layer, in numpy."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import cholesky, solve_triangular
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.inference import DSVI
from skdgp.inspection import LayersDisplay
from skdgp.inspection.layers import _principal_line

FEW = {"inference": "dsvi", "max_iter": 20, "learning_rate": 0.05}
FEW |= {"n_inducing": 8, "random_state": 0}


def make(n_layers=2, **settings):
    return DeepGPRegressor(n_layers, **{**FEW, "likelihood": "gaussian", **settings})


def dense_layer(model, i, H):
    """Mean and variance of a layer's outputs at standardized inputs."""
    layer = model.members_[0].model("cpu").layers[i]
    kernel = model.kernels_[i]
    assert type(kernel).__name__ == "SquaredExponential"
    Z = layer.Z.detach().numpy() / kernel.lengthscale
    K_uu = kernel.variance * np.exp(-0.5 * cdist(Z, Z, "sqeuclidean"))
    K_uf = kernel.variance * np.exp(-0.5 * cdist(Z, H / kernel.lengthscale, "sqeuclidean"))
    A = solve_triangular(
        cholesky(K_uu + layer.jitter * np.eye(len(Z)), lower=True), K_uf, lower=True
    )
    mean = A.T @ layer.q.mean.detach().numpy()
    if layer.W is not None:
        mean = mean + H @ layer.W.numpy()
    root = layer.q.root.detach().double().numpy()
    S = root @ root.swapaxes(1, 2)  # one or one for each output
    var = kernel.variance - (A * A).sum(0) + np.einsum("mp,dmn,np->dp", A, S, A)
    noise = 0.0 if layer.log_noise is None else np.exp(layer.log_noise.item())
    return mean, np.broadcast_to(var.T + noise, mean.shape)


def line_through(H, Z, n_points):
    """The largest eigenvector of the covariance, and coordinates of rows and inducing points."""
    center = H.mean(0)
    direction = np.linalg.eigh(np.cov(H.T))[1][:, -1]
    direction *= np.sign(direction[np.abs(direction).argmax()])
    t, z = (H - center) @ direction, (Z - center) @ direction
    low, high = min(t.min(), z.min()), max(t.max(), z.max())
    x = np.linspace(low - 0.05 * (high - low), high + 0.05 * (high - low), n_points)
    return center + x[:, None] * direction, x, t, z


@pytest.fixture(scope="module")
def curve():
    """One input, in units of its own."""
    rng = np.random.default_rng(0)
    X = rng.uniform(100.0, 200.0, (50, 1))
    return X, 30.0 * (X[:, 0] > 150.0) + rng.standard_normal(50)


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_one_layer_is_the_latent_function(plt, curve, likelihood):
    X, y = curve
    model = make(1, likelihood=likelihood).fit(X, np.floor(np.abs(y)))
    display = LayersDisplay.from_estimator(model, X, n_points=30)
    (layer,) = display.layers
    grid = np.linspace(X.min(), X.max(), 30)
    mean, std = model.predict(grid[:, None], return_std=True, latent=True)
    assert_allclose(layer.x, grid)
    assert_allclose(layer.mean[:, 0], mean)
    assert_allclose(layer.std[:, 0], std)
    assert_array_equal(display.lines_[0][0].get_xydata(), np.c_[grid, layer.mean[:, 0]])
    vertices = display.bands_[0][0].get_paths()[0].vertices
    assert_allclose(vertices[1:31, 1], mean - 2.0 * std)
    Z = model.inducing_inputs_[0]
    expected = np.column_stack([Z[:, 0], model.predict(Z, latent=True)])
    assert_allclose(display.inducing_points_[0][0].get_offsets(), expected, rtol=1e-6)
    assert_allclose(np.sort(display.ticks_[0].get_xdata()), np.sort(X[:, 0]))
    assert display.axes_[0].get_xlabel() == "x0"
    assert display.axes_[0].get_ylabel() == "latent function"


@pytest.mark.parametrize("n_layers", [2, 3, 4])
def test_panels_of_one_input_compose_to_the_prediction(plt, curve, n_layers):
    """Reading the curves one after the other gives the latent mean, if hidden layers are certain."""
    X, y = curve
    scheme = DSVI(inner_noise=0.0, inner_scale=1e-5)
    model = make(n_layers, inference=scheme, learning_rate=1e-3, n_inducing=30).fit(X, y)
    display = LayersDisplay.from_estimator(model, X, n_points=3000, n_functions=0)
    grid = display.layers[0].x
    h = grid
    for i, layer in enumerate(display.layers):
        assert layer.x[0] <= h.min()
        assert h.max() <= layer.x[-1]
        h = np.interp(h, layer.x, layer.mean[:, 0])
        if i:
            assert layer.x_label == f"h0 of layer {i}"
            assert_allclose(layer.inducing_x, model.inducing_inputs_[i][:, 0])
        # inducing points lie on their curves
        inside = (layer.inducing_x >= layer.x[0]) & (layer.inducing_x <= layer.x[-1])
        on_curve = np.interp(layer.inducing_x, layer.x, layer.mean[:, 0])
        spread = np.ptp(layer.mean)
        assert_allclose(layer.inducing_mean[inside, 0], on_curve[inside], atol=1e-4 * spread)
    expected = model.predict(grid[:, None], latent=True)
    assert_allclose(h, expected, atol=2e-3 * np.ptp(expected))


@pytest.mark.parametrize("input_connected", [False, True])
@pytest.mark.parametrize(("n_features", "width"), [(1, 2), (2, 1), (3, 3)])
def test_wide_layers_against_the_dense_form(plt, input_connected, n_features, width):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, n_features)) * 5.0 ** np.arange(n_features)
    y = np.column_stack([np.sin(X[:, 0]), 1e3 * X[:, -1] + 7.0])
    model = make(3, width=width, input_connected=input_connected, max_iter=40).fit(X, y)
    display = LayersDisplay.from_estimator(model, X, feature=n_features - 1, n_points=20)
    line = np.tile(np.median(X, 0), (20, 1))
    line[:, -1] = np.linspace(X[:, -1].min(), X[:, -1].max(), 20)
    x, t, z = line[:, -1], X[:, -1], model.inducing_inputs_[0][:, -1]
    line, rows = model._x_scaler.transform(line), model._x_scaler.transform(X)
    H = rows
    for i, layer in enumerate(display.layers):
        if i:
            H = np.hstack([H, rows]) if input_connected else H
            if H.shape[1] > 1:
                line, x, t, z = line_through(H, model.inducing_inputs_[i], 20)
                assert layer.x_label == "first principal direction of the inputs"
        if i and H.shape[1] == 1:
            continue  # as in the test above
        scale, center = np.ones(width), 0.0
        if i == 2:
            scale, center = y.std(0), y.mean(0)
        mean, var = dense_layer(model, i, line)
        for key, expected in [("x", x), ("inducing_x", z), ("rows_x", t)]:
            assert_allclose(layer[key], expected, rtol=1e-6, atol=1e-6 * np.ptp(x))
        assert_allclose((layer.mean - center) / scale, mean, atol=1e-5)
        assert_allclose((layer.std / scale) ** 2, var, atol=1e-5)
        Z = model.members_[0].inducing_inputs_[i]
        inducing = (layer.inducing_mean - center) / scale
        assert_allclose(inducing, dense_layer(model, i, Z)[0], atol=1e-5)
        H = dense_layer(model, i, H)[0]


def test_draws_are_those_of_the_layers(plt, data):
    """Mean and standard deviation of 400 draws, within five standard errors."""
    X, y = data
    scheme = DSVI(inner_scale=0.5, inner_noise=0.0)
    model = make(kernel="matern52", inference=scheme).fit(X, y)
    display = LayersDisplay.from_estimator(model, X, n_points=4, n_functions=400)
    for layer, lines in zip(display.layers, display.function_lines_):
        assert layer.functions.shape == (400, 4, layer.mean.shape[1])
        error = layer.std / np.sqrt(400)
        assert np.all(np.abs(layer.functions.mean(0) - layer.mean) < 5.0 * error)
        assert np.all(np.abs(layer.functions.std(0) / layer.std - 1.0) < 5.0 / np.sqrt(800))
        drawn = [layer.functions[i, :, unit] for unit in layer.units for i in range(400)]
        assert_array_equal([line.get_ydata() for line in lines], drawn)
    again, same, other, none = (
        LayersDisplay.from_estimator(model, X, n_points=4, **settings)
        for settings in (
            {"n_functions": 2},
            {"n_functions": 2},
            {"n_functions": 2, "random_state": 1},
            {"n_functions": 0},
        )
    )
    assert_array_equal(again.layers[1].functions, same.layers[1].functions)
    assert np.all(again.layers[1].functions != other.layers[1].functions)
    assert none.function_lines_ == [[], []]
    assert_array_equal(none.layers[1].mean, again.layers[1].mean)


def test_units_that_vary_most(plt):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6))
    model = make().fit(X, X[:, 2] - X[:, 4])
    display = LayersDisplay.from_estimator(model, X, feature=4, max_units=2)
    layer = display.layers[0]
    assert layer.mean.shape[1] == 6
    assert 4 in layer.units  # the mean of the layer is the identity
    shown = layer.mean[:, layer.units].std(0)
    hidden = np.delete(layer.mean, layer.units, axis=1).std(0)
    assert shown.min() >= hidden.max()
    assert display.axes_[0].get_title() == "Layer 1 (2 of 6 units)"
    assert display.axes_[1].get_title() == "Layer 2"
    labels = [text.get_text() for text in display.axes_[0].get_legend().get_texts()]
    assert labels == [f"h{unit}" for unit in layer.units]
    assert display.axes_[1].get_legend() is None
    for line, unit in zip(display.lines_[0], layer.units, strict=True):
        assert_array_equal(line.get_ydata(), layer.mean[:, unit])


def test_classes_name_the_latent_functions(plt, data, classifier):
    X, y = data
    display = LayersDisplay.from_estimator(classifier, X)
    labels = [text.get_text() for text in display.axes_[1].get_legend().get_texts()]
    assert labels == ["high", "low", "mid"]
    binary = DeepGPClassifier(n_layers=1, **FEW).fit(X[:, :1], y > 500.0)
    display = LayersDisplay.from_estimator(binary, X[:, :1], n_points=9, n_functions=300)
    grid = np.linspace(X[:, 0].min(), X[:, 0].max(), 9)[:, None]
    draws = binary.sample_y(grid, 300, latent=True)[:, 0]
    (layer,) = display.layers
    error = layer.std[:, 0] / np.sqrt(300)
    assert np.all(np.abs(draws.mean(1) - layer.mean[:, 0]) < 5.0 * error)


def test_heteroscedastic_latents_stay_standardized(plt, curve):
    X, y = curve
    model = make(1, likelihood="heteroscedastic").fit(X, y)
    (layer,) = LayersDisplay.from_estimator(model, X, n_points=10).layers
    assert layer.unit_labels == ["f0", "f1"]
    mean = model.predict(layer.x[:, None], latent=True)
    assert_allclose(layer.mean[:, 0], (mean - y.mean()) / y.std())


def test_many_rows_are_thinned(plt, curve):
    model = make().fit(*curve)
    many = np.linspace(0.0, 300.0, 5001)[:, None]
    display = LayersDisplay.from_estimator(model, many)
    assert [len(layer.rows_x) for layer in display.layers] == [1000, 1000]
    assert_allclose(display.layers[0].x[[0, -1]], [0.0, 300.0])


def test_principal_line_by_hand():
    """Rows along (1, -2), far from the origin; the larger component points upwards."""
    t = np.array([-1.0, 0.0, 0.5, 0.5])
    H = torch.as_tensor([10.0, 20.0] + t[:, None] * [1.0, -2.0])
    Z = torch.as_tensor([[10.0 + 2.0, 20.0 + 1.0], [10.0 + 4.0, 20.0 - 8.0]])
    line, panel = _principal_line(H, Z, 3)
    assert_allclose(panel.rows_x, -np.sqrt(5.0) * t)
    # the first inducing point is off the line, at a right angle to its center
    assert_allclose(panel.inducing_x, [0.0, -4.0 * np.sqrt(5.0)], atol=1e-12)
    margin = 0.05 * 5.0 * np.sqrt(5.0)
    low, high = -4.0 * np.sqrt(5.0) - margin, np.sqrt(5.0) + margin
    assert_allclose(panel.x, [low, 0.5 * (low + high), high])
    expected = [10.0, 20.0] + panel.x[:, None] * [-1.0, 2.0] / np.sqrt(5.0)
    assert_allclose(line.numpy(), expected)


@pytest.mark.parametrize("n_inputs", [1, 3])
def test_rows_that_fall_on_one_point(n_inputs):
    H = torch.full((4, n_inputs), 2.5, dtype=torch.float64)
    line, panel = _principal_line(H, H[:1], 5)
    assert_allclose(panel.x - panel.rows_x[0], [-1.0, -0.5, 0.0, 0.5, 1.0], atol=1e-12)
    assert_allclose(np.linalg.norm(line[-1] - H[0]), 1.0)


def test_frame_and_pipeline(plt, data):
    pd = pytest.importorskip("pandas")
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = make().fit(frame, y)
    display = LayersDisplay.from_estimator(model, frame, feature="b")
    assert display.axes_[0].get_xlabel() == "b"
    plain = LayersDisplay.from_estimator(clone(model).fit(X, y), X, feature=1)
    for layer, other in zip(display.layers, plain.layers):
        assert_allclose(layer.mean, other.mean)
        assert_allclose(layer.inducing_x, other.inducing_x)
    pipeline = make_pipeline(StandardScaler(), clone(model)).fit(X, y)
    display = LayersDisplay.from_estimator(pipeline, X)
    scaled = StandardScaler().fit_transform(X)
    assert_allclose(display.layers[0].x[[0, -1]], [scaled[:, 0].min(), scaled[:, 0].max()])
    assert_allclose(display.layers[0].inducing_x, pipeline[-1].inducing_inputs_[0][:, 0])


def test_names_after_the_steps_of_a_pipeline(plt, data):
    pd = pytest.importorskip("pandas")
    X, y = data
    frame, model = pd.DataFrame(X, columns=["a", "b"]), make()
    features = PolynomialFeatures(include_bias=False)
    pipeline = make_pipeline(make_pipeline(StandardScaler()), make_pipeline(features, model))
    pipeline = FrozenEstimator(pipeline.fit(frame, y))
    display = LayersDisplay.from_estimator(pipeline, frame, feature="a b")
    assert display.axes_[0].get_xlabel() == "a b"
    smallest = StandardScaler().fit_transform(X).prod(1).min()
    assert display.layers[0].x[0] == pytest.approx(smallest, rel=1e-12)
    with pytest.raises(ValueError, match=r"feature='c' is no column of X; .* \['a', 'b', 'a\^2'"):
        LayersDisplay.from_estimator(pipeline, frame, feature="c")
    framed = clone(pipeline.estimator).set_output(transform="pandas").fit(frame, y)
    display = LayersDisplay.from_estimator(framed, frame, feature="a b")
    assert display.axes_[0].get_xlabel() == "a b"
    nameless = make_pipeline(FunctionTransformer(np.abs, validate=True), clone(model)).fit(X, y)
    assert LayersDisplay.from_estimator(nameless, X).axes_[0].get_xlabel() == "x0"
    with pytest.raises(ValueError, match=r"columns of X have none, or lose it .*; give a position"):
        LayersDisplay.from_estimator(nameless, frame, feature="b")


def test_axes_and_names(plt, curve, data, regressor):
    X, y = curve
    shallow = make(1).fit(X, y)
    figure, grid = plt.subplots(2, 2)
    first = LayersDisplay.from_estimator(regressor, data[0], ax=grid[0], name="deep")
    assert [ax.get_title() for ax in first.axes_] == ["deep, layer 1", "deep, layer 2"]
    assert list(first.axes_) == list(grid[0])
    assert first.figure_ is figure
    one = LayersDisplay.from_estimator(shallow, X, ax=grid[1, 0])
    assert one.axes_[0] is grid[1, 0]
    assert one.axes_[0].get_title() == "Layer 1"
    again = first.plot(name="again", color="red")
    assert again.figure_ is not figure
    assert again.axes_[1].get_title() == "again, layer 2"
    assert {line.get_color() for lines in again.lines_ for line in lines} == {"red"}
    with pytest.raises(ValueError, match="one Axes for each of the 2 panels; got 1"):
        first.plot(grid[1, 1])


def test_predictions_are_not_disturbed(plt, data, regressor):
    X, _ = data
    before, attributes = regressor.predict(X), set(vars(regressor))
    LayersDisplay.from_estimator(regressor, X)
    assert_array_equal(regressor.predict(X), before)
    assert set(vars(regressor)) == attributes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"feature": 5}, "int from 0 to 1"),
        ({"max_units": 0}, "max_units == 0, must be >= 1"),
        ({"n_functions": -1}, "n_functions == -1, must be >= 0"),
        ({"n_points": 1}, "n_points == 1, must be >= 2"),
        ({"feature_range": (2.0, 1.0)}, r"pair \(low, high\)"),
    ],
)
def test_bad_arguments(plt, data, regressor, arguments, message):
    with pytest.raises(ValueError, match=message):
        LayersDisplay.from_estimator(regressor, data[0], **arguments)
