"""
A level that training never saw
===============================

Schools, plants, sites: tomorrow's rows often come from one that is not in the table yet. A tree sends them
down some branch, with the error bars of the rows there. Here error bars widen by the variance between the
known levels.
"""

# %%
# Fourteen sites differ by offsets with a standard deviation of 2, beside a curve and noise of size 0.5. Two of
# them are left out of training.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor

from skdgp import DeepGPRegressor

rng = np.random.default_rng(2)
offsets = 2 * rng.standard_normal(14)
sites = np.repeat(np.arange(14), 15)
frame = pd.DataFrame({"dose": rng.uniform(0, 3, 210), "site": [f"site {i:02}" for i in sites]})
y = np.sin(2 * frame["dose"]) + offsets[sites] + 0.5 * rng.standard_normal(210)
known = sites < 12

# %%
# Both models read the frame as it is. The tree's intervals are two quantile regressions.

model = DeepGPRegressor(1, inference="exact", random_state=0).fit(frame[known], y[known])
categories = frame.assign(site=frame["site"].where(known).astype("category"))
trees = [
    HistGradientBoostingRegressor(loss="quantile", quantile=q, min_samples_leaf=5, random_state=0)
    for q in (0.05, 0.95)
]
trees = [tree.fit(categories[known], y[known]) for tree in trees]
bands = {
    "skdgp": model.predict_interval(frame),
    "quantile trees": np.column_stack([tree.predict(categories) for tree in trees]),
}

# %%
# 90 % intervals, of a known site and the two new ones. Trees treat a new site like the largest group of known
# ones, and are sure of it. For the Gaussian process a new site may be like any of the twelve.

fig, axes = plt.subplots(2, 3, figsize=(9, 5.4), sharex=True, sharey=True, layout="constrained")
for row, (name, band) in zip(axes, bands.items()):
    for ax, site in zip(row, (3, 12, 13)):
        rows = np.flatnonzero(sites == site)
        rows = rows[np.argsort(frame["dose"].to_numpy()[rows])]
        dose, (low, high) = frame["dose"].to_numpy()[rows], band[rows].T
        inside = np.mean((low <= y[rows]) & (y[rows] <= high))
        ax.fill_between(dose, low, high, alpha=0.3, linewidth=0)
        ax.plot(dose, y[rows], "k.")
        kind = "known" if site < 12 else "new"
        ax.set_title(f"{name}, {kind} site: {inside:.0%} inside", fontsize=10)
for ax in axes[-1]:
    ax.set_xlabel("dose")
for ax in axes[:, 0]:
    ax.set_ylabel("y")
plt.show()

# %%
# The width of the new sites' intervals is close to the right one: a new offset has a standard deviation of 2,
# noise has 0.5, and 90 % of targets lie within 1.645 standard deviations.

width = np.ptp(bands["skdgp"][~known], axis=1).mean()
print(f"mean width {width:.1f}; with known variances {2 * 1.645 * np.hypot(2.0, 0.5):.1f}")
