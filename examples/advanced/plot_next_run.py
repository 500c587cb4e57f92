"""
===================================
Choose the next runs of a simulator
===================================

A simulator is smooth nearly everywhere, and falls off a cliff along a curve. Runs that fill the space know
little of the cliff; runs that are chosen one after another learn where it is.
"""

# %%
# Fifteen runs fill the square. The model is an exact Gaussian process with a local scale: where runs near a
# point are predicted badly by all others, error bars are wide.

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import qmc
from sklearn.metrics import root_mean_squared_error

from skdgp import DeepGPRegressor
from skdgp.acquisition import alc
from skdgp.inspection import LeaveOneOutDisplay


def simulator(X):
    return np.sin(3 * X[:, 0]) + 2.0 * (X[:, 1] > 0.3 + 0.5 * X[:, 0] ** 2)


def model():
    return DeepGPRegressor(1, inference="exact", target_transform=None, random_state=0)


def points(n, seed):
    return qmc.LatinHypercube(2, optimization="random-cd", rng=np.random.default_rng(seed)).random(
        n
    )


X = points(15, 0)
fitted = model().fit(X, simulator(X))

# %%
# Each further run lowers the variance at 200 references most, among 400 candidates. The model is fitted anew
# after five runs, and conditioned on each of those between.

candidates = points(400, 1)
for i in range(35):
    new = candidates[[alc(fitted, candidates).argmax()]]
    X = np.concatenate([X, new])
    if i % 5 == 4:
        fitted = model().fit(X, simulator(X))
    else:
        fitted = fitted.condition_on(new, simulator(new))

# %%
# A design that fills the space has as many runs, and here a larger error.

X_test = points(1000, 2)
filling = points(50, 3)
for name, one in {
    "one after another": fitted,
    "all at once": model().fit(filling, simulator(filling)),
}.items():
    error = root_mean_squared_error(simulator(X_test), one.predict(X_test))
    print(f"{name}: RMSE {error:.3f}")

# %%
# A third of the chosen runs lie within 0.1 of the cliff, as does a fifth of the square. Predictions of each run
# from all others show what the model thinks of its own errors: large ones have long bars.

fig, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), -1)
shown = fitted.predict(grid.reshape(-1, 2)).reshape(101, 101)
image = axes[0].pcolormesh(grid[..., 0], grid[..., 1], shown, shading="gouraud")
fig.colorbar(image, ax=axes[0], label="prediction")
axes[0].plot(*X[:15].T, "wo", label="first runs", markersize=4)
axes[0].plot(*X[15:].T, "r.", label="chosen runs")
axes[0].legend(loc="lower right", fontsize="small")
axes[0].set(xlabel="x0", ylabel="x1")
LeaveOneOutDisplay.from_estimator(fitted, name="leave-one-out", ax=axes[1])
plt.show()
