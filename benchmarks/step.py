"""Time of one training step on one thread: skdgp, its peers, and the products that cannot be spared.

All contenders of a shape take turns, GPflux in a process of its own, so that whatever else the machine
does hits them alike. The floor of a layer with D outputs are the three products of D*M*M*B multiplications
behind its variances and their gradients (Q A, and the gradients of Q and of A), run bare.
"""

import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import DSVI
from skdgp.inference.base import Architecture, Batch
from skdgp.linalg import workspace
from skdgp.training import init

from . import arguments, feature_step, models, rst

N_ROWS = 10_000  #: rows of the data that the bound is scaled to
TURN = 5  #: steps that a contender makes before the next one has its turn


class Shape(NamedTuple):
    """A model and a batch."""

    batch: int
    n_features: int
    widths: tuple
    n_outputs: int
    n_inducing: int
    steps: int  #: timed steps of each contender

    def layers(self):
        """Outputs of all layers."""
        return (*self.widths, self.n_outputs)


SHAPES = {
    "2 layers": Shape(1000, 8, (8,), 1, 100, 60),
    "3 layers": Shape(1000, 8, (8, 8), 1, 100, 45),
    "5 layers": Shape(1000, 8, (8, 8, 8, 8), 1, 100, 30),
    "2 layers, batch 10,000": Shape(10_000, 8, (8,), 1, 100, 15),
    "784 - 30 - 10": Shape(1000, 784, (30,), 10, 100, 15),
}
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def add_arguments(parser):
    """Which shapes, and how many steps."""
    parser.add_argument("--shapes", type=int, nargs="+", help="numbers of shapes, from 0")
    parser.add_argument("--steps", type=int, help="timed steps of each contender")
    parser.add_argument(
        "--models",
        type=arguments.names,
        default=["skdgp", "separate", "gpytorch"],
        help="skdgp (the default, one covariance for a hidden layer), separate (the published scheme), "
        "gpytorch; default: all",
    )
    parser.add_argument(
        "--gpflux",
        metavar="PYTHON",
        help="an interpreter that has GPflux, which is then compared too",
    )
    parser.add_argument(
        "--features",
        type=int,
        metavar="R",
        help="instead, RandomFeatures with so many frequencies against a torch network",
    )
    parser.add_argument(
        "--couplings",
        action="store_true",
        help="the structured posteriors instead, against their own floors and the mean field",
    )


def run(options):
    """Print medians and ratios."""
    if options.couplings:
        from . import couplings

        return couplings.run(options)
    arguments.check_known(options.models, ("skdgp", "separate", "gpytorch"), "models")
    models.require({"gpytorch"} & set(options.models))
    torch.set_num_threads(1)
    chosen = list(SHAPES.items())
    if options.shapes is not None:
        chosen = [chosen[i] for i in options.shapes]
    if options.features:
        args = dict(chosen), DTYPES, options.features, options.steps, measure
        print(feature_step.table(*args))
        return
    rows = []
    for name, shape in chosen:
        steps = contenders(shape, options.models, options.gpflux)
        medians = measure(steps, options.steps or shape.steps)
        rows += [report(name, dtype, medians) for dtype in DTYPES]
    head = ["milliseconds of a step", "dtype", "floor", "skdgp", "/ floor", "separate", "/ floor"]
    peers = ["GPyTorch", "/ skdgp", "/ separate", "GPflux", "/ skdgp", "/ separate"]
    print(rst.table([*head, *(peers if options.gpflux else peers[:3])], rows))


def contenders(shape, chosen, gpflux_python=None):
    """Functions without arguments that make one step, by name and dtype."""
    steps = {}
    for dtype in DTYPES:
        steps["floor", dtype] = floor(shape, DTYPES[dtype])
        if "skdgp" in chosen:
            steps["skdgp", dtype] = ours(shape, DTYPES[dtype], shared_covariance=True)
        if "separate" in chosen:
            steps["separate", dtype] = ours(shape, DTYPES[dtype], shared_covariance=False)
        if "gpytorch" in chosen:
            steps["gpytorch", dtype] = gpytorch(shape, DTYPES[dtype])
        if gpflux_python:
            steps["gpflux", dtype] = gpflux(shape, dtype, gpflux_python)
    return steps


