"""Times of training, on one thread.

--part step      a training step: ours, GPyTorch's, and the bare products that cannot be spared; random
                 features beside a plain torch network
       schemes   a step of every scheme: how it grows with inducing points, batch, layers and width
       rows      memory and time for each row with random features, up to ten million rows
       gpu       one prepared script of at most five minutes for a graphics processor

Contenders take turns, so that other work on the machine hits all alike. Two checkouts are compared by two
runs with --checkout.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks import gpu, models, rst, runs, steps
from benchmarks.steps import DTYPES, Shape

SHAPES = {
    "2 layers": Shape(),
    "3 layers": Shape(widths=(8, 8)),
    "5 layers": Shape(widths=(8, 8, 8, 8)),
    "2 layers, batch 10,000": Shape(batch=10_000),
    "784 - 30 - 10": Shape(1000, 784, (30,), 10),
}
_BASE = Shape(512, 8, (5, 5), 1, 128)
GROWTH = (
    _BASE,
    *(_BASE._replace(n_inducing=n) for n in (32, 64, 256)),
    _BASE._replace(batch=2048),
    *(_BASE._replace(widths=w) for w in ((5,), (5, 5, 5), (2, 2), (8, 8))),
    Shape(),
)
N_FREQUENCIES = 100
MANY_ROWS = 100_000, 10_000_000
N_COLUMNS, ROWS_OF_STEP = 20, 1000  #: of data that do not fit into memory
_UNTIMED = 20  #: first steps on these


def add_arguments(parser):
    """The part, shapes, steps, peers."""
    parts = {"step": step, "schemes": schemes, "rows": many_rows, "gpu": gpu.run}
    parser.add_argument("--part", choices=parts, default="step", help="default: %(default)s")
    parser.add_argument("--shapes", type=runs.numbers, help="numbers of shapes, from 0")
    parser.add_argument("--steps", type=int, default=30, help="timed ones; default: %(default)s")
    parser.add_argument("--rows", type=runs.numbers, help="of the parts rows and gpu")
    parser.add_argument("--seconds", type=float, default=270.0, help="of gpu; default: %(default)s")
    parser.add_argument("--device", help="of gpu; default: cuda if there is one")
    parser.set_defaults(parts=parts)


def run(options):
    """Run one part."""
    torch.set_num_threads(1)
    options.parts[options.part](options)


def _chosen(options, shapes):
    shapes = list(shapes)
    return shapes if options.shapes is None else [shapes[i] for i in options.shapes]


def step(options):
    """Print medians and ratios."""
    from skdgp.inference import DSVI, RandomFeatures

    models.require(["gpytorch"])
    schemes = {
        "shared": DSVI(shared_covariance=True),
        "separate": DSVI(shared_covariance=False),
        "features": RandomFeatures(n_features=N_FREQUENCIES),
        "learned": RandomFeatures(n_features=N_FREQUENCIES, frequencies="variational"),
    }
    table = []
    for name in _chosen(options, SHAPES):
        shape, made = SHAPES[name], {}
        for dtype, kind in DTYPES.items():
            made["floor", dtype] = steps.floor(shape, kind)
            made["GPyTorch", dtype] = steps.gpytorch(shape, kind)
            made["network", dtype] = steps.network(shape, kind, N_FREQUENCIES)
            for key, scheme in schemes.items():
                made[key, dtype] = steps.step_of(scheme, shape, kind)
        medians = steps.measure(made, options.steps)
        for dtype in DTYPES:
            found = {key: 1e3 * ms for (key, kind), ms in medians.items() if kind == dtype}
            texts = [f"{found[key]:.2f}" for key in _STEP]
            ratios = [f"{found[a] / found[b]:.2f}" for a, b in _RATIOS]
            table.append([name, dtype, *texts, *ratios])
    head = ["ms of a step", "dtype", *_STEP, *(f"{a} / {b}" for a, b in _RATIOS)]
    print(rst.table(head, table))


_STEP = ("floor", "shared", "separate", "GPyTorch", "network", "features", "learned")
_RATIOS = (
    ("shared", "floor"),
    ("separate", "floor"),
    ("GPyTorch", "shared"),
    ("features", "network"),
    ("learned", "network"),
)


def schemes(options):
    """Print how the steps of all schemes grow."""
    from skdgp.inference import AEP, DSVI, SGHMC, DeepInverseWishart, RandomFeatures, StructuredVI

    made = {
        "default": DSVI(),
        "sghmc": SGHMC(n_learn=0),
        "dsvi": DSVI(shared_covariance=False),
        "aep": AEP(),
        "rff": RandomFeatures(),
        "diwp": DeepInverseWishart(),
        **{
            name: StructuredVI(name, n_warmup=0)
            for name in ("mean-field", "stripes-and-arrow", "full")
        },
    }
    table = []
    for shape in _chosen(options, GROWTH):
        contenders = {
            name: steps.step_of(scheme, shape, torch.float64) for name, scheme in made.items()
        }
        medians = steps.measure(contenders, options.steps)
        table.append([str(shape), *(f"{1e3 * medians[name]:.1f}" for name in made)])
    print(rst.table(["ms of a step", *made], table))


def many_rows(options):
    """Print what a fit of random features needs, for each number of rows on disk."""
    with tempfile.TemporaryDirectory() as folder:
        rows = options.rows or MANY_ROWS
        X, y = _memory_map(Path(folder), max(rows))
        _fit_seconds(X[:5000], y[:5000], 10)  # the first fit of a process is slow
        found = [_needs(X[:n], y[:n], options.steps) for n in rows]
    lines = [
        [f"{n:,}", f"{start:.1f}", f"{step:.2f}", f"{step / found[0][2]:.2f}", f"{memory:.0f}"]
        for n, start, step, memory in found
    ]
    head = ["rows", "scaling and start (s)", "step (ms)", "step / first"]
    print(rst.table([*head, "anonymous memory (MB)"], lines))


def _memory_map(folder, n):
    """Inputs on disk, and targets in memory."""
    rng = np.random.default_rng(0)
    X = np.memmap(folder / "X", np.float32, "w+", shape=(n, N_COLUMNS))
    y = np.empty(n)
    for first in range(0, n, 100_000):
        block = rng.standard_normal((min(100_000, n - first), N_COLUMNS), np.float32)
        X[first : first + len(block)] = block
        y[first : first + len(block)] = np.sin(block[:, 0] + block[:, 1] * block[:, 2])
    X.flush()
    return np.memmap(folder / "X", np.float32, "r").reshape(n, N_COLUMNS), y


def _fit_seconds(X, y, n_steps):
    """Processor seconds of a fit with so many steps; reading is part of a step."""
    from skdgp import DeepGPRegressor

    start = time.process_time()
    model = DeepGPRegressor(
        inference="rff", max_iter=n_steps, batch_size=ROWS_OF_STEP, random_state=0
    )
    model.fit(X, y)
    return time.process_time() - start


def _needs(X, y, n_steps):
    """Rows, seconds of the start, milliseconds of a step (of two fits), and anonymous memory in MB."""
    few, more = _fit_seconds(X, y, _UNTIMED), _fit_seconds(X, y, _UNTIMED + n_steps)
    step, lines = (more - few) / n_steps, Path("/proc/self/status").read_text().splitlines()
    memory = next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024.0
    return len(X), few - _UNTIMED * step, 1e3 * step, memory
