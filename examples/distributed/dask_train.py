"""Train one deep Gaussian process with the rows of several workers of Dask.

On this machine, or on a cluster whose scheduler is given::

    pip install "skdgp[dask]"
    python examples/distributed/dask_train.py
    python examples/distributed/dask_train.py tcp://SCHEDULER:8786

Each worker becomes one rank of a process group. Workers need a port of the first one.
"""

import socket
import sys
from datetime import timedelta

import numpy as np
import torch.distributed as dist
from distributed import Client, LocalCluster, get_worker

from skdgp import DeepGPRegressor
from skdgp.distributed import fit


def meeting_point():
    host = get_worker().address.rpartition("/")[2].rpartition(":")[0]
    with socket.socket() as s:
        s.bind((host, 0))
        return f"tcp://{host}:{s.getsockname()[1]}"


def train(rank, size, address):
    timeout = timedelta(seconds=60)
    dist.init_process_group(
        "gloo", init_method=address, rank=rank, world_size=size, timeout=timeout
    )
    rng = np.random.default_rng(rank)  # a program would read its part of a file
    X = rng.uniform(size=(500, 2))
    y = np.sin(10.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(500)
    model = DeepGPRegressor(
        inference="dsvi", batch_size=500, max_iter=100, n_inducing=30, random_state=0
    )
    try:
        return fit(model, X, y)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def train_on(client):
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])
    address = client.submit(meeting_point, workers=workers[:1], pure=False).result()
    ranks = [
        client.submit(train, rank, len(workers), address, workers=[worker], pure=False)
        for rank, worker in enumerate(workers)
    ]
    return client.gather(ranks)[0]  # an error of one is raised


if __name__ == "__main__":
    address = sys.argv[1] if sys.argv[1:] else LocalCluster(n_workers=2, threads_per_worker=1)
    with Client(address) as client:
        model = train_on(client)
    mean, std = model.predict([[0.15, 1.0], [0.45, 1.0]], return_std=True)
    print(f"mean {mean.round(2)}, deviation {std.round(2)}; the truth is 1.00 and -0.98")
