"""
==========================
Chains and their diagnoses
==========================

What to look at after sampling: whether chains agree, on functions; how many independent draws there are; and
how far an approximation is from the posterior.
"""

# %%
# Sample
# ------
# Few rows of a wave that gets faster, with elliptical slices: four chains, each at eight powers of the
# likelihood.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.inspection import mcmc_diagnostics, to_arviz

rng = np.random.default_rng(1)
X = np.sort(rng.uniform(-2, 2, size=(25, 1)), axis=0)
y = np.sin(2.5 * np.exp(X[:, 0])) + 0.05 * rng.standard_normal(25)
model = DeepGPRegressor(inference="ess", max_iter=1500, random_state=0).fit(X, y)

# %%
# Do chains agree?
# ----------------
# R-hat should be below 1.05 at rows inside and outside the data, and effective sample sizes above 400. With
# the default of 8,000 steps they are.

rows = np.linspace(-3, 3, 20)[:, None]
print(mcmc_diagnostics(model, rows))

# %%
# Traces of the function at one row: chains that overlap and do not drift.

f = to_arviz(model, rows).posterior["f"].values[..., 0]
fig, axes = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
for ax, j in zip(axes, (0, 10)):
    ax.plot(f[:, :, j].T, lw=0.8)
    ax.set(ylabel=f"f at x = {rows[j, 0]:.1f}")
axes[1].set_xlabel("state that was kept")
