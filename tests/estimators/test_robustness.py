"""Finite numbers or a sentence, whatever comes in."""

import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.ensemble import AdaBoostClassifier

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.gp.kernels import Matern, SquaredExponential

DEEP = ("dsvi", "structured", "aep", "rff", "diwp", "nngp", "global")
FEW = {"max_iter": 6, "learning_rate": 0.1, "n_inducing": 5, "n_predict_draws": 4}

profile = settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

SIZES = [1e-8, 1e-3, 1.0, 1e4, 1e8]
KERNELS = "squared_exponential matern32 matern52 rational_quadratic anova arc_cosine linear".split()
TROUBLES = ["constant", "repeated", "outlier", "binary", "rare"]


@st.composite
def inputs(draw, min_rows=1):
    """Rows of every shape, scale and memory layout, with what makes columns difficult."""
    n, d = draw(st.integers(min_rows, 25)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    X = rng.standard_normal((n, d))
    X *= draw(st.lists(st.sampled_from(SIZES), min_size=d, max_size=d))
    X += draw(st.sampled_from([0.0, 0.0, 1.0, -1e6]))
    for trouble in draw(st.sets(st.sampled_from(TROUBLES))):
        j = draw(st.integers(0, d - 1))
        if trouble == "constant":
            X[:, j] = draw(st.sampled_from([0.0, 0.1, -1e6]))
        elif trouble == "repeated":
            X[n // 2 :] = X[0]
        elif trouble == "outlier":
            X[-1, j] += 100.0 * (X[:, j].std() + 1e-8)
        elif trouble == "binary":
            X[:, j] = rng.integers(0, 2, n)
        else:
            X[:, j] = 0.0
            X[0, j] = 1.0
    return draw(layouts(X))


@st.composite
def layouts(draw, X):
    kind = draw(st.sampled_from(["float64", "float32", "fortran", "strided", "read-only", "list"]))
    if kind == "float32":
        return X.astype(np.float32)
    if kind == "fortran":
        return np.asfortranarray(X)
    if kind == "strided":
        return np.repeat(X, 2, axis=0)[::2]
    if kind == "read-only":
        X.flags.writeable = False
    return X.tolist() if kind == "list" else X


@st.composite
def targets(draw, n):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    y = rng.standard_normal(n) * draw(st.sampled_from(SIZES)) + draw(st.sampled_from([0.0, 1e6]))
    if draw(st.booleans()):
        y[0] += 100.0 * y.std() + 1.0
    if draw(st.integers(0, 4)) == 0:
        y[:] = y[0]
    if draw(st.integers(0, 3)) == 0:
        y = np.column_stack([y, -y])
    return y


shapes = st.fixed_dictionaries(
    {
        "n_layers": st.sampled_from([1, 2, 3]),
        "width": st.sampled_from([None, 1, 3]),
        "input_connected": st.booleans(),
        "init": st.sampled_from(["kmeans", "random"]),
        "mean": st.sampled_from(["linear", "zero"]),
        "batch_size": st.sampled_from([None, 1, 4]),
        "dtype": st.sampled_from(["auto", "float32"]),
        "kernel": st.sampled_from(KERNELS),
    }
)


inferences = pytest.mark.parametrize("inference", ["auto", "dsvi"])


def assert_finite_curves(model):
    """Of all members; a mixture has no lower bound."""
    assert all(np.isfinite(member.record.loss_curve).all() for member in model.members_)
    assert np.isfinite(getattr(model, "lower_bound_", 0.0))


@inferences
@settings(profile, max_examples=15)
@given(st.data(), shapes, st.sampled_from(["gaussian", "heteroscedastic", "student_t"]))
def test_regression(inference, data, shape, likelihood):
    X = data.draw(inputs())
    y = data.draw(targets(len(X)))
    weights = data.draw(st.sampled_from([None, np.arange(1.0, len(X) + 1.0)]))
    model = DeepGPRegressor(inference=inference, random_state=0, **shape, **FEW)
    model.set_params(likelihood=likelihood).fit(X, y, sample_weight=weights)
    far = 1e3 * np.asarray(X, dtype=np.float64)[:2] + 1.0  # where nothing was seen
    for rows in (X, far):
        mean, std = model.predict(rows, return_std=True)
        assert mean.shape == std.shape == (len(rows), *y.shape[1:])
        assert np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0.0).all()
        quantiles = model.predict_quantiles(rows, [0.05, 0.5, 0.95])
        assert np.isfinite(quantiles).all() and (np.diff(quantiles, axis=-1) > 0.0).all()
        assert np.isfinite(model.sample_y(rows)).all()
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert_finite_curves(model)
    spread = np.ptp(y, axis=0) + 1e-6 * np.abs(y).max() + 1.0
    assert (np.abs(model.predict(X) - np.mean(y, axis=0)) <= 10.0 * spread).all()


@settings(profile, max_examples=12)
@given(st.data(), shapes)
def test_counts(data, shape):
    X = data.draw(inputs())
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    y = rng.poisson(data.draw(st.sampled_from([0.0, 0.1, 3.0, 1e4, 1e8])), len(X))
    model = DeepGPRegressor(likelihood="poisson", random_state=0, **shape, **FEW).fit(X, y)
    mean, std = model.predict(X, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all() and (mean > 0.0).all()
    assert np.isfinite(model.predict_quantiles(X)).all()
    assert np.isfinite(model.sample_y(X)).all()
    assert np.isfinite(model.log_predictive_density(X, y)).all()
    assert_finite_curves(model)


@settings(profile, max_examples=24)
@given(st.data(), shapes, st.sampled_from(["probit", "logit", "softmax", "robustmax"]))
def test_classification(data, shape, likelihood):
    X = data.draw(inputs(min_rows=3))
    n_classes = 2 if likelihood in ("probit", "logit") else data.draw(st.sampled_from([2, 3, 7]))
    y = np.arange(len(X)) % n_classes
    assume(len(np.unique(y)) > 1)
    if likelihood in ("probit", "logit"):
        y = y * 2 - 1
    model = DeepGPClassifier(likelihood=likelihood, random_state=0, **shape, **FEW).fit(X, y)
    far = 1e3 * np.asarray(X, dtype=np.float64)[:2] + 1.0
    for rows in (X, far):
        proba = model.predict_proba(rows)
        assert np.isfinite(proba).all() and (proba >= 0.0).all()
        assert_allclose(proba.sum(1), 1.0, rtol=1e-9)
        assert np.isfinite(model.predict_log_proba(rows)).all()
    assert_finite_curves(model)
    assert set(model.sample_y(X).ravel()) <= set(y)


@inferences
@settings(profile, max_examples=5)
@given(st.data())
def test_early_stopping_and_chunks(inference, data):
    X = data.draw(inputs(min_rows=2))
    y = data.draw(targets(len(X)))
    model = DeepGPRegressor(inference=inference, random_state=0, **FEW)
    model.partial_fit(X, y).partial_fit(X[:1], y[:1])
    assert np.isfinite(model.predict(X)).all()
    model.set_params(early_stopping=True)
    try:
        model.fit(X, y)
    except ValueError as error:
        assert "at least 2 distinct ones" in str(error)  # noqa: PT017
    assert np.isfinite(model.predict(X)).all()


def test_more_columns_than_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10, 200))
    model = DeepGPRegressor(random_state=0, width=40, **FEW).fit(X, X[:, 0])
    assert np.isfinite(model.predict(X)).all()


