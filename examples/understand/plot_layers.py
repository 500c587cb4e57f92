"""
==================================
See how smooth layers make a cliff
==================================

A car without the power to climb a hill has to swing back and forth first. How many steps it needs, as a
function of position and velocity, is a surface with winding cliffs between smooth slopes. Here a deep
Gaussian process with three layers is fitted to this surface, beside an ordinary one, and taken apart.
"""

# %%
# The value is the negative number of steps to the goal, here at 1,000 random states, with a noise of one
# step. The ordinary Gaussian process sees all rows, and is trained to convergence. The deep one has 100
# inducing points in each layer, and two units in each hidden one.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.interpolate import griddata

from skdgp import DeepGPRegressor, SparseGPRegressor
from skdgp.datasets import make_mountain_car
from skdgp.inspection import LayersDisplay, PredictiveDisplay
from skdgp.metrics import coverage_score, log_predictive_density_scorer

columns = ["position", "velocity"]
X, y = make_mountain_car(n_samples=1000, noise=1.0, random_state=0)
X = pd.DataFrame(X, columns=columns)
shallow = SparseGPRegressor(random_state=0).fit(X, y)  # up to 1,500 rows it is exact
deep = DeepGPRegressor(
    3, inference="dsvi", likelihood="gaussian", max_iter=500, random_state=0
).fit(X, y)

# %%
# The true surface, interpolated between many states without noise, and what the models make of the rows.
# The ordinary process has one lengthscale for cliffs and slopes: it blurs the cliffs, and ripples beside
# them. The deep model follows them. It is uncertain along the cliffs and hardly anywhere else.

states, values = make_mountain_car(n_samples=20_000, random_state=1)


def true_value(at):
    return griddata(states, values, at, method="nearest", rescale=True)


position, velocity = np.meshgrid(np.linspace(-1.2, 0.5, 90), np.linspace(-0.07, 0.07, 90))
grid = pd.DataFrame({"position": position.ravel(), "velocity": velocity.ravel()})
mean, std = deep.predict(grid, return_std=True)
surfaces = {
    "true value": true_value(grid),
    "Gaussian process": shallow.predict(grid),
    "deep, three layers": mean,
    "deep, standard deviation": std,
}
fig, axes = plt.subplots(1, 4, figsize=(15, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, (title, surface) in zip(axes.flat, surfaces.items()):
    style = {"cmap": "magma"} if surface is std else {"cmap": "viridis", "vmin": -112, "vmax": 0}
    image = ax.pcolormesh(position, velocity, surface.reshape(position.shape), **style)
    fig.colorbar(image, ax=ax, label="steps", location="bottom")
    ax.set(title=title, xticks=[-1.0, -0.5, 0.0, 0.5])
for ax in axes:
    ax.set_xlabel("position")
axes[0].set_ylabel("velocity")
plt.show()

# %%
# The same in numbers, on states with noise of their own:

X_test, y_test = make_mountain_car(n_samples=2000, noise=1.0, random_state=2)
X_test = pd.DataFrame(X_test, columns=columns)
print("           RMSE   log-density   coverage of 95% intervals")
for name, model in [("exact", shallow), ("3 layers", deep)]:
    rmse = ((model.predict(X_test) - y_test) ** 2).mean() ** 0.5
    density = log_predictive_density_scorer(model, X_test, y_test)
    lower, upper = model.predict_interval(X_test, coverage=0.95).T
    print(f"{name:8s}  {rmse:5.2f}  {density:12.2f}  {coverage_score(y_test, lower, upper):26.3f}")

# %%
# A cut
# -----
# Along the velocity, at the median position, the value is a slope, a cliff, and another slope.

fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
for ax, name, model in [(axes[0], "Gaussian process", shallow), (axes[1], "3 layers", deep)]:
    display = PredictiveDisplay.from_estimator(
        model, X, feature="velocity", coverage=0.95, name="mean", ax=ax
    )
    cut = np.column_stack([np.full(len(display.x), X["position"].median()), display.x])
    ax.plot(display.x, true_value(cut), "k--", label="true value")
    ax.set(title=name, ylabel="")
    ax.legend(loc="upper left")
axes[0].set_ylabel("value in steps")
plt.show()

# %%
# The layers
# ----------
# The first layer is shown along the same cut, later layers along the principal direction of what
# reaches them. No layer has a cliff. The second unit of the first layer climbs where the cliff is, at
# velocities of 0.03 to 0.05, and the next two layers make the climb steeper.

display = LayersDisplay.from_estimator(deep, X, feature="velocity", n_functions=0)
display.axes_[0].locator_params(axis="x", nbins=5)
for points in np.concatenate(display.inducing_points_):
    points.set_visible(False)  # in two dimensions they do not lie on the curves
plt.show()
