"""Training that is killed, and goes on as if it had never stopped."""

import errno
import os
import signal
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.inference import DSVI
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.training import Checkpoint
from skdgp.training import checkpoint as module
from skdgp.training.checkpoint import CheckpointFile, fingerprint

FEW = {"inference": "dsvi", "learning_rate": 0.02, "n_inducing": 8}
FEW |= {"n_predict_draws": 8, "random_state": 0}


class Kill(BaseException):
    """Ends a fit as suddenly as a test can."""


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(60, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)


def make(**changes):
    return DeepGPRegressor(**{**FEW, "max_iter": 70, "batch_size": 20, **changes})


@pytest.fixture
def kill_at(kill):
    """Kill training before some step of the next fit, counted in calls."""
    return lambda calls: kill(DeepSparseGP, calls, error=Kill)


def assert_same(model, other, X):
    assert model.n_iter_ == other.n_iter_
    assert getattr(model, "lower_bound_", None) == getattr(other, "lower_bound_", None)
    for member, same in zip(model.members_, other.members_, strict=True):
        assert_array_equal(member.record.loss_curve, same.record.loss_curve)
        assert_array_equal(member.record.validation_scores, same.record.validation_scores)
        for name, values in same.arrays.items():
            assert_array_equal(member.arrays[name], values, err_msg=name)
    assert_array_equal(model.sample_y(X, 2), other.sample_y(X, 2))


# Resuming

STOPS = {"tol": 1e9, "n_iter_no_change": 1, "max_iter": 1000}  # after 100 steps
CASES = {
    "minibatches": (make(), {}),
    "whole batches": (make(batch_size=None, n_layers=1), {}),
    "held-out rows": (make(early_stopping=True, **STOPS), {}),
    "tolerance": (make(**STOPS), {}),
    "classification": (DeepGPClassifier(max_iter=70, batch_size=25, **FEW), {}),
    "weights": (make(dtype="float32", init="random"), {"sample_weight": np.arange(60.0) % 3}),
}


@pytest.mark.parametrize("case", CASES)
def test_resume(case, data, kill_at, tmp_path):
    """Kills after so many steps of each attempt; the file is written every seven."""
    X, y = data
    model, fit_params = CASES[case]
    y = np.digitize(y, [-0.5, 0.5]) if case == "classification" else y
    expected = clone(model).fit(X, y, **fit_params)
    assert expected.n_iter_ == (100 if model.max_iter == 1000 else 70)
    model = clone(model).set_params(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=7))
    for calls in (3, 45, 24):  # before the first file, between two, and after the last but one
        kill_at(calls)
        with pytest.raises(Kill):
            clone(model).fit(X, y, **fit_params)
    assert_same(model.fit(X, y, **fit_params), expected, X)


@pytest.mark.parametrize("case", ["minibatches", "held-out rows", "tolerance"])
def test_finished_fit_is_finished(case, data, kill_at, tmp_path):
    """A kill between the last save and the end of fit; no step is left to do."""
    model = clone(CASES[case][0]).set_params(checkpoint=tmp_path / "fit.npz")
    expected = clone(model).fit(*data)
    kill_at(0)
    assert_same(model.fit(*data), expected, data[0])


def test_validation_data(data, kill_at, tmp_path):
    X, y = data
    validation = {"X_val": X[:10] + 0.1, "y_val": y[:10]}
    expected = make(**STOPS).fit(X, y, **validation)
    model = make(checkpoint=str(tmp_path / "fit.npz"), **STOPS)
    kill_at(expected.n_iter_ - 1)
    with pytest.raises(Kill):
        model.fit(X, y, **validation)
    assert_same(model.fit(X, y, **validation), expected, X)


def test_steps_that_were_made_are_not_made_again(data, kill_at, watch, tmp_path):
    model = make(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=10))
    kill_at(45)
    with pytest.raises(Kill):
        model.fit(*data)
    steps = watch(DeepSparseGP)
    assert model.fit(*data).n_iter_ == 70
    assert len(steps) == 30