def test_fewer_rows_than_inducing_points():
    X = np.arange(6.0)[:, None]
    for early_stopping in (False, True):
        model = DeepGPRegressor(n_inducing=50, max_iter=5, early_stopping=early_stopping)
        members = model.fit(X, X[:, 0]).members_
        assert all(len(member.inducing_inputs_[0]) <= 6 for member in members)
    repeated = model.set_params(inference="dsvi").fit(np.repeat(X, 9, axis=0), np.arange(54))
    assert np.isfinite(repeated.predict(X)).all()


@pytest.mark.parametrize("n_inducing", [None, 50])
@pytest.mark.parametrize(
    "kernel", [Matern(1.5, 1e-6, trainable=False), SquaredExponential(30.0, 1e10, trainable=False)]
)
def test_kernels_that_rounding_makes_indefinite(n_inducing, kernel):
    # as rows that are repeated with other targets can make them; this ended a fit
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.standard_normal((40, 5)), 5, 0), rng.standard_normal(200)
    order = rng.permutation(200)
    model = SparseGPRegressor(kernel=kernel, n_inducing=n_inducing, random_state=0)
    mean, std = model.fit(X[order], y[order]).predict(X[::5], return_std=True)
    assert np.isfinite(mean).all() and (std > 0.0).all()
    if kernel.lengthscale < 1.0 and n_inducing is None:  # each place by itself, with five targets
        share = y.var() / (y.var() + model.likelihood_.variance[0] / 5.0)
        expected = y.mean() + share * (y.reshape(40, 5).mean(1) - y.mean())
        assert_allclose(mean, expected, atol=1e-4)


