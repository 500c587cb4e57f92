"""
============================================
Predict fuel economy, with honest error bars
============================================

How many miles does a car go per gallon? Economical cars differ more than thirsty ones, so that an error
bar should depend on the car. Here a deep Gaussian process, an ordinary one and boosted trees learn from
298 cars and predict 100 others.
"""

# %%
# The estimator is used like every other one of scikit-learn. Inputs and target are scaled inside.

import sys
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skdgp import DeepGPRegressor
from skdgp.datasets import load_cars
from skdgp.metrics import coverage_score, interval_score, log_predictive_density_scorer

X, y = load_cars(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=100, random_state=0)

# %%
# The ordinary Gaussian process has a lengthscale for each column, and the best of three searches.

kernel = ConstantKernel() * RBF(np.full(X.shape[1], 2.0)) + WhiteKernel()
models = {
    "DeepGPRegressor": DeepGPRegressor(random_state=0),
    "GaussianProcessRegressor": make_pipeline(
        StandardScaler(),
        GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0),
    ),
    "HistGradientBoosting": HistGradientBoostingRegressor(random_state=0),
}
seconds = {}
for name, model in models.items():
    start = time.perf_counter()
    model.fit(X_train, y_train)
    seconds[name] = time.perf_counter() - start

# %%
# Log-density and interval score judge the whole distribution: higher is better for the first, lower for
# RMSE and interval score. Boosting of the mean knows no distribution.


def interval(name):
    """Intervals of 90 % for the test rows."""
    if name == "DeepGPRegressor":
        return models[name].predict_interval(X_test, coverage=0.9).T
    mean, std = models[name].predict(X_test, return_std=True)
    return mean - 1.645 * std, mean + 1.645 * std


print("                           RMSE  log-density  interval score  in 90 %  seconds")
for name, model in models.items():
    line = f"{name:25s}  {root_mean_squared_error(y_test, model.predict(X_test)):.2f}"
    if "Boosting" in name:
        line += f"{'':39s}"
    else:
        low, high = interval(name)
        line += f"  {log_predictive_density_scorer(model, X_test, y_test):11.2f}"
        line += f"  {interval_score(y_test, low, high, coverage=0.9):14.2f}"
        line += f"  {coverage_score(y_test, low, high):7.2f}"
    print(f"{line}  {seconds[name]:7.1f}")

# %%
# The ordinary Gaussian process has one width for all cars: too wide for thirsty ones, too narrow for
# economical ones. The deep one knows which predictions can be trusted. Cars outside of their interval are
# orange.

fig, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharex=True, sharey=True, layout="constrained")
for ax, name in zip(axes, ("GaussianProcessRegressor", "DeepGPRegressor")):
    low, high = interval(name)
    inside = (low <= y_test) & (y_test <= high)
    ax.plot([8, 46], [8, 46], ":", color="gray", lw=1)
    for rows, color in ((inside, "C0"), (~inside, "C1")):
        ax.vlines(y_test[rows], low[rows], high[rows], color=color, lw=2, alpha=0.5)
        ax.plot(y_test[rows], models[name].predict(X_test)[rows], ".", color=color)
    ax.set(title=f"{name}: {inside.sum()} of 100 inside", xlabel="true miles per gallon")
axes[0].set_ylabel("predicted, with intervals of 90 %")
plt.show()

# %%

if len(sys.argv) > 1:  # python examples/start/plot_quickstart.py picture.png
    fig.savefig(sys.argv[1], dpi=150)
    print(f"The picture is in {sys.argv[1]}.")
