"""DeepGPRegressor: what goes in, what training does, what the arguments mean."""

import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPRegressor
from skdgp.fitting import member_fit as fitting
from skdgp.fitting.settings import training_device
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian, Poisson, Softmax
from skdgp.inference import DSVI, SCHEMES
from skdgp.inference.deep import DeepPosterior
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.optim.adam import Adam
from skdgp.predictive.mixture import Mixture
from skdgp.training.trainer import Trainer

FEW = {"inference": "dsvi", "max_iter": 20, "learning_rate": 0.02}
FEW |= {"n_inducing": 10, "n_predict_draws": 8}


def make(**changes):
    return DeepGPRegressor(**{**FEW, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(80, 3))
    return X, 5.0 + 3.0 * np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(80)


# Oracles


@pytest.mark.parametrize("n_outputs", [0, 2])
def test_one_layer_is_an_exact_gp(n_outputs):
    """Inducing inputs at all rows, and natural steps of size one (notes on oracles, item 1)."""
    rng = np.random.default_rng(0)
    X = np.linspace(10.0, 50.0, 25)[:, None]
    y = 300.0 + 20.0 * np.sin(X / 5.0) @ np.ones((1, max(n_outputs, 1)))
    y = y + 5.0 * rng.standard_normal(y.shape)
    y = y if n_outputs else y[:, 0]
    model = make(
        n_layers=1,
        n_inducing=25,
        kernel=SquaredExponential(lengthscale=0.15, trainable=False),
        likelihood=Gaussian(variance=25.0, trainable=False),
        inference=DSVI(natural_step=1.0),
        learning_rate=1e-15,
    ).fit(X, y)
    new = np.linspace(0.0, 70.0, 30)[:, None]
    mean, std = model.predict(new, return_std=True)
    latent_std = model.predict(new, return_std=True, latent=True)[1]
    bound, targets = 0.0, y.reshape(25, -1)
    mean, std, latent_std = (part.reshape(30, -1) for part in (mean, std, latent_std))
    for k in range(targets.shape[1]):
        center, scale = targets[:, k].mean(), targets[:, k].std()
        exact = GaussianProcessRegressor(RBF(0.15), alpha=25.0 / scale**2, optimizer=None)
        exact.fit((X - X.mean()) / X.std(), (targets[:, k] - center) / scale)
        f, f_std = exact.predict((new - X.mean()) / X.std(), return_std=True)
        # the jitter of 1e-6 on the matrix of inducing inputs is all that differs
        assert_allclose(mean[:, k], center + scale * f, rtol=1e-5)
        assert_allclose(latent_std[:, k], scale * f_std, rtol=1e-4, atol=1e-3)
        assert_allclose(std[:, k], np.hypot(scale * f_std, 5.0), rtol=1e-4)
        bound += exact.log_marginal_likelihood_value_ - 25 * np.log(scale)
    assert_allclose(model.lower_bound_, bound, atol=1e-2)
    # ten steps lead there; their losses are in units of the standardized target
    loss = -bound / 25 - np.log(targets.std(0)).sum()
    assert_allclose(model.loss_curve_[10:], loss, atol=1e-3)


# What goes in


def test_containers(data):
    X, y = data
    weights = np.arange(80.0) % 4
    expected = make().fit(X, y, sample_weight=weights).predict(X)
    read_only = X.copy(), y.copy(), weights.copy()
    for array in read_only:
        array.flags.writeable = False
    for X_, y_, w in (
        (X.tolist(), y.tolist(), weights.tolist()),
        (np.asfortranarray(X), y, weights.astype(int)),
        (np.repeat(X, 2, axis=1)[:, ::2], np.repeat(y, 2)[::2], weights),  # strided
        read_only,
        (torch.tensor(X), torch.tensor(y), torch.tensor(weights)),
        (torch.tensor(X, requires_grad=True), torch.tensor(y, requires_grad=True), weights),
    ):
        model = make().fit(X_, y_, sample_weight=w)
        assert_array_equal(model.predict(X_), expected)


def test_frames(data):
    """Beside what check_estimator asks: numbers are those of arrays, and validation rows have names, too."""
    pd = pytest.importorskip("pandas")
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = make().fit(frame, pd.Series(y, name="target"))
    assert_array_equal(model.predict(frame), make().fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names should match"):
        model.fit(frame, y, X_val=frame.rename(columns={"a": "z"}), y_val=y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(frame, y, X_val=frame, y_val=y).log_predictive_density(frame, pd.Series(y))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(80), "Negative values"),
        (
            np.arange(80).astype("m8[D]"),
            "sample_weight must be numbers, and holds dates or durations",
        ),
        (np.zeros(80), "at least one non-zero"),
        (np.full(80, 5e-324), "below 2.2e-308 count as zero; scale them to a mean of one"),
        (np.ones(79), "sample_weight"),
        (np.full(80, np.nan), "NaN"),
    ],
)
def test_weights_that_are_none(data, weights, message):
    with pytest.raises(ValueError, match=message):
        make().fit(*data, sample_weight=weights)


