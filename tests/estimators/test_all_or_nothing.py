"""A call that fails or is interrupted leaves the estimator, and what the user has given it, as they were."""

import contextlib
import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

import skdgp
from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.exceptions import TrainingFailed
from skdgp.gp.kernels import Matern
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.model_selection import freeze_hyperparameters

PACKAGE = str(Path(skdgp.__file__).parent)
FEW = {"max_iter": 3, "n_inducing": 6, "n_predict_draws": 4, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    """A frame with categories, gaps and dates, and targets."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"a": rng.uniform(size=60), "b": rng.uniform(size=60), "c": rng.choice(list("uvw"), 60)}
    )
    X.loc[::7, "b"] = np.nan
    return X, 3.0 * X.a.to_numpy() + X.c.map({"u": 0.0, "v": 2.0, "w": 4.0}).to_numpy()


def other(X):
    """Rows with a new level, others far away, and a column that varies for the first time."""
    new = X.iloc[:20].copy()
    new.loc[:5, "c"] = "new"
    new.loc[3:, "a"] += 9.0
    return new


def stored(estimator):
    """All that an estimator is, with the objects that it was given, as bytes."""
    return pickle.dumps(vars(estimator))


class Interrupted:
    """Raise an error at the call with this number of any function of the package; count the calls."""

    def __init__(self, at=None, error=KeyboardInterrupt):
        self.at, self.error, self.n_calls = at, error, 0

    def __enter__(self):
        sys.settrace(self)
        return self

    def __exit__(self, *args):
        sys.settrace(None)

    def __call__(self, frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.n_calls += 1
            if self.n_calls == self.at:
                sys.settrace(None)
                raise self.error


# What the user gets wrong


@pytest.mark.parametrize("wrong", [[np.nan, 1.0], [1.0, 1.0, 2.0], ["a", "b"]])
def test_a_refused_chunk_with_a_new_level(rows, wrong):
    """The new level stays unseen, with the error bar of one."""
    model = DeepGPRegressor(inference="dsvi", **FEW).partial_fit(*rows)
    chunk = pd.DataFrame({"a": [0.1, 0.2], "b": [0.1, 0.2], "c": ["new", "u"]})
    before, expected = stored(model), model.predict(chunk, return_std=True)
    with pytest.raises(ValueError, match=r"NaN|inconsistent|numbers"):
        model.partial_fit(chunk, wrong)
    assert stored(model) == before
    assert_array_equal(model.predict(chunk, return_std=True), expected)


def test_a_chunk_that_teaches_nothing(rows, kill):
    model = DeepGPRegressor(inference="dsvi", **FEW).partial_fit(*rows)
    before = stored(model)
    kill(DeepSparseGP, *range(100), error=TrainingFailed("no way"))
    with pytest.raises(TrainingFailed):
        model.partial_fit(*rows)
    assert stored(model) == before


def test_a_chunk_without_a_finite_loss(rows, watch):
    model = DeepGPRegressor(inference="dsvi", **FEW).partial_fit(*rows)
    before = stored(model)
    watch(DeepSparseGP, "step", lambda *_: np.nan)
    with (
        pytest.raises(TrainingFailed, match="nothing of this chunk"),
        pytest.warns(match="not finite"),
    ):
        model.partial_fit(*rows)
    assert stored(model) == before


@pytest.mark.parametrize("at", [0, 2])
def test_an_interrupted_chunk_can_be_passed_again(rows, kill, at):
    """After some of its steps, too; a model that was never stopped is the same in the end."""
    X, y = rows
    model = DeepGPRegressor(inference="dsvi", batch_size=5, **FEW).partial_fit(X, y)
    expected = pickle.loads(pickle.dumps(model)).partial_fit(other(X), y[:20])
    before = stored(model)
    kill(DeepSparseGP, at, error=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt), pytest.warns(match="nothing has been learned"):
        model.partial_fit(other(X), y[:20])
    assert stored(model) == before
    model.partial_fit(other(X), y[:20])
    assert_array_equal(model.predict(X), expected.predict(X))
    assert model._stream["n_rows"] == 80.0


@pytest.mark.parametrize(
    "estimator",
    [
        DeepGPRegressor(kernel=Matern(), **FEW),
        DeepGPClassifier(kernel=Matern(), **FEW),
        SparseGPRegressor(kernel=Matern()),
        SparseGPClassifier(kernel=Matern()),
    ],
)
@pytest.mark.parametrize(
    "wrong",
    [
        {"max_iter": 7, "bogus": 1},
        {"max_iter": 7, "kernel__nu": 0.5, "kernel__bogus": 1},
        {"kernel__nu": 0.5, "bogus__nu": 1},
    ],
)
def test_parameters_are_set_together(estimator, wrong):
    estimator = clone(estimator)
    before = stored(estimator)
    with pytest.raises(ValueError, match=r"[Ii]nvalid parameter 'bogus'"):
        estimator.set_params(**wrong)
    assert stored(estimator) == before


def test_objects_that_are_given_are_not_changed(rows):
    """Another estimator as a start, and the scaling of another fit."""
    X, y = rows[0][["a"]], rows[1]
    source = DeepGPRegressor(1, inference="dsvi", **FEW).fit(X, y)
    frozen = DeepGPRegressor(**{**FEW, **freeze_hyperparameters(source)})
    for model in (DeepGPRegressor(1, inference="dsvi", init=source, **FEW), frozen):
        before = stored(source), stored(model)
        given = {name: pickle.dumps(value) for name, value in model.get_params(deep=False).items()}
        model.fit(X + 1.0, y)
        assert stored(source) == before[0]
        now = {name: pickle.dumps(value) for name, value in model.get_params(deep=False).items()}
        assert now == given


def test_callbacks_are_torn_down_when_a_fit_fails(rows, kill):
    callback = pytest.importorskip("sklearn.callback")

    class Recorder(callback.ProgressBar):
        ended = 0

        def setup(self, estimator, context):
            pass

        def on_fit_task_begin(self, *args, **kwargs):
            pass

        def on_fit_task_end(self, *args, **kwargs):
            return False

        def teardown(self, estimator, context):
            Recorder.ended += 1

    model = DeepGPRegressor(inference="dsvi", **FEW).set_callbacks(Recorder())
    before = set(vars(model))
    kill(DeepSparseGP, 1)
    with pytest.raises(RuntimeError, match="killed"):
        model.fit(rows[0][["a"]], rows[1])
    assert Recorder.ended == 1
    assert set(vars(model)) == before


# Ctrl-C, or an error, anywhere

REGRESSOR = DeepGPRegressor(inference="dsvi", batch_size=20, **FEW)
CALLS = {
    "fit": (REGRESSOR, lambda model, X, y: model.fit(X, y)),
    "first chunk": (REGRESSOR, lambda model, X, y: model.partial_fit(X, y)),
    "fit again": (REGRESSOR, lambda model, X, y: model.fit(other(X), y[:20])),
    "chunk": (REGRESSOR, lambda model, X, y: model.partial_fit(other(X), y[:20])),
    "chunk after fit": (REGRESSOR, lambda model, X, y: model.partial_fit(other(X), y[:20])),
    "warm start": (
        clone(REGRESSOR).set_params(warm_start=True),
        lambda model, X, y: model.fit(X, y),
    ),
    "chunk of classes": (
        DeepGPClassifier(inference="dsvi", **FEW),
        lambda model, X, y: model.partial_fit(other(X), y[:20] > 1.0),
    ),
    "mixture": (DeepGPRegressor(**FEW), lambda model, X, y: model.fit(X, y)),
    "sparse": (SparseGPRegressor(max_iter=2), lambda model, X, y: model.fit(X, y)),
    "parameters": (REGRESSOR, lambda model, X, y: model.set_params(inference__n_draws=3, width=2)),
}


def begun(name, X, y):
    """The estimator before the call, with a random state that the call shares with the user."""
    model, _ = CALLS[name]
    model = (
        clone(model).set_params(random_state=np.random.RandomState(0))
        if name != "sparse"
        else clone(model)
    )
    if name in ("fit again", "chunk after fit", "warm start"):
        return model.fit(X, y)
    if name == "chunk":
        return model.partial_fit(X, y)
    if name == "chunk of classes":
        return model.partial_fit(X, y > 1.0)
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError("none is left")])
@pytest.mark.parametrize("name", CALLS)
def test_calls_that_end_anywhere(rows, name, error, monkeypatch):
    """What is raised leaves all as it was; a fit that Ctrl-C ends early, with a warning, can predict."""
    _, call = CALLS[name]
    X, y = rows
    model = begun(name, X, y)
    with Interrupted() as every:
        call(model, X, y)
    # half of them early, for what comes after the first step is kept
    shares = np.random.default_rng(len(name)).uniform(
        0.0, [1.0, 0.1], (2 if name == "mixture" else 4, 2)
    )
    n_raised = 0
    for at in (1 + (shares.ravel() * every.n_calls).astype(int)).tolist():
        monkeypatch.setattr("skdgp.training.interrupts._last", -np.inf)
        model = begun(name, X, y)
        before, was_fitted = stored(model), hasattr(model, "members_")
        try:
            with Interrupted(at, error):
                call(model, X, y)
        except (
            KeyboardInterrupt,
            MemoryError,
            AttributeError,
        ):  # scikit-learn's, of methods that are not there
            n_raised += 1
            assert stored(model) == before, at
        else:
            assert was_fitted or hasattr(model, "members_") or name == "parameters"
            with contextlib.suppress(AttributeError):
                assert np.isfinite(model.predict(X)).all()
    assert n_raised > 0
