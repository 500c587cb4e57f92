"""A rank that fails, hangs or is killed ends the fit of the others, and checkpoints go on from there."""

import os
import signal
import time
from unittest import mock

import numpy as np
import pytest
from process_group import Ranks

from skdgp import DeepGPRegressor
from skdgp.distributed import fit
from skdgp.inference.deep import DeepSparseGP
from skdgp.training import Checkpoint


def _fit(rank, path=None, seconds=None):
    rng = np.random.RandomState(rank)
    X = rng.randn(40, 2)
    model = DeepGPRegressor(
        inference="dsvi", n_inducing=8, max_iter=40, batch_size=20, random_state=0
    )
    if path is not None:
        model.checkpoint = Checkpoint(path, 7, seconds)
    fit(model, X, X[:, 0] * X[:, 1])
    return model.predict(X)


def _fail(rank, how, *args):
    """A fit whose 24th step fails on rank 1."""
    step = DeepSparseGP.step

    def failing(self, *parts):
        if rank == 1 and self.steps.n_made == 23:
            if how == "error":
                raise RuntimeError("rank 1 is on fire")
            if how == "hang":
                time.sleep(6.0)
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return step(self, *parts)

    with mock.patch.object(DeepSparseGP, "step", failing):
        return _fit(rank, *args)


def test_a_rank_that_fails_hangs_or_dies(ranks, tmp_path):
    others = Ranks()
    try:
        first, second = others(_fail, "error")
        assert str(second) == "rank 1 is on fire"
        assert "rank 1: RuntimeError: rank 1 is on fire" in str(first)
        others.begin(seconds=2)
        for error in others(_fail, "hang"):
            assert "init_process_group" in str(error) and "start all ranks again" in str(error)
        others.begin()
        path = tmp_path / "fit.npz"
        first, _ = others(_fail, "kill", path, n_results=1)
        assert "Another rank did not answer" in str(first)
    finally:
        others.end()
    assert path.exists()
    made = ranks(_fit, path)
    for resumed, whole in zip(made, ranks(_fit)):
        np.testing.assert_array_equal(resumed, whole)


def test_only_the_first_rank_writes(ranks, tmp_path):
    timed, _ = ranks(_fit, tmp_path, 1e-3)
    np.testing.assert_array_equal(timed, ranks(_fit)[0])
    assert len(os.listdir(tmp_path)) == 1


def test_all_ranks_hear_of_a_bad_checkpoint(ranks, tmp_path):
    path = tmp_path / "fit.npz"
    path.write_bytes(b"hello")
    for error in ranks(_fit, path):
        assert isinstance(error, ValueError)
        assert "is not a checkpoint of skdgp" in str(error)


def test_another_fit_follows_errors(ranks):
    with pytest.raises(RuntimeError, match="No process group is initialized"):
        fit(DeepGPRegressor(), [[0.0]], [0.0])
    assert np.isfinite(ranks(_fit)).all()
