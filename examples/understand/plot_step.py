"""
======================================
See why a Gaussian process cannot step
======================================

A Gaussian process believes that its function is equally smooth everywhere. A step contradicts that at
one place, and the price is paid at all others. This page follows an experiment of Pascual Diaz [1]_:
an ordinary Gaussian process beside deep ones of two and of three layers.

.. [1] S. Pascual Diaz (2017). Pathologies of deep sparse Gaussian process regression. MPhil
   dissertation, University of Cambridge, section 3.1.
"""

# %%
# The data are 60 equally spaced points of a step from -1 to 1, with noise of standard deviation
# 0.025. The ordinary Gaussian process sees all rows, and is trained to convergence; for the deep models 20
# inducing points in each layer are enough.

import matplotlib.pyplot as plt
from sklearn.metrics import root_mean_squared_error

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.datasets import make_step
from skdgp.inspection import LayersDisplay, PredictiveDisplay
from skdgp.metrics import coverage_score, log_predictive_density_scorer

X, y = make_step(n_samples=60, random_state=0)
models = {
    "Gaussian process": SparseGPRegressor(random_state=0),
    "2 layers": DeepGPRegressor(2, inference="dsvi", likelihood="gaussian", n_inducing=20),
    "3 layers": DeepGPRegressor(3, inference="dsvi", likelihood="gaussian", n_inducing=20),
}
for name, model in models.items():
    if "layers" in name:
        model.set_params(max_iter=1000, random_state=0)
    model.fit(X, y)

# %%
# The Gaussian process takes from -0.15 to 0.15 to climb the step, overshoots on both sides, and its
# draws wiggle where the function is flat. What it cannot explain it calls noise, so that its intervals
# are about eight times too wide. The deep models jump within the gap between two rows, with little
# overshoot and narrow intervals. Beyond the data, draws of the Gaussian process swing around the mean of
# the prior, while many draws of the deep models stay at one of the two levels or switch between them:
# these models have learned that the function has steps.

fig, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items()):
    PredictiveDisplay.from_estimator(
        model, X, y, feature_range=(-1.4, 1.4), coverage=0.95, n_functions=10, name="mean", ax=ax
    )
    ax.set(title=name, xlabel="x", ylabel="", ylim=(-2.5, 2.5))
    ax.get_legend().remove()
axes[0].set_ylabel("y")
axes[2].legend(loc="lower right", bbox_to_anchor=(0.92, 0.0), fontsize="small")
plt.show()

# %%
# On 1,000 new rows between -1 and 1:

X_test, y_test = make_step(n_samples=1000, random_state=1)
print("                   RMSE   log-density   coverage of 95% intervals")
for name, model in models.items():
    rmse = root_mean_squared_error(y_test, model.predict(X_test))
    density = log_predictive_density_scorer(model, X_test, y_test)
    lower, upper = model.predict_interval(X_test, coverage=0.95).T
    print(f"{name:16s}  {rmse:5.3f}  {density:12.2f}  {coverage_score(y_test, lower, upper):26.3f}")

# %%
# All three cover what they promise, give or take two points. That alone is no praise: intervals of the
# Gaussian process are too wide on the flat parts, miss the step, and are right on average. RMSE and
# log-density tell the models apart. Most of the error that is left to the deep ones is made inside the gap
# that holds the step.
#
# How do smooth layers make a jump? By turns. The ticks at the bottom of each panel are the rows as
# they reach the layer: evenly spaced at first, then pulled apart in the middle, then in two clumps,
# for which a smooth curve is enough.

display = LayersDisplay.from_estimator(models["3 layers"], X, n_functions=0)
_ = display.figure_.suptitle("Mean, two standard deviations and inducing points of each layer")
