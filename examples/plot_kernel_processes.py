"""
================
Random kernels
================

A deep kernel process goes from Gram matrix to Gram matrix, without features between them. How near each one
stays to a fixed function of the one below is told by delta.
"""

# %%
# Draws from the prior
# --------------------
# Equally spaced inputs, the squared exponential kernel, and three layers: the columns are the Gram matrices.
# With a large delta, the layers are fixed functions of those below; with a small one, each is a draw.

import matplotlib.pyplot as plt
import numpy as np
import torch

from skdgp.datasets import make_deep_kernel_process

fig, axes = plt.subplots(3, 3, figsize=(8, 8), layout="constrained")
rows = (("diwp", 3.0), ("diwp", 300.0), ("dwp", 3))
for row, (kind, size) in zip(axes, rows):
    settings = {"delta": size} if kind == "diwp" else {"width": size}
    _, _, grams, _ = make_deep_kernel_process(
        80, kind=kind, return_layers=True, random_state=1, **settings
    )
    for layer, (ax, G) in enumerate(zip(row, grams), 1):
        ax.imshow(G)
        ax.set(xticks=[], yticks=[], title=f"{kind}, {next(iter(settings))} {size}: layer {layer}")

# %%
# A toy regression
# ----------------
# A step with noise, and no rows in the middle. The deep Gaussian process, the inverse Wishart process and its
# limit have the same kernel; they are trained for as many steps.

from skdgp.gp.kernels import as_kernel
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference.base import Architecture, Batch
from skdgp.inference.deep_kernel_process import NNGP, DeepInverseWishart, GlobalInducing

rng = np.random.RandomState(0)
X = np.concatenate([rng.uniform(-1.5, -0.3, 30), rng.uniform(0.5, 1.5, 30)])[:, None]
y = np.where(X > 0.0, 1.0, -1.0) + 0.1 * rng.standard_normal(X.shape)
grid = torch.linspace(-3.0, 3.0, 200, dtype=torch.float64)[:, None]
batch = Batch(torch.as_tensor(X), torch.as_tensor(y), torch.ones(60).double(), 1.0, 60.0)


def fit(scheme, n_steps):
    shape = Architecture(1, (2, 2), 1, 20, [], True, False)
    shape.kernels = [as_kernel("squared_exponential").bind(n) for n in shape.layer_inputs()]
    model, generator = scheme.build(shape, Gaussian(np.array([0.05]))), torch.Generator()
    model.start(X, np.ones(60), np.random.RandomState(0))
    model.prepare(0.01, torch.float64)
    for i in range(n_steps):
        model.step(batch, generator.manual_seed(i))
    model.settle()
    return model.posterior(model.draws(64, 0))


fig, axes = plt.subplots(1, 3, figsize=(11, 3.5), sharey=True, layout="constrained")
schemes = {
    "DGP, global inducing points": GlobalInducing(),
    "DIWP": DeepInverseWishart(),
    "NNGP": NNGP(exact=False),
}
for ax, (title, scheme) in zip(axes, schemes.items()):
    posterior = fit(scheme, 800)
    weights, mean, var = posterior.latent(grid)
    center = mean.mean(0)[:, 0]
    sd = (var + (mean - mean.mean(0)).square()).mean(0)[:, 0].sqrt()
    ax.fill_between(grid[:, 0], center - 2.0 * sd, center + 2.0 * sd, alpha=0.3)
    f = posterior.functions(5, torch.Generator().manual_seed(0))
    ax.plot(grid, sum(f(grid))[..., 0].T, lw=0.6, color="C0")
    ax.plot(X, y, "k.", ms=3)
    ax.set_title(title)
# sphinx_gallery_thumbnail_number = 2

# %%
# Where rows are dense, all three agree. Between and beyond them, the kernel itself is uncertain for the first
# two: their bands follow what different kernels would say.