def test_failed_steps_are_remembered(data, kill_at, watch, tmp_path):
    """A step size that was halved stays so after a kill."""
    made = watch(DeepSparseGP, "step", lambda n, *_: np.nan if n == 10 else None)
    model = make(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=10))
    kill_at(30)
    with pytest.raises(Kill), pytest.warns(match="not finite"):
        model.fit(*data)
    n_before = len(made)
    model.fit(*data)
    assert made[n_before][-1] == 0.5  # the rate


def test_interrupt_is_no_kill(data, kill, tmp_path):
    """After Ctrl-C the file still holds the last saved state, and the next fit goes on."""
    expected = make().fit(*data)
    model = make(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=10))
    kill(DeepSparseGP, 55, error=KeyboardInterrupt)
    with pytest.warns(match="interrupted after 55 steps"):
        model.fit(*data)
    assert model.n_iter_ == 55
    assert_same(model.fit(*data), expected, data[0])


@pytest.mark.parametrize("case", ["one model", "mixture"])
def test_no_step_is_repeated_after_an_interrupt(case, data, watch, tmp_path, request):
    """Ctrl-C waits for the end of the step, of all members, which is saved."""
    model, owner = make(checkpoint=tmp_path / "fit.npz"), DeepSparseGP
    if case == "mixture":
        model.set_params(inference="auto", max_iter=9, batch_size=None)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    steps = watch(owner)
    expected = clone(model).set_params(checkpoint=None).fit(*data)
    n_steps = len(steps)
    watch(owner, "step", lambda n, *_: signal.raise_signal(signal.SIGINT) if n == 5 else None)
    with pytest.warns(ConvergenceWarning, match="Training was interrupted"):
        assert 1 < model.fit(*data).n_iter_ < expected.n_iter_
    assert_same(model.fit(*data), expected, data[0])
    assert len(steps) == 2 * n_steps


def test_fit_with_callbacks_resumes(data, kill_at, tmp_path):
    callback = pytest.importorskip("sklearn.callback")
    monitor = callback.ScoringMonitor(scoring="r2")
    model = make(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=10)).set_callbacks(monitor)
    kill_at(65)
    with pytest.raises(Kill):
        model.fit(*data)
    assert_same(model.fit(*data), make().fit(*data), data[0])


def test_warm_start_is_a_new_fit(data, tmp_path):
    """The file of the first fit must not stand for the second, which starts elsewhere."""
    X, y = data
    expected = make(warm_start=True, max_iter=30).fit(X, y).fit(X, y)
    model = make(warm_start=True, max_iter=30, checkpoint=str(tmp_path)).fit(X, y).fit(X, y)
    assert_same(model, expected, X)


# Files


def test_a_path_is_enough(data, tmp_path):
    Checkpoint(tmp_path).open("0123")
    assert Checkpoint(tmp_path / "a").open("0123").load() is None
    assert not list(tmp_path.iterdir())  # nothing is left of the trial
    for path in (str(tmp_path / "a"), tmp_path / "b"):
        make(max_iter=3, checkpoint=path).fit(*data)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b"]


def test_how_often_by_steps(data, tmp_path, watch):
    saved = []

    def look(n, file, arrays, numbers, finished):
        saved.append((numbers["n_iter"], finished))

    watch(CheckpointFile, "save", look)
    make(checkpoint=Checkpoint(tmp_path / "a", n_steps=30)).fit(*data)
    make(checkpoint=Checkpoint(tmp_path / "b", n_steps=None)).fit(*data)
    assert saved == [(30, False), (60, False), (70, True), (70, True)]


def test_how_often_by_seconds(monkeypatch, tmp_path):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    file = Checkpoint(tmp_path / "fit", n_steps=None, n_seconds=10.0).open("f")
    assert not file.due(1, False)
    now[0] = 10.0
    assert file.due(2, False)
    file.save({}, {"n_iter": 2}, False)
    assert not file.due(3, False) and file.due(3, True)
    both = Checkpoint(tmp_path / "fit", n_steps=5, n_seconds=10.0).open("f")
    assert not both.due(4, False) and both.due(5, False)


