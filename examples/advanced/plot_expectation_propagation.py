"""
=======================================================
Turn variational inference into expectation propagation
=======================================================

:class:`~skdgp.inference.AEP` trains a deep Gaussian process by power expectation propagation. Its
power `alpha` leads from variational inference, in the limit of 0, to expectation propagation at 1.
Here are a noisy step, models that differ in nothing but the power, and the two ways to predict.
"""

# %%
# One data set, three powers
# --------------------------

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.inference import AEP

rng = np.random.default_rng(0)
X = rng.uniform(-1.0, 1.0, size=(80, 1))
y = np.sign(X[:, 0]) + 0.1 * rng.standard_normal(80)
grid = np.linspace(-1.5, 1.5, 301)[:, None]


def fit(**settings):
    """A deep GP with two layers, trained for a few seconds."""
    model = DeepGPRegressor(
        inference=AEP(**settings),
        n_inducing=20,
        max_iter=400,
        learning_rate=0.02,
        random_state=0,
    )
    return model.fit(X, y)


models = {alpha: fit(alpha=alpha) for alpha in (1.0, 0.5, 0.01)}

fig, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, layout="constrained")
for ax, (alpha, model) in zip(axes, models.items()):
    mean, std = model.predict(grid, return_std=True)
    noise = float(np.sqrt(model.likelihood_.variance[0]))
    ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25, lw=0)
    ax.plot(grid, mean)
    ax.plot(X, y, "k.", ms=3)
    ax.set(title=f"alpha={alpha}: noise {noise:.3f}", xlabel="x", ylim=(-2.5, 2.5))
axes[0].set_ylabel("y")
plt.show()

# %%
# The noise of the data has a standard deviation of 0.1. Under expectation propagation, what the hidden
# layer leaves open at a row counts as noise of that row. With the power 1 it stands in for the noise
# altogether, and the band follows single points; with smaller powers the noise is found.
#
# The objective is no bound on the log marginal likelihood, and powers cannot be compared by it. Compare
# them by the log-density of rows that were held out:

X_new = rng.uniform(-1.0, 1.0, size=(1000, 1))
y_new = np.sign(X_new[:, 0]) + 0.1 * rng.standard_normal(1000)
for alpha, model in models.items():
    density = model.log_predictive_density(X_new, y_new).mean()
    print(f"alpha={alpha:<4}  held-out log-density {density:.2f}")

# %%
# One Gaussian, or draws
# ----------------------
#
# In training, the outputs of a hidden layer are replaced by a Gaussian with their mean and variance.
# Predictions can do the same (``prediction="moment-matching"``), or follow draws through the layers
# (``prediction="sampling"``). With two layers, means and variances agree, but not the shapes: at the
# step the density is skewed, and beyond the data it is a peak at the level of the nearest rows with a
# long tail towards the other one, of which a Gaussian knows nothing.

rows = np.array([[-0.5], [0.0], [1.4]])
values = np.linspace(-2.5, 2.5, 301)
fig, axes = plt.subplots(1, 3, figsize=(10, 3.0), layout="constrained")
for prediction in ("moment-matching", "sampling"):
    model = fit(alpha=0.5, prediction=prediction)
    for ax, row in zip(axes, rows):
        log_density = model.log_predictive_density(np.tile(row, (len(values), 1)), values)
        ax.plot(values, np.exp(log_density), label=prediction)
        ax.set(title=f"density of y at x={row[0]:g}", xlabel="y")
axes[0].legend()
axes[0].set_ylabel("density")
plt.show()
