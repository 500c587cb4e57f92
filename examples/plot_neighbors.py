"""
==================================
Neighbors instead of a summary
==================================

A sparse Gaussian process summarizes all rows by some inducing points. A nearest-neighbor Gaussian
process keeps the rows, and predicts from those around. Where a function has fine structure, and noise
of very uneven size, the difference is large.
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

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.inference import Vecchia
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
    "50 inducing points": SparseGPRegressor(kernel="matern32", n_inducing=50, random_state=0),
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
# Fifty inducing points are too few for the fast part, and call it noise. Five hundred follow it, but all
# models with one size of noise are too sure of themselves in the middle, and too careful elsewhere. The
# local scale is estimated from the neighbors of each row.

fig, axes = plt.subplots(3, 1, figsize=(9, 9), sharex=True, layout="constrained")
for ax, name in zip(axes, ("50 inducing points", "16 neighbors", "16 neighbors, local scale")):
    PredictiveDisplay.from_estimator(models[name], X[::10], y[::10], name="mean", ax=ax)
    ax.set(title=name, xlabel="", ylabel="y")
    ax.legend(loc="upper left", fontsize="small")
axes[-1].set_xlabel("x")

# %%
# How many neighbors?
# -------------------
# The answer changes little; the time does not. A fit looks at 60,000 neighborhoods, however many rows
# there are.

print("neighbors  RMSE  log-density  seconds")
for n_neighbors in (4, 8, 16, 32):
    model = DeepGPRegressor(
        n_layers=1, inference=Vecchia(n_neighbors), kernel="matern32", random_state=0
    )
    start = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - start
    error = root_mean_squared_error(y_test, model.predict(X_test))
    density = log_predictive_density_scorer(model, X_test, y_test)
    print(f"{n_neighbors:9d} {error:6.3f} {density:11.2f}  {seconds:7.1f}")