def test_state_survives_the_file(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"model/Z": rng.standard_normal((3, 2)), "best/n": np.array(3), "empty": np.zeros(0)}
    numbers = {"n_iter": 7, "loss_curve": [0.1, 1e-300, np.inf], "_best_score": -np.inf}
    Checkpoint(tmp_path / "fit").open("f").save(arrays, numbers, False)
    loaded, read, _ = Checkpoint(tmp_path / "fit").open("f").load()
    assert read == numbers and loaded.keys() == arrays.keys()
    for name, values in arrays.items():
        assert_array_equal(loaded[name], values)
        assert loaded[name].dtype == values.dtype


def test_files_that_are_no_checkpoints(data, tmp_path):
    """Other files, archives that are others or hold code, and checkpoints of which a part is missing."""
    path = tmp_path / "fit.npz"
    model = make(max_iter=3, checkpoint=path).fit(*data)
    whole = path.read_bytes()
    np.savez(path, X=np.zeros(3))
    other = path.read_bytes()
    np.savez(path, __header__=np.array([{"format": 1}], dtype=object))
    pickled, half = path.read_bytes(), b"PK\x03\x04 half a zip file"
    for content in (b"", b"hello", half, other, pickled, whole[: len(whole) // 2], whole[:-1]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a checkpoint of skdgp; move it away"):
            model.fit(*data)
        assert path.read_bytes() == content


def test_damaged_checkpoints_and_full_disks_have_errors_of_their_own(tmp_path, monkeypatch):
    path = tmp_path / "fit"
    Checkpoint(path).open("f").save({"a": np.arange(100.0)}, {"n_iter": 1}, False)
    content = path.read_bytes()
    at = content.index(np.arange(100.0).tobytes())
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    with pytest.raises(ValueError, match=r"fit' is damaged \(.*CRC.*\); delete it"):
        Checkpoint(path).open("f").load()

    def full(**kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.tempfile, "NamedTemporaryFile", full)
    with pytest.raises(ValueError, match="because the disk is full; make room"):
        Checkpoint(path).open("f")


@pytest.mark.parametrize("where", ["savez", "replace"])
def test_old_file_stays_if_writing_fails(tmp_path, monkeypatch, where):
    file = Checkpoint(tmp_path / "fit").open("f")
    file.save({"a": np.zeros(3)}, {"n_iter": 1}, False)

    def fail(target, *args, **kwargs):
        if where == "savez":
            target.write(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(np if where == "savez" else os, where, fail)
    with pytest.raises(OSError, match="No space left"):
        file.save({"a": np.ones(3)}, {"n_iter": 2}, False)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["fit"]
    assert file.load()[1] == {"n_iter": 1}


def test_readers_never_see_half_a_file(tmp_path):
    """While one thread writes, another reads whole states only."""
    file = Checkpoint(tmp_path / "fit").open("f")
    file.save({"a": np.zeros(50_000)}, {"n_iter": 0}, False)
    done = threading.Event()

    def write():
        try:
            for i in range(1, 30):
                file.save({"a": np.full(50_000, float(i))}, {"n_iter": i}, False)
                written.append(i)
        finally:
            done.set()

    writer, written = threading.Thread(target=write), []
    writer.start()
    reader, seen = Checkpoint(tmp_path / "fit").open("f"), set()
    while not done.is_set():
        Checkpoint(tmp_path / "fit").open("f")  # whose look at the directory is in nobody's way
        arrays, numbers, _ = reader.load()
        assert (arrays["a"] == numbers["n_iter"]).all()
        seen.add(numbers["n_iter"])
    writer.join()
    assert len(seen) > 1 and len(written) == 29


# Other fits


@pytest.mark.parametrize(
    "change",
    [
        {"n_layers": 3},
        {"max_iter": 130},
        {"random_state": 1},
        {"kernel": "matern52"},
        {"inference": DSVI(n_draws=2)},
        {"learning_rate": 0.01},
        {"standardize": False},
    ],
)
def test_other_parameters(data, tmp_path, change):
    path = tmp_path / "fit.npz"
    make(checkpoint=path).fit(*data)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="a fit with other parameters or other data; move it away"):
        make(checkpoint=path).set_params(**change).fit(*data)
    assert path.read_bytes() == before


def test_a_warm_start_from_another_state(data, tmp_path):
    model = make(checkpoint=tmp_path / "fit.npz", warm_start=True, max_iter=3).fit(*data)
    with pytest.raises(ValueError, match="warm_start=True each fit needs its own file"):
        model.fit(*data)


def test_other_data(data, tmp_path):
    X, y = data
    path = tmp_path / "fit.npz"
    make(checkpoint=path, max_iter=3).fit(X, y)
    X_other, y_other = X.copy(), y.copy()
    X_other[5, 1] += 1e-9
    y_other[5] += 1e-9
    for other in (
        {"X": X_other, "y": y},
        {"X": X, "y": y_other},
        {"X": X[:-1], "y": y[:-1]},
        {"X": X, "y": y, "sample_weight": np.r_[np.ones(59), 2.0]},
        {"X": X, "y": y, "X_val": X[:5], "y_val": y[:5]},
    ):
        with pytest.raises(ValueError, match="other parameters or other data"):
            make(checkpoint=path, max_iter=3).fit(**other)
    make(checkpoint=path, max_iter=3).fit(X[::-1], y[::-1])  # the order of rows is no difference
    model = make(checkpoint=tmp_path / "validated.npz", max_iter=3)
    model.fit(X, y, X_val=X[:5], y_val=y[:5])
    with pytest.raises(ValueError, match="other parameters or other data"):
        model.fit(X, y, X_val=X[5:10], y_val=y[5:10])


def test_one_number_of_many(tmp_path):
    """A typo is mended in one of thousands of rows, and the wrong model is not what fit returns."""
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (3000, 2))
    y = np.sin(3.0 * X[:, 0])
    typo = y.copy()
    typo[np.argsort(X[:, 0])[1]] = 1e6
    model = make(checkpoint=tmp_path / "fit.npz", max_iter=2, n_layers=1).fit(X, typo)
    with pytest.raises(ValueError, match="other parameters or other data"):
        model.fit(X, y)


def test_parameters_with_long_arrays(tmp_path):
    """Numbers that a printed array leaves out count, too."""
    X = np.random.default_rng(0).standard_normal((5, 1200))
    lengthscale = np.full(1200, 30.0)
    model = make(n_layers=1, max_iter=1, checkpoint=tmp_path / "fit.npz")
    model.set_params(kernel=SquaredExponential(lengthscale=lengthscale)).fit(X, X[:, 0])
    other = lengthscale.copy()
    other[600] = 1.0
    with pytest.raises(ValueError, match="other parameters or other data"):
        model.set_params(kernel=SquaredExponential(lengthscale=other)).fit(X, X[:, 0])


def test_what_may_change(data, tmp_path, capsys):
    """Where the file lies, and what is printed, has no influence on the result."""
    model = make(checkpoint=tmp_path / "fit.npz", max_iter=3).fit(*data)
    (tmp_path / "fit.npz").rename(tmp_path / "moved.npz")
    moved = Checkpoint(tmp_path / "moved.npz", n_steps=3)
    again = make(checkpoint=moved, verbose=1, n_threads=1, max_iter=3)
    assert_same(again.fit(*data), model, data[0])
    assert capsys.readouterr().out == ""  # there was nothing to do


def test_random_states_that_are_objects(data, tmp_path):
    """Their seeds cannot be compared beforehand, but the draws of the fit can."""
    model = make(checkpoint=tmp_path / "fit.npz", max_iter=3)
    model.set_params(random_state=np.random.RandomState(0)).fit(*data)
    expected = model.predict(data[0])
    model.set_params(random_state=np.random.RandomState(0)).fit(*data)
    assert_array_equal(model.predict(data[0]), expected)
    with pytest.raises(ValueError, match="other parameters or other data"):
        model.set_params(random_state=np.random.RandomState(1)).fit(*data)


def test_directory(data, tmp_path):
    """Every fit of a search has a file of its own."""
    model = make(checkpoint=tmp_path, max_iter=5)
    grid = {"n_layers": [1, 2], "inference__natural_step": [0.1, 0.2]}
    search = GridSearchCV(model, grid, cv=2).fit(*data)
    assert len(list(tmp_path.glob("*.npz"))) == 9  # with that of the best on all rows
    again = GridSearchCV(model, grid, cv=2).fit(*data)
    assert_array_equal(search.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"])
    assert len(list(tmp_path.glob("*"))) == 9


@pytest.mark.parametrize("where", ["nowhere", "read-only", "a file"])
def test_directories_are_looked_at_before_training(data, kill_at, monkeypatch, tmp_path, where):
    """Else all training would be lost when it is saved."""
    if where == "read-only":
        (tmp_path / where).mkdir()

        def refuse(prefix, dir):  # the tests may be root's, who can write anywhere
            assert dir == str(tmp_path / where)
            raise PermissionError

        monkeypatch.setattr(module.tempfile, "NamedTemporaryFile", refuse)
    elif where == "a file":
        (tmp_path / where).write_text("")
    kill_at(0)
    message = f"{where}/fit.npz' cannot be written, because its directory"
    with pytest.raises(ValueError, match=message):
        make(checkpoint=tmp_path / where / "fit.npz").fit(*data)
    if where == "read-only":
        with pytest.raises(ValueError, match="read-only' cannot be written"):
            make(checkpoint=tmp_path / where).fit(*data)


@pytest.mark.parametrize(
    ("path", "match"),
    [(path, "path of Checkpoint must name a file or a directory; got") for path in ("", 3, b"fit")]
    + [("fit\0.npz", "cannot be written")],
)
def test_paths_that_cannot_be(data, kill_at, path, match):
    kill_at(0)
    with pytest.raises(ValueError, match=match):
        make(checkpoint=Checkpoint(path)).fit(*data)


def test_training_survives_a_full_disk(data, monkeypatch, tmp_path):
    """One warning; later saves are tried, and the last one may succeed."""
    expected, tried, savez = make().fit(*data), [], np.savez

    def fail(*args, **kwargs):
        tried.append(1)
        if len(tried) < 7:
            raise OSError("No space left on device")
        savez(*args, **kwargs)

    monkeypatch.setattr(module.np, "savez", fail)
    model = make(checkpoint=Checkpoint(tmp_path / "fit.npz", n_steps=10))
    message = r"fit.npz' could not be written \(No space"
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        assert_same(model.fit(*data), expected, data[0])
    assert len(caught) == 1 and len(tried) == 7
    assert os.listdir(tmp_path) == ["fit.npz"]


def test_fingerprint():
    a = np.arange(6.0).reshape(2, 3)
    assert fingerprint("x", a) == fingerprint("x", a.copy())
    others = [
        fingerprint("y", a),
        fingerprint("x", a.T),
        fingerprint("x", a.astype(np.float32)),
        fingerprint("x", a.reshape(3, 2)),
        fingerprint("x", a, None),
        fingerprint("x", a + np.eye(2, 3)),
    ]
    assert len({fingerprint("x", a), *others}) == 7


def test_fingerprint_reads_every_number_in_pieces(tmp_path):
    a = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", shape=(100_000, 30))
    before = fingerprint(a)
    assert fingerprint(np.zeros((100_000, 30))) == before
    for row in (1, 50_001, 99_999):
        a[row, 7] = 1.0
        assert fingerprint(a) != before
        a[row, 7] = 0.0
    tracemalloc.start()
    assert fingerprint(a) == before
    assert tracemalloc.get_traced_memory()[1] < a.nbytes
    tracemalloc.stop()
    assert fingerprint(np.broadcast_to(1.0, 9)) == fingerprint(np.ones(9))
    assert fingerprint(np.array(1.0)) != fingerprint(np.array(2.0))


def test_parameter_object():
    checkpoint = Checkpoint("fit.npz", n_steps=20)
    assert repr(checkpoint) == "Checkpoint('fit.npz', n_steps=20, n_seconds=None)"
    copy = clone(make(checkpoint=checkpoint)).checkpoint
    assert (copy.path, copy.n_steps, copy.n_seconds) == ("fit.npz", 20, None)


@pytest.mark.parametrize(
    "settings", [{"n_steps": 0}, {"n_steps": -5}, {"n_seconds": -1.0}, {"n_steps": "often"}]
)
def test_settings_that_make_no_sense(data, tmp_path, settings):
    with pytest.raises(ValueError, match=r"n_steps|n_seconds"):
        make(checkpoint=Checkpoint(tmp_path / "fit.npz", **settings)).fit(*data)


# Processes that are killed

WORKER = """
import os, random, signal, sys, time
import numpy as np
from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.training import Checkpoint

rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, size=(40, 2))
y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(40)
few = dict(max_iter=40, learning_rate=0.02, n_inducing=6, n_predict_draws=4, batch_size=20, random_state=0)

def fit(kind, checkpoint, result):
    if kind == "regression":
        model = DeepGPRegressor(checkpoint=checkpoint, **few).fit(X, y)
        values = np.concatenate(model.predict(X, return_std=True))
    else:
        few.update(early_stopping=True, n_iter_no_change=100)
        model = DeepGPClassifier(checkpoint=checkpoint, **few).fit(X, np.digitize(y, [-0.5, 0.5]))
        values = model.predict_proba(X).ravel()
    records = [member.record for member in model.members_]
    curves = [curve for record in records for curve in (record.loss_curve, record.validation_scores)]
    np.save(result, np.concatenate([values, *curves]))

def child(*args):
    pid = os.fork()  # safe, for torch has one thread
    if pid == 0:
        code = 1
        try:
            fit(*args)
            code = 0
        finally:
            os._exit(code)
    return pid

def wait(pid):
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

kind, n_chains, n_kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
moment = random.Random(seed)
DeepGPRegressor(max_iter=1).fit(X[:5], y[:5])  # so that modules are loaded only once
begin = time.monotonic()
wait(child(kind, None, "expected.npy"))
duration = time.monotonic() - begin
killed = half_way = 0
for chain in range(n_chains):
    checkpoint = Checkpoint(f"fit{chain}.npz", n_steps=5)
    for kill in range(n_kills):
        pid = child(kind, checkpoint, "unfinished.npy")
        time.sleep(moment.uniform(0.0, 2.0 * duration / n_kills))
        os.kill(pid, signal.SIGKILL)
        killed += os.waitpid(pid, 0)[0] == pid  # perhaps it was done already
        half_way += any(name.startswith(f"fit{chain}.") for name in os.listdir())
    wait(child(kind, checkpoint, f"result{chain}.npy"))
print(killed, half_way)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize(("kind", "n_kills"), [("regression", 3), ("classification", 2)])
def test_kills_at_random_moments(kind, n_kills, tmp_path):
    """Fifteen in all; training goes on after each, at last to the uninterrupted result."""
    n_chains, seed = 3, int.from_bytes(os.urandom(4), "big")
    print("seed", seed)
    command = [sys.executable, "-c", WORKER, kind, *map(str, (n_chains, n_kills, seed))]
    settings = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "timeout": 300, "text": True}
    result = subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.PIPE, **settings)
    killed, half_way = map(int, result.stdout.split())
    assert killed == n_chains * n_kills
    assert half_way > 0  # there were files to go on from
    expected = np.load(tmp_path / "expected.npy")
    for chain in range(n_chains):
        assert_array_equal(np.load(tmp_path / f"result{chain}.npy"), expected)
