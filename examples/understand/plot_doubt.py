"""
==================================
Classes that overlap, and no rows
==================================

A probability of one half has two meanings. Where classes overlap, many rows say one half, and more rows
would not change it. Where there are no rows, anything is possible. A classifier should tell these cases
apart, and its probabilities should be right.
"""

# %%
# Two columns. On the left the classes overlap, in the middle there are hardly any rows, and on the right
# they are apart.

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit
from sklearn.calibration import CalibrationDisplay
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from skdgp import DeepGPClassifier

rng = np.random.default_rng(0)


def draw(n):
    """Rows, classes and the true probabilities of the second class."""
    left = rng.random(n) < 0.5
    X = np.c_[np.where(left, -2.0, 2.0) + 0.6 * rng.normal(size=n), 1.2 * rng.normal(size=n)]
    p = expit(np.where(X[:, 0] < 0.0, 0.7 * X[:, 1], 5.0 * X[:, 1]))
    return X, (rng.random(n) < p).astype(int), p


X, y, _ = draw(400)
X_test, y_test, p_test = draw(2000)
model = DeepGPClassifier(random_state=0).fit(X, y)
trees = HistGradientBoostingClassifier(random_state=0).fit(X, y)

# %%
# Overlap and ignorance
# ---------------------
# The probabilities on the left, and their standard deviations over the functions that the data leave possible
# on the right. Both the overlap and the empty middle have probabilities near one half. The deviation is small
# at the former and larger at the latter, and outside of the data.

grid = np.meshgrid(np.linspace(-5.0, 5.0, 60), np.linspace(-4.0, 4.0, 50))
proba, std = model.predict_proba(np.c_[grid[0].ravel(), grid[1].ravel()], return_std=True)

fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
shown = ("Probability", proba[:, 1], "RdBu_r", 1.0), ("Its deviation", std[:, 1], "viridis", None)
for ax, (title, values, colors, top) in zip(axes, shown):
    field = ax.pcolormesh(
        *grid, values.reshape(grid[0].shape), cmap=colors, vmin=0.0, vmax=top, rasterized=True
    )
    fig.colorbar(field, ax=ax)
    ax.scatter(*X.T, c=y, cmap="RdBu_r", s=12, edgecolor="k", linewidth=0.4)
    ax.set(title=title, xlabel="First column")
_ = axes[0].set_ylabel("Second column")

# %%
# In the overlap, between, and where classes are apart:

places = np.array([[-2.0, 0.0], [0.0, 0.0], [2.0, 1.0]])
for place, p, s in zip(places, *model.predict_proba(places, return_std=True)):
    print(f"{place}  probability {p[1]:.2f}  deviation {s[1]:.2f}")

# %%
# Calibration
# -----------
# Of the rows to which a model gives 30 percent, 30 percent should have the class. The trees are too sure of
# themselves: points lie below the diagonal on the right and above it on the left.

fig, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
for name, one in {"deep Gaussian process": model, "boosted trees": trees}.items():
    given = one.predict_proba(X_test)[:, 1]
    CalibrationDisplay.from_predictions(
        y_test, given, n_bins=8, strategy="quantile", name=name, ax=ax
    )
    error = np.sqrt(np.mean((given - p_test) ** 2))
    print(f"{name:22s} log-loss {log_loss(y_test, given):.3f}  error of probabilities {error:.3f}")
print(f"{'the true probabilities':22s} log-loss {log_loss(y_test, p_test):.3f}")
