"""Train one deep Gaussian process with the rows of several processes.

On one host::

    torchrun --nproc-per-node=2 examples/distributed/train.py

Each rank makes its own rows here; a program would read its part of a file.
"""

import numpy as np
import torch.distributed as dist

from skdgp import DeepGPRegressor
from skdgp.distributed import fit

dist.init_process_group("gloo")
rank = dist.get_rank()
rng = np.random.default_rng(rank)
X = rng.uniform(size=(1000, 2))
y = np.sin(10.0 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(1000)

model = DeepGPRegressor(
    inference="dsvi", batch_size=500, max_iter=100, n_inducing=30, random_state=0, n_threads=1
)
fit(model, X, y)
if rank == 0:
    mean, std = model.predict([[0.15, 1.0], [0.45, 1.0]], return_std=True)
    print(f"mean {mean.round(2)}, deviation {std.round(2)}; the truth is 1.00 and -0.98")
dist.destroy_process_group()
