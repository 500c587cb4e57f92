"""
================================
Keep all rows: nearest neighbors
================================

A sparse Gaussian process summarizes all rows by some inducing points. A nearest-neighbor Gaussian process
keeps the rows, and predicts from those around, so that its error bars can be local, too.
"""

# %%
# A chirp
# -------
# The function swings faster and faster, and its noise is strong in the middle third only. 3,000 rows say
# all that one could wish to know; the model has to listen.

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from skdgp import DeepGPClassifier, DeepGPRegressor, SparseGPClassifier, SparseGPRegressor
from skdgp.inspection import PredictiveDisplay
from skdgp.metrics import coverage_score, log_predictive_density_scorer


def make_chirp(n_samples, rng):
    x = rng.uniform(0, 3, n_samples)
    std = np.where((1 < x) & (x < 2), 0.5, 0.05)
    return x[:, None], np.sin(7 * x**3) + std * rng.standard_normal(n_samples)


rng = np.random.default_rng(0)
X, y = make_chirp(3000, rng)
X_test, y_test = make_chirp(2000, rng)

models = {
    "500 inducing points": SparseGPRegressor(kernel="matern32", n_inducing=500, random_state=0),
    "16 neighbors": DeepGPRegressor(
        n_layers=1, inference="vecchia", kernel="matern32", likelihood="gaussian", random_state=0
    ),
    "16 neighbors, local scale": DeepGPRegressor(
        n_layers=1, inference="vecchia", kernel="matern32", random_state=0
    ),
}

print("                            RMSE  log-density  in 95%: calm   wild  seconds")
for name, model in models.items():
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    error = root_mean_squared_error(y_test, model.predict(X_test))
    density = log_predictive_density_scorer(model, X_test, y_test)
    wild = (1 < X_test[:, 0]) & (X_test[:, 0] < 2)
    lower, upper = model.predict_interval(X_test, coverage=0.95).T
    covered = [coverage_score(y_test[part], lower[part], upper[part]) for part in (~wild, wild)]
    print(
        f"{name:26s}  {error:.3f}  {density:11.2f}  {covered[0]:12.2f}  {covered[1]:5.2f}  {seconds:7.1f}"
    )

# %%
# Five hundred inducing points follow the function as well as neighbors do. But all models with one size of
# noise are too sure of themselves in the middle, and too careful elsewhere. The local scale is estimated from
# the neighbors of each row.

fig, axes = plt.subplots(2, 1, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
for ax, name in zip(axes, ("500 inducing points", "16 neighbors, local scale")):
    PredictiveDisplay.from_estimator(models[name], X[::10], y[::10], name="mean", ax=ax)
    ax.set(title=name, xlabel="", ylabel="y")
    ax.legend(loc="upper left", fontsize="small")
axes[-1].set_xlabel("x")
plt.show()

# %%
# Classes
# -------
# Rings that grow narrower, with one label in twenty wrong. Enough inducing points and neighbors do equally
# well here: the former are smoother, the latter sharper at the outer rings, and believe single wrong labels
# more. Nobody can do better than the last line.


def make_rings(n_samples, rng):
    X = rng.uniform(-2, 2, (n_samples, 2))
    inside = np.sin(3 * np.square(X).sum(1)) > 0
    wrong = rng.random(n_samples) < 0.05
    return X, np.where(inside ^ wrong, "in", "out")


X, y = make_rings(3000, rng)
X_test, y_test = make_rings(2000, rng)
classifiers = {
    "300 inducing points": SparseGPClassifier(n_inducing=300, random_state=0),
    "16 neighbors": DeepGPClassifier(n_layers=1, inference="vecchia", random_state=0),
}
side = np.linspace(-2, 2, 101)
grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)

fig, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
print("                     log-loss  accuracy  seconds")
for ax, (name, model) in zip(axes, classifiers.items()):
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    loss = -log_predictive_density_scorer(model, X_test, y_test)
    print(f"{name:20s} {loss:9.3f} {model.score(X_test, y_test):9.3f} {seconds:8.1f}")
    p = model.predict_proba(grid)[:, 0].reshape(len(side), -1)
    mesh = ax.pcolormesh(side, side, p, vmin=0, vmax=1, cmap="RdBu_r", shading="nearest")
    ax.set(title=name, aspect="equal", xlabel="$x_1$")
axes[0].set_ylabel("$x_2$")
fig.colorbar(mesh, ax=axes, label='probability of "in"')
print(f"the truth            {-0.95 * np.log(0.95) - 0.05 * np.log(0.05):9.3f} {0.95:9.3f}")
plt.show()
