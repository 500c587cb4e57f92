"""Time for each row with random features, and its memory, on data that do not fit into memory."""

import tempfile
import time
from pathlib import Path

import numpy as np

from . import rst

N_FEATURES = 20
BATCH = 1000
_FIRST = 20  #: steps that are not timed


def run(options):
    """Print what a fit needs, for each number of rows."""
    with tempfile.TemporaryDirectory() as folder:
        X, y = memory_map(Path(folder), max(options.rows))
        fit(X[:5000], y[:5000], 10)  # the first fit of a process is slow
        found = [measure(X[:n], y[:n], options.steps) for n in options.rows]
    lines = [
        [f"{n:,}", f"{start:.1f}", f"{step:.2f}", f"{step / found[0][2]:.2f}", f"{memory:.0f}"]
        for n, start, step, memory in found
    ]
    head = ["rows", "scaling and start (s)", "step (ms)", "step / first"]
    print(rst.table([*head, "anonymous memory (MB)"], lines))


def memory_map(folder, n):
    """Inputs on disk, and targets in memory."""
    rng = np.random.default_rng(0)
    X = np.memmap(folder / "X", np.float32, "w+", shape=(n, N_FEATURES))
    y = np.empty(n)
    for first in range(0, n, 100_000):
        block = rng.standard_normal((min(100_000, n - first), N_FEATURES), np.float32)
        X[first : first + len(block)] = block
        y[first : first + len(block)] = np.sin(block[:, 0] + block[:, 1] * block[:, 2])
    X.flush()
    return np.memmap(folder / "X", np.float32, "r").reshape(n, N_FEATURES), y


def fit(X, y, n_steps):
    """Processor seconds of a fit with so many steps; reading is part of a step."""
    from skdgp import DeepGPRegressor

    start = time.process_time()
    model = DeepGPRegressor(inference="rff", max_iter=n_steps, batch_size=BATCH, random_state=0)
    model.fit(X, y)
    return time.process_time() - start


def measure(X, y, n_steps):
    """Rows, seconds of the start, milliseconds of a step (of two fits), and anonymous memory in MB."""
    few, more = fit(X, y, _FIRST), fit(X, y, _FIRST + n_steps)
    step, lines = (more - few) / n_steps, Path("/proc/self/status").read_text().splitlines()
    memory = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024.0
    return len(X), few - _FIRST * step, 1e3 * step, memory
