"""Time of a training step of the structured posteriors, against bare products and the mean field.

The floor of a family are its own matrix products, run bare: three to whiten the kernel of a layer,
two for each quadratic form and three for each bilinear one (value and gradients), with the rows of
the data where the first layer is involved and those of all draws elsewhere; and those between
blocks of the posterior's factor.
"""

from typing import NamedTuple

import numpy as np
import torch

from skdgp.inference import DSVI, StructuredVI
from skdgp.inference.structured.pattern import COUPLINGS, Pattern

from . import rst, step

N_FEATURES = 8


class Shape(NamedTuple):
    """A model and a batch."""

    n_layers: int = 3
    width: int = 5
    n_inducing: int = 128
    batch: int = 512
    n_draws: int = 5

    def as_step(self):
        """The shape for the functions that all steps share."""
        widths = (self.width,) * (self.n_layers - 1)
        return step.Shape(self.batch, N_FEATURES, widths, 1, self.n_inducing, 0)

    def __str__(self):
        return f"{self.n_layers} layers, width {self.width}, M = {self.n_inducing}"


SHAPES = (
    Shape(),
    Shape(n_inducing=32),
    Shape(n_inducing=64),
    Shape(n_inducing=256),
    Shape(n_layers=2),
    Shape(n_layers=4),
    Shape(width=2),
    Shape(width=8),
)


def run(options):
    """Print medians and ratios."""
    torch.set_num_threads(1)
    shapes = SHAPES if options.shapes is None else [SHAPES[i] for i in options.shapes]
    rows = []
    for shape in shapes:
        for dtype in step.DTYPES:
            medians = step.measure(contenders(shape, step.DTYPES[dtype]), options.steps or 15)
            rows.append(report(shape, dtype, medians))
    head = ["milliseconds of a step", "dtype", "DSVI"]
    for name in COUPLINGS:
        head += [name, "/ floor", "/ DSVI"]
    print(rst.table(head, rows))


def contenders(shape, dtype):
    """Functions without arguments that make one step."""
    draws = {"n_draws": shape.n_draws}
    base = DSVI(shared_covariance=False, natural_gradient="none", **draws)
    steps = {"dsvi": step.step_of(base, shape.as_step(), dtype)}
    for name in COUPLINGS:
        scheme = StructuredVI(name, n_warmup=0, natural_gradient=False, **draws)
        steps[name] = step.step_of(scheme, shape.as_step(), dtype)
        steps["floor", name] = floor(shape, name, dtype)
    return steps


def report(shape, dtype, medians):
    """A row of the table."""
    row = [str(shape), dtype, f"{1e3 * medians['dsvi']:.1f}"]
    for name in COUPLINGS:
        seconds = medians[name]
        row += [f"{1e3 * seconds:.1f}", f"{seconds / medians['floor', name]:.2f}"]
        row.append(f"{seconds / medians['dsvi']:.2f}")
    return row


def products(shape, coupling):
    """Sizes (stack, a, b, c) of the products of (a, b) and (b, c) matrices that a step cannot spare."""
    widths = (shape.width,) * (shape.n_layers - 1)
    pattern, M, K = Pattern(widths, 1, coupling), shape.n_inducing, 1
    rows = [shape.batch] + [shape.batch * shape.n_draws] * len(widths)
    sizes = []
    for layer, P in enumerate(rows):
        n_forms = K if layer == len(widths) else widths[layer]
        if layer < len(widths):
            n_forms += sum(where.stop - where.start for *_, where in pattern.within(layer))
        sizes += [(1, n_forms * M, M, P), (1, n_forms * M, P, M)]
        sizes += [(1, M, M, P), (1, M, M, P), (1, M, P, M)]  # whitening, and its gradients
        for c in pattern.tied(layer):
            chain = pattern.chains[c]
            w, units = len(chain.gps), dict(zip(chain.layers, chain.units))
            for earlier in (j for j in chain.layers if j < layer):
                u = units[layer].shape[1] if layer in units else K
                q, P_j = w * u * units[earlier].shape[1], rows[earlier]
                sizes += [(1, q * M, M, P_j), (1, q * M, P_j, M), (1, M, q * M, P_j)]
    for chain in pattern.chains:
        w, n = chain.gps.shape
        for i in range(n):
            sizes += [(w, (n - i) * M, (i + 1) * M, M), (w, (n - i) * M, (n - i) * M, M)]
        if pattern.arrow:
            sizes += 2 * [(w, M, n * M, n * M)] + [(w, n * M, M, n * M)]
            sizes += [(w, M, n * M, M), (w, M, M, n * M)]
    return sizes


def floor(shape, coupling, dtype):
    """The bare products."""
    rng = np.random.default_rng(0)
    stacks = []
    for w, a, b, c in products(shape, coupling):
        left, right = (
            torch.tensor(rng.standard_normal(s), dtype=dtype) for s in ((w, a, b), (w, b, c))
        )
        stacks.append((left, right, torch.empty(w, a, c, dtype=dtype)))

    def multiply():
        for left, right, out in stacks:
            torch.bmm(left, right, out=out)

    return multiply
