"""
==========
Quickstart
==========

Deep Gaussian processes beside their neighbors, on data that ship with scikit-learn, handwritten
digits and the progression of diabetes, and on a function with a step.
"""

# %%
# The two estimators are used like every other estimator. Inputs and targets are scaled inside.

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
from skdgp.inspection import PredictiveDisplay
from skdgp.metrics import log_predictive_density_scorer

rows = []


def fit(model, X, y):
    """Fit a model and note the time."""
    start = time.perf_counter()
    return model.fit(X, y), time.perf_counter() - start


# %%
# Digits
# ------
# The mean negative log-probability of the right class, the log-loss, tells how honest the
# probabilities are. The support vector machine gets more digits right; the deep Gaussian process
# knows better when it does not know. A fifth of the default number of steps is enough here.

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
for name, model in [
    ("DeepGPClassifier", DeepGPClassifier(max_iter=100, random_state=0)),
    ("calibrated SVC", CalibratedClassifierCV(SVC(C=10, gamma=0.001))),
]:
    model, seconds = fit(model, X_train, y_train)
    proba = model.predict_proba(X_test)
    accuracy = accuracy_score(y_test, model.predict(X_test))
    loss = log_loss(y_test, proba)
    rows.append(("digits", name, "accuracy", accuracy, "log-loss", loss, seconds))

# %%
# Diabetes
# --------
# Most of what there is to know about these targets is how little is known. A single deep model can
# fool itself on a few hundred noisy rows. The default is a mixture of deep and shallow models, and does
# not: it is nearly as good as an exact Gaussian process, which is all one can hope for here.

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
kernel = ConstantKernel() * RBF(2.0) + WhiteKernel()
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
# One lengthscale cannot serve a jump and the flat parts beside it. The Gaussian process crosses the
# step too slowly, rings beside it, and explains what it misses as noise: its intervals are far too
# wide where the function is flat. The first layer of a deep Gaussian process stretches the inputs
# where the jump is. Its mean jumps between two neighbors of the data, with a small overshoot, and its
# intervals are narrow wherever there are data. Beyond the data both models admit that they know
# little. (``inference="dsvi"`` asks for one deep model instead of the mixture.)

X, y = make_step(n_samples=60, random_state=0)
X_test, y_test = make_step(n_samples=1000, random_state=1)
kernel = ConstantKernel() * RBF(0.2) + WhiteKernel(0.01)
fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, name, model in [
    (axes[0], "GaussianProcessRegressor", GaussianProcessRegressor(kernel, normalize_y=True)),
    (
        axes[1],
        "DeepGPRegressor, 2 layers",
        DeepGPRegressor(inference="dsvi", n_inducing=20, max_iter=1000, random_state=0),
    ),
]:
    model, seconds = fit(model, X, y)
    PredictiveDisplay.from_estimator(
        model, X, y, feature_range=(-1.3, 1.3), coverage=0.95, n_points=400, name="mean", ax=ax
    )
    ax.set(title=name, xlabel="x", ylabel="", ylim=(-2.2, 2.2))
    ax.legend(loc="lower right", bbox_to_anchor=(0.88, 0.02))
    rmse = root_mean_squared_error(y_test, model.predict(X_test))
    density = log_predictive_density_scorer(model, X_test, y_test)
    rows.append(("step", name, "RMSE", rmse, "log-density", density, seconds))
axes[0].set_ylabel("y")

# %%
# All numbers in one table, on rows that no model has seen. Higher is better for accuracy and
# log-density, lower for the others.

for data, name, name1, value1, name2, value2, seconds in rows:
    print(
        f"{data:8s}  {name:25s}  {name1:>8s} {value1:7.3f}  "
        f"{name2:>11s} {value2:7.3f}  {seconds:5.1f} s"
    )

if len(sys.argv) > 1:  # python examples/plot_quickstart.py picture.png
    fig.savefig(sys.argv[1], dpi=150)
    print(f"The picture is in {sys.argv[1]}.")