def test_large_offset():
    """Differences of one in columns around a billion are seen."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(60, 1))
    model = DeepGPRegressor(max_iter=20, n_inducing=10, learning_rate=0.02, random_state=0)
    plain = model.fit(X, np.sin(X[:, 0])).predict(X)
    moved = model.fit(X + 1e9, np.sin(X[:, 0]) + 1e9).predict(X + 1e9) - 1e9
    assert_allclose(moved, plain, atol=0.05)


def test_outlier_in_a_column_does_not_hide_the_rest():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(80, 1))
    X[0] = 1e9
    y = np.sin(2.0 * X[:, 0])
    model = DeepGPRegressor(max_iter=40, n_inducing=10, learning_rate=0.02, random_state=0)
    assert model.fit(X, y).score(X[1:], y[1:]) > 0.9


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_outlier_in_the_target_is_no_catastrophe(likelihood):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(80, 1))
    y = np.sin(2.0 * X[:, 0])
    y[0] = 100.0
    settings = {"max_iter": 60, "n_inducing": 15, "learning_rate": 0.02, "random_state": 0}
    model = DeepGPRegressor(likelihood=likelihood, **settings).fit(X, y)
    error = np.abs(model.predict(X) - np.sin(2.0 * X[:, 0]))
    assert np.median(error) < 0.5


def test_no_noise_at_all():
    """The noise goes to its floor; nothing fails."""
    X = np.linspace(0.0, 1.0, 40)[:, None]
    model = DeepGPRegressor(max_iter=100, n_inducing=20, learning_rate=0.02, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, 3.0 * X[:, 0] + 1.0)
    mean, std = model.predict(X, return_std=True)
    assert_allclose(mean, 3.0 * X[:, 0] + 1.0, atol=0.1)
    assert np.isfinite(std).all() and (std > 0.0).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("rate", "dtype"), [(1.0, "float32"), (30.0, "float64")])
def test_wild_steps(rate, dtype):
    """A step size that is far too large ends in finite numbers, perhaps with a warning."""
    X = np.random.default_rng(0).standard_normal((30, 2))
    settings = {"max_iter": 30, "n_inducing": 5, "learning_rate": rate, "dtype": dtype}
    model = DeepGPRegressor(n_layers=3, random_state=0, **settings)
    mean, std = model.fit(X, np.sin(X[:, 0])).predict(X, return_std=True)
    assert np.isfinite(mean).all() and np.isfinite(std).all()


def test_threads_of_python():
    """Models may be fitted side by side in threads."""
    from joblib import Parallel, delayed

    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))

    def fit():
        return DeepGPRegressor(random_state=0, **FEW).fit(X, X[:, 0]).predict(X)

    one = fit()
    for other in Parallel(2, backend="threading")(delayed(fit)() for _ in range(4)):
        assert_allclose(other, one, rtol=1e-6)


# Forks

FORK = """
import os, signal, sys, warnings
import numpy as np
from skdgp import DeepGPRegressor
warnings.simplefilter("ignore")  # newer versions of Python warn of forks
X = np.random.default_rng(0).standard_normal((300, 4))
y = X[:, 0]

