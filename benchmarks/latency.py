"""Steps of several ranks on a network with latency, and a model of them up to 1,000 ranks.

Gloo adds up in a ring: each rank passes one part of the vector on to the next 2 (P - 1) times. Here the ring
is made of messages that arrive late. Each line of the first table: ranks, latency, milliseconds of a reduction
(from the arrival of the last rank) and of a step, and both by the model. All are lower deciles over steps::

    for ranks in 2 4; do torchrun --standalone --nproc-per-node=$ranks benchmarks/latency.py; done
"""

import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1]))

from skdgp import DeepGPRegressor
from skdgp.distributed import fit
from skdgp.parallel import gather

LATENCIES = 0.0, 1.0, 5.0, 20.0  #: milliseconds of a message
N_STEPS, SKIPPED = 50, 10  #: of each fit, and those at its start that do not count
FEW, MANY, COLUMNS, INDUCING = 2_000, 10_000, 8, 100  #: rows of minibatches, and more
FAST, SLOW, BANDWIDTH = 0.05, 1.0, 1.25e6  #: ms there and back in a rack, a region; bytes per ms


def late_ring(latency):
    """A sum over all ranks in place of ``all_reduce``: a ring of messages that take `latency` seconds more."""

    def add_up(tensor):
        rank, size = dist.get_rank(), dist.get_world_size()
        parts = list(tensor.view(-1).tensor_split(size))
        for i in range(2 * (size - 1)):
            adds, own = i < size - 1, (rank - i) % size
            arrived = parts[(own - 1) % size]
            found = arrived.clone()
            sent = dist.isend(parts[own], (rank + 1) % size)
            dist.recv(found, (rank - 1) % size)
            time.sleep(latency)
            arrived.copy_(arrived + found if adds else found)
            sent.wait()

    return add_up


class Clock:
    """Counts the seconds of reductions, and of steps from one reduction to the next."""

    def __init__(self, reduce):
        self._reduce, self.n_bytes = reduce, 0
        self.ends, self.seconds, self.of_cpu = [], [], []

    def __call__(self, tensor):
        began = time.perf_counter()
        self._reduce(tensor)
        self.ends.append(time.perf_counter())
        self.seconds.append(self.ends[-1] - began)
        self.of_cpu.append(time.process_time())
        self.n_bytes = tensor.nbytes

    def deciles(self):
        """Milliseconds of a reduction and of a step, and those of the processor in a step."""
        parts = self.seconds, np.diff(self.ends), np.diff(self.of_cpu)
        return [1e3 * np.quantile(part[SKIPPED:], 0.1) for part in parts]


def measured(reduce, n_rows=FEW):
    """The clock of a fit with minibatches of all rows."""
    rank, size = dist.get_rank(), dist.get_world_size()
    X = np.random.default_rng(rank).standard_normal((n_rows // size, COLUMNS))
    model = DeepGPRegressor(
        inference="dsvi", batch_size=n_rows, max_iter=N_STEPS, n_inducing=INDUCING, n_threads=1, random_state=0
    )  # fmt: skip
    clock, before = Clock(reduce), dist.all_reduce
    dist.all_reduce = clock
    try:
        fit(model, X, np.sin(X[:, 0]) * X[:, 1])
    finally:
        dist.all_reduce = before
    clock.seconds = np.min(gather(clock.seconds), 0)
    return clock


def step(rows, rest, n_bytes, ranks, latency):
    """Milliseconds of a step by the model: for rows, the rest, and messages of a ring."""
    return rows / ranks + rest + 2 * (ranks - 1) * (latency + n_bytes / ranks / BANDWIDTH)


def main():
    warnings.filterwarnings("ignore")
    dist.init_process_group("gloo")
    size, is_first = dist.get_world_size(), dist.get_rank() == 0
    of_gloo = measured(dist.all_reduce)
    if is_first:
        print(f"{of_gloo.n_bytes} bytes; gloo itself: {of_gloo.deciles()[1]:.1f} ms", flush=True)
    for latency in LATENCIES:
        within, whole, _ = measured(late_ring(1e-3 * latency)).deciles()
        if latency == 0.0:
            base = within, whole
        if is_first:
            more = 2 * (size - 1) * latency
            numbers = within, whole, base[0] + more, base[1] + more
            print(f"{size:2} {latency:5.1f}" + "".join(f" {t:7.1f}" for t in numbers), flush=True)
    few, many = of_gloo.deciles()[2], measured(dist.all_reduce, MANY).deciles()[2]
    if is_first:
        rows = size * (many - few) / (1.0 - FEW / MANY)
        rest = many - rows / size
        print(f"{MANY} rows {rows:.0f} ms, rest {rest:.1f} ms; at {FAST} and {SLOW} ms by ranks:")
        for ranks in (1, 2, 4, 10, 30, 100, 300, 1000):
            times = [step(rows, rest, of_gloo.n_bytes, ranks, late) for late in (FAST, SLOW)]
            print(f"{ranks:5}" + "".join(f" {t:8.1f}" for t in times), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
