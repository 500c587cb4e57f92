"""
=====================================
Fit few rows of a function that bends
=====================================

With some dozens of rows much is left open: where the function bends, and how fast.
``inference="collapsed"`` integrates the last layer out over all rows, and keeps a posterior of hidden
functions and of the hyperparameters. Its error bars are wide where rows leave something open, and
narrow elsewhere.
"""

# %%
# Smooth, then rough
# ------------------
# Forty rows of a wave that gets faster. One lengthscale must be short for the right half, and so forgets
# what rows of the left half say of each other. Hidden functions that stretch the input can have both.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.inference import DSVI


def wave(x):
    return np.sin(2.5 * np.exp(1.4 * x))


rng = np.random.default_rng(1)
X = np.sort(rng.uniform(-2, 2, size=(40, 1)), axis=0)
y = wave(X[:, 0]) + 0.05 * rng.standard_normal(40)
X_test = rng.uniform(-2, 2, size=(1000, 1))
y_test = wave(X_test[:, 0]) + 0.05 * rng.standard_normal(1000)

models = {
    "one layer, exact": DeepGPRegressor(
        n_layers=1,
        inference="exact",
        kernel="squared_exponential",
        likelihood="gaussian",
        random_state=0,
    ),
    "two layers, dsvi": DeepGPRegressor(
        inference=DSVI(inner_scale=1e-5, inner_variance=1.0),
        likelihood="gaussian",
        random_state=0,
    ),
    "two layers, collapsed": DeepGPRegressor(inference="collapsed", random_state=0),
}
grid = np.linspace(-2.3, 2.3, 400)[:, None]
fig, axes = plt.subplots(3, 1, figsize=(8, 8), sharex=True, sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items()):
    model.fit(X, y)
    low, high = model.predict_interval(grid, coverage=0.95).T
    score = model.log_predictive_density(X_test, y_test).mean()
    ax.fill_between(grid[:, 0], low, high, alpha=0.2, lw=0)
    ax.plot(grid[:, 0], model.predict(grid), label="mean, and 95 %")
    ax.plot(grid[:, 0], wave(grid[:, 0]), "k:", lw=1, label="truth")
    ax.plot(X[:, 0], y, "k.", ms=5)
    ax.set(title=f"{name}: test log-density {score:.2f}", ylim=(-2.5, 2.5), ylabel="y")
    print(f"{name:25s} {score:6.2f}")
axes[0].legend(loc="upper left")
axes[-1].set_xlabel("x")
plt.show()

# %%
# What it is unsure of
# --------------------
# Predictions are a mixture of exact processes, one for each of sixteen draws of the hidden functions and of
# hyperparameters. Draws of the function are draws of one of them first.

model = models["two layers, collapsed"]
fig, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
functions = model.sample_y(grid, n_samples=12, random_state=0, latent=True)
ax.plot(grid[:, 0], functions, lw=0.8, alpha=0.7)
ax.plot(X[:, 0], y, "k.", ms=5)
ax.set(title="draws of the function", ylim=(-2.5, 2.5), xlabel="x", ylabel="y")
plt.show()
