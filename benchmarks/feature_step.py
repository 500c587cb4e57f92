"""Time of a step with random features, against a plain torch network with the same matrices."""

import numpy as np
import torch
from torch import nn

from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import RandomFeatures
from skdgp.inference.base import Architecture, Batch

from . import rst

N_ROWS = 10_000  #: rows of the data that the bound is scaled to
WARM = 50  #: steps after which a full covariance is lazy
AT_ONCE = 10  #: steps that are timed together, for one of them costs more than the others


def table(shapes, dtypes, n_frequencies, steps, measure):
    """Measure, and set the medians side by side.

    Parameters
    ----------
    shapes : dict of str to Shape
    dtypes : dict of str to torch.dtype
    n_frequencies : int
    steps : int or None
        Timed steps, if not those of the shapes.
    measure : callable
        Maps contenders and a number of steps to medians.
    """
    rows = []
    for name, shape in shapes.items():
        medians = measure(
            {
                (model, dtype): make(shape, n_frequencies, dtypes[dtype])
                for dtype in dtypes
                for model, make in CONTENDERS.items()
            },
            steps or shape.steps,
        )
        for dtype in dtypes:
            network, *ours = (medians[model, dtype] for model in CONTENDERS)
            cells = [f"{1e3 * seconds / AT_ONCE:.2f}" for seconds in (network, *ours)]
            rows.append([name, dtype, *cells, *(f"{seconds / network:.2f}" for seconds in ours)])
    head = ["milliseconds of a step", "dtype", *CONTENDERS]
    return rst.table([*head, *(f"{model} / network" for model in list(CONTENDERS)[1:])], rows)


def rows_of(shape, dtype):
    """Random inputs and targets of a batch."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((shape.batch, shape.n_features))
    y = np.sin(X[:, :1]) + 0.1 * rng.standard_normal((shape.batch, shape.n_outputs))
    return torch.tensor(X, dtype=dtype), torch.tensor(y)


def features(shape, n_frequencies, dtype, **settings):
    """A step of skdgp's model, as the trainer makes it."""
    X, y = rows_of(shape, dtype)
    architecture = Architecture(
        shape.n_features, shape.widths, shape.n_outputs, n_frequencies, [], True, False
    )
    kernel = as_kernel("squared_exponential")
    architecture.kernels = [kernel.bind(n) for n in architecture.layer_inputs()]
    likelihood = Gaussian(np.full(shape.n_outputs, 0.1))
    model = RandomFeatures(**settings).build(architecture, likelihood)
    model.start(X.double().numpy(), np.ones(len(X)), np.random.RandomState(0))
    model.prepare(0.01, dtype)
    weights = torch.ones(len(X), dtype=torch.float64)
    batch = Batch(X, y, weights, N_ROWS / shape.batch, float(N_ROWS))
    generator = torch.Generator().manual_seed(0)
    model._n_steps = WARM
    return lambda: [model.step(batch, generator) for _ in range(AT_ONCE)]


class Network(nn.Module):
    """Layers of cosines and sines, and linear maps between them."""

    def __init__(self, sizes, n_frequencies, dtype):
        super().__init__()
        self.inner = nn.ModuleList(
            nn.Linear(n, n_frequencies, bias=False, dtype=dtype) for n in sizes[:-1]
        )
        self.outer = nn.ModuleList(
            nn.Linear(2 * n_frequencies, n, bias=False, dtype=dtype) for n in sizes[1:]
        )

    def forward(self, H):
        for inner, outer in zip(self.inner, self.outer):
            A = inner(H)
            H = outer(torch.cat([A.cos(), A.sin()], -1))
        return H


def network(shape, n_frequencies, dtype):
    """A step of Adam on the squared error."""
    X, y = rows_of(shape, dtype)
    y = y.to(dtype)
    model = Network([shape.n_features, *shape.layers()], n_frequencies, dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)

    def step():
        optimizer.zero_grad()
        loss = (model(X) - y).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return lambda: [step() for _ in range(AT_ONCE)]


CONTENDERS = {
    "network": network,
    "fixed": features,
    "diagonal": lambda *shape: features(*shape, covariance="diagonal"),
    "variational": lambda *shape: features(*shape, frequencies="variational"),
}
