"""Structured posteriors with the inducing outputs integrated out, against draws of them.

Both ways estimate the same bound without bias (Lindinger et al., 2020, figure 2). Integrated out, as in
`StructuredVI`, they leave noise that is independent from row to row; one draw of them is common to
all rows of a batch.
"""

import time

import numpy as np
import torch

from skdgp.inference import StructuredVI
from skdgp.inference.base import Batch
from skdgp.inference.structured.coupled import CoupledGaussian
from skdgp.inference.structured.structured import StructuredGP
from skdgp.linalg import workspace
from skdgp.random import normal

from . import arguments, data, rst, step

WAYS = ("integrated", "drawn")


def add_arguments(parser):
    """The model, the set, and how long."""
    parser.add_argument(
        "--data", type=arguments.Path, help="folder of the data; default: SKDGP_DATA"
    )
    parser.add_argument("--set", default="concrete", help="default: concrete")
    parser.add_argument("--split", type=int, default=5, help="default: 5")
    parser.add_argument("--coupling", default="full", help="default: full")
    parser.add_argument("--n-inducing", type=int, default=64, help="default: 64")
    parser.add_argument("--steps", type=int, default=1000, help="of Adam; default: 1000")
    parser.add_argument(
        "--seeds", type=arguments.numbers, default=[0, 1, 2], help="default: 0 to 2"
    )
    parser.add_argument("--repeats", type=int, default=200, help="gradients at one point")
    parser.add_argument("--plot", type=arguments.Path, help="draw the bounds into this file")


