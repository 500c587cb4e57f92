"""
===========================================
Choose the noise: outliers and uneven noise
===========================================

The likelihood says what noise looks like; for ``inference="dsvi"`` with one layer it is by default Gaussian,
and of the same size everywhere. Two data sets on which that is wrong show what to put in its place: Student-t
noise for targets with gross errors, and noise whose size is a second function of the input. With two layers or
more, and in the deep models of the default mixture, both at once are the default,
``"heteroscedastic_student_t"``.
"""

# %%
# Both data sets have 200 rows of the same smooth function. For the sake of the comparison the models have
# one layer, which such a function asks for; the likelihoods are the same with more.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import root_mean_squared_error

from skdgp import DeepGPRegressor
from skdgp.inspection import CoverageDisplay, PredictiveDisplay
from skdgp.metrics import coverage_score, log_predictive_density_scorer


def function(x):
    return np.sin(3 * x) + x


def make_outliers(n_samples, rng):
    x = rng.uniform(-2, 2, n_samples)
    outlier = rng.random(n_samples) < 0.1
    noise = 0.1 * rng.standard_normal(n_samples) + outlier * rng.uniform(1, 4, n_samples)
    return x[:, None], function(x) + noise


def make_uneven(n_samples, rng):
    x = rng.uniform(-2, 2, n_samples)
    std = 0.03 + 0.6 / (1 + np.exp(-4 * x))
    return x[:, None], function(x) + std * rng.standard_normal(n_samples)


def fit_and_plot(X, y, **likelihoods):
    """Fit a model with each likelihood, and plot it beside the true function."""
    models = {}
    axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")[1]
    grid = np.linspace(-2, 2, 200)
    for ax, (likelihood, title) in zip(axes, likelihoods.items()):
        model = DeepGPRegressor(
            1, inference="dsvi", n_inducing=30, likelihood=likelihood, max_iter=500, random_state=0
        )
        models[title] = model.fit(X, y)
        PredictiveDisplay.from_estimator(model, X, y, name="mean", ax=ax)
        ax.plot(grid, function(grid), "k--", lw=1, zorder=4, label="true function")
        ax.set(title=title, xlabel="x", ylabel="")
        ax.legend(loc="upper left", fontsize="small")
    axes[0].set_ylabel("y")
    return models


# %%
# Outliers
# --------
# One target in ten is thrown off, upwards. Under Gaussian noise the outliers lift the mean and blow up the
# intervals: the darker band should hold one half of the targets, and holds many more. Student-t noise
# has heavy tails for the outliers, and the mean stays on the function.

rng = np.random.default_rng(0)
X, y = make_outliers(200, rng)
outliers = fit_and_plot(X, y, gaussian="Gaussian noise", student_t="Student-t noise")

# %%
# On new rows, which have outliers, too. The error of the mean is measured against the true function.

X_test, y_test = make_outliers(2000, rng)
print("                 error of mean  log-density  in 50% intervals  in 95% intervals")
for name, model in outliers.items():
    error = root_mean_squared_error(function(X_test[:, 0]), model.predict(X_test))
    density = log_predictive_density_scorer(model, X_test, y_test)
    covered = [
        coverage_score(y_test, *model.predict_interval(X_test, coverage).T)
        for coverage in (0.5, 0.95)
    ]
    print(f"{name:15s}  {error:13.3f}  {density:11.2f}  {covered[0]:16.2f}  {covered[1]:16.2f}")

# %%
# The Student-t distribution is wrong as well, because it is symmetric, and these outliers
# are not. Its wide intervals are therefore too narrow at the upper end. Its narrow ones, and its
# log-density, are much better.
#
# Uneven noise
# ------------
# Now the noise grows from left to right. Gaussian noise of one size is a compromise, too wide on
# the left and too narrow on the right. The heteroscedastic likelihood learns the size along with the
# function.

X, y = make_uneven(200, rng)
uneven = fit_and_plot(X, y, gaussian="Gaussian noise", heteroscedastic="Heteroscedastic noise")

# %%
# The mean is no better: what changes is what the model says about itself. The Gaussian model covers
# about 95 percent in all, but not where it matters.

X_new, y_new = make_uneven(2000, rng)
left = X_new[:, 0] < 0
print("                       error of mean  log-density  in 95% intervals: left   right")
for name, model in uneven.items():
    error = root_mean_squared_error(function(X_new[:, 0]), model.predict(X_new))
    density = log_predictive_density_scorer(model, X_new, y_new)
    lower, upper = model.predict_interval(X_new, coverage=0.95).T
    covered = [coverage_score(y_new[part], lower[part], upper[part]) for part in (left, ~left)]
    print(f"{name:21s}  {error:13.3f}  {density:11.2f}  {covered[0]:22.2f}  {covered[1]:6.2f}")

# %%
# Coverage
# --------
# Intervals of every size at once. In both pictures most Gaussian intervals cover far too much, and those
# that should cover 95 percent are about right, so that looking at these alone would deceive. The other
# likelihoods are close to the diagonal, though not on it: 200 rows do not tell the size of the noise exactly.

fig, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
for ax, title, models, X, y in [
    (axes[0], "Outliers", outliers, X_test, y_test),
    (axes[1], "Uneven noise", uneven, X_new, y_new),
]:
    for name, model in models.items():
        CoverageDisplay.from_estimator(model, X, y, name=name, ax=ax)
    ax.set(title=title)
plt.show()
