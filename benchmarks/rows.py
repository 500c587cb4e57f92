"""Memory and time for each row with random features, on data that do not fit into memory."""

import tempfile
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np

from skdgp import DeepGPRegressor
from skdgp.inference.random_features.rff import DeepRandomFeatures

from . import rst

N_FEATURES = 20
BATCH = 1000
_FIRST = 60  #: steps that are not timed: in many of them, everything moves


def add_arguments(parser):
    """Numbers of rows, steps, and where the memory map goes."""
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--steps", type=int, default=1000, help="timed steps; default: %(default)s")
    parser.add_argument("--folder", type=Path, help="of the memory map; default: a temporary one")


def run(options):
    """Print what a fit needs, for each number of rows."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        X, y = memory_map(Path(folder), max(options.rows))
        fit(X[:5000], y[:5000], 10)  # the first fit of a process is slow
        table = [measure(X[:n], y[:n], options.steps) for n in options.rows]
    first = table[0]
    rows = [
        [f"{n:,}", f"{start:.1f}", f"{step:.2f}", f"{row:.2f}", f"{row / first[3]:.2f}"]
        + [f"{reading:.2f}", f"{memory:.0f}"]
        for n, start, step, row, reading, memory in table
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
    """Processor seconds before the first step, and of a step without the first ones.

    Others may be at work on the machine, so that the wall does not count. Reading is part of a step.
    """
    times, step = [time.process_time()], DeepRandomFeatures.step

    def timed(*args, **kwargs):
        times.append(time.process_time())
        return step(*args, **kwargs)

    model = DeepGPRegressor(
        inference="rff", max_iter=_FIRST + n_steps, batch_size=BATCH, random_state=0
    )
    with mock.patch.object(DeepRandomFeatures, "step", timed):
        model.fit(X, y)
    return times[1] - times[0], (times[-1] - times[_FIRST]) / (n_steps - 1)


def measure(X, y, n_steps):
    """Rows, seconds of the start, times of a step, of a row and of reading, and memory."""
    with Memory() as memory:
        start, step = fit(X, y, n_steps)
    before = time.process_time()
    rng = np.random.default_rng(0)
    for _ in range(100):
        np.asarray(X[np.sort(rng.integers(len(X), size=BATCH))], dtype=np.float64)
    reading = (time.process_time() - before) / 100
    return len(X), start, 1e3 * step, 1e6 * step / BATCH, 1e3 * reading, memory.peak


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
