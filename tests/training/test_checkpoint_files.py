"""Files of checkpoints that are damaged, or that others write to as well."""

import errno
import json
import os
import subprocess
import sys

import joblib
import numpy as np
import pytest
from fake_scheme import Constant, Running, mixture_of
from sklearn.exceptions import ConvergenceWarning

from skdgp import DeepGPRegressor
from skdgp.inference.dsvi import DeepSparseGP
from skdgp.training import Checkpoint
from skdgp.training import checkpoint as module


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(60, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)


def make(**changes):
    few = {"inference": "dsvi", "n_inducing": 8, "n_predict_draws": 8, "batch_size": 20}
    return DeepGPRegressor(**{**few, "max_iter": 70, "random_state": 0, **changes})


def damaged(raw, header):
    """Changes of a checkpoint, each with contents that its fingerprint does not tell from the right ones."""
    Z = next(name for name in raw if name.endswith("layers.0.Z"))
    for name in header:
        yield {"__header__": {key: value for key, value in header.items() if key != name}}
    for name, value in (
        ("numbers", {}),
        ("numbers", None),
        ("finished", "no"),
        ("digest", 3),
        ("versions", []),
    ):
        yield {"__header__": {**header, name: value}}
    n_iter = header["numbers"] | {"n_iter": 3}
    yield from (
        {"__header__": other} for other in ([1], False, "text", {**header, "numbers": n_iter})
    )
    for value in (
        None,
        np.zeros((2, 9)),
        np.full_like(raw[Z], np.nan),
        raw[Z].astype(np.float32),
        -raw[Z],
    ):
        yield {Z: value}
    yield {"model/another": np.zeros(3)}
    yield {"generator": raw["generator"][::-1]}
    yield {name: None for name in raw if name.startswith("training/")}


def test_damage_is_seen_before_training(data, tmp_path, kill):
    """Files that were cut, merged by hand or written by another version: one sentence that names the file."""
    path, other = tmp_path / "fit.npz", {"skdgp": "0.0", "torch": "1.0"}
    model = make(max_iter=8, checkpoint=path).fit(*data)
    with np.load(path) as file:
        raw = dict(file)
    header = json.loads(raw["__header__"].tobytes())
    kill(DeepSparseGP, 0)
    changes = [*damaged(raw, header)]
    assert len(changes) > 20
    for change in changes:
        new = {name: value for name, value in {**raw, **change}.items() if value is not None}
        if not isinstance(new["__header__"], np.ndarray):
            new["__header__"] = np.frombuffer(json.dumps(new["__header__"]).encode(), np.uint8)
        np.savez(path, **new)
        with pytest.raises(
            ValueError, match=r"checkpoint .*fit.npz' is (damaged|not a checkpoint)"
        ):
            model.fit(*data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_VERSIONS", other)
        Checkpoint(tmp_path / "old").open("f").save({"a": np.zeros(2)}, {"n_iter": 1}, False)
    with pytest.raises(
        ValueError, match=r"written by skdgp 0\.0 and torch 1\.0; use these versions, or delete"
    ):
        Checkpoint(tmp_path / "old").open("f").check()


def test_links_that_others_have_made_are_not_followed(data, tmp_path):
    """In a folder that is shared: names of files cannot be guessed, and what lies there stays as it is."""
    path, precious = tmp_path / "fit.npz", tmp_path / "precious"
    precious.write_text("precious")
    guessed = tmp_path / f"fit.npz.{os.getppid()}.part"
    guessed.symlink_to("precious")
    path.symlink_to("nowhere")  # the checkpoint takes its place
    make(max_iter=8, checkpoint=path).fit(*data)
    assert precious.read_text() == "precious" and guessed.is_symlink()
    assert path.is_file() and not path.is_symlink()
    assert not (tmp_path / "nowhere").exists()


def test_leftovers_of_dead_processes_are_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    path, alive = tmp_path / "fit.npz", os.getppid()
    gone = [
        f"fit.npz.{dead.pid}.part",
        f"fit.npz.{dead.pid}.0f.part",
        f"fit.npz.{os.getpid()}.0f.part",
    ]
    gone.append(f"fit.npz.{10**30}.part")
    stay = [f"fit.npz.{alive}.part", f"fit.npz.{dead.pid}.part.txt", f"other.npz.{dead.pid}.part"]
    for name in (*gone, *stay):
        (tmp_path / name).write_text("half")
    make(max_iter=2, inference="dsvi", checkpoint=path).fit(np.eye(3), np.arange(3.0))
    assert set(os.listdir(tmp_path)) == {"fit.npz", *stay}


@pytest.mark.parametrize("first", ["before", "between"])
def test_two_fits_with_one_path(data, watch, tmp_path, first):
    """The second one does not take the file of the first, which goes on from it, and says so."""
    path, n_saved = tmp_path / "fit.npz", 4
    other = make(max_iter=8, checkpoint=path)

    def look(n, model, *args):
        if n == (0 if first == "before" else n_saved + 1):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(DeepSparseGP, "step", original)
                path.unlink(missing_ok=True)
                other.fit(*data)

    original = DeepSparseGP.step
    watch(DeepSparseGP, "step", look)
    model = make(max_iter=9, checkpoint=Checkpoint(path, n_steps=n_saved))
    with pytest.warns(
        ConvergenceWarning, match="could not be written .another fit.*its own file"
    ) as caught:
        model.fit(*data)
    assert len(caught) == 1
    steps = watch(DeepSparseGP)
    other.fit(*data)
    assert not steps


@pytest.mark.parametrize("links", [True, False])
def test_two_first_files_at_once(tmp_path, monkeypatch, links):
    """One of two fits that both see no file takes the place; on file systems without links, the later one."""
    one, two = (Checkpoint(tmp_path / "fit").open(name) for name in "ab")

    def link(*args, **kwargs):
        raise OSError(errno.EOPNOTSUPP, "no links")

    if not links:
        monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os.path, "lexists", lambda path: False)
    one.save({"a": np.zeros(3)}, {"n_iter": 1}, False)
    with pytest.raises(FileExistsError):
        two.save({"a": np.ones(3)}, {"n_iter": 1}, False)
    one.save({"a": np.ones(3)}, {"n_iter": 2}, False)
    assert one.load()[1] == {"n_iter": 2}
    assert os.listdir(tmp_path) == ["fit"]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_full_disk_is_a_warning_of_mixtures_too(tmp_path, monkeypatch, data, n_jobs):
    """Also where members train side by side, and cannot warn themselves."""
    mixture_of(monkeypatch, Constant(), Running())
    model = DeepGPRegressor(checkpoint=tmp_path / "fit.npz", n_jobs=n_jobs, random_state=0)
    model.set_params(target_transform=None)

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    message = "could not be written .No space left"
    with (
        pytest.warns(ConvergenceWarning, match=message) as caught,
        joblib.parallel_config("threading"),
    ):
        model.fit(*data)
    names = [
        name for one in caught for name in ("fit.npz", "fit.1.npz") if name in str(one.message)
    ]
    assert names == ["fit.npz", "fit.1.npz"]
    assert os.listdir(tmp_path) == []