def run(options):
    """Train in both ways from the same starts; print bounds and the scatter of gradients."""
    torch.set_num_threads(1)
    X, y = rows(data.folder(options.data), options.set, options.split)
    curves = {way: [] for way in WAYS}
    for seed in options.seeds:
        for way in WAYS:
            model, batches = start(X, y, options, way, seed)
            curves[way].append(train(model, batches, options.steps, seed))
    n_points = len(curves[WAYS[0]][0])
    marks = sorted({1, n_points // 4, n_points // 2, n_points - 1})
    head = ["bound per row after", *(f"{curves[WAYS[0]][0][i, 0]:.0f} steps" for i in marks)]
    table = []
    for way in WAYS:
        found = np.array(curves[way])  # seeds, points, 3
        row = [way, *(f"{found[:, i, 2].mean():.3f}" for i in marks)]
        table.append([*row, f"{1e3 * np.median(found[:, -1, 1] / found[:, -1, 0]):.1f}"])
    head.append("ms a step")
    print(rst.table(head, table), end="\n\n")
    print(scatter_table(X, y, options))
    if options.plot:
        plot(curves, options)


def rows(root, name, split):
    """Training rows, standardized."""
    train = data.uci_split(root, name, split)
    X, y = train.X_train[:, train.X_train.std(0) > 0.0], train.y_train[:, None]
    return (X - X.mean(0)) / X.std(0), (y - y.mean(0)) / y.std(0)


def start(X, y, options, way, seed):
    """A model of three layers of width 5, and a function that gives batches."""
    scheme = {"integrated": StructuredVI, "drawn": DrawnInducingOutputs}[way](
        options.coupling, n_warmup=0, natural_gradient=False
    )
    shape = step.Shape(512, X.shape[1], (5, 5), 1, options.n_inducing, options.steps)
    model = step.model_of(scheme, shape, X, torch.float64, "kmeans", seed)
    rng = np.random.default_rng(seed)

    def batch(size=shape.batch):
        chosen = rng.choice(len(X), min(size, len(X)), replace=False)
        parts = torch.tensor(X[chosen]), torch.tensor(y[chosen])
        weight = torch.ones(len(chosen), dtype=torch.float64)
        return Batch(*parts, weight, len(X) / len(chosen), float(len(X)))

    return model, batch


def train(model, batches, n_steps, seed):
    """Bounds per row, at the start and twenty times on the way.

    Returns
    -------
    curve : ndarray of shape (n_points, 3)
        Steps, seconds by the median of all steps, and bound.
    """
    generator, everything = torch.Generator().manual_seed(seed), batches(10**9)
    curve, seconds = [(0, bound(model, everything))], []
    every = max(1, n_steps // 20)
    with workspace():
        for n in range(1, n_steps + 1):
            begin = time.perf_counter()
            model.step(batches(), generator, min(1.0, 2.0 - 2.0 * n / n_steps + 0.02))
            seconds.append(time.perf_counter() - begin)
            if n % every == 0:
                curve.append((n, bound(model, everything)))
    n, bounds = np.array(curve).T
    return np.stack([n, n * np.median(seconds), bounds], 1)


def bound(model, batch, n_draws=20):
    """The bound per row, for both ways with the inducing outputs integrated out."""
    generator, kept = torch.Generator().manual_seed(0), model.n_draws
    model.n_draws = n_draws
    with torch.no_grad():
        ell = StructuredGP.expected_log_likelihood(model, batch, generator)
    model.n_draws = kept
    return float(ell - model.kl()) / batch.total


def gradients(model, batch, n):
    """`n` gradients of the estimated expected log-likelihood per row at one point.

    Returns
    -------
    by_part : dict of ndarrays of shape (n, n_parameters)
    """
    generator = torch.Generator().manual_seed(1)
    found = {"means": [], "roots": [], "kernels, inducing inputs, noise": []}
    for _ in range(n):
        model.step(batch, generator, 0.0)
        others = [p.grad.flatten() for p in model._in_graph if p.grad is not None]
        for part, values in zip(
            found.values(), (model.q.mean.grad, model.q.root.grad, torch.cat(others))
        ):
            part.append(values.flatten().numpy().copy())
    return {name: np.array(part) for name, part in found.items()}


def scatter_table(X, y, options):
    """Variance of the gradients of one batch, early and late in training, summed over parameters."""
    head, table = None, []
    for n_steps in (options.steps // 20, options.steps // 2):
        models = [start(X, y, options, way, 0) for way in WAYS]
        train(*models[0], n_steps, 0)
        models[1][0].load_state_dict(models[0][0].state_dict())
        batch = models[0][1]()
        scatter = [
            {k: g.var(0, ddof=1).sum() for k, g in gradients(model, batch, options.repeats).items()}
            for model, _ in models
        ]
        head = ["variance drawn / integrated", *scatter[0]]
        ratios = (f"{scatter[1][k] / scatter[0][k]:.3g}" for k in scatter[0])
        table.append([f"after {n_steps} steps", *ratios])
    return rst.table(head, table)


def plot(curves, options):
    """Bounds by steps and by seconds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
    for way, color in zip(WAYS, ("C0", "C1")):
        for i, curve in enumerate(curves[way]):
            n, seconds, bounds = curve.T
            label = f"inducing outputs {way}" + (" out" if way == "integrated" else "")
            for ax, x in zip(axes, (n, seconds)):
                ax.plot(x[1:], bounds[1:], color=color, label=label if i == 0 else None)
    axes[0].set(xlabel="steps", ylabel="bound per row")
    axes[1].set(xscale="log", xlabel="seconds", title=f"{options.set}, {options.coupling} coupling")
    axes[0].legend(loc="lower right")
    figure.savefig(options.plot, dpi=150)


class DrawnInducingOutputs(StructuredVI):
    """The same bound, estimated with draws of the inducing outputs."""

    def build(self, architecture, likelihood):
        return _DrawnGP(architecture, likelihood, self)


class _DrawnGaussian(CoupledGaussian):
    """A posterior that its model meets only through draws."""

    def draw(self, n, generator):
        """Draws of shape (n, T, M) that carry gradients to mean and root."""
        T, M = self.mean.shape
        self._leaves = mean, root = [p.detach().requires_grad_() for p in (self.mean, self.root)]
        rows, columns = np.nonzero(self.slots >= 0)
        C = root.new_zeros(T, T, M, M)
        C[rows, columns] = root[self.slots[rows, columns]]
        return mean + torch.einsum("tuab,nub->nta", C, normal((n, T, M), generator, mean))

    def collected_gradients(self, scale=1.0):
        mean, root = (leaf.grad * scale for leaf in self._leaves)
        root[: len(mean)].tril_()
        return mean, root


class _DrawnGP(StructuredGP):
    _posterior_type = _DrawnGaussian

    def expected_log_likelihood(self, batch, generator):
        v = self.q.draw(self.n_draws, generator)
        H = batch.X.expand(self.n_draws, *batch.X.shape)
        for layer, v_layer in zip(self.layers, v.split([a.n_outputs for a in self.layers], 1)):
            A, k_ff = self._whitened(layer, H, None)  # M, S, n
            mean = torch.einsum("sdm,msn->snd", v_layer, A) + layer.mean_function(H)
            var = (k_ff - A.square().sum(0) + layer.noise()).clamp_min(1e-12)[..., None]
            H = mean + var.sqrt() * normal(mean.shape, generator, mean)
        ell = self.likelihood().expected_log_prob(batch.y, mean, var.expand_as(mean))
        return batch.scale * (batch.weight * ell.mean(0)).sum()