def make(n_threads=None):
    return DeepGPRegressor(inference="dsvi", max_iter=2, n_inducing=20, n_threads=n_threads)

def child(call):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # ends a child that hangs
        try:
            call()
        except RuntimeError as error:
            refused = "was forked" in str(error) and "loky" in str(error)
            os._exit(3 if refused else 4)
        except BaseException:
            os._exit(5)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print({0: "fine", 3: "refused"}.get(code, f"failed with {code}"))

"""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


def outcomes_of_children(threads, body):
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", FORK + body]
    result = subprocess.run(
        command, env=environment, timeout=240, check=True, stdout=subprocess.PIPE, text=True
    )
    return result.stdout.split("\n")[:-1]


@forks
def test_fork_after_threads_is_refused():
    """Such a child would wait for threads that are not there; after work with one, as by default, none is."""
    outcomes = outcomes_of_children(
        2,
        """
child(lambda: make().fit(X, y))
model = make(n_threads=1).fit(X, y)
model.predict(X)
child(lambda: make(n_threads=1).fit(X, y))
model = make(n_threads=2).fit(X, y)
child(lambda: make(n_threads=2).fit(X, y))
child(lambda: model.predict(X))
child(lambda: make(n_threads=2).partial_fit(X, y))
model.predict(X)
""",
    )
    assert outcomes == ["fine", "fine", "refused", "refused", "refused"]


@forks
def test_fork_after_work_with_one_thread_is_fine():
    """Until an estimator takes several by n_threads, where the environment has one."""
    outcomes = outcomes_of_children(
        1,
        """
model = make().fit(X, y)
child(lambda: make().fit(X, y))
child(lambda: model.predict(X))
model = make(n_threads=2).fit(X, y)
child(lambda: make(n_threads=2).fit(X, y))
""",
    )
    assert outcomes == ["fine", "fine", "refused"]


#: inference_mode forbids all that no_grad does, and more
@pytest.mark.parametrize(
    ("model", "without_gradients"),
    [
        (DeepGPClassifier(max_iter=5, random_state=0), torch.inference_mode),
        (SparseGPRegressor(n_inducing=5, max_iter=5, random_state=0), torch.no_grad),
        (SparseGPClassifier(n_inducing=5, max_iter=5, random_state=0), torch.inference_mode),
        *(
            (DeepGPRegressor(n_layers, max_iter=5, random_state=0, **given), torch.inference_mode)
            for n_layers, given in (
                *((2, {"inference": name}) for name in ("auto", *DEEP)),
                *((1, {"inference": name}) for name in ("vecchia", "exact", "vfe")),
                (2, {"inference": "dsvi", "init": "greedy"}),
            )
        ),
    ],
)
def test_a_caller_without_gradients_changes_nothing(model, without_gradients):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = (X[:, 0] > 0.0) if hasattr(model, "predict_proba") else np.sin(X[:, 0])
    expected = clone(model).fit(X, y)
    with without_gradients():
        fitted = clone(model).fit(torch.tensor(X), torch.tensor(y))
        inside = fitted.log_predictive_density(X, y)
        assert not torch.is_grad_enabled()
    for member, other in zip(fitted.members_, expected.members_, strict=True):
        assert member.record.loss_curve == other.record.loss_curve
    assert_array_equal(inside, expected.log_predictive_density(X, y))


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_models_that_a_caller_without_gradients_has_made_learn_from_chunks(without_gradients):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    y = np.sin(X[:, 0])
    first = DeepGPRegressor(inference="dsvi", **FEW, random_state=0).fit(X, y)
    for use in (lambda model: model.predict(X), lambda model: model.members_[0].kernels_):
        expected, used = pickle.loads(pickle.dumps(first)), pickle.loads(pickle.dumps(first))
        with without_gradients():
            use(used)
        used.partial_fit(X, y)
        assert_array_equal(used.predict(X), expected.partial_fit(X, y).predict(X))
    with without_gradients():
        used.partial_fit(X, y)
    assert_array_equal(used.predict(X), expected.partial_fit(X, y).predict(X))


def test_global_settings_stay(no_global_randomness):
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    grad, deterministic = torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()
    X = np.random.default_rng(0).standard_normal((20, 2))
    model = DeepGPRegressor(n_threads=1, dtype="float32", random_state=0, **FEW).fit(X, X[:, 0])
    model.predict(X, return_cov=True)
    model.sample_y(X)
    assert torch.get_num_threads() == threads and torch.get_default_dtype() == dtype
    assert torch.is_grad_enabled() == grad
    assert torch.are_deterministic_algorithms_enabled() == deterministic
    assert_array_equal(np.geterr()["over"], "warn")


# Weights on another scale

EVERY_ESTIMATOR = [
    DeepGPRegressor(random_state=0, **FEW),
    DeepGPClassifier(inference="dsvi", random_state=0, **FEW),
    SparseGPRegressor(n_inducing=5, max_iter=5, random_state=0),
    SparseGPClassifier(n_inducing=5, max_iter=5, random_state=0),
]


def weighted_rows():
    X = np.random.default_rng(0).standard_normal((40, 2))
    return X, (X[:, 0] > 0.0).astype(int)


@pytest.mark.parametrize("model", EVERY_ESTIMATOR, ids=lambda model: type(model).__name__)
def test_weights_that_add_up_to_one_warn(model):
    """They count one row in all; scikit-learn's boosting passes them."""
    X, y = weighted_rows()
    for weights in (np.ones(40) / 40.0, np.arange(40.0) / 780.0):
        with pytest.warns(
            UserWarning, match="of a row each.*weight / sample_weight.mean"
        ) as caught:
            model.fit(X, y, sample_weight=weights)
        assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match="0.025 of a row each"):
        AdaBoostClassifier(EVERY_ESTIMATOR[-1], n_estimators=1).fit(X, y)