def measure(steps, n_steps):
    """Median seconds of each, taking turns of a few steps; the first turn is not counted."""
    times = {name: [] for name in steps}
    with workspace():  # as in training: large temporary tensors are used again
        for turn in range(1 + -(-n_steps // TURN)):
            for name, step in steps.items():
                for _ in range(TURN):
                    start = time.perf_counter()
                    step()
                    if turn > 0:
                        times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def report(name, dtype, medians):
    """A row of the table."""
    base, shared, separate = (medians.get((m, dtype)) for m in ("floor", "skdgp", "separate"))

    def ms(seconds):
        return f"{1e3 * seconds:.2f}" if seconds else rst.NOTHING

    def ratio(a, b):
        return f"{a / b:.2f}" if a and b else rst.NOTHING

    row = [name, dtype, ms(base), ms(shared), ratio(shared, base), ms(separate)]
    row.append(ratio(separate, base))
    for peer in (medians.get((m, dtype)) for m in ("gpytorch", "gpflux")):
        row += [ms(peer), ratio(peer, shared), ratio(peer, separate)]
    return row if ("gpflux", dtype) in medians else row[:-3]


def rows_of(shape):
    """Random inputs and targets of a batch."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((shape.batch, shape.n_features))
    y = np.sin(X[:, :1]) + 0.1 * rng.standard_normal((shape.batch, shape.n_outputs))
    return X, y


def ours(shape, dtype, **settings):
    """A step of skdgp's model."""
    return step_of(DSVI(**settings), shape, dtype)


def model_of(scheme, shape, X, dtype, start="random", seed=0):
    """The model of a scheme, before its first step."""
    architecture = Architecture(
        shape.n_features, shape.widths, shape.n_outputs, shape.n_inducing, [], True, False
    )
    kernel = as_kernel("squared_exponential")
    architecture.kernels = [kernel.bind(n) for n in architecture.layer_inputs()]
    model = scheme.build(architecture, Gaussian(np.full(shape.n_outputs, 0.1)))
    init.start(model, X, np.ones(len(X)), start, np.random.RandomState(seed))
    model.prepare(0.01, dtype)
    return model


def step_of(scheme, shape, dtype):
    """A step of the model of a scheme, as the trainer makes it."""
    X, y = rows_of(shape)
    model = model_of(scheme, shape, X, dtype)
    batch = Batch(
        torch.tensor(X, dtype=dtype),
        torch.tensor(y),
        torch.ones(len(X), dtype=torch.float64),
        N_ROWS / shape.batch,
        float(N_ROWS),
    )
    generator = torch.Generator().manual_seed(0)
    return lambda: model.step(batch, generator)


def gpytorch(shape, dtype):
    """A step of GPyTorch's model."""
    from .models import gpytorch_deep

    X, y = (torch.tensor(part, dtype=dtype) for part in rows_of(shape))
    torch.manual_seed(0)
    Z = X[torch.randperm(len(X))[: shape.n_inducing]]
    several = shape.n_outputs if shape.n_outputs > 1 else None
    model = gpytorch_deep.Deep(Z, shape.widths, several)
    step = gpytorch_deep.step_function(model, N_ROWS)
    return lambda: step(X, y if several else y[:, 0])


def gpflux(shape, dtype, python):
    """A step of GPflux's model, which another interpreter makes."""
    settings = {
        "dtype": dtype,
        "n_rows": N_ROWS,
        "batch": shape.batch,
        "n_features": shape.n_features,
        "widths": shape.layers(),
        "n_inducing": shape.n_inducing,
    }
    script = Path(__file__).parent / "models" / "gpflux_steps.py"
    process = subprocess.Popen(
        [python, script, json.dumps(settings)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
    )  # fmt: skip

    def step():
        print(file=process.stdin, flush=True)
        if not process.stdout.readline():
            raise SystemExit(f"{python} cannot make a step of GPflux; run {script} to see why.")

    return step


def floor(shape, dtype):
    """The bare products of all layers."""
    M, B = shape.n_inducing, shape.batch
    generator = torch.Generator().manual_seed(0)
    layers = []
    for D in shape.layers():
        sizes = [(D * M, M), (M, B), (D * M, B)]
        Q, A, W = (torch.randn(size, generator=generator, dtype=dtype) for size in sizes)
        outs = [torch.empty(size, dtype=dtype) for size in ((D * M, B), (D * M, M), (M, B))]
        layers.append((Q, A, W, *outs))

    def step():
        for Q, A, W, QA, dQ, dA in layers:
            torch.mm(Q, A, out=QA)
            torch.mm(W, A.T, out=dQ)
            torch.mm(Q.T, W, out=dA)

    return step
