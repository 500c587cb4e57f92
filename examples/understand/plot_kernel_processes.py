"""
===========================
See what random kernels add
===========================

A deep kernel process goes from Gram matrix to Gram matrix, without features between them. How near each one
stays to a fixed function of the one below is told by delta.
"""

# %%
# Draws from the prior
# --------------------
# Equally spaced inputs, the squared exponential kernel, and three layers: the columns are the Gram matrices.
# With a large delta, the layers are fixed functions of those below; with a small one, each is a draw. Those of
# narrow deep Gaussian processes are draws, too, of low rank.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.datasets import make_deep_kernel_process

fig, axes = plt.subplots(3, 3, figsize=(8, 8), layout="constrained")
for row, (kind, size) in zip(axes, (("diwp", 3.0), ("diwp", 300.0), ("dgp", 3))):
    settings = {"delta": size} if kind == "diwp" else {"width": size}
    *_, grams, _ = make_deep_kernel_process(
        80, kind=kind, return_layers=True, random_state=1, **settings
    )
    for layer, (ax, G) in enumerate(zip(row, grams), 1):
        ax.imshow(G)
        ax.set(xticks=[], yticks=[], title=f"{kind}, {next(iter(settings))} {size}: layer {layer}")

# %%
# A toy regression
# ----------------
# A step with noise, and no rows in the middle. The deep Gaussian process, the inverse Wishart process and its
# limit have three layers and the same kernel. Bands are two standard deviations wide; lines are draws.

rng = np.random.RandomState(0)
X = np.concatenate([rng.uniform(-1.5, -0.3, 30), rng.uniform(0.5, 1.5, 30)])[:, None]
y = np.where(X[:, 0] > 0.0, 1.0, -1.0) + 0.1 * rng.standard_normal(60)
grid = np.linspace(-3.0, 3.0, 200)[:, None]

fig, axes = plt.subplots(1, 3, figsize=(11, 3.5), sharey=True, layout="constrained")
titles = {"global": "deep GP, global inducing points", "diwp": "DIWP", "nngp": "NNGP"}
models = {}
for ax, (inference, title) in zip(axes, titles.items()):
    shape = {"n_inducing": 20, "max_iter": 500} if inference != "nngp" else {}
    model = DeepGPRegressor(3, inference=inference, random_state=0, **shape).fit(X, y)
    mean, std = model.predict(grid, return_std=True, latent=True)
    ax.fill_between(grid[:, 0], mean - 2.0 * std, mean + 2.0 * std, alpha=0.3)
    ax.plot(grid, model.sample_y(grid, 5, latent=True), lw=0.6, color="C0")
    ax.plot(X, y, "k.", ms=3)
    ax.set(title=title, xlabel="x", ylim=(-4.0, 4.0))
    models[inference] = model
axes[0].set_ylabel("y")
plt.show()
# sphinx_gallery_thumbnail_number = 2

# %%
# Where rows are dense, all three agree. ``delta_`` tells how much each layer of the DIWP learns. On so few rows
# it stays large: layers are nearly fixed functions, and the bands are nearly those of the NNGP. The features of
# the deep GP bend the input instead.

print(models["diwp"].delta_.round(1))
print({name: round(model.lower_bound_, 1) for name, model in models.items()})