@pytest.mark.parametrize(
    "settings", [{}, {"inference": "exact", "n_layers": 1, "n_inducing": None}]
)
def test_weights_whose_reciprocals_overflow_are_zero(data, settings):
    settings = {**settings, "learning_rate": None}
    zero = (np.arange(80) % 7 > 0).astype(float)
    least = np.where(zero, 1.0, 1e-310)
    expected = make(**settings).fit(*data, sample_weight=zero).predict(data[0])
    assert_array_equal(make(**settings).fit(*data, sample_weight=least).predict(data[0]), expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(data, value):
    """Inputs may be missing, but not infinite; targets neither."""
    X, y = data
    bad_X, bad_y = X.copy(), y.copy()
    bad_X[3, 1], bad_y[3] = np.inf, value
    model = make().fit(X, y)
    before = model.predict(X)
    for call in (
        lambda: model.fit(bad_X, y),
        lambda: model.fit(X, bad_y),
        lambda: model.fit(X, y, X_val=bad_X, y_val=y),
        lambda: model.predict(bad_X),
        lambda: model.sample_y(bad_X),
        lambda: model.log_predictive_density(bad_X, y),
        lambda: model.log_predictive_density(X, bad_y),
    ):
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            call()
    assert_array_equal(model.predict(X), before)  # fits that fail leave the old model


def test_shapes_that_do_not_fit(data):
    X, y = data
    model = make().fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.log_predictive_density(X, y[:-1])
    with pytest.raises(ValueError, match="y has 2 outputs, but the model was fitted with 1"):
        model.log_predictive_density(X, np.column_stack([y, y]))
    with pytest.raises(
        ValueError, match=r"X_val.*X has 2 features, but DeepGPRegressor is expecting"
    ):
        model.fit(X, y, X_val=X[:, :2], y_val=y)
    for half in ({"X_val": X}, {"y_val": y}, {"sample_weight_val": np.ones(len(y))}):
        with pytest.raises(ValueError, match="X_val and y_val must be given together"):
            model.fit(X, y, **half)


# Several outputs


def test_several_outputs(data):
    X, y = data
    both = np.column_stack([y, -10.0 * y, np.cos(X[:, 2])])
    model = make(likelihood="gaussian").fit(X, both)
    mean, std = model.predict(X[:7], return_std=True)
    assert mean.shape == std.shape == model.predict_var(X[:7]).shape == (7, 3)
    assert model.predict(X[:7], return_cov=True)[1].shape == (7, 7, 3)
    assert model.predict_quantiles(X[:7], [0.1, 0.2]).shape == (7, 3, 2)
    assert model.predict_interval(X[:7]).shape == (7, 3, 2)
    assert model.sample_y(X[:7], 4).shape == (7, 3, 4)
    assert model.sample_y(X[:7], 4, latent=True).shape == (7, 3, 4)
    assert model.log_predictive_density(X[:7], both[:7]).shape == (7,)
    assert_allclose(mean[:, 1], -10.0 * mean[:, 0], rtol=1e-6)
    assert_allclose(std[:, 1], 10.0 * std[:, 0], rtol=1e-6)
    assert model.likelihood_.variance.shape == (3,)


@pytest.mark.parametrize("likelihood", ["gaussian", "heteroscedastic", "student_t", "poisson"])
def test_order_of_outputs(data, likelihood):
    X, y = data
    both = np.column_stack([y - y.min(), 10.0 * X[:, 2] ** 2])
    both = np.round(both) if likelihood == "poisson" else both
    first, second = (
        make(likelihood=likelihood).fit(X, targets).predict(X, return_std=True)
        for targets in (both, both[:, ::-1])
    )
    # sums over outputs in another order round differently
    assert_allclose(second[0][:, ::-1], first[0], rtol=1e-6, atol=1e-6)
    assert_allclose(second[1][:, ::-1], first[1], rtol=1e-6, atol=1e-6)


def test_constant_outputs_are_named(data):
    X, y = data
    both = np.column_stack([y, np.full(80, 3.0)])
    message = r"Outputs \[1\] of y are constant.*leave it out"
    model = make(max_iter=20)
    for fit in (make().partial_fit, model.fit):
        with pytest.warns(UserWarning, match=message) as record:
            fit(X, both)
        assert record[0].filename == __file__
    assert_allclose(model.predict(X)[:, 1], 3.0, atol=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(max_iter=1).fit(X, np.full((80, 2), 3.0))  # nothing is spoiled


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("inference", ["exact", "pep", "dsvi"])
def test_constant_targets_have_a_unit(inference, n, data):
    X, model = data[0], DeepGPRegressor(1, inference=inference, max_iter=3, random_state=0)
    first, second = (
        model.fit(X[:n], np.full(n, size)).predict(X, return_std=True)
        for size in (3.7, 0.001 * 3.7)
    )
    for one, other in zip(first, second):
        assert_allclose(1000.0 * other, one, rtol=1e-6)


def test_outputs_of_an_exact_gp_are_as_wide_as_each_needs(data):
    """A second one that is known exactly does not make intervals of the first narrow."""
    X, y = data
    y = y + np.random.default_rng(0).standard_normal(80)
    settings = {"n_layers": 1, "inference": "exact", "random_state": 0}
    both = DeepGPRegressor(**settings).fit(X, np.column_stack([y, X[:, 0] + X[:, 1]]))
    inside = np.abs(y - both.predict(X)[:, 0]) < np.diff(both.predict_interval(X)[:, 0]).T / 2
    assert inside.mean() > 0.8


def test_column_target(data):
    X, y = data
    flat, column = make().fit(X, y), make().fit(X, y[:, None])
    assert column.predict(X).shape == (80, 1)
    assert_array_equal(column.predict(X)[:, 0], flat.predict(X))
    assert column.predict_quantiles(X, 0.5).shape == (80, 1, 1)
    assert flat.log_predictive_density(X, y[:, None]).shape == (80,)


# What is learned


def test_fitted_numbers_are_in_the_users_units(data):
    X, y = data
    X = X * [1e3, 1.0, 1e-3] + [0.0, 50.0, 0.0]
    frozen = {"learning_rate": 1e-15, "inference": DSVI(natural_step=1e-15)}
    model = make(likelihood=Gaussian(variance=0.7), init="random", **frozen).fit(X, y)
    assert_allclose(model.likelihood_.variance, 0.7)
    assert model.likelihood.variance == 0.7
    # inducing inputs that start at rows, and do not move, are rows
    distance = np.abs((model.inducing_inputs_[0][:, None] - X) / X.std(0)).max(-1)
    assert distance.min(1).max() < 1e-6
    assert model.inducing_inputs_[1].shape == (10, 3)
    assert [kernel.lengthscale.shape for kernel in model.kernels_] == [(3,), (3,)]
    assert_allclose(model.kernels_[0].lengthscale, np.sqrt(3.0))
    assert model.kernel == "auto"
    changed = make(likelihood=Gaussian(variance=0.7)).fit(X, y)
    assert changed.likelihood_.variance != pytest.approx(0.7, rel=1e-3)
    raised = make(likelihood=Gaussian(variance=0.7), **frozen).fit(X, 1e5 * y)
    assert_allclose(raised.likelihood_.variance, 2e-6 * np.var(1e5 * y))  # as numerics need
    with pytest.raises(ValueError, match=r"variance of Gaussian must be larger than .*; got 0\.7"):
        make(likelihood=Gaussian(variance=0.7, trainable=False)).fit(X, 1e8 * y)
    noise = make(likelihood="gaussian", **frozen).fit(X, y).likelihood_.variance
    assert_allclose(noise, y.var() / 20.0)  # as documented


def test_constant_column_has_no_effect(data):
    X, y = data
    more = np.column_stack([X, np.full(80, 1e6)])
    model = make().fit(more, y)
    assert_allclose(model.predict(more), make().fit(X, y).predict(X), rtol=1e-9)
    assert model.inducing_inputs_[0].shape == (10, 4)
    assert_array_equal(model.inducing_inputs_[0][:, 3], 1e6)
    assert model.n_features_in_ == 4


CHANGES = {
    "n_layers": 3,
    "width": 2,
    "n_inducing": 7,
    "kernel": "matern52",
    "mean": "zero",
    "input_connected": True,
    "likelihood": "student_t",
    "init": "random",
    "max_iter": 25,
    "max_time": 1e-9,
    "batch_size": 30,
    "learning_rate": 0.005,
    "n_predict_draws": 16,
    "early_stopping": True,
    "standardize": False,
    "dtype": "float32",
    "random_state": 1,
    "inference__n_draws": 2,
    "inference__shared_covariance": False,
    "inference__inner_noise": 0.1,
    "inference__inner_scale": 0.1,
    "inference__natural_gradient": "none",
    "inference__natural_step": 0.3,
    "kernel__lengthscale": 0.3,
    "kernel__variance": 3.0,
    "kernel__ard": False,
    "kernel__trainable": False,
    "likelihood__variance": 3.0,
    "likelihood__trainable": False,
}


@pytest.fixture(scope="module")
def before_changes(data):
    return make(likelihood="gaussian").fit(*data).predict(data[0])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_every_argument_has_an_effect(data, before_changes, name):
    model, before = make(likelihood="gaussian"), before_changes
    after = model.set_params(**{name: CHANGES[name]}).fit(*data).predict(data[0])
    # the smallest effects are those of other draws and of single precision
    assert np.abs(after - before).max() > 1e-9


def test_the_other_arguments_are_tested_elsewhere():
    others = {
        "inference",  # there is one scheme
        "validation_fraction",
        "n_iter_no_change",
        "tol",
        "warm_start",
        "checkpoint",
        "device",
        "target_transform",  # test_target_transform.py
        "noise",  # test_deterministic_runs.py
        "multi_output",  # test_coregionalized.py
        "budget",  # test_recipe.py
        "categorical_features",  # test_frames.py
        "exposure",  # test_exposure_columns.py
        "groups",  # test_groups.py
        *("time", "horizon"),  # test_time.py
        "n_jobs",
        "n_threads",
        "verbose",
    }
    names = {name for name in CHANGES if "__" not in name}
    assert names | others == set(DeepGPRegressor().get_params(deep=False))


def test_width(data):
    shapes = {
        None: [(10, 3), (10, 3), (10, 3)],
        4: [(10, 3), (10, 4), (10, 4)],
        (2, 5): [(10, 3), (10, 2), (10, 5)],
    }
    for width, expected in shapes.items():
        width = list(width) if isinstance(width, tuple) else width
        model = make(n_layers=3, width=width, max_iter=2).fit(*data)
        assert [Z.shape for Z in model.inducing_inputs_] == expected
    wide = make(max_iter=2).fit(np.random.default_rng(0).normal(size=(40, 35)), np.arange(40))
    assert wide.inducing_inputs_[1].shape == (10, 30)  # at most 30, as documented
    connected = make(n_layers=3, width=2, input_connected=True, max_iter=2).fit(*data)
    assert [Z.shape for Z in connected.inducing_inputs_] == [(10, 3), (10, 5), (10, 5)]


def test_kernel_for_each_layer(data):
    model = make(kernel=["linear", SquaredExponential()], max_iter=2).fit(*data)
    assert [type(kernel).__name__ for kernel in model.kernels_] == ["Linear", "SquaredExponential"]
    with pytest.raises(ValueError, match=r"kernel cannot be set while it is .*; name it first"):
        model.set_params(kernel__lengthscale=1.0)
    # one object for all layers is not shared between them
    shared = make(kernel=SquaredExponential()).fit(*data).kernels_
    assert not np.allclose(shared[0].lengthscale, shared[1].lengthscale)


# Arguments that make no sense


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_layers": 0}, "'n_layers' parameter"),
        ({"n_layers": 2.0}, "'n_layers' parameter"),
        ({"width": 0}, "'width' parameter"),
        ({"width": "wide"}, "'width' parameter"),
        ({"width": [2, 2]}, "one for each of the 1 hidden layers"),
        ({"width": [2, 2], "inference": "auto", "max_time": 0.2}, "one for each of the 1 hidden"),
        ({"width": [0]}, "width must be a positive int"),
        ({"width": [2.5]}, "width must be a positive int"),
        ({"width": [[2]]}, "width must be a positive int"),
        ({"width": ["a"]}, "width must be a positive int"),
        ({"n_inducing": 0}, "'n_inducing' parameter"),
        ({"kernel": "quadratic"}, "Unknown kernel 'quadratic'; the names are"),
        ({"kernel": 3}, "'kernel' parameter"),
        ({"kernel": ["linear"]}, "one for each of the 2 layers; got 1"),
        ({"kernel": SquaredExponential(lengthscale=[1.0, 2.0])}, "the layer has 3 inputs"),
        ({"kernel": SquaredExponential(variance=-1.0)}, "variance of SquaredExponential must be"),
        ({"mean": "quadratic"}, "'mean' parameter"),
        ({"input_connected": "yes"}, "'input_connected' parameter"),
        *(
            ({"likelihood": name}, f"Unknown likelihood '{name}' for this estimator; the names are")
            for name in ("softmax", "cauchy")
        ),
        ({"likelihood": Softmax()}, "is not a likelihood for this estimator"),
        ({"likelihood": Gaussian(variance=[1.0, 2.0])}, "there are 1 outputs"),
        ({"likelihood": Gaussian(variance=-1.0)}, "variance of Gaussian must be"),
        ({"inference": "magic"}, "Unknown inference 'magic'; the names are"),
        ({"inference": 3}, "'inference' parameter"),
        ({"inference": DSVI(n_draws=0)}, "n_draws of DSVI"),
        ({"init": "zeros"}, "'init' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"max_time": 0.0}, "'max_time' parameter"),
        ({"batch_size": 0}, "'batch_size' parameter"),
        ({"learning_rate": 0.0}, "'learning_rate' parameter"),
        ({"n_predict_draws": 0}, "'n_predict_draws' parameter"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter"),
        ({"n_iter_no_change": 0}, "'n_iter_no_change' parameter"),
        ({"tol": -1.0}, "'tol' parameter"),
        ({"device": "toaster"}, "device='toaster' cannot be used here"),
        *(
            ({"device": name}, f"device='{name}' .*unknown.*; use 'cpu'.* or 'auto'")
            for name in ("", "gpu", "mps", "meta", "hpu")
        ),
        ({"device": None}, "'device' parameter"),
        ({"dtype": "float16"}, "'dtype' parameter"),
        ({"n_threads": 0}, "'n_threads' parameter"),
        ({"random_state": "luck"}, "'random_state' parameter"),
        ({"checkpoint": 3}, "'checkpoint' parameter"),
    ],
)
def test_arguments_that_make_no_sense(data, params, message):
    model = make(**params)
    with pytest.raises(ValueError, match=message):
        model.fit(*data)
    assert not hasattr(model, "members_")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["auto", *SCHEMES])
def test_devices_with_another_name(data, name):
    """Tensors on "cpu:0" say that they are on "cpu", as those on "cuda" say that they are on "cuda:0"."""
    settings = {"early_stopping": name in ("auto", "dsvi"), "max_iter": 3, "random_state": 0}
    model = DeepGPRegressor(1, inference=name, **settings)
    one, other = (
        model.set_params(device=device).fit(*data).predict(data[0]) for device in ("cpu:0", "cpu")
    )
    assert_array_equal(one, other)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_device_that_is_not_there(data):
    with pytest.raises(ValueError, match="device='cuda' cannot be used here") as caught:
        make(device="cuda").fit(*data)
    assert str(caught.value).count(".") == 1  # one sentence of torch's many


class WithoutChoices(DSVI):
    """A scheme to which the optional arguments mean nothing."""

    uses = frozenset()


@pytest.mark.parametrize(
    ("name", "value"), [("n_inducing", 5), ("mean", "zero"), ("learning_rate", 0.1)]
)
def test_arguments_that_mean_nothing_to_a_scheme(data, name, value):
    plain = DeepGPRegressor(max_iter=1, inference=WithoutChoices())
    plain.fit(data[0][:10], data[1][:10])
    with pytest.raises(ValueError, match=f"{name} means nothing to WithoutChoices"):
        plain.set_params(**{name: value}).fit(*data)


def test_counts_that_are_no_counts(data):
    X, y = data[0], np.round(data[1])
    for likelihood in ("poisson", "negative_binomial"):
        with pytest.raises(ValueError, match=r"y has the value 18\.5, .* whole numbers; choose"):
            make(likelihood=likelihood).fit(X, np.where(np.arange(80) == 7, 18.5, 3.0))
    model = make(likelihood="poisson").fit(X, y - y.min())
    before = model.predict(X)
    assert (before > 0.0).all()
    for call in (
        lambda: make(likelihood=Poisson()).fit(X, y - 10.0),
        lambda: clone(model).fit(X, y - y.min(), X_val=X, y_val=y - 10.0),
        lambda: model.partial_fit(X, y - 10.0),
    ):
        with pytest.raises(ValueError, match="y are negative, but the Poisson likelihood"):
            call()
    assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    ("dtype", "model"),
    [
        ("U", make(max_iter=2)),
        ("S", SparseGPRegressor(max_iter=2, n_inducing=5, random_state=0)),
        (object, make(max_iter=2)),
    ],
)
def test_numbers_that_are_written_out(data, model, dtype):
    X, y = data
    written = y.astype("U32").astype(dtype)
    expected, ours = clone(model).fit(X, y), clone(model).fit(X, written)
    assert_array_equal(ours.predict(X), expected.predict(X))
    density = expected.log_predictive_density(X, y)
    assert_array_equal(ours.log_predictive_density(X, written), density)
    for word, message in (
        ("low", "Some values of y are no numbers; convert them"),
        ("nan", "Input y contains NaN"),
        ("inf", "Input y contains infinity"),
    ):
        bad = written.copy()
        bad[3] = word
        with pytest.raises(ValueError, match=message):
            clone(model).fit(X, bad)
        with pytest.raises(ValueError, match=message):
            ours.log_predictive_density(X, bad)


