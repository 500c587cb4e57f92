"""
===============================
Foldings, and who sees them all
===============================

Two layers can explain the same rows in several ways. An approximation that is optimized takes one of them; a
sampler that mixes has all. This is the example of Cutajar et al. (2017, figure 2): 50 rows of a function of a
function.
"""

# %%
# The rows
# --------
# The function is h(h(x)) with h(x) = 2 x exp(-x^2), and the noise has a standard deviation of 0.1.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.gp.kernels import SquaredExponential
from skdgp.gp.likelihoods import Gaussian
from skdgp.inference import EllipticalSlice


def h(x):
    return 2 * x * np.exp(-(x**2))


rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3, 3, size=(50, 1)), axis=0)
y = h(h(X[:, 0])) + 0.1 * rng.standard_normal(50)
grid = np.linspace(-4, 4, 200)[:, None]

# %%
# The same model, four times
# --------------------------
# Kernels and noise are given, and there is no mean function, so that only inference differs.

settings = {
    "kernel": SquaredExponential(lengthscale=1.0, variance=0.5, trainable=False),
    "likelihood": Gaussian(variance=0.01, trainable=False),
    "mean": "zero",
    "width": 1,
    "standardize": False,
    "random_state": 0,
}
schemes = {
    "dsvi": "dsvi",
    "structured": "structured",
    "sghmc": "sghmc",
    "elliptical slices": EllipticalSlice(hyperparameters="fixed"),
}
fig, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
models = {}
for ax, (name, inference) in zip(axes.flat, schemes.items()):
    budget = {"max_iter": 1500} if "slices" in name else {}  # the default is 8,000
    model = DeepGPRegressor(inference=inference, **budget, **settings).fit(X, y)
    models[name] = model
    draws = model.sample_y(grid, n_samples=30, random_state=0, latent=True)
    ax.plot(grid[:, 0], draws, lw=0.6, alpha=0.5)
    ax.plot(X[:, 0], y, "k.", ms=4)
    ax.set_title(name)

# %%
# Draws of the optimized posteriors fan out less where rows end: they know one folding only. Elliptical
# slices with tempering have several.
