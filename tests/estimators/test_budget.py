"""What a fit does with its time, its memory, and with errors of the user."""

import time
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.exceptions import TrainingFailed
from skdgp.fitting import table as data_module
from skdgp.fitting.table import Rows, Table, stratified, without_last_of_class
from skdgp.inference import VFE
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.inference.exact import ExactGP
from skdgp.training import budget as budget_module
from skdgp.training.budget import Budget, affordable, planned_ends
from skdgp.training.checkpoint import Checkpoint

FEW = {"max_iter": 5, "n_inducing": 10, "n_predict_draws": 8, "random_state": 0}


# Seconds


def test_members_side_by_side_end_when_a_worker_is_free():
    """Brute force on paper: workers take 3 and 2, then 1 at 2, then 4 at 3."""
    assert_array_equal(planned_ends([3.0, 2.0, 1.0, 4.0], 2), [3.0, 2.0, 3.0, 7.0])
    assert_array_equal(planned_ends([3.0, 2.0, 1.0], 1), [3.0, 5.0, 6.0])
    assert_array_equal(planned_ends([3.0, 2.0], 8), [3.0, 2.0])


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_shares_hold_the_budget_and_savings_go_to_the_next(n_jobs, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(budget_module.time, "monotonic", lambda: clock[0])
    budget = Budget(10.0, 100.0, [1.0, 1.0, 2.0], n_jobs)
    ends = np.array([budget.left(i) for i in range(3)])
    np.testing.assert_allclose(
        ends, 10.0 * np.array([[1, 2, 4], [1, 1, 3]])[n_jobs - 1] / [4, 3][n_jobs - 1]
    )
    clock[0] = 100.5  # the first one was ready after half a second
    assert budget.left(1) == pytest.approx(ends[1] - 0.5)
    clock[0] = 111.0
    assert budget.left(2) == pytest.approx(-1.0)
    assert Budget(None, 0.0).left(0) is None


def test_fewer_inducing_points_come_before_fewer_rows():
    scheme = VFE()
    unit = budget_module._SECONDS_OF_CUBE["cpu"]
    for cubes in (1e9, 1e8, 1e7):
        n, m = affordable(scheme, cubes * unit, 1000, 400, True)
        step, end = scheme.cubes(n, m)
        assert 10 * step + end <= cubes
        assert n == 1000 or m == 30
        step, end = scheme.cubes(n + (n < 1000), m + (n == 1000))
        assert 10 * step + end > cubes  # none more
    assert affordable(scheme, 1e7 * unit, 1000, 400, False)[1] == 400
    assert affordable(scheme, 1e12 * unit, 1000, 400, True) == (1000, 400)


@pytest.mark.parametrize("inference", ["exact", "nngp", "collapsed", "vfe", "ess"])
def test_rows_that_time_is_enough_for(inference, wave, monkeypatch):
    """On a slow machine, a model has fewer rows or inducing points, and says how many."""
    monkeypatch.setitem(budget_module._SECONDS_OF_CUBE, "cpu", 2e-3)
    layers = 1 if inference in ("exact", "vfe") else 2
    settings = {"inference": inference, "max_time": 500.0, "max_iter": 2, "random_state": 0}
    with pytest.warns(
        ConvergenceWarning, match="enough for [0-9]+ of 60 (rows|inducing points) with"
    ):
        model = DeepGPRegressor(layers, **settings).fit(*wave)
    assert np.isfinite(model.predict(wave[0])).all()
    assert model._n_rows < 60 or len(model.inducing_inputs_[0]) < 60


def test_enough_time_changes_nothing(wave):
    settings = {"inference": "exact", "max_iter": 3, "random_state": 0}
    expected = DeepGPRegressor(1, **settings).fit(*wave)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DeepGPRegressor(1, max_time=1e4, **settings).fit(*wave)
    assert_array_equal(model.predict(wave[0]), expected.predict(wave[0]))


def test_training_is_conditioned_on_once(wave, watch):
    """What the last step leads to is factorized once, and not again for the fitted attributes."""
    calls = watch(ExactGP, "_condition")
    model = DeepGPRegressor(1, inference="exact", max_iter=2, random_state=0).fit(*wave)
    model.predict(wave[0])
    assert len(calls) == 1


def test_a_member_without_time_has_no_weight(wave, monkeypatch, watch):
    """The clock jumps in the first member: the others are not trained, and do not predict."""
    steps = watch(ExactGP)
    clock = time.monotonic
    monkeypatch.setattr("time.monotonic", lambda: clock() + 300.0 * len(steps))
    with pytest.warns(ConvergenceWarning, match="not enough to train DSVI, .*a smaller budget"):
        model = DeepGPRegressor(max_time=60.0, **FEW).fit(*wave)
    assert {type(member.scheme).__name__ for member in model.members_} == {"Exact"}
    assert sum(member.mixture_weight for member in model.members_) == pytest.approx(1.0)


# Errors of the user, and failures of training


@pytest.mark.parametrize(
    "wrong",
    [{"width": [2, 2]}, {"kernel": ["matern52"] * 3}, {"checkpoint": "a file of something else"}],
)
def test_errors_of_arguments_raise_before_any_member_trains(wrong, wave, watch, tmp_path):
    if "checkpoint" in wrong:
        (tmp_path / "fit.2.npz").write_text("not ours")
        wrong = {"checkpoint": Checkpoint(tmp_path / "fit.npz")}
    calls = watch(ExactGP)
    with pytest.raises(ValueError, match=r"hidden layers|layers; got|not a checkpoint"):
        DeepGPRegressor(**FEW, **wrong).fit(*wave)
    assert not calls


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory"
        ),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        MemoryError("Unable to allocate 3 GiB"),
    ],
)
@pytest.mark.parametrize("estimator", [DeepGPRegressor, DeepGPClassifier])
def test_a_member_without_memory_is_left_out(error, estimator, wave, kill):
    kill(DeepSparseGP, 0, error=error)
    X, y = wave
    with pytest.warns(
        ConvergenceWarning, match="DSVI, was left out: .*(allocate|memory|ALLOC_FAILED)"
    ):
        model = estimator(**FEW).fit(X, y if estimator is DeepGPRegressor else y > 0.0)
    assert np.isfinite(model.predict(X)).all()