def refusals(model, X, y, bad, match, error=ValueError):
    """What every way to hand targets to a model says of bad ones."""
    fitted = clone(model).fit(X, y)
    of_held_out = f"y_val.*{match}" if error is ValueError else match
    for call, message in (
        (lambda: clone(model).fit(X, bad), match),
        (lambda: clone(model).fit(X, y, X_val=X, y_val=bad), of_held_out),
        (lambda: fitted.log_predictive_density(X, bad), match),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize(
    ("dtype", "model"),
    [
        ("datetime64[D]", make(max_iter=2)),
        ("timedelta64[s]", SparseGPRegressor(max_iter=2, n_inducing=5)),
        ([("length", float)], make(max_iter=2)),
    ],
)
def test_targets_of_types_that_are_no_numbers(data, model, dtype):
    """Times were taken for numbers by densities."""
    X, y = data
    bad = np.arange(len(y)).astype(dtype)
    refusals(model, X, y, bad, "Some values of y are no numbers; convert them")
    refusals(model, X, np.c_[y, y], np.c_[bad, bad], "Some values of y are no numbers")


@pytest.mark.parametrize("container", [csr_matrix, csr_array])
def test_sparse_targets(data, container):
    X, y = data
    for target in (y[:, None] > y.mean(), np.c_[y, y]):
        bad = container(target.astype(float))
        match = "Sparse data was passed for y, but dense data is required"
        refusals(make(max_iter=2), X, bad.toarray(), bad, match, TypeError)
        classifier = DeepGPClassifier(inference="dsvi", max_iter=2, n_inducing=5)
        refusals(classifier, X, y > y.mean(), bad, match, TypeError)


# Training


def assert_trained(model, X, y):
    """Predictions follow the target; at the start they are all the same."""
    mean = model.predict(X)
    assert np.ptp(mean) > 0.0 and np.corrcoef(mean, y)[0, 1] > 0.5


@pytest.mark.parametrize("max_iter", [1, 50, 51])
def test_max_iter_counts_steps(data, watch, max_iter):
    steps = watch(DeepSparseGP)
    model = make(max_iter=max_iter, batch_size=30).fit(*data)
    assert model.n_iter_ == len(steps) == len(model.loss_curve_) == max_iter
    assert {len(batch.X) for _, batch, *_ in steps} == {30}


def test_fit_is_silent(data, capsys, recwarn):
    make(max_iter=60).fit(*data)
    captured = capsys.readouterr()
    assert captured.out == captured.err == "" and not recwarn.list


def test_verbose(data, capsys):
    make(max_iter=120, verbose=1, early_stopping=True).fit(*data)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == ["50/120", "100/120", "120/120"]
    assert all("loss" in line and "validation" in line for line in lines)


def test_validation_rows_are_not_trained_on(data):
    """With a single block there is a single state to choose, that of a fit without validation."""
    X, y = data
    X_val, y_val = 10.0 * X[:20], -y[:20]
    plain = make().fit(X, y)
    validated = make().fit(X, y, X_val=X_val, y_val=y_val)
    assert_array_equal(validated.predict(X), plain.predict(X))
    assert validated.lower_bound_ == plain.lower_bound_
    assert len(validated.validation_scores_) == 1


def test_validation_scores_are_log_densities(data):
    X, y = data
    weights = np.arange(20.0)
    model = make(max_iter=120).fit(
        X, y, X_val=X[:20], y_val=y[:20] + 1.0, sample_weight_val=weights
    )
    logs = model.log_predictive_density(X[:20], y[:20] + 1.0)
    best = np.average(logs, weights=weights) + np.log(y.std())  # of the standardized target
    assert len(model.validation_scores_) == 3
    assert_allclose(max(model.validation_scores_), best, rtol=1e-6)


@pytest.fixture
def scored(watch):
    """States that validation looks at, whose scores are those given."""

    def patch(*scores):
        states = []

        def look(n, members, *rest):
            states.append(members[0].arrays)
            return scores[n]

        watch(fitting, "mean_log_density", look)
        return states

    return patch


def test_best_state_is_kept(data, scored):
    states = scored(0.1, 0.5, 0.2, 0.3, 0.4, 0.9)
    model = make(max_iter=1000, n_iter_no_change=3).fit(*data, X_val=data[0], y_val=data[1])
    assert model.n_iter_ == 250  # the best of block 2, and three more
    assert model.validation_scores_ == [0.1, 0.5, 0.2, 0.3, 0.4]
    for name, values in model.members_[0].arrays.items():
        assert_array_equal(values, states[1][name])
    assert not np.array_equal(states[1]["layers.1.q.mean"], states[4]["layers.1.q.mean"])


def targets_of(steps):
    return {y for _, batch, *_ in steps for y in batch.y[:, 0].tolist()}


@pytest.mark.parametrize("fraction", [0.1, 0.4])
def test_early_stopping_holds_rows_out(data, watch, fraction):
    steps, scores = watch(DeepSparseGP), watch(fitting, "mean_log_density")
    model = make(early_stopping=True, validation_fraction=fraction, max_iter=60).fit(*data)
    trained = targets_of(steps)
    validated = {y for _, rows, _ in scores for y in rows.take(slice(None))[1][:, 0].tolist()}
    assert len(validated) == round(80 * fraction) and len(trained) == 80 - len(validated)
    assert not trained & validated
    assert len(model.validation_scores_) == len(scores) == 2


def test_repeated_rows_are_held_out_together(data, watch):
    X, y = (np.repeat(part[:20], 3, axis=0) for part in data)
    steps = watch(DeepSparseGP)
    make(early_stopping=True, validation_fraction=0.25).fit(X, y)
    assert len(targets_of(steps)) == 15


def test_early_stopping_stops(data):
    """The held-out rows are noise, on which the model becomes overconfident."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    model = make(max_iter=2000, n_iter_no_change=2, n_inducing=40)
    model.fit(X, y, X_val=rng.normal(size=(40, 3)), y_val=rng.normal(size=40))
    assert model.n_iter_ < 2000 and model.n_iter_ % 50 == 0
    assert int(np.argmax(model.validation_scores_)) == len(model.validation_scores_) - 3


def test_early_stopping_needs_two_rows():
    with pytest.raises(ValueError, match="at least 2 distinct ones; got 1 sample"):
        make(early_stopping=True).fit(np.zeros((3, 1)), np.zeros(3))


def test_tol(data):
    model = make(max_iter=1000, tol=1e9, n_iter_no_change=2).fit(*data)
    assert model.n_iter_ == 150  # the first block is progress, the next two are not
    assert make(max_iter=200, tol=0.0, n_iter_no_change=1).fit(*data).n_iter_ == 200
    small = make(max_iter=1000, tol=1e-2, n_iter_no_change=1, learning_rate=1e-9).fit(*data)
    assert small.n_iter_ < 1000


def test_max_time(data):
    model = make(max_time=1e-9)
    message = "after 1 of 20 steps because max_time=1e-09"
    with pytest.warns(ConvergenceWarning, match=message) as record:
        model.fit(*data)
    assert len(record) == 1
    assert model.n_iter_ == 1 and np.isfinite(model.predict(data[0])).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make(max_time=1e9).fit(*data).n_iter_ == 20


def test_interrupt_leaves_a_usable_model(data, kill):
    kill(DeepSparseGP, 150, error=KeyboardInterrupt)
    model = make(max_iter=400)
    with pytest.warns(ConvergenceWarning, match="interrupted after 150 steps"):
        model.fit(*data)
    assert model.n_iter_ == len(model.loss_curve_) == 150
    assert np.isfinite(model.lower_bound_)
    assert_trained(model, *data)  # the 150 steps are not lost


def test_interrupt_keeps_the_best_validated_state(data, kill, scored):
    kill(DeepSparseGP, 130, error=KeyboardInterrupt)
    states = scored(1.0, 0.0)
    model = make(max_iter=200)
    with pytest.warns(ConvergenceWarning, match="interrupted after 130 steps"):
        model.fit(*data, X_val=data[0], y_val=data[1])
    for name, values in model.members_[0].arrays.items():
        assert_array_equal(values, states[0][name])


@pytest.fixture
def fail_at(watch):
    """Let training fail at some steps, by a loss that is not a number or by an exception."""

    def patch(steps, how):
        def look(n, model, *args):
            if n not in steps:
                return None
            with torch.no_grad():  # as a wild step would
                model.layers[0].Z.fill_(np.nan)
            if how == "raises":
                raise torch.linalg.LinAlgError("The matrix is not positive definite.")
            return np.nan

        return watch(DeepSparseGP, "step", look)

    return patch


@pytest.mark.parametrize(
    ("how", "steps"), [("nan", {0}), ("raises", {30}), ("nan", {70, 71}), ("raises", {199})]
)
def test_step_back(data, fail_at, how, steps):
    calls = fail_at(steps, how)
    model = make(max_iter=200, likelihood="gaussian")
    with pytest.warns(ConvergenceWarning, match="stepped back to the last good state") as record:
        model.fit(*data)
    assert len(record) == 1
    assert model.n_iter_ == 200 and len(calls) == 200
    assert np.isfinite(model.predict(data[0])).all() and np.isfinite(model.lower_bound_)
    assert_trained(model, *data)
    last = max(steps)
    if last < 45:  # the schedule is constant in the first half
        assert calls[last + 1][-1] == 0.5 * calls[0][-1]  # rates


@pytest.mark.parametrize("how", ["raises", "nan"])
def test_failing_again_and_again(data, fail_at, how):
    fail_at(range(150, 10**6), how)
    model = make(max_iter=400)
    with pytest.warns(ConvergenceWarning) as record:
        model.fit(*data)
    messages = [str(warning.message) for warning in record]
    assert len(messages) == 2 and "again and again" in messages[1]
    assert model.n_iter_ == 160
    assert np.isfinite(model.predict(data[0])).all()
    assert_trained(model, *data)


def test_failing_from_the_start(data, fail_at):
    fail_at(range(10**6), "nan")
    with pytest.warns(ConvergenceWarning) as record:
        model = make().fit(*data)
    assert "never finite" in str(record[-1].message)
    assert np.isfinite(model.predict(data[0])).all()  # the starting values


def test_last_step_that_spoils_everything(data, monkeypatch):
    """The loss of a step is that before its update, so a wild last update shows in no loss."""
    step, calls = Adam.step, iter(range(1, 1000))

    def spoiling(self, *args):
        step(self, *args)
        if next(calls) == 60:
            with torch.no_grad():
                self._parameters[0].fill_(np.nan)

    monkeypatch.setattr(Adam, "step", spoiling)
    model = make(max_iter=60)
    with pytest.warns(ConvergenceWarning, match="last good state"):
        model.fit(*data)
    assert np.isfinite(model.predict(data[0])).all()


def test_warm_start(data):
    X, y = data
    model = make(max_iter=150, warm_start=True).fit(X, y)
    before, loss = model.predict(X), np.mean(model.loss_curve_[-10:])
    fresh = np.mean(model.loss_curve_[:10])
    model.set_params(max_iter=20, learning_rate=1e-3).fit(X, y)
    assert model.n_iter_ == 20
    assert abs(np.mean(model.loss_curve_[:10]) - loss) < 0.1 * (fresh - loss)
    assert np.abs(model.predict(X) - before).max() < 0.1 * y.std()
    model.set_params(warm_start=False).fit(X, y)
    assert abs(np.mean(model.loss_curve_[:10]) - loss) > 0.5 * (fresh - loss)


def test_warm_start_keeps_scaling(data):
    X, y = data
    model = make(warm_start=True).fit(X, y)
    assert_array_equal(model.predict(X), make().fit(X, y).predict(X))  # there was nothing to keep
    Z = model.inducing_inputs_[0]
    model.set_params(learning_rate=1e-15, max_iter=1).fit(2.0 * X[:30] + 1.0, 100.0 * y[:30])
    assert_allclose(model.inducing_inputs_[0], Z, rtol=1e-9)


def test_warm_start_with_targets_in_other_units(data):
    X, y = data
    model = make(warm_start=True).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X, y + 10.0 * y.std())
    with pytest.warns(UserWarning, match="targets lie far from those of the last fit") as record:
        model.fit(X, 1e6 + 1000.0 * y)
    assert record[0].filename == __file__


@pytest.fixture
def warm(data):
    """A fitted model that goes on, and is fitted anew in each test."""
    return make(warm_start=True, likelihood="gaussian").fit(*data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 3}, "the model of the last fit"),
        ({"width": 2}, "the model of the last fit"),
        ({"mean": "zero"}, "the model of the last fit"),
        ({"input_connected": True}, "the model of the last fit"),
        # these would be ignored
        ({"kernel": "matern32"}, ".*, so kernel must stay"),
        ({"n_inducing": 5}, ".*, so n_inducing must stay"),
        ({"likelihood": "student_t"}, ".*, so likelihood must stay"),
        ({"likelihood": Gaussian(variance=0.5, trainable=False)}, ".*, so likelihood must stay"),
        ({"standardize": False}, ".*, so standardize must stay"),
    ],
)
def test_warm_start_of_another_model(data, warm, change, message):
    with pytest.raises(ValueError, match=f"warm_start=True goes on with {message}"):
        warm.set_params(**change).fit(*data)
    warm.set_params(warm_start=False).fit(*data)


def test_start_from_a_classifier_keeps_the_units_of_the_target(data):
    X, y = data
    settings = {"inference": "dsvi", "n_inducing": 10, "random_state": 0}
    donor = DeepGPClassifier(max_iter=5, **settings).fit(X, y > y.mean())
    target = 1e3 + 100.0 * y
    settings = {"n_inducing": 10, "likelihood": "gaussian", "max_iter": 100}
    model = make(init=donor, **settings).fit(X, target)
    plain = make(**settings).fit(X, target)
    assert model.score(X, target) > plain.score(X, target) - 0.1
    assert_allclose(model._y_scaler.scale, plain._y_scaler.scale)


def test_one_row_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = make(max_iter=100).fit([[0.0]], [5.0])
    assert_allclose(model.predict([[0.0]]), [5.0], atol=0.1)


@pytest.mark.parametrize("y", [0.0, -300.0])
@pytest.mark.parametrize(
    "inference", ["auto", "dsvi", "exact", "vecchia", "collapsed", "structured"]
)
def test_one_row_leaves_the_size_of_the_noise_open(inference, y):
    """Error bars are as large as the target itself, or its unit: nothing else is known."""
    layers = 1 if inference in ("exact", "vecchia") else 2
    model = DeepGPRegressor(layers, inference=inference, max_iter=20, random_state=0)
    mean, std = model.fit([[1.0], [2.0]], [y, 7.0], sample_weight=[1, 0]).predict([[1.0]], True)
    size = max(1.0, abs(y))
    assert abs(mean[0] - y) < size and 0.7 * size < std[0] < 3.0 * size
    several = model.fit(np.ones((9, 1)), np.full(9, y)).predict([[1.0]], return_std=True)[1]
    assert several[0] < 0.7 * size


@pytest.mark.parametrize("n_features", [2, 6])
def test_warm_start_with_other_features(data, warm, n_features):
    with pytest.raises(ValueError, match=f"X has {n_features} features"):
        warm.fit(np.tile(data[0], 2)[:, :n_features], data[1])


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (3, 1)])
def test_warm_start_with_other_outputs(data, before, after):
    X, y = data
    y = np.column_stack([y, y, y])
    model = make(warm_start=True).fit(X, y[:, :before])
    with pytest.raises(ValueError, match=r"warm_start=True|outputs"):
        model.fit(X, y[:, :after])


def test_n_threads(data, watch, kill):
    before, inside = torch.get_num_threads(), []
    for owner, name in ((DeepSparseGP, "step"), (DeepPosterior, "latent")):
        watch(owner, name, lambda *_: inside.append(torch.get_num_threads()))
    model = make(n_threads=before + 1, max_iter=2).fit(*data)
    assert set(inside) == {before + 1} and torch.get_num_threads() == before
    inside.clear()
    model.predict(data[0])
    assert set(inside) == {before + 1} and torch.get_num_threads() == before
    make(max_iter=2).fit(*data)
    assert inside[-1] == 1
    kill(Trainer, 0, name="run", error=ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        make(n_threads=before + 1).fit(*data)
    assert torch.get_num_threads() == before


def test_bound_of_many_rows_takes_fewer_draws(data, monkeypatch):
    """Each row is seen by a part of the draws, at least by one; the sum hardly changes."""
    settings = {"inference": DSVI(inner_scale=0.3), "max_iter": 20, "n_predict_draws": 64}
    bounds, used = [], []
    for total in (64, 8, 0.5):
        monkeypatch.setattr("skdgp.fitting.fitted._BOUND_DRAWS", int(total * 80))
        model = make(**settings).fit(*data)
        bounds.append(model.lower_bound_)
        used.append(len(model.members_[0].draws))
    assert used == [64] * 3  # predictions keep all
    assert 0.0 < abs(bounds[1] - bounds[0]) < 0.02 * abs(bounds[0])
    assert 0.0 < abs(bounds[2] - bounds[0]) < 0.2 * abs(bounds[0])


def test_bound_that_overflows_is_a_number(data, watch):
    """Rates of counts do, under a model that went astray."""
    watch(Mixture, "expected_log_prob", lambda n, self, y: torch.full((len(y),), -torch.inf))
    assert make(max_iter=2).fit(*data).lower_bound_ == -np.finfo(np.float64).max


@pytest.mark.parametrize("inference", ["dsvi", "rff", "auto"])
def test_means_of_targets_that_are_mostly_zero(inference):
    """Heavy tails took what is not zero for outliers."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (200, 2))
    y = np.where(rng.random(200) < 0.7, 0.0, np.exp(0.5 * rng.standard_normal(200)))
    model = DeepGPRegressor(inference=inference, max_iter=60, random_state=0).fit(X, y)
    if inference != "auto":  # which learns zeros apart
        assert "StudentT" not in repr(model.likelihood_)
    error = y.std() / np.sqrt(200)
    assert abs(model.predict(X).mean() - y.mean()) < 2.0 * error
    model.set_params(max_iter=1).fit(X, X[:, 0] + rng.normal(size=200))
    assert "HeteroscedasticStudentT" in repr([member.likelihood_ for member in model.members_])


@pytest.mark.parametrize(
    ("capability", "dtype", "device"),
    [
        ((9, 0), "auto", "cuda"),
        ((8, 0), "float64", "cuda"),
        ((8, 9), "auto", "cpu"),  # a 64th of the speed in double precision
        ((7, 5), "float64", "cpu"),
        ((8, 9), "float32", "cuda"),
    ],
)
def test_auto_takes_gpus_that_are_fast_enough(monkeypatch, capability, dtype, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert training_device("auto", dtype) == device
    assert training_device("cpu", dtype) == "cpu"
