"""Training steps of our models and of peers, as functions without arguments, and how they are timed.

What commands know of the insides of skdgp is here: :func:`model_of` and :func:`step_of`.
"""

import statistics
import time
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

N_ROWS = 10_000  #: rows of the data that the bound is scaled to
TURN = 5  #: steps that a contender makes before the next one has its turn
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Shape(NamedTuple):
    """A model and a batch."""

    batch: int = 1000
    n_features: int = 8
    widths: tuple = (8,)
    n_outputs: int = 1
    n_inducing: int = 100

    def __str__(self):
        sizes = (self.n_features, *self.widths, self.n_outputs)
        return f"{'-'.join(map(str, sizes))}, M {self.n_inducing}, batch {self.batch:,}"


def rows_of(shape):
    """Random inputs and targets of a batch."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((shape.batch, shape.n_features))
    y = np.sin(X[:, :1]) + 0.1 * rng.standard_normal((shape.batch, shape.n_outputs))
    return X, y


def model_of(scheme, shape, X, dtype, device="cpu"):
    """The model of a scheme, before its first step."""
    from skdgp.gp.kernels import as_kernel
    from skdgp.gp.likelihoods import Gaussian
    from skdgp.inference.base import Architecture
    from skdgp.training import init

    architecture = Architecture(
        shape.n_features, shape.widths, shape.n_outputs, shape.n_inducing, [], True, False
    )
    kernel = as_kernel("squared_exponential")
    architecture.kernels = [kernel.bind(n) for n in architecture.layer_inputs()]
    model = scheme.build(architecture, Gaussian(np.full(shape.n_outputs, 0.1)))
    method = "random" if model.start is None else init.METHODS[0]
    init.start(model, X, np.ones(len(X)), method, np.random.RandomState(0))
    model.to(device)
    model.prepare(0.01, dtype)
    return model


def step_of(scheme, shape, dtype, device="cpu"):
    """A step of the model of a scheme, as the trainer makes it."""
    from skdgp.inference.batch import Batch

    X, y = rows_of(shape)
    model = model_of(scheme, shape, X, dtype, device)
    parts = torch.tensor(X, dtype=dtype), torch.tensor(y), torch.ones(len(X), dtype=torch.float64)
    batch = Batch(*(p.to(device) for p in parts), N_ROWS / shape.batch, float(N_ROWS))
    generator = torch.Generator(device).manual_seed(0)
    return lambda: model.step(batch, generator)


def floor(shape, dtype):
    """The bare products behind variances and their gradients: three of D M M B in a layer of D units."""
    M, B = shape.n_inducing, shape.batch
    generator = torch.Generator().manual_seed(0)
    layers = []
    for D in (*shape.widths, shape.n_outputs):
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


def gpytorch(shape, dtype):
    """A step of GPyTorch's deep Gaussian process."""
    from benchmarks import gpytorch_peers

    X, y = (torch.tensor(part, dtype=dtype) for part in rows_of(shape))
    torch.manual_seed(0)
    Z = X[torch.randperm(len(X))[: shape.n_inducing]]
    several = shape.n_outputs if shape.n_outputs > 1 else None
    model = gpytorch_peers.Deep(Z, shape.widths, several)
    step = gpytorch_peers.step_function(model, N_ROWS)
    return lambda: step(X, y if several else y[:, 0])


class Waves(nn.Module):
    """Cosines and sines."""

    def forward(self, A):
        return torch.cat([A.cos(), A.sin()], -1)


def network(shape, dtype, n_frequencies):
    """A step of Adam on the squared error of a network with as many frequencies.

    Waves, and linear maps between them: random features without Bayes.
    """
    X, y = (torch.tensor(part, dtype=dtype) for part in rows_of(shape))
    layers = []
    for n, n_next in pairwise([shape.n_features, *shape.widths, shape.n_outputs]):
        inner = nn.Linear(n, n_frequencies, bias=False)
        layers += [inner, Waves(), nn.Linear(2 * n_frequencies, n_next)]
    model = nn.Sequential(*layers).to(dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)

    def step():
        optimizer.zero_grad()
        (model(X) - y).square().mean().backward()
        optimizer.step()

    return step


def measure(steps, n_steps):
    """Median seconds of each, taking turns of a few steps; the first turn is not counted.

    So whatever else the machine does hits all alike.
    """
    from skdgp.linalg import workspace

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
