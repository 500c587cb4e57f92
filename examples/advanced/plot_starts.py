"""
============================
Choose where training starts
============================

The bound that trains a deep Gaussian process has many optima, and bad ones are close to where training
starts. Pascual Diaz [1]_ showed pictures of what happens, and a way out: a greedy start. This page
follows one of his draws through three starts.

.. [1] S. Pascual Diaz (2017). Pathologies of deep sparse Gaussian process regression. MPhil
   dissertation, University of Cambridge, chapter 5.
"""

# %%
# The data are a draw from a deep Gaussian process of two layers, slow below fast: smooth in places, and
# very wiggly in others. No stationary kernel believes in such a function. All models have two layers,
# two hidden units, and 40 inducing points in each layer.

import matplotlib.pyplot as plt
import numpy as np

from skdgp import DeepGPRegressor
from skdgp.datasets import make_deep_gp
from skdgp.inference import DSVI
from skdgp.inspection import LayersDisplay

X, y = make_deep_gp(1500, lengthscales=[5.0, 0.05], noise=0.02, random_state=0)
order = np.random.default_rng(0).permutation(1500)
train, test = order[:350], order[350:]

# the start of the literature; ours is for targets with noise
narrow = DSVI(inner_scale=1e-5, inner_variance=1.0)
models = {}
for start in ("random", "kmeans", "greedy"):
    # the first rounds of the greedy start make half as many steps again
    models[start] = DeepGPRegressor(
        width=2,
        n_inducing=40,
        inference=narrow,
        likelihood="gaussian",
        init=start,
        max_iter=400 if start == "greedy" else 600,
        random_state=0,
    ).fit(X[train], y[train])

# %%
# ``"random"`` and ``"kmeans"`` place inducing inputs, and begin with hidden layers that hand the inputs on.
# ``"greedy"`` trains a shallow sparse Gaussian process first, and makes it a hidden unit.

grid = np.linspace(0.0, 10.0, 600)[:, None]
fig, axes = plt.subplots(3, 1, figsize=(9, 7), sharex=True, sharey=True, layout="constrained")
for ax, (start, model) in zip(axes, models.items()):
    mean, std = model.predict(grid, return_std=True)
    density = model.log_predictive_density(X[test], y[test]).mean()
    ax.fill_between(grid[:, 0], mean - 2 * std, mean + 2 * std, alpha=0.3, linewidth=0)
    ax.plot(grid, mean)
    ax.plot(X[train], y[train], "k.", markersize=2)
    ax.plot(model.inducing_inputs_[0], np.full(40, y.min() - 0.5), "r|")
    ax.set(title=f'init="{start}": log-density of {len(test)} new rows {density:.2f}', ylabel="y")
_ = axes[-1].set(xlabel="x, and the inducing inputs of the first layer in red")

# %%
# The layers tell how. A line for each hidden unit on the left, and what the last layer makes of them on
# the right. With the greedy start, one unit hands the input on, and the other one already is a sketch of
# the target: the last layer has only to correct it.

for start in ("kmeans", "greedy"):
    LayersDisplay.from_estimator(models[start], X[train], n_functions=0, name=start)

# %%
# Which start is best depends on the data. The greedy one pays where a sparse Gaussian process with the
# same inducing points finds the shape of the function, and is no better than k-means where it does not.
