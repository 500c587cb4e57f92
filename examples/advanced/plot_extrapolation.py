"""
================================
Trust error bars beyond the data
================================

Away from its data a model should be unsure. The mean-field posterior of a deep
Gaussian process takes the units of all layers for independent, and is easily too sure. Lindinger et
al. [1]_ couple them: stripes tie units with the same number in all hidden layers, an arrow ties all
of them to the output. Here both kinds of posterior, and an ordinary Gaussian process, leave the
region of their training rows.

.. [1] J. Lindinger, D. Reeb, C. Lippert and B. Rakitsch (2020). Beyond the mean-field: structured deep
   Gaussian processes improve the predictive uncertainties. NeurIPS 33.
"""

# %%
# A function of one input, with a gap in the data. As in the paper, the noise is of one size; by default
# structured models have noise that depends on the inputs, and heavier tails.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.datasets import load_cars
from skdgp.inference import StructuredVI
from skdgp.inspection import PredictiveDisplay
from skdgp.model_selection import ProjectionSplit

rng = np.random.default_rng(0)
X = np.concatenate([rng.uniform(-2, -0.5, 40), rng.uniform(0.6, 2, 40)])[:, None]
y = np.sin(4 * X[:, 0]) * (X[:, 0] < 0) + 0.1 * rng.standard_normal(80)

DEEP = {
    "n_layers": 3,
    "width": 2,
    "likelihood": "gaussian",
    "n_inducing": 20,
    "max_iter": 500,
    "random_state": 0,
}
models = {
    "mean field": DeepGPRegressor(inference=StructuredVI("mean-field"), **DEEP),
    "stripes and arrow": DeepGPRegressor(inference=StructuredVI(), **DEEP),
    "Gaussian process": SparseGPRegressor(random_state=0),
}
fig, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items()):
    model.fit(X, y)
    PredictiveDisplay.from_estimator(
        model, X, y, feature_range=(-4, 4), coverage=0.95, n_functions=5, ax=ax
    )
    ax.set(title=name, ylim=(-3, 3), xlabel="x")
    ax.get_legend().remove()
plt.show()

# %%
# All three widen where there are no rows. The shallow model returns to its prior within a
# lengthscale. The deep ones have learned that the function is flat on the right, and leave it more
# slowly there. Thin lines are draws of functions; those of the structured posterior come from one
# joint draw of the inducing variables of all layers.
#
# In many dimensions there is always an outside. :class:`~skdgp.model_selection.ProjectionSplit` sorts
# the rows along a random direction, trains on one half and tests on the other. The direction
# matters more than the model, so that models are to be compared on the same splits. Here are cars; the
# deep models have the noise that they have by default.

X, y = load_cars(return_X_y=True)
models = {
    "structured": DeepGPRegressor(inference=StructuredVI(), max_iter=100, random_state=0),
    "with inflation": DeepGPRegressor(
        inference=StructuredVI(n_inflation_splits=4), max_iter=100, random_state=0
    ),
    "Gaussian process": SparseGPRegressor(random_state=0),
}
print("                  log-density   coverage of 95% intervals")
for split, (train, test) in enumerate(ProjectionSplit(2, random_state=0).split(X)):
    for name, model in models.items():
        model.fit(X[train], y[train])
        lower, upper = model.predict_interval(X[test], coverage=0.95).T
        density = model.log_predictive_density(X[test], y[test]).mean()
        covered = np.mean((lower <= y[test]) & (y[test] <= upper))
        print(f"{split}  {name:16s} {density:10.2f} {covered:14.2f}")

# %%
# Two directions are few; ``python -m benchmarks papers structured`` takes more, and larger sets.