def test_other_errors_of_torch_are_not_hidden(wave, kill):
    kill(ExactGP, 0, error=RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        DeepGPRegressor(**FEW).fit(*wave)


# Ctrl-C


def test_ctrl_c_before_a_member_is_trained_is_raised(wave, kill):
    """The first member fails, and Ctrl-C comes in the second one; the last fit stays."""
    X, y = wave
    model = DeepGPRegressor(**FEW).fit(X, y)
    before, expected = dict(vars(model)), model.predict(X)
    kill(ExactGP, 0, error=TrainingFailed("no way"))
    kill(DeepSparseGP, 0, error=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt), pytest.warns(ConvergenceWarning):
        model.fit(X, -y)
    assert vars(model) == before
    assert_array_equal(model.predict(X), expected)


# Callbacks


class Recorder:
    """A callback that counts, and stops a fit at the end of the task with some number."""

    def __init__(self, stop_at=None):
        self.stop_at, self.begun, self.ended = stop_at, [], []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.begun.append((context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context):
        self.ended.append((context.task_name, context.task_id))
        return context.task_name == "block" and context.task_id == self.stop_at

    def teardown(self, estimator, context):
        pass


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("stop_at", [None, 0])
def test_tasks_end_as_often_as_they_begin(n_jobs, stop_at, wave):
    pytest.importorskip("sklearn.callback")
    recorder = Recorder(stop_at)
    model = DeepGPRegressor(n_jobs=n_jobs, **FEW).set_callbacks(recorder).fit(*wave)
    assert sorted(recorder.begun) == sorted(recorder.ended)
    assert len(set(recorder.begun)) == len(recorder.begun)
    assert len(recorder.begun) == (2 if stop_at == 0 else len(recorder.begun)) > 1
    if stop_at == 0:  # which ends the fit, not one member
        assert len(model.members_) == 1


# Hold-outs


def test_stratified_rows_have_the_shares_of_the_classes():
    rng = np.random.default_rng(0)
    labels = rng.choice(4, 503, p=[0.9, 0.06, 0.03, 0.01])
    for seed in range(20):
        chosen = stratified(503, 100, labels, np.random.default_rng(seed))
        assert len(np.unique(chosen)) == 100
        expected = np.bincount(labels) * (100 / 503)
        assert (np.abs(np.bincount(labels[chosen], minlength=4) - expected) < 1.0).all()


def test_the_last_row_of_a_class_is_not_held_out():
    labels = np.array([0, 0, 0, 1, 2, 2])
    assert_array_equal(without_last_of_class(np.array([0, 3, 4, 5]), labels), [0, 5])


@pytest.mark.parametrize("seed", range(5))
def test_early_stopping_holds_out_some_of_each_class(seed):
    y = np.repeat([0.0, 1.0, 2.0], [90, 20, 10])[:, None]
    X = np.arange(120.0)[:, None]
    parts = Table(X, y, np.ones(120)).split(0.1, np.random.RandomState(seed), y[:, 0])
    assert_array_equal([len(part) for part in parts], [108, 12])
    assert_array_equal(np.unique(parts[1].y, return_counts=True)[1], [9, 2, 1])


# Memory maps


@pytest.mark.parametrize("how", ["early stopping", "a weight of zero"])
def test_a_memory_map_stays_on_disk(how, tmp_path, monkeypatch, watch):
    """All tables of the size of X are views that read it when asked."""
    monkeypatch.setattr(data_module, "PRELOAD", 1000)
    monkeypatch.setattr(data_module, "_MERGE", 1000)
    rng = np.random.default_rng(0)
    X = np.memmap(tmp_path / "X", np.float64, "w+", shape=(2000, 3))
    X[:] = rng.standard_normal(X.shape)
    y, weights = np.sin(X[:, 0]), np.ones(2000)
    made, reads = watch(Table, "__init__"), watch(Rows, "__getitem__")
    settings = {"inference": "dsvi", "batch_size": 100, "max_iter": 3, "n_inducing": 5}
    if how == "early stopping":
        settings["early_stopping"] = True
    else:
        weights[0] = 0.0
    model = DeepGPRegressor(random_state=0, **settings).fit(X, y, sample_weight=weights)
    assert np.isfinite(model.predict(X[:5])).all()
    tables = [table for _, table, *_ in made]
    assert all(isinstance(table, Rows) or np.shares_memory(table, X) for table in tables)
    assert any(isinstance(table, Rows) for table in tables) and reads
