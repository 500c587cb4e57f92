"""Recipes for clusters, on local ones of two workers; only where the extras are installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from skdgp import DeepGPRegressor

_RECIPES = Path(__file__).parents[2] / "examples" / "distributed"


def _run(*command, **variables):
    paths = str(_RECIPES.parents[1]), os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}
    done = subprocess.run(
        command, cwd=_RECIPES, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (mean,) = re.findall(r"mean \[([^\]]*)\]", done.stdout)  # of the first rank alone
    np.testing.assert_allclose(np.array(mean.split(), float), [1.0, -0.98], atol=0.15)


def test_ray():
    pytest.importorskip("ray.train")
    _run(sys.executable, "ray_train.py")


def test_dask():
    pytest.importorskip("dask.distributed")
    _run(sys.executable, "dask_train.py")


def _command(folder, name, text):
    (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_slurm_on_two_hosts_that_are_this_one(tmp_path):
    """Two agents of torchrun form one group."""
    _command(tmp_path, "scontrol", "echo localhost; echo elsewhere")
    _command(tmp_path, "srun", '"$@" & "$@" && wait $!')
    _command(tmp_path, "torchrun", f'exec {sys.executable} -m torch.distributed.run "$@"')
    text = (_RECIPES / "slurm.sh").read_text()
    given = dict(re.findall(r"#SBATCH --([a-z-]+)=(\d+)", text))
    assert given["nodes"] == "2" and given["ntasks-per-node"] == "1"  # as srun above
    variables = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "node[1-2]"}
    variables |= {"SLURM_JOB_NUM_NODES": given["nodes"], "SLURM_CPUS_PER_TASK": "1"}
    paths = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    _run("bash", "slurm.sh", PATH=paths, **variables)


def test_kubernetes():
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load((_RECIPES / "kubernetes.yaml").read_text())["spec"]
    replicas = spec["pytorchReplicaSpecs"]
    assert set(replicas) == {"Master", "Worker"} and spec["nprocPerNode"] == "2"
    for replica in replicas.values():
        (container,) = replica["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"
        assert container["command"] == ["torchrun", "train.py"]


def _search(backend):
    X = np.random.RandomState(0).randn(30, 1)
    model = DeepGPRegressor(inference="dsvi", max_iter=5, n_inducing=5, random_state=0)
    search = GridSearchCV(model, {"n_layers": [1, 2]}, cv=2, n_jobs=2, refit=False)
    with joblib.parallel_backend(backend):
        search.fit(X, X[:, 0])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_searches_on_dask():
    distributed = pytest.importorskip("dask.distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1) as cluster:
        with distributed.Client(cluster):
            _search("dask")


def test_searches_on_ray():
    ray = pytest.importorskip("ray")
    from ray.util.joblib import register_ray

    register_ray()
    ray.init(num_cpus=2)
    try:
        _search("ray")
    finally:
        ray.shutdown()
