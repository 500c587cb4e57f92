"""Memory and time for each row with random features, on data that do not fit into memory."""

import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from skdgp import DeepGPRegressor

from . import rst

N_FEATURES = 20
BATCH = 1000
_FIRST = 60  #: steps that are not timed: in many of them, everything moves


def run(options):
    """Print what a fit needs, for each number of rows."""
    with tempfile.TemporaryDirectory() as folder:
        X, y = memory_map(Path(folder), max(options.rows))
        fit(X[:5000], y[:5000], 10)  # the first fit of a process is slow
        table = [measure(X[:n], y[:n], options.steps) for n in options.rows]
    first = table[0]
    rows = [
        [
            f"{n:,}",
            f"{start:.1f}",
            f"{step:.2f}",
            f"{1e3 * step / BATCH:.2f}",
            f"{step / first[2]:.2f}",
        ]
        + [f"{reading:.2f}", f"{memory:.0f}"]
        for n, start, step, reading, memory in table
    ]
    head = ["rows", "scaling and start (s)", "step (ms)", "row (us)", "row / first", "reading (ms)"]
    print(rst.table([*head, "anonymous memory (MB)"], rows))


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
    start = time.process_time()
    DeepGPRegressor(inference="rff", max_iter=n_steps, batch_size=BATCH, random_state=0).fit(X, y)
    return time.process_time() - start


def measure(X, y, n_steps):
    """Rows, seconds of the start, milliseconds of a step and of reading, and memory.

    Others may be at work on the machine, so that the wall does not count; a step is the difference of
    two fits.
    """
    with Memory() as memory:
        few, more = fit(X, y, _FIRST), fit(X, y, _FIRST + n_steps)
    step = (more - few) / n_steps
    before = time.process_time()
    rng = np.random.default_rng(0)
    for _ in range(100):
        np.asarray(X[np.sort(rng.integers(len(X), size=BATCH))], dtype=np.float64)
    reading = (time.process_time() - before) / 100
    return len(X), few - _FIRST * step, 1e3 * step, 1e3 * reading, memory.peak


class Memory:
    """The largest anonymous memory of this process, in MB, while it is entered."""

    def __enter__(self):
        self.peak, self._inside = 0.0, True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._inside = False
        self._thread.join()

    def _watch(self):
        while self._inside:
            self.peak = max(self.peak, anonymous())
            time.sleep(0.01)


def anonymous():
    """Anonymous memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024.0
