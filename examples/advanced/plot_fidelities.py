"""
=========================
Cheap and dear simulators
=========================

A dear simulator allows fourteen runs, too few for its wiggles. A cheap one, which is wrong but related, allows
fifty. A model of both sees the wiggles (Perdikaris et al., 2017).
"""

# %%
# One column of X says which simulator a run is of: 0 is the cheap one. The dear output is a nonlinear function
# of the cheap one, and of the input.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from skdgp import DeepGPRegressor, MultiFidelityRegressor


def simulator(x, level):
    cheap = np.sin(8 * np.pi * x)
    return np.where(level == 0, cheap, (x - np.sqrt(2)) * cheap**2)


x = np.concatenate([np.linspace(0, 1, 50), np.linspace(0, 1, 14)])
level = np.repeat([0, 1], [50, 14])
y = simulator(x, level)
model = MultiFidelityRegressor(random_state=0).fit(np.column_stack([x, level]), y)

# %%
# The dear runs alone miss most of the function.

dear = level == 1
alone = DeepGPRegressor(noise="none", random_state=0).fit(x[dear, None], y[dear])
grid = np.linspace(0, 1, 300)
both = model.predict(np.column_stack([grid, np.ones(300)]))
truth = simulator(grid, 1)
for name, mean in {"both": both, "dear runs alone": alone.predict(grid[:, None])}.items():
    print(
        f"{name}: RMSE {root_mean_squared_error(truth, mean) / truth.std():.3f} standard deviations"
    )

# %%
# On the left the input and outputs, on the right the dear output over the cheap one, which the second model
# learns.

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
low, high = model.predict_interval(np.column_stack([grid, np.ones(300)]), 0.9).T
axes[0].fill_between(grid, low, high, alpha=0.3, label="90 % intervals")
axes[0].plot(grid, both, label="both")
axes[0].plot(grid, truth, "k:", label="truth")
axes[0].plot(grid, alone.predict(grid[:, None]), color="gray", label="dear runs alone")
axes[0].plot(x[dear], y[dear], "ko", markersize=4, label="dear runs")
axes[0].set(xlabel="x", ylabel="dear output")
axes[0].legend(fontsize="small", ncols=2, loc="lower right")
cheap = model.predict(np.column_stack([grid, np.zeros(300)]))
axes[1].plot(cheap, both)
axes[1].plot(simulator(x[dear], 0), y[dear], "ko", markersize=4)
axes[1].set(xlabel="cheap output", ylabel="dear output")
plt.show()
