"""Random kills of ranks in a checkpointed fit, which ends as if there were none.

::

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nproc-per-node=2 --max-restarts=60 benchmarks/kills.py FOLDER 50
"""

import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch.distributed as dist

from skdgp import DeepGPRegressor
from skdgp.distributed import fit
from skdgp.training import Checkpoint

folder, n_kills = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, n_made = dist.get_rank(), len(list(folder.glob("kill.*")))
X = np.random.default_rng(rank).standard_normal((300, 2))
settings = {"n_inducing": 20, "batch_size": 200, "max_iter": 30 * n_kills, "random_state": 0}


def kill():
    (folder / f"kill.{n_made}").write_text(str(rank))
    os.kill(os.getpid(), signal.SIGKILL)


whole = DeepGPRegressor(inference="dsvi", **settings)
resumed = DeepGPRegressor(
    checkpoint=Checkpoint(folder / "fit.npz", 10), inference="dsvi", **settings
)
rng = np.random.default_rng()
moment = rng.uniform(0.2, 5.0)
if n_made < n_kills and rank == n_made % 2:
    timer = threading.Timer(moment, kill)
    timer.daemon = True
    timer.start()
fit(resumed, X, X[:, 0] * X[:, 1])
while n_made < n_kills:  # the fit was done before its last kills
    dist.barrier()
fit(whole, X, X[:, 0] * X[:, 1])
np.testing.assert_array_equal(whole.predict(X), resumed.predict(X))
print(f"rank {rank}: the fit after {n_made} kills is that of an uninterrupted one", flush=True)
dist.destroy_process_group()
