"""
===========================
Do the chains of a fit mix?
===========================

What to look at after sampling: whether chains agree, on functions, and how many independent draws there are.
The figures need ArviZ.
"""

# %%
# Sample
# ------
# Few rows of a wave that gets faster, with elliptical slices: four chains, each at eight powers of the
# likelihood. There are too few steps on purpose, and ``fit`` says so.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.inspection import mcmc_diagnostics, to_arviz

rng = np.random.default_rng(1)
X = np.sort(rng.uniform(-2, 2, size=(25, 1)), axis=0)
y = np.sin(2.5 * np.exp(X[:, 0])) + 0.05 * rng.standard_normal(25)
model = DeepGPRegressor(inference="ess", max_iter=500, random_state=0).fit(X, y)

# %%
# Do chains agree?
# ----------------
# R-hat should be below 1.05 at rows inside and outside the data, and effective sample sizes above 400.

rows = np.linspace(-3, 3, 20)[:, None]
print(mcmc_diagnostics(model, rows))

# %%
# Traces of the function at two rows, one where there are no data. Chains should overlap, and not drift.

f = to_arviz(model, rows).posterior["f"].values[..., 0]
fig, axes = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
for ax, j in zip(axes, (0, 10)):
    ax.plot(f[:, :, j].T, lw=0.8)
    ax.set(ylabel=f"f at x = {rows[j, 0]:.1f}")
axes[1].set_xlabel("state that was kept")
plt.show()

# %%
# What it means for predictions
# -----------------------------
# The mixture over all states, and its 90 % intervals.

grid = np.linspace(-3, 3, 150)[:, None]
low, high = model.predict_interval(grid).T
fig, ax = plt.subplots(figsize=(8, 3.5), layout="constrained")
ax.fill_between(grid[:, 0], low, high, alpha=0.3)
ax.plot(grid[:, 0], model.predict(grid))
ax.plot(X[:, 0], y, "k.")
ax.set(xlabel="x", ylabel="y")
plt.show()
