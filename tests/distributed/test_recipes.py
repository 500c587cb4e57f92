"""Recipes for clusters, on local ones of two workers; only where the extras are installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from skdgp import DeepGPRegressor

_RECIPES = Path(__file__).parents[2] / "examples" / "distributed"


def _run(name):
    paths = str(_RECIPES.parents[1]), os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(_RECIPES / name)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    mean = re.search(r"mean \[([^\]]*)\]", done.stdout).group(1)
    np.testing.assert_allclose(np.array(mean.split(), float), [1.0, -0.98], atol=0.15)


def test_ray():
    pytest.importorskip("ray.train")
    _run("ray_train.py")


def test_dask():
    pytest.importorskip("dask.distributed")
    _run("dask_train.py")


def test_searches_on_dask():
    distributed = pytest.importorskip("dask.distributed")
    X = np.random.RandomState(0).randn(30, 1)
    model = DeepGPRegressor(inference="dsvi", max_iter=5, n_inducing=5, random_state=0)
    search = GridSearchCV(model, {"n_layers": [1, 2]}, cv=2, n_jobs=2, refit=False)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1) as cluster:
        with distributed.Client(cluster), joblib.parallel_backend("dask"):
            search.fit(X, X[:, 0])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_searches_on_ray():
    ray = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    X = np.random.RandomState(0).randn(30, 1)
    model = DeepGPRegressor(inference="dsvi", max_iter=5, n_inducing=5, random_state=0)
    search = GridSearchCV(model, {"n_layers": [1, 2]}, cv=2, n_jobs=2, refit=False)
    register_ray()
    ray.init(num_cpus=2)
    try:
        with joblib.parallel_backend("ray"):
            search.fit(X, X[:, 0])
    finally:
        ray.shutdown()
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