@pytest.mark.parametrize("model", EVERY_ESTIMATOR, ids=lambda model: type(model).__name__)
def test_weights_that_count_rows_do_not_warn(model):
    X, y = weighted_rows()
    forgetting = 0.5 ** np.arange(40.0)  # with a mean of 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for weights in (np.arange(40) % 10 == 0, np.full(40, 0.5), forgetting, None):
            model.fit(X, y, sample_weight=weights)
        light = np.full(40, 0.01)
        model.fit(X, y, X_val=X, y_val=y, sample_weight_val=light)
        if hasattr(model, "partial_fit"):  # a pass over a chunk may count for a part of its rows
            clone(model).partial_fit(X, y, sample_weight=light)


@pytest.mark.parametrize("size", [1.7e308, 1e200])
@pytest.mark.parametrize("model", [DeepGPRegressor(random_state=0, **FEW), SparseGPRegressor()])
def test_targets_whose_variances_overflow_are_refused(model, size):
    """Also in chunks and held-out rows; smaller ones have finite predictions."""
    X, y = weighted_rows()
    y = np.where(np.arange(40) % 2, -1.0, 0.1) * y
    with pytest.raises(ValueError, match=r"y has values above 1e\+150.*choose a larger unit"):
        model.fit(X, size * y)
    model = clone(model).fit(X, 1e149 * y)
    with pytest.raises(ValueError, match=r"y_val.*y has values above"):
        model.fit(X, y, X_val=X, y_val=size * y)
    if hasattr(model, "partial_fit"):
        model = DeepGPRegressor(inference="dsvi", **FEW).partial_fit(X, 1e149 * y)
        with pytest.raises(ValueError, match="y has values above"):
            model.partial_fit(X, size * y)
    assert np.isfinite(model.predict_var(X)).all()
    assert np.isfinite(model.predict_quantiles(X, [1e-9, 1.0 - 1e-9])).all()
