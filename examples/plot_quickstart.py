"""
==========
Quickstart
==========

Deep Gaussian processes beside their neighbors, on data that ship with scikit-learn: handwritten
digits, the progression of diabetes, and a function with a step.
"""

# %%
# Two estimators, used like every other estimator. No scaling, no tuning: both is done inside.

import sys
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from skdgp import DeepGPClassifier, DeepGPRegressor
from skdgp.datasets import make_step
from skdgp.metrics import log_predictive_density_scorer

rows = []


def fit(model, X, y):
    """Fit a model and note the time."""
    start = time.perf_counter()
    return model.fit(X, y), time.perf_counter() - start


# %%
# Digits
# ------
# The mean negative log-probability of the right class (log-loss) tells how honest the probabilities
# are.

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
for name, model in [
    ("DeepGPClassifier", DeepGPClassifier(random_state=0)),
    ("calibrated SVC", CalibratedClassifierCV(SVC(C=10, gamma=0.001))),
]:
    model, seconds = fit(model, X_train, y_train)
    proba = model.predict_proba(X_test)
    accuracy = accuracy_score(y_test, model.predict(X_test))
    rows.append(
        ("digits", name, "accuracy", accuracy, "log-loss", log_loss(y_test, proba), seconds)
    )

# %%
# Diabetes
# --------
# A hard regression problem: most of what there is to know is how little is known.

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
for name, model in [
    ("DeepGPRegressor", DeepGPRegressor(random_state=0)),
    (
        "GaussianProcessRegressor",
        make_pipeline(
            StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        ),
    ),
    ("HistGradientBoosting", HistGradientBoostingRegressor(random_state=0)),
]:
    model, seconds = fit(model, X_train, y_train)
    rmse = root_mean_squared_error(y_test, model.predict(X_test))
    density = np.nan  # boosting of the mean knows no density
    if "Boosting" not in name:
        density = log_predictive_density_scorer(model, X_test, y_test)
    rows.append(("diabetes", name, "RMSE", rmse, "log-density", density, seconds))

# %%
# A step
# ------
# One lengthscale cannot serve a jump and the flat parts beside it. The first layer of a deep Gaussian
# process stretches the inputs where the jump is.

X, y = make_step(n_samples=60, random_state=0)
grid = np.linspace(-0.2, 1.2, 300)[:, None]
fig, axes = plt.subplots(1, 2, figsize=(10, 3.5), sharey=True)
for ax, name, model in [
    (
        axes[0],
        "GaussianProcessRegressor",
        GaussianProcessRegressor(
            ConstantKernel() * RBF(0.2) + WhiteKernel(0.01), normalize_y=True, random_state=0
        ),
    ),
    (axes[1], "DeepGPRegressor", DeepGPRegressor(random_state=0)),
]:
    model, seconds = fit(model, X, y)
    mean, std = model.predict(grid, return_std=True)
    ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.25, lw=0)
    ax.plot(grid[:, 0], mean)
    ax.plot(X[:, 0], y, "k.", ms=4)
    ax.set(title=name, xlabel="x")
    X_new, y_new = make_step(n_samples=1000, random_state=1)
    rmse = root_mean_squared_error(y_new, model.predict(X_new))
    density = log_predictive_density_scorer(model, X_new, y_new)
    rows.append(("step", name, "RMSE", rmse, "log-density", density, seconds))
axes[0].set_ylabel("mean and two standard deviations")
fig.tight_layout()

# %%
# All numbers in one table; higher is better for accuracy and log-density, lower for the others.

for data, name, m1, v1, m2, v2, seconds in rows:
    print(f"{data:9s} {name:25s} {m1:>8s} {v1:8.3f}  {m2:>11s} {v2:7.3f}  {seconds:5.1f} s")

if len(sys.argv) > 1:  # python examples/plot_quickstart.py picture.png
    fig.savefig(sys.argv[1], dpi=150)
    print(f"The picture is in {sys.argv[1]}.")
