"""Asynchronous workers on digits, as in Cutajar et al. (2017), figure 4.

Rank 0 makes the steps, with gradients from all other ranks; a single rank is a process of its own. One line of
a table: workers, steps, mean and largest staleness, and test error and log density of random features::

    for ranks in 1 2 6 11; do torchrun --nproc-per-node=$ranks benchmarks/asynchronous.py DATA; done
"""

import sys
from pathlib import Path

import numpy as np
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import data
from skdgp import DeepGPClassifier
from skdgp.distributed import fit

STEPS, ROWS, TEST = (100, 300, 900), 5_000, 2_000

X, y, X_test, y_test, *_ = data.mnist(sys.argv[1])
dist.init_process_group("gloo")
rank, n_ranks = dist.get_rank(), dist.get_world_size()
own = slice(rank, ROWS, n_ranks)
for n_steps in STEPS:
    model = DeepGPClassifier(
        inference="rff",
        max_iter=n_steps,
        batch_size=200,
        n_threads=1,
        random_state=0,
        n_predict_draws=20,
    )
    fit(model, X[own], y[own], staleness=None if n_ranks == 1 else 3 * n_ranks)
    if rank == 0:
        stale = getattr(model, "staleness_", np.zeros(1))
        p = np.concatenate([model.predict_proba(part) for part in np.array_split(X_test[:TEST], 4)])
        of_truth = p[np.arange(len(p)), np.searchsorted(model.classes_, y_test[:TEST])]
        error = np.mean(model.classes_[p.argmax(1)] != y_test[:TEST])
        print(
            f"{max(1, n_ranks - 1):3} {n_steps:5} {stale.mean():6.2f} {stale.max():3} "
            f"{100 * error:6.2f} {np.log(of_truth).mean():8.4f}",
            flush=True,
        )
dist.destroy_process_group()
