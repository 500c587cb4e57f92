"""Members whose training fails, and errors that are none of training."""

import warnings

import numpy as np
import pytest
import torch
from fake_scheme import Constant, ConstantModel, ConstantPosterior, Running, mixture_of
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.exceptions import TrainingFailed
from skdgp.gp.kernels import SquaredExponential

MAKE = {"target_transform": None, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.uniform(size=(60, 2)), 3.0 + 2.0 * rng.standard_normal(60)


@pytest.fixture
def three(monkeypatch):
    """A mixture of three members, of which the last one is fitted by minibatches."""
    mixture_of(monkeypatch, Constant(), Constant(factor=1.5), Running())


def schemes(model):
    return [repr(member.scheme) for member in model.members_]


def test_members_are_what_they_say(rows, three):
    """The fakes: means and variances of all rows, densities of rows from all others."""
    X, y = rows
    model = DeepGPRegressor(**MAKE).fit(X, y)
    assert schemes(model) == ["Constant()", "Constant(factor=1.5)", "Running()"]
    single = DeepGPRegressor(1, inference=Constant(), likelihood="gaussian", **MAKE).fit(X, y)
    mean, std = single.predict(X[:1], return_std=True)
    assert_allclose([mean[0], std[0]], [y.mean(), y.std()])
    means, stds = (np.array([f(np.delete(y, i)) for i in range(60)]) for f in (np.mean, np.std))
    expected = -0.5 * (((y - means) / stds) ** 2 + np.log(2.0 * np.pi * stds**2))
    assert_allclose(model.members_[0].record.log_density, expected.mean())
    chunks = DeepGPRegressor(1, inference=Running(), likelihood="gaussian", batch_size=10, **MAKE)
    for chunk in (slice(0, 30), slice(30, 60)):
        chunks.partial_fit(X[chunk], y[chunk])
    assert_allclose(chunks.predict(X[:1]), y.mean())


# Failures of training


@pytest.mark.parametrize("owner", [ConstantModel, ConstantPosterior])
@pytest.mark.parametrize(
    "error",
    [
        TrainingFailed("no way"),
        MemoryError("no way"),
        RuntimeError("CUDA error: out of memory"),
        torch.linalg.LinAlgError("no way"),
    ],
)
def test_one_of_them_is_left_out(rows, three, kill, owner, error):
    """In its start, or when it is scored; the others are as without it."""
    expected = DeepGPRegressor(**MAKE).fit(*rows).members_
    kill(owner, 0, name="start" if owner is ConstantModel else "left_out", error=error)
    with pytest.warns(
        ConvergenceWarning, match=r"Constant, was left out: .*(no way|memory)"
    ) as caught:
        model = DeepGPRegressor(**MAKE).fit(*rows)
    assert len(caught) == 1
    assert schemes(model) == ["Constant(factor=1.5)", "Running()"]
    for member, same in zip(model.members_, expected[1:], strict=True):
        assert_array_equal(member.arrays["sums"], same.arrays["sums"])


@pytest.mark.parametrize("steps", [range(100), range(1, 100)])
def test_a_member_that_never_learned_is_left_out(rows, three, watch, steps):
    """No loss was finite, or training went back to the start."""
    n_made = []

    def look(n, model, *args):
        if isinstance(model.scheme, Running):
            n_made.append(n)
            return np.nan if len(n_made) - 1 in steps else None

    watch(ConstantModel, "step", look)
    with pytest.warns(ConvergenceWarning, match="Running, was left out: its loss was not finite"):
        model = DeepGPRegressor(**{**MAKE, "max_iter": 6}).fit(*rows)
    assert len(n_made) == 6
    assert schemes(model) == ["Constant()", "Constant(factor=1.5)"]


def test_a_single_model_that_never_learned_warns(rows, watch):
    watch(ConstantModel, "step", lambda n, *_: np.nan if n else None)
    single = DeepGPRegressor(1, inference=Running(), likelihood="gaussian", max_iter=5, **MAKE)
    with pytest.warns(
        ConvergenceWarning, match="not finite in the first steps: nothing was learned"
    ):
        single.fit(*rows)
    watch(ConstantModel, "step", lambda *_: np.nan)
    with pytest.warns(ConvergenceWarning, match="never finite: nothing was learned"):
        single.fit(*rows)


def test_a_mixture_without_any_member_fails(rows, three, kill):
    kill(ConstantModel, *range(9), name="start", error=TrainingFailed("no way"))
    with pytest.raises(TrainingFailed, match="no way"), pytest.warns(ConvergenceWarning):
        DeepGPRegressor(**MAKE).fit(*rows)


# Errors of the user's, or ours


@pytest.mark.parametrize("name", ["start", "step", "left_out"])
@pytest.mark.parametrize(
    "error",
    [ValueError("shapes"), ZeroDivisionError("shapes"), RuntimeError("shapes"), KeyError("shapes")],
)
def test_other_errors_are_raised(rows, three, kill, name, error):
    kill(ConstantPosterior if name == "left_out" else ConstantModel, 1, name=name, error=error)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(type(error), match="shapes"):
            DeepGPRegressor(**MAKE).fit(*rows)


class Mistaken(SquaredExponential):
    """Wrong for batches of matrices."""

    def profile(self, r2):
        _n, _m = r2.shape
        return torch.exp(-0.5 * r2)


@pytest.mark.parametrize("estimator", [DeepGPRegressor, DeepGPClassifier])
def test_a_mistake_in_a_kernel_is_raised(rows, estimator):
    X, y = rows
    model = estimator(kernel=Mistaken(), max_iter=2, random_state=0)
    with pytest.raises(ValueError, match="unpack"):
        model.fit(X, np.column_stack([y, -y]) if estimator is DeepGPRegressor else y > 3.0)


# Steps that diverge


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("settings", [{"early_stopping": True}, {}])
def test_a_member_that_diverges_is_left_out(settings):
    """Nearest-neighbor models that go back to before their first step have no neighbors."""
    X = np.random.default_rng(100).uniform(-1.0, 1.0, (20, 2))
    y = (X[:, 0] > 0.3 * X[:, 1]).astype(int)
    few = {"kernel": "linear", "learning_rate": 1e4, "max_iter": 8, "random_state": 971}
    with pytest.warns(ConvergenceWarning, match="Vecchia, was left out: .*(not finite|diverged)"):
        model = DeepGPClassifier(**few, **settings).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    with pytest.raises(TrainingFailed, match="diverged in its first steps"):
        DeepGPClassifier(1, inference="vecchia", **few, **settings).fit(X, y)


# Memory


@pytest.mark.parametrize(
    ("error", "match"),
    [
        (
            RuntimeError("you tried to allocate 72000000 bytes. Cannot allocate memory"),
            r"\(72000000 bytes",
        ),
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0"),
            r"\(20.00 GiB",
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `x`"),
            "not enough memory;",
        ),
        (MemoryError(), "not enough memory;"),
    ],
)
def test_missing_memory_is_one_sentence(rows, kill, error, match):
    """In fit, in a chunk and in predictions."""
    X, y = rows
    model = DeepGPRegressor(1, inference=Running(), likelihood="gaussian", **MAKE)
    kill(ConstantModel, 0, error=error)
    with pytest.raises(MemoryError, match=match):
        model.fit(X, y)
    model.fit(X, y)
    kill(ConstantModel, 0, error=error)
    with pytest.raises(MemoryError, match=match):
        model.partial_fit(X, y)
    kill(ConstantPosterior, 0, name="latent", error=error)
    with pytest.raises(MemoryError, match=match):
        model.predict(X)
