"""Train one deep Gaussian process with the rows of several workers of Ray.

On this machine, or on a cluster whose address is in ``RAY_ADDRESS``::

    pip install "skdgp[ray]"
    python examples/distributed/ray_train.py

A worker that dies takes the others with it. Ray starts all again, and the fit goes on from its checkpoint,
on a disk that all workers see.
"""

import os
import tempfile
from pathlib import Path

import joblib
import numpy as np
import ray
import ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from skdgp import DeepGPRegressor
from skdgp.distributed import fit


def train(config):
    rank = ray.train.get_context().get_world_rank()
    rng = np.random.default_rng(rank)  # a program would read its part of a file
    X = rng.uniform(size=(500, 2))
    y = np.sin(10.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(500)
    model = DeepGPRegressor(
        inference="dsvi", batch_size=500, max_iter=100, n_inducing=30, random_state=0
    )
    fit(model.set_params(checkpoint=config["folder"] / "fit.npz"), X, y)
    if rank == 0:
        joblib.dump(model, config["folder"] / "model.joblib")
    ray.train.report({"score": model.score(X, y)})


if __name__ == "__main__":
    if "RAY_ADDRESS" not in os.environ:
        ray.init(num_cpus=3)  # two workers, and one that watches over them
    with tempfile.TemporaryDirectory() as folder:
        TorchTrainer(
            train,
            train_loop_config={"folder": Path(folder)},
            torch_config=TorchConfig(backend="gloo", timeout_s=60),
            scaling_config=ScalingConfig(num_workers=2),
            run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=3)),
        ).fit()
        model = joblib.load(Path(folder) / "model.joblib")
    mean, std = model.predict([[0.15, 1.0], [0.45, 1.0]], return_std=True)
    print(f"mean {mean.round(2)}, deviation {std.round(2)}; the truth is 1.00 and -0.98")
