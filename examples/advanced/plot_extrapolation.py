"""
======================
Error bars beyond data
======================

Away from its data a model should know that it does not know. The mean-field posterior of a deep
Gaussian process takes the units of all layers for independent, and is easily too sure. Lindinger et
al. [1]_ couple them: stripes tie units with the same number in all hidden layers, an arrow ties all
of them to the output. Here both kinds of posterior, and a shallow sparse Gaussian process, leave
the region of their training rows.

.. [1] J. Lindinger, D. Reeb, C. Lippert and B. Rakitsch (2020). Beyond the mean-field: structured deep
   Gaussian processes improve the predictive uncertainties. NeurIPS 33.
"""

# %%
# A function of one input, with a gap in the data. As in the paper, the noise is of one size; by default
# structured models have noise that depends on the inputs, and heavier tails.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from skdgp import DeepGPRegressor
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
    "sparse GP": DeepGPRegressor(1, inference="dsvi", n_inducing=20, random_state=0),
}
fig, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items()):
    model.fit(X, y)
    PredictiveDisplay.from_estimator(
        model, X, y, feature_range=(-4, 4), coverage=0.95, n_functions=5, ax=ax
    )
    ax.set(title=name, ylim=(-3, 3))
    ax.get_legend().remove()

# %%
# All three widen where there are no rows. The shallow model returns to its prior within a
# lengthscale. The deep ones have learned that the function is flat on the right, and leave it more
# slowly there. Thin lines are draws of functions; those of the structured posterior come from one
# joint draw of the inducing variables of all layers.
#
# In many dimensions there is always an outside. :class:`~skdgp.model_selection.ProjectionSplit` sorts
# the rows along a random direction, trains on one half and tests on the other. The direction
# matters more than the model, so that models are to be compared on the same splits.

X, y = load_diabetes(return_X_y=True)
DEEP |= {"width": 3, "max_iter": 200}
models["mean field"].set_params(**DEEP)
models["stripes and arrow"].set_params(**DEEP)
results = {name: [] for name in models}
for train, test in ProjectionSplit(2, random_state=0).split(X):
    for name, model in models.items():
        model.fit(X[train], y[train])
        lower, upper = model.predict_interval(X[test], coverage=0.95).T
        density = model.log_predictive_density(X[test], y[test]).mean()
        results[name].append([density, np.mean((lower <= y[test]) & (y[test] <= upper))])

print("                   log-density   coverage of 95% intervals")
for name, values in results.items():
    for density, coverage in values:
        print(f"{name:18s} {density:11.2f} {coverage:14.2f}")

# %%
# Two directions are few: here the deep models are about equal, and the shallow one is the safer on the
# second direction. ``python -m benchmarks extrapolation`` does it with thirty directions and
# larger sets.
